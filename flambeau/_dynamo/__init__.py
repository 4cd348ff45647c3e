"""What programs reach for behind `compile`: its switches and `reset`, under PyTorch's names."""

import flambeau

from . import config

__all__ = ["config", "disable", "explain", "is_compiling", "reset"]

disable = flambeau.compiler.disable
explain = flambeau.compiler.explain
is_compiling = flambeau.compiler.is_compiling
reset = flambeau.compiler.reset
