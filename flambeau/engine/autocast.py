"""Autocast: while it is on, listed ops get their floating tensors in another precision.

The lists are those of torch's CPU: products and convolutions in the lower precision, losses and
delicate ops in float32, and ops that join tensors in the widest precision among them.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from ..core import dtype as dt
from ..core.device import CPU, device
from ..ops.declare import registry
from .eager import engine
from .gates import Gate, gate
from .modes import autocasting, modes
from .tensor import LEAF, Tensor, base_of

LOWER, SINGLE, WIDEST = "lower precision", "float32", "the widest"
INPUT, KEPT = "the input's", "kept"

#: policy -> names of ops, which stand for those of nn.functional too
LISTS = {
    LOWER: """
        mm bmm matmul addmm addbmm baddbmm linear linalg.vecdot prelu conv_tbc
        conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
        scaled_dot_product_attention lstm rnn_tanh rnn_relu
    """,
    SINGLE: """
        trace prod quantile nanquantile cdist polar view_as_complex stft
        cholesky cholesky_inverse cholesky_solve inverse pinverse lu_solve orgqr ormqr geqrf
        triangular_solve linalg.cholesky linalg.cholesky_ex linalg.cond linalg.eig linalg.eigh
        linalg.eigvals linalg.eigvalsh linalg.householder_product linalg.inv linalg.inv_ex
        linalg.lstsq linalg.matrix_rank linalg.qr linalg.solve linalg.svd linalg.svdvals
        linalg.tensorinv linalg.tensorsolve
        fft.fft fft.ifft fft.fft2 fft.ifft2 fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfft2
        fft.irfft2 fft.rfftn fft.irfftn fft.hfft fft.ihfft
        grid_sampler grid_sampler_2d grid_sampler_3d grid_sample max_pool3d avg_pool3d
        adaptive_avg_pool3d adaptive_max_pool3d max_unpool1d max_unpool2d max_unpool3d
        mse_loss l1_loss huber_loss smooth_l1_loss nll_loss cross_entropy kl_div ctc_loss
        binary_cross_entropy binary_cross_entropy_with_logits poisson_nll_loss
        cosine_embedding_loss hinge_embedding_loss margin_ranking_loss triplet_margin_loss
        soft_margin_loss multi_margin_loss multilabel_margin_loss
    """,
    WIDEST: "cat stack index_copy",
    INPUT: "gru",
    KEPT: "bilinear",  # a product that is not on torch's lists
}
HALVES = (dt.bfloat16, dt.float16)
#: kinds of devices, and the precision each has unless told
DEFAULTS = {"cpu": dt.bfloat16, "cuda": dt.float16, "mps": dt.float16, "xpu": dt.float16,
            "hpu": dt.bfloat16, "mtia": dt.float16, "maia": dt.float16, "ipu": dt.float16,
            "xla": dt.bfloat16, "privateuseone": dt.float16}


class State(threading.local):
    """What the calling thread has switched on."""

    cpu = False            # whether ops are cast
    inside = False         # within an op that has been cast already
    cache_enabled = True
    nesting = 0
    walk: Any = None       # the backward pass under way when autocast was switched on

    def __init__(self):
        self.dtypes = dict(DEFAULTS)
        self.others: set[str] = set()  # devices there are none of, switched on nevertheless
        self.cache: dict = {}
        self.leaving: Any = None


state = State()
gates: list[Gate] = []
#: threads in which it is on
active = autocasting
#: told when a thread has switched autocast, or chosen a precision
watchers: list = []


class _Built:
    """Whether the ops on the lists have their gates; they get them when first needed."""

    done = False


class _Leaving:
    """Dies with its thread."""

    def __init__(self, thread: int):
        self.thread = thread

    def __del__(self, ending=sys.is_finalizing):
        if not ending():
            _switch(self.thread, False)


def _switch(thread: int, on: bool) -> None:
    """Gates are closed while any thread autocasts; the others pass through them."""
    before = bool(active)
    (active.add if on else active.discard)(thread)
    if bool(active) is not before:
        if not _Built.done:
            build()
        for each in gates:
            each.close() if on else each.open()


def _tell() -> None:
    for tell in watchers:
        tell()


def _known(device_type: str) -> str:
    if device_type not in DEFAULTS:
        raise RuntimeError(f"unknown device type for autocast: {device_type!r}; expected one of "
                           f"{', '.join(DEFAULTS)}")
    return device_type


# -- torch's functions ---------------------------------------------------------------------------


def set_autocast_enabled(device_type, enabled=None) -> None:
    """Switch autocast of a kind of device on or off; set_autocast_enabled(on) means cuda's."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    if _known(device_type) == "cpu":
        thread = threading.get_ident()
        if state.leaving is None:
            state.leaving = _Leaving(thread)
        state.cpu, state.walk = bool(enabled), modes.walk
        _switch(thread, state.cpu)
        _tell()
    else:
        (state.others.add if enabled else state.others.discard)(device_type)


def is_autocast_enabled(device_type="cuda") -> bool:
    """Whether autocast of a kind of device is on."""
    return state.cpu if device_type == "cpu" else device(device_type).type in state.others


def get_autocast_dtype(device_type):
    """The lower precision of a kind of device."""
    return state.dtypes[_known(device_type)]


def set_autocast_dtype(device_type, dtype) -> None:
    """Choose the lower precision of a kind of device."""
    state.dtypes[_known(device_type)] = dtype
    _tell()


def is_autocast_cache_enabled() -> bool:
    """Whether parameters that were cast are kept until autocast ends."""
    return state.cache_enabled


def set_autocast_cache_enabled(enabled) -> None:
    """Keep parameters that were cast until autocast ends, or not."""
    state.cache_enabled = bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the parameters that were cast."""
    state.cache.clear()


def autocast_increment_nesting() -> int:
    """Count one more autocast around; returns how many there are."""
    state.nesting += 1
    return state.nesting


def autocast_decrement_nesting() -> int:
    """Count one autocast around less; returns how many there are."""
    state.nesting -= 1
    return state.nesting


def _of(function, device_type: str, doc: str):
    def form(*args):
        return function(device_type, *args)
    form.__doc__ = doc
    return form


def _spellings() -> dict:
    """The older names of the functions above, one for each kind of device."""
    found = {}
    for spelt, device_type in (("cpu", "cpu"), ("gpu", "cuda"), ("ipu", "ipu"), ("xla", "xla")):
        found[f"get_autocast_{spelt}_dtype"] = _of(
            get_autocast_dtype, device_type, f"The lower precision of {device_type}.")
        found[f"set_autocast_{spelt}_dtype"] = _of(
            set_autocast_dtype, device_type, f"Choose the lower precision of {device_type}.")
        if spelt != "gpu":
            found[f"is_autocast_{spelt}_enabled"] = _of(
                is_autocast_enabled, device_type, f"Whether autocast of {device_type} is on.")
            found[f"set_autocast_{spelt}_enabled"] = _of(
                set_autocast_enabled, device_type, f"Switch autocast of {device_type} on or off.")
    for name, function in found.items():
        function.__name__ = function.__qualname__ = name
    return found


functions = {each.__name__: each for each in (
    set_autocast_enabled, is_autocast_enabled, get_autocast_dtype, set_autocast_dtype,
    is_autocast_cache_enabled, set_autocast_cache_enabled, clear_autocast_cache,
    autocast_increment_nesting, autocast_decrement_nesting)} | _spellings()


# -- casting -------------------------------------------------------------------------------------


def guard(at: Any, args: tuple, kwargs: dict):
    """A listed op: its tensors are cast, and it runs as if autocast were off."""
    if not state.cpu or state.inside or modes.walk is not state.walk or (
            kwargs.get("out") is not None) or not at.applies(args, kwargs):
        return at.direct(*args, **kwargs)
    dtype = at.policy(args, kwargs)
    if dtype is not None:
        args = tuple([_cast(a, dtype) for a in args])
    if kwargs and dtype is not None:
        kwargs = {name: _cast(value, dtype) for name, value in kwargs.items()}
    state.inside = True
    try:
        return at.direct(*args, **kwargs)
    finally:
        state.inside = False


def eligible(x) -> bool:
    """Whether autocast may change a tensor's precision."""
    return isinstance(x, Tensor) and x.sig.dtype.kind == "f" and x.sig.device is CPU and (
        x.sig.dtype is not dt.float64)


def _cast(value, dtype):
    if type(value) in (list, tuple):
        return type(value)([_cast(v, dtype) for v in value])
    if not eligible(value) or value.sig.dtype is dtype:
        return value
    if dtype in HALVES and value.sig.dtype is dt.float32 and value.node is LEAF and (
            state.cache_enabled and base_of(value) is None):
        return _remembered(value, dtype)
    return engine.cast(value, dtype)


def _remembered(value: Tensor, dtype):
    """A parameter is cast once, however often it is used."""
    key = id(value), dtype, modes.grad
    known = state.cache.get(key)
    if known is None:
        known = state.cache[key] = value, engine.cast(value, dtype)  # kept, so the id stays its own
    return known[1]


def _lower(args, kwargs):
    return state.dtypes["cpu"]


def _single(args, kwargs):
    return dt.float32


def _widest(args, kwargs):
    """float32 if any tensor has it, else the lower precision; others do not mix."""
    lower = state.dtypes["cpu"]
    found = {x.sig.dtype for x in _flat((*args, *kwargs.values())) if eligible(x)}
    if dt.float32 in found:
        return dt.float32
    if found - {lower}:
        raise RuntimeError(
            "Unexpected floating ScalarType in at::autocast::prioritize: under autocast to "
            f"{lower}, {', '.join(sorted(map(str, found)))} do not mix")
    return lower


def _flat(values):
    for value in values:
        if type(value) in (list, tuple):
            yield from _flat(value)
        else:
            yield value


def _input(args, kwargs):
    first = args[0] if args else kwargs["input"]
    return first.sig.dtype if eligible(first) else None


def _kept(args, kwargs):
    return None


POLICIES = {LOWER: _lower, SINGLE: _single, WIDEST: _widest, INPUT: _input, KEPT: _kept}


def _always(args, kwargs) -> bool:
    return True


def _gate(front, policy: str, applies) -> Gate:
    return gate(front, guard, policy=POLICIES[policy], applies=applies)


def add(function, policy: str) -> None:
    """List a function that is made of others."""
    made = _gate(function, policy, _always)
    gates.append(made)
    if active:
        made.close()


def _pads_by_copying(args, kwargs) -> bool:
    """Padding with values from inside is on the list, padding with a constant is not."""
    mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
    return mode in ("reflect", "replicate")


def build() -> None:
    """Put a gate before each op on the lists."""
    _Built.done = True
    for policy, keys in LISTS.items():
        for name in keys.split():
            found = [registry[key] for key in (name, f"nn.functional.{name}") if key in registry]
            assert found, f"autocast lists {name}, which is no op"
            gates.extend(_gate(op.run, policy, _always) for op in found)
    gates.append(_gate(registry["nn.functional.pad"].run, SINGLE, _pads_by_copying))
