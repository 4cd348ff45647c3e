"""Switches of PyTorch's code generator: kept for programs that set them, without effect here."""

from types import SimpleNamespace

debug = False
max_autotune = False
coordinate_descent_tuning = False
epilogue_fusion = True
shape_padding = True
freezing = False
fx_graph_cache = True
conv_1x1_as_mm = False
force_fuse_int_mm_with_mul = False
use_mixed_mm = True
cpp = SimpleNamespace(threads=-1, simdlen=None)
triton = SimpleNamespace(cudagraphs=False, unique_kernel_names=False)
