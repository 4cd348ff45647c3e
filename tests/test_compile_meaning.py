"""What compiled calls depend on besides their arguments: memory under two names, state in objects,
autocast, generators of random numbers."""

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

BOTH = pytest.mark.parametrize("fullgraph", [False, True])

# -- memory ----------------------------------------------------------------------------------------


@BOTH
def test_arguments_that_share_memory_after_others_did_not(fullgraph):
    def doubled(a, b):
        a.mul_(2)
        return a + b

    compiled = torch.compile(doubled, fullgraph=fullgraph)
    kept = torch.ones(4)
    for _ in range(4):
        assert compiled(torch.ones(4), kept).tolist() == [3.0] * 4
    assert compiled(kept, kept).tolist() == [4.0] * 4
    for make in (lambda: (torch.ones(4),) * 2, lambda: (torch.arange(8.0)[:4],) * 2):
        for _ in range(3):
            assert torch.equal(compiled(*make()), doubled(*make()))
    for shift in (0, 2, 4):
        one, two = torch.arange(8.0), torch.arange(8.0)
        found, expected = (f(x[:4], x[shift:shift + 4])
                           for f, x in ((compiled, one), (doubled, two)))
        assert torch.equal(found, expected) and torch.equal(one, two)


@BOTH
def test_one_tensor_in_two_places_and_then_two(fullgraph):
    compiled = torch.compile(lambda a, b: a - b, fullgraph=fullgraph)
    x = torch.ones(4)
    for _ in range(4):
        assert compiled(x, x).tolist() == [0.0] * 4
    for _ in range(4):
        assert compiled(x, torch.zeros(4)).tolist() == [1.0] * 4
    leaf = torch.ones(4, requires_grad=True)
    product = torch.compile(lambda a, b: (a * b).sum().backward(), fullgraph=fullgraph)
    for _ in range(4):
        product(torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True))
    product(leaf, leaf)
    assert leaf.grad.tolist() == [2.0] * 4


def test_statistics_are_seen_at_once():
    def seen(run):
        torch.manual_seed(0)
        norm, found = nn.BatchNorm1d(3), []
        array, view = norm.running_mean.numpy(), norm.running_mean.view(3)

        def step(x):
            y = norm(x * 1.0)
            found.append((array.tolist(), view.tolist(), norm.running_var.tolist()))
            return y

        step = run(step)
        for k in range(6):
            torch.manual_seed(k)
            step(torch.randn(4, 3))
        return found

    assert seen(torch.compile) == seen(lambda step: step)


@BOTH
def test_views_that_are_returned_hold_what_they_are_taken_from(fullgraph):
    def gradient(f, change):
        weight = torch.ones(3, requires_grad=True)
        x = weight * 1.0
        change(x, f(x))
        return weight.grad.tolist()

    def view_changed(x, view):
        view.mul_(3)
        x.sum().backward()

    def base_changed(x, view):
        x.mul_(3)
        view.sum().backward()

    compiled = torch.compile(lambda x: x[:2], fullgraph=fullgraph)
    for _ in range(4):
        assert gradient(compiled, view_changed) == [3.0, 3.0, 1.0]
        assert gradient(compiled, base_changed) == [3.0, 3.0, 0.0]
    both = torch.compile(lambda x: ((y := x * 2), y[1:]), fullgraph=fullgraph)
    weight = torch.ones(2, requires_grad=True)
    for _ in range(4):
        weight.grad = None
        y, part = both(torch.ones(3))
        part.mul_(weight * 3)
        y.sum().backward()
        assert weight.grad.tolist() == [6.0, 6.0] and part._base is y


@BOTH
def test_arguments_that_only_unused_values_depend_on(fullgraph):
    """A program does not read those, and what it reads besides is not where they would be."""
    def halved(x, *others):
        for y in others:
            x + y
        return x * 0.5 + 0.25, x.exp()

    compiled = torch.compile(halved, fullgraph=fullgraph)
    for count in (1, 2, 9):
        for k in range(5):
            x, *others = (torch.full((4,), float(k + n)) for n in range(count + 1))
            for found, expected in zip(compiled(x, *others), halved(x, *others), strict=True):
                assert torch.equal(found, expected), (count, k)


# -- state in objects ------------------------------------------------------------------------------


class Box:
    """Anything that holds something."""

    def __init__(self, **what):
        self.__dict__.update(what)

    def step(self, x):
        self.total += 1
        self.calls += 1
        return x + self.total * self.calls


SCALE = 2.0


def scaled(x):
    return x * SCALE


def in_an_attribute(box):
    def f(x):
        box.total += 1
        return x + box.total
    return f


def replaced(box):
    def f(x):
        box.total = box.total + x.mean()
        return x + box.total
    return f


def in_a_list(box):
    held = [box.total]

    def f(x):
        held[0].add_(1)
        return x * 2
    return f


def in_a_dict_in_an_object(box):
    inner = Box(tensors={"total": box.total})

    def f(x):
        inner.tensors["total"].mul_(0.5).add_(1)
        return x + 1
    return f


def counted(box):
    def f(x):
        box.calls += 1
        return x * box.calls
    return f


def a_method(box):
    return box.step


@BOTH
@pytest.mark.parametrize("make", [in_an_attribute, replaced, in_a_list, in_a_dict_in_an_object,
                                  counted, a_method])
def test_state_outside_the_arguments(make, fullgraph):
    def outcomes(run):
        box = Box(total=torch.zeros(3), calls=0)
        f = run(make(box))
        return [(f(torch.ones(3)).tolist(), box.total.tolist(), box.calls) for _ in range(6)]

    assert outcomes(lambda f: torch.compile(f, fullgraph=fullgraph)) == outcomes(lambda f: f)


def test_globals_of_functions_that_are_called(monkeypatch):
    compiled = torch.compile(lambda x: scaled(x) + 1, fullgraph=True)
    for scale in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        for _ in range(3):
            assert compiled(torch.ones(2)).tolist() == [scale + 1] * 2


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.options = Box(scale=2.0)

    def forward(self, x):
        return x * self.options.scale * SCALE


def test_what_hangs_on_a_module(monkeypatch):
    model = Scaled()
    compiled = torch.compile(model, fullgraph=True)
    for scale, other in ((2.0, 2.0), (5.0, 2.0), (5.0, 3.0)):
        model.options.scale = scale
        monkeypatch.setitem(globals(), "SCALE", other)
        for _ in range(3):
            assert compiled(torch.ones(2)).tolist() == [scale * other] * 2


# -- autocast --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("op", [
    lambda x: torch.einsum("ij,jk->ik", x, x), lambda x: torch.linalg.multi_dot([x, x, x]),
    lambda x: torch.tensordot(x, x, 1), lambda x: torch.inner(x, x), lambda x: x @ x,
    lambda x: torch.matrix_power(x, 3) + F.mse_loss(x, x * 2)])
def test_autocast_around_ops_made_of_others(op, fullgraph):
    def f(x):
        y = x * 1.0
        with torch.autocast("cpu"):
            z = op(y)
        return z, op(y)

    compiled, x = torch.compile(f, fullgraph=fullgraph), torch.randn(4, 4)
    alone = torch.compile(op, fullgraph=fullgraph)
    for k in range(8):
        found, expected = compiled(x), f(x)
        assert [t.dtype for t in found] == [t.dtype for t in expected]
        assert all(torch.allclose(a, b) for a, b in zip(found, expected, strict=True))
        with torch.autocast("cpu", (torch.bfloat16, torch.float16)[k > 4], enabled=k % 2 == 0):
            assert alone(x).dtype == op(x).dtype


def test_calls_made_again_inside_autocast():
    """A path that parts inside autocast: what came before it is not cast."""
    layer = nn.Linear(4, 4)

    def f(x, y):
        a = layer(x)
        with torch.autocast("cpu"):
            b = a @ layer.weight + y.sum()
        return a, b.float()

    compiled = torch.compile(f)
    for k in range(6):
        x, y = torch.randn(3, 4), torch.randn(3, 4, requires_grad=k % 2 == 1)
        found, expected = compiled(x, y), f(x, y)
        assert found[0].dtype is torch.float32
        for a, b in zip(found, expected, strict=True):
            assert torch.allclose(a, b, rtol=1e-2, atol=1e-2)


# -- random numbers --------------------------------------------------------------------------------


def seeded_inside(x):
    before = x + torch.randn(3)
    torch.manual_seed(0)
    return before, x + torch.randn(3)


def seeded_first(x):
    torch.manual_seed(0)
    return x + torch.randn(3), F.dropout(x, 0.5)


def forked(x):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        inside = x + torch.rand(3)
    return inside, x + torch.rand(3)


def saved_and_restored(x):
    first = x + torch.randn(3)
    state = torch.get_rng_state()
    second = x + torch.randn(3)
    torch.set_rng_state(state)
    return first, second, x + torch.randn(3)


@BOTH
@pytest.mark.parametrize("f", [seeded_inside, seeded_first, forked, saved_and_restored])
def test_seeds_and_states_in_the_order_of_the_calls(f, fullgraph):
    compiled, x = torch.compile(f, fullgraph=fullgraph), torch.zeros(3)

    def drawn(call, k):
        torch.manual_seed(k + 10)
        return [t.tolist() for t in (*call(x), torch.rand(2))]

    for k in range(5):
        try:
            found = drawn(compiled, k)
        except RuntimeError as error:
            assert fullgraph and "cannot be one program with fullgraph=True" in str(error)
            break
        assert found == drawn(f, k)


# -- ops that are no part of a program -------------------------------------------------------------


def test_the_way_back_ends_before_an_op_that_breaks(monkeypatch):
    """An in-place op that cannot be recorded has changed the graph by then."""
    broken(monkeypatch, "mul_")
    weight = torch.ones(3, requires_grad=True)

    @torch.compile
    def f(x):
        z = weight * x
        z.mul_(0.5)
        return z.sum()

    for k in range(4):
        weight.grad = None
        f(torch.full((3,), float(k))).backward()
        assert weight.grad.tolist() == [0.5 * k] * 3


def test_a_way_back_that_cannot_be_recorded(monkeypatch):
    broken(monkeypatch, "run")
    weight = torch.ones(3, requires_grad=True)

    @torch.compile
    def f(x):
        weight.grad = None
        (weight * x).square().sum().backward()

    for k in range(4):
        f(torch.full((3,), float(k)))
        assert weight.grad.tolist() == [2.0 * k * k] * 3


def broken(monkeypatch, name: str) -> None:
    """Let a function be one that no program can call."""
    from flambeau.compiler.capture import Capture

    recorded = Capture._recorded

    def with_a_reason(self, function, real, named):
        result = recorded(self, function, real, named)
        if function.__name__ == name:
            self.recorder.reason = "it is broken for a test"
        return result

    monkeypatch.setattr(Capture, "_recorded", with_a_reason)


# -- modes and hooks that come later ---------------------------------------------------------------


@BOTH
def test_hooks_that_are_registered_later(fullgraph):
    model, told = nn.Linear(3, 3), []

    def step(x):
        model.zero_grad()
        model(x).sum().backward()
        return x * 1.0

    compiled, x = torch.compile(step, fullgraph=fullgraph), torch.ones(2, 3)
    for _ in range(4):
        compiled(x)
    handle = model.weight.register_hook(lambda g: told.append(1) or g * 2)
    for k in range(1, 5):
        compiled(x)
        assert len(told) == k and model.weight.grad.tolist() == [[4.0] * 3] * 3
    handle.remove()
    for _ in range(3):
        compiled(x)
        assert model.weight.grad.tolist() == [[2.0] * 3] * 3


@BOTH
def test_anomalies_are_still_found(fullgraph):
    weight = torch.zeros(3, requires_grad=True)

    def step(x):
        weight.grad = None
        (weight / x).sqrt().sum().backward()

    compiled = torch.compile(step, fullgraph=fullgraph)
    for _ in range(4):
        compiled(torch.ones(3) * 0)
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly(), \
            pytest.raises(RuntimeError, match="returned nan values"):
        compiled(torch.ones(3) * 0)


@BOTH
def test_the_device_of_new_tensors(fullgraph):
    compiled = torch.compile(lambda x: (x * 1.0, torch.ones(2)), fullgraph=fullgraph)
    x = torch.ones(3)
    for _ in range(4):
        assert compiled(x)[1].device.type == "cpu"
    with torch.device("meta"):
        try:
            assert compiled(x)[1].device.type == "meta"
        except RuntimeError as error:
            assert fullgraph and "made anew by every call" in str(error)
    assert compiled(x)[1].device.type == "cpu"


@BOTH
def test_updates_by_hand_and_schedules(fullgraph):
    def trained(run):
        torch.manual_seed(0)
        model, average = nn.Linear(3, 2), nn.Linear(3, 2)
        optimizer = torch.optim.SGD(average.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        def step(x):
            for p in model.parameters():
                p.grad = None
            model(x).square().mean().backward()
            with torch.no_grad():
                for p, q in zip(model.parameters(), average.parameters(), strict=True):
                    p -= optimizer.param_groups[0]["lr"] * p.grad
                    q.lerp_(p, 0.1)
            optimizer.step()
            schedule.step()

        step = run(step)
        for k in range(8):
            torch.manual_seed(k)
            step(torch.randn(4, 3))
        return torch.cat([p.detach().flatten() for m in (model, average) for p in m.parameters()])

    found = trained(lambda step: torch.compile(step, fullgraph=fullgraph))
    assert torch.allclose(found, trained(lambda step: step), rtol=1e-4, atol=1e-6)


# -- ways back -------------------------------------------------------------------------------------


@BOTH
def test_gradients_that_no_kernel_computes(fullgraph):
    """Those of products without anything to add up are zero, whatever was in memory before."""
    compiled = torch.compile(lambda *parts: torch.linalg.multi_dot(parts), fullgraph=fullgraph)
    for _ in range(5):
        parts = [torch.ones(shape, requires_grad=True) for shape in ((5, 4), (4, 0), (0, 2))]
        out = compiled(*parts)
        del [torch.full((5, 4), 7.0) for _ in range(200)][:]
        out.sum().backward()
        assert parts[0].grad.tolist() == [[0.0] * 4] * 5


@BOTH
def test_sparse_gradients(fullgraph):
    def trained(run):
        torch.manual_seed(0)
        table = nn.Embedding(5, 3, sparse=True)
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)

        def step(index):
            optimizer.zero_grad()
            table(index).square().sum().backward()
            assert table.weight.grad.is_sparse
            optimizer.step()

        step = run(step)
        for k in range(5):
            step(torch.tensor([k % 5, 1]))
        return table.weight.detach()

    found = trained(lambda step: torch.compile(step, fullgraph=fullgraph))
    assert torch.allclose(found, trained(lambda step: step))
    table = nn.Embedding(5, 3, sparse=True)
    looked_up = torch.compile(lambda index: table(index).sum())
    for _ in range(4):
        table.weight.grad = None
        looked_up(torch.tensor([1, 2])).backward()
        assert table.weight.grad.is_sparse


def test_a_penalty_on_gradients_where_calls_cannot_be_made_twice():
    """Dropout draws and statistics change: the second derivative needs the graph of the call."""
    def trained(run):
        torch.manual_seed(0)
        critic = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Tanh(),
                               nn.Linear(8, 1))
        optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)

        def step(x):
            optimizer.zero_grad()
            score = critic(x).sum()
            (g,) = torch.autograd.grad(score, x, create_graph=True)
            penalty = ((g.norm(dim=1) - 1) ** 2).mean()
            (score * 0.1 + penalty).backward()
            optimizer.step()
            return penalty

        step = run(step)
        return [step(torch.randn(5, 3, requires_grad=True)).item() for _ in range(8)]

    assert trained(torch.compile) == pytest.approx(trained(lambda step: step), rel=1e-3)


def test_a_generator_that_is_first_drawn_from_in_a_compiled_call():
    """It is made, and seeded, just then; that is no reason to break at every draw for good."""
    generator = torch.Generator().manual_seed(3)

    @torch.compile
    def noisy(x):
        return x + torch.rand(3, generator=generator)

    found = [noisy(torch.zeros(3)) for _ in range(4)]
    again = torch.Generator().manual_seed(3)
    assert all(torch.equal(x, torch.rand(3, generator=again)) for x in found)
    assert "break" not in str(torch.compiler.explain(noisy, torch.zeros(3)))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_an_index_that_is_refused_leaves_gradients_that_are_whole(fullgraph):
    """None, as eager leaves them here, or those of the call before: nothing half computed."""
    table, layer = nn.Embedding(5, 3), nn.Linear(3, 2)
    parameters = [*table.parameters(), *layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    @torch.compile(fullgraph=fullgraph)
    def step(ids):
        optimizer.zero_grad()
        layer(table(ids)).sum().backward()
        optimizer.step()

    for _ in range(5):
        step(torch.tensor([0, 1, 2]))
    before = [(p.detach().clone(), p.grad.clone()) for p in parameters]
    with pytest.raises(IndexError, match="9"):
        step(torch.tensor([0, 1, 9]))
    for p, (value, grad) in zip(parameters, before, strict=True):
        assert torch.equal(p, value)
        assert (p.grad is None) != fullgraph and (p.grad is None or torch.equal(p.grad, grad))
    step(torch.tensor([0, 1, 2]))


def test_new_leaves_like_what_is_not_computed_yet():
    def f(x):
        y = x * 2
        leaf = {"requires_grad": True}
        made = [torch.zeros_like(y, **leaf), torch.full_like(y, 3.0, **leaf)]
        return torch.autograd.grad(sum((m * y).sum() for m in made), made)

    compiled = torch.compile(f)
    for _ in range(4):
        assert [g.tolist() for g in compiled(torch.ones(2))] == [[2, 2], [2, 2]]
