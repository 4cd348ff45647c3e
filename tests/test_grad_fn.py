"""Looking at the graph gives its steps torch's names, and changes nothing of what they do."""

import pytest

import flambeau as torch
from flambeau.autograd.graph import Node


def test_a_class_of_its_own():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    step = y.grad_fn
    assert type(step).__name__ == "MulBackward0" and str(type(step)) == "<class 'MulBackward0'>"
    assert isinstance(step, Node) and y.grad_fn is step
    assert type((x + 1).grad_fn) is type((x + x).grad_fn)
    assert repr(step).startswith("<MulBackward0 object at 0x")
    assert type(x.split(1)[1].grad_fn).__name__ == "SplitBackward0"


def test_leaves_are_one_object_each():
    x = torch.ones(3, requires_grad=True)
    (first, _), (second, _) = (x * x).grad_fn.next_functions
    assert first is second and first.variable is x
    assert type(first).__name__ == "AccumulateGrad"
    assert first.name() == "torch::autograd::AccumulateGrad"


def test_what_was_looked_at_goes_back_as_ever():
    def gradients(look):
        torch.manual_seed(0)
        x = torch.randn(4, 4, requires_grad=True)
        a, b = (x * 2).split(2)
        y = (a @ x).tanh()
        z = y.sum() + (y * y).mean() + b.exp().sum()
        if look:
            seen, ahead = set(), [z.grad_fn]
            while ahead:
                step = ahead.pop()
                if step is not None and step not in seen:
                    seen.add(step)
                    ahead += [s for s, _ in step.next_functions]
            assert len(seen) > 8
        (partial,) = torch.autograd.grad(z, y, retain_graph=True)
        (first,) = torch.autograd.grad(z, x, create_graph=True)
        first.sum().backward(retain_graph=True)
        z.backward()
        return partial, first.detach(), x.grad

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_step_can_be_called():
    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    g = torch.randn(3)
    to_x, to_y = (x * y).grad_fn(g)
    torch.testing.assert_close(to_x.detach(), g * y.detach())
    torch.testing.assert_close(to_y.detach(), g * x.detach())
    torch.testing.assert_close(x.exp().grad_fn(g).detach(), g * x.detach().exp())
    leaf = (x * y).grad_fn.next_functions[0][0]
    leaf(g)
    leaf(g)
    torch.testing.assert_close(x.grad, 2 * g)


@pytest.mark.parametrize(("told", "kind"), [(3, TypeError), (torch.ones(1), RuntimeError)])
def test_a_hook_after_accumulation_returns_nothing(told, kind):
    x = torch.ones(1, requires_grad=True)
    handle = x.register_post_accumulate_grad_hook(lambda leaf: told)
    with pytest.raises(kind, match=r"should return None|hook returned 'int'"):
        (x * 2).sum().backward()
    handle.remove()
    (x * 2).sum().backward()
    assert x.grad.item() == 4
