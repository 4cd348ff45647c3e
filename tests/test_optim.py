"""Optimizers by themselves: what their rules say, groups, hooks, state, schedules."""

import copy
import math

import pytest

import flambeau
from flambeau import nn, optim
from flambeau.optim import lr_scheduler, swa_utils
from flambeau.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

# What finds the minimum of a bowl, and in how many steps.
DESCENTS = {
    "SGD": ({"lr": 0.1, "momentum": 0.9}, 150),
    "Adam": ({"lr": 0.1}, 300),
    "AdamW": ({"lr": 0.1, "weight_decay": 0.0}, 300),
    "Adamax": ({"lr": 0.1}, 300),
    "NAdam": ({"lr": 0.1}, 300),
    "RAdam": ({"lr": 0.1}, 300),
    "RMSprop": ({"lr": 0.01}, 600),
    "Rprop": ({"lr": 0.1}, 100),
    "Adagrad": ({"lr": 0.5}, 300),
    "Adadelta": ({"lr": 20.0}, 600),
    "ASGD": ({"lr": 0.1}, 300),
    "Adafactor": ({"lr": 0.1}, 600),
    "LBFGS": ({"lr": 1}, 3),
    "Muon": ({"lr": 0.02, "weight_decay": 0.0}, 300),
}


def parameter(*values):
    return nn.Parameter(flambeau.tensor(values))


def with_gradient(values, gradient):
    p = parameter(*values)
    p.grad = flambeau.tensor(gradient)
    return p


@pytest.mark.parametrize("name", DESCENTS)
def test_every_optimizer_descends(name):
    options, steps = DESCENTS[name]
    goal = flambeau.tensor([[1.0, -2.0], [0.5, 3.0]])
    p = nn.Parameter(flambeau.zeros(2, 2))
    optimizer = getattr(optim, name)([p], **options)

    def closure():
        optimizer.zero_grad()
        loss = ((p - goal) ** 2).sum()
        loss.backward()
        return loss

    first = float(closure())
    for _ in range(steps):
        optimizer.step(closure)
    assert float(closure()) < 0.02 * first


def test_sgd_by_hand():
    p = with_gradient([1.0, 2.0], [0.5, -1.0])
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.5)
    optimizer.step()  # g = grad + 0.5 p, and the buffer is g
    assert p.tolist() == pytest.approx([1.0 - 0.1 * 1.0, 2.0])
    optimizer.step()
    assert p.tolist()[0] == pytest.approx(0.9 - 0.1 * (0.9 * 1.0 + 0.5 + 0.5 * 0.9))


def test_adams_first_step_has_the_length_of_the_rate():
    p = with_gradient([1.0, 2.0], [1e-3, -1e3])
    optim.Adam([p], lr=0.1).step()
    assert p.tolist() == pytest.approx([0.9, 2.1], abs=1e-4)


def test_adamw_decays_apart_from_the_gradient():
    p = with_gradient([1.0], [0.0])
    optim.AdamW([p], lr=0.1, weight_decay=0.5).step()
    assert p.item() == pytest.approx(0.95)


def test_maximize_goes_up():
    p = with_gradient([1.0], [2.0])
    optim.SGD([p], lr=0.1, maximize=True).step()
    assert p.item() == pytest.approx(1.2)


def test_muon_steps_are_orthogonal():
    """All singular values of a step are near one, whatever the gradient's are."""
    p = nn.Parameter(flambeau.zeros(3, 3))
    p.grad = flambeau.diag(flambeau.tensor([5.0, 1.0, 0.2]))
    optim.Muon([p], lr=1.0, weight_decay=0.0).step()
    for size in p.detach().diagonal().tolist():
        assert 0.5 < -size < 1.5


def test_parameters_without_gradient_are_left_alone():
    p, q = with_gradient([1.0], [1.0]), parameter(1.0)
    optimizer = optim.Adam([p, q])
    optimizer.step()
    assert q.item() == 1.0
    assert list(optimizer.state_dict()["state"]) == [0]


def test_groups_have_their_own_options():
    p, q = with_gradient([1.0], [1.0]), with_gradient([1.0], [1.0])
    optimizer = optim.SGD([{"params": [p]}, {"params": q, "lr": 0.5}], lr=0.1)
    optimizer.step()
    assert (p.item(), q.item()) == pytest.approx((0.9, 0.5))
    optimizer.add_param_group({"params": [parameter(2.0)], "lr": 1.0})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5, 1.0]
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [p]})


def test_named_parameters():
    optimizer = optim.SGD([("w", parameter(1.0)), ("b", parameter(2.0))])
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["w", "b"]
    with pytest.raises(ValueError, match="with/without names"):
        optimizer.add_param_group({"params": [parameter(1.0)]})


@pytest.mark.parametrize("name", [name for name in DESCENTS if name != "LBFGS"])
def test_a_state_dict_continues_the_path(name):
    """Half the steps, a new optimizer with the saved state, the other half."""

    def run(optimizer, p, gradients):
        for gradient in gradients:
            p.grad = gradient.clone()
            optimizer.step()

    flambeau.manual_seed(0)
    gradients = [flambeau.randn(2, 3) for _ in range(6)]
    options = DESCENTS[name][0]
    whole, halves = (nn.Parameter(flambeau.ones(2, 3)) for _ in range(2))
    run(getattr(optim, name)([whole], **options), whole, gradients)
    first = getattr(optim, name)([halves], **options)
    run(first, halves, gradients[:3])
    second = getattr(optim, name)([halves], **options)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    run(second, halves, gradients[3:])
    assert flambeau.equal(whole, halves)


def test_loading_checks_the_groups():
    saved = optim.SGD([parameter(1.0)]).state_dict()
    two = optim.SGD([{"params": [parameter(1.0)]}, {"params": [parameter(2.0)]}])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        two.load_state_dict(saved)
    with pytest.raises(ValueError, match="match the size"):
        optim.SGD([parameter(1.0), parameter(2.0)]).load_state_dict(saved)


def test_hooks_run_in_order_and_can_be_removed():
    seen = []
    p = with_gradient([1.0], [1.0])
    optimizer = optim.SGD([p])
    handles = [
        optimizer.register_step_pre_hook(lambda *_: seen.append("pre")),
        optimizer.register_step_post_hook(lambda *_: seen.append("post")),
        register_optimizer_step_pre_hook(lambda *_: seen.append("global pre")),
        register_optimizer_step_post_hook(lambda *_: seen.append("global post")),
    ]
    optimizer.step()
    assert seen == ["global pre", "pre", "post", "global post"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(seen) == 4


def test_state_dict_hooks_may_replace_it():
    optimizer = optim.SGD([parameter(1.0)], lr=0.1)
    optimizer.register_state_dict_post_hook(lambda _, state: {**state, "note": 1})
    assert optimizer.state_dict()["note"] == 1
    changed = copy.deepcopy(optimizer.state_dict())
    changed["param_groups"][0]["lr"] = 0.7
    optimizer.register_load_state_dict_pre_hook(lambda *_: changed)
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.7


def test_own_optimizers_have_hooks_too():
    class Mine(Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.5})

        def step(self, closure=None):
            with flambeau.no_grad():
                for p in self.param_groups[0]["params"]:
                    p -= 0.5 * p.grad

    seen = []
    p = with_gradient([1.0], [1.0])
    optimizer = Mine([p])
    optimizer.register_step_post_hook(lambda *_: seen.append(p.item()))
    optimizer.step()
    assert seen == [0.5]


def test_zero_grad():
    p = with_gradient([1.0], [3.0])
    optimizer = optim.SGD([p])
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0]
    optimizer.zero_grad()
    assert p.grad is None


def test_printed_form():
    text = repr(optim.SGD([parameter(1.0)], lr=0.1))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0\n")
    assert "    lr: 0.1\n" in text
    assert text.endswith("    weight_decay: 0\n)")


def test_swapped_in_parameters_are_swapped_out_again():
    p = with_gradient([1.0], [1.0])
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer.step()
    other = with_gradient([5.0], [1.0])
    saved = copy.deepcopy(optimizer.state_dict())
    with optim.swap_in_optimizer_params_and_state(optimizer, {"p": other}, saved):
        optimizer.step()
    assert other.item() == pytest.approx(5.0 - 0.1 * 1.9)
    assert p.item() == pytest.approx(0.9)
    assert optimizer.param_groups[0]["params"][0] is p


# -- schedules ----------------------------------------------------------------------------------


def rates(make, steps):
    optimizer = optim.SGD([parameter(1.0)], lr=1.0, momentum=0.9)
    scheduler = make(optimizer)
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    assert scheduler.get_last_lr() == [found[-1]]
    return found


S = lr_scheduler
SCHEDULES = {
    "StepLR": (lambda o: S.StepLR(o, 2, 0.5), [1, 1, 0.5, 0.5, 0.25]),
    "MultiStepLR": (lambda o: S.MultiStepLR(o, [1, 3, 3], 0.5), [1, 0.5, 0.5, 0.125]),
    "ExponentialLR": (lambda o: S.ExponentialLR(o, 0.5), [1, 0.5, 0.25]),
    "ConstantLR": (lambda o: S.ConstantLR(o, 0.5, 2), [0.5, 0.5, 1, 1]),
    "LinearLR": (lambda o: S.LinearLR(o, 0.5, 1.0, 2), [0.5, 0.75, 1, 1]),
    "PolynomialLR": (lambda o: S.PolynomialLR(o, 4), [1, 0.75, 0.5, 0.25, 0, 0]),
    "LambdaLR": (lambda o: S.LambdaLR(o, lambda e: 1 / (1 + e)), [1, 0.5, 1 / 3]),
    "MultiplicativeLR": (lambda o: S.MultiplicativeLR(o, lambda e: 0.5), [1, 0.5, 0.25]),
    "CosineAnnealingLR": (lambda o: S.CosineAnnealingLR(o, 2), [1, 0.5, 0, 0.5, 1]),
    "warm restarts": (lambda o: S.CosineAnnealingWarmRestarts(o, 2), [1, 0.5, 1, 0.5]),
    "CyclicLR": (lambda o: S.CyclicLR(o, 0, 1, 2), [0, 0.5, 1, 0.5, 0]),
    "OneCycleLR": (
        lambda o: S.OneCycleLR(o, 1.0, 5, pct_start=0.4, anneal_strategy="linear"),
        [0.04, 1.0, 2 / 3, 1 / 3, 0],
    ),
    "SequentialLR": (
        lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 9), S.ExponentialLR(o, 0.5)], [2]),
        [0.1, 0.1, 1, 0.5],
    ),
    "ChainedScheduler": (
        lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.5, 2), S.ExponentialLR(o, 0.5)]),
        [0.5, 0.25, 0.25],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    make, expected = SCHEDULES[name]
    assert rates(make, len(expected) - 1) == pytest.approx(expected, abs=1e-5)


def test_the_momentum_cycles_against_the_rate():
    optimizer = optim.Adam([parameter(1.0)])
    scheduler = S.CyclicLR(optimizer, 0.1, 0.2, 2, base_momentum=0.8, max_momentum=0.9)
    found = []
    for _ in range(3):
        found.append(optimizer.param_groups[0]["betas"][0])
        optimizer.step()
        scheduler.step()
    assert found == pytest.approx([0.9, 0.85, 0.8])


def test_plateaus():
    optimizer = optim.SGD([parameter(1.0)], lr=1.0)
    scheduler = S.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    found = []
    for metric in (3.0, 2.0, 2.0, 2.0, 1.0, 1.0, flambeau.tensor(1.0)):
        scheduler.step(metric)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]


def test_a_rate_held_as_a_tensor_is_changed_in_place():
    rate = flambeau.tensor(1.0)
    optimizer = optim.SGD([parameter(1.0)], lr=rate)
    scheduler = S.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    scheduler.step()
    assert rate.item() == 0.5
    assert optimizer.param_groups[0]["lr"] is rate


def test_swa_averages_weights():
    model = nn.Linear(2, 1)
    average = swa_utils.AveragedModel(model)
    seen = []
    for value in (1.0, 2.0, 6.0):
        with flambeau.no_grad():
            model.weight.fill_(value)
        average.update_parameters(model)
        seen.append(average.module.weight[0, 0].item())
    assert seen == pytest.approx([1.0, 1.5, 3.0])
    assert int(average.n_averaged) == 3


def test_swalr_ends_at_its_rate():
    optimizer = optim.SGD([parameter(1.0)], lr=1.0)
    scheduler = swa_utils.SWALR(optimizer, swa_lr=0.1, anneal_epochs=4)
    for _ in range(6):
        optimizer.step()
        scheduler.step()
    assert math.isclose(optimizer.param_groups[0]["lr"], 0.1)
