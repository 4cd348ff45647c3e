"""Systems that are not Linux, as far as that can be seen on it: a process in which what they lack
is gone imports, trains, compiles, saves and loads."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes away what Linux has")

_USUAL = """
import asyncio, builtins, ctypes, importlib.metadata, mmap, multiprocessing.heap, os, pathlib
import multiprocessing.connection, multiprocessing.managers, multiprocessing.pool, platform
import multiprocessing.popen_spawn_posix, multiprocessing.queues, multiprocessing.resource_tracker
import multiprocessing.shared_memory, multiprocessing.sharedctypes, multiprocessing.synchronize
import shutil, signal, socket, subprocess, sys, tempfile, uuid
import llvmlite.binding, numpy

def take_away(module, names):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

def without(library, names, get):
    def found(self, name):
        if name in names.split():
            raise AttributeError(name)
        return get(self, name)
    library.__getattr__ = found

folder = sys.argv[1]
opened = open
def open_here(file, *arguments, **more):
    if isinstance(file, str) and file.startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "there is no such file", file)
    return opened(file, *arguments, **more)
builtins.open = open_here
take_away(os, "sched_getaffinity sched_setaffinity O_TMPFILE memfd_create MFD_CLOEXEC "
              "posix_fallocate fdatasync copy_file_range eventfd")
take_away(mmap, "MADV_HUGEPAGE")
without(ctypes.PyDLL, "malloc_trim memfd_create prctl", ctypes.PyDLL.__getattr__)
"""

_MACOS = """
sys.platform = "darwin"
"""

_WINDOWS = """
take_away(os, "fork register_at_fork uname O_CLOEXEC O_NOFOLLOW O_DIRECTORY getuid geteuid getgid "
              "fchmod preadv pread pwrite sysconf killpg mkfifo statvfs chown")
take_away(mmap, "MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS MADV_DONTNEED PROT_READ PROT_WRITE")
take_away(signal, "SIGKILL SIG_SETMASK SIGALRM SIGUSR1 SIGHUP pthread_sigmask setitimer alarm")
without(ctypes.PyDLL, "mprotect madvise", ctypes.PyDLL.__getattr__)
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
pathlib.WindowsPath = pathlib.PosixPath
library = ctypes.CDLL
def loaded(name=None, *arguments, **more):
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    os.name = "posix"
    try:
        return library(None if name in ("ucrtbase", "msvcrt", "ntdll") else name, *arguments)
    finally:
        os.name = "nt"
ctypes.CDLL = loaded
sys.platform, os.name = "win32", "nt"
"""

_PROGRAM = """
import flambeau as torch
from flambeau.nn import functional as F
from flambeau.utils import data
import flambeau.distributed, flambeau.multiprocessing, flambeau.onnx, flambeau.profiler
from flambeau.utils import collect_env

torch.manual_seed(0)
torch.set_num_threads(2)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(4 * 36, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=.01)
pairs = data.TensorDataset(torch.randn(24, 1, 8, 8), torch.arange(24) % 10)
losses = []
for _ in range(10):
    for x, y in data.DataLoader(pairs, batch_size=8):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
x = torch.randn(300, 300)
assert torch.allclose(torch.compile(lambda x: (x @ x.T).tanh().sum(1))(x), (x @ x.T).tanh().sum(1))
place = os.path.join(folder, "kept.pt")
torch.save({"x": x}, place)
assert torch.equal(torch.load(place)["x"], x) and torch.equal(torch.load(place, mmap=True)["x"], x)
collect_env.get_pretty_env_info()
print("trained")
"""


@pytest.mark.parametrize("system", [_MACOS, _WINDOWS], ids=["macos", "windows"])
def test_what_a_system_lacks_is_not_needed(system, tmp_path):
    if system is _WINDOWS and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("llvmlite has wheels of Windows for x86-64 only")
    done = subprocess.run([sys.executable, "-c", _USUAL + system + _PROGRAM, tmp_path],
                          capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout == "trained\n", done.stderr


def test_where_llvm_is_missing():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['llvmlite'] = None; import flambeau"],
        capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    said = done.stderr.splitlines()[-1]
    assert said.startswith("ImportError: flambeau compiles with LLVM, which the package llvmlite")
    assert "pip install 'llvmlite>=" in said and f"this is {sys.platform}" in said
