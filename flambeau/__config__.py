"""What this library is and how many threads it uses, for programs that print it."""

from importlib import metadata

from llvmlite import binding

import flambeau

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Versions and the processor that kernels are made for, one line each."""
    lines = [f"flambeau {flambeau.__version__} built with:"]
    lines += [f"  - {package} {metadata.version(package)}" for package in ("numpy", "llvmlite")]
    lines.append(f"  - kernels for {binding.get_host_cpu_name()}, made when they are needed")
    return "\n".join(lines)


def parallel_info() -> str:
    """How many threads compute."""
    return (f"threads of kernels: {flambeau.get_num_threads()}\n"
            f"threads between ops: {flambeau.get_num_interop_threads()}\n")
