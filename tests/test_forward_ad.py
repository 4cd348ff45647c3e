"""Forward mode: tangents go where values go, and nothing of it is left when the level is closed."""

import pytest

import flambeau as torch
import flambeau.autograd.forward_ad as fw
from flambeau import nn


def test_a_module_with_dual_parameters():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    tangents = {n: torch.randn_like(p) for n, p in model.named_parameters()}
    params = dict(model.named_parameters())
    with torch.no_grad(), fw.dual_level():
        duals = {n: fw.make_dual(p, tangents[n]) for n, p in params.items()}
        found = fw.unpack_dual(torch.func.functional_call(model, duals, (x,)).pow(2).sum()).tangent
    loss = model(x).pow(2).sum()
    grads = torch.autograd.grad(loss, list(params.values()))
    expected = sum((g * t).sum() for g, t in zip(grads, tangents.values(), strict=True))
    torch.testing.assert_close(found, expected)


def into(x):
    out = torch.empty(4, 4)
    torch.mul(x, x, out=out)
    return out


BEYOND_TORCH = {
    "out=": into,
    "attention": lambda x: nn.functional.scaled_dot_product_attention(
        x[None, None], x[None, None] + 1, x[None, None]),
    "recurrence": lambda x: nn.GRU(4, 4)(x)[0],
}


@pytest.mark.parametrize("name", BEYOND_TORCH)
def test_what_has_a_gradient_has_a_tangent(name):
    x, t, h = torch.randn(4, 4), torch.randn(4, 4), 1e-2

    def f(x):
        torch.manual_seed(0)
        return BEYOND_TORCH[name](x)

    with fw.dual_level(), torch.no_grad():
        found = fw.unpack_dual(f(fw.make_dual(x, t))).tangent
        differences = (f(x + h * t) - f(x - h * t)) / (2 * h)
    torch.testing.assert_close(found, differences, rtol=1e-2, atol=1e-2)


def test_reverse_over_forward():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with fw.dual_level():
        tangent = fw.unpack_dual((fw.make_dual(x, torch.ones(2)) ** 3).sum()).tangent
        tangent.backward()
    torch.testing.assert_close(x.grad, 6 * x.detach())


def test_going_back_from_a_dual_tensor_is_refused():
    x = torch.tensor([1.0], requires_grad=True)
    with fw.dual_level():
        y = fw.make_dual(x, torch.ones(1)).exp()
        with pytest.raises(RuntimeError, match="forward mode over reverse mode"):
            y.backward()
        with pytest.raises(RuntimeError, match="forward mode over reverse mode"):
            torch.autograd.grad(y, x)
        with pytest.raises(RuntimeError, match="nest jvp"):
            torch.func.grad(lambda z: z.exp().sum())(y)
        fw.unpack_dual(y).primal.backward()
    assert x.grad is not None


def test_nothing_is_left():
    x = torch.ones(3)
    with fw.dual_level():
        d = fw.make_dual(x, torch.ones(3))
        view = d[1:]
        y = d * 2
    for each in (d, view, y):
        assert fw.unpack_dual(each).tangent is None and each.sig.tag is None
        assert "_tangent" not in each.__dict__
    assert torch.equal(y + d, torch.full((3,), 3.0))


def test_tangents_can_be_switched_off():
    with fw.dual_level():
        d = fw.make_dual(torch.ones(3), torch.ones(3))
        with fw._set_fwd_grad_enabled(False):
            assert not fw._is_fwd_grad_enabled()
            assert fw.unpack_dual(d * 2).tangent is None
        assert fw.unpack_dual(d * 2).tangent is not None


def test_a_compiled_function_in_a_level_and_a_level_in_a_compiled_function():
    f = torch.compile(lambda x: (x * x).sin())
    x, t = torch.tensor([1.0, 2.0]), torch.ones(2)
    for _ in range(3):
        f(x)
    with fw.dual_level():
        found = fw.unpack_dual(f(fw.make_dual(x, t))).tangent
    expected = 2 * x * (x * x).cos()
    torch.testing.assert_close(found, expected)

    @torch.compile
    def slope(x):
        y = x + 0
        with fw.dual_level():
            out = fw.unpack_dual(f.function(fw.make_dual(y, t))).tangent
        return out * 1

    for _ in range(3):
        torch.testing.assert_close(slope(x), expected)


def test_linearize_runs_the_function_once():
    calls = []

    def f(x, y):
        calls.append(1)
        return x * y, x.sin()

    x, y = torch.randn(3), torch.randn(3)
    out, push = torch.func.linearize(f, x, y)
    for _ in range(2):
        a, b = torch.randn(3), torch.randn(3)
        torch.testing.assert_close(push(a, b), torch.func.jvp(f, (x, y), (a, b))[1])
    torch.testing.assert_close(out[0], x * y)
    assert len(calls) == 3


@pytest.mark.parametrize("strategy", ["forward-mode", "reverse-mode"])
def test_jacobians_by_columns(strategy):
    def f(x, y):
        return x.sin() * y.sum(), (x @ y)

    x, y = torch.randn(2, 3), torch.randn(3, 2)
    found = torch.autograd.functional.jacobian(f, (x, y), vectorize=True, strategy=strategy)
    expected = torch.func.jacrev(f, argnums=(0, 1))(x, y)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    second = torch.autograd.functional.hessian(lambda x: x.pow(3).sum(), x, vectorize=True,
                                               outer_jacobian_strategy=strategy)
    torch.testing.assert_close(second.reshape(6, 6).diagonal(), 6 * x.reshape(-1))


def test_gradcheck_of_tangents():
    x, y = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    z = torch.randn(2, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y: (x * y, x.sum()), (x, y), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda z: z * z.conj() + 2j * z, (z,), check_forward_ad=True)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def jvp(ctx, t):
            return t * 3

    assert torch.autograd.gradcheck(Wrong.apply, (x,))
    with pytest.raises(RuntimeError, match="computed with forward mode mismatch"):
        torch.autograd.gradcheck(Wrong.apply, (x,), check_forward_ad=True)
    with pytest.raises(AssertionError, match="at least one of"):
        torch.autograd.gradcheck(Wrong.apply, (x,), check_backward_ad=False)
