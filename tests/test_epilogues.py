"""Pointwise work that a compiled program does on each piece of a product or a convolution."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau import export, nn
from flambeau.compiler import epilogue, fewer
from flambeau.compiler.epilogue import finished
from flambeau.engine.launch import Finished
from flambeau.nn import functional as F


@pytest.fixture
def programs(programs, monkeypatch):
    """The programs that are built, in order; any output is worth an epilogue."""
    monkeypatch.setattr(epilogue, "LEAST", 0)
    monkeypatch.setattr(epilogue, "patience", lambda: 1 << 40)
    return programs


def epilogues(program) -> int:
    return sum(isinstance(step, Finished) for step in program.launches)


def ran(function, *args):
    """What eager and, after a few calls, compiled code makes of arguments."""
    compiled = torch.compile(function)
    with torch.no_grad():
        want = function(*args)
        for _ in range(3):
            got = compiled(*args)
    return want, got


def same(want, got) -> None:
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def close(want, got) -> None:
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=2e-6)


#: rows, inner, columns: shared by rows, cut into several depths, short of a vector, one row, one
#: column, and so small that one thread does all of it
SHAPES = ((768, 128, 512), (300, 700, 1504), (601, 33, 77), (1, 96, 3072), (3000, 64, 1), (8, 5, 3),
          (259, 40, 1300))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_linear_and_relu(programs, shape, dtype):
    m, k, n = shape
    x, w, b = (torch.randn(*s, dtype=dtype) for s in ((m, k), (n, k), (n,)))
    same(*ran(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b))
    assert [epilogues(p) for p in programs] == [1] and len(programs[0].launches) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_on_any_number_of_threads(programs, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, w, r = torch.randn(700, 200), torch.randn(200, 640), torch.randn(700, 640)
        same(*ran(lambda x, w, r: torch.relu(x @ w + r) * 2, x, w, r))
        image, weight = torch.randn(6, 32, 20, 20), torch.randn(40, 32, 3, 3)
        same(*ran(lambda x, w: F.relu(F.conv2d(x, w)), image, weight))
        assert [epilogues(p) for p in programs] == [1, 1]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("act", [F.gelu, torch.sigmoid, torch.tanh])
def test_heavier_functions(programs, act):
    x, w, b = torch.randn(768, 128), torch.randn(512, 128), torch.randn(512)
    close(*ran(lambda x, w, b: act(F.linear(x, w, b)), x, w, b))
    assert epilogues(programs[0]) == 1


def test_batches_and_numbers_that_change(programs):
    a, b = torch.randn(48, 64, 32), torch.randn(48, 32, 64)
    compiled = torch.compile(lambda a, b, s: torch.bmm(a, b) * s)
    for s in (0.5, 0.25, -3.0):
        same(torch.bmm(a, b) * s, compiled(a, b, s))
    assert all(epilogues(p) == 1 for p in programs)
    assert programs


def test_a_value_needed_elsewhere_is_kept(programs):
    x, w = torch.randn(400, 64), torch.randn(64, 96)

    def both(x, w):
        y = x @ w
        return y, F.relu(y), y.sum(0)

    for want, got in zip(*ran(both, x, w), strict=True):
        close(want, got)
    assert epilogues(programs[0]) == 1


def test_operands_of_other_sizes(programs):
    """A kernel may read and write elements of other sizes than those of the product."""
    x, w, keep = torch.randn(400, 64), torch.randn(64, 96), torch.rand(400, 96) < 0.5

    def masked(x, w, keep):
        y = torch.where(keep, x @ w, 0.0)
        return y.double(), y > 0

    for want, got in zip(*ran(masked, x, w, keep), strict=True):
        same(want, got)
    assert epilogues(programs[0]) == 1


def test_what_a_product_reads_is_not_overwritten_early(programs):
    """Pieces that are computed later need all of an operand that the kernel changes."""
    def step(x, w):
        x.copy_(F.relu(x @ w) + x)
        return x * 1

    x, w = torch.randn(512, 128), torch.randn(128, 128) / 16
    start = x.clone()
    compiled = torch.compile(step)
    for _ in range(3):
        x.copy_(start)
        want = F.relu(start @ w) + start
        same(want, compiled(x, w))
        same(want, x)


def test_kernels_that_need_something_later_wait(programs):
    """The product moves down to its kernel where what that needs is made in between."""
    x, w, v = torch.randn(300, 64), torch.randn(64, 64), torch.randn(300)

    def late(x, w, v):
        y = x @ w
        total = torch.cumsum(v, 0)[-1:]
        return y * total + 1

    close(*ran(late, x, w, v))


@pytest.mark.parametrize("act", [F.relu, F.gelu])
def test_gradients_of_a_step(programs, act):
    fresh = torch.Generator().manual_seed(3)
    x = torch.randn(300, 64, generator=fresh)
    first, second = nn.Linear(64, 256), nn.Linear(256, 32)

    def step(x):
        first.zero_grad(), second.zero_grad()
        loss = second(act(first(x))).square().mean()
        loss.backward()
        return loss

    want = step(x).item()
    grads = [p.grad.clone() for p in (*first.parameters(), *second.parameters())]
    compiled = torch.compile(step)
    for _ in range(3):
        assert abs(compiled(x).item() - want) < 1e-6
    for p, g in zip((*first.parameters(), *second.parameters()), grads, strict=True):
        close(g, p.grad)
    assert max(map(epilogues, programs)) >= 2  # on the way there, and on the way back


def test_gradients_of_a_module():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
    x = torch.randn(300, 64, requires_grad=True)
    model(x).sum().backward()
    want = [x.grad.clone(), *[p.grad.clone() for p in model.parameters()]]
    compiled = torch.compile(model)
    for _ in range(3):
        x.grad = None
        model.zero_grad()
        compiled(x).sum().backward()
    for g, t in zip(want, (x, *model.parameters()), strict=True):
        close(g, t.grad)


#: data, weights, options: tiles, squares, few rows, single planes, groups, one and three dimensions
CONVOLUTIONS = {
    "tiles":       ((2, 5, 9, 11), (13, 5, 3, 2), {"stride": 2, "padding": 1}),
    "deep tiles":  ((3, 70, 9, 13), (40, 70, 3, 3), {}),
    "squares":     ((5, 32, 18, 22), (40, 32, 3, 3), {"padding": 1}),
    "flat squares": ((2, 17, 3, 6, 10), (16, 17, 1, 3, 3), {"padding": (0, 1, 1)}),
    "one row":     ((2, 4, 6, 19), (1, 4, 3, 3), {"padding": 1}),
    "three rows":  ((2, 3, 12, 37), (3, 3, 5, 5), {"stride": 2, "padding": 2}),
    "depthwise":   ((2, 6, 9, 21), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "dilated":     ((1, 8, 11, 12), (10, 4, 3, 3), {"dilation": 2, "padding": 2, "groups": 2}),
    "pointwise":   ((3, 64, 13, 13), (80, 64, 1, 1), {}),
    "line":        ((2, 3, 50), (4, 3, 5), {"padding": 2}),
    "volume":      ((1, 3, 5, 6, 7), (8, 3, 2, 3, 3), {"stride": (1, 2, 1), "padding": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_convolutions(programs, name, dtype):
    shape, weights, options = CONVOLUTIONS[name]
    convolve = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(shape)]
    x, w, b = (torch.randn(*s, dtype=dtype) for s in (shape, weights, weights[:1]))
    r = torch.randn_like(convolve(x, w, b, **options))
    same(*ran(lambda x, w, b, r: F.relu(convolve(x, w, b, **options) + r), x, w, b, r))
    same(*ran(lambda x, w: F.leaky_relu(convolve(x, w, **options)), x, w))
    assert [epilogues(p) for p in programs] == [1, 1]


def test_small_outputs_and_small_pieces_of_much_work_are_left_alone(programs, monkeypatch):
    """To call a kernel on little takes longer than to have it in the cache gains."""
    monkeypatch.setattr(epilogue, "LEAST", 1 << 13)
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    same(*ran(lambda x, w: F.relu(x @ w), x, w))
    image, weight = torch.randn(4, 16, 20, 20), torch.randn(32, 16, 3, 3)
    close(*ran(lambda x, w: F.gelu(F.conv2d(x, w)), image, weight))
    assert [epilogues(p) for p in programs] == [0, 0]


def test_transposed_convolutions_of_several_phases_are_left_alone(programs):
    x, w = torch.randn(2, 6, 9, 9), torch.randn(6, 5, 3, 3)
    same(*ran(lambda x, w: F.relu(F.conv_transpose2d(x, w, stride=2)), x, w))
    assert epilogues(programs[0]) == 0


def test_gradients_of_a_convolution():
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
                          nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    x = torch.randn(4, 3, 16, 16)
    model(x).sum().backward()
    want = [p.grad.clone() for p in model.parameters()]

    @torch.compile
    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    for _ in range(3):
        step(x)
    for g, p in zip(want, model.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), g.numpy(), rtol=1e-4, atol=1e-4)


def test_told(programs):
    """A program prints what follows a product with it, and explain() counts such launches."""
    x, w = torch.randn(300, 64), torch.randn(64, 96)
    compiled = torch.compile(lambda x, w: F.relu(x @ w))
    for _ in range(3):
        compiled(x, w)
    _, line, then, *loop = str(programs[0]).splitlines()
    assert "300x64 by 64x96: product_" in line and "and then, to each piece" in then
    assert "for i in range(28800):" in loop[0] and len(loop) == 2
    assert "1 launches (1 with what follows as an epilogue)" in str(
        torch.compiler.explain(compiled))


def test_verify_sees_epilogues(programs, monkeypatch):
    """What an epilogue does wrong is found, and named."""
    x, w, r = torch.randn(300, 64), torch.randn(64, 96), torch.randn(300, 96)

    def call() -> None:
        compiled = torch.compile(lambda x, w, r: F.relu(x @ w + r), verify=3)
        for _ in range(3):
            compiled(x, w, r)

    call()
    (step,) = programs[0].launches
    assert isinstance(step, Finished)

    def spoilt(launches, results):
        (step,) = finished(launches, results)
        *places, count = step.then.args
        read = [places[0] if k not in step.then.written else a for k, a in enumerate(places)]
        return [Finished(step.first, step.then.moved((*read, count)), step.output)]

    monkeypatch.setattr(fewer, "finished", spoilt)
    with pytest.raises(RuntimeError, match="verify: add differs"):
        call()


@pytest.mark.skipif(shutil.which("cc") is None or not sys.platform.startswith("linux"),
                    reason="needs a C compiler")
def test_in_machine_code_of_its_own(programs, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 300),
                          nn.ReLU()).eval()
    x = torch.randn(300, 3, 8, 8)
    made = export.native(model, x, tmp_path / "model", threads=2)
    assert max(map(epilogues, programs)) == 2
    function = getattr(ctypes.CDLL(str(made.library)), made.name)
    function.argtypes = [ctypes.c_void_p] * 2
    found = torch.empty(300, 300)
    assert function(x.data_ptr(), found.data_ptr()) == 0
    with torch.no_grad():
        close(model(x), found)


FOUND = """
import sys
import flambeau as torch
from flambeau.compiler import segment
from flambeau.nn import functional as F

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(16 * 36, 300), torch.nn.GELU())
x = torch.randn(300, 3, 8, 8)
compiled = torch.compile(model)
with torch.no_grad():
    print([compiled(x).sum().item() for _ in range(3)],
          str(torch.compiler.explain(compiled)).count(" with what follows as an epilogue"),
          "llvmlite.binding" in sys.modules)
"""


def test_another_process_finds_programs_on_disk(tmp_path):
    settings = {**os.environ, "FLAMBEAU_CACHE": str(tmp_path),
                "PYTHONPATH": os.pathsep.join(sys.path)}
    said = [subprocess.run([sys.executable, "-c", FOUND], env=settings, capture_output=True,
                           text=True, check=True).stdout for _ in range(2)]
    assert said[0].endswith(" 1 True\n")
    assert said[1] == said[0].replace("True", "False")
