"""assert_close: whether two results agree, and where and by how much they do not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy

import flambeau
from flambeau import Tensor

#: dtype -> (relative, absolute): what may differ by default; others not at all
TOLERANCES = {
    flambeau.float16: (1e-3, 1e-5), flambeau.bfloat16: (1.6e-2, 1e-5),
    flambeau.float32: (1.3e-6, 1e-5), flambeau.float64: (1e-7, 1e-7),
    flambeau.complex64: (1.3e-6, 1e-5), flambeau.complex128: (1e-7, 1e-7),
}
_NUMBERS = (bool, int, float, complex)
_KINDS = {bool: flambeau.bool, int: flambeau.int64, float: flambeau.float64,
          complex: flambeau.complex128}


class _Terms(NamedTuple):
    """On what terms things are compared."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    checked: tuple[str, ...]  # attributes of tensors that must agree
    subclasses: bool


class _Differs(Exception):
    """What differs, and under which item."""

    def __init__(self, message: str, item: tuple = ()):
        super().__init__(message)
        self.message, self.item = message, item


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False,
                 check_device=True, check_dtype=True, check_layout=True, check_stride=False,
                 msg=None):
    """Raise AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere.

    Tensors, numbers, arrays, and sequences and mappings of them; tolerances follow the dtype.
    """
    __tracebackhide__ = True
    if (rtol is None) != (atol is None):
        raise ValueError("Both 'rtol' and 'atol' must be either specified or omitted, but got no "
                         f"{'rtol' if rtol is None else 'atol'}.")
    checks = {"device": check_device, "layout": check_layout, "dtype": check_dtype,
              "stride()": check_stride}
    terms = _Terms(rtol, atol, equal_nan, tuple(k for k, wanted in checks.items() if wanted),
                   allow_subclasses)
    try:
        _compare(actual, expected, terms, ())
    except _Differs as difference:
        text = difference.message
        if difference.item:
            text += "\n\nThe failure occurred for item " + "".join(
                f"[{each!r}]" for each in difference.item)
        if callable(msg):
            text = msg(text)
        elif msg is not None:
            text = msg
    else:
        return
    raise AssertionError(text)


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """assert_close, with dtypes and devices left aside; deprecated."""
    warnings.warn("`torch.testing.assert_allclose()` is deprecated, please use "
                  "`torch.testing.assert_close()` instead", FutureWarning, stacklevel=2)
    if not isinstance(actual, Tensor):
        actual = flambeau.tensor(actual)
    if not isinstance(expected, Tensor):
        expected = flambeau.tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        found = [TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (actual, expected)]
        rtol, atol = (max(pair) for pair in zip(*found, strict=True))
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True,
                 check_dtype=False, check_stride=False, msg=msg or None)


# -- by kind ---------------------------------------------------------------------------------------


def _compare(actual, expected, terms: _Terms, item: tuple) -> None:
    if _are(Sequence, actual, expected) and not _any(str, actual, expected):
        if len(actual) != len(expected):
            raise _Differs("The length of the sequences mismatch: "
                           f"{len(actual)} != {len(expected)}", item)
        for k, pair in enumerate(zip(actual, expected, strict=True)):
            _compare(*pair, terms, (*item, k))
    elif _are(Mapping, actual, expected):
        _compare_mappings(actual, expected, terms, item)
    elif actual is None or expected is None:
        if actual is not expected:
            raise _Differs(f"None mismatch: {actual} is not {expected}", item)
    elif _are((bool, numpy.bool_), actual, expected):
        if bool(actual) is not bool(expected):
            raise _Differs(f"Booleans mismatch: {actual} is not {expected}", item)
    elif _are((*_NUMBERS, numpy.number), actual, expected):
        _compare_numbers(actual, expected, terms, item)
    elif _are((Tensor, numpy.ndarray), actual, expected) and (
            terms.subclasses or type(actual) is type(expected)):
        _compare_tensors(_tensor(actual), _tensor(expected), terms, item)
    else:
        raise TypeError("No comparison pair was able to handle inputs of type "
                        f"{type(actual)} and {type(expected)}.")


def _tensor(x) -> Tensor:
    return x if isinstance(x, Tensor) else flambeau.from_numpy(numpy.array(x))


def _are(kinds, *values) -> bool:
    return all(isinstance(v, kinds) for v in values)


def _any(kinds, *values) -> bool:
    return any(isinstance(v, kinds) for v in values)


def _compare_mappings(actual, expected, terms: _Terms, item: tuple) -> None:
    missing, more = expected.keys() - actual.keys(), actual.keys() - expected.keys()
    if missing or more:
        text = "The keys of the mappings do not match:"
        text += f"\nMissing keys in the actual mapping: {sorted(missing)}" if missing else ""
        text += f"\nAdditional keys in the actual mapping: {sorted(more)}" if more else ""
        raise _Differs(text, item)
    for key in expected:
        _compare(actual[key], expected[key], terms, (*item, key))


def _compare_numbers(actual, expected, terms: _Terms, item: tuple) -> None:
    actual, expected = (x.item() if isinstance(x, numpy.generic) else x for x in (actual, expected))
    if "dtype" in terms.checked and type(actual) is not type(expected):
        raise _Differs(f"The (d)types do not match: {type(actual)} != {type(expected)}.", item)
    kinds = [TOLERANCES.get(_KINDS[type(x)], (0.0, 0.0)) for x in (actual, expected)]
    rtol, atol = _tolerances(terms, kinds)
    _require_close_numbers(actual, expected, rtol, atol, terms.equal_nan, item)


def _tolerances(terms: _Terms, kinds) -> tuple[float, float]:
    if terms.rtol is not None and terms.atol is not None:
        return terms.rtol, terms.atol
    return max(kind[0] for kind in kinds), max(kind[1] for kind in kinds)


def _require_close_numbers(actual, expected, rtol, atol, equal_nan, item) -> None:
    if numpy.isclose(actual, expected, rtol, atol, equal_nan):
        return
    exact = not rtol and not atol
    gap = abs(actual - expected)
    share = float("inf") if expected == 0 else gap / abs(expected)
    text = (f"Scalars are not {'equal' if exact else 'close'}!\n\n"
            f"Expected {expected} but got {actual}.")
    for name, found, allowed in (("Absolute", gap, atol), ("Relative", share, rtol)):
        text += f"\n{name} difference: {found}" + ("" if exact else f" (up to {allowed} allowed)")
    raise _Differs(text, item)


def _compare_tensors(actual: Tensor, expected: Tensor, terms: _Terms, item: tuple) -> None:
    for name in ("shape", *terms.checked):
        one, other = (x.stride() if name == "stride()" else getattr(x, name)
                      for x in (actual, expected))
        if one != other:
            raise _Differs(f"The values for attribute '{name}' do not match: {one} != {other}.",
                           item)
    kinds = [TOLERANCES.get(x.dtype, (0.0, 0.0)) for x in (actual, expected)]
    rtol, atol = _tolerances(terms, kinds)
    actual, expected = (x.detach().to_dense() for x in (actual, expected))
    if actual.dtype != expected.dtype:
        wide = flambeau.promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(wide), expected.to(wide)
    close = flambeau.isclose(actual, expected, rtol, atol, terms.equal_nan)
    if close.all():
        return
    if actual.dim() == 0:
        _require_close_numbers(actual.item(), expected.item(), rtol, atol, terms.equal_nan, item)
    raise _Differs(_difference(actual, expected, close, rtol, atol), item)


def _difference(actual: Tensor, expected: Tensor, close: Tensor, rtol, atol) -> str:
    """How many elements differ, and the ones that differ most."""
    exact, wrong = not rtol and not atol, ~close
    if not actual.is_floating_point() and not actual.is_complex():
        actual, expected = actual.long(), expected.long()
    gap = (actual - expected).abs()
    share = gap / expected.abs()
    count, total = int(wrong.sum()), wrong.numel()
    text = (f"Tensor-likes are not {'equal' if exact else 'close'}!\n\n"
            f"Mismatched elements: {count} / {total} ({count / total:.1%})")
    for name, found, allowed in (("absolute", gap, atol), ("relative", share, rtol)):
        found = flambeau.where(wrong, found, flambeau.zeros_like(found)).flatten()
        place = int(found.argmax())
        index = tuple(int(k) for k in numpy.unravel_index(place, tuple(actual.shape)))
        text += f"\nGreatest {name} difference: {found[place].item()} at index {index}"
        text += "" if exact else f" (up to {allowed} allowed)"
    return text
