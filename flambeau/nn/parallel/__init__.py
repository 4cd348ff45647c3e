"""One model on several devices or in several processes: copies of it, shares of the batch."""

import importlib

from flambeau.nn.parallel import scatter_gather
from flambeau.nn.parallel.data_parallel import DataParallel, data_parallel
from flambeau.nn.parallel.pieces import gather, parallel_apply, replicate, scatter, scatter_kwargs

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply",
           "replicate", "scatter", "scatter_gather", "scatter_kwargs"]  # fmt: skip


def __getattr__(name):
    """What needs other processes is imported when it is first used."""
    if name in ("DistributedDataParallel", "distributed"):
        module = importlib.import_module("flambeau.nn.parallel.distributed")
        return module if name == "distributed" else module.DistributedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
