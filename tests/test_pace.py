"""Steps of an optimizer that differ by their count: by a formula, and as if each was the first."""

import copy

import pytest

import flambeau as torch
from flambeau.core.pace import formula, pace
from flambeau.engine.together import Update
from flambeau.engine.whole_step import WholeStep

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
    repeating, function, taken = Update._repeating, WholeStep.function, []

    def counted(take):
        return lambda *given: taken.append(take(*given)) or taken[-1]

    monkeypatch.setattr(Update, "_repeating", lambda self, *given: counted(repeating(self, *given)))
    monkeypatch.setattr(WholeStep, "function", lambda self: counted(function(self)))
    found = trained(*args)
    monkeypatch.setattr(WholeStep, "function", function)
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
    names, found = pace(
        lambda counts, options: {"a": options["lr"], "b": 1 - options["beta"] ** counts["step"],
                                 "c": (counts["step"] - 1) / 2.0 + 3 * counts["step"]},
        {"lr": 0.5, "beta": 0.9, "other": []})
    assert names == ["lr", "beta"]
    function = formula(found.values())
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


# -- a whole step in one native call ---------------------------------------------------------------


def in_groups(monkeypatch, change, whole: bool, steps: int = 14) -> tuple[list, list, list]:
    """Parameters and state after steps of two groups, with `change(params, optimizer, k)` before
    each; and whether native code took it whole."""
    function, taken = WholeStep.function, []

    def counted(self):
        take = function(self)
        return lambda *given: whole and (taken.append(take(*given)) or taken[-1])

    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)]
    params = [p for layer in layers for p in layer.parameters()]
    optimizer = torch.optim.Adam([{"params": params[:2], "lr": 0.01},
                                  {"params": params[2:], "lr": 0.02, "amsgrad": True}])
    x = torch.randn(5, 3)
    with monkeypatch.context() as patch:
        patch.setattr(WholeStep, "function", counted)
        for k in range(steps):
            optimizer.zero_grad()
            layers[1](layers[0](x)).square().sum().backward()
            change(params, optimizer, k)
            optimizer.step()
    state = [{n: v.tolist() for n, v in s.items()} for s in optimizer.state.values()]
    return [p.tolist() for p in params], state, taken


def _nothing(params, optimizer, k):
    """Only the count differs."""


def _other_rate(params, optimizer, k):
    if k == 7:
        optimizer.param_groups[1]["lr"] = 0.5


def _equal_rate(params, optimizer, k):
    optimizer.param_groups[0]["lr"] = float(str(optimizer.param_groups[0]["lr"]))


def _of_no_matter(params, optimizer, k):
    optimizer.param_groups[0]["initial_lr"] = k


def _another_list(params, optimizer, k):
    if k == 7:
        optimizer.param_groups = [*optimizer.param_groups]


def _fewer_groups(params, optimizer, k):
    if k == 7:
        optimizer.param_groups.pop()


def _another_group(params, optimizer, k):
    if k == 5:
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))]})
    if k >= 5:
        optimizer.param_groups[2]["params"][0].grad = torch.ones(3)


def _no_gradient(params, optimizer, k):
    if k % 5 == 4:
        params[2].grad = None


def _frozen(params, optimizer, k):
    if k == 7:
        params[0].requires_grad_(False).grad = None


def _other_memory(params, optimizer, k):
    if k == 7:
        params[0].data = params[0].data.clone() * 2


def _count(params, optimizer, k):
    if k == 7:
        optimizer.state[params[3]]["step"] += 10


def _own_state(params, optimizer, k):
    if k == 7:
        optimizer.state[params[1]]["exp_avg"] = torch.ones(4)


def _loaded(params, optimizer, k):
    if k == 7:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def _infinite(params, optimizer, k):
    if k == 7:
        optimizer.param_groups[0]["betas"] = (0.9, 1e200)  # Python raises where it is a power
        with pytest.raises(OverflowError):
            optimizer.step()
        optimizer.param_groups[0]["betas"] = (0.9, 0.999)


@pytest.mark.parametrize("change", [
    _nothing, _other_rate, _equal_rate, _of_no_matter, _another_list, _fewer_groups, _another_group,
    _no_gradient, _frozen, _other_memory, _count, _own_state, _loaded, _infinite])
def test_whole_steps(monkeypatch, change):
    params, state, taken = in_groups(monkeypatch, change, True)
    assert (params, state) == in_groups(monkeypatch, change, False)[:2]
    if change not in (_equal_rate, _of_no_matter):  # where options are other objects every time
        assert sum(taken) >= (2 if change is _no_gradient else 6) and taken[-1]


def test_a_whole_step_of_hooks():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer, told = torch.optim.SGD([p], lr=0.1), []
    for k in range(9):
        p.grad = torch.ones(2)
        if k == 6:
            optimizer.register_step_pre_hook(lambda *given: told.append(given))
        optimizer.step()
    assert len(told) == 3 and optimizer._whole[1] is not None
    torch.testing.assert_close(p.detach(), torch.full((2,), 0.1))
