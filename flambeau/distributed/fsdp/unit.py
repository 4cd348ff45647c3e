"""The parameters of one wrapped module as one flat tensor, of which a rank keeps a part.

`unshard` puts whole parameters into their modules for a forward; autograd brings their gradient
back through `Gather`, whose backward is a reduce-scatter. Whole parameters that operations keep for
backward are not kept: a note is, and the tensor is gathered again when backward asks for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau
from flambeau.distributed import collectives
from flambeau.distributed.sharded import ShardedTensor
from flambeau.nn import Module, Parameter


class Slot(NamedTuple):
    """A parameter's place in the flat tensor, and the modules and names that have it."""

    homes: list[tuple[Module, str]]
    name: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Note(NamedTuple):
    """A view of the whole flat tensor, to be made again."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class FlatUnit:
    """Parameters of one dtype that are gathered and freed together."""

    def __init__(self, found: dict[Any, tuple[str, list[tuple[Module, str]]]], group: Any,
                 keep_after_forward: bool, separate: bool) -> None:
        self.group, self.keep, self.separate = group, keep_after_forward, separate
        self.slots: list[Slot] = []
        begin = 0
        for parameter, (name, homes) in found.items():
            end = begin + parameter.numel()
            self.slots.append(Slot(homes, name, tuple(parameter.shape), begin, end))
            begin = end
        self.size = begin
        self.share = -(-begin // group.size())
        self.start = self.share * group.rank()
        first = next(iter(found))
        self.dtype, self.requires_grad = first.dtype, first.requires_grad
        whole = flambeau.zeros(self.share * group.size(), dtype=self.dtype)
        with flambeau.no_grad():
            for slot, parameter in zip(self.slots, found, strict=True):
                whole[slot.begin:slot.end] = parameter.detach().reshape(-1)
        self.local = whole[self.start:self.start + self.share].clone()
        self.pieces = [Parameter(view, requires_grad=self.requires_grad)
                       for view in self._views_of(self.local)]
        self.whole: Any = None
        self.pending: Any = None
        self.sync = True
        self.restore()

    def _views_of(self, shard: Any) -> list[Any]:
        """This rank's part of each parameter; or all of them as one."""
        return ([shard[begin:end] for begin, end in self.ranges()] if self.separate else [shard])

    def ranges(self) -> list[tuple[int, int]]:
        """For each slot, which elements of the shard are its."""
        inside = lambda at: min(max(at - self.start, 0), self.share)  # noqa: E731
        return [(inside(slot.begin), inside(slot.end)) for slot in self.slots]

    # -- whole and sharded ------------------------------------------------------------------------

    def gathered(self) -> Any:
        """The whole flat tensor, gathered if it is not here."""
        if self.whole is None:
            whole = flambeau.empty(self.share * self.group.size(), dtype=self.dtype)
            collectives.all_gather_into_tensor(whole, self.local, group=self.group)
            self.whole = whole
        return self.whole

    def unshard(self) -> None:
        """Put whole parameters, which pass gradients on, where the modules look for them."""
        flat = Gather.apply(self, *self.pieces)
        for slot in self.slots:
            view = flat[slot.begin:slot.end].view(slot.shape)
            for module, name in slot.homes:
                module.__dict__[name] = view

    def restore(self) -> None:
        """Take the whole parameters out of the modules again."""
        for place, slot in enumerate(self.slots):
            for module, name in slot.homes:
                module.__dict__.pop(name, None)
                if self.separate:
                    module.__dict__[name] = self.pieces[place]
                elif name in module._registered:
                    del module._registered[name]

    def free(self) -> None:
        self.whole = None

    # -- what operations keep ---------------------------------------------------------------------

    def pack(self, tensor: Any) -> Any:
        """A note in place of a view of the whole tensor; None for any other tensor."""
        whole = self.whole
        if whole is None or tensor.dtype != self.dtype:
            return None
        if tensor.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
            return None
        return Note(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())

    def unpack(self, note: Note) -> Any:
        with flambeau.no_grad():
            return self.gathered().as_strided(note.size, note.stride, note.offset)

    # -- gradients --------------------------------------------------------------------------------

    def scatter(self, g: Any) -> tuple:
        """The average gradient of this rank's part; the whole parameters are not needed now."""
        self.free()
        if self.pending is not None:
            g = g + self.pending
            self.pending = None
        if not self.sync:
            self.pending = g.clone()
            return (None,) * len(self.pieces)
        mine = flambeau.empty(self.share, dtype=g.dtype)
        g = g.contiguous() / self.group.size()
        collectives.reduce_scatter_tensor(mine, g, group=self.group)
        return tuple(self._views_of(mine))

    # -- states -----------------------------------------------------------------------------------

    def sharded(self, shard: Any) -> dict[str, ShardedTensor]:
        """A tensor like the shard (the parameters, or what an optimizer keeps), by names."""
        found = {}
        for slot, (begin, end) in zip(self.slots, self.ranges(), strict=True):
            offset = max(self.start - slot.begin, 0) if end > begin else 0
            found[slot.name] = ShardedTensor(shard[begin:end], slot.shape, offset)
        return found

    def assemble(self, shard: Any) -> dict[str, Any]:
        """A tensor like the shard, from all ranks, by names."""
        whole = flambeau.empty(self.share * self.group.size(), dtype=shard.dtype)
        collectives.all_gather_into_tensor(whole, shard.detach().contiguous(), group=self.group)
        return {slot.name: whole[slot.begin:slot.end].view(slot.shape).clone()
                for slot in self.slots}

    def cut(self, named: dict[str, Any], into: Any) -> None:
        """Fill a shard from whole tensors."""
        with flambeau.no_grad():
            for slot, (begin, end) in zip(self.slots, self.ranges(), strict=True):
                if end > begin and slot.name in named:
                    first = max(self.start - slot.begin, 0)
                    flat = named[slot.name].detach().reshape(-1)
                    into[begin:end] = flat[first:first + end - begin].to(into.dtype)


class Gather(flambeau.autograd.Function):
    """The whole flat tensor from the parts; backward gives each rank the gradient of its part."""

    @staticmethod
    def forward(ctx, unit, *pieces):
        ctx.unit = unit
        return unit.gathered().detach()

    @staticmethod
    def backward(ctx, g):
        return None, *ctx.unit.scatter(g)
