"""Going back: functions of one's own, modes, hooks, second derivatives, mistakes."""

import gc
import re
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import Function, functional, graph
from flambeau.autograd.function import once_differentiable


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def values(x):
    return x.detach().numpy()


# -- depth and memory ----------------------------------------------------------------------------


def test_a_graph_of_a_hundred_thousand_steps():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.sum().backward()
    assert x.grad.item() == 1
    del y  # the chain is freed without recursion


def test_the_graph_is_freed_without_the_collector():
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        y = (x * x).exp()
        there = weakref.ref(y.grad_fn)
        y.sum().backward()
        del y
        assert there() is None
    finally:
        gc.enable()


# -- backward ------------------------------------------------------------------------------------


def test_gradients_accumulate():
    x = leaf(3.0)
    (x * x).sum().backward()
    (x * x).sum().backward()
    assert x.grad.item() == 12


def test_a_second_backward_needs_retain_graph():
    x = leaf(3.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 12
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_backward_of_something_that_is_not_a_number():
    with pytest.raises(RuntimeError, match="scalar outputs"):
        (leaf(1.0, 2.0) * 2).backward()


def test_backward_without_anything_to_differentiate():
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()


def test_backward_to_some_inputs_only():
    x, w = leaf(2.0), leaf(3.0)
    (x * w).sum().backward(inputs=[x])
    assert x.grad.item() == 3 and w.grad is None


def test_grad_of_something_unused():
    x, w = leaf(2.0), leaf(3.0)
    with pytest.raises(RuntimeError, match="allow_unused"):
        torch.autograd.grad((x * 2).sum(), [w])
    assert torch.autograd.grad((x * 2).sum(), [w], allow_unused=True) == (None,)
    zero, = torch.autograd.grad((x * 2).sum(), [w], materialize_grads=True)
    assert zero.item() == 0


def test_grad_with_respect_to_a_step_in_between():
    x = leaf(2.0)
    y = x * 3
    g, = torch.autograd.grad((y * y).sum(), [y])
    assert g.item() == 12


def test_what_is_behind_a_step_in_between_can_be_walked_later():
    w = torch.ones(3, requires_grad=True)
    inner = w * 1.0
    for _ in range(2):  # steps of an inner loop, as in MAML of the first order
        g, = torch.autograd.grad((inner ** 2).sum(), inner)
        inner = inner - 0.1 * g
    (found,) = torch.autograd.grad((inner ** 2).sum(), w)
    assert found.tolist() == pytest.approx([2 * 0.8 ** 2] * 3)


def test_second_and_third_derivatives():
    x = leaf(2.0)
    y = (x * x * x).sum()
    first, = torch.autograd.grad(y, [x], create_graph=True)
    second, = torch.autograd.grad(first.sum(), [x], create_graph=True)
    third, = torch.autograd.grad(second.sum(), [x])
    assert (first.item(), second.item(), third.item()) == (12, 12, 6)


def test_retain_grad():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.item() == 12 and y.retains_grad


# -- modes ---------------------------------------------------------------------------------------


def test_modes_as_contexts():
    x = leaf(1.0)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled() and not (x * 2).requires_grad
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_modes_as_decorators():
    @torch.no_grad()
    def with_call():
        return torch.is_grad_enabled()

    @torch.no_grad
    def without():
        return torch.is_grad_enabled()

    @torch.set_grad_enabled(False)
    def chosen():
        return torch.is_grad_enabled()

    @torch.inference_mode
    def inferring():
        return torch.is_inference_mode_enabled()

    assert torch.is_grad_enabled()
    assert (with_call(), without(), chosen(), inferring()) == (False, False, False, True)


def test_a_decorated_generator_switches_only_its_own_body():
    @torch.no_grad()
    def numbers():
        received = yield torch.is_grad_enabled()
        yield received, torch.is_grad_enabled()

    running = numbers()
    assert next(running) is False
    assert torch.is_grad_enabled()
    assert running.send(7) == (7, False)
    assert torch.is_grad_enabled()


def test_set_grad_enabled_as_a_function():
    torch.set_grad_enabled(False)
    try:
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


# -- hooks ---------------------------------------------------------------------------------------


def test_a_hook_changes_the_gradient_and_can_be_removed():
    x = leaf(2.0)
    handle = x.register_hook(lambda g: g * 10)
    (x * 3).sum().backward()
    assert x.grad.item() == 30
    handle.remove()
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.item() == 3


def test_a_hook_on_a_step():
    x = leaf(2.0)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs[0].item()))
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 2,))
    (y * y).sum().backward()
    assert seen == [12.0, 72.0] and x.grad.item() == 72


def test_post_accumulate_hook():
    x = leaf(2.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (x * 3).sum().backward()
    assert seen == [3.0]


def test_hooks_of_leaves_are_told_while_backward_still_runs():
    """As soon as all of a leaf's gradient is there, and not before."""
    layers = [torch.nn.Linear(3, 3, bias=False) for _ in range(4)]
    layers.append(layers[1])  # its weight is whole only when the second of five is done
    told = []
    for number, layer in enumerate(layers[:4]):
        layer.weight.register_post_accumulate_grad_hook(lambda _, n=number: told.append(
            (n, [other.weight.grad is not None for other in layers[:4]])))
    torch.nn.Sequential(*layers)(torch.ones(1, 3)).sum().backward()
    assert told == [(3, [False, False, False, True]), (2, [False, False, True, True]),
                    (1, [False, True, True, True]), (0, [True] * 4)]


def test_a_hook_of_a_leaf_that_is_also_given_nothing():
    class First(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    x, y, seen = leaf(1.0), leaf(2.0), []
    y.register_hook(lambda g: seen.append(g.item()))
    (First.apply(x, y) + y * 3).backward()
    assert seen == [3.0] and y.grad.item() == 3.0


def test_a_hook_on_several_gradients():
    x, y = leaf(2.0), leaf(3.0)
    seen = []
    with graph.register_multi_grad_hook((x, y), lambda gs: seen.append([g.item() for g in gs])):
        (x * y).sum().backward()
    assert seen == [[3.0, 2.0]]
    (x * y).sum().backward()
    assert len(seen) == 1


def test_a_hook_on_any_of_several_gradients_runs_once_per_backward():
    x, y = leaf(2.0), leaf(3.0)
    seen = []
    graph.register_multi_grad_hook((x, y), lambda g: seen.append(g.item()), mode="any")
    (x * y).sum().backward()
    (x * y).sum().backward()
    assert len(seen) == 2


def test_a_hook_on_several_gradients_of_which_one_never_comes():
    x, y = leaf(2.0), leaf(3.0)
    seen = []
    graph.register_multi_grad_hook((x, y), lambda gs: seen.append(gs))
    (x * 2).sum().backward()
    assert seen[0][0].item() == 2 and seen[0][1] is None


def test_saved_tensor_hooks():
    x = leaf(2.0)
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t.numpy().copy()  # what a hook is given is detached

    with graph.saved_tensors_hooks(pack, torch.from_numpy):
        y = (x * x).sum()
    y.backward()
    assert x.grad.item() == 4 and packed == [(1,), (1,)]


def test_save_on_cpu_and_refused_hooks():
    x = leaf(2.0)
    with graph.save_on_cpu():
        y = x.exp().sum()
    y.backward()
    assert x.grad.item() == pytest.approx(np.exp(2.0))
    refused = pytest.raises(RuntimeError, match="not here")
    with graph.disable_saved_tensors_hooks("not here"), refused, graph.save_on_cpu():
        pass


def test_next_functions_lead_to_the_leaf():
    x = leaf(2.0)
    y = (x * 3).exp()
    (mul, number), = y.grad_fn.next_functions
    assert mul.name() == "MulBackward0" and number == 0
    assert mul.next_functions[0][0].variable is x


# -- mistakes ------------------------------------------------------------------------------------


def test_in_place_on_a_leaf():
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf(1.0).add_(1)


def test_in_place_on_a_view_of_a_leaf():
    with pytest.raises(RuntimeError, match="view of a leaf"):
        leaf(1.0, 2.0)[0].add_(1)


def test_in_place_on_a_leaf_without_recording():
    x = leaf(1.0)
    with torch.no_grad():
        x.add_(1)
    assert x.item() == 2 and x.is_leaf


def test_a_kept_tensor_that_changed_is_reported_with_the_line():
    x = leaf(1.0)
    y = x * 2
    z = (y * y).sum()
    y.add_(1)  # the line to blame
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "the line to blame" in text)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        z.backward()
    assert re.search(rf"test_autograd\.py:{line}\b", str(caught.value))


def test_requires_grad_of_integers():
    with pytest.raises(RuntimeError, match="floating point"):
        torch.tensor([1], requires_grad=True)


def test_anomaly_names_the_call_that_made_nan():
    x = leaf(0.0)
    with torch.autograd.set_detect_anomaly(True):
        y = (x * 0) / x
        with pytest.raises(RuntimeError, match=r"returned nan values(.|\n)*test_autograd"):
            y.sum().backward()
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        (x + 1).sum().backward()


# -- functions of one's own ----------------------------------------------------------------------


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 3 * x * x


class SeparateCube(Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    backward = Cube.backward


@pytest.mark.parametrize("cube", [Cube, SeparateCube])
def test_function_and_its_second_derivative(cube):
    x = leaf(2.0, -1.0)
    y = cube.apply(x)
    assert y.grad_fn.name() == f"{cube.__name__}Backward"
    first, = torch.autograd.grad(y.sum(), [x], create_graph=True)
    second, = torch.autograd.grad(first.sum(), [x])
    assert values(first).tolist() == [12, 3] and values(second).tolist() == [12, -6]


def test_function_with_several_results_and_arguments():
    class Both(Function):
        @staticmethod
        def forward(ctx, x, y, scale, unused=None):
            ctx.scale = scale
            assert ctx.needs_input_grad == (True, False, False)
            index = torch.tensor([0])
            ctx.mark_non_differentiable(index)
            return x * scale, y * scale, index

        @staticmethod
        def backward(ctx, gx, gy, _):
            assert gy.shape == (1,) and gy.item() == 0  # materialized
            return gx * ctx.scale, None, None

    x, y = leaf(2.0), torch.ones(1, dtype=torch.float64)
    a, _, index = Both.apply(x, y, 5.0)
    assert not index.requires_grad
    a.sum().backward()
    assert x.grad.item() == 5


def test_function_that_wants_none_for_unused_results():
    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            assert a is None
            return b * 2

    x = leaf(1.0)
    Pair.apply(x)[1].sum().backward()
    assert x.grad.item() == 2


def test_function_that_keeps_its_result_frees_it():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            return g * y

    x = leaf(1.0)
    y = Exp.apply(x)
    first, = torch.autograd.grad(y.sum(), [x], create_graph=True)
    second, = torch.autograd.grad(first.sum(), [x])
    assert second.item() == pytest.approx(np.e)
    gc.disable()
    try:
        there = weakref.ref(y)
        del y, first, second
        assert there() is None
    finally:
        gc.enable()


def test_function_in_place():
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(3.0)
    y = x * 1
    z = Doubled.apply(y)
    assert z is y
    z.sum().backward()
    assert x.grad.item() == 2
    with pytest.raises(RuntimeError, match="leaf"):
        Doubled.apply(x)


def test_function_that_gives_the_wrong_number_of_gradients():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Wrong.apply(leaf(1.0), leaf(1.0)).sum().backward()


def test_function_that_gives_a_gradient_of_the_wrong_shape():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, g):
            return torch.ones(5, dtype=torch.float64)

    with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
        Wrong.apply(leaf(1.0, 2.0)).backward()


def test_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * 2 * x

    x = leaf(3.0)
    first, = torch.autograd.grad(Once.apply(x).sum(), [x], create_graph=True)
    assert first.item() == 6
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


# -- functional, checks --------------------------------------------------------------------------


def test_jacobian_and_hessian():
    x, y = leaf(1.0, 2.0), leaf(3.0)
    jx, jy = functional.jacobian(lambda x, y: x * x * y, (x, y))
    assert values(jx).tolist() == [[6, 0], [0, 12]] and values(jy).tolist() == [[1], [4]]
    assert not jx.requires_grad
    h = functional.hessian(lambda x: (x**3).sum(), x)
    assert values(h).tolist() == [[6, 0], [0, 12]]


def test_products_with_vectors():
    x = leaf(1.0, 2.0)
    v = torch.tensor([1.0, -1.0], dtype=torch.float64)

    def cubes(x):
        return (x**3).sum()

    out, product = functional.vjp(lambda x: x * x, x, v)
    assert values(out).tolist() == [1, 4] and values(product).tolist() == [2, -4]
    assert values(functional.jvp(lambda x: x * x, x, v)[1]).tolist() == [2, -4]
    assert values(functional.hvp(cubes, x, v)[1]).tolist() == [6, -12]
    assert values(functional.vhp(cubes, x, v)[1]).tolist() == [6, -12]
    with pytest.raises(RuntimeError, match="invalid size"):
        functional.vjp(lambda x: x * x, x, torch.ones(3, dtype=torch.float64))


def test_gradcheck_finds_a_wrong_gradient():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = leaf(0.5, -1.5)
    assert torch.autograd.gradcheck(lambda x: (x * x).exp(), x)
    assert torch.autograd.gradgradcheck(lambda x: x**3, (x,))
    assert not torch.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(Wrong.apply, (x,))


def test_gradgradcheck_takes_the_random_numbers_that_pytorch_takes():
    torch.manual_seed(0)
    torch.autograd.gradgradcheck(torch.nn.functional.softplus, leaf(0.1, 0.2, 0.3))
    assert torch.rand(1).item() == pytest.approx(0.4900934100151062)


def test_variable_is_a_tensor():
    x = torch.autograd.Variable(torch.ones(2), requires_grad=True)
    assert isinstance(x, torch.autograd.Variable) and x.requires_grad


def test_the_step_of_a_function_is_its_context():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.scale = 3
            ctx.save_for_backward(x)
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g * ctx.scale

    x = leaf(2.0)
    y = Scaled.apply(x)
    assert y.grad_fn.scale == 3 and y.grad_fn.saved_tensors[0] is x
    with pytest.raises(AttributeError, match="ScaledBackward"):
        assert y.grad_fn.nothing


def test_the_gradient_of_a_result_is_asked_for():
    leaf = torch.ones(2, requires_grad=True)
    result = leaf * 2
    with pytest.warns(UserWarning, match=r"not a leaf Tensor.*retain_grad") as told:
        assert result.grad is None
    assert told[0].filename == __file__
    result.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert result.grad is leaf.grad is torch.ones(1).grad is None
