"""autograd.grad in compiled functions: a call like any other, also where it is differentiated."""

from itertools import pairwise

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler.trace import Tracer

CALLS = 5


def network(*sizes):
    torch.manual_seed(0)
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def heat(model):
    """An equation of derivatives of what a network computes."""
    def residual(points):
        points = points.detach().requires_grad_()
        u = model(points)
        (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
        return (first[:, 1] - second[:, 0]).square().mean()
    return residual


def penalised(model):
    """A critic whose slope is to be one."""
    def loss(points):
        points = points * 2 + 1
        points.requires_grad_()
        score = model(points)
        (slope,) = torch.autograd.grad(score, points, torch.ones_like(score), create_graph=True)
        return score.mean() + (slope.norm(2, 1) - 1).square().mean()
    return loss


def meta(model):
    """What the parameters would be after a step."""
    def loss(points):
        first, *others = model.parameters()
        inner = model(points).square().mean()
        (slope, *slopes) = torch.autograd.grad(inner, [first, *others], create_graph=True)
        return nn.functional.linear(points, first - 0.1 * slope).square().sum() + sum(
            s.square().sum() for s in slopes)
    return loss


def through_values(model):
    """With respect to what was computed on the way; one that is not used has no gradient."""
    def loss(points):
        hidden = model[0](points)
        unused = hidden * 2
        out = model[1:](hidden).sum()
        slope, none = torch.autograd.grad(out, [hidden, unused], create_graph=True,
                                          allow_unused=True)
        assert none is None
        return (slope * hidden).sum()
    return loss


def not_again(model):
    """Without a graph behind gradients."""
    def loss(points):
        out = model(points).sum()
        grads = torch.autograd.grad(out, [*model.parameters()], retain_graph=True)
        return out * sum(g.sum() for g in grads)
    return loss


PROGRAMS = [heat, penalised, meta, through_values, not_again]


def trained(program, compiled, whole_step):
    model = network(2, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = program(model)
    if compiled and not whole_step:
        loss_of = torch.compile(loss_of)

    def step(points):
        optimizer.zero_grad()
        loss = loss_of(points)
        loss.backward()
        optimizer.step()
        return loss

    if compiled and whole_step:
        step = torch.compile(step)
    torch.manual_seed(1)
    return [step(torch.rand(6, 2)).item() for _ in range(CALLS)]


@pytest.mark.parametrize("whole_step", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_are_those_of_eager(program, whole_step):
    expected = trained(program, False, whole_step)
    assert trained(program, True, whole_step) == pytest.approx(expected, rel=1e-4)


def test_gradients_are_part_of_the_program(monkeypatch):
    model = network(2, 8, 1)
    ended, flush = [], Tracer.flush
    monkeypatch.setattr(Tracer, "flush", lambda self, why: ended.append(why) or flush(self, why))
    compiled = torch.compile(meta(model))
    for _ in range(4):
        ended.clear()
        compiled(torch.ones(3, 2)).backward()
    assert ended == ["the end"]


def test_hooks_of_leaves_are_told():
    weight, seen = torch.ones(3, requires_grad=True), []
    weight.register_hook(lambda g: seen.append(g.tolist()))
    compiled = torch.compile(lambda x: torch.autograd.grad((weight * x).sum(), weight)[0])
    for k in range(4):
        assert compiled(torch.full((3,), float(k))).tolist() == [k] * 3
    assert seen == [[k] * 3 for k in range(4)]


def test_the_second_time_is_refused():
    def twice(x):
        y = x.exp().sum()
        torch.autograd.grad(y, x)
        return torch.autograd.grad(y, x)

    for _ in range(3):
        with pytest.raises(RuntimeError, match="a second time"):
            torch.compile(twice)(torch.ones(2, requires_grad=True))


def test_a_graph_that_began_outside():
    weight = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda y: torch.autograd.grad((y * y).sum(), weight)[0])
    for k in range(4):
        assert compiled(weight * k).tolist() == [2.0 * k * k] * 3


# -- other ways back -------------------------------------------------------------------------------


def two_players(actor, critic):
    """Each has an optimizer; the actor goes back through the critic, and leaves gradients there."""
    first, second = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (critic, actor))

    def step(x):
        with torch.no_grad():
            goal = critic(actor(x) * 0.5)
        judged = (critic(x) - goal).square().mean()
        first.zero_grad()
        judged.backward()
        first.step()
        score = -critic(actor(x)).mean()
        second.zero_grad()
        score.backward()
        second.step()
        return judged + score
    return step


def test_all_of_two_players_is_learnt(monkeypatch):
    """Also what comes after an optimizer's step, and where gradients were left of the last call."""
    torch.manual_seed(0)
    models = [network(2, 6, 2), network(2, 6, 1)]
    twins = [network(2, 6, 2), network(2, 6, 1)]
    for model, twin in zip(models, twins, strict=True):
        twin.load_state_dict(model.state_dict())
    plain, compiled = two_players(*models), torch.compile(two_players(*twins))
    ended, flush = [], Tracer.flush
    monkeypatch.setattr(Tracer, "flush", lambda self, why: ended.append(why) or flush(self, why))
    for _ in range(6):
        ended.clear()
        x = torch.randn(5, 2)
        assert plain(x).item() == pytest.approx(compiled(x).item(), rel=1e-4)
    assert [getattr(why, "__name__", why) for why in ended[:2]] == ["step", "step"]
    assert len(ended) <= 4
    assert all(type(why) is str or why.__name__ == "step" for why in ended)


@pytest.mark.parametrize("derive", [torch.func.jacrev, torch.func.jacfwd, torch.func.hessian])
def test_derivatives_of_functions(derive):
    weight, x = torch.eye(3) + 0.5, torch.tensor([0.1, -0.2, 0.3])
    derived = derive(lambda v: torch.tanh(weight @ v).sum() if derive is torch.func.hessian
                     else torch.tanh(weight @ v))
    compiled = torch.compile(lambda v: derived(v) * 2)
    for _ in range(5):
        assert torch.allclose(compiled(x), derived(x) * 2, atol=1e-6)


def test_gradients_of_nothing_are_refused():
    def f(x):
        with pytest.raises(RuntimeError, match="cannot be empty"):
            torch.autograd.grad((x * x).sum(), [])
        return x + 1

    compiled = torch.compile(f)
    for _ in range(5):
        assert compiled(torch.ones(2, requires_grad=True)).tolist() == [2, 2]


def test_what_is_always_differentiated_anew_runs_eagerly():
    """Where a walk leads out of a segment, what is behind it would be computed again, op by op."""
    def f(x):
        y = (x * 2).exp()
        leaf = torch.zeros_like(y, requires_grad=True)  # nothing that is computed: a segment ends
        (g,) = torch.autograd.grad(y, x, leaf, create_graph=True)
        return torch.autograd.grad(g.sum(), leaf)[0]

    compiled, x = torch.compile(f), torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match=r"f differentiates gradients .* runs eagerly from now on"):
        for _ in range(20):
            assert torch.allclose(compiled(x), 2 * (x * 2).exp())
    assert compiled.given_up


def test_gradients_of_every_example_are_computed_together(monkeypatch):
    from flambeau.func import batch

    weight = torch.eye(3) + 0.5
    per_example = torch.func.vmap(torch.func.grad(lambda w, x: torch.tanh(x @ w).square().sum()),
                                  (None, 0))
    expected = per_example(weight, torch.eye(3))
    compiled = torch.compile(per_example)
    monkeypatch.setattr(batch, "_one_by_one", None)
    for _ in range(12):
        assert torch.allclose(compiled(weight, torch.eye(3)), expected, atol=1e-6)


def test_what_is_behind_the_parts_of_a_function_is_gone_back_through_once():
    """A value is read in between: what was computed before has a graph that the rest goes on."""
    weight = torch.tensor([0.5, -0.3], requires_grad=True)

    def f(x):
        a = x * weight
        b = (a * weight).tanh()
        if b.sum() > 9:
            return a
        (g,) = torch.autograd.grad((b * a * weight).sum(), a, create_graph=True)
        return g

    compiled, x = torch.compile(f), torch.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(4):
        expected, found = (torch.autograd.grad(h(x).square().sum(), [weight, x])
                           for h in (f, compiled))
        for one, two in zip(expected, found, strict=True):
            assert torch.allclose(one, two, atol=1e-6)


@pytest.mark.filterwarnings("ignore:compile")
def test_gradients_of_steps_taken_by_gradients_of_many_tasks():
    """MAML by functions: what is kept between parts is no parent of a gradient taken on the way."""
    torch.manual_seed(0)
    w, tasks = torch.randn(3, 3), torch.randn(CALLS, 4, 5, 3)

    def after_a_step(p, x):
        g = torch.func.grad(lambda p: (x @ p).square().mean())(p)
        return (x @ (p - 0.1 * g)).square().mean()

    def step(xs):
        def mean(p):
            return torch.func.vmap(after_a_step, (None, 0))(p, xs).mean()
        return torch.func.grad_and_value(mean)(w.detach())

    compiled = torch.compile(step)
    for xs in tasks:
        for a, b in zip(compiled(xs), step(xs), strict=True):
            torch.testing.assert_close(a, b)
