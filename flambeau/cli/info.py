"""Say what flambeau runs on: versions, processor, memory, threads, devices, kernel cache.

  flambeau info
  flambeau info --json      the same for programs
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from llvmlite import binding

import flambeau
from flambeau.cli import cache

HELP = "versions, processor, threads, devices, kernel cache"


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.add_argument("--json", action="store_true", help="print one JSON object")


def main(options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(dict(facts()), indent=1))
        return 0
    for name, value in facts():
        print(f"{name:<18}{value}")
    return 0


def facts() -> Iterator[tuple[str, object]]:
    yield "flambeau", flambeau.__version__
    yield "Python", f"{platform.python_version()} on {platform.platform()}"
    for package in ("numpy", "llvmlite", "scipy-openblas32"):
        yield package, metadata.version(package)
    yield "LLVM", ".".join(map(str, binding.llvm_version_info))
    yield "processor", f"{processor()}: {binding.get_host_cpu_name()} " \
                       f"({', '.join(vector_features())})"
    yield "cores", f"{usable_cores()} usable of {os.cpu_count()}"
    yield "memory", memory()
    yield "threads", flambeau.get_num_threads()
    yield "devices", "cpu; FLAMBEAU_DEVICE=reference computes with numpy instead"
    yield "kernel cache", cache.show()


def processor() -> str:
    """What the processor calls itself, where the system says so."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> str:
    """The machine's memory, where the system says so."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return "unknown"
    return f"{size / 2**30:.1f} GB"


def vector_features() -> list[str]:
    """The processor's vector extensions, the only features that decide a kernel's width."""
    families = ("sse4", "avx", "fma", "f16c", "neon", "sve", "amx")
    features = binding.get_host_cpu_features()
    return sorted(name for name, have in features.items() if have and name.startswith(families))
