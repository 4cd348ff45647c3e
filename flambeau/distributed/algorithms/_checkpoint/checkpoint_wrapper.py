"""Modules whose activations are computed again on the way back; names of parameters stay."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau
from flambeau import nn
from flambeau.distributed.fsdp.wrap import lambda_auto_wrap_policy
from flambeau.utils.checkpoint import checkpoint

__all__ = ["ActivationWrapper", "CheckpointImpl", "CheckpointWrapper",
           "apply_activation_checkpointing", "checkpoint_wrapper", "offload_wrapper"]

_WITHIN = "_checkpoint_wrapped_module"


class CheckpointImpl(enum.Enum):
    """Which of the two ways of checkpointing."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class ActivationWrapper(nn.Module):
    """A module around another: its attributes, items and names are those of the one within."""

    def __init__(self, mod: nn.Module):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_prefix)
        self._register_load_state_dict_pre_hook(_with_prefix, with_module=False)

    def forward(self, *args: Any, **kwargs: Any):
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: Any):
        return self._checkpoint_wrapped_module[key]  # type: ignore[index]

    def named_parameters(self, *args: Any, **kwargs: Any):
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{_WITHIN}.", ""), parameter


def _without_prefix(module: nn.Module, state: Any, prefix: str, *rest: Any) -> Any:
    for key in [key for key in state if key.startswith(f"{prefix}{_WITHIN}.")]:
        state[prefix + key.removeprefix(f"{prefix}{_WITHIN}.")] = state.pop(key)
    return state


def _with_prefix(state: Any, prefix: str, *rest: Any) -> None:
    for key in [key for key in state if key.startswith(prefix)]:
        if not key.startswith(f"{prefix}{_WITHIN}."):
            state[f"{prefix}{_WITHIN}.{key.removeprefix(prefix)}"] = state.pop(key)


class CheckpointWrapper(ActivationWrapper):
    """Keeps the inputs of a module, and computes the rest again on the way back."""

    def __init__(self, mod: nn.Module, checkpoint_impl: CheckpointImpl =
                 CheckpointImpl.NO_REENTRANT, checkpoint_fn: Callable | None = None,
                 **checkpoint_fn_kwargs: Any):
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        self.checkpoint_fn = checkpoint_fn or partial(
            checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = partial(self.checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any):
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """Keeps activations in the CPU's memory."""

    def forward(self, *args: Any, **kwargs: Any):
        with flambeau.autograd.graph.save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def checkpoint_wrapper(module: nn.Module, checkpoint_impl: CheckpointImpl =
                       CheckpointImpl.NO_REENTRANT, checkpoint_fn: Callable | None = None,
                       **checkpoint_fn_kwargs: Any) -> nn.Module:
    """The module, its activations computed again on the way back."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: nn.Module) -> nn.Module:
    """The module, its activations kept in the CPU's memory."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(model: nn.Module, checkpoint_wrapper_fn: Callable =
                                   checkpoint_wrapper, check_fn: Callable = lambda _: True,
                                   auto_wrap_policy: Callable | None = None) -> None:
    """Wrap the modules below a model that check_fn says yes to, in place."""
    chosen = auto_wrap_policy or partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    for name, child in list(model.named_children()):
        if isinstance(child, ActivationWrapper):
            continue
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn, auto_wrap_policy)
        if chosen(module=child, recurse=False, nonwrapped_numel=0):
            model.register_module(name, checkpoint_wrapper_fn(child))
