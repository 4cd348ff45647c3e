"""The `flambeau` command. Each subcommand is a module here with HELP, add_arguments and main."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

import flambeau
from flambeau.cli.usage import UsageError

__all__ = ["main"]

#: subcommands that are given a program with arguments of its own
PROGRAMS = ("run", "doctor")
#: name -> what it does, in a few words; the module of that name is imported when it is called
COMMANDS = {
    "demo":       "train a network on data that ships with the package, and show what it learned",
    "run":        "run a PyTorch program with flambeau in place of torch",
    "doctor":     "run a program, and tell of its mistakes that raise no error",
    "explore":    "see shapes, the autograd graph and a training loop at work",
    "launch":     "run a script in several processes that train together",
    "info":       "versions, processor, threads, devices, kernel cache",
    "cache":      "show or empty the folder of compiled kernels",
    "bench":      "how fast this machine is: eager and compiled, beside PyTorch where it is",
    "completion": "print a completion script for bash, zsh or fish",
}  # fmt: skip

EPILOG = """\
examples:
  flambeau demo                       train on handwritten digits
  flambeau run train.py --epochs 3    run a PyTorch script, unmodified
  flambeau run --check train.py       which torch names it needs, without running it
  flambeau doctor train.py            run it, and say what spoils its training
  flambeau explore                    shapes, gradients and training, to look at
  flambeau info                       what flambeau runs on

exit codes: 0 all went well, 1 it failed, 2 the command line is wrong, 130 interrupted
"""


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"flambeau.cli.{name}")


def parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The command line; only the chosen subcommand is loaded, all of them if none is."""
    top = argparse.ArgumentParser(
        prog="flambeau", description="PyTorch's API on CPUs, written in Python all the way down.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"flambeau {flambeau.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, words in COMMANDS.items():
        form = commands.add_parser(name, help=words,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
        if chosen in (None, name):
            module = module_of(name)
            form.description = module.__doc__
            module.add_arguments(form)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in given if word in COMMANDS), "demo")
    own, rest = given, []
    if given and given[0] in PROGRAMS:
        own, rest = module_of("run").split(given[1:])
        own = [given[0], *own]
    options = parser(chosen).parse_args(own)
    if rest:
        options.arguments = rest
    try:
        return module_of(options.command).main(options)
    except UsageError as mistake:
        print(f"flambeau {options.command}: {mistake}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1  # whoever read our output has gone
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
