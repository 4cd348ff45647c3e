"""Sequences of different lengths in one tensor, time step after time step."""

from collections import namedtuple

import flambeau

__all__ = ["PackedSequence"]

_Fields = namedtuple("_Fields", "data batch_sizes sorted_indices unsorted_indices")


class PackedSequence(_Fields):
    """`data` holds the steps of all sequences; `batch_sizes[t]` of them reach step t.

    The sequences are in order of falling length; `sorted_indices` is that order.
    """

    __slots__ = ()

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise ValueError(
                    "PackedSequence: give data and batch_sizes, or one pair of the two"
                )
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence "
                f"and pack_padded_sequences in nn.utils.rnn. Got {batch_sizes.device}"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def __getnewargs__(self):
        return tuple(self)

    @property
    def is_cuda(self):
        return self.data.is_cuda

    def is_pinned(self):
        return self.data.is_pinned()

    def pin_memory(self):
        return self._with(self.data.pin_memory())

    def to(self, *args, **kwargs):
        """The same sequences with their data on another device or of another dtype."""
        return self._with(self.data.to(*args, **kwargs))

    def cpu(self):
        return self.to("cpu")

    def cuda(self, *args, **kwargs):
        return self._with(self.data.cuda(*args, **kwargs))

    def double(self):
        return self.to(flambeau.float64)

    def float(self):
        return self.to(flambeau.float32)

    def half(self):
        return self.to(flambeau.float16)

    def long(self):
        return self.to(flambeau.int64)

    def int(self):
        return self.to(flambeau.int32)

    def short(self):
        return self.to(flambeau.int16)

    def char(self):
        return self.to(flambeau.int8)

    def byte(self):
        return self.to(flambeau.uint8)

    def _with(self, data):
        if data is self.data:
            return self
        device = data.device
        orders = (i if i is None else i.to(device) for i in self[2:])
        return type(self)(data, self.batch_sizes, *orders)


def invert_permutation(permutation):
    """The permutation that undoes this one."""
    if permutation is None:
        return None
    places = flambeau.arange(permutation.numel(), device=permutation.device)
    return flambeau.empty_like(permutation).scatter_(0, permutation, places)
