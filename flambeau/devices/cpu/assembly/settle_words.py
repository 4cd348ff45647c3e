"""What `settle.py` is told of a program and of the values it leaves, as words in memory."""

from __future__ import annotations

#: values of the path, whether each outlives the segment, tensors from outside, results, where the
#: program and its table are, from how much work on it gives up the GIL, what becomes of values, and
#: what tensors that are real are, and the free lists that memory for results comes from;
#: last: nobody reads the trace's lists after this, no way back remembers them: they are cleared
PLAN = ("count", "live", "outside", "results", "table", "failed", "work", "threshold", "code",
        "rows", "row_count", "type", "class_name", "pools", "last")
#: words of a row: value, number of the result (or -1 - tensor from outside), bytes further, node
ROW = 4
#: words of a row: leaf, signature, node
PROMISE = 3
#: the answer if other values outlive the segment than the plan says: nothing was done
ANOTHER = 1
#: the answer if there is no memory for a result in its free list: all before it have some
EMPTY = 2
#: the answer if a check in the program did not hold: no value has become real
FAILED = 3
