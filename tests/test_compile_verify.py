"""verify=n: programs that train are compared with eager too, and leave no trace of that."""

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler import fewer
from flambeau.engine.launch import Launch, Live
from flambeau.nn import functional as F


def trained(compiled: dict | None, calls=6):
    """Everything that is left of a few steps with statistics, dropout and gradients added up."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(),
                          nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y, last):
        for part in (0, 1):
            F.cross_entropy(model(x[part::2]), y[part::2]).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        return model(x).sum()

    run = step if compiled is None else torch.compile(step, **compiled)
    found = []
    for k in range(calls):
        x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
        found.append(run(x, y, k % 3 == 2).detach())
        found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [t.clone() for t in (*found, *model.state_dict().values(), torch.rand(3))]


@pytest.mark.parametrize("fullgraph", [False, True])
def test_nothing_is_left_of_a_comparison(fullgraph):
    one = trained({"fullgraph": fullgraph, "verify": 6})
    two = trained({"fullgraph": fullgraph})
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    for a, b in zip(one, trained(None), strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.fixture
def spoilt(monkeypatch):
    """Programs whose launches differ from those recorded: called with what spoils one."""
    def spoil(change):
        def fused(launches, results, fused=fewer.fused):
            return [change(step) if isinstance(step, Launch) else step
                    for step in fused(launches, results)]

        monkeypatch.setattr(fewer, "fused", fused)

    return spoil


def with_other_numbers(step: Launch) -> Launch:
    """The same launch, with a number of its own in place of those that are given."""
    return step.moved(tuple(0.75 if isinstance(a, Live) else a for a in step.args))


def test_a_training_step_that_is_wrong_names_the_op(spoilt):
    weight = torch.ones(3, requires_grad=True)

    def step(x):
        y = (weight * x).tanh()
        y = F.leaky_relu(y - 1, 0.25)
        (y * y).sum().backward()
        return y

    compiled = torch.compile(step, verify=4)
    compiled(torch.ones(3))
    spoilt(with_other_numbers)
    before = weight.grad.clone()
    weight.grad = None
    with pytest.raises(RuntimeError, match=r"verify: leaky_relu differs from eager by up to 0\.1"):
        compiled(torch.ones(3))
    assert weight.grad is None or torch.allclose(weight.grad, before)


def test_memory_that_is_changed_otherwise_is_told_of(spoilt):
    total = torch.zeros(3)

    @torch.compile(verify=4)
    def added(x):
        total.add_(F.leaky_relu(x, 0.25))

    added(-torch.ones(3))
    spoilt(with_other_numbers)
    with pytest.raises(RuntimeError, match=r"leaky_relu|add_"):
        added(-torch.ones(3))
    assert total.tolist() == [-0.25] * 3  # as before the call


def test_another_way_back_is_told_of(monkeypatch):
    weight = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda x: (weight * x).exp() * 2.0, verify=4)
    compiled(torch.ones(3))
    from flambeau.compiler.graph_steps import CompiledBack

    pull = CompiledBack.pull

    def wrong(self, node, g):
        return [None if x is None else x * 3 for x in pull(self, node, g)]

    monkeypatch.setattr(CompiledBack, "pull", wrong)
    with pytest.raises(RuntimeError, match=r"the way back from .*mul differs from eager"):
        compiled(torch.ones(3))


def test_random_numbers_go_on_where_they_would():
    drawn = []
    for verified in (0, 4):
        generator = torch.Generator().manual_seed(3)
        noisy = torch.compile(lambda x, g=generator: F.dropout(x, 0.5) + torch.rand(
            3, generator=g), verify=verified)
        torch.manual_seed(1)
        drawn.append([noisy(torch.ones(3)).tolist() for _ in range(4)] + [torch.rand(1).item()])
    assert drawn[0] == drawn[1]


def test_hooks_are_not_told_of_gradients_that_are_only_compared():
    weight, told = torch.ones(3, requires_grad=True), []

    @torch.compile(verify=4)
    def f(x):
        y = weight * x
        y.register_hook(lambda g: told.append(g.sum().item()))
        return (y * 2).sum()

    for _ in range(3):
        f(torch.ones(3)).backward()
    assert told == [6.0] * 3
