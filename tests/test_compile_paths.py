"""Known paths are followed, and programs replayed, by native code: it must see every difference."""

import os
import subprocess
import sys
import threading
import weakref

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler.trace import Tracer


def trained(fullgraph, steps=6, between=lambda model, k: None):
    """Losses of a small model whose step is compiled or not, and the model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 3), torch.randn(16, 1)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = step if fullgraph is None else torch.compile(step, fullgraph=fullgraph)
    losses = []
    for k in range(steps):
        losses.append(run().item())
        between(model, k)
    return losses, model


def test_replayed_steps_train_alike():
    expected, _ = trained(None, 12)
    assert trained(True, 12)[0] == pytest.approx(expected, rel=1e-6)
    assert trained(False, 12)[0] == pytest.approx(expected, rel=1e-6)


def test_a_gradient_that_is_held_is_left_alone():
    held, copies = [], []

    def hold(model, k):
        held.append(model[0].weight.grad)
        copies.append(model[0].weight.grad.clone())

    trained(True, 8, hold)
    assert len({id(g) for g in held}) == 8
    assert all(torch.equal(g, c) for g, c in zip(held, copies, strict=True))


def test_views_and_arrays_of_gradients_are_left_alone():
    views, arrays = [], []

    def keep(model, k):
        views.append((model[0].bias.grad[:2], model[0].bias.grad[:2].tolist()))
        arrays.append((model[2].weight.grad.numpy(), model[2].weight.grad.tolist()))

    trained(True, 8, keep)
    assert all(view.tolist() == was for view, was in views)
    assert all(array.tolist() == was for array, was in arrays)


def test_gradients_are_new_tensors():
    def mark(model, k):
        grad = model[0].weight.grad
        assert not hasattr(grad, "mark") and grad._version == 0
        grad.mark = k
        grad.mul_(1.0)

    trained(True, 8, mark)


def test_a_gradient_that_is_taken_away_or_replaced():
    def take(model, k):
        if k == 5:
            model[0].weight.grad = None
        if k == 7:
            model[0].weight.grad = torch.full((8, 3), 7.0)

    expected, _ = trained(None, 12, take)
    assert trained(True, 12, take)[0] == pytest.approx(expected, rel=1e-6)


def test_a_parameter_that_is_replaced_or_frozen():
    def change(model, k):
        if k == 5:
            model[2].bias.data = torch.ones(1)
        if k == 8:
            model[0].bias.requires_grad_(False)

    expected, _ = trained(None, 14, change)
    assert trained(True, 14, change)[0] == pytest.approx(expected, rel=1e-6)


def test_names_around_a_function_may_stand_for_something_else():
    x = torch.ones(3)

    @torch.compile(fullgraph=True)
    def doubled():
        return (x * 2).sum()

    for value, n in ((1.0, 3), (5.0, 3), (2.0, 7)):
        x = torch.full((n,), value)
        assert [doubled().item() for _ in range(4)] == [2 * value * n] * 4


def test_lists_around_a_function_are_compared():
    sizes = [1.0, 2.0]

    @torch.compile(fullgraph=True)
    def total(x):
        for size in sizes:
            x = x * size
        return x.sum()

    x = torch.ones(2)
    assert [total(x).item() for _ in range(4)] == [4.0] * 4
    sizes.append(3.0)
    assert [total(x).item() for _ in range(4)] == [12.0] * 4


def test_calls_with_other_arguments_take_another_path():
    @torch.compile
    def mixed(x, dim, names, scale):
        y = torch.cat([x * scale, x], dim=dim).sum(dim=dim, keepdim="keep" in names)
        return torch.stack((y, y + 1)) if "pair" in names else y

    x = torch.arange(6.0).reshape(2, 3)
    calls = [(0, "keep", 2.0), (1, "keep", 3.0), (0, "", 2.0), (0, "pair", 5.0), (0, "keep", 2.0)]
    for dim, names, scale in calls * 3:
        y = torch.cat([x * scale, x], dim).sum(dim, keepdim="keep" in names)
        expected = torch.stack((y, y + 1)) if "pair" in names else y
        assert torch.equal(mixed(x, dim, names, scale), expected)


def test_tensors_that_share_memory_are_not_taken_for_others():
    @torch.compile
    def written(a, b):
        a.mul_(2)
        return a + b

    base = torch.ones(4)
    for pair in ((torch.ones(4), torch.ones(4)), (base, base), (torch.ones(4), torch.ones(4))) * 2:
        a, b = pair
        was_shared = a is b
        before = a[0].item()
        expected = 4 * before if was_shared else 2 * before + b[0].item()
        assert written(a, b)[0].item() == expected


def test_another_thread_is_not_on_the_path():
    weight = torch.ones(1000)
    results, stop = [], threading.Event()

    def beside():
        while not stop.is_set():
            results.append((weight * 2.0).sum().item())

    @torch.compile
    def f(x):
        y = weight * 2.0
        for _ in range(20):
            y = y + x
        return y.sum()

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        found = [f(torch.ones(1000)).item() for _ in range(200)]
    finally:
        stop.set()
        thread.join()
    assert set(found) == {22000.0}
    assert set(results) == {2000.0}


TRAINED = """
import sys
import flambeau as torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.Flatten(), torch.nn.Linear(18, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(5, 2, 8)

@torch.compile
def step():
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss

print([float(step()) for _ in range(4)], "llvmlite.binding" in sys.modules)
"""


def test_another_process_compiles_nothing(tmp_path):
    """Programs are found on disk, whatever routines they call and wherever those are now."""
    settings = {**os.environ, "FLAMBEAU_CACHE": str(tmp_path),
                "PYTHONPATH": os.pathsep.join(sys.path)}
    said = [subprocess.run([sys.executable, "-c", TRAINED], env=settings, capture_output=True,
                           text=True, check=True).stdout for _ in range(2)]
    assert said[0].endswith("True\n")
    assert said[1] == said[0].replace("True", "False")


# -- calls that are known at a glance --------------------------------------------------------------


@pytest.fixture
def at_a_glance(monkeypatch):
    """From here on no call may be looked for by its key."""
    def forbid():
        def never(self, op, args, kwargs):
            raise AssertionError(f"{op} is not known at a glance")
        monkeypatch.setattr(Tracer, "_answer", never)
    return forbid


def test_paths_taken_in_turn_are_all_known(at_a_glance):
    compiled = torch.compile(lambda x: (x * 2).exp().sum())
    inputs = [torch.ones(n) for n in (2, 3, 4)] + [torch.ones(2, requires_grad=True)]
    expected = [(x * 2).exp().sum().item() for x in inputs]
    for _ in range(4):
        for x in inputs:
            compiled(x)
    at_a_glance()
    for _ in range(3):
        for x, value in zip(inputs, expected, strict=True):
            assert compiled(x).item() == pytest.approx(value)


def test_what_was_computed_before_is_another_tensor_every_time(at_a_glance):
    head = nn.Linear(3, 2)
    compiled = torch.compile(head)
    x = torch.ones(3, requires_grad=True)
    for k in range(6):
        if k == 4:
            at_a_glance()
        x.grad = None
        compiled(x * 2).sum().backward()
        assert torch.allclose(x.grad, 2 * head.weight.sum(0))


def test_tuples_are_made_at_a_glance(at_a_glance):
    lstm = nn.LSTM(3, 4)

    def work(x):
        a, b = x.chunk(2)
        return lstm(a)[0] * b.sum(), x.split(1)[0]

    compiled, x = torch.compile(work), torch.arange(12.0).reshape(4, 1, 3)
    for k in range(6):
        if k == 4:
            at_a_glance()
        with torch.no_grad():
            for found, expected in zip(compiled(x), work(x), strict=True):
                assert torch.allclose(found, expected, atol=1e-6)


def test_nobody_holds_what_was_computed_before():
    compiled, weight = torch.compile(lambda x: x * 2), torch.ones(3, requires_grad=True)
    for _ in range(5):
        x = weight * 3
        seen = weakref.ref(x)
        compiled(x)
    del x
    assert seen() is None
