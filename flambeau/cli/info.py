"""Say what flambeau runs on: versions, processor, threads, kernel cache."""

import argparse
import platform
from collections.abc import Iterator
from importlib import metadata

from llvmlite import binding

import flambeau
from flambeau.cli import cache

HELP = "versions, processor, threads, kernel cache"


def add_arguments(form: argparse.ArgumentParser) -> None:
    """It takes none."""


def main(options: argparse.Namespace) -> int:
    for name, value in facts():
        print(f"{name:<18}{value}")
    return 0


def facts() -> Iterator[tuple[str, object]]:
    yield "flambeau", flambeau.__version__
    yield "Python", f"{platform.python_version()} on {platform.platform()}"
    for package in ("numpy", "llvmlite", "scipy-openblas32"):
        yield package, metadata.version(package)
    yield "LLVM", ".".join(map(str, binding.llvm_version_info))
    yield "processor", f"{binding.get_host_cpu_name()} ({', '.join(vector_features())})"
    yield "threads", flambeau.get_num_threads()
    yield "kernel cache", cache.show()


def vector_features() -> list[str]:
    """The processor's vector extensions, the only features that decide a kernel's width."""
    families = ("sse4", "avx", "fma", "f16c", "neon", "sve", "amx")
    features = binding.get_host_cpu_features()
    return sorted(name for name, have in features.items() if have and name.startswith(families))
