"""The fronts themselves, as LLVM IR: one lookup, one allocation, one kernel call, one step recorded.

`unary`, `binary`, `view`, `reduce` and `place` (with `again`) are the fronts of the five forms, and
`ternary` that of x @ w.T + bias; `named` puts arguments in their places. Around them stand the
`entries`, which speak CPython's calling convention. All call the functions in `common` and
`change`, and what several do in the same words is in `fragments`. None of it is read where the
machine code made of it is on disk already.
"""

from __future__ import annotations

#: how many ops of each form can have native methods: pointwise of one operand, of two, views,
#: reductions (sums), pointwise in place, and others whose arguments may be given by name
FORMS = {"1": 160, "2": 96, "v": 64, "s": 48, "i": 160, "n": 256}

#: what a kernel that works in place reads: the tensor, that and what is beside it, only the
#: latter, or several operands
ALONE, BESIDE, INSTEAD, MANY = range(4)
#: said besides where kernels are made for the values of numbers
VALUED = 8
