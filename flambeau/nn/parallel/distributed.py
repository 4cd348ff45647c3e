"""One model in many processes: gradients are averaged while backward still runs."""

from __future__ import annotations

import contextlib
import copy
import warnings
from typing import Any

import flambeau
from flambeau.distributed import collectives, groups, objects
from flambeau.distributed.algorithms.join import Join, Joinable, JoinHook
from flambeau.nn.modules import Module
from flambeau.nn.parallel.reducer import FIRST_BUCKET, Reducer, unused_parameters

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module, Joinable):
    """A module whose gradients are the averages over all processes.

    Parameters begin as those of the first rank. Backward fills buckets, and each is reduced as soon
    as it is full, beside the rest of backward.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=None,
                 init_sync=True, process_group=None, bucket_cap_mb=None,
                 find_unused_parameters=False, check_reduction=False,
                 gradient_as_bucket_view=False, static_graph=False,
                 skip_all_reduce_unused_params=False, bucket_cap_mb_list=None,
                 batched_grad_copy=False, forward_sync_buffers=None):
        super().__init__()
        Joinable.__init__(self)
        self.process_group = groups.resolve(process_group)
        if self.process_group is None:
            raise ValueError("DistributedDataParallel: this rank is not in the process group")
        self.module = module
        self.device_ids, self.output_device, self.dim = device_ids, output_device, dim
        begin_with_buffers = self._choose_buffers(broadcast_buffers, forward_sync_buffers)
        self.find_unused_parameters = find_unused_parameters or static_graph
        self.static_graph = static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.parameters_to_ignore = ignored
        named = [(name, p) for name, p in module.named_parameters()
                 if p.requires_grad and name not in ignored]
        if not named:
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have "
                               "any parameter that requires a gradient.")
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 2**20)
        caps = [int(cap * 2**20) for cap in bucket_cap_mb_list or ()]
        _check_same_shapes(self.process_group, named)
        if init_sync:
            buffers = module.named_buffers() if begin_with_buffers else ()
            self._give_states([*module.named_parameters(), *buffers], 0)
        caps = caps or [min(FIRST_BUCKET, self.bucket_bytes_cap), self.bucket_bytes_cap]
        self.reducer = Reducer(named, self.process_group, caps, gradient_as_bucket_view,
                               self.find_unused_parameters)

    def _choose_buffers(self, broadcast_buffers, forward_sync_buffers) -> bool:
        """Whether buffers are given out before each forward; whether also at the beginning."""
        if broadcast_buffers is not None:
            warnings.warn("`broadcast_buffers` is deprecated. Use `forward_sync_buffers` instead; "
                          "it does not change what is given out at the beginning.",
                          FutureWarning, stacklevel=3)
        if forward_sync_buffers is not None:
            self.forward_sync_buffers = forward_sync_buffers
            return True
        self.forward_sync_buffers = broadcast_buffers is None or bool(broadcast_buffers)
        return self.forward_sync_buffers

    @property
    def broadcast_buffers(self) -> bool:
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    # -- forward ----------------------------------------------------------------------------------

    def forward(self, *inputs, **kwargs):
        syncing = flambeau.is_grad_enabled() and self.require_backward_grad_sync
        if syncing and self._join_config.enable:
            Join.notify_join_context(self)
        if self._join_config.enable:
            self._join_round(syncing)
        if syncing:
            self.reducer.expect_finished()
        if self._will_sync_buffers():
            self._give_states(self._own_buffers(), self._buffer_source())
        output = self.module(*inputs, **kwargs)
        self.reducer.begin(
            syncing, unused_parameters(output, self.reducer.parameters)
            if syncing and self.find_unused_parameters else ())
        return output

    def _will_sync_buffers(self) -> bool:
        return (self.require_forward_param_sync and self.forward_sync_buffers
                and bool(self._own_buffers()))

    def _own_buffers(self) -> list[tuple[str, Any]]:
        return [(name, buffer) for name, buffer in self.module.named_buffers()
                if name not in self.parameters_to_ignore]

    def _buffer_source(self) -> int:
        """The first rank; inside join, the last of those still at work."""
        return _highest(self.process_group, True) if self._join_config.enable else 0

    def _give_states(self, named: list[tuple[str, Any]], source: int) -> None:
        """Copy tensors of one rank to all, joined into one message for each dtype."""
        alike: dict[Any, list] = {}
        for name, tensor in named:
            if name not in self.parameters_to_ignore:
                alike.setdefault(tensor.dtype, []).append(tensor.detach())
        with flambeau.no_grad():
            for tensors in alike.values():
                here, sizes = self.process_group.rank() == source, [t.numel() for t in tensors]
                flat = (flambeau.cat([tensor.reshape(-1) for tensor in tensors]) if here
                        else flambeau.empty(sum(sizes), dtype=tensors[0].dtype))
                collectives.broadcast(flat, group=self.process_group, group_src=source)
                if not here:
                    pieces = flat.split(sizes)
                    for tensor, piece in zip(tensors, pieces, strict=True):
                        tensor.copy_(piece.view(tensor.shape))

    # -- gradients --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self):
        """Inside, gradients are only added up here; the next backward outside averages them."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state, hook):
        """hook(state, bucket) -> Future takes the place of averaging a bucket."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be "
                               "called once.")
        self.reducer.hook = (state, hook)

    def _set_static_graph(self):
        self.static_graph = self.find_unused_parameters = self.reducer.find_unused = True

    # -- uneven inputs ----------------------------------------------------------------------------

    def join(self, divide_by_initial_world_size=True, enable=True,
             throw_on_early_termination=False):
        """A context in which ranks may have different numbers of batches."""
        return Join([self], enable, throw_on_early_termination,
                    divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs):
        return _Shadow(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self):
        return flambeau.device("cpu")

    @property
    def join_process_group(self):
        return self.process_group

    def _join_round(self, syncing: bool) -> None:
        """Tell those who are done what this batch will need, and learn who is left."""
        plan = flambeau.tensor([1.0, float(syncing), float(self._will_sync_buffers())])
        collectives.all_reduce(plan, group=self.process_group)
        self.reducer.divisor = None if self._divide_by_all else int(plan[0])

    _divide_by_all = True

    # -- modes ------------------------------------------------------------------------------------

    def train(self, mode=True):
        super().train(mode)
        return self

    def __deepcopy__(self, memo):
        return DistributedDataParallel(
            copy.deepcopy(self.module, memo), process_group=self.process_group,
            forward_sync_buffers=self.forward_sync_buffers, init_sync=False,
            find_unused_parameters=self.find_unused_parameters,
            gradient_as_bucket_view=self.gradient_as_bucket_view)


class _Shadow(JoinHook):
    """The collectives of one batch, by a rank that has none left."""

    def __init__(self, ddp: DistributedDataParallel, divide_by_all: bool) -> None:
        self.ddp = ddp
        ddp._divide_by_all = divide_by_all

    def main_hook(self) -> None:
        ddp = self.ddp
        plan = flambeau.zeros(3)
        collectives.all_reduce(plan, group=ddp.process_group)
        active, syncing, buffers = (int(value) for value in plan)
        ddp.reducer.divisor = None if ddp._divide_by_all else active
        if buffers:
            source = _highest(ddp.process_group, False)
            ddp._give_states(ddp._own_buffers(), source)
        if syncing:
            ddp.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        ddp = self.ddp
        source = _highest(ddp.process_group, is_last_joiner)
        ddp._give_states([*ddp.module.named_parameters(), *ddp.module.named_buffers()], source)
        ddp.reducer.divisor = None


def _highest(group: Any, here: bool) -> int:
    """The highest rank of those that say they are."""
    rank = flambeau.tensor([group.rank() if here else -1])
    collectives.all_reduce(rank, collectives.ReduceOp.MAX, group)
    return int(rank)


def _check_same_shapes(group: Any, named: list[tuple[str, Any]]) -> None:
    mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in named]
    every: list = [None] * group.size()
    objects.all_gather_object(every, mine, group)
    for rank, theirs in enumerate(every):
        if theirs != every[0]:
            different = next((a, b) for a, b in zip([*every[0], None], [*theirs, None]) if a != b)
            raise RuntimeError(
                f"DDP expects same model across all ranks, but Rank 0 has {len(every[0])} params, "
                f"while rank {rank} has {len(theirs)}: {different[0]} is not {different[1]}")
