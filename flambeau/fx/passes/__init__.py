"""Passes over graphs: shapes of all values, and modules split into parts."""

from flambeau.fx.passes import shape_prop, split_module

__all__ = ["shape_prop", "split_module"]
