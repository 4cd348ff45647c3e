"""fullgraph=True: what is replayed without Python, and what is refused and why."""

import copy
import random
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

TURNS = 6


def network(*more):
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *more, nn.Linear(8, 3))


def matrix():
    return torch.randn(5, 6)


def wanting():
    return torch.randn(5, 6, requires_grad=True)


def labels():
    return torch.randint(0, 3, (5,))


# -- functions, with what they change and what they are given --------------------------------------


def views_of_an_embedding():
    table = nn.Embedding(10, 4)

    def f(index):
        rows = table(index)
        return rows, rows[:, 0], rows.transpose(0, 1)
    return table, f, lambda: (torch.randint(0, 10, (3, 5)),)


def only_views():
    return None, lambda x: (x[:2], x.t(), x.reshape(-1)), lambda: (wanting(),)


def parts_of_one_result():
    layer = nn.Linear(6, 9)
    return layer, lambda x: layer(x).chunk(3, -1), lambda: (matrix(),)


def some_parts_of_one_result():
    layer = nn.Linear(6, 9)

    def f(x):
        a, b, c = layer(x).view(-1, 3, 3).unbind(1)
        return a * b, c
    return layer, f, lambda: (matrix(),)


def with_its_detached_self():
    layer = nn.Linear(6, 3)

    def f(x):
        z = layer(x)
        return z, z.detach()
    return layer, f, lambda: (matrix(),)


def what_was_walked_and_what_was_not():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def f(x, y):
        optimizer.zero_grad()
        hidden = model[0](x)
        out = model[2](hidden.relu())
        other, part = out.exp(), hidden[:, :2]
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss, out, other, part, hidden
    return model, f, lambda: (matrix(), labels())


def two_ways_back():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def f(x, y):
        optimizer.zero_grad()
        out = model(x)
        one, two = F.cross_entropy(out, y), out.square().mean()
        one.backward(retain_graph=True)
        two.backward()
        optimizer.step()
        return one, two
    return model, f, lambda: (matrix(), labels())


def two_networks_in_turn():
    maker, critic = nn.Linear(2, 6), network(nn.Linear(8, 8))
    steps = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (maker, critic)]

    def f(x):
        fake = maker(torch.randn(len(x), 2))
        steps[1].zero_grad()
        told = critic(x).mean() - critic(fake.detach()).mean()
        told.backward()
        steps[1].step()
        steps[0].zero_grad()
        fooled = critic(fake).square().mean()
        fooled.backward()
        steps[0].step()
        return told, fooled
    return nn.ModuleList([maker, critic]), f, lambda: (matrix(),)


def new_tensors():
    def f(x):
        n = len(x)
        mask = torch.arange(n)[None, :] < torch.tensor([[3], [2], [1], [4], [5]])
        mask = mask & torch.ones(n, n, dtype=torch.bool).tril()
        bias = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
        scores = (x @ x.t() + bias).masked_fill(~mask, -9.0)
        return (scores.softmax(-1), torch.eye(3), torch.linspace(0, 1, 3), torch.zeros(2),
                torch.tensor([[1.0, 2.0], [3.0, 4.0]]), x.new_zeros(2))
    return None, f, lambda: (matrix(),)


def new_tensors_that_change():
    def f(x):
        total, rows = torch.zeros(6), torch.empty(2, 6)
        for row in x:
            total += row
        rows[0], rows[1] = total, 1.0
        torch.add(x[0], x[1], out=total)
        return total, rows
    return None, f, lambda: (matrix(),)


def drawn_numbers():
    def f(x):
        order = torch.randperm(len(x))
        noise = x.new_empty(len(x), 1).bernoulli_(0.5)
        chosen = torch.multinomial(x.abs(), 1)
        return (x[order] * noise, chosen, torch.normal(0.0, 1.0, (2,)),
                torch.bernoulli(x.sigmoid()), torch.empty(3).uniform_())
    return None, f, lambda: (matrix(),)


def without_recording():
    model = network(nn.BatchNorm1d(8)).eval()

    @torch.inference_mode()
    def f(x):
        return model(x).argmax(-1)
    return model, f, lambda: (matrix(),)


def inference_inside():
    model = network()

    def f(x):
        with torch.inference_mode():
            z = model(x)
        return z, x * 2
    return model, f, lambda: (matrix(),)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


def own_function():
    model = network()

    def f(x, y):
        model.zero_grad()
        loss = F.cross_entropy(Squared.apply(model(x)), y)
        loss.backward()
        return loss
    return model, f, lambda: (matrix(), labels())


def gradient_of_the_input():
    model = network()

    def f(x, y):
        moved = x.detach().clone().requires_grad_(True)
        (g,) = torch.autograd.grad(F.cross_entropy(model(moved), y), moved)
        return moved.detach() + 0.1 * g.sign(), moved
    return model, f, lambda: (matrix(), labels())


def gradient_of_a_leaf_of_its_own():
    def f(x):
        z = (x * 2).requires_grad_()
        (z * z).sum().backward()
        return z.grad
    return None, f, lambda: (matrix(),)


def penalty():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def f(x):
        optimizer.zero_grad()
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = (g.norm(dim=1) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return model, f, lambda: (wanting(),)


def hooked_leaf():
    model = network()
    model[0].weight.register_hook(lambda g: g * 0.5)

    def f(x, y):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
    return model, f, lambda: (matrix(), labels())


def turned_in_place():
    def f(x):
        z = x * 2
        z.t_()
        z.unsqueeze_(0)
        return z
    return None, f, lambda: (wanting(),)


def detached_in_place():
    def f(x):
        z = x * 2
        z.detach_()
        return z, x + z
    return None, f, lambda: (wanting(),)


def attention_layer():
    model = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def f(x):
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return model, f, lambda: (torch.randn(2, 4, 6),)


def policy():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def f(x, reward):
        optimizer.zero_grad()
        choice = torch.distributions.Categorical(logits=model(x))
        action = choice.sample()
        loss = -(choice.log_prob(action) * reward).mean()
        loss.backward()
        optimizer.step()
        return action, loss
    return model, f, lambda: (matrix(), torch.randn(5))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.layer(x) * self.count


def counted_in_a_buffer():
    model = Counting()
    return model, lambda x: model(x), lambda: (matrix(),)


def sparse_gradients():
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)

    def f(index):
        optimizer.zero_grad()
        loss = table(index).square().sum()
        loss.backward()
        optimizer.step()
        return loss
    return table, f, lambda: (torch.randint(0, 10, (4,)),)


MADE = (views_of_an_embedding, only_views, parts_of_one_result, some_parts_of_one_result,
        with_its_detached_self, what_was_walked_and_what_was_not, two_ways_back,
        two_networks_in_turn, new_tensors, new_tensors_that_change, drawn_numbers,
        without_recording, inference_inside, own_function, gradient_of_the_input,
        gradient_of_a_leaf_of_its_own, penalty, hooked_leaf, turned_in_place, detached_in_place,
        attention_layer, policy, counted_in_a_buffer, sparse_gradients)


# -- the same in eager, in segments and without Python ---------------------------------------------


def tensors_in(value) -> list:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (tuple, list)) else []


def looked_at(tensors) -> list:
    def dense(x):
        return x.to_dense() if x.is_sparse else x
    return [None if x is None else (dense(x.detach()).tolist(), x.requires_grad,
                                    None if x.is_sparse else x.stride(), x.is_inference())
            for x in tensors]


def shared(tensors) -> list:
    homes = [x.untyped_storage().data_ptr() for x in tensors]
    return [[a == b for a in homes] for b in homes]


def seen(make, wrap):
    """All that can be seen of some calls, and the wrapped function."""
    torch.manual_seed(0)
    module, f, arguments = make()
    f = wrap(f)
    state = [*module.parameters(), *module.buffers()] if module is not None else []
    found = []
    for turn in range(TURNS):
        torch.manual_seed(turn)
        given = arguments()
        results = tensors_in(f(*given))
        found.append((looked_at(results), shared([*results, *given]), torch.rand(2).tolist()))
        found.append((looked_at(state), looked_at([x.grad for x in (*state, *given)])))
        found.append(gone_back(results))
        found.append(looked_at([x.grad for x in (*state, *given)]))
        for x in (*results, *given):  # who shares memory is to see that
            if x.dtype.is_floating_point and not x.is_inference():
                with torch.no_grad():
                    x.add_(0.25)
        found.append(looked_at([*results, *given]))
        for x in state:
            x.grad = None
    return found, f


def gone_back(results) -> str:
    whole = [x.float().square().sum() for x in results if x.requires_grad]
    try:
        if whole:
            sum(whole).backward()
    except RuntimeError as error:
        return str(error)[:30]
    return ""


def same(a, b) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == pytest.approx(b, rel=1e-4, abs=1e-5, nan_ok=True)
    return a == b


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_what_is_made_again(make, fullgraph):
    expected, _ = seen(make, lambda f: f)
    found, compiled = seen(make, lambda f: torch.compile(f, fullgraph=fullgraph))
    for k, (one, two) in enumerate(zip(expected, found, strict=True)):
        assert same(one, two), f"call {k // 5}, look {k % 5}:\n{one}\n{two}"
    if fullgraph:
        assert compiled.report.calls < TURNS, "no call was made without Python"


def test_new_tensors_are_new_in_every_call():
    compiled = torch.compile(lambda x: (torch.ones(3), torch.arange(3)[None], x + torch.ones(3)),
                             fullgraph=True)
    found = []
    for _ in range(4):
        found.append(compiled(torch.zeros(3)))
        found[-1][0].mul_(5)
        found[-1][1].add_(7)
    assert compiled.report.calls < 4
    assert len({id(one) for one, _, _ in found}) == 4
    for one, two, three in found:
        assert one.tolist() == [5.0] * 3 and two.tolist() == [[7, 8, 9]]
        assert three.tolist() == [1.0] * 3


def test_views_are_changed_in_place_in_the_graph():
    """Who changes a view gives what it was taken from, and its other views, another place."""
    def outcome(f):
        w = torch.ones(2, 4, requires_grad=True)
        found = []
        for _ in range(4):
            left, right, whole = f(w)
            left.mul_(3)
            whole[:, 3].mul_(5)
            w.grad = None
            (right.sum() + left.sum()).backward()
            found.append((w.grad.tolist(), right.tolist()))
        return found

    def f(w):
        whole = w * 2
        left, right = whole.split(2, 1)
        return left, right, whole.view(2, 4)

    for fullgraph in (False, True):
        assert outcome(torch.compile(f, fullgraph=fullgraph)) == outcome(f)


def test_views_of_what_nobody_holds():
    def outcome(f):
        w = torch.ones(2, 4, requires_grad=True)
        found = []
        for _ in range(4):
            left, all_of_it = f(w)
            left.mul_(3)
            w.grad = None
            all_of_it.sum().backward()
            found.append((w.grad.tolist(), all_of_it.tolist()))
        return found

    def f(w):
        whole = w * 2
        return whole[:, :2], whole.view(-1)

    for fullgraph in (False, True):
        assert outcome(torch.compile(f, fullgraph=fullgraph)) == outcome(f)


def test_leaves_that_only_a_way_back_of_its_own_reaches():
    """A gradient that a call by itself makes is scaled by a program that comes after it."""
    def trained(wrap):
        torch.manual_seed(0)
        model = network()

        def step(x):
            model.zero_grad()
            hidden = Squared.apply(model[0](x))
            model[2](hidden.relu()).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad * 0.1)
        run = wrap(step)
        for k in range(6):
            torch.manual_seed(k)
            run(matrix())
        return [p.tolist() for p in model.parameters()]

    assert same(trained(lambda f: f), trained(lambda f: torch.compile(f, fullgraph=True)))


# -- what stays Python's ---------------------------------------------------------------------------


def reads(x):
    return x * float(x.sum())


def counts(x):
    return x[x > 0] * 2


def hooks(x):
    z = x * 2
    z.register_hook(lambda g: g * 3)
    return z


def by_itself(x):
    return torch.compiler.disable(lambda a: a * 3)(x)


def closes(x):
    weight = nn.Parameter(torch.ones(6))
    optimizer = torch.optim.LBFGS([weight])
    optimizer.step(lambda: (weight * x).sum())


def catches(x):
    try:
        torch.autograd.grad(x.detach().sum(), x)
    except RuntimeError:
        return x * 2


@pytest.mark.parametrize("f, reason", [
    (reads, "Python needs a value"), (counts, "__getitem__ makes depends on values"),
    (hooks, "register_hook"), (by_itself, "runs by itself"), (closes, ""),
    (catches, "grad raised an error")],
    ids=lambda one: getattr(one, "__name__", ""))
def test_what_needs_python_is_refused_with_its_line(f, reason):
    compiled = torch.compile(f, fullgraph=True)
    with pytest.raises(RuntimeError, match=rf"fullgraph=True: .*{reason}.*test_compile_fullgraph"):
        for _ in range(4):
            torch.manual_seed(0)
            compiled(wanting())


def test_what_python_changes_is_told_of_once():
    log = []

    def f(x):
        log.append(len(x))
        return x * 2

    compiled = torch.compile(f, fullgraph=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(5):
            assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
            assert log == [2]
            log.clear()
    assert [str(w.message).split(",")[0] for w in told] == [
        "compile: f changes a list in every call"]


def test_state_that_is_replaced():
    def outcome(wrap):
        model = Replacing()
        f = wrap(lambda x: model(x))
        return [f(torch.ones(2)).tolist() for _ in range(5)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome(lambda f: torch.compile(f, fullgraph=True)) == outcome(copy.copy)


class Replacing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x):
        self.mean = self.mean * 0.5 + x
        return x + self.mean


_dice, _numpys_dice = random.Random(3), np.random.default_rng(3)
DICE = {
    "Python's":     lambda x: x * random.random(),
    "numpy's":      lambda x: x * np.random.beta(0.8, 0.8),
    "its own":      lambda x: x * _dice.uniform(1, 2),
    "numpy's own":  lambda x: x * _numpys_dice.random(),
    "in a tensor":  lambda x: x * torch.tensor(random.random()),
    "for a branch": lambda x: x * 2 if random.random() < 0.5 else x * 3,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:compile")
@pytest.mark.parametrize("function", DICE.values(), ids=DICE)
def test_random_numbers_of_others_are_drawn_in_every_call(function):
    compiled = torch.compile(function, fullgraph=True)
    found = {compiled(torch.ones(2))[0].item() for _ in range(30)}
    assert len(found) == (2 if function is DICE["for a branch"] else 30)
