"""Checkpointing: the gradients of a plain run, from a second run that draws the same numbers."""

import warnings
import weakref

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils import checkpoint as ck


def run(call):
    """Gradients of a small network that `call` runs, and the random numbers drawn afterwards."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4), nn.Tanh())
    x = torch.randn(3, 4, requires_grad=True)
    y = call(model, x)
    after = torch.rand(2).tolist()
    (y**2).sum().backward()
    return [x.grad.tolist(), *(p.grad.tolist() for p in model.parameters()), after,
            torch.rand(2).tolist()]


def nested(model, x):
    def outer(x):
        return model[3:](ck.checkpoint(model[:3], x, use_reentrant=False))

    return ck.checkpoint(outer, x, use_reentrant=False)


CALLS = {
    "reentrant": lambda m, x: ck.checkpoint(m, x, use_reentrant=True),
    "not reentrant": lambda m, x: ck.checkpoint(m, x, use_reentrant=False),
    "to the end": lambda m, x: ck.checkpoint(m, x, use_reentrant=False, early_stop=False),
    "sequential": lambda m, x: ck.checkpoint_sequential(m, 2, x, use_reentrant=False),
    "nested": nested,
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_and_random_numbers_are_those_of_a_plain_run(name):
    assert run(CALLS[name]) == run(lambda model, x: model(x))


def test_what_is_between_is_not_kept():
    kept = []

    def function(x):
        middle = x.exp()
        kept.append(weakref.ref(middle))  # sin keeps what it was given
        return middle.sin()

    x = torch.ones(5, requires_grad=True)
    plain = function(x)
    assert kept[0]() is not None
    y = ck.checkpoint(function, x, use_reentrant=False)
    assert kept[1]() is None
    y.sum().backward()
    assert len(kept) == 3 and plain is not None


@pytest.mark.parametrize("early_stop, ran", [(True, 1), (False, 2)])
def test_the_second_run_ends_when_everything_is_there(early_stop, ran):
    ends = []

    def function(x):
        y = x.exp().sin()
        ends.append(1)  # nothing after the last kept tensor is of use
        return y

    x = torch.ones(2, requires_grad=True)
    ck.checkpoint(function, x, use_reentrant=False, early_stop=early_stop).sum().backward()
    assert len(ends) == ran


def test_keywords_nested_inputs_and_two_backwards():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = ck.checkpoint(lambda d, power: (d["x"] ** power).exp(), {"x": x}, power=2,
                      use_reentrant=False)
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()
    y.sum().backward()
    assert torch.equal(x.grad, 2 * first)
    assert torch.allclose(first, 2 * x.detach() * (x.detach() ** 2).exp())


def test_second_derivatives():
    x = torch.tensor([0.3, 1.2], requires_grad=True)

    def derivatives(y):
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    def function(x):
        return (x.sin() * x).exp()

    plain = derivatives(function(x))
    assert torch.allclose(derivatives(ck.checkpoint(function, x, use_reentrant=False)), plain)


def test_a_second_run_that_differs_is_told():
    calls = []

    def shrinking(x):
        calls.append(1)
        return (x[: 3 - len(calls)] * 2).exp()

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ck.CheckpointError, match="different metadata"):
        ck.checkpoint(shrinking, x, use_reentrant=False).sum().backward()

    calls.clear()

    def shorter(x):
        calls.append(1)
        return x.exp().sin() if len(calls) == 1 else x * 1

    with pytest.raises(ck.CheckpointError, match="different number of tensors"):
        ck.checkpoint(shorter, x, use_reentrant=False).sum().backward()


def test_arguments_are_checked():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="Unexpected keyword"):
        ck.checkpoint(torch.exp, x, use_reentrant=True, power=2)
    with pytest.raises(ValueError, match="determinism_check"):
        ck.checkpoint(torch.exp, x, use_reentrant=False, determinism_check="strict")
    with pytest.warns(UserWarning, match="use_reentrant"):
        ck.checkpoint(torch.exp, x)
    with pytest.warns(UserWarning, match="requires_grad"):
        ck.checkpoint(torch.exp, x.detach(), use_reentrant=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        assert not ck.checkpoint(torch.exp, x, use_reentrant=False).requires_grad


def test_context_fn_surrounds_each_run():
    class Count:
        entered = 0

        def __enter__(self):
            self.entered += 1

        def __exit__(self, *_):
            pass

    first, second = Count(), Count()
    x = torch.ones(2, requires_grad=True)
    y = ck.checkpoint(lambda x: x.exp().sin(), x, use_reentrant=False,
                      context_fn=lambda: (first, second))
    assert (first.entered, second.entered) == (1, 0)
    y.sum().backward()
    assert (first.entered, second.entered) == (1, 1)
