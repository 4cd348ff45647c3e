"""Extensions in C++ and CUDA, which there are none of: what programs ask, and refusals.

Programs that have another way take it when `load` raises, as they do where no compiler is found.
"""

CUDA_HOME = None
ROCM_HOME = None

__all__ = ["CUDA_HOME", "ROCM_HOME", "is_ninja_available", "load", "load_inline"]

_REFUSAL = ("extensions in C++ and CUDA are built against PyTorch's own headers, and flambeau has "
            "none; an op is a Python function here (torch.library.custom_op, docs/adding-an-op.md)")


def is_ninja_available() -> bool:
    """Whether ninja could build an extension: there is nothing to build."""
    return False


def load(name, sources, *args, **kwargs):
    """Build an extension from its sources. Raises RuntimeError."""
    raise RuntimeError(f"cpp_extension.load: cannot build {name}: {_REFUSAL}")


def load_inline(name, cpp_sources, *args, **kwargs):
    """Build an extension from texts. Raises RuntimeError."""
    raise RuntimeError(f"cpp_extension.load_inline: cannot build {name}: {_REFUSAL}")
