"""The tensor, where programs that reach behind its public name look for it."""

from flambeau import Tensor
from flambeau.serialization.rebuild import of_type as _rebuild_from_type_v2

__all__ = ["Tensor", "_rebuild_from_type_v2"]
