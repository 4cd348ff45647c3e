"""What masks written for one position are mapped over positions with."""

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex:
    """Inside, `x[i]` looks up a tensor `i`, whose value is not read: `vmap` here always does so."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error) -> None:
        return None
