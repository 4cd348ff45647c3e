"""`out=` of what is plain is a copy; all that is not goes the way it always did."""

import pytest

import flambeau as torch


def test_out_is_written_and_counted():
    x, y, out = torch.randn(3, 4), torch.randn(3, 4), torch.zeros(3, 4)
    for call in (torch.add, torch.maximum, lambda a, b, out: torch.cat([a[:1], b[1:]], out=out)):
        before, address = out._version, out.data_ptr()
        assert call(x, y, out=out) is out and out.data_ptr() == address
        assert out._version == before + 1
    assert torch.equal(out, torch.cat([x[:1], y[1:]]))
    square = torch.randn(4, 4)
    assert torch.equal(torch.mm(x, square, out=out), x @ square)


def test_out_may_be_an_operand():
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.add(x, 1, out=x) is x and x[0, 0] == 1
    square = torch.ones(3, 3)
    torch.mm(square, square, out=square)
    assert torch.equal(square, torch.full((3, 3), 3.0))


def test_out_that_overlaps_or_is_recorded_is_refused():
    x = torch.randn(5)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(x[1:], x[:-1], out=x[1:])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat([x, x], out=torch.as_strided(x, (10,), (0,)))
    w = torch.randn(5, requires_grad=True)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        torch.add(w, 1, out=x)
    with torch.no_grad():
        assert torch.add(w, 1, out=x) is x and x.grad_fn is None


def test_a_kept_tensor_that_is_an_out_is_noticed():
    x, kept = torch.randn(4, requires_grad=True), torch.ones(4)
    y = x * kept
    torch.add(torch.ones(4), 1, out=kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
