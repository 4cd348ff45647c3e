"""See how it works: shapes that meet, the graph of a formula, a training loop line by line.

  flambeau explore                                  opens in the browser
  flambeau explore graph                            begins with the autograd graph
  flambeau explore broadcasting 64,1 768            as text, without a browser
  flambeau explore broadcasting 3,4 "x.T[1:]"       a view: its strides, offset and storage
  flambeau explore graph "c = a*b; d = c + a; L = d**2" a=2 b=3
  flambeau explore loop --without zero_grad --at 3

Every number comes from the library, which runs in this process. The page is served to this machine
alone and needs no network.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Iterator

from flambeau.cli.arguments import count, rate
from flambeau.cli.usage import UsageError

HELP = "see shapes, the autograd graph and a training loop at work"
INSTRUMENTS = {
    "broadcasting": "how shapes are aligned and stretched, and what views are",
    "graph":        "the autograd graph of a few lines, and the walk back through it",
    "loop":         "the five lines of a training loop, and what goes wrong without them",
}  # fmt: skip
#: what can be left out of the loop, and what comes of it
WITHOUT = {
    "zero_grad": "gradients of earlier steps stay and are added to",
    "shuffle":   "batches come in the order of the file, which is sorted",
    "no_grad":   "validation records a graph, and whoever keeps its loss keeps the graph",
    "eval":      "validation runs with dropout still on",
}  # fmt: skip


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.add_argument("instrument", nargs="?", choices=INSTRUMENTS, default="broadcasting",
                      help="; ".join(f"{name}: {what}" for name, what in INSTRUMENTS.items()))
    form.add_argument("operands", nargs="*", metavar="OPERAND",
                      help="what to show as text: shapes, a formula and its inputs")
    form._negative_number_matcher = re.compile(r"-\d")  # -1,3 is a shape, if a wrong one
    form.add_argument("--text", action="store_true", help="print, without a browser")
    form.add_argument("--port", type=int, default=0, help="default: a free one")
    form.add_argument("--no-browser", action="store_true", help="say the address, open nothing")
    form.add_argument("--without", choices=WITHOUT, action="append",
                      help="loop: leave something out (may be given again): " + "; ".join(
                          f"{name}: {what}" for name, what in WITHOUT.items()))
    form.add_argument("--early", action="store_true", help="loop: step before backward")
    form.add_argument("--model", choices=["line", "net"], help="loop: what is trained")
    form.add_argument("--lr", type=rate, help="loop: the learning rate")
    form.add_argument("--steps", type=count, help="loop: how many")
    form.add_argument("--at", type=count, help="loop: the step that is taken apart")
    form.add_argument("--frozen", metavar="NAME", action="append",
                      help="graph: an input that requires no gradient (may be given again)")


def main(options: argparse.Namespace) -> int:
    of_loop = options.without or options.early or options.model or options.lr or (
        options.steps or options.at)
    if of_loop and options.instrument != "loop":
        raise UsageError("--without, --early, --model, --lr, --steps and --at are for "
                         "flambeau explore loop")
    if options.frozen and options.instrument != "graph":
        raise UsageError("--frozen is for flambeau explore graph")
    if options.text or options.operands or of_loop or options.frozen:
        print("\n".join(TEXTS[options.instrument](options)))
        return 0
    return serve(options.instrument, options.port, not options.no_browser)


# -- as text -------------------------------------------------------------------------------------


def told(question: str, asked: dict) -> Iterator[str]:
    """The answer of an instrument in lines of text."""
    from flambeau.cli.explore import text

    return getattr(text, question)(ask(question)(asked))


def broadcasting_text(options: argparse.Namespace) -> Iterator[str]:
    shapes = options.operands
    if any("x" in each and not each.replace("x", "").isdecimal() for each in shapes):
        if len(shapes) > 2:
            raise UsageError("a view is a shape and a formula: flambeau explore broadcasting 3,4 "
                             '"x.T[1:]"')
        return told("strides", {"formula": shapes[-1],
                                **({"shape": shapes[0]} if len(shapes) == 2 else {})})
    if len(shapes) == 1:
        raise UsageError("two or three shapes are compared: flambeau explore broadcasting 64,1 768")
    return told("broadcasting", {"shapes": shapes} if shapes else {})


def graph_text(options: argparse.Namespace) -> Iterator[str]:
    asked: dict = {"frozen": options.frozen or []}
    if not options.operands:
        from flambeau.cli.explore.graph import DEFAULT_INPUTS

        return told("graph", {**asked, "inputs": DEFAULT_INPUTS})
    program, *inputs = options.operands
    pairs = [each.partition("=") for each in inputs]
    for name, sign, value in pairs:
        if not (name.strip() and sign and value.strip()):
            raise UsageError(f"{name!r} is no input: after the program come values such as a=2 or "
                             "w=[1,2]")
    return told("graph", {**asked, "program": program,
                          "inputs": {name.strip(): value for name, _, value in pairs}})


def loop_text(options: argparse.Namespace) -> Iterator[str]:
    if options.operands:
        raise UsageError("loop takes options, no operands: --without zero_grad, --lr 1, --at 3 ...")
    return told("loop", {"model": options.model or "line", "lr": options.lr,
                         "steps": options.steps, "without": options.without,
                         "early": options.early, "at": (options.at or 1) - 1})


TEXTS: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "broadcasting": broadcasting_text,
    "graph":        graph_text,
    "loop":         loop_text,
}  # fmt: skip


# -- in the browser ------------------------------------------------------------------------------


def ask(question: str) -> Callable[[dict], dict]:
    return importlib.import_module(f"{__name__}.{question}").compute


def serve(instrument: str, port: int, browser: bool) -> int:
    """Serve the page until Ctrl-C."""
    from flambeau.cli.explore.browser import open_page
    from flambeau.cli.explore.server import Server

    if not 0 <= port < 65536:
        raise UsageError(f"--port is a number from 0 (any free one) to 65535, not {port}")
    questions = {name: ask(name) for name in ("broadcasting", "strides", "graph", "loop")}
    try:
        server = Server(port, questions)
    except OSError as failure:
        raise UsageError(f"port {port} cannot be used ({failure.strerror}); without --port a free "
                         "one is found") from None
    address = f"{server.address}#{instrument}"
    try:
        print(f"flambeau explore: {address}", flush=True)
        opened = browser and open_page(address)
        print("It is open in the browser." if opened else "Open this address in a browser.",
              "Ctrl-C ends it.", flush=True)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return 0
