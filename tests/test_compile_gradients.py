"""Gradients in compiled steps: added up, cleared, scaled and clipped as they are in eager."""

import pytest

import flambeau as torch
from flambeau import nn

CALLS = 12


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


# -- steps -----------------------------------------------------------------------------------------


def backward_only(model):
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss
    return step


def in_parts(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        for part in x.split(2):
            (model(part).square().mean() * 0.5).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return model(x).sum()
    return step


def cleared_at_the_end(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        for part in x.split(3):
            model(part).square().mean().backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        return model(x).sum()
    return step


def zeroed(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return step


def zeroed_on_the_way(model):
    def step(x):
        model(x).square().mean().backward()
        total = sum(p.grad.sum() for p in model.parameters())
        model.zero_grad(set_to_none=False)
        model(x).sum().backward()
        return total * 1.0
    return step


def scaled(model):
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        for p in model.parameters():
            p.grad.mul_(0.5)
        return loss
    return step


def assigned(model):
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        for p in model.parameters():
            p.grad = p.grad * 0.5
        return loss
    return step


def returned(model):
    def step(x):
        model(x).square().mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])
    return step


STEPS = (backward_only, in_parts, cleared_at_the_end, zeroed, zeroed_on_the_way, scaled, assigned,
         returned)

# -- what happens between calls --------------------------------------------------------------------


def nothing(model, k):
    pass


def forgotten_now_and_then(model, k):
    if k % 3 == 2:
        model.zero_grad()


def forgotten_every_other_time(model, k):
    if k % 2:
        for p in model.parameters():
            p.grad = None


def one_is_forgotten(model, k):
    if k > 3 and k % 2:
        model[0].bias.grad = None


def one_is_replaced(model, k):
    if k % 3 == 1:
        model[2].bias.grad = torch.ones(1)


def two_share_memory(model, k):
    if k == 5 and model[2].weight.grad is not None:
        model[0].bias.grad = model[2].weight.grad.view(4)


def one_is_frozen(model, k):
    if k in (4, 8):
        model[0].weight.requires_grad_(k == 8)


BETWEEN = (nothing, forgotten_now_and_then, forgotten_every_other_time, one_is_forgotten,
           one_is_replaced, two_share_memory, one_is_frozen)


def same(a, b) -> bool:
    return a is b is None or (a is not None and b is not None
                              and torch.allclose(a, b, rtol=1e-4, atol=1e-5))


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("make", STEPS)
def test_gradients_mean_what_they_mean_in_eager(make, between, fullgraph):
    one, two = network(), network()
    eager, compiled = make(one), torch.compile(make(two), fullgraph=fullgraph)
    for k in range(CALLS):
        torch.manual_seed(k)
        x = torch.randn(5, 3)
        assert same(eager(x), compiled(x)), k
        for (name, p), q in zip(one.named_parameters(), two.parameters(), strict=True):
            assert same(p, q), (k, name)
            assert same(p.grad, q.grad), (k, name, p.grad, q.grad)
        between(one, k)
        between(two, k)
    if fullgraph and between is not two_share_memory:
        assert compiled.report.calls < CALLS  # Python was skipped in some


@pytest.mark.parametrize("make", [backward_only, in_parts, cleared_at_the_end])
def test_python_is_skipped_once_the_path_is_known(make):
    model = network()
    step = torch.compile(make(model), fullgraph=True)
    x = torch.randn(5, 3)
    for _ in range(4):
        step(x)
    traced = step.report.calls
    for _ in range(5):
        step(x)
    assert step.report.calls == traced


def test_arguments_that_have_gradients_already():
    weight = torch.randn(3, requires_grad=True)

    @torch.compile(fullgraph=True)
    def step(x):
        weight.grad = None
        (x * weight).sum().backward()
        return x * 1.0

    for k in range(12):
        x = torch.ones(4, 3, requires_grad=True)
        if k % 3 == 1:
            x.grad = torch.full((4, 3), 5.0)
        expected = weight.detach() + (5.0 if k % 3 == 1 else 0.0)
        step(x)
        assert torch.allclose(x.grad, expected.expand(4, 3)), k
        assert weight.grad.tolist() == [4.0] * 3


def test_what_only_another_step_trains_is_cleared_too():
    """zero_grad inside a step forgets gradients of parameters that the step itself never uses."""
    def trained(fullgraph):
        torch.manual_seed(0)
        trunk, heads = nn.Linear(3, 3), [nn.Linear(3, 1), nn.Linear(3, 1)]
        every = [p for m in (trunk, *heads) for p in m.parameters()]
        optimizer = torch.optim.SGD(every, lr=0.1)

        def step_of(head):
            def step(x):
                optimizer.zero_grad()
                head(trunk(x)).square().mean().backward()
                optimizer.step()
            return step if fullgraph is None else torch.compile(step, fullgraph=fullgraph)

        steps = [step_of(head) for head in heads]
        for k, which in enumerate((0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1)):
            torch.manual_seed(k)
            steps[which](torch.randn(5, 3))
        return torch.cat([p.detach().flatten() for p in every])

    expected = trained(None)
    for fullgraph in (False, True):
        assert torch.allclose(trained(fullgraph), expected, rtol=1e-4, atol=1e-6)


def test_memory_that_gradients_are_added_to_is_seen_at_once():
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.zeros(3)
    array, view, seen = weight.grad.numpy(), weight.grad.view(3), []

    @torch.compile
    def step(x):
        (weight * x).sum().backward()
        seen.append((array.tolist(), view.tolist(), weight.grad.tolist()))

    for k in range(1, 6):
        step(torch.full((3,), float(k)))
    totals = [[float(sum(range(1, k + 1)))] * 3 for k in range(1, 6)]
    assert seen == [(t, t, t) for t in totals]


def test_scripts_hold_no_gradients():
    model = network()
    step = torch.compile(backward_only(model), fullgraph=True)
    x = torch.randn(5, 3)
    for _ in range(5):
        step(x)
    grad = model[0].weight.grad
    before = grad.clone()
    model.zero_grad()
    step(x)
    assert torch.equal(grad, before) and model[0].weight.grad is not grad


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("to_none", [False, True])
def test_state_that_changes_after_an_optimizer_has_run(to_none, fullgraph):
    """An average of weights and a count belong to the call wherever they are in it."""
    def seen(run):
        weight = nn.Parameter(torch.ones(3))
        average, count, norm = torch.zeros(3), torch.zeros(()), nn.BatchNorm1d(3)
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad(set_to_none=to_none)
            norm(x)
            ((weight * x) ** 2).mean().backward()
            optimizer.step()
            with torch.no_grad():
                average.mul_(0.9).add_(weight * 0.1)
                count.add_(1)
            return x * 2

        step, found = run(step), []
        for k in range(6):
            step(torch.arange(6.0).view(2, 3) + k)
            found.append([*weight.tolist(), *average.tolist(), count.item(),
                          norm.num_batches_tracked.item()])
        return found

    found = seen(lambda step: torch.compile(step, fullgraph=fullgraph))
    for one, two in zip(found, seen(lambda step: step), strict=True):
        assert one == pytest.approx(two, rel=1e-5)
