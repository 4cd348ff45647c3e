"""Declarations of ops, by family. Nothing here knows a tensor or a device.

Under this name torch also keeps ops by namespace: `torch.ops.mylib.f`, see namespaces.py.
"""

from importlib.util import find_spec as _find

from .namespaces import load_library as load_library
from .namespaces import namespace as _namespace


def __getattr__(name: str):
    if name.startswith("__") or _find(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return _namespace(name)
