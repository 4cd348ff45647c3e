"""What `hop.py` reads and writes, as words in memory."""

from __future__ import annotations

#: of a trace: the call expected next, the list that holds the step it is at, its lists, types, what
#: a leaf has for a node, and whether memory from outside is to change
STATE = ("record", "at", "values", "outside", "tagged", "numbers", "type", "tensor",
         "tuple", "float", "leaf", "thread", "wrote")

#: of a call: what it is, which step it leads to, what it makes (one tensor with this signature and
#: node, or a tuple of so many, with theirs in a row at an address), the call expected after it, one
#: that may be made in its place, and the numbers of tensors from outside that it writes to
RECORD = ("op", "grad", "step", "sig", "node", "made", "next", "other", "names", "named", "count",
          "rows", "written", "writes")

#: words of an argument: its kind and up to five that say which it is
ARGUMENT = 6

#: a value of the path; a tensor from outside: number, tensor, its signatures while it is traced
#: and otherwise, node if that is always the same; any number; a value that is compared; a number
#: that is compared; a list or a tuple of so many elements, which follow, and its type
KINDS = ("value", "outside", "float", "constant", "number", "list", "tuple")

#: so many arguments, with the elements of lists, a call may have that is followed here
MOST = 32
