"""Python is left out of calm calls where nobody would miss it, and nowhere else.

Every program is called often enough to be played without Python if that is possible, and what it
returns and leaves behind is compared with eager calls.
"""

import io
import itertools
import math
import random
import sys
import types

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler.api import report_of

CALLS = 30      # more than are waited for
CONFIG = types.ModuleType("config")
SCALE, TABLE = 2.0, {"scale": 2.0}
ACTIVATION, ACTIVATIONS = torch.tanh, [torch.relu]


def outcomes(make, run, between=lambda k, made: None):
    """What calls of a program return and leave, with something done between them."""
    torch.manual_seed(0)
    random.seed(0)
    made = make()
    step = run(made["step"])
    found = []
    for k in range(3 * CALLS):
        between(k, made)
        result = step(*made.get("args", ()))
        found.append((result.tolist(), str(made.get("state", ""))))
    return found, step


def same(make, between=lambda k, made: None):
    """Compiled calls are what eager ones are; how often Python was left out."""
    expected, _ = outcomes(make, lambda f: f, between)
    found, compiled = outcomes(make, torch.compile, between)
    for (result, state), (wanted, as_well) in zip(found, expected, strict=True):
        assert np.allclose(result, wanted, rtol=1e-4) and state == as_well
    return compiled.calm.played


# -- where nobody would miss it --------------------------------------------------------------------


def training(layers=nn.Sequential):
    x, y = torch.randn(6, 3), torch.randn(6, 1)
    model = layers(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer, measure = torch.optim.Adam(model.parameters(), lr=0.01), nn.MSELoss()

    def step():
        optimizer.zero_grad()
        loss = measure(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return {"step": step, "model": model, "optimizer": optimizer, "x": x}


class Residual(nn.Module):
    """A module of the user's, with attributes, a list and a helper."""

    gain = 1.0

    def __init__(self, *layers):
        super().__init__()
        self.layers, self.sizes = nn.ModuleList(layers), [3, 4]
        self.options = types.SimpleNamespace(scale=0.5)

    def scaled(self, x):
        return x * self.options.scale * self.gain + sum(self.sizes)

    def forward(self, x):
        seen = []
        for k, layer in enumerate(self.layers):
            x = layer(x) + math.sqrt(k)
            seen.append(x.mean())
        return self.scaled(x) + torch.stack(seen).sum()


@pytest.mark.parametrize("layers", [nn.Sequential, Residual])
def test_a_training_step_is_played_without_python(layers):
    assert same(lambda: training(layers)) > CALLS


def test_a_model_is_played_and_differentiated_outside():
    def run(compile):
        torch.manual_seed(0)
        made = training(Residual)
        model, found = compile(made["model"]), []
        for _ in range(2 * CALLS):
            made["optimizer"].zero_grad()
            loss = model(made["x"]).square().mean()
            loss.backward()
            made["optimizer"].step()
            found.append(loss.item())
        return found

    assert np.allclose(run(torch.compile), run(lambda model: model), rtol=1e-4)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.options = types.SimpleNamespace(scale=2.0)

    def forward(self, x):
        return x * self.options.scale


@pytest.mark.parametrize("wrap", [
    lambda model: model, lambda model: torch.no_grad()(lambda x: model(x)),
    lambda model: torch.inference_mode()(lambda x: model(x))])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_what_the_library_stands_around_is_seen(wrap, fullgraph):
    """A module of the user's in one of the library's, and functions with decorators."""
    model = nn.Sequential(nn.ReLU(), Scaled())
    compiled = torch.compile(wrap(model), fullgraph=fullgraph)
    for scale in (2.0, 3.0):
        model[1].options.scale = scale
        for _ in range(CALLS):
            assert compiled(torch.ones(2)).tolist() == [scale] * 2
    assert fullgraph or report_of(compiled).calm.played > 5


def test_dropout_draws_what_it_would():
    def make():
        made = training(lambda *layers: nn.Sequential(*layers[:2], nn.Dropout(0.5), layers[2]))
        return made | {"state": made["model"][0].weight}

    assert same(make) > CALLS


def test_seeds_are_set_again():
    def step(x):
        torch.manual_seed(3)
        return x * torch.rand(2)

    assert same(lambda: {"step": step, "args": (torch.ones(2),)}) > CALLS


def test_tensors_made_in_the_call():
    weight = torch.arange(4.0)

    def make():
        return {"step": lambda: (torch.tensor([1.0, 2.0]).repeat(2) * weight + torch.ones(4)).sum()}

    assert same(make) > CALLS


def test_explain_says_whether_python_is_left_out():
    step = torch.compile(training()["step"])
    for _ in range(2 * CALLS):
        step()
    assert "without Python" in str(report_of(step))
    step = torch.compile(lambda x: print(end="") or x + 1)
    for _ in range(2 * CALLS):
        step(torch.ones(2))
    assert "print is called" in str(report_of(step))


def test_it_can_be_forbidden(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CALM", "0")
    assert same(training) == 0


# -- what changes between calls ------------------------------------------------------------------


def _changes(change):
    """Do something after a while, and something else later."""
    return lambda k, made: change(made, k // CALLS) if k % CALLS == 0 and k else None


def rate(made, k):
    made["optimizer"].param_groups[0]["lr"] *= 3


def evaluation(made, k):
    made["model"].train(k % 2 == 0)


def frozen(made, k):
    made["model"].get_parameter("0.weight").requires_grad_(k % 2 == 0)


def another_parameter(made, k):
    made["model"][2].weight = nn.Parameter(torch.full((1, 4), float(k)))


def other_data(made, k):
    made["x"].mul_(2)


def other_memory(made, k):
    made["x"].data = torch.ones(6, 3) * k


def more_layers(made, k):
    made["model"].append(nn.ReLU())


def a_hook(made, k):
    if k == 1:
        made["hook"] = made["model"][0].register_forward_hook(lambda m, args, out: out * 2)
    else:
        made["hook"].remove()


def a_hook_on_all(made, k):
    if k == 1:
        made["hook"] = nn.modules.module.register_module_forward_hook(lambda m, a, out: out * 2)
    else:
        made["hook"].remove()


def a_gradient_hook(made, k):
    if k == 1:
        made["hook"] = made["model"][0].weight.register_hook(lambda g: g * 3)
    else:
        made["hook"].remove()


def gradients(made, k):
    for p in made["model"].parameters():
        p.grad = torch.ones_like(p) if k == 1 else None


@pytest.mark.parametrize("change", [
    rate, evaluation, frozen, another_parameter, other_data, other_memory, more_layers, a_hook,
    a_hook_on_all, a_gradient_hook, gradients])
def test_what_changes_is_seen(change):
    assert same(training, _changes(change)) > 5


def an_attribute(made, k):
    made["model"].options.scale = k


def an_attribute_of_the_class(made, k):
    Residual.gain = 1.0 + k


def an_element(made, k):
    made["model"].sizes[0] = k


def another_element(made, k):
    made["model"].sizes.append(k)


def another_method(made, k):
    Residual.scaled = (lambda self, x: x * 7) if k == 1 else Residual.kept


def another_way_forward(made, k):
    Residual.forward = (lambda self, x: self.layers[2](self.layers[0](x))) if k == 1 else (
        Residual.kept_forward)


@pytest.mark.parametrize("change", [an_attribute, an_attribute_of_the_class, an_element,
                                    another_element, another_method, another_way_forward])
def test_what_hangs_on_a_model_is_seen(change, monkeypatch):
    for name in ("gain", "scaled", "forward"):
        monkeypatch.setattr(Residual, name, vars(Residual)[name])
    monkeypatch.setattr(Residual, "kept", Residual.scaled, raising=False)
    monkeypatch.setattr(Residual, "kept_forward", Residual.forward, raising=False)
    first = (Residual.gain, Residual.scaled, Residual.forward)

    def make():
        Residual.gain, Residual.scaled, Residual.forward = first
        return training(Residual)

    assert same(make, _changes(change)) > 5


def test_names_around_a_function_are_seen(monkeypatch):
    def make():
        x, table, order = torch.arange(3.0), {"power": 2}, [0, 1]
        monkeypatch.setitem(globals(), "SCALE", 2.0)
        monkeypatch.setitem(TABLE, "scale", 2.0)
        return {"step": lambda: x[order[1]] * SCALE + TABLE["scale"] * x ** table["power"],
                "table": table, "order": order}

    def change(made, k):
        if k == 1:
            monkeypatch.setitem(globals(), "SCALE", 5.0)
        else:
            TABLE["scale"], made["table"]["power"], made["order"][1] = 3.0, 3, 2

    assert same(make, _changes(change)) > CALLS


def activate(x):
    return ACTIVATION(x)


def test_functions_of_the_library_under_other_names_are_seen(monkeypatch):
    monkeypatch.setitem(globals(), "ACTIVATION", torch.tanh)

    def make():
        ACTIVATIONS[0] = torch.relu
        x = torch.arange(3.0)
        globals()["ACTIVATION"] = torch.tanh
        return {"step": lambda: activate(x) + ACTIVATIONS[0](x - 1)}

    def change(made, k):
        ACTIVATIONS[0] = torch.sigmoid
        if k == 2:
            globals()["ACTIVATION"] = torch.exp

    assert same(make, _changes(change)) > 5


def test_a_number_of_another_kind_is_seen():
    def make():
        x, box = torch.arange(3), types.SimpleNamespace(scale=1)
        return {"step": lambda: x * box.scale, "box": box}

    def change(made, k):
        made["box"].scale = 1.0

    assert same(make, _changes(change)) > 5
    step = torch.compile(make()["step"])
    assert [step().dtype for _ in range(CALLS)][-1] is torch.int64


def test_defaults_of_the_process_are_seen():
    def make():
        weight = torch.ones(2, dtype=torch.float64)
        return {"step": lambda: (torch.zeros(2) + weight.float()).double().sum() + torch.ones(
            2).element_size()}

    def change(made, k):
        torch.set_default_dtype(torch.float64 if k == 1 else torch.float32)

    try:
        same(make, _changes(change))
    finally:
        torch.set_default_dtype(torch.float32)


# -- what would be missed ------------------------------------------------------------------------


def counting():
    state = {"count": 0}

    def step(x):
        state["count"] += 1
        return x * 2
    return {"step": step, "state": state}


def listing():
    state = []

    def step(x):
        state.append(len(state))
        return x * 2
    return {"step": step, "state": state}


def nonlocal_counting():
    count = 0

    class State:
        def __str__(self):
            return str(count)

    def step(x):
        nonlocal count
        count += 1
        return x * 2
    return {"step": step, "state": State()}


def listing_in_an_argument():
    state = []

    def step(x, log):
        log.append(1)
        return x * 2
    return {"step": step, "state": state, "args": (torch.ones(2), state)}


def printing():
    state = io.StringIO()

    class State:
        def __str__(self):
            return state.getvalue()

    def step(x):
        print("x", file=state)
        return x * 2
    return {"step": step, "state": State()}


def drawing():
    return {"step": lambda x: x * random.random()}


def drawing_by_numpy():
    rng = np.random.default_rng(0)
    return {"step": lambda x: x * float(rng.random())}


def going_on():
    numbers = itertools.count()
    return {"step": lambda x: x * next(numbers)}


def going_on_in_a_loop():
    numbers = iter(range(1000))

    def step(x):
        for k in numbers:
            return x * k
    return {"step": step}


def filling_an_array():
    state = np.zeros(1)

    def step(x):
        state[0] += 1
        return x * 2
    return {"step": step, "state": state}


def on_the_function():
    def step(x):
        step.calls += 1
        return x * step.calls
    step.calls = 0
    return {"step": step}


def in_a_default():
    def step(x, seen=[]):  # noqa: B006  this is what is tested
        seen.append(1)
        return x * len(seen)
    return {"step": step}


def in_a_class():
    class Counter:
        calls = 0

    def step(x):
        Counter.calls += 1
        return x * Counter.calls
    return {"step": step}


def in_a_set():
    state = set()

    def step(x):
        state.add(len(state))
        return x * len(state)
    return {"step": step, "state": state}


def in_a_module():
    CONFIG.calls = 0

    def step(x):
        CONFIG.calls += 1
        return x * CONFIG.calls
    return {"step": step}


def on_a_tensor():
    weight = torch.ones(2)
    weight.calls = 0

    def step(x):
        weight.calls += 1
        return x * weight.calls
    return {"step": step}


def by_a_hook():
    state, layer = [], nn.Linear(2, 2)
    layer.register_forward_hook(lambda module, args, out: state.append(1))
    return {"step": lambda x: layer(x), "state": state}


def by_a_schedule():
    made = training()
    schedule = torch.optim.lr_scheduler.StepLR(made["optimizer"], 1, 0.9)

    def step():
        loss = made["step"]()
        schedule.step()
        return loss
    return {"step": step, "state": schedule.state_dict(), "args": ()}


def by_what_is_imported():
    sys.modules["config_of_this_test"] = CONFIG
    CONFIG.calls = 0

    def step(x):
        import config_of_this_test

        config_of_this_test.calls += 1
        return x * config_of_this_test.calls
    return {"step": step}


@pytest.mark.parametrize("make", [
    counting, listing, nonlocal_counting, listing_in_an_argument, printing, drawing,
    drawing_by_numpy, going_on, going_on_in_a_loop, filling_an_array, on_the_function, in_a_default,
    in_a_class, in_a_set, in_a_module, on_a_tensor, by_a_hook, by_a_schedule, by_what_is_imported])
def test_what_python_does_is_done(make):
    assert same(lambda: {"args": (torch.ones(2),)} | make()) == 0


def test_tensors_in_objects_are_changed_in_every_call():
    def make():
        box = types.SimpleNamespace(total=torch.zeros(3), rows=[torch.zeros(2)])

        def step(x):
            box.total += 1
            box.rows[0].add_(2)
            return x + box.total.sum() + box.rows[0].sum()
        return {"step": step, "state": box, "args": (torch.ones(2),)}

    assert same(make) > CALLS


def test_an_error_is_what_it_is_in_eager():
    table, layer = nn.Embedding(5, 3), nn.Linear(3, 2)
    optimizer = torch.optim.SGD([*table.parameters(), *layer.parameters()], lr=0.1)

    @torch.compile
    def step(ids):
        optimizer.zero_grad()
        layer(table(ids)).sum().backward()
        optimizer.step()

    for _ in range(2 * CALLS):
        step(torch.tensor([0, 1, 2]))
    assert step.calm.played > CALLS // 2
    before = layer.weight.detach().clone()
    with pytest.raises(IndexError, match="9"):
        step(torch.tensor([0, 1, 9]))
    assert layer.weight.grad is None and torch.equal(layer.weight, before)
    step(torch.tensor([0, 1, 2]))
    assert layer.weight.grad is not None


def test_shapes_that_are_never_the_same_are_not_looked_for():
    sizes = itertools.cycle(range(1, 40))
    step = torch.compile(lambda x: (x * 2).tanh().sum())
    for n in itertools.islice(sizes, 400):
        step(torch.ones(n))
    assert len(step.scripts) <= 8
