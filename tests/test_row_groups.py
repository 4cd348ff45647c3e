"""Folds of rows and what is made of the same elements, as one kernel."""

import pytest

import flambeau as torch
from flambeau.compiler.row_loops import coalesced, refined, split

RNG = torch.Generator().manual_seed(3)


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def layer_norm(x, w):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w


def softmax(x, w):
    raised = (x - x.amax(-1, keepdim=True)).exp()
    return raised / raised.sum(-1, keepdim=True) * w


def log_softmax(x, w):
    low = x - x.amax(-1, keepdim=True)
    return (low - low.exp().sum(-1, keepdim=True).log()) * w


def residual(x, w):
    y = x + w
    return y, y / y.abs().amax(-1, keepdim=True)


def scaled_rows(x, w):
    s = (x.abs() * w).sum(-1)
    return s, torch.tanh(s), (x.exp() * s.unsqueeze(-1)).sum(-1)


def of_several_dimensions(x, w):
    x = x.reshape(4, -1, 2, x.shape[-1] // 2)
    return x - (x * 2).sum((-2, -1), keepdim=True)


def positions(x, w):
    """Loops of what is read and of what is made are not the same."""
    x = x.reshape(4, -1, x.shape[-1])
    y = x + torch.arange(x.shape[1]).unsqueeze(-1) * w
    return y / y.abs().sum(-1, keepdim=True), y.sum((-1, -2))


FUNCTIONS = [rms_norm, layer_norm, softmax, log_softmax, residual, scaled_rows,
             of_several_dimensions, positions]


def launches_of(compiled) -> int:
    return max(len(program.launches) for _, program in torch.compiler.explain(compiled).programs
               if program is not None)


def check(function, *args, calls=3):
    """Equal to eager, whatever is asked for; the compiled function."""
    compiled = torch.compile(function, verify=1)
    for _ in range(calls):
        torch.testing.assert_close(compiled(*args), function(*args), rtol=1e-5, atol=1e-4)
    return compiled


@pytest.mark.parametrize("rows, row", [(64, 128), (40, 33), (300, 64), (2, 256), (128, 1000)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_equal_to_eager(function, rows, row):
    row += row % 2
    rows += -rows % 4
    check(function, torch.randn(rows, row, generator=RNG), torch.rand(row, generator=RNG) + 0.5)


def accumulated(x, w):
    """The first of two parts of a sum is changed by the second."""
    x, s = x * w, (x * w).sum(-1, keepdim=True)
    parts = [x * s, x.square() * (x + s).sum(-1, keepdim=True)]
    parts[0] += parts[1]
    return parts[0]


def test_what_is_changed_is_stored_once():
    compiled = check(accumulated, torch.randn(64, 128), torch.rand(128))
    assert launches_of(compiled) == 1


@pytest.mark.parametrize("function", [rms_norm, layer_norm, softmax, log_softmax])
def test_one_kernel(function):
    compiled = check(function, torch.randn(64, 128), torch.rand(128))
    assert launches_of(compiled) == 1


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes(function, dtype):
    x, w = torch.randn(64, 128).to(dtype), (torch.rand(128) + 0.5).to(dtype)
    compiled = torch.compile(function, verify=1)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, w), function(x, w))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients(function):
    """The way back has sums of rows and of columns."""
    x = torch.randn(64, 128, dtype=torch.float64, requires_grad=True)
    w = torch.rand(128, dtype=torch.float64, requires_grad=True)

    def step(x, w):
        found = function(x, w)
        sum(y.square().sum() for y in (found if isinstance(found, tuple) else (found,))).backward()
        given = x.grad, w.grad
        x.grad = w.grad = None
        return given

    compiled = torch.compile(step, verify=1)
    for _ in range(4):
        for a, b in zip(compiled(x, w), step(x, w), strict=True):
            torch.testing.assert_close(a, b)


def test_rows_that_lie_otherwise():
    for x in (torch.randn(128, 64).T, torch.randn(64, 256)[:, ::2], torch.randn(64, 130)[:, 1:129],
              torch.randn(128).expand(64, 128)):
        for function in FUNCTIONS:
            check(function, x, torch.rand(128))


def test_what_changes_in_place():
    def f(x, w):
        y = x * 2
        s = y.sum(-1, keepdim=True)
        y.mul_(s)
        t = y.sum(-1, keepdim=True)
        x.add_(t)
        return y - x.sum(-1, keepdim=True), s

    x, w = torch.randn(64, 128, dtype=torch.float64), torch.rand(128)
    compiled = torch.compile(f)
    for _ in range(3):
        one, other = x.clone(), x.clone()
        torch.testing.assert_close(compiled(one, w), f(other, w))
        torch.testing.assert_close(one, other)


def test_what_others_read_is_stored():
    def f(x, w):
        y = (x + w).exp()
        s = y.sum(-1, keepdim=True)
        z = y / s
        return y.sum(0), z @ z.T, s

    check(f, torch.randn(64, 128), torch.rand(128))


def test_a_check_stays_before_what_it_keeps_from_happening():
    """An index out of bounds leaves a tensor that would be changed after it as it was."""
    def f(x, table, index):
        y = x * 2
        s = y.sum(-1, keepdim=True)
        rows = table[index]
        x.add_(s)
        return y / s, rows

    x, table = torch.rand(64, 128, dtype=torch.float64) + 1, torch.rand(9, 4)
    compiled = torch.compile(f)
    for _ in range(3):
        one, other = x.clone(), x.clone()
        torch.testing.assert_close(compiled(one, table, torch.tensor([3])),
                                   f(other, table, torch.tensor([3])))
        torch.testing.assert_close(one, other)
    one = x.clone()
    with pytest.raises(IndexError):
        compiled(one, table, torch.tensor([9]))
    assert one.equal(x)


def test_few_long_rows_keep_their_threads_and_short_ones_their_lanes():
    assert launches_of(check(rms_norm, torch.randn(2, 100_000), torch.rand(100_000))) > 1
    assert launches_of(check(rms_norm, torch.randn(1000, 8), torch.rand(8))) > 1


def test_loops_that_others_are_made_of():
    assert refined((6, 4), (3, 8)) == (3, 2, 4)
    assert refined((6, 4), (24,)) == (6, 4)
    assert refined((6, 4), (8, 3)) is None
    assert refined((6, 1, 4), (24,)) == (6, 4)
    assert split((6, 4), (40, 8), (3, 2, 4)) == (80, 40, 8)
    assert split((24,), (8,), (3, 2, 4)) == (64, 32, 8)
    assert split((6, 1, 4), (40, 99, 8), (6, 4)) == (40, 8)
    assert coalesced((3, 2, 4), [(64, 32, 8), (0, 0, 0)]) == ((24,), [[8], [0]])
    assert coalesced((3, 2, 4), [(64, 32, 8), (0, 32, 8)]) == ((3, 8), [[64, 8], [0, 8]])
    assert coalesced((3, 2, 4), [(64, 32, 8), (8, 4, 0)]) == ((6, 4), [[32, 8], [4, 0]])
