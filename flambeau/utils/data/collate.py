"""From a list of samples to a batch: tensors are stacked, containers are kept."""

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence

import numpy as np

import flambeau
from flambeau import Tensor

from .dataset import Gathered
from .lending import is_shared_place, place

REFUSED = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def collate(batch, *, collate_fn_map=None):
    """Collate by the function registered for the type of the samples, or within containers.

    A function is called with the batch and, as a keyword, the map itself.
    """
    first = batch[0]
    registry = {} if collate_fn_map is None else collate_fn_map
    for kind in (type(first), *registry):
        if kind in registry and isinstance(first, kind):
            return registry[kind](batch, collate_fn_map=collate_fn_map)

    def column(values):
        return collate(values, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        return _rebuilt(first, {key: column([sample[key] for sample in batch]) for key in first})
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first) if field.init]
        values = {name: column([getattr(sample, name) for sample in batch]) for name in names}
        return dataclasses.replace(first, **values)
    if isinstance(first, Sequence) and not isinstance(first, str | bytes):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [column(values) for values in zip(*batch, strict=True)]
        return _rebuilt(first, columns)
    raise TypeError(REFUSED.format(type(first)))


def _rebuilt(example, content):
    """The content in a container like the example; plain tuples become lists."""
    if isinstance(example, tuple):
        return type(example)(*content) if hasattr(example, "_fields") else content
    try:
        if isinstance(example, MutableMapping):
            clone = copy.copy(example)
            clone.update(content)
            return clone
        if isinstance(example, MutableSequence):
            clone = copy.copy(example)
            for i, value in enumerate(content):
                clone[i] = value
            return clone
        return type(example)(content)
    except TypeError:  # a container that is not made from its content, such as range
        return content


def collate_tensors(batch, *, collate_fn_map=None):
    if not is_shared_place() or any(not _stacks_on(batch[0], value) for value in batch):
        return flambeau.stack(batch, 0)
    first = batch[0]
    return flambeau.stack(batch, 0, out=place((len(batch), *first.shape), first.dtype))


def _stacks_on(first, value):
    """Whether a sample can be written straight to its place in a batch."""
    return type(value) is Tensor and value.shape == first.shape and (
        value.dtype is first.dtype and not value.requires_grad)


def collate_arrays(batch, *, collate_fn_map=None):
    first = batch[0]
    if first.dtype.kind in "SaUO":
        raise TypeError(REFUSED.format(first.dtype))
    if any(array.shape != first.shape or array.dtype != first.dtype for array in batch):
        return flambeau.stack([flambeau.as_tensor(array) for array in batch], 0)
    like = flambeau.as_tensor(first)
    batch_of = place((len(batch), *first.shape), like.dtype)
    np.stack(batch, 0, out=batch_of.numpy())
    return batch_of


def collate_numbers(batch, *, collate_fn_map=None):
    return flambeau.as_tensor(batch)


def collate_floats(batch, *, collate_fn_map=None):
    return flambeau.tensor(batch, dtype=flambeau.float64)


def collate_text(batch, *, collate_fn_map=None):
    return batch


def collate_numpy_scalars(batch, *, collate_fn_map=None):
    return flambeau.as_tensor(np.asarray(batch))


# In order: bool is an int to isinstance, numpy's float64 a float.
default_collate_fn_map = {
    Tensor: collate_tensors,
    np.ndarray: collate_arrays,
    np.bool_: collate_numpy_scalars,
    np.number: collate_numpy_scalars,
    float: collate_floats,
    int: collate_numbers,
    str: collate_text,
    bytes: collate_text,
}


def default_collate(batch):
    """A batch of samples: tensors stacked, numbers made tensors, containers kept."""
    if isinstance(batch, Gathered):
        return batch.collated()
    return collate(batch, collate_fn_map=default_collate_fn_map)


def default_convert(data):
    """The same data with numpy arrays and numbers as tensors."""
    if isinstance(data, Tensor | str | bytes):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in "SaUO" else flambeau.as_tensor(data)
    if isinstance(data, Mapping):
        return _rebuilt(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, Sequence):
        return _rebuilt(data, [default_convert(value) for value in data])
    return data
