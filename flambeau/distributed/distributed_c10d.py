"""Groups and what they do together, where programs that reach behind the public names look."""

from flambeau.distributed import *  # noqa: F403
from flambeau.distributed import __all__ as _public
from flambeau.distributed.groups import resolve, world

__all__ = [*_public, "_get_default_group", "_rank_not_in_group"]


def _get_default_group():
    """The group of all processes."""
    if world.group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call "
                         "init_process_group.")
    return world.group


def _rank_not_in_group(group) -> bool:
    """Whether this process is no member of a group."""
    return resolve(group) is None
