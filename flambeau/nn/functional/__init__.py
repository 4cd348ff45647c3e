"""Functions of neural networks: the ops declared for this namespace, and thin forms around them."""

from __future__ import annotations

import importlib
import pkgutil

from flambeau import _assemble

_PREFIX = "nn.functional."

globals().update({name.removeprefix(_PREFIX): function
                  for name, function in _assemble.functions.items()
                  if name.startswith(_PREFIX) and not name.endswith("_")})

# A sibling module publishes what it defines, over an op of the same name.
for _found in pkgutil.iter_modules(__path__):
    _module = importlib.import_module(f"{__name__}.{_found.name}")
    globals().update({name: getattr(_module, name) for name in _module.__all__})
