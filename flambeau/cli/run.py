"""Run a program written for PyTorch, unmodified, with flambeau standing in for torch.

  flambeau run train.py --lr 3e-4         as `python train.py --lr 3e-4`
  flambeau run -m package.train           as `python -m package.train`
  flambeau run --report train.py          and say which torch names it used, which are missing
  flambeau run --check train.py           say so without running it
"""

from __future__ import annotations

import argparse
import importlib.util
import linecache
import os
import runpy
import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path

import flambeau
from flambeau.cli import standin
from flambeau.cli.survey import Survey, local_files, nearest, shown
from flambeau.cli.usage import UsageError

HELP = "run a PyTorch program with flambeau in place of torch"
HOME = Path(flambeau.__file__).parent
INSTEAD = HOME / "cli" / "instead"  # a folder in which `torch` is the stand-in


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.usage = "flambeau run [--report] [--check] (SCRIPT | -m MODULE) [ARGUMENTS ...]"
    form.add_argument("--report", action="store_true",
                      help="at the end, list the torch names used and those missing")
    form.add_argument("--check", action="store_true", help="list them without running anything")
    add_program(form)


def add_program(form: argparse.ArgumentParser) -> None:
    """What names a program; its own arguments are split off before, see `split`."""
    form.add_argument("-m", dest="module", metavar="MODULE", help="run a module, as python -m does")
    form.add_argument("script", nargs="?", metavar="SCRIPT", help="the program")
    form.set_defaults(arguments=[])


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, up to the script or the module, and the program's, which are not ours."""
    for place, word in enumerate(arguments):
        if word == "-m":
            return list(arguments[:place + 2]), list(arguments[place + 2:])
        if not word.startswith("-"):
            return list(arguments[:place + 1]), list(arguments[place + 1:])
    return list(arguments), []


def main(options: argparse.Namespace) -> int:
    path = program_of(options)
    survey = Survey()
    if options.report or options.check:
        for file in local_files(path):
            survey.read(file)
    if options.check:
        print(survey.report())
        return int(bool(survey.missing()))
    code = execute(options, path)
    if options.report:
        sys.stdout.flush()
        print(f"\n{survey.report()}", file=sys.stderr)
    return code


def program_of(options: argparse.Namespace) -> Path:
    """The file of the program that was named."""
    if not (options.script or options.module):
        raise UsageError("name a script, or a module after -m; --help has examples")
    path = file_of_module(options.module) if options.module else Path(options.script)
    if path is None or not path.is_file():
        missing = f"no module named {options.module}" if options.module else f"no file {path}"
        raise UsageError(missing)
    return path


def file_of_module(name: str) -> Path | None:
    """Where a module's source is, looked for as `python -m` does."""
    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ImportError:
        return None
    finally:
        sys.path.pop(0)
    return Path(spec.origin) if spec is not None and spec.origin else None


def execute(options: argparse.Namespace, path: Path) -> int:
    """Run the program as `__main__`; its exit code."""
    standin.install()
    share_with_children()
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv = [str(path), *options.arguments]
    sys.path.insert(0, str(INSTEAD))  # multiprocessing hands this path to processes it spawns
    try:
        if options.module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(options.module, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(path.resolve().parent))
            run_file(path)
    except SystemExit as stop:
        return exit_code(stop)
    except KeyboardInterrupt:
        print("KeyboardInterrupt", file=sys.stderr)
        return 130
    except BaseException as error:
        tell(error)
        return 1
    finally:
        sys.stdout.flush()
        sys.argv, sys.path[:] = before[:2]
        sys.modules["__main__"] = before[2]
    return 0


def run_file(path: Path) -> None:
    """The file's code in a module `__main__`, where pickles look for its classes."""
    main_module = types.ModuleType("__main__")
    main_module.__file__ = str(path)
    vars(main_module)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main_module
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    exec(code, vars(main_module))


def share_with_children() -> None:
    """Processes that the program starts find the stand-in too."""
    folders = [str(INSTEAD), str(HOME.parent)]
    have = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *(h for h in have if h not in folders)])


def exit_code(stop: SystemExit) -> int:
    """What Python would end with."""
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1


# What is said when it fails -----------------------------------------------------------------------


def tell(error: BaseException) -> None:
    """A missing name in three lines; any other error as Python tells it, without our own frames."""
    sys.stdout.flush()
    own_frames_removed = error.with_traceback(beyond_ourselves(error.__traceback__))
    name = missing_name(error)
    if name is None:
        traceback.print_exception(own_frames_removed)
        advise(error)
        return
    place = last_frame_of_program(error)
    if place is not None:
        file, line = place
        print(f"{shown(Path(file))}:{line}: {name} is missing from flambeau "
              f"{flambeau.__version__}\n    {linecache.getline(file, line).strip()}",
              file=sys.stderr)
    else:
        print(f"{name} is missing from flambeau {flambeau.__version__}", file=sys.stderr)
    close = nearest(name)
    hint = f"The nearest name is {close}. " if close else ""
    print(f"{hint}`flambeau run --check` lists every name that a script asks for.",
          file=sys.stderr)


def advise(error: BaseException) -> None:
    """A word about modules that only come with PyTorch."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        word = standin.NEIGHBOURS.get(error.name.split(".")[0])
        if word:
            print(f"flambeau run: {error.name.split('.')[0]} needs PyTorch itself: {word}",
                  file=sys.stderr)


def beyond_ourselves(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from the program's first frame on."""
    while trace is not None and (
            trace.tb_frame.f_code.co_filename == __file__
            or trace.tb_frame.f_globals.get("__name__") in ("runpy", "importlib._bootstrap")):
        trace = trace.tb_next
    return trace


def missing_name(error: BaseException) -> str | None:
    """torch's name for what flambeau lacks, if that is what went wrong."""
    if isinstance(error, ModuleNotFoundError):
        found = error.name or ""
        return found if found.startswith("torch.") else None
    if isinstance(error, ImportError):
        above = as_torch(error.name or "")
        name = getattr(error, "name_from", None) or wanted_from(str(error))
        return f"{above}.{name}" if above and name else None
    if isinstance(error, AttributeError):
        if isinstance(error.obj, types.ModuleType):
            above = as_torch(error.obj.__name__)
            return f"{above}.{error.name}" if above and error.name else None
        if isinstance(error.obj, flambeau.Tensor) and type(error.obj) is flambeau.Tensor:
            return f"torch.Tensor.{error.name}"
    return None


def wanted_from(message: str) -> str | None:
    """`cannot import name 'x' from 'y'`: x, where the exception does not carry it (before 3.12)."""
    words = message.split("'")
    return words[1] if message.startswith("cannot import name") and len(words) > 2 else None


def as_torch(module: str) -> str | None:
    """The name a torch program knows a module of ours by; None if it is not ours."""
    first, _, rest = module.partition(".")
    return ".".join(filter(None, ("torch", rest))) if first in ("torch", "flambeau") else None


def last_frame_of_program(error: BaseException) -> tuple[str, int] | None:
    """File and line of the program nearest to where it failed."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        ours = Path(file).is_relative_to(HOME)
        if not (ours or file.startswith("<")) and os.path.exists(file):
            found = (file, line)
    return found
