"""Making batches, under the names of PyTorch's own file for it."""

from flambeau.utils.data.collate import collate, default_collate, default_convert

__all__ = ["collate", "default_collate", "default_convert"]
