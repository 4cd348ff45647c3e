"""What compiled functions hold: no more than the same function does in eager."""

import ctypes
import gc
import os
import subprocess
import sys
import textwrap

import pytest

import flambeau as torch
from flambeau.compiler.api import report_of
from flambeau.devices.cpu import memory
from flambeau.engine.launch import Check

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MB = 1 << 20

_START = """
import resource
import flambeau as torch
torch.set_num_threads(1)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) << 10
"""


def run(code: str) -> list[int]:
    """What a process prints, numbers all; once before so that all machine code is on disk."""
    whole = _START + textwrap.dedent(code)
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


_TRAINING = """
torch.manual_seed(0)
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU())]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(1024, 512)
def step():
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss
torch.nn.functional.gelu(x[:2])
torch.compile(step)  # the compiler itself is some 2 MB of code
before = resident()
{wrap}
for _ in range(4):
    loss = step()
print(peak() - before, resident() - before)
"""


@linux
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_training_step_holds_no_more_than_an_eager_one(fullgraph):
    eager, _ = run(_TRAINING.format(wrap=""))
    most, _ = run(_TRAINING.format(wrap=f"step = torch.compile(step, fullgraph={fullgraph})"))
    assert eager > 30 * MB
    own = MB * 3 // 4  # what is known of the path
    assert most < eager + own, f"{most / MB:.1f} MB compiled, {eager / MB:.1f} MB in eager"


_TINY = """
weight = torch.ones(8, requires_grad=True)
x = torch.ones(8)
def step():
    weight.grad = None
    y = x
    for k in range(200):
        y = torch.tanh(y * weight) if k % 2 else y + weight * 0.01
    loss = y.sum()
    loss.backward()
    return loss
"""

_TREE = """
class Tree(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.join = torch.nn.Embedding(50, 32), torch.nn.Linear(64, 32)

    def forward(self, depth, at):
        if depth == 0:
            return self.embed(torch.tensor([at % 50]))
        halves = [self.forward(depth - 1, 2 * at), self.forward(depth - 1, 2 * at + 1)]
        return torch.tanh(self.join(torch.cat(halves, 1)))

tree = Tree()
optimizer = torch.optim.Adam(tree.parameters())
def step():
    optimizer.zero_grad()
    loss = tree(6, 1).square().sum()
    loss.backward()
    optimizer.step()
    return loss
"""

_PEAK = """
torch.compile(step)
before = resident()
{wrap}
for _ in range(4):
    step()
print(peak() - before)
"""


@linux
@pytest.mark.parametrize(("program", "ops", "limit"), [
    (_TINY, 400, 3200), (_TREE, 64 + 3 * 63, 5500)])
def test_what_is_known_of_a_path_is_little(program, ops, limit):
    """Where tensors are tiny, what is known of each call is most of what a compiled step holds."""
    (eager,) = run(program + _PEAK.format(wrap=""))
    (most,) = run(program + _PEAK.format(wrap="step = torch.compile(step)"))
    each = (most - eager) / ops
    assert each < limit, f"{each:.0f} bytes for each op call"


def test_the_compiler_brings_no_more_along_than_it_needs():
    """Half a megabyte of Python's own, of which nothing is needed to compile."""
    code = """
    import sys
    before = {*sys.modules}
    torch.compile(torch.ones, fullgraph=True)
    brought = {*sys.modules} - before
    print(len(brought & {"inspect", "dataclasses", "ast", "dis"}))
    """
    assert run(code) == [0]


def test_packed_launches_are_what_they_were():
    from flambeau.engine.launch import Finished, Launch, Live, Output, Place
    from flambeau.engine.packed import Packed

    b, c, o = (Place((kind, 300), 0) for kind in ("buffer", "constant", "outside"))
    far, further = Place(("buffer", 3), 64), Place(("outside", 0), 1 << 40)
    number = 0.5
    steps = [Launch("one", len, None, (b, c, 3, Live(2), number), (1, 2), (0,)),
             Check(far, o, -5, 1 << 50, ValueError),
             Finished(Launch("two", max, None, (b, 1 << 60, further, -(1 << 31)), None, (0,), (1,),
                             True), Launch("one", len, None, (far, b, None), (1, 2), (0,)),
                      Output(4, 5, 1, 2, 3, True)),
             Launch("one", len, None, (b, c, 3, Live(2), number), (1, 2), (0,))]
    packed = Packed(steps[:2])
    packed.extend(steps[2:])
    again = packed.close().all()
    assert [str(step) for step in again] == [str(step) for step in steps]
    assert again[0].args == steps[0].args and again[0].args[4] is number
    assert again[0].args[0] is again[3].args[0]
    assert again[1].refuse is ValueError and (again[1].low, again[1].high) == (-5, 1 << 50)
    first, other = again[2].first, steps[2].first
    assert first.args == other.args and first.function is max and first.effect
    assert (first.written, first.updates, again[2].output) == ((0,), (1,), steps[2].output)
    assert [str(step) for step in packed.first(2)] == [str(step) for step in steps[:2]]


@linux
def test_learning_a_path_holds_what_python_holds():
    """Forty values of 8 MB, of which two live at a time."""
    code = """
    @torch.compile
    def f(x):
        for k in range(20):
            x = torch.cos(x)
            x = x.flip(0)
        return x.sum()
    x = torch.zeros(2 << 20)
    before = resident()
    f(x)
    print(peak() - before, resident() - before)
    f(x)
    print(peak() - before)
    """
    first, left, second = run(code)
    assert first < 60 * MB
    assert left < 25 * MB
    assert second < 60 * MB


@linux
def test_what_eager_left_idle_makes_room_for_an_arena():
    code = """
    def f(x):
        for k in range(4):
            x = torch.cos(x).flip(0)
        return x.sum()
    x = torch.zeros(2 << 20)
    for _ in range(3):
        f(x)
    before = resident()
    g = torch.compile(f)
    for _ in range(4):
        g(x)
    print(peak() - before)
    """
    (grown,) = run(code)
    assert grown < 20 * MB


def test_values_that_are_forgotten_and_found_again():
    """A weak reference keeps no value, but may be asked for it while it is there."""
    import weakref

    @torch.compile
    def f(x):
        a = x * 2
        found = weakref.ref(a)
        b = a + 1
        parts = [b.sin(), b.cos()]
        del a
        again = found()
        c = parts.pop() * 3
        return c if again is None else c + again

    x = torch.arange(4.0)
    expected = [3 * torch.cos(x * 2 + 1), 3 * torch.cos(x * 2 + 1) + 2 * x]
    for _ in range(3):
        y = f(x)
        assert any(torch.allclose(y, e) for e in expected)


def test_views_of_what_python_forgot():
    """A value is gone, a view of it is not: changing that in place means what it does in eager."""
    def f(x, w):
        a = x * 2
        v = a.view(2, 2)
        del a
        v.mul_(w)
        u = v.view(-1)
        del v
        u.add_(1)
        return u * w.view(-1)

    g = torch.compile(f)
    for _ in range(3):
        found = []
        for one in (f, g):
            x = torch.arange(4.0, requires_grad=True)
            w = torch.full((2, 2), 3.0, requires_grad=True)
            y = one(x, w)
            y.sum().backward()
            found.append((y.detach(), x.grad, w.grad))
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_one_of_several_results_is_forgotten():
    def f(x):
        a, b, c = (x * 2).unbind()
        y = a * b
        z = y + c
        del a, c, y
        return b, z

    g = torch.compile(f)
    for _ in range(3):
        found = []
        for one in (f, g):
            x = torch.arange(6.0).view(3, 2).requires_grad_()
            b, z = one(x)
            (b * z).sum().backward()
            found.append(x.grad)
        assert torch.equal(*found)


def test_results_are_room_for_work_until_they_are_written():
    """What the way forward keeps lies where the gradients of earlier layers will be."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[layer for _ in range(5) for layer in (
        torch.nn.Linear(128, 128), torch.nn.Tanh())])
    x = torch.randn(64, 128)

    def step():
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach(), [p.grad.clone() for p in model.parameters()]

    compiled = torch.compile(step)
    for _ in range(3):
        (loss, grads), (other, others) = step(), compiled()
        assert torch.allclose(loss, other)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(grads, others, strict=True))
    (program,) = [program for _, program in report_of(compiled).programs if program]
    assert program.placement.hosts


def test_pointwise_kernels_write_where_they_read():
    """Two buffers are enough for a product of two values that nobody needs afterwards."""
    def f(x):
        for _ in range(4):
            a = torch.softmax(x, 1)
            x = a * torch.softmax(a, 1) + a
        return x.sum(1)

    x = torch.randn(128, 256)
    g = torch.compile(f)
    for _ in range(3):
        assert torch.allclose(f(x), g(x))
    (size,) = [program.placement.size for _, program in report_of(g).programs if program]
    assert size < 2.1 * x.numel() * 4


def test_gradients_of_weights_come_before_those_of_inputs():
    from flambeau.compiler.arrange import arranged
    from flambeau.engine.launch import Launch, Place

    def launch(name, writes, *reads):
        places = [Place(("buffer", b), 0) for b in (writes, *reads)]
        return Launch(name, None, None, tuple(places), None, (0,))

    kept, gradient, weights, further = range(4)
    sizes = [1 << 20] * 4
    steps = [launch("forward", kept), launch("loss", gradient), launch("input", further, gradient),
             launch("weight", weights, gradient, kept), launch("end", 4, further)]
    order = [step.name for step in arranged(steps, [*sizes, 64], {weights, 4})]
    assert order == ["forward", "loss", "weight", "input", "end"]
    alike = [step.name for step in arranged(steps, [*sizes, 64], {weights, 4, kept})]
    assert alike == [step.name for step in steps]


def test_programs_outlive_the_plans_that_they_were_made_from(monkeypatch):
    """Plans are forgotten when there are too many signatures; what a program knows by address is
    not, neither on the way forward nor on the way back."""
    from flambeau.compiler.program import Program
    from flambeau.engine import tensor as tensors

    programs, made = [], Program.__init__
    monkeypatch.setattr(Program, "__init__", lambda self, *given: (
        made(self, *given), programs.append(self))[0])
    weights = [torch.randn(24, 24, requires_grad=True) for _ in range(3)]

    @torch.compile
    def forward(x):
        for w in weights:
            x = torch.tanh(x @ w)
        return x.sum()

    def words():
        return [list((ctypes.c_int64 * 20).from_address(a)) for p in programs for a in p.foreign]

    x = torch.randn(40, 24)
    for _ in range(3):
        torch.autograd.grad(forward(x), weights)
    before = words()
    assert len(before) > 2
    for forget in tensors.forget_plans:
        forget()
    gc.collect()
    for n in range(300):  # memory of what is gone is used for something else
        torch.ones(n % 60 + 1, 8 + n % 7) @ torch.ones(8 + n % 7, n % 60 + 1)
    assert words() == before


def arena(f):
    """Bytes that the programs of a function need besides their results."""
    return max(program.size for _, program in report_of(f).programs if program is not None)


def test_the_gradient_of_a_loss_lies_where_its_scores_were():
    w = torch.randn(64, 4000, requires_grad=True)

    def step(x, y):
        w.grad = None
        loss = torch.nn.functional.cross_entropy(x @ w, y)
        loss.backward()
        return loss.detach()

    x, y = torch.randn(256, 64), torch.arange(256)
    wanted, slope = step(x, y), w.grad
    compiled = torch.compile(step)
    for _ in range(3):
        assert torch.allclose(compiled(x, y), wanted)
        assert torch.allclose(w.grad, slope, atol=1e-6)
    assert arena(compiled) < 1.2 * 256 * 4000 * 4


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_slopes_of_gates_lie_where_the_gates_were(kind):
    layer = getattr(torch.nn, kind)(24, 40)

    def step(x):
        layer.zero_grad()
        loss = layer(x)[0].square().mean()
        loss.backward()
        return loss.detach()

    x = torch.randn(30, 16, 24)
    wanted, slopes = step(x), [p.grad.clone() for p in layer.parameters()]
    compiled = torch.compile(step)
    for _ in range(3):
        assert torch.allclose(compiled(x), wanted)
        for p, slope in zip(layer.parameters(), slopes, strict=True):
            assert torch.allclose(p.grad, slope, atol=1e-6)


def test_softmax_over_rows_that_are_lanes_is_not_computed_in_place():
    """Where lanes are rows, the last may be computed twice, from what must still be there."""
    def f(x):
        return (torch.softmax(x * 2, 0) * 3).sum(1)

    x = torch.randn(5, 37)
    compiled = torch.compile(f)
    for _ in range(3):
        assert torch.allclose(compiled(x), f(x))


def checks(f):
    """How many indices the program of a function checks."""
    (program,) = [program for _, program in report_of(f).programs if program]
    return sum(isinstance(launch, Check) for launch in program.launches)


def test_an_index_is_checked_once_for_both_ways():
    table = torch.randn(10, 4, requires_grad=True)

    def step(index):
        table.grad = None
        loss = torch.nn.functional.embedding(index, table).square().sum()
        loss.backward()
        return loss.detach()

    index = torch.tensor([1, 5, 9])
    wanted, slope = step(index), table.grad
    compiled = torch.compile(step)
    for _ in range(3):
        assert torch.allclose(compiled(index), wanted)
        assert torch.equal(table.grad, slope)
    assert checks(compiled) == 1
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 5, 10]))


def test_an_index_that_was_changed_is_checked_again():
    table = torch.randn(10, 4)

    def f(index):
        one = torch.nn.functional.embedding(index, table)
        index += 4
        return (one + torch.nn.functional.embedding(index, table)).sum()

    compiled = torch.compile(f)
    for _ in range(3):
        wanted, result = f(torch.tensor([1, 3, 5])), compiled(torch.tensor([1, 3, 5]))
        assert torch.allclose(result, wanted)
    assert checks(compiled) == 2
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 3, 7]))


def test_gradients_of_one_weight_are_added_up_as_they_come():
    """Each of many is gone before the next but a few is made, as in eager."""
    w = (torch.randn(128, 128) / 12).requires_grad_()

    def step(x):
        w.grad = None
        for _ in range(20):
            x = torch.tanh(x @ w)
        loss = x.square().sum()
        loss.backward()
        return loss.detach()

    x = torch.randn(4, 128)
    wanted, slope = step(x), w.grad
    compiled = torch.compile(step)
    for _ in range(3):
        assert torch.allclose(compiled(x), wanted)
        assert torch.allclose(w.grad, slope, atol=1e-5)
    assert arena(compiled) < 4 * w.numel() * 4


def test_layouts_that_launches_share_are_kept_once():
    def f(x):
        for _ in range(30):
            x = torch.softmax(x.T, 1).flip(0)
        return x.sum(0)

    x = torch.randn(12, 12)
    compiled = torch.compile(f)
    for _ in range(3):
        assert torch.allclose(compiled(x), f(x))
    (program,) = [program for _, program in report_of(compiled).programs if program]
    words = [launch.words for launch in program.launches if getattr(launch, "words", None)]
    assert len(words) > 20
    assert program.data.nbytes < 64 * 20


def test_what_is_held_for_long_is_one_block():
    size = 64 * 11  # of a class that nobody else needs
    before = len(memory.pool_of(size))
    held = [memory.reserve(size) for _ in range(before + 3)]
    assert len({block.address for block in held}) == len(held)
    assert not memory.pool_of(size)
    del held
    assert len(memory.pool_of(size)) == before + 3


@linux
def test_small_blocks_that_lie_side_by_side_are_returned_together():
    code = """
    from flambeau.devices.cpu import memory
    tensors = [torch.ones(1024) for _ in range(200)]
    kept = tensors[100]
    before = resident()
    del tensors
    memory.return_idle_pages()
    print(before - resident(), int(kept.sum()))
    """
    returned, total = run(code)
    assert returned > 190 * 4096
    assert total == 1024
