"""Memory comes back: loops do not grow, graphs of any depth end, nothing waits for the collector.

What counts resident memory runs in a process of its own, so that other tests cannot disturb it.
"""

import gc
import os
import subprocess
import sys
import textwrap
import weakref
from itertools import pairwise

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.devices.cpu import memory
from flambeau.engine.node import Node
from flambeau.ops.declare import registry

linux = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc/self/statm")

PRELUDE = """
import gc, os, sys
import flambeau as torch
PAGE = os.sysconf("SC_PAGE_SIZE")
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE
"""


def run(code: str, seconds: float = 300) -> list[str]:
    """What a process prints, word by word, provided that it ends well."""
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c",
                           PRELUDE + textwrap.dedent(code)],
                          env=settings, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout.split()


# -- loops ----------------------------------------------------------------------------------------

LOOPS = {
    "pointwise": "y = (x * 2.0 + x).relu(); y = -y",
    "views": "y = x.t()[0].unsqueeze(0); y = x.view(-1)[3:7]",
    "reductions": "y = x.sum(); y = x.amax(1); y = x.mean(0, keepdim=True)",
    "matrices": "y = x @ x; y = torch.cat([x, y])",
    "in place": "x.add_(1.0).mul_(0.5); x[0] = 1.0",
    "numbers": "y = x[0, 0].item(); y = float(x[1, 1]); y = x.tolist()",
    "made": "y = torch.zeros(8, 8); y = torch.tensor([1.0, 2.0]); y = torch.rand(3)",
    "numpy": "y = torch.from_numpy(x.numpy()) + 1",
    "backward": "p.grad = None; (p * x).tanh().sum().backward()",
    "accumulated": "(p * x).sum().backward()",
    "kept graph": "y = (p * x).sum(); torch.autograd.grad(y, p, create_graph=True)",
    "dropped graph": "y = torch.relu(p @ x + p).sum()",
    "no_grad": "with torch.no_grad(): y = p * 2",
    "errors": "try: x + x[:, :3]\n    except RuntimeError: pass",
}  # fmt: skip


@linux
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_does_not_grow(loop):
    """A block that leaked per turn would be 64 bytes or more: far above the limit."""
    turns = 20_000
    code = f"""
gc.disable()
x = torch.rand(8, 8)
p = torch.rand(8, 8).requires_grad_(True)
def turn(count):
    for _ in range(count):
        step()
def step():
    {LOOPS[loop]}
turn(3000)
before = resident()
turn({turns})
print(resident() - before)
"""
    shared = "def step():\n    global x, p\n    "
    (grown,) = map(int, run(code.replace("def step():\n    ", shared)))
    assert grown < turns * 16, f"{grown / turns:.0f} bytes a turn"


@linux
def test_200_000_small_ops_grow_by_nothing():
    code = """
    x = torch.rand(4, 4)
    p = torch.rand(4, 4).requires_grad_(True)
    def turn(count):
        y = x
        for _ in range(count):
            y = y * 0.5 + x
            z = torch.relu(y - 1.0)
        for _ in range(count // 10):
            p.grad = None
            (p * x + p).sum().backward()
    turn(5000)
    before = resident()
    turn(50_000)
    print(resident() - before)
    """
    (grown,) = map(int, run(code))
    assert grown < 1 << 20, f"grew by {grown} bytes"


@linux
def test_large_tensors_reuse_memory():
    """16 M elements are 64 MB each: the loop needs no more than a few such blocks."""
    code = """
    n = 16 << 20
    a, b = torch.full((n,), 1.0), torch.full((n,), 2.0)
    def turn(count):
        for _ in range(count):
            c = a + b
            d = c * b
        return d
    d = turn(3)
    assert d[0].item() == d[-1].item() == 6.0
    del d
    before = resident()
    turn(12)
    print(resident() - before, resident() // (4 * n))
    """
    grown, blocks = map(int, run(code))
    assert grown < 8 << 20, f"grew by {grown} bytes"
    assert blocks <= 7, f"{blocks} blocks of 64 MB are held"  # one and more is the program itself


@linux
def test_idle_memory_returns_to_the_system():
    code = """
    from flambeau.devices.cpu import memory
    kept = [torch.zeros(8 << 20) for _ in range(8)]
    del kept
    full = resident()
    assert memory.idle_bytes() >= 8 * (32 << 20)
    memory.release()
    assert memory.idle_bytes() == 0
    print(full - resident())
    """
    (returned,) = map(int, run(code))
    assert returned > 200 << 20


@linux
def test_many_sizes_do_not_hoard():
    """A loop in which every large tensor has another size stays within the idle limit."""
    code = """
    from flambeau.devices.cpu import memory
    for k in range(200):
        x = torch.zeros((300_000 + 40_000 * k,))
    print(memory.idle_bytes() <= memory.IDLE_LIMIT)
    """
    assert run(code) == ["True"]


# -- depth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["y * 1.0", "y + x", "torch.relu(y)", "y.view(1)",
                                  "y.sum(0, True)", "torch.cat([y])", "y @ w", "y.clone()"])
def test_a_graph_of_100_000_nodes(step):
    """Recorded, walked back and dropped without using the stack."""
    code = f"""
    import threading
    def deep():
        x = torch.ones(1).requires_grad_(True)
        w = torch.ones(1, 1)
        y = x * 1.0
        for _ in range(100_000):
            y = {step}
        y.sum().backward()
        assert x.grad.item() >= 1.0
        del y                              # a graph that has been walked
        y = x * 1.0
        for _ in range(100_000):
            y = {step}
        del y                              # and one that has not
        print("done")
    threading.stack_size(1 << 20)          # a small stack shows what recursion would hide
    thread = threading.Thread(target=deep)
    thread.start()
    thread.join()
    """
    assert run(code) == ["done"]


def test_a_deep_graph_of_custom_functions():
    code = """
    import threading
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()
        @staticmethod
        def backward(ctx, g):
            return g
    def deep():
        for walked in (True, False):
            x = torch.ones(1).requires_grad_(True)
            y = x
            for _ in range(20_000):
                y = Same.apply(y)
            if walked:
                y.backward()
                assert x.grad.item() == 1.0
            del y
        print("done")
    threading.stack_size(1 << 20)
    thread = threading.Thread(target=deep)
    thread.start()
    thread.join()
    """
    assert run(code) == ["done"]


@linux
def test_a_process_ends_without_looking_at_what_was_freed():
    """Functions outlive modules: what they read when they end must be there."""
    code = """
    import flambeau as torch
    x = torch.ones(3, 3).requires_grad_(True)
    (torch.nn.functional.softmax(x @ x, 1) * 2).sum().backward()
    print("done")
    """
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONMALLOC": "malloc",
                "MALLOC_PERTURB_": "255"}  # freed memory is overwritten
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=settings,
                          capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["done"]), done.stderr


def test_a_deep_chain_of_views_ends():
    code = """
    x = torch.ones(4)
    y = x
    for _ in range(100_000):
        y = y.view(4)
    y.add_(1.0)
    print(x.tolist() == [2.0] * 4)
    del x, y
    """
    assert run(code) == ["True"]


# -- nothing waits for the collector --------------------------------------------------------------


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def ours():
    """Tensors and nodes the collector finds unreachable."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = [o for o in gc.garbage if isinstance(o, (torch.Tensor, Node))]
    gc.garbage.clear()
    return found


def train_once(model, optimizer):
    x, y = torch.rand(16, 8), torch.randint(0, 4, (16,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def test_a_training_step_leaves_no_cycles(without_collector):
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.1),
                          nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train_once(model, optimizer)
    gc.collect()
    train_once(model, optimizer)
    assert ours() == []


GRAPHS = {
    "multiply":   lambda x: x * x,
    "exp":        lambda x: x.exp(),                    # keeps its own result
    "sigmoid":    lambda x: torch.sigmoid(x),
    "softmax":    lambda x: torch.softmax(x, 0),
    "view":       lambda x: x.view(2, 2).t()[0],
    "in place":   lambda x: (x * 1).mul_(2.0).exp_(),
    "into view":  lambda x: (x * 1)[:2].mul_(2.0),
    "matmul":     lambda x: x.view(2, 2) @ x.view(2, 2),
    "max":        lambda x: x.view(2, 2).max(1).values,
    "several":    lambda x: torch.cat(x.unbind(0)[0].unsqueeze(0).split(1)),
    "layer norm": lambda x: nn.functional.layer_norm(x, (4,)),
    "index":      lambda x: x[torch.tensor([0, 1, 1])],
    "cumsum":     lambda x: x.cumsum(0).std(),
}  # fmt: skip


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("walked", [False, True])
def test_a_graph_dies_with_its_last_name(without_collector, graph, walked):
    x = torch.rand(4).requires_grad_(True)
    y = GRAPHS[graph](x)
    result, node = weakref.ref(y), weakref.ref(y.grad_fn)
    if walked:
        y.sum().backward()
        x.grad = None
    del y
    assert result() is None and node() is None
    assert ours() == []


def test_create_graph_ends_when_the_gradient_does(without_collector):
    x = torch.rand(3).requires_grad_(True)
    (g,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
    node = weakref.ref(g.grad_fn)
    del g
    assert node() is None
    assert ours() == []


def test_custom_functions_leave_no_cycles(without_collector):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x * x * x
            ctx.save_for_backward(x, out)
            return out

        @staticmethod
        def backward(ctx, g):
            x, _ = ctx.saved_tensors
            return 3 * x * x * g

    x = torch.rand(3).requires_grad_(True)
    y = Cube.apply(x)
    result = weakref.ref(y)
    y.sum().backward()
    del y
    assert result() is None
    assert ours() == []


def test_hooks_leave_no_cycles(without_collector):
    x = torch.rand(3).requires_grad_(True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    result = weakref.ref(y)
    del y
    assert result() is None
    assert ours() == []


# -- the pool -------------------------------------------------------------------------------------


def test_a_dead_tensor_gives_its_block_back():
    shape = (12_345,)
    x = torch.zeros(shape)
    free = memory.pool_of(x.nbytes)
    count, address = len(free), x.data_ptr()
    del x
    assert len(free) == count + 1 and free[-1].address == address
    again = torch.zeros(shape)
    assert again.data_ptr() == address


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1024, 1025, 5000, 1 << 20, (1 << 20) + 1,
                                    10_000_000])
def test_blocks_are_aligned_and_large_enough(nbytes):
    block = memory.allocate(nbytes)
    assert block.address % memory.ALIGNMENT == 0
    assert nbytes <= block.nbytes == memory.size_class(nbytes)
    assert block.nbytes <= max(64, nbytes * 1.25 + 64)


def test_live_blocks_never_overlap():
    tensors = [torch.full((k % 50 + 1,), float(k)) for k in range(2000)]
    spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all((t == k).all() for k, t in enumerate(tensors))


def test_more_than_there_is():
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        torch.empty(1 << 58)


# -- who keeps what alive -------------------------------------------------------------------------


def churn():
    """Take and fill blocks, so that memory given back too early would be overwritten."""
    return [torch.full((k,), -1.0) for k in (1, 4, 6, 100, 1000) for _ in range(50)]


def test_a_view_keeps_the_storage():
    x = torch.arange(1000.0)
    view = x.view(10, 100)[3, 5:9]
    del x
    churn()
    assert view.tolist() == [305.0, 306.0, 307.0, 308.0]


def test_a_detached_tensor_keeps_the_storage():
    x = torch.arange(6.0).requires_grad_(True)
    alias, data = x.detach(), x.data
    del x
    churn()
    assert alias.tolist() == data.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_an_array_outlives_its_tensor():
    x = torch.arange(100.0)
    array = x.numpy()[10:14]
    del x
    churn()
    assert array.tolist() == [10.0, 11.0, 12.0, 13.0]


def test_a_tensor_outlives_its_array():
    array = np.arange(100.0)
    x = torch.from_numpy(array)[50:53]
    array[50] = 7.0
    del array
    gc.collect()
    np.full(100, -1.0), churn()
    assert x.tolist() == [7.0, 51.0, 52.0]


def test_memory_of_an_array_is_given_back():
    class Watched(np.ndarray):
        pass

    array = np.zeros(1000).view(Watched)
    gone = weakref.ref(array)
    x = torch.from_numpy(array)
    y = x[3:5]
    del array, x
    assert gone() is not None
    del y
    assert gone() is None


def test_dlpack_keeps_the_memory():
    x = torch.arange(100.0)
    array = np.from_dlpack(x)
    del x
    churn()
    assert array[:3].tolist() == [0.0, 1.0, 2.0]
    source = np.arange(100.0)
    back = torch.from_dlpack(source)
    del source
    np.full(100, -1.0), churn()
    assert back[-1].item() == 99.0


def test_an_untyped_storage_keeps_the_memory():
    x = torch.arange(5.0)
    storage = x.untyped_storage()
    del x
    churn()
    assert np.frombuffer(bytes(storage), np.float32)[:5].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_what_a_graph_keeps_stays():
    x = torch.arange(1.0, 5.0).requires_grad_(True)
    y = (x * 2).exp().log().mul(x).sum()      # the middle has no name
    churn()
    y.backward()
    assert x.grad.tolist() == pytest.approx([4.0, 8.0, 12.0, 16.0])


def test_plans_for_values_that_never_come_again_are_bounded(monkeypatch):
    """Rows that are walked through, and exponents that change with every step."""
    from flambeau.devices.cpu import remember
    from flambeau.engine import eager

    for module in (remember, eager):
        monkeypatch.setattr(module, "MOST", 200)
    told = []
    monkeypatch.setattr(remember, "watchers", [lambda: told.append(1)])
    rows = torch.zeros(500, 2)
    x = torch.ones(3)
    for k in range(500):
        rows[k] = k
        rows[k] = x[:2] * k
        assert rows[k].tolist() == [k, k] and rows[k:k + 1].shape == (1, 2)
        assert (x * 2).pow_(1 + k / 1000)[0].item() == pytest.approx(2 ** (1 + k / 1000))
        assert ((x * 2) ** (1 + k / 1000))[0].item() == pytest.approx(2 ** (1 + k / 1000))
    assert told and rows[:, 1].tolist() == list(range(500))
    assert max(map(len, remember.TABLES)) <= 20_000
    assert max(len(table) for op in registry.values() if hasattr(op, "kin_plans")
               for table in op.kin_plans.values() if isinstance(table, dict)) <= 200
