"""Modes that see ops by aten's names, counters of work, and checkpoints that choose by them."""

import functools
import importlib

import pytest
import torch

import flambeau

LIBRARIES = (torch, flambeau)


def part(t, name):
    return importlib.import_module(f"{t.__name__}.{name}")


def told(t, program):
    """The names of the ops that a mode is told of."""
    names = []

    class Listening(part(t, "utils._python_dispatch").TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    x, w = t.arange(6.0).view(2, 3), t.ones(4, 3)
    with Listening():
        program(t, x, w)
    return names


PROGRAMS = {
    "operators": lambda t, x, w: (x + 1, x * x, x - 2.5, x / 2, -x, abs(x), x ** 2, 2 ** x),
    "comparing": lambda t, x, w: (x > 0, x == x, x.eq(1), t.isnan(x), (x > 0).all()),
    "reducing": lambda t, x, w: (x.sum(), x.sum(1), x.mean(1, True), x.max(), x.max(1)),
    "products": lambda t, x, w: (x @ w.T, t.bmm(x[None], w.T[None]), x @ w[0], w[0] @ w[1]),
    "linear": lambda t, x, w: (t.nn.functional.linear(x, w),
                               t.nn.functional.linear(x, w, t.ones(4))),
    "modules": lambda t, x, w: t.nn.Softmax(1)(t.nn.ReLU()(x)),
    "convolution": lambda t, x, w: t.nn.functional.conv2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 2, 2)),
    "views": lambda t, x, w: (x.view(6), x.reshape(3, 2), x.t(), x.transpose(0, 1), x.permute(1, 0),
                              x.flatten(), x.unsqueeze(0), x.expand(2, 3), x.T),
    "indexing": lambda t, x, w: (x[0], x[:, 1], x[None], x[:, 1:], x[x > 0]),
    "changing": lambda t, x, w: (x.add_(1), x.copy_(x + 1), x.zero_(), x.fill_(1.0)),
    "making": lambda t, x, w: (t.zeros(2), t.randn(2), t.ones_like(x), x.new_zeros(2), t.arange(3)),
    "converting": lambda t, x, w: (x.to(t.float64), x.float(), x.bool(), x[0, 0].item()),
    "joining": lambda t, x, w: (t.cat([x, x]), t.stack([x, x]), x.split(1)),
    "functions": lambda t, x, w: (t.nn.functional.gelu(x), x.exp(), x.clamp(0, 1),
                                  t.nn.functional.mse_loss(x, x), x.masked_fill(x > 0, 1.0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mode_is_told_of_ops_by_atens_names(name):
    theirs, ours = (told(t, PROGRAMS[name]) for t in LIBRARIES)
    assert ours == theirs


@pytest.mark.parametrize("t", LIBRARIES, ids=lambda t: t.__name__)
def test_a_mode_answers(t):
    aten = t.ops.aten

    class Doubling(part(t, "utils._python_dispatch").TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found * 2 if func is aten.add.Tensor else found

    class Adding(part(t, "utils._python_dispatch").TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found + 1 if func is aten.mul.Tensor else found

    x = t.ones(2)
    with Doubling():
        assert (x + x).tolist() == [4, 4]
        with Adding():  # the outer mode is told of what the inner one does
            assert (x * x).tolist() == [4, 4]
    assert (x + x).tolist() == [2, 2]
    assert repr(aten.add.Tensor) == "<OpOverload(op='aten.add', overload='Tensor')>"
    assert aten.add.Tensor.name() == "aten::add.Tensor"


def test_functions_that_modules_hold_are_seen():
    seen = []

    class Seeing(flambeau.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    layers = flambeau.nn.Sequential(flambeau.nn.Conv2d(1, 1, 2), flambeau.nn.MaxPool2d(2))
    x = flambeau.ones(1, 1, 4, 4)
    with Seeing():
        layers(x)
    assert seen == ["conv2d", "max_pool2d"]
    assert type(flambeau.nn.Conv2d._function) is type(flambeau.nn.functional.conv2d)


# -- counting --------------------------------------------------------------------------------------


def _picture_net(t):
    net = t.nn.Sequential(t.nn.Conv2d(3, 8, 3, stride=2), t.nn.ReLU(), t.nn.Flatten(),
                          t.nn.Linear(72, 10))
    net(t.ones(2, 3, 8, 8)).sum().backward()


def _products(t):
    a, b = t.ones(3, 4, requires_grad=True), t.ones(4, 5)
    t.einsum("ij,jk->ik", a, b).sum().backward()
    (a @ b).sum().backward()
    t.addmm(t.zeros(3, 5), a, b)
    t.bmm(t.ones(2, 3, 4), t.ones(2, 4, 5, requires_grad=True)).sum().backward()
    t.nn.functional.linear(t.ones(2, 2, 4), t.ones(3, 4))


COUNTED = {"a net of pictures": _picture_net, "products": _products, "nothing": lambda t: t.ones(1)}


@pytest.mark.parametrize("name", COUNTED)
def test_work_is_counted_as_in_torch(name):
    found = []
    for t in LIBRARIES:
        with part(t, "utils.flop_counter").FlopCounterMode(display=False) as counter:
            COUNTED[name](t)
        found.append((counter.get_total_flops(), {
            module: {str(op): n for op, n in counts.items()}
            for module, counts in counter.get_flop_counts().items()}))
    assert found[1] == found[0]


def test_the_table_of_work(capsys):
    with part(flambeau, "utils.flop_counter").FlopCounterMode():
        flambeau.nn.Linear(4, 5)(flambeau.ones(2, 4))
    assert capsys.readouterr().out.splitlines() == [
        "Module           FLOP  % Total",
        "-------------  ------  -------",
        "Linear         80.000  100.00%",
        " - aten.addmm  80.000  100.00%",
    ]


def test_formulas_of_ones_own():
    counting = part(flambeau, "utils.flop_counter")
    formula = {flambeau.ops.aten.exp: lambda shape, out_shape=None: 7 * shape[0]}
    with counting.FlopCounterMode(display=False, custom_mapping=formula) as counter:
        flambeau.ones(3).exp()
    assert counter.get_total_flops() == 21
    with pytest.raises(ValueError):
        counting.register_flop_formula(flambeau.exp)(lambda shape, out_shape=None: 0)


# -- checkpoints -----------------------------------------------------------------------------------


def _gradients(t, chosen, runs):
    """Of a net, checkpointed so that chosen ops are kept; `runs` counts calls of mm and addmm."""
    checkpoint = part(t, "utils.checkpoint")
    t.manual_seed(0)
    net = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.GELU(), t.nn.Linear(8, 8), t.nn.Tanh(),
                          t.nn.Linear(8, 2))
    x = t.linspace(-1, 1, 12).view(3, 4).requires_grad_()

    class Counting(part(t, "utils._python_dispatch").TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            runs.append(str(func))
            return func(*args, **(kwargs or {}))

    options = {}
    if chosen is not None:
        options["context_fn"] = functools.partial(
            checkpoint.create_selective_checkpoint_contexts, chosen(t, checkpoint))
    out = checkpoint.checkpoint(net, x, use_reentrant=False, **options)
    loss = (out ** 2).sum()
    if t is flambeau:
        with Counting():
            loss.backward()
    else:
        loss.backward()
    return [x.grad.tolist(), *(p.grad.tolist() for p in net.parameters())]


def _by_policy(t, checkpoint):
    kept = (t.ops.aten.addmm.default, t.ops.aten.gelu.default)
    return lambda ctx, op, *args, **kwargs: (
        checkpoint.CheckpointPolicy.MUST_SAVE if op in kept
        else checkpoint.CheckpointPolicy.PREFER_RECOMPUTE)


@pytest.mark.parametrize("chosen", [
    lambda t, checkpoint: [t.ops.aten.addmm.default],
    lambda t, checkpoint: [t.ops.aten.tanh.default, t.ops.aten.gelu.default],
    _by_policy,
])
def test_checkpoints_keep_chosen_results(chosen):
    theirs, plain, ours = (_gradients(t, choice, []) for t, choice in (
        (torch, chosen), (flambeau, None), (flambeau, chosen)))
    assert ours == plain
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b))


def test_kept_results_are_not_computed_again():
    checkpoint, ops = part(flambeau, "utils.checkpoint"), []
    w = flambeau.ones(3, 3, requires_grad=True)
    times = []

    def slow(x):
        times.append(1)
        return flambeau.mm(x, w).exp()

    first, second = checkpoint.create_selective_checkpoint_contexts(
        [flambeau.ops.aten.mm.default])
    run = flambeau.ops.aten.mm.default.run

    def counted(args, kwargs):
        ops.append("mm")
        return run(args, kwargs)

    flambeau.ops.aten.mm.default.run = counted
    try:
        out = checkpoint.checkpoint(slow, flambeau.ones(2, 3), use_reentrant=False,
                                    context_fn=lambda: (first, second))
        out.sum().backward()
    finally:
        del flambeau.ops.aten.mm.default.run
    assert len(times) == 2 and ops == ["mm"]


def test_what_no_policy_is():
    make = [part(t, "utils.checkpoint").create_selective_checkpoint_contexts for t in LIBRARIES]
    for t, create in zip(LIBRARIES, make, strict=True):
        with pytest.raises(ValueError, match="OpOverload"):
            create([t.ops.aten.mm])
        with pytest.raises(TypeError):
            create(3)
