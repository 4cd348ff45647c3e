"""Processes arranged in a grid: along each of its dimensions they form groups."""

from __future__ import annotations

from typing import Any

import flambeau

from .groups import (
    NON_MEMBER,
    ProcessGroup,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
    resolve,
)

__all__ = ["DeviceMesh", "init_device_mesh"]


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, backend_override=None):
    """All processes in row-major order in a grid of a shape; every process must call this."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError("Each mesh_dim_name must be unique. Found repeated mesh_dim_name in "
                               f"mesh_dim_names {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length! Found "
                               f"len(mesh_dim_names): {len(mesh_dim_names)} and "
                               f"len(mesh_shape): {len(mesh_shape)}.")
    count = 1
    for size in mesh_shape:
        count *= size
    grid = flambeau.arange(count, dtype=flambeau.int).view(tuple(mesh_shape))
    return DeviceMesh(device_type, grid, mesh_dim_names=mesh_dim_names)


class DeviceMesh:
    """A grid of ranks, and the groups of this process along its dimensions."""

    def __init__(self, device_type, mesh, *, mesh_dim_names=None, _groups=None) -> None:
        self.device_type = device_type
        self.mesh = flambeau.as_tensor(mesh, dtype=flambeau.int).detach()
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if not is_initialized():
            init_process_group()
        if self.mesh.numel() > get_world_size():
            raise RuntimeError(f"Mesh should not be bigger than default world size "
                               f"{get_world_size()}, but found {self.mesh.numel()} ranks!")
        if self.mesh.unique().numel() != self.mesh.numel():
            raise RuntimeError(f"DeviceMesh cannot have duplicate values, but found {self.mesh}")
        at = (self.mesh == get_rank()).nonzero().tolist()
        self._place = at[0] if at else None
        self._groups = [self._along(d) for d in range(self.ndim)] if _groups is None else _groups

    def _along(self, dim: int) -> Any:
        """The group of this process along a dimension; all make the groups of all its lines."""
        if self.ndim == 1 and self.mesh.numel() == get_world_size():
            return resolve(None)
        mine: Any = NON_MEMBER
        for ranks in self.mesh.movedim(dim, -1).reshape(-1, self.mesh.size(dim)).tolist():
            made = new_group(ranks)
            if isinstance(made, ProcessGroup):
                mine = made
        return mine

    @property
    def ndim(self) -> int:
        return self.mesh.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many processes there are, in all or along a dimension."""
        return self.mesh.numel() if mesh_dim is None else self.mesh.size(mesh_dim)

    def get_rank(self) -> int:
        """This process's rank among all."""
        return get_rank()

    def get_coordinate(self) -> list[int] | None:
        """Where this process stands in the grid; None if it does not."""
        return self._place

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Where this process stands along a dimension."""
        if self._place is None:
            raise RuntimeError(f"rank {get_rank()} does not stand in {self}")
        return self._place[self._dim(mesh_dim, "get_local_rank")]

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this process along a dimension."""
        return self._groups[self._dim(mesh_dim, "get_group")]

    def get_all_groups(self) -> list[Any]:
        return list(self._groups)

    def _dim(self, wanted: int | str | None, asking: str) -> int:
        if wanted is None:
            if self.ndim > 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional "
                                   f"kwarg `mesh_dim` needs to be specified in {asking} when "
                                   "device_mesh.ndim > 1.")
            return 0
        if isinstance(wanted, int):
            return wanted
        if self.mesh_dim_names is None or wanted not in self.mesh_dim_names:
            raise KeyError(f"Invalid mesh_dim_name {wanted}: the dimensions are "
                           f"{self.mesh_dim_names}")
        return self.mesh_dim_names.index(wanted)

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the grid along named dimensions in which this process stands."""
        chosen = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim(name, "__getitem__") for name in chosen]
        if self._place is None:
            raise RuntimeError(f"rank {get_rank()} does not stand in {self}")
        at = tuple(slice(None) if d in dims else self._place[d] for d in range(self.ndim))
        order = [sorted(dims).index(d) for d in dims]
        return DeviceMesh(self.device_type, self.mesh[at].permute(order), mesh_dim_names=chosen,
                          _groups=[self._groups[d] for d in dims])

    def __eq__(self, other) -> bool:
        return isinstance(other, DeviceMesh) and (
            self.device_type, self.mesh_dim_names, self.mesh.tolist()) == (
            other.device_type, other.mesh_dim_names, other.mesh.tolist())

    def __hash__(self) -> int:
        return hash((self.device_type, self.mesh_dim_names, self.shape))

    def __repr__(self) -> str:
        shown = self.shape if self.mesh_dim_names is None else ", ".join(
            f"{name}={size}" for name, size in zip(self.mesh_dim_names, self.shape, strict=True))
        return f"DeviceMesh({shown}, '{self.device_type}')"
