"""Ops that programs define: found by name, differentiated, checked, compiled."""

from collections.abc import Sequence

import numpy as np
import pytest

import flambeau as torch
from flambeau import Tensor, library


@library.custom_op("tests::sine", mutates_args=())
def sine(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.detach().numpy()))


@sine.register_fake
def _(x):
    return torch.empty_like(x)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


sine.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].cos(), setup_context=_keep)


@library.custom_op("tests::blend", mutates_args=())
def blend(xs: Sequence[Tensor], weight: float = 0.5, shift: Tensor | None = None, *,
          scale: int = 1) -> tuple[Tensor, Tensor]:
    total = scale * (weight * xs[0] + (1 - weight) * xs[1])
    return total if shift is None else total + shift, xs[0].clone()


def _blend_setup(ctx, inputs, keyword_only_inputs, output):
    assert len(inputs) == 3 and isinstance(output, tuple)
    ctx.weight, ctx.shifted = inputs[1], inputs[2] is not None
    ctx.scale = keyword_only_inputs["scale"]


def _blend_backward(ctx, g, h):
    first = g * ctx.weight * ctx.scale + h
    return [first, g * (1 - ctx.weight) * ctx.scale], None, g if ctx.shifted else None


blend.register_autograd(_blend_backward, setup_context=_blend_setup)


def test_it_is_found_by_name():
    x = torch.randn(3)
    for f in (sine, torch.ops.tests.sine, torch.ops.tests.sine.default):
        torch.testing.assert_close(f(x), x.sin())
    assert str(torch.ops.tests.sine.default) == "tests.sine.default"
    assert str(torch.ops.tests.sine.default._schema) == "tests::sine(Tensor x) -> Tensor"
    with pytest.raises(AttributeError, match="'_OpNamespace' 'tests' object has no attribute"):
        _ = torch.ops.tests.nothing
    with pytest.raises(AttributeError, match="no overload name 'out'"):
        _ = torch.ops.tests.sine.out


def test_gradients():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sine, (x,))
    y, z = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda x, y, z: blend([x, y], 0.25, z, scale=3), (x, y, z))
    assert torch.autograd.gradcheck(lambda x, y: blend((x, y)), (x, y))


def test_without_a_formula_going_back_says_so():
    @library.custom_op("tests::constant", mutates_args=())
    def constant(x: Tensor) -> Tensor:
        return x * 2

    y = constant(torch.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.sum().backward()


def test_what_it_changes_is_counted():
    @library.custom_op("tests::fill", mutates_args={"x"})
    def fill(x: Tensor, value: float) -> None:
        x.numpy()[:] = value

    x = torch.zeros(3)
    version = x._version
    assert fill(x, 2.0) is None and x.tolist() == [2, 2, 2] and x._version > version
    with pytest.raises(RuntimeError, match="non-functional operator"):
        fill.register_autograd(lambda ctx, g: g)


def test_compiled_and_in_batches():
    f = torch.compile(lambda x: sine(x * 2) + 1)
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        out = f(x)
        torch.testing.assert_close(out, (x * 2).sin() + 1)
        out.sum().backward()
        torch.testing.assert_close(x.grad, 2 * (2 * x).cos())
    x = torch.randn(2, 3)
    torch.testing.assert_close(torch.vmap(sine)(x), x.sin())


def test_errors_of_calls():
    for args, kwargs, what in (((), {}, "missing value for argument 'x'"),
                               ((1,), {}, "Expected a value of type 'Tensor' for argument 'x'"),
                               ((torch.ones(1), 2), {}, "expected at most 1 argument"),
                               ((torch.ones(1),), {"y": 1}, "Unknown keyword argument 'y'")):
        with pytest.raises(RuntimeError, match=what):
            sine(*args, **kwargs)

    @library.custom_op("tests::same", mutates_args=())
    def same(x: Tensor) -> Tensor:
        return x.view(-1)

    with pytest.raises(RuntimeError, match="may not alias any inputs"):
        same(torch.ones(2))
    with pytest.raises(RuntimeError, match="no fake impl registered"):
        same(torch.ones(2, device="meta"))


def test_kernels_of_devices():
    @library.custom_op("tests::where", mutates_args=())
    def where(x: Tensor) -> Tensor:
        return x + 1

    @where.register_kernel("cpu")
    def _(x):
        return x + 2

    assert where(torch.zeros(1)).item() == 2
    with where.set_kernel_enabled("cpu", False):
        assert where(torch.zeros(1)).item() == 1
    with pytest.raises(RuntimeError, match="device type"):
        where.register_kernel("toaster", lambda x: x)


def test_libraries():
    lib = library.Library("tests_two", "DEF")
    assert lib.define("scaled(Tensor x, *, Scalar alpha=2) -> Tensor") == "scaled"
    with pytest.raises(NotImplementedError, match="Could not run 'tests_two::scaled'"):
        torch.ops.tests_two.scaled(torch.ones(1))
    lib.impl("scaled", lambda x, alpha=2: x * alpha, "CPU")
    assert torch.ops.tests_two.scaled(torch.ones(1)).item() == 2
    assert torch.ops.tests_two.scaled(torch.ones(1), alpha=3).item() == 3
    with pytest.raises(RuntimeError, match="same name and overload name"):
        lib.define("scaled(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="Only a single TORCH_LIBRARY"):
        library.Library("tests_two", "DEF")
    with pytest.raises(ValueError, match="Unsupported kind"):
        library.Library("tests_two", "PART")
    lib._destroy()
    assert not hasattr(torch.ops.tests_two, "scaled")


def test_an_autograd_kernel():
    lib = library.Library("tests_three", "FRAGMENT")
    lib.define("twice(Tensor x) -> Tensor")
    lib.impl("twice", lambda x: torch.from_numpy(x.detach().numpy() * 2), "CPU")

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch._C._AutoDispatchBelowAutograd():
                return torch.ops.tests_three.twice(x)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    lib.impl("twice", Twice.apply, "Autograd")
    x = torch.ones(2, requires_grad=True)
    torch.ops.tests_three.twice(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_define_and_register():
    library.define("tests_four::negated", "(Tensor x) -> Tensor")

    @library.impl("tests_four::negated", "cpu")
    def _(x):
        return torch.from_numpy(-x.detach().numpy())

    @library.register_fake("tests_four::negated")
    def _(x):
        return torch.empty_like(x)

    library.register_autograd("tests_four::negated", lambda ctx, g: -g)
    library.register_autocast("tests_four::negated", "cpu", torch.bfloat16)
    x = torch.ones(2, requires_grad=True)
    torch.ops.tests_four.negated(x).sum().backward()
    assert x.grad.tolist() == [-1, -1]
    assert torch.ops.tests_four.negated(torch.ones(2, device="meta")).shape == (2,)
    library.impl("tests_four::negated", "cpu", lambda x: -x)
    with torch.autocast("cpu"):
        assert torch.ops.tests_four.negated(torch.ones(2)).dtype is torch.bfloat16


def test_opcheck():
    x = torch.randn(3, requires_grad=True)
    assert set(library.opcheck(sine, (x,)).values()) == {"SUCCESS"}

    @library.custom_op("tests::sly", mutates_args=())
    def sly(x: Tensor) -> Tensor:
        x.numpy()[:] = 0
        return x.clone()

    sly.register_fake(lambda x: x.new_empty(7))
    told = library.opcheck(sly, (torch.ones(3),), raise_exception=False)
    assert "was mutated" in str(told["test_schema"])
    assert "fake kernel gives" in str(told["test_faketensor"])


def test_ops_of_the_library_itself():
    x = torch.randn(3)
    assert torch.equal(torch.ops.aten.relu.default(x), x.relu())
    assert torch.equal(torch.ops.aten.add.Tensor(x, x), x + x)
    assert torch.ops.aten.add.Tensor is torch.ops.aten.add.Tensor
    assert not hasattr(torch.ops.aten, "no_such_op")
