"""A folder with one file of tensors per rank, and an index that is written last.

A folder without its index is no checkpoint: a save that was interrupted leaves the old one.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import flambeau
from flambeau.distributed import collectives, groups, objects
from flambeau.distributed.sharded import ShardedTensor

INDEX = ".metadata"


def save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None,
         no_dist=False, use_collectives=True):
    """Write a state: pieces by the ranks that hold them, all else by the first."""
    folder = _folder(checkpoint_id, storage_writer, "save")
    folder.mkdir(parents=True, exist_ok=True)
    together = groups.is_initialized() and not no_dist
    rank = groups.get_rank(process_group) if together else 0
    mine: dict[str, Any] = {}
    index: dict[str, Any] = {}
    version = _version(folder, together, process_group)
    file = f"__{rank}_{version}.distcp"
    for key, value in _flatten(state_dict):
        if isinstance(value, ShardedTensor):
            if value.local.numel():
                mine[key] = value.local.detach().clone()
                index[key] = _entry(value.shape, [value.offset, value.local.numel(), file])
        elif rank == 0:
            whole = isinstance(value, flambeau.Tensor)
            mine[key] = value.detach() if whole else pickle.dumps(value)
            index[key] = _entry(tuple(value.shape) if whole else None,
                                [0, value.numel() if whole else 0, file])
    if mine:
        _write(folder / file, lambda path: flambeau.save(mine, path))
    _write_index(folder, index, version, together, process_group)


def _entry(shape: Any, piece: list) -> dict:
    return {"shape": None if shape is None else list(shape), "pieces": [piece]}


def _version(folder: Path, together: bool, group: Any) -> int:
    """One more than what is there: files of the last checkpoint live until the new one is whole."""
    found = [_read_index(folder)["version"] + 1 if (folder / INDEX).exists() else 0]
    if together:
        objects.broadcast_object_list(found, group=group, group_src=0)
    return found[0]


def _write(path: Path, write: Any) -> None:
    fresh = path.with_name(path.name + ".part")
    write(str(fresh))
    os.replace(fresh, path)


def _write_index(folder: Path, index: dict, version: int, together: bool, group: Any) -> None:
    every = [index]
    if together:
        every = [{}] * groups.get_world_size(group)
        objects.all_gather_object(every, index, group)
    if not together or groups.get_rank(group) == 0:
        joined: dict[str, Any] = {}
        for part in every:
            for key, entry in part.items():
                known = joined.setdefault(key, {"shape": entry["shape"], "pieces": []})
                known["pieces"] += entry["pieces"]
        text = json.dumps({"version": version, "entries": joined})
        _write(folder / INDEX, lambda path: Path(path).write_text(text, encoding="utf-8"))
        for old in folder.glob("__*_*.distcp"):
            if not old.name.endswith(f"_{version}.distcp"):
                old.unlink(missing_ok=True)
    if together:
        collectives.barrier(group)


def load(state_dict, *, checkpoint_id=None, storage_reader=None, planner=None, process_group=None,
         no_dist=False):
    """Fill a state in place: tensors and pieces are written to, other values replaced."""
    folder = _folder(checkpoint_id, storage_reader, "load")
    if not (folder / INDEX).exists():
        raise FileNotFoundError(f"checkpoint.load: {folder} has no index: no whole checkpoint")
    entries = _read_index(folder)["entries"]
    opened: dict[str, Any] = {}
    for key, value in list(_flatten(state_dict)):
        if key not in entries:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {key}.")
        entry = entries[key]
        if isinstance(value, ShardedTensor):
            _check_shape(key, entry, value.shape)
            _fill(value.local, value.offset, key, entry, folder, opened)
        elif isinstance(value, flambeau.Tensor):
            _check_shape(key, entry, tuple(value.shape))
            flat = flambeau.empty(value.numel(), dtype=value.dtype)
            _fill(flat, 0, key, entry, folder, opened)
            with flambeau.no_grad():
                value.detach().copy_(flat.view(value.shape))
        else:
            file = entry["pieces"][0][2]
            _put(state_dict, key, pickle.loads(_open(folder, file, opened)[key]))


def _check_shape(key: str, entry: dict, shape: tuple) -> None:
    if entry["shape"] != list(shape):
        raise ValueError(f"Size mismatch between saved {entry['shape']} and current: "
                         f"{list(shape)} for {key}")


def _fill(local: Any, offset: int, key: str, entry: dict, folder: Path, opened: dict) -> None:
    """Copy what saved pieces and this one have in common."""
    end = offset + local.numel()
    done = 0
    with flambeau.no_grad():
        for first, length, file in entry["pieces"]:
            begin, stop = max(offset, first), min(end, first + length)
            if begin < stop:
                saved = _open(folder, file, opened)[key].reshape(-1)
                local[begin - offset:stop - offset] = saved[begin - first:stop - first]
                done += stop - begin
    if done != local.numel():
        raise RuntimeError(f"checkpoint.load: {key} has {done} of {local.numel()} elements in "
                           f"{folder}: pieces are missing")


def _open(folder: Path, file: str, opened: dict) -> dict:
    if file not in opened:
        opened[file] = flambeau.load(str(folder / file), weights_only=True)
    return opened[file]


def _read_index(folder: Path) -> dict:
    return json.loads((folder / INDEX).read_text(encoding="utf-8"))


def _folder(checkpoint_id: Any, other: Any, name: str) -> Path:
    where = checkpoint_id if checkpoint_id is not None else getattr(other, "path", other)
    if where is None:
        raise ValueError(f"checkpoint.{name}: checkpoint_id must name a folder")
    return Path(where)


def _flatten(state: Any, before: str = ""):
    """(name with dots, value) for all that is in nested dicts and lists."""
    items = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in items:
        name = f"{before}.{key}" if before else str(key)
        nested = isinstance(value, (dict, list)) and value and any(
            isinstance(each, (flambeau.Tensor, ShardedTensor, dict, list))
            for each in (value.values() if isinstance(value, dict) else value))
        if nested:
            yield from _flatten(value, name)
        else:
            yield name, value


def _put(state: Any, path: str, value: Any) -> None:
    """Replace the value that _flatten named so."""
    items = state.items() if isinstance(state, dict) else enumerate(state)
    for key, inner in list(items):
        if str(key) == path:
            state[key] = value
            return
        if path.startswith(f"{key}.") and isinstance(inner, (dict, list)):
            _put(inner, path[len(str(key)) + 1:], value)
            return


def save_state_dict(state_dict, storage_writer, process_group=None, **_more):
    save(state_dict, storage_writer=storage_writer, process_group=process_group)


def load_state_dict(state_dict, storage_reader, process_group=None, **_more):
    load(state_dict, storage_reader=storage_reader, process_group=process_group)
