"""flambeau: PyTorch's API on CPUs, written in Python all the way down.

>>> import flambeau as torch
>>> x = torch.ones(3, requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 2., 2.])
"""

from math import e, inf, nan, pi

from . import assemble as _assemble
from .core import dtype as _dtype
from .core import formats as _formats
from .core.device import device
from .core.dtype import dtype, finfo, iinfo, qscheme
from .core.formats import layout, memory_format
from .engine import lazy as _lazy
from .engine import legacy as _legacy
from .engine import lists as _lists
from .engine.checks import (
    _check,
    _check_index,
    _check_is_size,
    _check_not_implemented,
    _check_tensor_all,
    _check_tensor_all_with,
    _check_type,
    _check_value,
    _check_with,
)
from .engine.coo import sparse_coo_tensor
from .engine.create import (
    empty,
    empty_permuted,
    empty_strided,
    eye,
    full,
    ones,
    scalar_tensor,
    zeros,
)
from .engine.create_like import empty_like, full_like, ones_like, zeros_like
from .engine.dlpack import from_dlpack, to_dlpack
from .engine.from_data import as_tensor, asarray, from_file, from_numpy, frombuffer, tensor
from .engine.generator import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
    thread_safe_generator,
)
from .engine.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .engine.moves import clone
from .engine.random import rand, rand_like, randint, randint_like, randn, randn_like, randperm
from .engine.sampling import bernoulli, binomial, multinomial, normal, poisson
from .engine.sampling import dirichlet_grad as _dirichlet_grad
from .engine.sampling import standard_gamma as _standard_gamma
from .engine.sampling import standard_gamma_grad as _standard_gamma_grad
from .engine.sequence import arange, linspace, logspace, range
from .engine.settings import (
    OutOfMemoryError,
    SymBool,
    SymFloat,
    SymInt,
    _assert,
    _assert_async,
    _shape_as_tensor,
    are_deterministic_algorithms_enabled,
    broadcast_shapes,
    can_cast,
    get_default_device,
    get_default_dtype,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_complex,
    is_conj,
    is_deterministic_algorithms_warn_only_enabled,
    is_floating_point,
    is_inference,
    is_neg,
    is_nonzero,
    is_same_size,
    is_signed,
    is_tensor,
    is_warn_always_enabled,
    numel,
    promote_types,
    result_type,
    set_anomaly_enabled,
    set_default_device,
    set_default_dtype,
    set_default_tensor_type,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    set_printoptions,
    set_warn_always,
    sym_float,
    sym_int,
    sym_ite,
    sym_max,
    sym_min,
    sym_not,
    sym_sum,
    typename,
    use_deterministic_algorithms,
)
from .engine.storages import TypedStorage, UntypedStorage, is_storage, resize_as_
from .engine.storages import legacy_storages as _legacy_storages
from .engine.tensor import Size, Tensor

__version__ = "0.1.0"
newaxis = None

_assemble.install()

_names = globals()
_names.update({name: f for name, f in _assemble.functions.items()
               if "." not in name and name not in _names})
_names.update(_lists.functions())
_names.update(_legacy.legacy_types)
_names.update(_legacy_storages)
_names.update(_assemble.autocast.functions)
_names.update(_assemble.scaling.functions)
_names.update({each.name: each for each in (*_dtype.ALL, *_dtype.QUANTIZED, *_dtype.SCHEMES,
                                            *_formats.MEMORY_FORMATS, *_formats.LAYOUTS)})
_names.update(_dtype.ALIASES)
_names.update({name: getattr(Tensor, name) for name in (
    "detach_", "get_device", "resolve_conj", "resolve_neg")})
DeviceObjType = device
legacy_contiguous_format = _formats.contiguous_format
has_lapack, has_mkl, has_openmp, has_spectral = True, False, False, True

#: public names whose sub-packages are imported when they are first used
_elsewhere = {"GradScaler": "amp", "autocast": "amp", "compile": "compiler", "vmap": "func",
              "save": "serialization", "load": "serialization",
              "cond": "_higher_order_ops", "while_loop": "_higher_order_ops",
               "lobpcg": "_lobpcg", "Future": "futures", "ScriptModule": "jit.annotations",
               "PyTorchFileReader": "serialization.file_reader",
               "_convert_indices_from_coo_to_csr": "sparse",
               "_convert_indices_from_csr_to_coo": "sparse",
               **{f"sparse_{kind}_tensor": "sparse" for kind in (
                   "compressed", "csr", "csc", "bsr", "bsc")},
               "Event": "_streams", "Stream": "_streams", "TensorType": "jit.annotations",
               "_sample_dirichlet": "distributions.dirichlet",
               **dict.fromkeys(("dequantize", "quantize_per_channel", "quantize_per_tensor",
                                "quantize_per_tensor_dynamic"), "ao.quantized_tensor"),
               "get_device_module": "accelerator"}
__all__ = sorted(name for name, value in {**_names, **_elsewhere}.items() if not (
    name.startswith("_") or isinstance(value, type(_lazy))))
_lazy.methods(Tensor, __name__, {f"to_sparse_{kind}": "sparse" for kind in (
    "csr", "csc", "bsr", "bsc")})
__getattr__, __dir__ = _lazy.subpackages(__name__, __path__[0], _elsewhere)
