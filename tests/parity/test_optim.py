"""Optimizers and schedulers beside torch's: the same path, state, printed form and errors.

The conformance harness checks every configuration; here are whole programs, and what it leaves out.
"""

import importlib
import inspect
import io
import pickle
import warnings

import numpy as np
import pytest
import torch

import flambeau

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.05, "amsgrad": True},
    "AdamW": {"lr": 0.05},
    "Adamax": {"lr": 0.05},
    "NAdam": {"lr": 0.05},
    "RAdam": {"lr": 0.05},
    "RMSprop": {"lr": 0.02, "momentum": 0.5, "centered": True},
    "Rprop": {"lr": 0.02},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.01},
    "Adadelta": {"lr": 1.0},
    "ASGD": {"lr": 0.05, "t0": 3},
    "Adafactor": {"lr": 0.05},
    "LBFGS": {"lr": 0.3, "max_iter": 4},
    "Muon": {"lr": 0.05},
}


def start(lib, name):
    """Two matrices, and for most optimizers a vector."""
    shapes = [(3, 4), (4, 2)] if name == "Muon" else [(3, 4), (4, 2), (2,)]
    values = [np.sin(np.arange(np.prod(s)) + i).reshape(s) for i, s in enumerate(shapes)]
    return [lib.nn.Parameter(lib.tensor(v.tolist(), dtype=lib.float64)) for v in values]


def train(lib, name, steps, params=None, optimizer=None):
    """A few steps of a tiny network; gradients come from each library's own autograd."""
    params = params or start(lib, name)
    optimizer = optimizer or getattr(lib.optim, name)(params, **OPTIMIZERS[name])
    x = lib.tensor(np.cos(np.arange(15.0)).reshape(5, 3).tolist(), dtype=lib.float64)

    def closure():
        optimizer.zero_grad()
        y = lib.tanh(x @ params[0]) @ params[1] + (params[2] if len(params) > 2 else 0)
        loss = (y * y).mean()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure)) for _ in range(steps)]
    return params, optimizer, losses


def same(actual, expected, tolerance=1e-6):
    np.testing.assert_allclose(
        np.array(actual.detach().numpy()), expected.detach().numpy(), tolerance, tolerance
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_paths(name):
    ours, _, losses = train(flambeau, name, 10)
    theirs, _, expected = train(torch, name, 10)
    # Muon multiplies in bfloat16, whose eight bits leave room for other orders of rounding.
    near = 1e-3 if name == "Muon" else 1e-6
    np.testing.assert_allclose(losses, expected, near, near)
    for p, q in zip(ours, theirs, strict=True):
        same(p, q, near)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_printed_form(name):
    ours, theirs = (
        getattr(lib.optim, name)(start(lib, name), **OPTIMIZERS[name]) for lib in (flambeau, torch)
    )
    assert repr(ours) == repr(theirs)


def to_flambeau(value):
    """A state_dict of torch's as flambeau's own."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return flambeau.tensor(value.tolist(), dtype=getattr(flambeau, dtype))
    if isinstance(value, dict):
        return {k: to_flambeau(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(to_flambeau(v) for v in value)
    return value


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "Muon"])
def test_a_state_dict_of_torch_is_taken_over(name):
    """Four steps by torch, saved; the rest by flambeau goes on as torch does."""
    params, optimizer, _ = train(torch, name, 4)
    ours = [
        flambeau.nn.Parameter(flambeau.tensor(p.tolist(), dtype=flambeau.float64)) for p in params
    ]
    loaded = getattr(flambeau.optim, name)(ours, **OPTIMIZERS[name])
    loaded.load_state_dict(to_flambeau(optimizer.state_dict()))
    train(torch, name, 4, params, optimizer)
    train(flambeau, name, 4, ours, loaded)
    for p, q in zip(ours, params, strict=True):
        same(p, q)


@pytest.mark.parametrize("lib", [flambeau, torch], ids=["flambeau", "torch"])
def test_pickling_keeps_the_path(lib):
    """An optimizer pickled with its parameters goes on as the original does."""
    params, optimizer, _ = train(lib, "Adam", 3)
    copy = io.BytesIO(pickle.dumps((params, optimizer)))
    other_params, other = pickle.load(copy)
    train(lib, "Adam", 3, params, optimizer)
    train(lib, "Adam", 3, other_params, other)
    for p, q in zip(params, other_params, strict=True):
        same(p, q)


SCHEDULERS = {
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda e: 1 / (1 + e)),
    "StepLR": lambda s, o: s.StepLR(o, 2),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda s, o: s.ConstantLR(o),
    "LinearLR": lambda s, o: s.LinearLR(o),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=20),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, patience=1),
    "SequentialLR": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o), s.StepLR(o, 2)], [3]),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler([s.ConstantLR(o), s.StepLR(o, 2)]),
}


def scheduled(lib, name):
    optimizer = lib.optim.SGD(start(lib, "SGD"), lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[name](lib.optim.lr_scheduler, optimizer)
    for _ in range(4):
        optimizer.step()
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
    return scheduler.state_dict()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_state(name):
    """The same entries, in the same order, with the same values."""
    ours, theirs = scheduled(flambeau, name), scheduled(torch, name)
    assert list(ours) == list(theirs)
    assert repr(ours) == repr(theirs)


MISUSES = [
    lambda lib: lib.optim.SGD([]),
    lambda lib: lib.optim.SGD(lib.ones(2)),
    lambda lib: lib.optim.SGD([lib.ones(2), 3]),
    lambda lib: lib.optim.SGD([{"params": {lib.ones(2)}}]),
    lambda lib: lib.optim.SGD([lib.ones(2, requires_grad=True) * 2]),
    lambda lib: lib.optim.SGD([lib.ones(2)], lr=-1.0),
    lambda lib: lib.optim.SGD([lib.ones(2)], nesterov=True),
    lambda lib: lib.optim.Adam([lib.ones(2)], betas=(1.0, 0.9)),
    lambda lib: lib.optim.Adam([lib.ones(2)], fused=True, foreach=True),
    lambda lib: lib.optim.LBFGS([{"params": [lib.ones(2)]}, {"params": [lib.ones(3)]}]),
    lambda lib: lib.optim.Muon([lib.ones(2)]),
    lambda lib: lib.optim.lr_scheduler.StepLR(3, 1),
    lambda lib: lib.optim.lr_scheduler.OneCycleLR(lib.optim.SGD([lib.ones(2)]), 0.1),
    lambda lib: lib.optim.lr_scheduler.LinearLR(lib.optim.SGD([lib.ones(2)]), start_factor=2.0),
    lambda lib: lib.optim.lr_scheduler.StepLR(lib.optim.SGD([lib.ones(2)]), 1, last_epoch=3),
]


@pytest.mark.parametrize("misuse", MISUSES, ids=range(len(MISUSES)))
def test_misuse_raises_as_torch_does(misuse):
    with pytest.raises(Exception) as expected:
        misuse(torch)
    with pytest.raises(expected.type):
        misuse(flambeau)


def test_a_differentiable_step():
    """The gradient of a loss after two steps, in the learning rate and the start."""
    results = []
    for lib in (flambeau, torch):
        rate = lib.tensor(0.1, dtype=lib.float64, requires_grad=True)
        begin = lib.tensor([1.0, -2.0], dtype=lib.float64, requires_grad=True)
        p = begin.clone()
        optimizer = lib.optim.SGD([p], lr=rate, differentiable=True)
        for _ in range(2):
            p.grad = lib.tensor([0.3, 0.5], dtype=lib.float64) * begin
            optimizer.step()
        (p * p).sum().backward()
        results.append((rate.grad, begin.grad))
    for actual, expected in zip(*results, strict=True):
        same(actual, expected)


@pytest.mark.parametrize("averaging", ["swa", "ema"])
def test_averaged_models(averaging):
    results = []
    for lib in (flambeau, torch):
        lib.manual_seed(0)
        model = lib.nn.Linear(3, 2)
        tools = lib.optim.swa_utils
        average = tools.AveragedModel(
            model, avg_fn=tools.get_ema_avg_fn(0.9) if averaging == "ema" else None
        )
        for i in range(4):
            with lib.no_grad():
                model.weight.add_(float(i))
            average.update_parameters(model)
        results.append((list(average.state_dict()), average.module.weight, average.n_averaged))
    assert results[0][0] == results[1][0]
    same(results[0][1], results[1][1])
    assert int(results[0][2]) == int(results[1][2]) == 4


def test_the_order_of_steps_is_checked():
    for lib in (flambeau, torch):
        optimizer = lib.optim.SGD([lib.ones(2)], lr=0.1)
        scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 1)
        with pytest.warns(UserWarning, match="before `optimizer.step"):
            scheduler.step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
            scheduler.step()


# -- steps as functions ------------------------------------------------------------------------

BETAS = {"beta1": 0.9, "beta2": 0.99, "lr": 0.1, "eps": 1e-8}
#: function -> (state before the first step, options); a number fills a tensor
STEPS = {
    "adadelta.adadelta": ([0, 0, "step"], {
        "lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.1, "maximize": True}),
    "adagrad.adagrad": ([0.1, "step"], {
        "lr": 0.1, "weight_decay": 0.1, "lr_decay": 0.2, "eps": 1e-8, "maximize": False}),
    "adam.adam": ([0, 0, 0, "step"], {
        **BETAS, "amsgrad": True, "weight_decay": 0.1, "maximize": False}),
    "adamw.adamw": ([0, 0, None, "step"], {
        **BETAS, "amsgrad": False, "weight_decay": 0.1, "maximize": True}),
    "adamax.adamax": ([0, 0, "step"], {**BETAS, "weight_decay": 0.1}),
    "asgd.asgd": ([0, "one", "rate", "step"], {
        "lambd": 1e-2, "lr": 0.1, "t0": 1.0, "alpha": 0.75, "weight_decay": 0.1}),
    "nadam.nadam": ([0, 0, "one", "step"], {**BETAS, "weight_decay": 0.1, "momentum_decay": 4e-3}),
    "radam.radam": ([0, 0, "step"], {**BETAS, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "rmsprop.rmsprop": ([0, 0, 0, "step"], {
        "lr": 0.1, "alpha": 0.9, "eps": 1e-8, "weight_decay": 0.1, "momentum": 0.9,
        "centered": True}),
    "rprop.rprop": ([0, 0.1, "step"], {
        "step_size_min": 1e-6, "step_size_max": 50, "etaminus": 0.5, "etaplus": 1.2}),
    "sgd.sgd": (["fresh"], {
        "lr": 0.1, "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.1, "nesterov": False,
        "maximize": False}),
}


def _begun(lib, start, params):
    """The list of state that a function is given before the first step."""
    if start is None:
        return []
    if start == "fresh":
        return [None] * len(params)
    if isinstance(start, str):
        return [lib.tensor({"step": 0.0, "one": 1.0, "rate": 0.1}[start]) for _ in params]
    return [lib.full_like(p, start) for p in params]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_a_function_too(name):
    starts, options = STEPS[name]
    module, _, function = name.partition(".")
    found = []
    for lib in (torch, flambeau):
        run = getattr(importlib.import_module(f"{lib.__name__}.optim.{module}"), function)
        params = [lib.linspace(-1, 1, 6).view(2, 3), lib.tensor([0.5, -2.0])]
        lists = [_begun(lib, start, params) for start in starts]
        for k in range(4):
            run(params, [(p * (k - 1.5)).cos() for p in params], *lists, **options)
        found.append([v.tolist() for values in (params, *lists) for v in values])
    for ours, theirs in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*STEPS, "_functional.sparse_adam", "muon.muon",
                                  "adafactor.adafactor"])
def test_steps_as_functions_have_torchs_arguments(name):
    module, _, function = name.partition(".")
    private = {"muon": "_muon", "adafactor": "_adafactor"}.get(module, module)
    signatures = []
    for path in (f"torch.optim.{private}", f"flambeau.optim.{module}"):
        run = getattr(importlib.import_module(path), function)
        signatures.append([(p.name, p.kind, p.default)
                           for p in inspect.signature(run).parameters.values()])
    assert signatures[0] == signatures[1]


def test_a_step_wants_counts_as_tensors():
    x = [flambeau.ones(1)]
    with pytest.raises(RuntimeError, match="singleton tensors"):
        flambeau.optim.adam.adam(x, x, x, x, [], [1], amsgrad=False, beta1=0.9, beta2=0.9, lr=0.1,
                                 weight_decay=0, eps=0, maximize=False)
