"""Collectives on Python objects: pickled, moved as bytes, unpickled."""

from __future__ import annotations

import pickle
from typing import Any

import flambeau

from . import collectives, point_to_point
from .groups import resolve


def packed(thing: Any) -> Any:
    data = bytearray(pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL))
    return flambeau.frombuffer(data, dtype=flambeau.uint8)


def unpacked(tensor: Any) -> Any:
    return pickle.loads(tensor.numpy().tobytes())


def length(tensor: Any = None) -> Any:
    return flambeau.tensor([0 if tensor is None else tensor.numel()], dtype=flambeau.int64)


def room(size: int) -> Any:
    return flambeau.empty(int(size), dtype=flambeau.uint8)


def all_gather_object(object_list, obj, group=None):
    """The object of every rank, into a list."""
    g = resolve(group, "all_gather_object")
    if g is None:
        return
    mine = packed(obj)
    sizes = flambeau.empty(g.size(), dtype=flambeau.int64)
    collectives.all_gather_into_tensor(sizes, length(mine), g)
    pieces = [room(size) for size in sizes.tolist()]
    collectives.all_gather(pieces, mine, g)
    for place, piece in enumerate(pieces):
        object_list[place] = unpacked(piece)


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """The object of every rank, into a list at rank `dst`."""
    g = resolve(group, "gather_object")
    if g is None:
        return
    root = collectives.member(g, dst, group_dst, "gather_object", default=0)
    if g.rank() == root and object_gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    mine = packed(obj)
    sizes = flambeau.empty(g.size(), dtype=flambeau.int64)
    collectives.all_gather_into_tensor(sizes, length(mine), g)
    largest = int(sizes.max())
    padded = flambeau.zeros(largest, dtype=flambeau.uint8)
    padded[: mine.numel()] = mine
    here = g.rank() == root
    pieces = [room(largest) for _ in range(g.size())] if here else None
    collectives.gather(padded, pieces, group=g, group_dst=root)
    if here and pieces is not None:
        for place, (piece, size) in enumerate(zip(pieces, sizes.tolist())):
            object_gather_list[place] = unpacked(piece[:size])


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """Replace the objects of the list by those of rank `src`."""
    g = resolve(group, "broadcast_object_list")
    if g is None:
        return
    root = collectives.member(g, src, group_src, "broadcast_object_list", default=0)
    here = g.rank() == root
    mine = packed(list(object_list)) if here else None
    size = length(mine)
    collectives.broadcast(size, group=g, group_src=root)
    data = mine if here else room(size)
    collectives.broadcast(data, group=g, group_src=root)
    if not here:
        object_list[:] = unpacked(data)


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None,
                        group=None, group_src=None):
    """One object of the list at rank `src` for every rank, as the first of the output list."""
    g = resolve(group, "scatter_object_list")
    if g is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at "
                         "least 1.")
    root = collectives.member(g, src, group_src, "scatter_object_list", default=0)
    here = g.rank() == root
    pieces = [packed(thing) for thing in scatter_object_input_list] if here else []
    largest = length() if not here else flambeau.tensor([max(p.numel() for p in pieces)])
    collectives.broadcast(largest, group=g, group_src=root)
    padded = [flambeau.cat([piece, flambeau.zeros(int(largest) - piece.numel(),
                                                  dtype=flambeau.uint8)]) for piece in pieces]
    size, data = length(), room(largest)
    collectives.scatter(size, [length(piece) for piece in pieces] or None, group=g, group_src=root)
    collectives.scatter(data, padded or None, group=g, group_src=root)
    scatter_object_output_list[0] = unpacked(data[: int(size)])


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None):
    """Send objects to a rank."""
    data = packed(list(object_list))
    point_to_point.send(length(data), dst, group, group_dst=group_dst)
    point_to_point.send(data, dst, group, group_dst=group_dst)


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None) -> int:
    """Receive objects into a list; the rank they came from."""
    size = length()
    origin = point_to_point.recv(size, src, group, group_src=group_src)
    if origin < 0:
        return origin
    data = room(size)
    point_to_point.recv(data, origin, group)
    object_list[:] = unpacked(data)
    return origin
