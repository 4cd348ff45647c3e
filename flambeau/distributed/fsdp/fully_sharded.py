"""FullyShardedDataParallel: a rank keeps a part of parameters, gradients and optimizer state."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import flambeau
from flambeau.distributed import collectives, groups
from flambeau.distributed.fsdp.options import (
    KEEPING,
    FullStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from flambeau.distributed.fsdp.unit import FlatUnit, Note
from flambeau.distributed.fsdp.wrap import wrap_children
from flambeau.distributed.sharded import ShardedTensor
from flambeau.nn import Module, Parameter

INNER = "_fsdp_wrapped_module"


class FullyShardedDataParallel(Module):
    """A module whose parameters are whole only while it computes."""

    def __init__(self, module, process_group=None, sharding_strategy=None, cpu_offload=None,
                 auto_wrap_policy=None, backward_prefetch=None, mixed_precision=None,
                 ignored_modules=None, param_init_fn=None, device_id=None,
                 sync_module_states=False, forward_prefetch=False, limit_all_gathers=True,
                 use_orig_params=False, ignored_states=None, device_mesh=None):
        super().__init__()
        self.process_group = groups.resolve(process_group)
        if self.process_group is None:
            raise ValueError("FullyShardedDataParallel: this rank is not in the process group")
        if mixed_precision is not None and (mixed_precision.param_dtype or
                                            mixed_precision.reduce_dtype):
            raise ValueError("FullyShardedDataParallel: mixed_precision with other dtypes for "
                             "parameters or reductions is for GPUs; use flambeau.autocast")
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        self.sharding_strategy, self.mixed_precision = strategy, mixed_precision
        ignored = {id(each) for each in ignored_modules or ()}
        if param_init_fn is not None:
            param_init_fn(module)
        if sync_module_states:
            self._give_first_ranks(module)
        if auto_wrap_policy is not None:
            wrap_children(module, auto_wrap_policy, lambda child: FullyShardedDataParallel(
                child, process_group, strategy, mixed_precision=mixed_precision,
                ignored_modules=ignored_modules, use_orig_params=use_orig_params),
                FullyShardedDataParallel, ignored)
        self._fsdp_wrapped_module = module
        self._use_orig_params = use_orig_params
        self._kind = StateDictType.FULL_STATE_DICT
        self._config: Any = None
        self._units = self._make_units(module, ignored, strategy in KEEPING, use_orig_params)
        if not use_orig_params:
            for number, unit in enumerate(self._units):
                suffix = str(number) if number else ""
                self.register_parameter(f"_flat_param{suffix}", unit.pieces[0])

    def _give_first_ranks(self, module: Module) -> None:
        for tensor in [*module.parameters(), *module.buffers()]:
            collectives.broadcast(tensor.detach(), group=self.process_group, group_src=0)

    def _make_units(self, module: Module, ignored: set[int], keep: bool,
                    separate: bool) -> list[FlatUnit]:
        """The parameters that no inner unit has, together by dtype and by whether they learn."""
        found: dict[tuple, dict] = {}
        for prefix, owner in own_modules(module, ignored):
            for name, parameter in owner.named_parameters(recurse=False):
                full_name = f"{prefix}.{name}" if prefix else name
                alike = found.setdefault((parameter.dtype, parameter.requires_grad), {})
                alike.setdefault(parameter, (clean(full_name), []))[1].append((owner, name))
        return [FlatUnit(alike, self.process_group, keep, separate) for alike in found.values()]

    @property
    def module(self) -> Module:
        return self._fsdp_wrapped_module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == INNER:
                raise
            return getattr(self._fsdp_wrapped_module, name)

    # -- computing --------------------------------------------------------------------------------

    def forward(self, *args, **kwargs):
        for unit in self._units:
            unit.unshard()
        try:
            with flambeau.autograd.graph.saved_tensors_hooks(self._pack, unpack):
                return self._fsdp_wrapped_module(*args, **kwargs)
        finally:
            for unit in self._units:
                unit.restore()
                if not unit.keep or not flambeau.is_grad_enabled():
                    unit.free()

    def _pack(self, tensor):
        for unit in self._units:
            note = unit.pack(tensor)
            if note is not None:
                return unit, note
        return tensor

    def _all(self) -> list[FullyShardedDataParallel]:
        return [each for each in self.modules() if isinstance(each, FullyShardedDataParallel)]

    def _all_units(self) -> list[tuple[str, FlatUnit]]:
        """Every unit, with what stands before its names."""
        found = []
        for name, each in self.named_modules():
            if isinstance(each, FullyShardedDataParallel):
                before = clean(name)
                found += [(before + "." if before else "", unit) for unit in each._units]
        return found

    @contextlib.contextmanager
    def no_sync(self):
        """Inside, whole gradients are added up here; the next backward outside averages them."""
        units = [unit for _, unit in self._all_units()]
        for unit in units:
            unit.sync = False
        try:
            yield
        finally:
            for unit in units:
                unit.sync = True

    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        """Clip the norm of the gradients of all ranks together; the norm before."""
        grads = [p.grad for p in self.parameters() if p.grad is not None and p.grad.numel()]
        kind = float(norm_type)
        if math.isinf(kind):
            total = flambeau.tensor(max([float(g.abs().max()) for g in grads], default=0.0))
            collectives.all_reduce(total, collectives.ReduceOp.MAX, self.process_group)
        else:
            total = sum((g.norm(kind) ** kind for g in grads), flambeau.zeros(()))
            collectives.all_reduce(total, group=self.process_group)
            total = total ** (1 / kind)
        scale = float(max_norm) / (float(total) + 1e-6)
        if scale < 1:
            for g in grads:
                g.mul_(scale)
        return total

    # -- whole parameters -------------------------------------------------------------------------

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module, recurse=True, writeback=True, rank0_only=False,
                           offload_to_cpu=False, with_grads=False):
        """Inside, parameters are whole; what is written to them stays."""
        wrappers = [each for each in module.modules()
                    if isinstance(each, FullyShardedDataParallel)]
        units = [unit for wrapper in (wrappers if recurse else wrappers[:1])
                 for unit in wrapper._units]
        for unit in units:
            show_whole(unit)
        try:
            yield
        finally:
            for unit in units:
                if writeback:
                    with flambeau.no_grad():
                        end = unit.start + unit.share
                        unit.local.copy_(unit.gathered()[unit.start:end])
                unit.restore()
                unit.free()

    # -- states -----------------------------------------------------------------------------------

    @staticmethod
    def set_state_dict_type(module, state_dict_type, state_dict_config=None,
                            optim_state_dict_config=None):
        """Say what state_dict() gives and load_state_dict() takes."""
        for each in module.modules():
            if isinstance(each, FullyShardedDataParallel):
                each._kind, each._config = state_dict_type, state_dict_config

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module, state_dict_type, state_dict_config=None,
                        optim_state_dict_config=None):
        before = [(each, each._kind, each._config) for each in module.modules()
                  if isinstance(each, FullyShardedDataParallel)]
        FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config)
        try:
            yield
        finally:
            for each, kind, config in before:
                each._kind, each._config = kind, config

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Whole tensors, this rank's flat parts or named pieces: see set_state_dict_type."""
        if self._kind == StateDictType.LOCAL_STATE_DICT:
            return super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        with self.summon_full_params(self, writeback=False):
            found = {name: value.detach().clone()
                     for name, value in whole_tensors(self._fsdp_wrapped_module).items()}
        if self._kind == StateDictType.SHARDED_STATE_DICT:
            for before, unit in self._all_units():
                found |= {before + name: piece for name, piece in unit.sharded(unit.local).items()}
        config = self._config
        if isinstance(config, FullStateDictConfig) and config.rank0_only and groups.get_rank():
            found = {}
        target = {} if destination is None else destination
        target.update({prefix + name: value for name, value in found.items()})
        return target

    def load_state_dict(self, state_dict, strict=True, assign=False):
        if self._kind == StateDictType.LOCAL_STATE_DICT:
            return super().load_state_dict(state_dict, strict)
        pieces = {name: value for name, value in state_dict.items()
                  if isinstance(value, ShardedTensor)}
        self._take_pieces(pieces)
        whole = {name: value for name, value in state_dict.items() if name not in pieces}
        with self.summon_full_params(self):
            own = whole_tensors(self._fsdp_wrapped_module)
            missing = [name for name in own if name not in state_dict]
            unexpected = [name for name in state_dict if name not in own]
            wrong = [f"size mismatch for {name}: {tuple(whole[name].shape)} for "
                     f"{tuple(own[name].shape)}" for name in own
                     if name in whole and whole[name].shape != own[name].shape]
            if wrong or (strict and (missing or unexpected)):
                raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}: "
                                   f"missing {missing}, unexpected {unexpected} {wrong}")
            with flambeau.no_grad():
                for name, value in whole.items():
                    if name in own:
                        own[name].detach().copy_(value)
        return flambeau.nn.modules.module._IncompatibleKeys(missing, unexpected)

    def _take_pieces(self, pieces: dict[str, ShardedTensor]) -> None:
        with flambeau.no_grad():
            for before, unit in self._all_units():
                for name, mine in unit.sharded(unit.local).items():
                    given = pieces.get(before + name)
                    if given is None:
                        continue
                    if (given.offset, given.local.numel()) != (mine.offset, mine.local.numel()):
                        raise RuntimeError(
                            f"load_state_dict: {before + name} is {given} in the state, but {mine} "
                            "on this rank; distributed.checkpoint.load reshards")
                    if mine.local.data_ptr() != given.local.data_ptr():
                        mine.local.copy_(given.local)

    # -- states of optimizers ---------------------------------------------------------------------

    @staticmethod
    def optim_state_dict(model, optim, optim_state_dict=None, group=None):
        """The optimizer's state by parameter names: whole, or in pieces as state_dict() is."""
        sharded = model._kind == StateDictType.SHARDED_STATE_DICT
        state: dict[str, dict] = {}
        for before, unit, parts in _kept_by(model, optim):
            for key, value in parts.items():
                if isinstance(value, list):
                    shard = flambeau.cat([piece.reshape(-1) for piece in value])
                    named = unit.sharded(shard) if sharded else unit.assemble(shard)
                else:
                    named = {slot.name: own_copy(value) for slot in unit.slots}
                for name, each in named.items():
                    state.setdefault(before + name, {})[key] = each
        return {"state": state, "param_groups": _named_groups(model, optim)}

    @staticmethod
    def optim_state_dict_to_load(model, optim, optim_state_dict, is_named_optimizer=False,
                                 load_directly=False, group=None):
        """A state by names as a state_dict of this rank's optimizer."""
        numbers = {id(p): n for n, p in enumerate(
            p for g in optim.param_groups for p in g["params"])}
        state: dict[int, dict] = {}
        for before, unit in model._all_units():
            for key, sample in _keys_of(optim_state_dict["state"], before, unit).items():
                named = {slot.name: optim_state_dict["state"][before + slot.name].get(key)
                         for slot in unit.slots if before + slot.name in optim_state_dict["state"]}
                if is_elementwise(sample):
                    shard = flambeau.zeros(unit.share, dtype=sample.dtype)
                    _fill(unit, named, shard)
                    values = [view.clone() for view in unit._views_of(shard)]
                else:
                    values = [own_copy(sample) for _ in unit.pieces]
                for piece, value in zip(unit.pieces, values, strict=True):
                    if id(piece) in numbers:
                        state.setdefault(numbers[id(piece)], {})[key] = value
        current = optim.state_dict()["param_groups"]
        merged = [{**mine, **{key: value for key, value in saved.items() if key != "params"}}
                  for mine, saved in zip(current, optim_state_dict["param_groups"], strict=True)]
        result = {"state": state, "param_groups": merged}
        if load_directly:
            optim.load_state_dict(result)
        return result

    full_optim_state_dict = optim_state_dict
    sharded_optim_state_dict = optim_state_dict


def own_modules(module: Module, ignored: set[int], prefix: str = ""):
    """The module and its descendants, down to those that are units themselves."""
    yield prefix, module
    for name, child in module.named_children():
        if id(child) not in ignored and not isinstance(child, FullyShardedDataParallel):
            yield from own_modules(child, ignored, f"{prefix}.{name}" if prefix else name)


def whole_tensors(module: Module) -> dict[str, Any]:
    """What a state_dict has, by clean names; inside summon_full_params."""
    found = {}
    for prefix, owner in module.named_modules():
        saved = [*owner.named_parameters(recurse=False, remove_duplicate=False),
                 *((name, buffer) for name, buffer in owner.named_buffers(recurse=False)
                   if name not in owner._non_persistent_buffers_set)]
        for name, tensor in saved:
            full_name = clean(f"{prefix}.{name}" if prefix else name)
            if not name.startswith("_flat_param"):
                found[full_name] = tensor
    return found


def clean(name: str) -> str:
    """A name without the wrappers in it."""
    return ".".join(part for part in name.split(".") if part != INNER)


def unpack(kept: Any) -> Any:
    if isinstance(kept, tuple) and len(kept) == 2 and isinstance(kept[1], Note):
        return kept[0].unpack(kept[1])
    return kept


def show_whole(unit: FlatUnit) -> None:
    """Whole parameters in their modules, as parameters of them."""
    flat = unit.gathered()
    for slot in unit.slots:
        whole = Parameter(flat[slot.begin:slot.end].view(slot.shape),
                          requires_grad=unit.requires_grad)
        for module, name in slot.homes:
            module.__dict__.pop(name, None)
            module.register_parameter(name, whole)


def own_copy(value: Any) -> Any:
    """A count of steps is a tensor that its optimizer goes on counting in."""
    return value.clone() if isinstance(value, flambeau.Tensor) else value


def is_elementwise(value: Any) -> bool:
    return isinstance(value, ShardedTensor) or (
        isinstance(value, flambeau.Tensor) and value.dim() > 0)


def _kept_by(model: Any, optim: Any):
    """For each unit, what the optimizer keeps: per key a list over pieces, or one scalar."""
    for before, unit in model._all_units():
        kept = [optim.state.get(piece, {}) for piece in unit.pieces]
        keys = {key: None for each in kept for key in each}
        parts: dict[str, Any] = {}
        for key in keys:
            sample = next(each[key] for each in kept if key in each)
            parts[key] = sample
            if is_elementwise(sample):
                parts[key] = [each.get(key, flambeau.zeros(piece.numel(), dtype=sample.dtype))
                              for each, piece in zip(kept, unit.pieces, strict=True)]
                rest = unit.share - sum(piece.numel() for piece in parts[key])
                parts[key].append(flambeau.zeros(rest, dtype=sample.dtype))
        yield before, unit, parts


def _keys_of(state: dict[str, dict], before: str, unit: FlatUnit) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for slot in unit.slots:
        found.update(state.get(before + slot.name, {}))
    return found


def _fill(unit: FlatUnit, named: dict[str, Any], shard: Any) -> None:
    """Fill a shard from whole tensors or from pieces that fit."""
    unit.cut({name: value for name, value in named.items()
              if isinstance(value, flambeau.Tensor)}, shard)
    with flambeau.no_grad():
        for name, mine in unit.sharded(shard).items():
            given = named.get(name)
            if isinstance(given, ShardedTensor):
                mine.local.copy_(given.local)


def _named_groups(model: Any, optim: Any) -> list[dict]:
    names: dict[int, list[str]] = {}
    for before, unit in model._all_units():
        for place, piece in enumerate(unit.pieces):
            slots = [unit.slots[place]] if unit.separate else unit.slots
            names[id(piece)] = [before + slot.name for slot in slots]
    return [{**{key: value for key, value in group.items() if key != "params"},
             "params": [name for p in group["params"] for name in names.get(id(p), ())]}
            for group in optim.param_groups]
