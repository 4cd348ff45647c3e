"""Ways back from several results of a compiled function, together and one by one."""

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler.graph_steps import CompiledBack


class Heads(nn.Module):
    """A trunk, and results that come from it by themselves or from one another."""

    def __init__(self):
        super().__init__()
        self.trunk, self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        h = self.trunk(x).tanh()
        mean, spread = self.one(h), self.two(h)
        return mean * spread.exp(), mean, spread, h


#: what of the results a loss is made of
LOSSES = {
    "all": lambda r: sum(t.square().sum() for t in r),
    "two heads": lambda r: (r[1] * r[2]).sum(),
    "one head": lambda r: r[2].sum(),
    "the last": lambda r: r[0].sum(),
    "the last and one head": lambda r: (r[0] + r[1]).sum(),
    "trunk": lambda r: r[3].sum(),
    "the last and trunk": lambda r: r[0].sum() + r[3].sum(),
}


def gradients(model, function, loss):
    model.zero_grad()
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    loss(function(x)).backward()
    return [x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_eager(name):
    torch.manual_seed(0)
    model = Heads()
    compiled = torch.compile(model)
    for _ in range(4):
        for expected, found in zip(gradients(model, model, LOSSES[name]),
                                   gradients(model, compiled, LOSSES[name]), strict=True):
            assert (expected is None) == (found is None)
            assert expected is None or torch.allclose(expected, found, atol=1e-6)


def test_a_trunk_is_gone_back_through_once(monkeypatch):
    model = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)])
    run, pull = [], CompiledBack.pull
    monkeypatch.setattr(CompiledBack, "pull", lambda self, *a: run.append(self) or pull(self, *a))

    @torch.compile
    def heads(x):
        h = model[0](x).tanh()
        return model[1](h), model[2](h)

    for _ in range(3):
        run.clear()
        a, b = heads(torch.ones(5, 3))
        (a.sum() + b.sum()).backward()
    assert len(run) == 1


def test_what_is_not_used_does_no_harm():
    """Zeros in place of a missing gradient would become nan where a slope is infinite."""
    @torch.compile
    def roots(x):
        y = x * x
        return y.sqrt(), y + y * y

    for _ in range(4):
        x = torch.zeros(2, requires_grad=True)
        roots(x)[1].sum().backward()
        assert x.grad.tolist() == [0, 0]


def test_results_that_share_nothing_are_apart():
    one, two = (torch.ones(2, requires_grad=True) for _ in range(2))
    apart = torch.compile(lambda: ((one * one).exp(), (two * two).exp()))
    for _ in range(4):
        a, b = apart()
        a.sum().backward()
        b.sum().backward()  # nothing of it has been freed
    assert torch.equal(one.grad, two.grad)


def test_the_second_time_is_refused_as_in_eager():
    x = torch.ones(2, requires_grad=True)

    def heads(x):
        h = x.exp()
        return h * 2, h * 3

    compiled = torch.compile(heads)
    for function in (heads, compiled, compiled, compiled):
        a, b = function(x)
        a.sum().backward()
        with pytest.raises(RuntimeError, match="a second time"):
            b.sum().backward()
        x.grad = None
        a, b = function(x)
        a.sum().backward(retain_graph=True)
        b.sum().backward()
        assert torch.allclose(x.grad, 5 * x.detach().exp())
        x.grad = None


def test_every_state_of_a_chain_is_a_result():
    """As many heads as there are steps: each alone would walk all of the chain behind it."""
    cell, head = nn.Linear(3, 3), nn.Linear(3, 1)

    def unrolled(x):
        found = []
        for _ in range(6):
            x = cell(x).tanh()
            found.append(head(x))
        return found

    compiled = torch.compile(unrolled)
    for _ in range(4):
        grads = []
        for function in (unrolled, compiled):
            cell.zero_grad()
            sum(y.sum() for y in function(torch.ones(2, 3))).backward()
            grads.append(cell.weight.grad)
        assert torch.allclose(*grads, atol=1e-6)
