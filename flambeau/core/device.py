"""Where a tensor lives: a type and an index, as torch spells them."""

from __future__ import annotations

KNOWN = ("cpu", "meta", "cuda", "mps", "xpu", "hpu", "mtia", "privateuseone")
_interned: dict[tuple[str, int | None], device] = {}


class device:
    """A place for tensors. Only `cpu` and `meta` can be computed on here.

    >>> device("cpu"), device("cuda:1").index
    (device(type='cpu'), 1)
    """

    __slots__ = ("index", "type")
    __module__ = "torch"

    type: str
    index: int | None

    def __new__(cls, type="cpu", index=None):
        if isinstance(type, device):
            return type
        if isinstance(type, int):
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(f"device: expected a string or a device, got {type!r}")
        name, _, number = type.partition(":")
        if number:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index: {type}")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        elif index is not None and index < 0:
            raise RuntimeError("Device index must not be negative")
        if name not in KNOWN:
            raise RuntimeError(f"Expected one of {', '.join(KNOWN)} device type at start of device "
                               f"string: {name}")
        made = _interned.get((name, index))
        if made is None:
            made = object.__new__(cls)
            made.type, made.index = name, index
            _interned[name, index] = made
        return made

    def __repr__(self) -> str:
        where = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{where})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self):
        return (device_of, (str(self),))

    def __enter__(self):
        _stack.append(_Default.value)
        _Default.value = self
        return self

    def __exit__(self, *_):
        _Default.value = _stack.pop()


CPU, META = device("cpu"), device("meta")


def device_of(text: str) -> device:
    """A device again, where it was sent or saved."""
    return device(text)


class _Default:
    """The device of new tensors, as set_default_device leaves it."""

    value = CPU


_stack: list[device] = []


def default() -> device:
    return _Default.value


def set_default(value) -> None:
    _Default.value = CPU if value is None else device(value)


def is_here(given) -> bool:
    """Whether what is to be made on a device, or on none that was said, is made on the CPU."""
    if given is None:
        return _Default.value is CPU
    return given is CPU or (given.__class__ is str and given == "cpu")


def resolve(given) -> device:
    """The device to compute on, or torch's error for one that is not built in."""
    if given is None:
        return _Default.value
    found = device(given)
    if found.type not in ("cpu", "meta"):
        raise AssertionError("Torch not compiled with CUDA enabled") if (
            found.type == "cuda") else RuntimeError(
            f"device {found} is not available; this build computes on cpu and meta")
    return device(found.type)
