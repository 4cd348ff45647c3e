"""Ways in, by CPython's calling convention: functions and methods, and what they lead to.

Forms of one and two operands ("1", "2") take exactly those; views, reductions, what is done in
place and what may be given by name ("v", "s", "i", "n") take a tensor and whatever follows it. All
else is handed to the Python front as it came.
"""

from __future__ import annotations

from ..front_parts import WORDS
from . import FORMS
from .calls import CALLS
from .named import named
from .words import at

_PASSED = "ptr %args, i64 %n, ptr %names"
_FRONT = {"v": "placed_v", "s": "reduce", "i": "place", "n": "placed_n"}


def ways_in() -> str:
    """From arguments to fronts: each form called as a function, and as a method of a tensor."""
    return ("\n; the function forms: the first argument is the tensor\n"
            + "".join(_function_of_rest(form) for form in _FRONT)
            + "".join(_method_of_rest(form) for form in _FRONT) + _OTHERWISE
            + named({"v": "view", "n": "otherwise_of"})
            + _exactly("1", 1, "") + _exactly("1", 0, "_of") + _exactly("2", 2, "")
            + _exactly("2", 1, "_of") + _NEXT_SEQUENCE + CALLS)


def _function_of_rest(form: str) -> str:
    return f"""define internal ptr @enter{form}(ptr %ctx, {_PASSED}) noinline {{
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %fast, label %other
fast:
  %x = load ptr, ptr %args
  %rest = getelementptr ptr, ptr %args, i64 1
  %less = sub i64 %n, 1
  %out = call ptr @{_FRONT[form]}(ptr %ctx, ptr %x, ptr %rest, i64 %less, ptr %names)
  ret ptr %out
other:
  %answer = call ptr @otherwise(ptr %ctx, {_PASSED})
  ret ptr %answer
}}
"""


def _method_of_rest(form: str) -> str:
    return f"""define internal ptr @enter{form}_of(ptr %ctx, ptr %self, {_PASSED}) noinline {{
  %out = tail call ptr @{_FRONT[form]}(ptr %ctx, ptr %self, {_PASSED})
  ret ptr %out
}}
"""


def _exactly(form: str, count: int, method: str) -> str:
    """An entry that takes so many arguments, besides the tensor it is a `method` of."""
    given = "ptr %self, " if method else ""
    front = {"1": "unary", "2": "binary"}[form]
    loads = "".join(f"  %p{k} = getelementptr ptr, ptr %args, i64 {k}\n"
                    f"  %a{k} = load ptr, ptr %p{k}\n" for k in range(count))
    operands = ", ".join([*(["ptr %self"] if method else []),
                          *(f"ptr %a{k}" for k in range(count))])
    return f"""define internal ptr @enter{form}{method}(ptr %ctx, {given}{_PASSED}) noinline {{
  %all = icmp eq i64 %n, {count}
  %plain = icmp eq ptr %names, null
  %ok = and i1 %all, %plain
  br i1 %ok, label %fast, label %other
fast:
{loads}  %out = call ptr @{front}(ptr %ctx, {operands})
  ret ptr %out
other:
  %answer = call ptr @otherwise{method}(ptr %ctx, {given}{_PASSED})
  ret ptr %answer
}}
"""


_OTHERWISE = """
; anything but the plain form: hand all arguments to the Python front
define internal ptr @otherwise(ptr %ctx, ptr %args, i64 %n, ptr %names) noinline {
  %frontp = getelementptr i8, ptr %ctx, i64 8
  %front = load ptr, ptr %frontp
  %out = call ptr @PyObject_Vectorcall(ptr %front, ptr %args, i64 %n, ptr %names)
  ret ptr %out
}
define internal ptr @otherwise_of(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names) noinline {
  %given = call i64 @given(i64 %n, ptr %names)
  %all = add i64 %given, 1
  %room = alloca ptr, i64 %all
  call void @prepend(ptr %room, ptr %self, ptr %args, i64 %given)
  %m = add i64 %n, 1
  %out = call ptr @otherwise(ptr %ctx, ptr %room, i64 %m, ptr %names)
  ret ptr %out
}

"""

_NEXT_SEQUENCE = """define ptr @next_sequence(ptr %self, ptr %args, i64 %n, ptr %names) {
  %last = load i64, ptr @g_sequence
  %seq = add i64 %last, 1
  store i64 %seq, ptr @g_sequence
  %boxed = call ptr @PyLong_FromSsize_t(i64 %seq)
  ret ptr %boxed
}
"""


# -- one per op ------------------------------------------------------------------------------------


def entries() -> str:
    """Functions, which find their context in `self`, and one small method per context."""
    text = []
    for form, count in FORMS.items():
        text.append(f"define ptr @f{form}(ptr %self, {_PASSED}) {{\n{at('%ctx', '%self', WORDS)}"
                    f"  %out = tail call ptr @enter{form}(ptr %ctx, {_PASSED})\n"
                    "  ret ptr %out\n}\n")
        text += [f"define internal ptr @m{form}_{i}(ptr %self, {_PASSED}) {{\n{_context(form, i)}"
                 f"  %out = tail call ptr @enter{form}_of(ptr %ctx, ptr %self, {_PASSED})\n"
                 "  ret ptr %out\n}\n" for i in range(count)]
    text += [f"define internal ptr @r2_{i}(ptr %self, {_PASSED}) {{\n{_context('2', i)}"
             "  %x = load ptr, ptr %args\n"
             "  %out = tail call ptr @binary(ptr %ctx, ptr %x, ptr %self)\n"
             "  ret ptr %out\n}\n" for i in range(FORMS["2"])]
    for kind in (*(f"m{form}" for form in FORMS), "r2"):
        count = FORMS[kind[1]]
        listed = ", ".join(f"ptr @{kind}_{i}" for i in range(count))
        text.append(f"@entries_{kind} = global [{count} x ptr] [{listed}]\n")
    return "".join(text)


def _context(form: str, i: int) -> str:
    return (f"  %at = getelementptr ptr, ptr @contexts{form}, i64 {i}\n"
            "  %ctx = load ptr, ptr %at\n")
