"""Attention: which implementations may be used, masks by name and by function."""

import contextlib
import enum

__all__ = [
    "SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "activate_flash_attention_impl",
    "current_flash_attention_impl", "list_flash_attention_impls", "register_flash_attention_impl",
    "restore_flash_attention_impl", "sdpa_kernel",
]  # fmt: skip

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """Implementations of scaled_dot_product_attention by torch's names; here there is one."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


class Allowed:
    """What a context has restricted attention to."""

    backends: tuple = tuple(SDPBackend)[1:]


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """Say which implementations are welcome inside; on a CPU every choice computes the same."""
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not chosen or not all(isinstance(b, SDPBackend) for b in chosen):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend "
                             f"instances, got {backends}")
    before, Allowed.backends = Allowed.backends, tuple(dict.fromkeys(chosen))
    try:
        yield {}
    finally:
        Allowed.backends = before


class Implementations:
    """Flash attentions that others bring, by name."""

    known: dict = {}
    current = None
    undo = None


def register_flash_attention_impl(impl, *, register_fn):
    """Make an implementation known; `register_fn()` puts it in place, and may return an undo."""
    Implementations.known[impl] = register_fn


def activate_flash_attention_impl(impl):
    """Put an implementation in place."""
    if impl not in Implementations.known:
        raise ValueError(f"Unknown flash attention implementation '{impl}'. Available: "
                         f"{list_flash_attention_impls()}")
    restore_flash_attention_impl()
    Implementations.undo = Implementations.known[impl]()
    Implementations.current = impl


def restore_flash_attention_impl():
    """Take the one in place away."""
    undo = getattr(Implementations.undo, "remove", Implementations.undo)
    if callable(undo):
        undo()
    Implementations.current = Implementations.undo = None


def list_flash_attention_impls():
    """The names that are known."""
    return sorted(Implementations.known)


def current_flash_attention_impl():
    """The name of the one in place."""
    return Implementations.current
