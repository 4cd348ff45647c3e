"""Custom ops under their first, private name: see flambeau.library."""

from flambeau.library import custom_op, impl_abstract

__all__ = ["custom_op", "impl_abstract"]
