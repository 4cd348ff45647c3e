"""What a bug report should say of a machine: `python -m flambeau.utils.collect_env`."""

import locale
import platform
import re
import subprocess
import sys
from collections import namedtuple
from importlib import metadata

import flambeau

__all__ = ["SystemEnv", "get_cpu_info", "get_env_info", "get_os", "get_pip_packages",
           "get_pretty_env_info", "main"]

SystemEnv = namedtuple("SystemEnv", """torch_version is_debug_build cuda_compiled_version
    gcc_version clang_version cmake_version os libc_version python_version python_platform
    is_cuda_available cuda_runtime_version cuda_module_loading nvidia_driver_version
    nvidia_gpu_models cudnn_version is_xpu_available pip_version pip_packages conda_packages
    hip_compiled_version hip_runtime_version miopen_runtime_version caching_allocator_config
    is_xnnpack_available cpu_info""")
NONE_HERE = "N/A"
#: packages worth telling of
PACKAGES = ("flambeau", "llvmlite", "mypy", "numpy", "onnx", "onnxruntime", "safetensors",
            "scipy", "scipy-openblas32", "tensorboard", "torch", "torchvision")
REPORT = """
flambeau version: {torch_version}
Is debug build: {is_debug_build}
CUDA used to build flambeau: {cuda_compiled_version}

OS: {os}
GCC version: {gcc_version}
Clang version: {clang_version}
CMake version: {cmake_version}
Libc version: {libc_version}

Python version: {python_version}
Python platform: {python_platform}
Is CUDA available: {is_cuda_available}
Is XPU available: {is_xpu_available}

CPU:
{cpu_info}

Versions of relevant libraries:
{pip_packages}
""".strip()


def _first_match(command: list, pattern: str) -> str | None:
    """What a program prints, as far as a pattern is about it; None if there is no such program."""
    found = re.search(pattern, _printed(command) or "")
    return None if found is None else found[1]


def _printed(command: list) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(locale.getpreferredencoding(), "replace").strip()


def get_os() -> str:
    """The system's own name for itself."""
    if sys.platform.startswith("linux"):
        try:
            name = platform.freedesktop_os_release()["PRETTY_NAME"]
        except (OSError, KeyError):
            name = platform.platform()
        return f"{name} ({platform.machine()})"
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]} ({platform.machine()})"
    return f"{platform.platform()} ({platform.machine()})"


def get_cpu_info() -> str:
    """The processor, as its system tells of it."""
    return _printed(["lscpu"]) or f"{platform.processor() or platform.machine()}"


def get_pip_packages() -> tuple[str, str]:
    """(the program, one line for each package that matters here)."""
    versions = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()
                if d.metadata["Name"]}
    lines = [f"{name}=={versions[name]}" for name in PACKAGES if name in versions]
    return "pip3", "\n".join(lines)


def get_env_info() -> SystemEnv:
    """Everything, by torch's names; what is about a GPU is not there."""
    bits = sys.maxsize.bit_length() + 1
    fields: dict[str, str | None] = dict.fromkeys(SystemEnv._fields, NONE_HERE)
    pip, packages = get_pip_packages()
    fields.update(
        torch_version=flambeau.__version__, is_debug_build="False", cuda_compiled_version="None",
        gcc_version=_first_match(["gcc", "--version"], r"gcc (.*)"),
        clang_version=_first_match(["clang", "--version"], r"clang version (.*)"),
        cmake_version=_first_match(["cmake", "--version"], r"cmake (.*)"),
        os=get_os(), libc_version="-".join(platform.libc_ver()),
        python_version=f"{sys.version} ({bits}-bit runtime)".replace("\n", " "),
        python_platform=platform.platform(),
        is_cuda_available=str(flambeau.cuda.is_available()), is_xpu_available="False",
        pip_version=pip, pip_packages=packages, is_xnnpack_available="False",
        cpu_info=get_cpu_info())
    return SystemEnv(**fields)


def get_pretty_env_info() -> str:
    """The report, to be pasted."""
    told = {name: "Could not collect" if value is None else value
            for name, value in get_env_info()._asdict().items()}
    marked = "\n".join(f"[pip3] {line}" for line in told["pip_packages"].splitlines())
    return REPORT.format(**{**told, "pip_packages": marked})


def main() -> None:
    """Print the report."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
