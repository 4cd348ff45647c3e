"""Show or empty the folder in which compiled kernels are kept.

  flambeau cache            where it is, and how large
  flambeau cache clear      empty it: kernels are compiled again when they are needed

FLAMBEAU_CACHE names another folder.
"""

import argparse

from flambeau.devices.cpu.cache import Cache

HELP = "show or empty the folder of compiled kernels"


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.add_argument(
        "action", nargs="?", choices=ACTIONS, default="show", help="default: %(default)s"
    )


def main(options: argparse.Namespace) -> int:
    print(ACTIONS[options.action]())
    return 0


def show() -> str:
    cache = Cache("")
    if cache.root is None:
        return "off: no folder may be written"
    count, size = cache.size()
    return f"{cache.root}: {count:,} kernels, {size / 1e6:.1f} MB"


def clear() -> str:
    cache = Cache("")
    return f"{cache.clear():,} kernels removed"


ACTIONS = {
    "show":  show,
    "clear": clear,
}  # fmt: skip
