"""Gradients of layers that are called many times, which compiled programs add up at once."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler.summed import TOGETHER
from flambeau.engine.launch import Launch, parts
from flambeau.testing import assert_close


@pytest.fixture(autouse=True)
def products_are_counted(monkeypatch):
    """By their names, before small ones get code of their own."""
    monkeypatch.setattr("flambeau.compiler.fewer.known", lambda launches: launches)


def names_of(compiled) -> list[str]:
    """What all programs of a compiled function call, in order."""
    return [part.name for root in compiled.roots.values() for program in programs_of(root)
            for step in program.packed.all() if isinstance(parts(step)[0], Launch)
            for part in parts(step)[:1]]


def programs_of(step) -> list:
    found, waiting = [], [step]
    while waiting:
        step = waiting.pop()
        waiting += [*((step.branches or {}).values() if step.branches else
                      [] if step.child is None else [step.child])]
        if step.stop is not None:
            found += [v.program for v in step.stop.programs.values() if v.program is not None]
            waiting.append(step.stop.after)
    return found


def compare(model, *inputs, calls: int = 4):
    """Train as written and compiled: equal losses and gradients; the compiled step."""
    learned = [p for p in model.parameters()]

    def step():
        for p in learned:
            p.grad = None
        loss = model(*inputs)
        loss.backward()
        return loss.detach()

    expected, grads = step(), None
    grads = [p.grad.clone() for p in learned]
    compiled = torch.compile(step)
    for _ in range(calls):
        assert_close(compiled(), expected)
        for p, g in zip(learned, grads, strict=True):
            assert_close(p.grad, g, rtol=1e-4, atol=1e-5)
    return compiled


class Cells(nn.Module):
    """A cell along a sequence of inputs."""

    def __init__(self, cell, width: int):
        super().__init__()
        self.cell, self.out, self.width = cell, nn.Linear(width, 1), width

    def forward(self, x):
        state = None
        total = torch.zeros(())
        for part in x:
            state = self.cell(part, state) if state is not None else self.cell(part)
            total = total + self.out(state[0] if isinstance(state, tuple) else state).mean()
        return total


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("batch", [1, 3, 20])
def test_cells_along_a_sequence(cell, batch):
    torch.manual_seed(0)
    model = Cells(cell(6, 8), 8)
    compiled = compare(model, torch.randn(7, batch, 6))
    assert len([n for n in names_of(compiled) if n == "product_float32"]) < 7 * 6


@pytest.mark.parametrize("width, outs", [(5, 4), (1, 4), (5, 1), (1, 1), (33, 65)])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_layer_called_many_times(width, outs, rows):
    torch.manual_seed(1)
    layer, back = nn.Linear(width, outs), nn.Linear(outs, width)
    model = nn.ModuleList([layer, back])

    def forward(x):
        for _ in range(9):
            x = back(layer(x).tanh()).tanh()
        return x.square().sum()

    model.forward = forward
    compare(model, torch.randn(rows, width))


def test_one_product_in_place_of_many():
    torch.manual_seed(2)
    layer = nn.Linear(16, 16)
    model = nn.ModuleList([layer])

    def forward(x):
        for _ in range(10):
            x = layer(x).tanh()
        return x.sum()

    model.forward = forward
    names = names_of(compare(model, torch.randn(1, 16)))
    assert names.count("product_float32_added") == 10
    assert names.count("product_float32") == 9 + 1  # what comes to x, and the weights


def test_more_rows_than_are_multiplied_together():
    torch.manual_seed(3)
    layer = nn.Linear(4, 4)
    model = nn.ModuleList([layer])
    calls = TOGETHER // 8 + 5

    def forward(x):
        for _ in range(calls):
            x = layer(x).tanh()
        return x.sum()

    model.forward = forward
    names = names_of(compare(model, torch.randn(8, 4)))
    assert names.count("product_float32") == calls - 1 + 2


def test_inputs_that_lie_apart():
    """Slices of one tensor, of columns, and of memory that is turned, are copied."""
    torch.manual_seed(4)
    layer = nn.Linear(6, 5)
    model = nn.ModuleList([layer])
    x, turned = torch.randn(4, 9, 6), torch.randn(6, 4, 9).permute(1, 2, 0)

    def forward(x, turned):
        total = torch.zeros(())
        for k in range(9):
            total = total + layer(x[:, k]).tanh().sum() + layer(turned[:, k]).sin().sum()
        return total

    model.forward = forward
    compare(model, x, turned)


@pytest.mark.parametrize("changes", [False, True])
def test_products_added_by_hand(changes):
    torch.manual_seed(5)
    x = torch.randn(2, 3)

    def step():
        rows, total = x.clone(), torch.zeros(3, 3)
        for _ in range(6):
            total += rows.T @ rows
            rows = rows.mul_(1.5) if changes else rows * 1.5
        return total

    expected, compiled = step(), torch.compile(step)
    for _ in range(4):
        assert_close(compiled(), expected)
    assert names_of(compiled).count("product_float32") == (6 if changes else 1)


def test_rows_that_two_sums_see_before_and_after_a_change():
    torch.manual_seed(10)
    start = torch.randn(2, 3)

    def step():
        rows, before, after = start.clone(), torch.zeros(3, 3), torch.zeros(3, 3)
        for _ in range(5):
            before += rows.T @ rows
        rows.mul_(2)
        for _ in range(5):
            after += rows.T @ rows
        return before, after

    expected, compiled = step(), torch.compile(step)
    for _ in range(4):
        for a, b in zip(compiled(), expected, strict=True):
            assert_close(a, b)


def test_rows_that_another_sum_copies_later():
    """Of slices of one tensor, which are copied where the first sum reads them."""
    torch.manual_seed(11)
    x, y = torch.randn(2, 6, 3), torch.randn(2, 6, 3)

    def step():
        one, other = torch.zeros(3, 3), torch.zeros(3, 3)
        for k in range(6):
            if k < 5:
                one += x[:, k].T @ y[:, k]
            other += x[:, k].T @ (y[:, k] * 2)
        one += x[:, 5].T @ y[:, 5]
        return one, other

    expected, compiled = step(), torch.compile(step)
    for _ in range(4):
        for a, b in zip(compiled(), expected, strict=True):
            assert_close(a, b)


def test_two_weights_of_the_same_rows():
    torch.manual_seed(6)
    one, other = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

    def step():
        one.grad = other.grad = None
        x = torch.ones(2, 4)
        for _ in range(5):
            x = (x @ one + x @ other).tanh()
        x.sum().backward()
        return one.grad.clone(), other.grad.clone()

    expected, compiled = step(), torch.compile(step)
    for _ in range(4):
        for a, b in zip(compiled(), expected, strict=True):
            assert_close(a, b)


@pytest.mark.parametrize("ids", [[[3], [1], [3], [0]], [[1, 1, 2], [2, 2, 2]], [[0, 4], [4, 0]]])
def test_rows_of_a_table_fetched_again_and_again(ids):
    torch.manual_seed(7)
    table = nn.Embedding(5, 6)
    model = nn.ModuleList([table])
    places = [torch.tensor(each) for each in ids]

    def forward():
        total = torch.zeros(())
        for k, at in enumerate(places):
            total = total + (table(at) * (k + 1)).tanh().sum()
        return total

    model.forward = forward
    compiled = compare(model)
    assert sum(name.startswith("k_") for name in names_of(compiled)) < 9 * len(ids)


def test_gradients_that_are_added_to_others():
    torch.manual_seed(8)
    layer = nn.Linear(3, 3)
    x = torch.randn(1, 3)

    def step():
        for _ in range(2):
            y = x
            for _ in range(4):
                y = layer(y).tanh()
            y.sum().backward()
        found = layer.weight.grad.clone()
        layer.weight.grad = layer.bias.grad = None
        return found

    expected, compiled = step(), torch.compile(step)
    for _ in range(4):
        assert_close(compiled(), expected)


def test_in_double_precision():
    torch.manual_seed(9)
    layer = nn.Linear(7, 7).double()
    model = nn.ModuleList([layer])

    def forward(x):
        for _ in range(6):
            x = layer(x).tanh()
        return x.sum()

    model.forward = forward
    names = names_of(compare(model, torch.randn(2, 7, dtype=torch.float64)))
    assert names.count("product_float64") == 5 + 1
