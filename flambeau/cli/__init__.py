"""The `flambeau` command. Each subcommand is a module here with HELP, add_arguments and main."""

import argparse
import sys
from collections.abc import Sequence

import flambeau
from flambeau.cli import cache, demo, info

__all__ = ["main"]

COMMANDS = {
    "demo":  demo,
    "info":  info,
    "cache": cache,
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="flambeau", description=flambeau.__doc__)
    top.add_argument("--version", action="version", version=f"flambeau {flambeau.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        form = commands.add_parser(name, help=module.HELP, description=module.__doc__)
        module.add_arguments(form)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code."""
    options = parser().parse_args(arguments)
    try:
        return COMMANDS[options.command].main(options)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
