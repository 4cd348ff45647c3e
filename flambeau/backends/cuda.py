"""Switches of CUDA's libraries, kept for programs that set them."""

import contextlib

__all__ = ["cudnn_sdp_enabled", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp",
           "enable_mem_efficient_sdp", "flash_sdp_enabled", "is_built", "math_sdp_enabled",
           "matmul", "mem_efficient_sdp_enabled", "preferred_blas_library",
           "preferred_linalg_library", "sdp_kernel"]


def is_built():
    """Whether this library was built with CUDA: no."""
    return False


class _Matmul:
    """How CUDA multiplies matrices."""

    def __init__(self):
        self.allow_tf32 = False
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.fp32_precision = "none"


matmul = _Matmul()
_kernels = {"flash": True, "math": True, "mem_efficient": True, "cudnn": True}


def _switch(name):
    def enabled():
        return _kernels[name]

    def enable(enabled):
        _kernels[name] = bool(enabled)

    enabled.__name__, enable.__name__ = f"{name}_sdp_enabled", f"enable_{name}_sdp"
    enabled.__doc__ = f"Whether attention may use the {name} kernel."
    enable.__doc__ = f"Allow attention to use the {name} kernel."
    return enabled, enable


flash_sdp_enabled, enable_flash_sdp = _switch("flash")
math_sdp_enabled, enable_math_sdp = _switch("math")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _switch("mem_efficient")
cudnn_sdp_enabled, enable_cudnn_sdp = _switch("cudnn")


@contextlib.contextmanager
def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """A context in which attention may use only some kernels."""
    before = dict(_kernels)
    _kernels.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient,
                    cudnn=enable_cudnn)
    try:
        yield {}
    finally:
        _kernels.update(before)


def preferred_linalg_library(backend=None):
    """The library for linear algebra on CUDA devices."""
    return "default"


def preferred_blas_library(backend=None):
    """The library for products of matrices on CUDA devices."""
    return "default"
