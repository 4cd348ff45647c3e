"""An optimizer of which every process holds the state of its own share of the parameters."""

from __future__ import annotations

import copy
from typing import Any

import flambeau
from flambeau.distributed import collectives, groups, objects
from flambeau.distributed.algorithms.join import Join, Joinable, JoinHook
from flambeau.optim import Optimizer


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """`optimizer_class` for the parameters of this rank; after a step they go to all others."""

    def __init__(self, params, optimizer_class, process_group=None,
                 parameters_as_bucket_view=False, overlap_with_ddp=False, **defaults):
        if overlap_with_ddp:
            raise ValueError("ZeroRedundancyOptimizer: overlap_with_ddp needs hook_with_zero_step; "
                             "step() after backward does the same updates")
        self.process_group = groups.resolve(process_group)
        if self.process_group is None:
            raise ValueError("ZeroRedundancyOptimizer: this rank is not in the process group")
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self._optim_class, self._optim_defaults = optimizer_class, defaults
        self._gathered: list[dict] | None = None
        self._ready = False
        Joinable.__init__(self)
        Optimizer.__init__(self, params, defaults)
        self._ready = True
        self._share_out()

    def _share_out(self) -> None:
        """Give every parameter an owner, the large ones first, and make this rank's optimizer."""
        self.owners: dict[Any, int] = {}
        load = [0] * self.world_size
        for group in self.param_groups:
            for parameter in sorted(group["params"], key=lambda p: -p.numel()):
                owner = load.index(min(load))
                self.owners[parameter] = owner
                load[owner] += parameter.numel()
        mine = [{**options_of(group), "params": self._of(group, self.rank)}
                for group in self.param_groups]
        self.optim = self._optim_class([g for g in mine if g["params"]] or mine,
                                       **self._optim_defaults)
        self._pairs = [(group, own) for group, own in zip(
            [g for g, m in zip(self.param_groups, mine) if m["params"]] or self.param_groups,
            self.optim.param_groups)]
        for group, own in self._pairs:
            group.update({key: value for key, value in options_of(own).items()
                          if key not in group})

    def _of(self, group: dict, rank: int) -> list:
        return [p for p in group["params"] if self.owners[p] == rank]

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        if self._ready:
            state = {id(p): kept for p, kept in self.optim.state.items()}
            self._share_out()
            for own in self.optim.param_groups:
                for p in own["params"]:
                    if id(p) in state:
                        self.optim.state[p] = state[id(p)]

    def step(self, closure=None, **kwargs):
        """Update this rank's parameters, then take those of the others."""
        Join.notify_join_context(self)
        for group, own in self._pairs:
            own.update(options_of(group))
        loss = self.optim.step(closure, **kwargs) if closure is not None else self.optim.step(
            **kwargs)
        for group, own in self._pairs:
            group.update(options_of(own))
        self._exchange()
        return loss

    def _exchange(self) -> None:
        """Every rank broadcasts its parameters, joined into one message for each dtype."""
        sent = []
        with flambeau.no_grad():
            for rank in range(self.world_size):
                alike: dict[Any, list] = {}
                for group in self.param_groups:
                    for p in self._of(group, rank):
                        alike.setdefault(p.dtype, []).append(p.detach())
                for tensors in alike.values():
                    flat = flambeau.cat([tensor.reshape(-1) for tensor in tensors])
                    work = collectives.broadcast(flat, group=self.process_group, group_src=rank,
                                                 async_op=True)
                    sent.append((rank, work, flat, tensors))
            for rank, work, flat, tensors in sent:
                work.wait()
                if rank != self.rank:
                    for tensor, piece in zip(tensors, flat.split([t.numel() for t in tensors])):
                        tensor.copy_(piece.view(tensor.shape))

    # -- state ------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to=0):
        """Bring the states of all ranks to one, so that it can call state_dict()."""
        numbers = self._numbers()
        mine = {numbers[p]: kept for p, kept in self.optim.state.items()}
        gathered: list = [None] * self.world_size
        objects.gather_object(mine, gathered if self.rank == to else None, group=self.process_group,
                              group_dst=to)
        self._gathered = gathered if self.rank == to else None

    def _numbers(self) -> dict[Any, int]:
        every = [p for group in self.param_groups for p in group["params"]]
        return {p: number for number, p in enumerate(every)}

    def state_dict(self):
        """The whole state, on the rank it was consolidated to."""
        if self._gathered is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to "
                "save the global state.")
        numbers = self._numbers()
        state = {number: kept for part in self._gathered for number, kept in part.items()}
        return {
            "state": dict(sorted(state.items())),
            "param_groups": [
                {**options_of(group), "params": [numbers[p] for p in group["params"]]}
                for group in self.param_groups],
        }

    def load_state_dict(self, state_dict):
        """Take the options, and the state of this rank's parameters."""
        saved = copy.deepcopy(state_dict)
        if [len(g["params"]) for g in saved["param_groups"]] != [
                len(g["params"]) for g in self.param_groups]:
            raise ValueError("loaded state dict has a different number of parameter groups, or "
                             "groups of different sizes")
        for group, theirs in zip(self.param_groups, saved["param_groups"]):
            group.update(options_of(theirs))
        numbers = self._numbers()
        for _, own in self._pairs:
            for p in own["params"]:
                kept = saved["state"].get(numbers[p])
                if kept is not None:
                    self.optim.state[p] = kept
        for group, own in self._pairs:
            own.update(options_of(group))

    # -- uneven inputs ----------------------------------------------------------------------------

    def join_hook(self, **kwargs):
        return _Shadow(self)

    @property
    def join_device(self):
        return flambeau.device("cpu")

    @property
    def join_process_group(self):
        return self.process_group


class _Shadow(JoinHook):
    """A rank without batches still updates its share: others need it."""

    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        self.zero.step()


def options_of(group: dict) -> dict:
    return {key: value for key, value in group.items() if key != "params"}
