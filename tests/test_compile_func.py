"""torch.func inside compiled functions: one program, the same numbers; and what vmap leaves."""

import gc
import threading
import weakref

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F

STEPS = 6


def meta_learning():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def loss(params, x, y):
        return F.mse_loss(torch.func.functional_call(net, params, (x,)), y)

    def task(params, x, y):
        gradients = torch.func.grad(loss)(params, x, y)
        return loss({k: params[k] - 0.1 * g for k, g in gradients.items()}, x, y)

    def step(x, y):
        params = dict(net.named_parameters())
        found = torch.vmap(task, in_dims=(None, 0, 0))(params, x, y).mean()
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        return found

    return step, lambda: (torch.randn(3, 5, 1), torch.randn(3, 5, 1))


def gradients_of_examples():
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    params = {k: p.detach() for k, p in net.named_parameters()}

    def loss(params, x, y):
        out = torch.func.functional_call(net, params, (x[None],))
        return F.cross_entropy(out, y[None])

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step(x, y):
        found = each(params, x, y)
        assert not any(g.requires_grad for g in found.values())
        return sum(g.square().sum() for g in found.values())

    return step, lambda: (torch.randn(6, 4), torch.randint(3, (6,)))


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", [meta_learning, gradients_of_examples])
def test_compiled_gradients_of_functions_are_those_of_eager(program, fullgraph, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_SMALL", "compiled")
    monkeypatch.setenv("FLAMBEAU_CALM", "1")
    step, batch = program()
    wanted = [step(*batch()).item() for _ in range(STEPS)]
    step, batch = program()
    compiled = torch.compile(step, fullgraph=fullgraph and program is meta_learning)
    found = [compiled(*batch()).item() for _ in range(STEPS)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_step_of_meta_learning_is_one_program(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_SMALL", "compiled")
    step, batch = meta_learning()
    compiled = torch.compile(step)
    for _ in range(STEPS):
        compiled(*batch())
    assert "1 of them on new paths, 1 segments, 1 programs" in str(torch.compiler.explain(compiled))


def test_vmap_lets_go_of_what_it_computed():
    met = []

    def function(x):
        y = torch.cat([x * 2, x])
        met.append(weakref.ref(y))
        return y.sum()

    gc.collect()
    gc.disable()
    try:
        torch.vmap(function)(torch.randn(3, 2))
        torch.vmap(torch.func.grad(function))(torch.randn(3, 2))
        assert [ref() for ref in met] == [None, None]
    finally:
        gc.enable()


DRAWS = {
    "rand":     lambda x: x + torch.rand(5),
    "like":     lambda x: x + torch.randn_like(x),
    "in place": lambda x: x + torch.empty(5).normal_(),
    "dropout":  lambda x: F.dropout(x),
    "chosen":   lambda x: torch.multinomial(x.softmax(0), 1),
    "nested":   lambda x: torch.vmap(lambda y: y * 2)(x) + torch.randn(5),
    "own":      lambda x: x + torch.rand(5, generator=torch.Generator()),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("function", DRAWS.values(), ids=DRAWS)
def test_vmap_refuses_random_numbers(function, compiled):
    call = torch.vmap(function)
    call = torch.compile(call) if compiled else call
    with pytest.raises(RuntimeError, match="randomness error mode"):
        call(torch.randn(3, 5))


def test_random_numbers_of_other_threads_are_none_of_vmaps_business():
    def function(x):
        other = threading.Thread(target=torch.rand, args=(3,))
        other.start()
        other.join()
        return x * 2

    assert torch.vmap(function)(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
