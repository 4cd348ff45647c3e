"""Steps of an optimizer that differ by their count: by a formula, and as if each was the first."""

import copy

import pytest

import flambeau as torch
from flambeau.core.pace import formula, pace
from flambeau.engine.together import Update

OPTIMIZERS = {
    "SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {"amsgrad": True}, "Adamax": {},
    "Adagrad": {"lr_decay": 0.1}, "NAdam": {}, "RAdam": {}, "RMSprop": {}, "ASGD": {},
    "Adadelta": {}, "Rprop": {},
}  # fmt: skip


def trained(name: str, options: dict, change=None, steps: int = 9) -> list:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)]
    parameters = [p for layer in layers for p in layer.parameters()]
    optimizer = getattr(torch.optim, name)(parameters, **copy.deepcopy(options))
    x = torch.randn(5, 3)
    for k in range(steps):
        if change is not None and k >= 5:
            change(optimizer.param_groups[0], k)
        optimizer.zero_grad()
        layers[1](layers[0](x)).square().sum().backward()
        optimizer.step()
    return [p.tolist() for p in parameters]


def both_ways(monkeypatch, *args) -> tuple[int, list, list]:
    """How many steps were taken by a formula, the results, and those without any."""
    made, taken = Update._repeating, []

    def counted(self, *given):
        repeat = made(self, *given)
        return lambda options: taken.append(repeat(options)) or taken[-1]

    monkeypatch.setattr(Update, "_repeating", counted)
    found = trained(*args)
    monkeypatch.setattr(Update, "_repeating", lambda self, *given: lambda options: False)
    return sum(taken), found, trained(*args)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_same_parameters(monkeypatch, name):
    taken, found, expected = both_ways(monkeypatch, name, OPTIMIZERS[name])
    assert found == expected
    if name in ("SGD", "Adam", "AdamW", "Adamax", "Adagrad", "RMSprop"):
        assert taken >= 5


def _lr(group, k):
    group["lr"] = 0.1 / k


def _lr_once(group, k):
    group["lr"] = 0.05


def _betas(group, k):
    group["betas"] = (0.5, 0.9)


def _sign(group, k):
    group["maximize"] = k % 2 == 0


def _less(group, k):
    group.pop("foreach", None)


@pytest.mark.parametrize("change", [_lr, _lr_once, _betas, _sign, _less])
def test_options_that_change(monkeypatch, change):
    taken, found, expected = both_ways(monkeypatch, "Adam", {"lr": 0.01}, change)
    assert found == expected and taken > 0
    assert found != trained("Adam", {"lr": 0.01}) or change is _less


def test_options_that_change_inside(monkeypatch):
    """A list and a tensor are the same object with other contents."""
    def change(group, k):
        group["betas"][0] = 0.9 - 0.05 * k

    taken, found, expected = both_ways(monkeypatch, "Adam", {"betas": [0.9, 0.99]}, change)
    assert found == expected and taken == 0
    taken, found, expected = both_ways(monkeypatch, "Adam", {"lr": torch.tensor(0.01)},
                                       lambda group, k: group["lr"].fill_(0.1 / k))
    assert found == expected and taken == 0


def test_a_flag_that_torch_refuses():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([p])
    for _ in range(4):
        p.grad = torch.ones(2)
        optimizer.step()
    optimizer.param_groups[0]["capturable"] = True
    with pytest.raises(AssertionError, match="capturable"):
        optimizer.step()


def test_formulas():
    names, found, constants = pace(
        lambda counts, options: {"a": options["lr"], "b": 1 - options["beta"] ** counts["step"],
                                 "c": (counts["step"] - 1) / 2.0 + 3 * counts["step"]},
        {"lr": 0.5, "beta": 0.9, "other": []})
    assert names == ["lr", "beta"]
    function = formula(found.values(), constants)
    assert function(4.0) == (0.5, 1 - 0.9**4.0, 1.5 + 12.0)


@pytest.mark.parametrize("numbers", [
    lambda counts, options: {"a": 1.0 if counts["step"] > 1 else 2.0},
    lambda counts, options: {"a": float(counts["step"])},
    lambda counts, options: {"a": 1.0 if counts["step"] == 1 else 2.0},
    lambda counts, options: counts.update(more=1.0) or {"a": 1.0},
    lambda counts, options: {"a": options["list"][0]},
])
def test_more_than_arithmetic(numbers):
    assert pace(numbers, {"list": [1.0]}) is None
