"""flambeau: PyTorch's API on CPUs, written in Python all the way down.

>>> import flambeau as torch
>>> x = torch.ones(3, requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 2., 2.])
"""

from __future__ import annotations

import importlib

from . import assemble
from .core.device import device
from .core.dtype import ALIASES as _DTYPE_ALIASES
from .core.dtype import ALL as _DTYPES
from .core.dtype import dtype, finfo, iinfo
from .engine.tensor import Size, Tensor

__version__ = "0.1.0"

assemble.install()
globals().update({d.name: d for d in _DTYPES})
globals().update(_DTYPE_ALIASES)
globals().update({k: v for k, v in assemble.functions.items() if "." not in k})
