"""Models made smaller: weights, and what they are multiplied by, as bytes."""

import os

from flambeau.engine import lazy as _lazy

__all__: list[str] = []
__getattr__, __dir__ = _lazy.subpackages(__name__, os.path.dirname(__file__))
