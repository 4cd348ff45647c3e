"""CUDA, which there is none of: what programs ask before they use it, and clear refusals after."""

import contextlib

import flambeau

from . import amp

__all__ = [
    "CUDAGraph", "Event", "ExternalStream", "MemPool", "OutOfMemoryError", "Stream",
    "StreamContext", "amp", "current_device", "current_stream",
    "default_stream", "device", "device_count", "empty_cache", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state",
    "get_rng_state_all", "graph", "graph_pool_handle", "init", "initial_seed", "ipc_collect",
    "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized",
    "is_tf32_supported",
    "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_cached",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached",
    "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_memory_stats", "seed", "seed_all", "set_device",
    "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream",
    "stream", "synchronize",
]


class OutOfMemoryError(RuntimeError):
    """Raised by accelerators that run out of memory."""


def is_available():
    """Whether there is a CUDA device: no."""
    return False


def device_count():
    """How many CUDA devices there are: none."""
    return 0


def is_initialized():
    """Whether CUDA was started."""
    return False


def is_bf16_supported(including_emulation=True):
    """Whether a CUDA device computes in bfloat16."""
    return False


def is_tf32_supported():
    """Whether a CUDA device computes in TF32."""
    return False


def is_current_stream_capturing():
    """Whether a CUDA graph is being captured."""
    return False


def get_arch_list():
    """The CUDA architectures this library was built for."""
    return []


def _refusal(name, doc):
    def refuse(*args, **kwargs):
        raise AssertionError("Torch not compiled with CUDA enabled")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"{doc} Raises: there is no CUDA device."
    return refuse


init = _refusal("init", "Start CUDA.")
current_device = _refusal("current_device", "The number of the current device.")
synchronize = _refusal("synchronize", "Wait for a device.")
get_device_name = _refusal("get_device_name", "The name of a device.")
get_device_capability = _refusal("get_device_capability", "What a device can do.")
get_device_properties = _refusal("get_device_properties", "What a device is.")
current_stream = _refusal("current_stream", "The stream that is used now.")
default_stream = _refusal("default_stream", "The stream of a device.")
get_rng_state = _refusal("get_rng_state", "The state of a device's generator.")
set_rng_state = _refusal("set_rng_state", "Set the state of a device's generator.")
initial_seed = _refusal("initial_seed", "The seed of a device's generator.")
graph_pool_handle = _refusal("graph_pool_handle", "A pool of memory for graphs.")
mem_get_info = _refusal("mem_get_info", "Free and total memory of a device.")
set_per_process_memory_fraction = _refusal("set_per_process_memory_fraction", "Limit memory.")


def _nothing(name, doc, value=None):
    def quiet(*args, **kwargs):
        return value

    quiet.__name__ = quiet.__qualname__ = name
    quiet.__doc__ = f"{doc} There is no CUDA device, so nothing is done."
    return quiet


empty_cache = _nothing("empty_cache", "Return unused memory.")
ipc_collect = _nothing("ipc_collect", "Return memory that other processes left.")
manual_seed = _nothing("manual_seed", "Seed the current device.")
manual_seed_all = _nothing("manual_seed_all", "Seed all devices.")
seed = _nothing("seed", "Seed the current device.")
seed_all = _nothing("seed_all", "Seed all devices.")
reset_peak_memory_stats = _nothing("reset_peak_memory_stats", "Forget the peaks of memory use.")
reset_max_memory_allocated = _nothing("reset_max_memory_allocated", "Forget the peak.")
reset_max_memory_cached = _nothing("reset_max_memory_cached", "Forget the peak.")
set_stream = _nothing("set_stream", "Use a stream.")
memory_allocated = _nothing("memory_allocated", "Bytes in tensors on a device.", 0)
memory_reserved = _nothing("memory_reserved", "Bytes held on a device.", 0)
memory_cached = _nothing("memory_cached", "Bytes held on a device.", 0)
max_memory_allocated = _nothing("max_memory_allocated", "The peak of bytes in tensors.", 0)
max_memory_reserved = _nothing("max_memory_reserved", "The peak of bytes held.", 0)
max_memory_cached = _nothing("max_memory_cached", "The peak of bytes held.", 0)
get_rng_state_all = _nothing("get_rng_state_all", "The states of all generators.", [])
set_rng_state_all = _nothing("set_rng_state_all", "Set the states of all generators.")


def memory_stats(device=None):
    """Numbers about a device's memory: there are none."""
    return {}


def memory_summary(device=None, abbreviated=False):
    """A table about a device's memory: it is empty."""
    return ""


def set_device(device):
    """Choose the current device; a negative number chooses none."""
    number = device if isinstance(device, int) else flambeau.device(device).index
    if number is None or number >= 0:
        raise AssertionError("Torch not compiled with CUDA enabled")


class device:
    """A context in which a device is current; for a negative number, nothing happens."""

    def __init__(self, device):
        self.idx = device if isinstance(device, int) else flambeau.device(device).index or 0

    def __enter__(self):
        if self.idx >= 0:
            raise AssertionError("Torch not compiled with CUDA enabled")

    def __exit__(self, *_):
        return False


class _NeedsCuda:
    """What only a device has: programs name it in annotations, and none can be made."""

    def __new__(cls, *args, **kwargs):
        raise RuntimeError(f"torch.cuda.{cls.__name__} requires CUDA support")


class Stream(_NeedsCuda):
    """A queue of work on a device."""


class ExternalStream(Stream):
    """A queue of work that another library made."""


class Event(_NeedsCuda):
    """A moment in a queue of work."""


class CUDAGraph(_NeedsCuda):
    """Work on a device that was recorded, to be done again."""


class graph(_NeedsCuda):
    """A context that records work on a device."""


class StreamContext(_NeedsCuda):
    """A context in which a stream is used."""


class MemPool(_NeedsCuda):
    """A pool of memory of a device."""


def stream(stream):
    """A context in which a stream is used; None means no change."""
    if stream is not None:
        raise RuntimeError("torch.cuda.stream requires CUDA support")
    return contextlib.nullcontext()


class _Absent(type):
    """The type of torch.cuda.FloatTensor and its kin: nothing is an instance, none can be made."""

    def __call__(cls, *args, **kwargs):
        raise TypeError(f"type torch.cuda.{cls.__name__} not available. Torch not compiled with "
                        "CUDA enabled.")

    def __instancecheck__(cls, instance) -> bool:
        return False


_types = ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "ByteTensor", "CharTensor",
          "ShortTensor", "IntTensor", "LongTensor", "BoolTensor")
globals().update({name: _Absent(name, (), {"__module__": "torch.cuda", "is_cuda": True})
                  for name in _types})
