"""Parts of the loader, where programs that reach behind its public names look for them."""

from . import collate

__all__ = ["collate"]
