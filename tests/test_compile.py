"""compile: the same meaning as eager, on known paths and new ones."""

import copy
import gc
import os
import pickle
import threading
import warnings

import numpy as np
import pytest
from programs import program

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

PROGRAMS = int(os.environ.get("FLAMBEAU_PROGRAMS", "60"))


def results(function, goes_back, base, seed):
    torch.manual_seed(seed)
    x, y, w = (b.clone().requires_grad_(True) for b in base)
    out, loss = function(x, y, w)
    if not goes_back and loss.requires_grad:
        loss.backward()
    return [t if t is None else t.detach().numpy() for t in (out, loss, x.grad, y.grad, w.grad)]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_mean_what_they_mean_in_eager(seed):
    function, goes_back = program(seed)
    compiled = torch.compile(function)
    for turn in range(4):
        torch.manual_seed(seed * 10 + turn)
        base = [torch.randn(3, 3) * (1 if turn % 2 else 0.7) for _ in range(3)]
        for a, b in zip(results(function, goes_back, base, turn),
                        results(compiled, goes_back, base, turn), strict=True):
            assert (a is None) == (b is None), f"turn {turn}: a gradient is missing"
            if a is not None:
                assert np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True), f"turn {turn}"


def seed_example(x, depth=4):
    for _ in range(depth):
        x = torch.tanh(x * 1.5) if x.mean() > 0 else -x
    return x


def test_both_branches_and_explain():
    compiled = torch.compile(seed_example)
    for k in range(12):
        torch.manual_seed(k)
        x = torch.randn(5)
        assert torch.equal(compiled(x), seed_example(x))
    told = str(torch.compiler.explain(compiled))
    assert "tanh" in told and "neg" in told and "Python needs a value" in told
    assert "test_compile.py:" in told


def steps_of(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    return step


def network():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Dropout(0.25), nn.Linear(36, 5))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_training_step(fullgraph):
    torch.manual_seed(0)
    one = network()
    two = copy.deepcopy(one)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (one, two)]
    eager = steps_of(one, optimizers[0])
    compiled = torch.compile(steps_of(two, optimizers[1]), fullgraph=fullgraph)
    for k in range(8):
        if k == 5:
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = 0.1
        torch.manual_seed(k)
        x, y = torch.randn(6, 1, 8, 8), torch.randint(0, 5, (6,))
        losses = []
        for step in (eager, compiled):
            torch.manual_seed(k)
            losses.append(step(x, y).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    assert fullgraph is bool(compiled.scripts)


def test_a_module_keeps_its_names_and_its_class():
    model = network()
    compiled = torch.compile(model)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert isinstance(compiled, nn.Sequential) and repr(compiled) == repr(model)
    compiled.eval()
    assert not model.training
    x = torch.randn(2, 1, 8, 8)
    for _ in range(3):
        assert torch.equal(compiled(x), model(x))
    again = copy.deepcopy(compiled)
    assert torch.equal(again(x), model(x))
    assert torch.equal(pickle.loads(pickle.dumps(compiled))(x), model(x))
    model.compile()
    assert torch.equal(model(x), compiled(x))


def test_backward_after_the_call_and_gradients_add_up():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    compiled = torch.compile(model)
    for turn in range(4):
        x = torch.randn(5, 4)
        model.zero_grad()
        compiled(x).sum().backward()
        compiled(x).sum().backward()
        assert np.allclose(model.weight.grad.numpy(), np.tile(2 * x.numpy().sum(0), (3, 1)),
                           rtol=1e-4, atol=1e-5), turn


def test_numbers_are_inputs_and_side_effects_happen():
    seen = []

    @torch.compile
    def scaled(x, rate):
        seen.append(rate)
        return x * rate + 1.0

    x = torch.ones(3)
    for k in range(6):
        assert scaled(x, k + 0.5)[0].item() == k + 1.5
    assert seen == [k + 0.5 for k in range(6)]
    assert scaled.report.captured == 1


def test_a_frozen_or_replaced_parameter_and_no_grad():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    compiled = torch.compile(model)
    x = torch.randn(4, 3)
    for _ in range(2):
        compiled(x).sum().backward()
    model[0].weight.requires_grad_(False)
    model.zero_grad()
    out = compiled(x)
    out.sum().backward()
    assert model[0].weight.grad is None and model[2].weight.grad is not None
    model[2] = nn.Linear(3, 1)
    assert torch.equal(compiled(x), model(x))
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        for _ in range(2):
            assert compiled(x).is_inference()
    model.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})
    assert compiled(x).abs().sum().item() == 0


def test_indices_are_still_checked():
    lookup = nn.Embedding(10, 4)
    compiled = torch.compile(lambda i: lookup(i) * 2)
    for _ in range(3):
        compiled(torch.tensor([1, 2, 9]))
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 2, 10]))
    loss = torch.compile(lambda x, y: F.cross_entropy(x, y))
    for _ in range(3):
        loss(torch.randn(3, 4), torch.tensor([0, 1, 3]))
    with pytest.raises(IndexError):
        loss(torch.randn(3, 4), torch.tensor([0, 1, 4]))


def test_errors_leave_nothing_traced():
    @torch.compile
    def wrong(x):
        x.mul(2)
        raise KeyError("mine")

    x = torch.ones(2)
    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            wrong(x)
    assert (x + 1).sum().item() == 4 and not torch.compiler.is_compiling()


def test_fullgraph_refuses_what_needs_python():
    @torch.compile(fullgraph=True)
    def reads(x):
        return x * 2 if x.sum().item() > 0 else x

    with pytest.raises(RuntimeError, match="fullgraph"):
        for _ in range(3):
            reads(torch.ones(3))


def test_fullgraph_notices_what_changes():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    factor = 2.0

    @torch.compile(fullgraph=True)
    def f(x):
        return model(x) * factor

    x = torch.randn(4, 3)
    for _ in range(4):
        f(x)
    model.eval()
    assert torch.equal(f(x), model(x) * 2.0)
    factor = 3.0
    for _ in range(3):
        assert torch.allclose(f(x), model(x) * 3.0)
    for n in (5, 6, 5, 6, 5, 6):
        x = torch.randn(n, 3)
        assert torch.allclose(f(x), model(x) * 3.0)
    assert len(f.scripts) >= 3


def test_verify_names_the_op(monkeypatch):
    compiled = torch.compile(lambda x: (x * 2).exp().sum(0), verify=3)
    for _ in range(4):
        compiled(torch.randn(3, 3))
    from flambeau.compiler import verify

    monkeypatch.setattr(verify.np, "allclose", lambda *a, **k: False, raising=False)
    compiled = torch.compile(lambda x: x * 2, verify=3)
    compiled(torch.randn(3))
    with pytest.raises(RuntimeError, match="mul differs from eager"):
        compiled(torch.randn(3))


def test_a_function_that_is_never_the_same_runs_eagerly():
    compiled = torch.compile(lambda x: (x * 2).sum())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for n in range(1, 80):
            assert compiled(torch.ones(n)).item() == 2 * n
    assert sum("runs eagerly from now on" in str(w.message) for w in said) == 1
    torch.compiler.reset()
    assert not compiled.given_up


def test_disable_and_is_compiling():
    told = []

    @torch.compiler.disable
    def outside(x):
        told.append(torch.compiler.is_compiling())
        return x + 1

    @torch.compile
    def f(x):
        told.append(torch.compiler.is_compiling())
        return outside(x * 2) * 3

    for _ in range(3):
        assert f(torch.ones(2))[0].item() == 9
    assert told == [True, False] * 3


def test_several_models_and_lists_of_tensors():
    torch.manual_seed(0)
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)

    @torch.compile
    def f(items, named):
        return {"sum": one(items[0]) + two(named["x"]), "all": [i * 2 for i in items]}

    for _ in range(3):
        a, b = torch.randn(2, 3), torch.randn(2, 3)
        found = f([a, b], {"x": b})
        assert torch.allclose(found["sum"], one(a) + two(b))
        assert torch.equal(found["all"][1], b * 2)


def test_a_program_can_be_read():
    compiled = torch.compile(lambda x: (x + 1).relu())
    for _ in range(2):
        compiled(torch.randn(4))
    (_, found), = compiled.report.programs
    assert len(found.launches) == 1 and "b" in str(found)


def test_other_threads_go_on_while_a_path_is_recorded():
    stop, wrong = threading.Event(), []

    def others():
        x = torch.ones(50, 50)
        while not stop.is_set():
            if ((x * 2 + 1) @ x)[0, 0].item() != 150:
                wrong.append(1)

    threads = [threading.Thread(target=others) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for k in range(12):
            compiled = torch.compile(lambda x: ((x + 1.0) @ x).relu().sum())
            x = torch.full((40, 40), float(k))
            for _ in range(3):
                assert compiled(x).item() == ((x + 1.0) @ x).relu().sum().item()
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not wrong


def test_memory_does_not_grow():
    model = nn.Linear(8, 8)
    step = torch.compile(lambda x: F.relu(model(x)).sum().backward())
    x = torch.randn(4, 8)
    for _ in range(50):
        step(x)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        step(x)
    gc.collect()
    assert len(gc.get_objects()) - before < 50


def test_routines_of_one_name_are_told_apart():
    """Convolutions of one, of few and of many channels are different code under one name."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1),
                          nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.Flatten(),
                          nn.Linear(512, 10))
    compiled = torch.compile(model)
    for _ in range(3):
        x = torch.randn(32, 1, 8, 8)
        assert torch.allclose(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        compiled(x).sum().backward()
