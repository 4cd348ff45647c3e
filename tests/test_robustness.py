"""What a program survives: every kind of bad cache folder, many processes, forks and threads.

Each case runs in a process of its own, with a kernel cache of its own.
"""

import errno
import hashlib
import os
import stat
import subprocess
import sys
import textwrap
import time

import pytest

from flambeau.devices.cpu import cache
from flambeau.devices.cpu.cache import seal

# The result does not depend on luck: a step of training whose numbers are known.
WORK = """
import flambeau as torch
x = torch.arange(12.).reshape(3, 4).requires_grad_(True)
w = torch.full((4, 2), 0.5).requires_grad_(True)
y = torch.relu(x @ w - 3.0)
loss = (y * y).sum()
loss.backward()
print([round(v, 3) for v in (loss.item(), x.grad.sum().item(), w.grad.sum().item())])
"""
EXPECTED = "[640.0, 192.0, 3136.0]"


def start(code: str, cache, **environment):
    """A process that runs code from the repository's root with a cache of its own."""
    settings = {**os.environ, "FLAMBEAU_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path),
                **environment}
    return subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
                            env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, seconds: float = 180) -> str:
    """What it printed, provided that it ended well."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, f"ended with {process.returncode}\n{out}\n{err}"
    return out.strip()


def run(code: str, cache, **environment) -> str:
    return finish(start(code, cache, **environment))


def entries(folder):
    return sorted(p for p in folder.iterdir() if not p.name.startswith("."))


def is_sound(entry) -> bool:
    raw = entry.read_bytes()
    return seal(entry.name, raw[32:]) == raw[:32]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache that the work has filled."""
    folder = tmp_path_factory.mktemp("filled") / "kernels"
    assert run(WORK, folder) == EXPECTED
    return folder


@pytest.fixture
def copied(filled, tmp_path):
    """The same entries in a folder one may spoil."""
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    for entry in entries(filled):
        (folder / entry.name).write_bytes(entry.read_bytes())
    return folder


# -- the folder -----------------------------------------------------------------------------------


def test_the_cache_is_filled_and_private(filled):
    assert len(entries(filled)) >= 5
    assert stat.S_IMODE(filled.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(entry.stat().st_mode) == 0o600 for entry in entries(filled))


def test_a_second_run_compiles_nothing(copied):
    code = """
    from flambeau.devices.cpu import bridge
    bridge.jit().compile = None
    """
    assert run(textwrap.dedent(code) + WORK, copied) == EXPECTED


@pytest.mark.parametrize("off", ["off", "0", "none"])
def test_no_cache(tmp_path, off):
    assert run(WORK, off, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path)) == EXPECTED
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder(tmp_path):
    place = tmp_path / "kernels"
    place.write_text("this is no folder")
    assert run(WORK, place) == EXPECTED
    assert place.read_text() == "this is no folder"


def test_a_folder_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    assert run(WORK, tmp_path / "file" / "kernels") == EXPECTED


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")
def test_a_folder_that_cannot_be_made():
    assert run(WORK, "/proc/self/kernels") == EXPECTED


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")
def test_a_folder_that_takes_no_files():
    assert run(WORK, "/proc/self/task") == EXPECTED


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root writes anywhere")
def test_a_read_only_folder(tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o500)
    assert run(WORK, folder) == EXPECTED
    assert entries(folder) == []


def test_no_home(tmp_path):
    code = """
    import os
    os.environ.pop("FLAMBEAU_CACHE")
    os.path.expanduser = lambda path: path
    """
    assert run(textwrap.dedent(code) + WORK, "unused", XDG_CACHE_HOME="") == EXPECTED


FULL = """
import builtins, errno, os
class Full:
    def __init__(self, file):
        self.file = file
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def write(self, data):
        self.file.write(data[:10])
        raise OSError(errno.{name}, "no more")
really_open = open
def open_full(path, mode="r", *args, **kwargs):
    file = really_open(path, mode, *args, **kwargs)
    return Full(file) if mode == "xb" else file
"""
FAULTS = {
    "write":   "builtins.open = open_full\n",
    "replace": "def fail(*_): raise OSError(errno.{name}, 'no more')\nos.replace = fail\n",
    "create":  "def fail(path, mode='r', *args, **kwargs):\n"
               "    if mode == 'xb': raise OSError(errno.{name}, 'no more')\n"
               "    return really_open(path, mode, *args, **kwargs)\n"
               "builtins.open = fail\n",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["ENOSPC", "EROFS", "EDQUOT", "EIO"])
def test_a_disk_that_fails(tmp_path, fault, name):
    assert hasattr(errno, name)
    folder = tmp_path / "kernels"
    code = (FULL + FAULTS[fault]).format(name=name) + WORK
    assert run(code, folder) == EXPECTED
    assert list(folder.iterdir()) == [], "a half-written file was left behind"


def test_a_folder_of_somebody_else(copied):
    code = """
    import os
    me = os.getuid()
    os.getuid = lambda: me + 1
    """
    for entry in entries(copied):
        entry.write_bytes(b"not to be read")
    assert run(textwrap.dedent(code) + WORK, copied) == EXPECTED
    assert {entry.read_bytes() for entry in entries(copied)} == {b"not to be read"}


# -- the entries ----------------------------------------------------------------------------------

DAMAGE = {
    "empty":              lambda raw: b"",
    "short":              lambda raw: raw[:7],
    "only the digest":    lambda raw: raw[:32],
    "truncated":          lambda raw: raw[:len(raw) // 2],
    "one byte short":     lambda raw: raw[:-1],
    "one bit flipped":    lambda raw: raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:],
    "longer":             lambda raw: raw + b"\0",
    "random":             lambda raw: hashlib.shake_128(raw).digest(len(raw)),
    "zeros":              lambda raw: bytes(len(raw)),
    "another digest":     lambda raw: hashlib.sha256(b"").digest() + raw[32:],
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_entries_are_compiled_again(copied, damage):
    before = {entry: entry.read_bytes() for entry in entries(copied)}
    for entry, raw in before.items():
        entry.write_bytes(DAMAGE[damage](raw))
    assert run(WORK, copied) == EXPECTED
    assert all(is_sound(entry) for entry in before), "a damaged entry was kept"


def test_text_with_a_digest_of_its_own_is_no_code(copied):
    garbage = b"this is not an object file" * 8
    for entry in entries(copied):
        entry.write_bytes(hashlib.sha256(garbage).digest() + garbage)
    assert run(WORK, copied) == EXPECTED
    assert all(is_sound(entry) for entry in entries(copied))


def test_entries_under_each_others_names(copied):
    """Sound code, but of another kernel: it would compute something else."""
    found = entries(copied)
    contents = [entry.read_bytes() for entry in found]
    for entry, raw in zip(found, contents[1:] + contents[:1], strict=True):
        entry.write_bytes(raw)
    assert run(WORK, copied) == EXPECTED
    assert all(is_sound(entry) for entry in found)


def test_entries_that_cannot_be_read(copied):
    names = [entry.name for entry in entries(copied)]
    for entry in entries(copied):
        entry.unlink()
    for name in names:
        (copied / name).mkdir()
    assert run(WORK, copied) == EXPECTED


def test_the_cache_is_bounded(copied):
    code = """
    from flambeau.devices.cpu.compile import cache
    store = cache()
    count, size = store.size()
    store.trim(size // 2)
    print(count > store.size()[0], store.size()[1] <= size // 2, store.clear() > 0, store.size())
    """
    assert run(code, copied) == "True True True (0, 0)"


def test_what_is_put_into_a_full_cache_makes_room(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "LIMIT_BYTES", 1 << 14)
    monkeypatch.setattr(os, "urandom", bytes)  # it looks every time, not one in 256
    store = cache.Cache("")
    for k in range(200):
        store.put(store.key(str(k)), bytes(256))
    assert 1 << 13 < store.size()[1] <= 1 << 14


def test_what_is_used_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE", str(tmp_path))
    store = cache.Cache("")
    keys = [store.key(str(k)) for k in range(10)]
    for days, key in enumerate(keys, 2):
        store.put(key, bytes(1000))
        long_ago = time.time() - 86400 * days
        os.utime(tmp_path / key, (long_ago, long_ago))
    assert store.get(keys[-1]) == bytes(1000)
    store.trim(2500)
    assert [key for key in keys if store.get(key)] == [keys[0], keys[-1]]


# -- processes ------------------------------------------------------------------------------------


def test_many_processes_compile_at_once(tmp_path):
    folder = tmp_path / "kernels"
    processes = [start(WORK, folder) for _ in range(4)]
    assert [finish(p) for p in processes] == [EXPECTED] * 4
    assert all(is_sound(entry) for entry in entries(folder))
    assert not [p for p in folder.iterdir() if p.name.startswith(".new-")]


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@forks
def test_a_fork_in_the_middle_of_work(filled):
    code = """
    import os
    import flambeau as torch
    x = torch.randn(300, 300).requires_grad_(True)
    y = (x @ x).tanh()                       # recorded before the fork, walked after it
    before = x.detach().numpy().copy()
    read, write = os.pipe()
    child = os.fork()
    y.sum().backward()
    z = torch.ones(500, 500).cumsum(0).log().sum().item()
    total = x.grad.double().sum().item()
    x.detach().zero_()
    if child == 0:
        os.write(write, repr((total, z)).encode())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert os.read(read, 1000).decode() == repr((total, z))
    torch.set_num_threads(2)
    print((torch.full((1000, 1000), 2.0) * 3).sum().item())
    """
    assert run(code, filled) == "6000000.0"


@forks
def test_memory_after_a_fork_is_not_shared(filled):
    code = """
    import os
    import flambeau as torch
    kept = torch.full((400_000,), 5.0)
    small = torch.full((8,), 5.0)
    child = os.fork()
    if child == 0:
        kept.zero_(), small.zero_()
        [torch.zeros(8) for _ in range(1000)]
        os._exit(0)
    os.waitpid(child, 0)
    print(kept.mean().item(), small.mean().item())
    """
    assert run(code, filled) == "5.0 5.0"


@forks
def test_a_pool_of_forked_workers(filled):
    code = """
    import multiprocessing
    import flambeau as torch

    def work(k):
        w = torch.full((64, 64), float(k)).requires_grad_(True)
        (w @ torch.ones(64, 64)).pow(2).mean().backward()
        return w.grad[0, 0].item()

    work(1)                                  # the parent has worked before
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(work, range(8))
    assert found == [work(k) for k in range(8)], found
    print(found[1])
    """
    assert run(code, filled) == "2.0"


def test_a_spawned_worker(filled, tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(textwrap.dedent("""
        import multiprocessing
        import flambeau as torch

        def work(k):
            return (torch.arange(4.) * k).sum().item()

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                print(pool.map(work, range(3)))
        """))
    settings = {**os.environ, "FLAMBEAU_CACHE": str(filled),
                "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], env=settings, capture_output=True,
                          text=True, timeout=180)
    assert done.stdout.strip() == "[0.0, 6.0, 12.0]", done.stderr


# -- threads --------------------------------------------------------------------------------------

THREADS = """
import sys, threading
import flambeau as torch
sys.setswitchinterval(1e-5)
faults = []

def together(work, count=8):
    barrier = threading.Barrier(count)
    def guarded(k):
        barrier.wait()
        try:
            work(k)
        except BaseException as fault:
            faults.append(f"{k}: {fault!r}")
    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(faults or "fine")
"""


def test_threads_compute_and_go_back(filled):
    code = THREADS + """
def work(k):
    for step in range(150):
        n = 1 + (k * 37 + step) % 97
        x = torch.full((n, 3), float(k + 1)).requires_grad_(True)
        y = torch.sigmoid(x * 2.0 - x) + x.t().sum() / n
        y = torch.cat([y, y * y]).relu()
        y.sum().backward()
        assert x.grad.shape == (n, 3)
        s = 1 / (1 + 2.718281828459045 ** -(k + 1))
        value = s + 3 * (k + 1)
        slope = (1 + 2 * value) * (s * (1 - s)) + 3 * (1 + 2 * value)
        error = (x.grad - slope).abs().max().item() / slope
        assert error < 1e-4, (n, error)
together(work)
"""
    assert run(code, filled) == "fine"


def test_threads_share_one_graph_of_parameters(filled):
    """Each thread has a graph of its own; what they read is shared."""
    code = THREADS + """
w = torch.eye(16) * 2.0
def work(k):
    for step in range(200):
        x = torch.full((4, 16), float(k)).requires_grad_(True)
        y = x @ w
        (g,) = torch.autograd.grad(y.sum(), x)
        assert (y == 2.0 * k).all() and (g == 2.0).all()
together(work)
"""
    assert run(code, filled) == "fine"


def test_threads_compile_at_once(tmp_path):
    code = THREADS + """
def work(k):
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
        x = torch.arange(1, 9, dtype=dtype)
        assert (x * x + x).tolist() == [v * v + v for v in range(1, 9)]
        assert x.flip(0).cumsum(0)[-1].item() == 36
        assert torch.stack([x, x]).t().sum().item() == 72
together(work)
"""
    assert run(code, tmp_path / "kernels") == "fine"


def test_grad_modes_belong_to_their_thread(filled):
    code = THREADS + """
def work(k):
    for _ in range(300):
        x = torch.ones(3).requires_grad_(True)
        if k % 2:
            with torch.no_grad():
                assert not torch.is_grad_enabled()
                y = x * 2
                assert not y.requires_grad, "recorded inside no_grad"
                with torch.enable_grad():
                    assert (x * 2).requires_grad
                assert not x.sum().requires_grad
        else:
            assert torch.is_grad_enabled()
            y = (x * 2).t()
            assert y.requires_grad, "no_grad of another thread stopped recording"
            y.sum().backward()
            assert x.grad.tolist() == [2.0] * 3
together(work)
"""
    assert run(code, filled) == "fine"


def test_a_thread_that_ends_in_no_grad_leaves_nothing_behind(filled):
    """The system gives a new thread the number of one that has ended."""
    code = """
    import threading
    import flambeau as torch
    x = torch.ones(3).requires_grad_(True)
    def in_a_thread(work):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    found = []
    for _ in range(5):
        in_a_thread(lambda: torch.set_grad_enabled(False))
        in_a_thread(lambda: found.append((torch.is_grad_enabled(), (x * 2).requires_grad,
                                          x.sum().requires_grad, x.t().requires_grad)))
    print(set(found), (x * 2).requires_grad)
    """
    assert run(code, filled) == "{(True, True, True, True)} True"


def test_inference_mode_belongs_to_its_thread(filled):
    code = THREADS + """
x = torch.ones(3).requires_grad_(True)
def work(k):
    for _ in range(200):
        if k % 2:
            with torch.inference_mode():
                assert torch.is_inference_mode_enabled()
                assert not (x + 1).requires_grad and torch.zeros(2).is_inference()
        else:
            assert not torch.is_inference_mode_enabled()
            assert (x + 1).requires_grad and not torch.zeros(2).is_inference()
together(work)
"""
    assert run(code, filled) == "fine"


def test_backward_in_threads_through_custom_functions(filled):
    code = THREADS + """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 + 0 * x
def work(k):
    for _ in range(100):
        x = torch.full((5,), float(k)).requires_grad_(True)
        (Double.apply(x) * x).sum().backward()
        assert x.grad.tolist() == [4.0 * k] * 5, x.grad
together(work)
"""
    assert run(code, filled) == "fine"


def test_tensors_cross_threads(filled):
    """Made in one thread, freed in another, through a queue."""
    code = """
    import queue, threading
    import flambeau as torch
    waiting = queue.Queue(maxsize=50)
    sums = []
    def make():
        for k in range(3000):
            waiting.put(torch.full((1 + k % 40,), 1.0) * 2)
        waiting.put(None)
    def take():
        total = 0
        while (x := waiting.get()) is not None:
            total += x.sum().item()
        sums.append(total)
    threads = [threading.Thread(target=f) for f in (make, take)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(sums)
    """
    assert run(code, filled) == f"[{float(sum(2 * (1 + k % 40) for k in range(3000)))}]"


def test_too_many_kernels_are_refused_before_the_system_is_out_of_pieces(monkeypatch):
    """LLVM does not survive it; the next load, in a process with room, goes on as ever."""
    from flambeau.devices.cpu import linker
    from flambeau.devices.cpu.bridge import jit

    monkeypatch.setattr(linker, "_LOOK", 1)
    monkeypatch.setattr(linker, "most_pieces", lambda: linker.pieces())
    with pytest.raises(RuntimeError, match=r"vm\.max_map_count"):
        jit().load(b"", "nothing")
    monkeypatch.undo()
    import flambeau as torch

    assert torch.ones(3).mul(2).sum().item() == 6
