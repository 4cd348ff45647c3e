"""Everyday code that should be one program, and what happens where a new path parts from a known
one."""

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.compiler.api import report_of


def run_both(make, calls):
    """Results of eager calls and of compiled ones, and the report; `make` gives a function."""
    expected = [one(make_call) for make_call in [make()] for one in calls]
    compiled = torch.compile(make())
    found = [one(compiled) for one in calls]
    return expected, found, report_of(compiled)


def test_what_is_filled_step_by_step_is_part_of_the_program():
    def make():
        w = torch.ones(4, requires_grad=True)

        def step(x):
            out, total, last = torch.zeros(3, 4), x.new_zeros(4), torch.empty_like(x)
            for t in range(3):
                y = x * w * (t + 1)
                out[t] = y
                total += y
            last.copy_(total)
            loss = out.sum() + (last * torch.full((4,), 0.5)).sum()
            loss.backward()
            with torch.no_grad():
                w.sub_(w.grad, alpha=0.1)
                w.grad = None
            return loss.item()
        return step

    x = torch.arange(4.0)
    expected, found, report = run_both(make, [lambda f: f(x)] * 4)
    assert found == pytest.approx(expected)
    assert not report.breaks
    assert len(report.ends) == 1


def test_new_tensors_in_a_compiled_call_are_new_each_time():
    def f(x):
        state = torch.zeros(2)
        state += x
        return state

    compiled = torch.compile(f)
    results = [compiled(torch.tensor([1.0, 2.0])) for _ in range(4)]
    results[0].add_(10)
    assert [r.tolist() for r in results] == [[11.0, 12.0], *[[1.0, 2.0]] * 3]
    leaf = torch.compile(lambda: torch.zeros(2, requires_grad=True))()
    assert leaf.requires_grad
    assert leaf.is_leaf


@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_embeddings_are_programs(layers):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(10, 8), *[nn.Linear(8, 8) for _ in range(layers)])
        return model

    index = torch.tensor([1, 4, 4, 9])
    models = make(), make()
    run = torch.compile(models[1])
    for _ in range(4):
        for model, call in zip(models, (models[0], run), strict=True):
            model.zero_grad()
            call(index).square().sum().backward()
        for p, q in zip(*(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(q.grad, p.grad)
    assert all(program is not None for _, program in report_of(run).programs)
    out = run(index)
    index.numpy()[0] = 99
    with pytest.raises(IndexError):
        out.sum().backward()


def test_a_model_that_is_evaluated_trains_as_one_program_afterwards():
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])

        def step(training):
            model.train(training)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()
        return step

    calls = [lambda f: f(True)] * 4 + [lambda f: f(False)] * 4 + [lambda f: f(True)] * 2
    expected, found, report = run_both(make, calls)
    assert found == pytest.approx(expected, rel=1e-5)
    whole = [[each.op.name for each in end.path()] for end in report.ends]
    assert [names[-1] for names in whole] == ["backward"] * 2
    assert whole[0][:3] == whole[1][:3]


def test_an_error_where_a_new_path_parts_from_a_known_one():
    w = torch.ones(4, requires_grad=True)

    def f(x, how):
        y = x * w + 1
        try:
            z = torch.cat([y, x if how else torch.ones(2, 3)])
        except RuntimeError:
            z = y * 2
        return (z * z).sum()

    compiled, x = torch.compile(f), torch.arange(4.0)
    for how in (True, True, True, False, False, True, False):
        expected, found = (g(x, how) for g in (f, compiled))
        assert found.item() == expected.item()
        grads = [torch.autograd.grad(r, w)[0] for r in (expected, found)]
        torch.testing.assert_close(grads[1], grads[0])


def test_data_is_written_within_the_program():
    def make():
        torch.manual_seed(0)
        net, slow = nn.Linear(3, 2), nn.Linear(3, 2)

        def step(x):
            loss = net(x).square().mean()
            loss.backward()
            for p in net.parameters():
                p.data.add_(p.grad.data, alpha=-0.1)
                p.grad = None
            for s, p in zip(slow.parameters(), net.parameters(), strict=True):
                s.data.copy_(0.1 * p.data + 0.9 * s.data)
            return loss.item(), slow.weight.tolist()
        return step

    x = torch.randn(4, 3)
    expected, found, report = run_both(make, [lambda f: f(x)] * 5)
    assert found == [(pytest.approx(loss), [pytest.approx(row) for row in rows])
                     for loss, rows in expected]
    assert len(report.ends) == 1


def test_a_parameter_made_in_a_compiled_call_is_one():
    holder = nn.Linear(2, 2)

    @torch.compile
    def f(x):
        holder.weight = nn.Parameter(holder.weight * 0.5 + x)
        return holder.weight.sum()

    for _ in range(3):
        f(torch.eye(2))
        assert type(holder.weight) is nn.Parameter
        assert [name for name, _ in holder.named_parameters()] == ["weight", "bias"]
        assert holder.weight.is_leaf
        assert holder.weight.requires_grad


def test_products_of_vectors_are_part_of_a_program():
    A = torch.randn(6, 6)

    def f(v):
        for _ in range(3):
            v = A @ v
            v = v / (v @ v).sqrt()
        return v @ A @ v

    compiled, v = torch.compile(f), torch.randn(6)
    for _ in range(3):
        torch.testing.assert_close(compiled(v), f(v))
    assert not report_of(compiled).breaks
    assert len(report_of(compiled).ends) == 1


def test_distributions_are_not_checked_in_compiled_calls():
    def f(logits, action):
        d = torch.distributions.Categorical(logits=logits)
        return d.log_prob(action) + d.entropy()

    compiled, logits = torch.compile(f), torch.randn(5, 3)
    action = torch.tensor([0, 1, 2, 1, 0])
    for _ in range(3):
        torch.testing.assert_close(compiled(logits, action), f(logits, action))
    assert len(report_of(compiled).ends) == 1


W = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()

WHOLE = {
    "prod of few":        lambda x: (x * W)[:, :3].prod(1).sum(),
    "irfft":              lambda x: torch.fft.irfft(torch.fft.rfft(x * W, n=12), n=12)[:, :6].sum(),
    "a number of numpy":  lambda x: (np.log(2) - x * W).square().sum() * np.float64(0.5),
    "a loss's number":    lambda x: F.huber_loss(x * W, torch.zeros(4, 6), delta=0.5),
    "an elu's number":    lambda x: F.elu(x * W, alpha=0.3).sum(),
    "a Variable":         lambda x: (torch.autograd.Variable(x * 2, requires_grad=False) * W).sum(),
    "rsample":            lambda x: torch.distributions.Normal(x * W, 1.0).rsample().sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_the_way_back_is_part_of_the_program(name):
    def step(x):
        W.grad = None
        loss = WHOLE[name](x)
        loss.backward()
        return loss.detach(), W.grad

    compiled, x = torch.compile(step), torch.randn(4, 6)
    for seed in range(4):
        torch.manual_seed(seed)
        expected = [t.clone() for t in step(x)]
        torch.manual_seed(seed)
        for found, wanted in zip(compiled(x), expected, strict=True):
            torch.testing.assert_close(found, wanted)
    assert not report_of(compiled).breaks
    assert len(report_of(compiled).ends) == 1


def test_numbers_that_a_way_back_reads_may_change():
    def step(x, delta):
        W.grad = None
        F.huber_loss(x * W, torch.zeros(4, 6), delta=delta).backward()
        return W.grad.clone()

    compiled, x = torch.compile(step), torch.randn(4, 6)
    for delta in (0.5, 0.5, 0.25, 0.125, 1.5, 0.5):
        torch.testing.assert_close(compiled(x, delta), step(x, delta))


def test_a_number_of_numpy_may_change():
    compiled = torch.compile(lambda x, n: x * n)
    for n in (0.5, 1.5, 2.5, 3.5):
        assert compiled(torch.ones(1), np.float64(n)).item() == n
    assert report_of(compiled).captured < 3


def test_tensors_of_functions_that_are_called_or_wrapped_are_traced():
    """And those in lists: nothing of them is given to the function."""
    w, layers = torch.ones(3, requires_grad=True), [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]

    def inner(depth):
        return w * 2 if depth == 0 else torch.tanh(inner(depth - 1))

    @torch.compile
    @torch.no_grad()
    def outer():
        found = inner(2)
        for layer in layers:
            found = layer(found)
        return found

    for _ in range(3):
        expected = torch.tanh(torch.tanh(w * 2))
        assert torch.allclose(outer(), layers[1](layers[0](expected)))
    segment, = torch.compiler.explain(outer).ends
    assert [each.op.name for each in segment.path()] == ["mul", "tanh", "tanh", "linear", "linear"]
