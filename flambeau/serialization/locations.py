"""Where storages of a file are put: the meaning of `map_location`, and who answers for a place."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any, TypeAlias

import flambeau

#: what `map_location` can be
MAP_LOCATION: TypeAlias = (
    Callable[[Any, str], Any] | flambeau.device | str | dict[str, str] | None)


def _cpu(storage, location: str):
    return storage if location == "cpu" else None


def _accelerator(storage, location: str):
    kind = location.partition(":")[0]
    if kind in ("cuda", "mps", "xpu", "hpu", "mtia"):
        raise RuntimeError(
            f"Attempting to deserialize object on a {kind.upper()} device but "
            f"torch.{kind}.is_available() is False. If you are running on a CPU-only machine, "
            "please use torch.load with map_location=torch.device('cpu') to map your storages to "
            "the CPU.")
    return None


#: (priority, who names the place of a storage, who puts a storage in a place)
_packages: list[tuple[int, Any, Any]] = [
    (10, lambda storage: "cpu" if storage.device.type == "cpu" else None, _cpu),
    (20, lambda storage: None, _accelerator),
]


def register_package(priority: int, tagger, deserializer) -> None:
    """Let files hold storages of another place; lower priorities are asked first."""
    bisect.insort(_packages, (priority, tagger, deserializer), key=lambda package: package[0])


def location_tag(storage) -> str:
    """The place of a storage, as files name it."""
    for _, tagger, _ in _packages:
        location = tagger(storage)
        if location:
            return location
    raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__}")


def default_restore_location(storage, location: str):
    """A storage in the place that a file names."""
    for _, _, deserializer in _packages:
        result = deserializer(storage, location)
        if result is not None:
            return result
    raise RuntimeError(f"don't know how to restore data location of {type(storage).__name__} "
                       f"(tagged with {location})")


def validate_cuda_device(location) -> int:
    """There is no CUDA device here, and this says so."""
    _accelerator(None, "cuda")
    return 0


def validate_hpu_device(location) -> int:
    """There is no HPU device here, and this says so."""
    _accelerator(None, "hpu")
    return 0


def mover(map_location):
    """(name, put): the place in the file -> the place asked for; a storage put there."""
    if map_location is None:
        return (lambda location: location), default_restore_location
    if isinstance(map_location, dict):
        return (lambda location: str(map_location.get(location, location))), (
            default_restore_location)
    if isinstance(map_location, (str, flambeau.device)):
        place = str(flambeau.device(map_location))
        return (lambda location: place), default_restore_location
    if callable(map_location):
        def put(storage, location):
            result = map_location(storage, location)
            return default_restore_location(storage, location) if result is None else result
        return (lambda location: location), put
    raise TypeError("load: map_location is None, a device, its name, a dictionary of names or a "
                    f"function, not {type(map_location).__name__}")
