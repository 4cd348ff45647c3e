"""uint16, uint32 and uint64: tokens, counts and hashes; and what reads elements as bits."""

import io
import pickle

import numpy as np
import pytest

import flambeau as torch

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
TOP = {torch.uint16: 2**16 - 1, torch.uint32: 2**32 - 1, torch.uint64: 2**64 - 1}


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_they_hold_what_numpy_holds(dtype):
    values = np.array([0, 1, 60000, TOP[dtype]], dtype.name)
    shared, copied = torch.from_numpy(values), torch.tensor(values)
    assert shared.dtype is copied.dtype is dtype
    assert shared.tolist() == copied.tolist() == values.tolist()
    assert torch.equal(shared, torch.tensor(values.tolist(), dtype=dtype))
    assert shared[3].item() == TOP[dtype] == torch.iinfo(dtype).max
    assert shared.numpy().dtype == values.dtype
    assert repr(torch.tensor([1, 60000], dtype=dtype)) == (
        f"tensor([    1, 60000], dtype={dtype})")
    assert shared.type() == f"torch.UInt{8 * dtype.itemsize}Tensor"
    assert not dtype.is_signed and not shared.is_floating_point()


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_conversions_wrap_and_truncate(dtype):
    assert torch.tensor([-1]).to(dtype).item() == TOP[dtype]
    assert torch.tensor([7.9, -1.0]).to(dtype).tolist() == [7, TOP[dtype]]
    x = torch.tensor([3, 60000], dtype=dtype)
    assert x.long().tolist() == x.double().tolist() == [3, 60000]
    assert x.bool().all()
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.tensor([TOP[torch.uint32] + 1], dtype=torch.uint32)


def test_the_upper_half_of_uint64():
    large = torch.tensor([2**64 - 1, 2**63, 5], dtype=torch.uint64)
    assert large.double().tolist() == [2.0**64, 2.0**63, 5.0]
    assert torch.tensor([1.5e19, 2.0**63], dtype=torch.float64).to(torch.uint64).tolist() == [
        15 * 10**18, 2**63]
    assert large.sort().values.tolist() == [5, 2**63, 2**64 - 1]
    assert large.max().item() == 2**64 - 1
    assert (large // 2).tolist() == [2**63 - 1, 2**62, 2]
    assert torch.tensor([-1]).view(torch.uint64).item() == 2**64 - 1


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_arithmetic_stays_or_becomes_floating(dtype):
    x = torch.tensor([1, 2, 60000], dtype=dtype)
    assert (x * x).tolist() == [1, 4, 60000**2 % (TOP[dtype] + 1)]
    assert (x + 1).dtype is (x & x).dtype is dtype
    assert (x / 2).dtype is (x + torch.ones(3)).dtype is torch.float32
    assert x.sum().dtype is torch.int64
    assert x.cumsum(0).tolist() == [1, 3, 60003]
    assert x.unique().dtype is x[torch.tensor([0, 2])].dtype is torch.cat([x, x]).dtype is dtype
    for other in (torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool)):
        with pytest.raises(RuntimeError, match="Promotion for uint16, uint32, uint64 types is not"):
            x + other
    with pytest.raises(IndexError, match="tensors used as indices must be"):
        torch.ones(3)[x]


def test_they_are_saved():
    given = {"tokens": torch.arange(5).to(torch.uint16)[1:],
             "hash": torch.tensor([2**64 - 1], dtype=torch.uint64)}
    file = io.BytesIO()
    torch.save(given, file)
    file.seek(0)
    for found in (torch.load(file), pickle.loads(pickle.dumps(given))):
        assert all(torch.equal(found[name], given[name]) for name in given)
        assert [x.dtype for x in found.values()] == [torch.uint16, torch.uint64]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_hash_combines_the_bits(dtype):
    x = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4).sub(5).to(dtype)
    bits = x.double().numpy().view(np.uint64)
    whole = torch.hash_tensor(x)
    assert whole.dtype is torch.uint64
    assert whole.item() == np.bitwise_xor.reduce(bits, None)
    assert torch.hash_tensor(x, (0, 2), keepdim=True).shape == (1, 3, 1)
    assert x.hash_tensor(1).tolist() == np.bitwise_xor.reduce(bits, 1).tolist()


def test_a_hash_of_integers_and_what_has_none():
    assert torch.hash_tensor(torch.tensor([-1, 5], dtype=torch.int8)).item() == 2**64 - 6
    assert torch.hash_tensor(torch.tensor([True, True])).item() == 0
    assert not torch.hash_tensor(torch.ones(2, requires_grad=True)).requires_grad
    with pytest.raises(RuntimeError, match="Unknown hash_tensor mode: 1"):
        torch.hash_tensor(torch.ones(2), mode=1)
    with pytest.raises(RuntimeError, match=r"hash_tensor.* Expected reduction dim"):
        torch.hash_tensor(torch.ones(0))
    with pytest.raises(NotImplementedError, match="ComplexFloat"):
        torch.hash_tensor(torch.ones(2, dtype=torch.complex64))
