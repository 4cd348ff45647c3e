"""The switches of core/config.py as the environment sets them."""

from __future__ import annotations

import os

from ..core.config import SWITCHES


def switch(name: str) -> str:
    """The value of a switch."""
    return os.environ.get(name) or SWITCHES[name][0]
