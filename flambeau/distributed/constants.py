"""What the processes of a group agree on."""

from flambeau.distributed.groups import default_pg_timeout

__all__ = ["default_pg_timeout"]
