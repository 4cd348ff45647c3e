"""All parameters in one native call: the same path as one by one, whatever changes on the way."""

import copy
import math
import threading

import numpy
import pytest

import flambeau
from flambeau import nn, optim
from flambeau.assemble import together
from flambeau.nn import utils

SHAPES = ((3, 5), (7,), (40_000,), (2, 3, 4), (1,), (0,))

OPTIMIZERS = {
    "sgd":        ("SGD", {"lr": 0.1}),
    "decayed":    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "momentum":   ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2}),
    "nesterov":   ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam":       ("Adam", {}),
    "amsgrad":    ("Adam", {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    "adamw":      ("AdamW", {"amsgrad": True}),
    "rate of 1":  ("Adam", {"lr": 1, "betas": (0.0, 0.999)}),
    "rmsprop":    ("RMSprop", {}),
    "centered":   ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    "adagrad":    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1}),
    "adadelta":   ("Adadelta", {}),
    "adamax":     ("Adamax", {"weight_decay": 0.1}),
    "nadam":      ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "radam":      ("RAdam", {}),
    "rprop":      ("Rprop", {}),
    "asgd":       ("ASGD", {"t0": 2}),
}  # fmt: skip


def one_by_one(kind):
    """The optimizer, never updating parameters together."""
    return type(kind.__name__, (kind,), {"pointwise": False})


def parameters(dtype=flambeau.float32, seed=0):
    rng = numpy.random.default_rng(seed)
    return [nn.Parameter(flambeau.from_numpy(rng.standard_normal(s)).to(dtype)) for s in SHAPES]


def give_gradients(params, seed, but=()):
    rng = numpy.random.default_rng(seed)
    for i, p in enumerate(params):
        g = flambeau.from_numpy(rng.standard_normal(tuple(p.shape))).to(p.dtype)
        p.grad = None if i in but else g


def pair(name, **kwargs):
    kind, options = OPTIMIZERS[name]
    kind = getattr(optim, kind)
    first, second = parameters(**kwargs), parameters(**kwargs)
    return (first, kind(first, **options)), (second, one_by_one(kind)(second, **options))


def assert_same(one, other, tolerance=1e-5):
    (params, optimizer), (wanted, slow) = one, other
    for p, q in zip(params, wanted, strict=True):
        numpy.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), tolerance, tolerance)
        found, state = optimizer.state.get(p, {}), slow.state.get(q, {})
        assert list(found) == list(state)
        for key in state:
            numpy.testing.assert_allclose(numpy.asarray(found[key]), numpy.asarray(state[key]),
                                          tolerance, tolerance)


def took_one_call(optimizer):
    """Whether all that is known of the optimizer's groups is updated together."""
    known = optimizer._known.values()
    return all(len(updates) == 1 and not apart for _, _, updates, apart in known)


@pytest.mark.parametrize("dtype", [flambeau.float32, flambeau.float64], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_together_as_one_by_one(name, dtype):
    one, other = pair(name, dtype=dtype)
    for step in range(8):
        for params, optimizer in (one, other):
            give_gradients(params, step)
            optimizer.step()
    assert_same(one, other, 1e-4 if dtype == flambeau.float32 else 1e-9)
    assert took_one_call(one[1])
    assert not took_one_call(other[1])


@pytest.mark.parametrize("name", ["adam", "momentum", "nadam"])
def test_gradients_come_and_go(name):
    one, other = pair(name)
    for step, but in enumerate([(0, 2), (), (1,), (1,), (), (), (0, 1, 2, 3, 4, 5), ()]):
        for params, optimizer in (one, other):
            give_gradients(params, step, but)
            optimizer.step()
    assert_same(one, other)


def replaced_state(params, optimizer):
    for p in list(optimizer.state)[:2]:
        optimizer.state[p] = {k: v.clone() * 2 for k, v in optimizer.state[p].items()}


def replaced_tensor(params, optimizer):
    state = optimizer.state[params[2]]
    state["exp_avg"] = flambeau.ones_like(state["exp_avg"])


def cleared_state(params, optimizer):
    optimizer.state.clear()


def other_data(params, optimizer):
    params[0].data = flambeau.ones(3, 5)
    params[3].data = flambeau.ones(4, 3, 2).permute(2, 1, 0)


def other_rate(params, optimizer):
    optimizer.param_groups[0].update(lr=0.5, weight_decay=0.3, betas=(0.5, 0.6))


def other_count(params, optimizer):
    optimizer.state[params[1]]["step"] += 7


def fewer(params, optimizer):
    del optimizer.param_groups[0]["params"][1]


def loaded(params, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


@pytest.mark.parametrize("change", [
    replaced_state, replaced_tensor, cleared_state, other_data, other_rate, other_count, fewer,
    loaded])
def test_what_changes_between_steps_counts(change):
    one, other = pair("adam")
    for step in range(8):
        for params, optimizer in (one, other):
            if step == 4:
                change(params, optimizer)
            give_gradients(params, step)
            optimizer.step()
    assert_same(one, other)


def test_layouts_that_differ_are_updated_too():
    one, other = pair("adam")
    for step in range(4):
        for params, optimizer in (one, other):
            give_gradients(params, step)
            params[0].grad = flambeau.ones(5, 3).t() * (step + 1)
            params[2].grad = flambeau.ones(1).expand(40_000)
            optimizer.step()
    assert_same(one, other)


def test_dtypes_in_one_group():
    def make(kind):
        params = [*parameters(), *parameters(flambeau.float64, 3), *parameters(flambeau.float16, 4)]
        return params, kind(params, lr=0.01)

    one, other = make(optim.Adam), make(one_by_one(optim.Adam))
    for step in range(4):
        for params, optimizer in (one, other):
            give_gradients(params, step)
            optimizer.step()
    assert_same(one, other, 1e-3)
    (_, _, updates, apart), = one[1]._known.values()
    assert len(updates) == 2 and len(apart) == len(SHAPES)


def test_changes_are_counted():
    p = nn.Parameter(flambeau.ones(3))
    optimizer = optim.Adam([p])
    y = (p * p).sum()
    p.grad = flambeau.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation|changed"):
        y.backward()


def test_numbers_of_every_kind_are_taken():
    p = nn.Parameter(flambeau.ones(3))
    optimizer = optim.RMSprop([p], lr=numpy.float64(0.5), weight_decay=flambeau.tensor(0.0).item())
    for rate in (numpy.float64(0.25), 1, 0, flambeau.tensor(0.125)):
        optimizer.param_groups[0]["lr"] = rate
        p.grad = flambeau.ones(3)
        optimizer.step()
    assert math.isfinite(float(p.sum()))


def test_two_threads_may_step_two_optimizers():
    wanted, results = None, []

    def train():
        params = [nn.Parameter(flambeau.ones(200_000)) for _ in range(2)]
        optimizer = optim.Adam(params, lr=0.1)
        for step in range(5):
            give_gradients(params, step)
            optimizer.step()
        results.append(params[0].detach().numpy().copy())

    train()
    wanted = results.pop()
    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(numpy.array_equal(found, wanted) for found in results)


# -- gradients ------------------------------------------------------------------------------------


def test_zeroing_and_forgetting():
    params = parameters()
    give_gradients(params, 0, but=(1,))
    kept = params[0].grad
    assert together.zero_gradients(params)
    assert params[1].grad is None and params[0].grad is kept
    assert all(float(p.grad.abs().sum()) == 0 for p in params if p.grad is not None)
    together.forget_gradients(params)
    assert all(p.grad is None for p in params)
    with pytest.raises(AttributeError):
        together.forget_gradients([object()])


def test_gradients_in_a_graph_are_not_zeroed_behind_its_back():
    p = nn.Parameter(flambeau.ones(3))
    (p**3).sum().backward(create_graph=True)
    assert p.grad.grad_fn is not None
    assert not together.zero_gradients([p])
    optim.SGD([p], lr=0.1).zero_grad(set_to_none=False)
    assert p.grad.grad_fn is None and float(p.grad.sum()) == 0


@pytest.mark.parametrize("order", [1.0, 2.0, math.inf, 3.0, 0.5])
def test_norms(order):
    params = parameters()[:-1]
    give_gradients(params, 5, but=(3,))
    every = numpy.concatenate([p.grad.numpy().ravel() for p in params if p.grad is not None])
    wanted = numpy.linalg.norm(every.astype("f8"), order)
    total = utils.clip_grad_norm_(params, 0.5, order)
    assert total.dtype == flambeau.float32 and total.dim() == 0
    assert float(total) == pytest.approx(wanted, rel=1e-5)
    after = numpy.concatenate([p.grad.numpy().ravel() for p in params if p.grad is not None])
    numpy.testing.assert_allclose(after, every * (0.5 / (wanted + 1e-6)), 1e-5, 1e-9)


def test_norms_of_nothing_finite():
    params = parameters()[:2]
    give_gradients(params, 0)
    params[1].grad[3] = math.nan
    assert math.isnan(float(utils.clip_grad_norm_(params, 1.0, math.inf)))
    assert all(bool(p.grad.isnan().all()) for p in params)
    params[0].grad = flambeau.full((3, 5), math.inf)
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_(params[:1], 1.0, error_if_nonfinite=True)


def test_small_gradients_are_not_scaled_up():
    p = nn.Parameter(flambeau.ones(3))
    p.grad = flambeau.full((3,), 0.125)
    utils.clip_grad_norm_([p], 10.0)
    assert p.grad.tolist() == [0.125] * 3


def test_values_are_limited():
    params = parameters()
    give_gradients(params, 1)
    params[0].grad[0, 0] = math.nan
    utils.clip_grad_value_(params, 0.25)
    assert math.isnan(float(params[0].grad[0, 0]))
    assert float(params[2].grad.max()) == 0.25 and float(params[2].grad.min()) == -0.25


def test_sums_do_not_depend_on_threads():
    before = flambeau.get_num_threads()
    params = [nn.Parameter(flambeau.ones(1_000_003))]
    found = []
    try:
        for count in (1, 2):
            flambeau.set_num_threads(count)
            give_gradients(params, 9)
            found.append(float(utils.clip_grad_norm_(params, 1.0)))
    finally:
        flambeau.set_num_threads(before)
    assert found[0] == found[1]
