"""What FLAMBEAU_SHOW asks to see of each program that is made, on standard error.

    passes      its launches as they were recorded, and as each pass leaves them
    program     the program, as loops
    llvm        LLVM's text of the program and of all code that it calls, once each
    assembly    the machine code of those

Several of them are joined by commas. Nothing of this is loaded where nothing is asked for.
"""

from __future__ import annotations

import sys

from ..devices.switches import switch

#: what was printed of a pass last: most change little
_last: list[str] = []
#: (what, address) of code that was printed
_seen: set[tuple] = set()


def asked(what: str) -> bool:
    """Whether it is to be seen."""
    return what in switch("FLAMBEAU_SHOW").split(",")


def shown(name: str, launches: list) -> list:
    """Launches as a pass of this name has left them."""
    if asked("passes"):
        from .loops import steps_text

        lines = steps_text(launches)
        as_before = lines == _last
        _say(f"{name}: {'as before' if as_before else f'{len(launches)} launches'}",
             [] if as_before else lines)
        _last[:] = lines
    return launches


def show_code(program) -> None:
    """A program that is ready to run."""
    if asked("program"):
        _say("program", str(program).splitlines())
    for what in ("llvm", "assembly"):
        if asked(what):
            text, called = program.ir(by_name=True)
            _show(what, "the program", text, False)
            for address in called.values():
                _show_called(what, address)


def _show_called(what: str, address: int) -> None:
    """Code that programs call, once."""
    from ..devices.cpu.objects import SOURCES

    if (what, address) not in _seen and address in SOURCES:
        _seen.add((what, address))
        name, write, optimise = SOURCES[address]
        _show(what, name, write(), optimise)


def _show(what: str, name: str, text: str, optimise: bool | str) -> None:
    if what == "assembly":
        from ..devices.cpu.bridge import jit

        text = jit().assembly(text, optimise)
    _say(f"{what} of {name}", text.splitlines())


def _say(title: str, lines: list[str]) -> None:
    print(f"-- {title}", *lines, sep="\n", file=sys.stderr, flush=True)
