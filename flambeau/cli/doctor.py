"""Run a program, and tell of mistakes that raise no error and spoil its training.

  flambeau doctor train.py --lr 3e-4      as `flambeau run`, with a report at the end
  flambeau doctor --strict train.py       and exit code 1 if anything was found
  flambeau doctor --list                  all that it knows, and why it matters
"""

from __future__ import annotations

import argparse
import sys

from flambeau.cli import run

HELP = "run a program, and tell of its mistakes that raise no error"


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.usage = "flambeau doctor [--strict] [--list] (SCRIPT | -m MODULE) [ARGUMENTS ...]"
    form.add_argument("--strict", action="store_true", help="fail if anything is found")
    form.add_argument("--list", action="store_true", help="say what it looks for, and why")
    run.add_program(form)


def main(options: argparse.Namespace) -> int:
    from flambeau.utils.doctor import MISTAKES, doctor
    from flambeau.utils.doctor.report import catalogue

    if options.list:
        print(catalogue(MISTAKES))
        return 0
    path = run.program_of(options)
    with doctor() as patient:
        code = run.execute(options, path)
        print(file=sys.stderr)
    return code or int(options.strict and bool(patient.findings))
