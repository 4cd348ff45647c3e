"""Python's integers as native code reads them: addresses and counts, in two nanoseconds.

Python's own functions take three times that, and a small op unboxes half a dozen.
"""

from __future__ import annotations

from .anatomy import DIGIT, DIGITS, NO_DIGIT, ONE_DIGIT, SIZE, TWO_DIGITS


def _two_digits() -> str:
    """Text that reads %value of a positive integer of two digits."""
    return f"""  %two = load i64, ptr %digits
  %low = and i64 %two, {(1 << DIGIT) - 1}
  %high = lshr i64 %two, 32
  %moved = shl i64 %high, {DIGIT}
  %value = or i64 %low, %moved
"""


def _start(name: str, result: str, cases: str) -> str:
    return f"""
define {result} @{name}(ptr %number) {{
  %sizes = getelementptr i8, ptr %number, i64 {SIZE}
  %digits = getelementptr i8, ptr %number, i64 {DIGITS}
  %size = load i64, ptr %sizes
  switch i64 %size, label %other [{cases}]
"""


#: @flambeau_address and @flambeau_integer; what is no such integer is left to Python, which says so
INTEGERS_IR = f"""
declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsSsize_t(ptr)
{_start("flambeau_address", "ptr", f"i64 {TWO_DIGITS}, label %two_digits")}
two_digits:
{_two_digits()}  %address = inttoptr i64 %value to ptr
  ret ptr %address
other:
  %asked = call ptr @PyLong_AsVoidPtr(ptr %number)
  ret ptr %asked
}}
{_start("flambeau_integer", "i64", f"i64 {NO_DIGIT}, label %nothing "
        f"i64 {ONE_DIGIT}, label %one_digit i64 {TWO_DIGITS}, label %two_digits")}
nothing:
  ret i64 0
one_digit:
  %digit = load i32, ptr %digits
  %one = zext i32 %digit to i64
  ret i64 %one
two_digits:
{_two_digits()}  ret i64 %value
other:
  %asked = call i64 @PyLong_AsSsize_t(ptr %number)
  ret i64 %asked
}}
"""
