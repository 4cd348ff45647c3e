"""The exceptions of torch.distributed."""


class DistError(RuntimeError):
    """Something between processes went wrong."""


class DistBackendError(DistError):
    """A collective failed: a rank died, hung, or was given something else."""


class DistNetworkError(DistError):
    """Another process cannot be reached."""


class DistStoreError(DistError):
    """A store did not have what was asked for in time."""


class QueueEmptyError(DistStoreError):
    """There is nothing in the queue of a store."""
