"""Reads pickles without running anything of theirs: what weights_only=True means.

A pickle is a program for a small stack machine. This is such a machine, with nothing dangerous in
it: it makes numbers, texts and containers, and calls only what names.SAFE lists or the user has
declared safe. Classes and functions cannot be changed, and no size in a file is believed.
"""

from __future__ import annotations

import collections
import pickle
import struct
from typing import Any

import flambeau

from . import names

#: a key of a dictionary may hold this many parts: a tuple of tuples takes for ever to hash
MOST_KEY_PARTS = 1000
#: protocols that this machine reads
NEWEST_PROTOCOL = 5


class Refused(pickle.UnpicklingError):
    """The file wants something that it may not have."""


#: modules and functions that no checkpoint has a use for, and an attacker has
DANGEROUS_MODULES = frozenset(
    "os posix nt subprocess sys shutil runpy pty socket importlib ctypes webbrowser code".split())
DANGEROUS_BUILTINS = frozenset(
    "eval exec compile open getattr setattr delattr __import__ globals input breakpoint".split())


def unsupported_global(module: str, name: str) -> str:
    """What to do about a name that is not on the list."""
    if module.partition(".")[0] in DANGEROUS_MODULES or (
            module in ("builtins", "__builtin__") and name in DANGEROUS_BUILTINS):
        return (f"Unsupported global: the file names {module}.{name}, which no checkpoint needs "
                "and which can run commands: do not trust this file.")
    return (f"Unsupported global: GLOBAL {module}.{name} was not an allowed global by default. "
            f"Please use `torch.serialization.add_safe_globals([{name}])` or the "
            f"`torch.serialization.safe_globals([{name}])` context manager to allowlist this "
            "global if you trust this class/function.")


_OPS: list = [None] * 256


def op(code: bytes):
    def put(function):
        _OPS[code[0]] = function
        return function
    return put


class Reader:
    """The machine: a stack, a memo, marks, and a place in the bytes it reads."""

    def __init__(self, data, persistent_load, at: int = 0):
        self.data, self.at = data, at
        self.persistent_load = persistent_load
        self.stack: list = []
        self.marks: list[list] = []
        self.memo: dict[int, object] = {}
        self.callable: dict[int, object] = {}

    def load(self):
        """The object that the pickle describes; `at` is then the first byte after it."""
        try:
            return self._run()
        except (pickle.UnpicklingError, RuntimeError):
            raise
        except (IndexError, struct.error) as error:
            raise Refused(f"the pickle ends too early, or is damaged, at byte {self.at}") from error
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError, MemoryError,
                RecursionError) as error:
            raise Refused(f"the pickle is damaged at byte {self.at}: "
                          f"{type(error).__name__}: {error!s:.200}") from error

    def _run(self):
        data = self.data
        while True:
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            act = _OPS[code]
            if act is None:
                raise Refused(f"Unsupported operand {code} (at byte {self.at - 1})")
            act(self)

    def take(self, count: int):
        """The next bytes."""
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise IndexError
        return self.data[start:self.at]

    def line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0 or end - self.at > 10_000:
            raise IndexError
        text = bytes(self.data[self.at:end]).decode("utf-8")
        self.at = end + 1
        return text

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        found, = struct.unpack(form, self.take(size))
        return found

    def popped(self) -> list:
        """What lies above the last mark."""
        above, self.stack = self.stack, self.marks.pop()
        return above

    def find(self, module: str, name: str):
        """The object of a name, if files may name it."""
        found = names.safe_object(module, name)
        if found is None:
            found = names.added_object(module, name)
            if found is None:
                raise Refused(unsupported_global(module, name))
            self.callable[id(found)] = found
        elif callable(found) and found is not flambeau.Tensor:
            self.callable[id(found)] = found
        return found


# -- numbers, texts, bytes -----------------------------------------------------------------------


def constant(code: bytes, value) -> None:
    _OPS[code[0]] = lambda r: r.stack.append(value)


def packed(code: bytes, form: str) -> None:
    size, unpack = struct.calcsize(form), struct.Struct(form).unpack
    _OPS[code[0]] = lambda r: r.stack.append(unpack(r.take(size))[0])


def counted(code: bytes, form: str, convert) -> None:
    """A length and so many bytes."""
    _OPS[code[0]] = lambda r: r.stack.append(convert(bytes(r.take(r.number(form)))))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _old_text(data: bytes) -> str:
    """A string of Python 2."""
    return data.decode("utf-8", "surrogateescape")


def _long(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


constant(pickle.NONE, None)
constant(pickle.NEWTRUE, True)
constant(pickle.NEWFALSE, False)
constant(pickle.EMPTY_TUPLE, ())
packed(pickle.BININT, "<i")
packed(pickle.BININT1, "<B")
packed(pickle.BININT2, "<H")
packed(pickle.BINFLOAT, ">d")
counted(pickle.LONG1, "<B", _long)
counted(pickle.LONG4, "<I", _long)
counted(pickle.SHORT_BINUNICODE, "<B", _text)
counted(pickle.BINUNICODE, "<I", _text)
counted(pickle.BINUNICODE8, "<Q", _text)
counted(pickle.SHORT_BINSTRING, "<B", _old_text)
counted(pickle.BINSTRING, "<I", _old_text)
counted(pickle.SHORT_BINBYTES, "<B", bytes)
counted(pickle.BINBYTES, "<I", bytes)
counted(pickle.BINBYTES8, "<Q", bytes)
counted(pickle.BYTEARRAY8, "<Q", bytearray)


@op(pickle.PROTO)
def _protocol(r):
    found = r.number("<B")
    if found > NEWEST_PROTOCOL:
        raise Refused(f"unsupported pickle protocol: {found}")


@op(pickle.FRAME)
def _frame(r):
    r.number("<Q")


# -- containers ----------------------------------------------------------------------------------


@op(pickle.EMPTY_DICT)
def _empty_dict(r):
    r.stack.append({})


@op(pickle.EMPTY_LIST)
def _empty_list(r):
    r.stack.append([])


@op(pickle.EMPTY_SET)
def _empty_set(r):
    r.stack.append(set())


@op(pickle.MARK)
def _mark(r):
    r.marks.append(r.stack)
    r.stack = []


@op(pickle.POP)
def _pop(r):
    if r.stack:
        r.stack.pop()
    else:
        r.popped()


@op(pickle.POP_MARK)
def _pop_mark(r):
    r.popped()


@op(pickle.DUP)
def _dup(r):
    r.stack.append(r.stack[-1])


@op(pickle.TUPLE)
def _tuple(r):
    above = r.popped()
    r.stack.append(tuple(above))


def tuple_of(code: bytes, count: int) -> None:
    def act(r):
        if len(r.stack) < count:
            raise IndexError
        r.stack[-count:] = [tuple(r.stack[-count:])]
    _OPS[code[0]] = act


tuple_of(pickle.TUPLE1, 1)
tuple_of(pickle.TUPLE2, 2)
tuple_of(pickle.TUPLE3, 3)


@op(pickle.LIST)
def _list(r):
    above = r.popped()
    r.stack.append(above)


@op(pickle.DICT)
def _dict(r):
    above = r.popped()
    r.stack.append({})
    _set_items(r.stack[-1], above)


@op(pickle.FROZENSET)
def _frozenset(r):
    above = r.popped()
    r.stack.append(frozenset(_keys(above)))


@op(pickle.APPEND)
def _append(r):
    value = r.stack.pop()
    _extended(r.stack[-1], [value])


@op(pickle.APPENDS)
def _appends(r):
    above = r.popped()
    _extended(r.stack[-1], above)


def _extended(target, values) -> None:
    if not isinstance(target, list):
        raise Refused(f"cannot append to a {type(target).__name__}")
    target.extend(values)


@op(pickle.ADDITEMS)
def _add_items(r):
    above = r.popped()
    if not isinstance(r.stack[-1], set):
        raise Refused(f"cannot add to a {type(r.stack[-1]).__name__}")
    r.stack[-1].update(_keys(above))


@op(pickle.SETITEM)
def _set_item(r):
    value, key = r.stack.pop(), r.stack.pop()
    _set_items(r.stack[-1], [key, value])


@op(pickle.SETITEMS)
def _setitems(r):
    above = r.popped()
    _set_items(r.stack[-1], above)


def _set_items(target, pairs: list) -> None:
    if not isinstance(target, dict) or len(pairs) % 2:
        raise Refused(f"cannot set items of a {type(target).__name__}")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        target[key if type(key) is str else _key(key)] = value


def _key(key):
    """A key that takes no time to hash."""
    left, waiting = MOST_KEY_PARTS, [key]
    while waiting:
        part = waiting.pop()
        left -= 1
        if left < 0:
            raise Refused("a key of a dictionary has too many parts")
        if isinstance(part, tuple):
            waiting += part[:left + 1]
    return key


def _keys(values) -> list:
    return [_key(value) for value in values]


# -- the memo ------------------------------------------------------------------------------------


def put(code: bytes, form: str) -> None:
    def act(r):
        r.memo[r.number(form)] = r.stack[-1]
    _OPS[code[0]] = act


def get(code: bytes, form: str) -> None:
    def act(r):
        r.stack.append(r.memo[r.number(form)])
    _OPS[code[0]] = act


@op(pickle.BINPUT)
def _binput(r):
    r.memo[r.data[r.at]] = r.stack[-1]
    r.at += 1


@op(pickle.BINGET)
def _binget(r):
    r.stack.append(r.memo[r.data[r.at]])
    r.at += 1


put(pickle.LONG_BINPUT, "<I")
get(pickle.LONG_BINGET, "<I")


@op(pickle.MEMOIZE)
def _memoize(r):
    r.memo[len(r.memo)] = r.stack[-1]


# -- names, calls and states ---------------------------------------------------------------------


@op(pickle.GLOBAL)
def _global(r):
    module = r.line()
    r.stack.append(r.find(module, r.line()))


@op(pickle.STACK_GLOBAL)
def _stack_global(r):
    name, module = r.stack.pop(), r.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise Refused("a name is not a text")
    r.stack.append(r.find(module, name))


@op(pickle.BINPERSID)
def _persistent(r):
    r.stack.append(r.persistent_load(r.stack.pop()))


def _arguments(given) -> tuple:
    if type(given) is not tuple:
        raise Refused(f"a call needs a tuple of arguments, not a {type(given).__name__}")
    return given


def _mapping(kind, arguments):
    """An ordered dictionary or a counter of pairs whose keys are checked."""
    made = kind()
    for given in arguments[:1]:
        pairs = given.items() if isinstance(given, dict) else given
        for key, value in pairs:
            dict.__setitem__(made, _key(key), value) if kind is collections.Counter else (
                made.__setitem__(_key(key), value))
    return made


def _size(_kind, arguments):
    dims = tuple(arguments[0]) if arguments else ()
    if any(type(n) is not int for n in dims):
        raise Refused("the sizes of a shape are integers")
    return flambeau.Size(dims)


#: classes whose arguments are looked at before they are called
_CAREFULLY: dict[type, Any] = {
    collections.OrderedDict: _mapping,
    collections.Counter:     _mapping,
    set:                     lambda _kind, arguments: set(_keys(*arguments[:1] or ((),))),
    flambeau.Size:           _size,
}  # fmt: skip


def _call(r, function, arguments, construct) -> None:
    if r.callable.get(id(function)) is not function:
        raise Refused(f"Trying to call {getattr(function, '__name__', type(function).__name__)}, "
                      "which may not be called")
    carefully = _CAREFULLY.get(function) if isinstance(function, type) else None
    if carefully is not None:
        r.stack.append(carefully(function, arguments))
    else:
        r.stack.append(construct(function, arguments))


@op(pickle.REDUCE)
def _reduce(r):
    arguments = _arguments(r.stack.pop())
    _call(r, r.stack.pop(), arguments, lambda function, given: function(*given))


@op(pickle.NEWOBJ)
def _newobj(r):
    arguments = _arguments(r.stack.pop())
    _call(r, r.stack.pop(), arguments, lambda kind, given: kind.__new__(kind, *given))


@op(pickle.NEWOBJ_EX)
def _newobj_ex(r):
    keywords, arguments = r.stack.pop(), _arguments(r.stack.pop())
    if not isinstance(keywords, dict):
        raise Refused("keyword arguments are not a dictionary")
    _call(r, r.stack.pop(), arguments, lambda kind, given: kind.__new__(kind, *given, **keywords))


@op(pickle.BUILD)
def _build(r):
    state = r.stack.pop()
    target = r.stack[-1]
    kind = type(target)
    if kind is collections.OrderedDict:
        for name, value in _named(state, kind).items():
            target.__dict__[name] = value
    elif names.declared_safe(kind) or (
            r.callable.get(id(kind)) is kind and kind not in (set, collections.Counter)):
        _set_state(target, state)
    else:
        raise Refused(f"Can only build Tensor, Parameter, OrderedDict or types allowlisted via "
                      f"`add_safe_globals`, but got {kind}")


def _named(state, kind) -> dict:
    if not isinstance(state, dict) or any(
            type(name) is not str or hasattr(kind, name) for name in state):
        raise Refused(f"a {kind.__name__} cannot have the state {state!r:.100}")
    return state


def _set_state(target, state) -> None:
    """As pickle does, for an object of a class that the user declared safe."""
    setter = getattr(target, "__setstate__", None)
    if setter is not None:
        setter(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    target.__dict__.update(state or {})
    for name, value in (slots or {}).items():
        setattr(target, name, value)
