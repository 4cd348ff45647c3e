"""Loaders of other packages that hand themselves to the iterators of this one."""

from __future__ import annotations

import functools
from typing import Any

from .fetch import FETCHERS


class Stranger:
    """Such a loader with what our own have beside what PyTorch's have; their order is unknown."""

    sampler = batch_sampler = _resume = _progress = None
    _keep_streams = False

    def __init__(self, loader: Any):
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def _make_fetcher(self) -> Any:
        return functools.partial(FETCHERS[self._dataset_kind], self._auto_collation,
                                 self.collate_fn, self.drop_last)


def received(loader: Any) -> Any:
    """A loader as iterators take it."""
    return loader if hasattr(loader, "_make_fetcher") else Stranger(loader)
