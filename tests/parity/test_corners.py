"""Odd corners that real programs go through: what each prints here is what it prints in torch."""

import importlib

import numpy as np
import pytest
import torch

import flambeau

CORNERS: dict = {}


def corner(program):
    CORNERS[program.__name__] = program
    return program


def part(lib, name):
    return importlib.import_module(f"{lib.__name__}.{name}")


def kind_of(work) -> str:
    """The name of the error that work raises, or what it returns."""
    try:
        return str(work())
    except Exception as error:
        return type(error).__name__


def printed(values) -> list[str]:
    return [str(v).replace("flambeau", "torch") for v in values]


@corner
def split_by_its_method_name(t):
    x = t.arange(12.0).view(3, 4)
    yield x.split(split_size=[1, 3], dim=-1)
    yield x.split(split_size=2)
    yield t.split(x, split_size_or_sections=2, dim=1)
    yield kind_of(lambda: x.split())


@corner
def folding_learned_values_into_fresh_places(t):
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        x = t.tensor([[1.0, 2.0, 3.0], [4.0, 2.0, 0.5], [0.25, 6.0, 1.0]], requires_grad=True)
        index = t.tensor([[0, 1, 0], [0, 1, 1], [1, 1, 0]])
        t.zeros(2, 3).scatter_reduce_(0, index, x, reduce, include_self=False).sum().backward()
        yield x.grad
        if reduce != "sum":
            x.grad = None
            t.ones(2, 3).index_reduce_(0, t.tensor([0, 1, 0]), x, reduce).sum().backward()
            yield x.grad


@corner
def lists_of_arrays_and_of_tensors(t):
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    one = t.ones(1)
    for data in (list(a), [a, a], [[a[0], a[1]]], [np.ones(0)], [one, one], [one, 2], [2, one],
                 [[one, one], [one, one]], [t.ones(()), t.ones(1, 1)], [t.ones(2), t.ones(2)],
                 [t.ones(2, 2)], [t.tensor(1), t.tensor(2.5)], [t.ones(0)]):
        yield kind_of(lambda: t.tensor(data))  # noqa: B023 - asked at once


@corner
def numbers_of_complex_tensors(t):
    yield float(t.tensor(2 + 0j)), int(t.tensor(3 + 0j)), complex(t.tensor(1j))
    yield kind_of(lambda: float(t.tensor(1j)))


@corner
def parametrizations_without_a_way_back(t):
    parametrize, nn = part(t, "nn.utils.parametrize"), t.nn

    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

        def right_inverse(self, x):
            return x / 2

    class Squared(nn.Module):
        def forward(self, x):
            return x * x

    layer = nn.Linear(2, 2)
    layer.weight.data = t.tensor([[1.0, 2.0], [3.0, 4.0]])
    parametrize.register_parametrization(layer, "weight", Twice())
    yield layer.weight, layer.parametrizations.weight.original
    parametrize.register_parametrization(layer, "weight", Twice())
    yield layer.weight, layer.parametrizations.weight.original
    layer.weight = t.ones(2, 2)
    yield layer.weight, layer.parametrizations.weight.original
    parametrize.register_parametrization(layer, "weight", Squared())
    yield kind_of(lambda: setattr(layer, "weight", t.ones(2, 2)))


@corner
def names_in_dictionaries_of_parameters(t):
    values = {"b": t.ones(1), "a": t.zeros(1)}
    yield list(t.nn.ParameterDict(values)), list(t.nn.ParameterDict(values.items()))
    yield list(t.nn.ParameterDict(values.items()).copy())


@corner
def the_prefix_of_wrapped_models(t):
    consume = part(t, "nn.modules.utils").consume_prefix_in_state_dict_if_present
    state = t.nn.DataParallel(t.nn.Sequential(t.nn.Linear(2, 2))).state_dict()
    consume(state, "module.")
    yield list(state), state._metadata


@corner
def triangles_from_vectors(t):
    utils = part(t, "distributions.utils")
    v = t.arange(1.0, 7.0)
    whole = utils.vec_to_tril_matrix(v)
    yield whole, utils.tril_matrix_to_vec(whole), utils.tril_matrix_to_vec(whole, -1)
    yield utils.vec_to_tril_matrix(t.stack([v, v]), -1)
    yield kind_of(lambda: utils.vec_to_tril_matrix(t.ones(5)))


def _lists(t):
    return [t.tensor([1.0, 2.0]), t.tensor([[3.0, 0.5]])]


@corner
def one_op_on_lists_of_tensors(t):
    a, b = _lists(t), [x + 1 for x in _lists(t)]
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow"):
        for other in (b, 2.0, [2.0, 3.0]):
            changed = _lists(t)
            yield getattr(t, f"_foreach_{name}")(a, other)
            getattr(t, f"_foreach_{name}_")(changed, other)
            yield changed
    for name in ("abs", "sqrt", "neg", "sigmoid", "reciprocal", "exp", "rsqrt", "sign", "round"):
        changed = _lists(t)
        yield getattr(t, f"_foreach_{name}")(a)
        getattr(t, f"_foreach_{name}_")(changed)
        yield changed


@corner
def lists_with_more_than_one_operand(t):
    a, b = _lists(t), [x + 1 for x in _lists(t)]
    yield t._foreach_add(a, b, alpha=3), t._foreach_add(a, t.tensor(2.0)), t._foreach_pow(2.0, a)
    yield t._foreach_norm(a), t._foreach_norm(a, 1), t._foreach_max(a)
    yield t._foreach_lerp(a, b, 0.5), t._foreach_lerp(a, b, weight=0.5), t._foreach_lerp(a, b, b)
    yield t._foreach_addcmul(a, b, b), t._foreach_addcmul(a, b, b, value=2)
    yield t._foreach_addcdiv(a, b, b, [1.0, 2.0]), t._foreach_addcdiv(a, b, b, t.tensor([1.0, 2.0]))
    yield t._foreach_addcdiv(a, tensor1=b, tensor2=a, value=3)
    t._foreach_copy_(a, [t.zeros(2), t.ones(1, 2)])
    yield a, t._foreach_clone(a), t._foreach_add_(a, 1)
    t._foreach_zero_(a)
    yield a
    yield kind_of(lambda: t._foreach_add(a, [t.ones(2)])), kind_of(lambda: t._foreach_add([], 1))
    w = t.ones(2, requires_grad=True)
    t._foreach_mul([w], 3.0)[0].sum().backward()
    yield w.grad


@corner
def the_compiled_core_and_loaders_by_their_private_names(t):
    yield issubclass(part(t, "_C")._LinAlgError, RuntimeError)
    yield part(t, "_C")._LinAlgError is t.linalg.LinAlgError
    loader = part(t, "utils.data.dataloader")
    batches = iter(loader.DataLoader(range(3)))
    yield isinstance(batches, loader._SingleProcessDataLoaderIter)
    yield issubclass(loader._MultiProcessingDataLoaderIter, loader._BaseDataLoaderIter)


@corner
def steps_back_through_a_gradient(t):
    x = t.tensor([0.3, -0.2], requires_grad=True)
    for f in (t.tanh, t.sigmoid, t.nn.functional.gelu, t.nn.functional.softplus):
        (g,) = t.autograd.grad((f(x) * t.arange(1.0, 3.0)).sum(), x, create_graph=True)
        yield g


@corner
def angles_at_the_origin(t):
    x = t.tensor([0.0, 0.0, -1.0, 2.0], requires_grad=True)
    y = t.tensor([0.0, 1.0, 0.0, 3.0], requires_grad=True)
    t.atan2(x, y).sum().backward()
    yield x.grad, y.grad


@corner
def optimizers_that_hold_another(t):
    class Slowly(t.optim.Optimizer):
        def __init__(self, inner):
            self.inner, self.param_groups, self.defaults = inner, inner.param_groups, inner.defaults
            self.state = inner.state

        def step(self, closure=None):
            return self.inner.step(closure)

    w = t.ones(2, requires_grad=True)
    slow = Slowly(t.optim.SGD([w], 0.5, momentum=0.9))
    for _ in range(2):
        slow.inner.zero_grad()
        (w * w).sum().backward()
        slow.step()
    yield w, slow.state[w]["momentum_buffer"]


@corner
def errors_of_torchs_kinds(t):
    bits, x = t.ones(2, 2, dtype=t.bool), t.ones(2, 2)
    yield kind_of(lambda: ~x)
    yield kind_of(lambda: x.bitwise_not())
    yield kind_of(lambda: bits @ bits)
    yield kind_of(lambda: bits @ bits[0])
    yield kind_of(lambda: t.bmm(bits[None], bits[None]))
    yield kind_of(lambda: t.kron(1, 2))
    yield kind_of(lambda: t.det(1.0))
    yield kind_of(lambda: x.sum(0, True))
    for _ in range(2):
        yield kind_of(lambda: x.sum(0, 1))
        yield kind_of(lambda: x.mean(0, keepdim=1))
    for index in (-1, -3):
        yield kind_of(lambda index=index: t.device("cpu", index))
    yield kind_of(lambda: t.device("cpu:-1"))
    yield kind_of(lambda: t.autograd.grad(t.ones(1, requires_grad=True).sum(), []))


@corner
def fractions_for_whole_numbers(t):
    for dtype in (t.int64, t.uint8, t.bool):
        x, mask = t.tensor([1, 2], dtype=dtype), t.tensor([True, False])
        yield x.masked_fill(mask, 0.5), x.masked_fill(mask, 2.9), x.clone().masked_fill_(mask, 0.5)


@corner
def short_quotients_cut(t):
    t.manual_seed(0)
    for dtype in (t.bfloat16, t.float16):
        x, y = (t.randn(200) * 100).to(dtype), t.randn(200).to(dtype)
        for divisor in (y, y[3], 3.3):
            yield t.div(x, divisor, rounding_mode="trunc").tolist()
            yield x.clone().div_(divisor, rounding_mode="trunc").tolist()


@corner
def writing_over_what_is_read(t):
    def line():
        return t.arange(10.0)

    yield kind_of(lambda: (x := line())[1:].add_(x[:-1]))
    yield kind_of(lambda: (x := line())[:-1].copy_(x[1:]))
    yield kind_of(lambda: t.add((x := line())[:-1], 1, out=x[1:]))
    yield kind_of(lambda: (x := line()[:9].view(3, 3)).add_(x.t()))
    yield kind_of(lambda: (x := line())[::2].add_(x[1::2]))
    yield kind_of(lambda: (x := line())[:5].add_(x[5:]))
    yield kind_of(lambda: (x := line()).mul_(x))
    x = line()
    yield kind_of(lambda: x.__setitem__(slice(1, None), x[:-1]))


@corner
def resized_pictures_keep_their_channels_last(t):
    x = t.arange(48.0).view(1, 3, 4, 4).to(memory_format=t.channels_last).requires_grad_()
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        y = t.nn.functional.interpolate(x, scale_factor=2, mode=mode)
        yield y.stride(), y.grad_fn.name()
        yield t.nn.functional.interpolate(x.detach().contiguous(), size=3, mode=mode).stride()
    volume = t.ones(1, 2, 2, 2, 2).to(memory_format=t.channels_last_3d)
    yield t.nn.functional.interpolate(volume, scale_factor=2).stride()


@corner
def dtypes_without_a_kernel(t):
    z, b = t.ones(2, 2, dtype=t.complex64), t.ones(2, 2, dtype=t.bool)
    for work in (lambda: z.softmax(0), lambda: z.log_softmax(-1), lambda: z.max(0),
                 lambda: z.min(-1), lambda: b.trace(), lambda: z.xlogy(z), lambda: z.copysign(-1),
                 lambda: t.bucketize(z, t.tensor([0, 1])), lambda: t.ones(2).bincount(),
                 lambda: b.div(b.long(), rounding_mode="trunc"),
                 lambda: b.div(b, rounding_mode="trunc"), lambda: b.long().exponential_()):
        yield kind_of(work)
    for name in ("det", "svd", "qr", "eigh", "eig", "cholesky", "inv", "slogdet", "lu_factor",
                 "cond", "pinv"):
        for dtype in (t.float16, t.int64):
            yield name, kind_of(lambda name=name, dtype=dtype: type(
                getattr(t.linalg, name)(t.eye(2, dtype=dtype))).__name__)


@corner
def tensors_without_dimensions_or_elements(t):
    x, nothing = t.tensor(2.5), t.empty(0, 3)
    yield kind_of(lambda: x.unique(dim=0)), kind_of(lambda: x.repeat_interleave(2, dim=0))
    yield x.mT, kind_of(lambda: t.trapezoid(x))
    yield t.trapezoid(t.tensor([[0, 255, 1]], dtype=t.uint8)), t.trapezoid(t.arange(4.0), dx=0.5)
    yield kind_of(lambda: nothing.copy_(t.ones(5))), kind_of(lambda: nothing.copy_(t.ones(2, 0, 3)))
    yield nothing.copy_(t.ones(3)), t.linalg.cond(nothing)
    yield t.nn.functional.binary_cross_entropy(nothing, nothing)
    yield kind_of(lambda: t.ones(2).sum("a"))
    yield kind_of(lambda: t.matmul(t.ones(2, 2).long(), t.ones(2, 2).long(), out=t.empty(0)))
    half = t.ones(2, 2, dtype=t.float16)
    yield half.addr(t.ones(2), t.ones(2)).dtype, half.addr(half[0], half[0]).dtype
    yield kind_of(lambda: (y := t.ones(4)).put_(t.tensor([0]), y[:1]))


@pytest.mark.filterwarnings("ignore")

@corner
def integers_counted_by_fractions(t):
    for kind in (t.int32, t.uint8, t.int64):
        for numbers in ((3.1,), (0.5, 3.7), (0, 3.7, 1.6), (1.5, 8, 2.5), (-8.000001, -4.0)):
            yield t.arange(*numbers, dtype=kind)
    yield t.arange(5, 1, -0.5, dtype=t.int32)


@corner
def statistics_of_halves(t):
    x = t.ones(2, 2, 3)
    for kind in (t.float16, t.bfloat16):
        for own in (kind, t.float32):
            one, two = t.ones(3, dtype=own), t.ones(2, dtype=own)
            yield [v.dtype for v in t.native_layer_norm(x.to(kind), (3,), one, one, 1e-5)]
            for training in (True, False):
                yield [v.dtype for v in t.native_batch_norm(
                    x.to(kind), two, two, two, two, training, 0.1, 1e-5)]


@corner
def halves_through_doubles(t):
    x = t.linspace(-0.9, 0.9, 37).half()
    yield x.asinh(), x.atanh(), (x + 2).acosh()


@corner
def places_are_long(t):
    yield t.unravel_index(t.tensor([3, 7], dtype=t.int8), (4, 5))


@corner
def products_of_nothing_go_back(t):
    x = t.ones(3, 0, requires_grad=True)
    x.prod(1).sum().backward()
    yield x.grad, t.autograd.grad(x.prod(1, keepdim=True).sum(), x)


@corner
def a_search_ends_with_the_evaluations(t):
    x = t.tensor([-1.5, 2.0, 0.3], dtype=t.float64, requires_grad=True)
    optimizer = t.optim.LBFGS([x], lr=5, max_iter=4, max_eval=5, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(6):
        optimizer.step(closure)
        yield x, optimizer.state[x]["func_evals"]


@corner
def refusals_of_pools_and_losses(t):
    def said(work) -> str:
        try:
            return str(work())
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:72]

    f, x = t.nn.functional, t.ones(1, 2, 3, 4, 5)
    for n in (1, 2, 3):
        given = x[(0,) * (3 - n)]
        for sizes in ((), (5,) * (n + 1), (-1,) * n):
            for name in ("max", "avg")[:1 if -1 in sizes else 2]:
                yield said(lambda n=n, given=given, sizes=sizes, name=name: getattr(
                    f, f"adaptive_{name}_pool{n}d")(given, sizes))
    one = t.ones(5)
    yield said(lambda: f.gaussian_nll_loss(one, one, one, reduction="abc"))[:28]
    yield said(lambda: t.ormqr(t.ones(4, 4), t.ones(3), t.ones(4, 4)))


@pytest.mark.parametrize("name", CORNERS)
def test_corner(name):
    mine, theirs = (printed(CORNERS[name](lib)) for lib in (flambeau, torch))
    assert mine == theirs
