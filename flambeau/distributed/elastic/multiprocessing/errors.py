"""An error of a process, left where its launcher looks for it."""

from __future__ import annotations

import functools
import json
import os
import time
import traceback

__all__ = ["record"]


def record(fn, error_handler=None):
    """The main function; what it raises is written to the file that TORCHELASTIC_ERROR_FILE names.

    Without that variable, errors go their usual way.
    """

    @functools.wraps(fn)
    def main(*args, **kwargs):
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            place = os.environ.get("TORCHELASTIC_ERROR_FILE")
            if place:
                _leave(error, place)
            raise

    return main


def _leave(error: Exception, place: str) -> None:
    told = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": {
        "py_callstack": "".join(traceback.format_exception(error)),
        "timestamp": str(int(time.time()))}}}
    with open(place, "w", encoding="utf-8") as file:
        json.dump(told, file)
