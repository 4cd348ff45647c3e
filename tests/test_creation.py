"""New tensors: from data, of one value, in steps, like others; options and refusals."""

import numpy as np
import pytest

import flambeau as torch
from flambeau.engine import sequence

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


# -- from data -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (3, torch.int64, ()),
        (2.5, torch.float32, ()),
        (True, torch.bool, ()),
        (1j, torch.complex64, ()),
        ([], torch.float32, (0,)),
        ([[]], torch.float32, (1, 0)),
        ([[1, 2], [3, 4]], torch.int64, (2, 2)),
        ([1, 2.5], torch.float32, (2,)),
        ([True, 2], torch.int64, (2,)),
        ([np.float32(1), 2.0], torch.float32, (2,)),
        (np.float64(1), torch.float64, ()),
        (np.array([1, 2], np.int16), torch.int16, (2,)),
        (range(4), torch.int64, (4,)),
        ((1.0, (2)), torch.float32, (2,)),
    ],
)
def test_tensor_infers_dtype_and_shape(data, dtype, shape):
    x = torch.tensor(data)
    assert (x.dtype, tuple(x.shape)) == (dtype, shape)
    np.testing.assert_array_equal(x.numpy(), np.array(data, x.numpy().dtype).reshape(shape))


@pytest.mark.parametrize(
    ("data", "dtype", "error", "words"),
    [
        ([[1, 2], [3]], None, ValueError, "expected sequence of length 2 at dim 1"),
        ([[1], 2], None, TypeError, "not a sequence"),
        ("a", None, TypeError, "invalid data type 'str'"),
        (["a"], None, ValueError, "too many dimensions 'str'"),
        (None, None, RuntimeError, "Could not infer dtype of NoneType"),
        ([300], torch.uint8, RuntimeError, "without overflow"),
        ([float("nan")], torch.int64, RuntimeError, "without overflow"),
        ([2**63], None, ValueError, "Overflow when unpacking"),
        ([1j], torch.float32, TypeError, "must be real number, not complex"),
    ],
)
def test_tensor_refuses(data, dtype, error, words):
    with pytest.raises(error, match=words):
        torch.tensor(data, dtype=dtype)


def test_tensor_copies_and_as_tensor_shares():
    array = np.zeros(3, np.float32)
    copy, shared = torch.tensor(array), torch.as_tensor(array)
    array[0] = 7
    assert copy[0].item() == 0 and shared[0].item() == 7
    assert torch.as_tensor(shared) is shared
    assert torch.as_tensor([1, 2], dtype=torch.float64).dtype == torch.float64


def test_asarray_says_when_it_would_have_to_copy():
    array = np.zeros(2)
    assert torch.asarray(array, copy=False).data_ptr() == array.ctypes.data
    assert torch.asarray(array, copy=True).data_ptr() != array.ctypes.data
    with pytest.raises(ValueError, match="can't alias"):
        torch.asarray([1.0, 2.0], copy=False)


def test_a_negative_number_wraps_into_an_unsigned_dtype():
    assert torch.tensor(-1, dtype=torch.uint8).item() == 255


def test_copying_a_tensor_warns():
    with pytest.warns(UserWarning, match=r"detach\(\).clone\(\)"):
        torch.tensor(torch.ones(1))


def test_frombuffer_shares_and_checks():
    buffer = bytearray(8)
    x = torch.frombuffer(buffer, dtype=torch.int16, offset=2)
    x[0] = 258
    assert buffer[2:4] == b"\x02\x01" and x.shape == (3,)
    with pytest.raises(ValueError, match="multiple of element size"):
        torch.frombuffer(bytearray(5), dtype=torch.int16)
    with pytest.raises(ValueError, match="must not be greater"):
        torch.frombuffer(buffer, dtype=torch.int16, count=9)


def test_from_numpy_refuses_what_cannot_be_shared():
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(np.arange(3)[::-1])
    with pytest.raises(TypeError, match=r"expected np\.ndarray"):
        torch.from_numpy([1])


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(2, 3), [2, 3], torch.Size([2, 3])])
def test_sizes_as_a_sequence(size):
    assert torch.zeros(size).shape == torch.ones(*size).shape == (2, 3)
    torch.rand(())  # what is remembered of it is not what no sizes at all mean
    assert torch.empty(size=size).shape == (2, 3)


def test_sizes_may_be_numpy_integers_and_tensors():
    assert torch.ones(np.int64(2), torch.tensor(3)).shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: torch.zeros(-1), RuntimeError),
        (lambda: torch.zeros(2.0), TypeError),
        (lambda: torch.zeros(True), TypeError),
        (lambda: torch.zeros(), TypeError),
        (lambda: torch.zeros(2, dtype="float32"), TypeError),
        (lambda: torch.zeros(2, device="cuda"), AssertionError),
        (lambda: torch.zeros(2, dtype=torch.int64, requires_grad=True), RuntimeError),
        (lambda: torch.zeros(2, pin_memory=True), RuntimeError),
        (lambda: torch.full(2, 1.0), TypeError),
        (lambda: torch.full((2,), 300, dtype=torch.uint8), RuntimeError),
        (lambda: torch.eye(-1), RuntimeError),
        (lambda: torch.zeros_like([1]), TypeError),
        (lambda: torch.empty(2, 3, memory_format=torch.channels_last), RuntimeError),
        (lambda: torch.empty_strided((2, 3), (1,)), RuntimeError),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("dtype", FLOATS)
def test_full_and_eye(dtype):
    assert torch.full((2,), 1.5, dtype=dtype).tolist() == [1.5, 1.5]
    assert torch.eye(2, 3, dtype=dtype).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_full_takes_the_dtype_of_its_value():
    values = (1, 1.0, True, 1j, torch.tensor(1, dtype=torch.int8))
    found = [torch.full((1,), v).dtype for v in values]
    assert found == [torch.int64, torch.float32, torch.bool, torch.complex64, torch.int8]


def test_python_types_are_dtypes():
    assert torch.zeros(1, dtype=float).dtype == torch.float64
    assert torch.zeros(1, dtype=int).dtype == torch.int64


def test_out_is_resized_and_keeps_its_dtype():
    out = torch.ones(3, dtype=torch.float64)
    assert torch.zeros(2, out=out) is out
    assert out.tolist() == [0, 0] and out.dtype == torch.float64
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        torch.zeros(2, out=out, dtype=torch.int64)


def test_likes_keep_the_order_of_memory():
    x = torch.empty(2, 3).transpose(0, 1)
    assert torch.zeros_like(x).stride() == (1, 3)
    assert torch.zeros_like(x, memory_format=torch.contiguous_format).stride() == (2, 1)
    assert torch.full_like(x, 2, dtype=torch.int64).dtype == torch.int64
    assert torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).stride() == (60, 1, 15, 3)
    assert torch.empty_permuted((2, 3), (1, 0)).stride() == (1, 2)


def test_new_methods():
    x = torch.ones(2, dtype=torch.float64)
    assert x.new_zeros(2, 3).dtype == torch.float64
    assert x.new_tensor([1, 2]).tolist() == [1, 2]
    assert x.new_full((2,), 3).tolist() == [3, 3]
    assert x.new(3).shape == (3,) and x.new([1, 2]).dtype == torch.float64


def test_meta_tensors_have_shape_only():
    x = torch.zeros(2, 3, device="meta")
    assert x.is_meta and (x + 1).shape == (2, 3)
    assert torch.arange(5, device="meta").shape == (5,)
    with pytest.raises(NotImplementedError, match="no data"):
        x.to("cpu")


def test_default_device_and_dtype():
    with torch.device("meta"):
        assert torch.ones(2).is_meta
    assert not torch.ones(2).is_meta
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.ones(1).dtype == torch.tensor(1.0).dtype == torch.float64
        assert torch.tensor(1j).dtype == torch.complex128
    finally:
        torch.set_default_dtype(torch.float32)
    with pytest.raises(TypeError, match="floating-point"):
        torch.set_default_dtype(torch.int64)


def test_legacy_constructors():
    assert torch.Tensor(2, 3).shape == (2, 3) and torch.Tensor([1, 2]).tolist() == [1, 2]
    assert torch.LongTensor([1.5]).tolist() == [1]
    assert isinstance(torch.ones(1), torch.FloatTensor)
    assert not isinstance(torch.ones(1), torch.LongTensor)
    with pytest.raises(TypeError, match="must be a sequence"):
        torch.Tensor(2.5)


# -- steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [(5,), (2, 7), (0, 10, 3), (10, 0, -3), (3, 3)])
def test_arange_of_integers(args):
    x = torch.arange(*args)
    assert x.tolist() == list(range(*args)) and x.dtype == torch.int64


def test_arange_counts_floats_without_losing_one():
    assert torch.arange(0, 1, 0.1).shape == (10,)
    assert torch.arange(1, 2.5, 0.5).tolist() == [1, 1.5, 2]
    assert torch.arange(3.0).dtype == torch.float32


@pytest.mark.parametrize(
    ("args", "error"),
    [((0, 1, 0), RuntimeError), ((1, 0), RuntimeError), ((float("inf"),), RuntimeError)],
)
def test_arange_refuses(args, error):
    with pytest.raises(error):
        torch.arange(*args)


def test_linspace_is_symmetric_and_ends_where_it_should():
    x = torch.linspace(-1, 1, 10)
    assert x[-1].item() == 1 and x.tolist() == [-v for v in reversed(x.tolist())]
    assert torch.linspace(0, 10, 5, dtype=torch.int64).tolist() == [0, 2, 5, 7, 10]
    assert torch.linspace(3, 9, 1).tolist() == [3] and torch.linspace(0, 1, 0).shape == (0,)
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.linspace(0, 1, -1)


def test_logspace():
    assert torch.logspace(0, 3, 4).tolist() == [1, 10, 100, 1000]
    assert torch.logspace(0, 3, 4, base=2).tolist() == [1, 2, 4, 8]


# -- random --------------------------------------------------------------------------------------


def test_the_same_seed_draws_the_same_numbers():
    torch.manual_seed(3)
    first = torch.rand(4)
    state = torch.get_rng_state()
    second = torch.randn(20)
    torch.set_rng_state(state)
    assert torch.randn(20).tolist() == second.tolist()
    assert torch.rand(4, generator=torch.Generator().manual_seed(3)).tolist() == first.tolist()


def test_fork_rng_leaves_the_stream_alone():
    torch.manual_seed(0)
    expected = torch.rand(2).tolist()
    torch.manual_seed(0)
    with torch.random.fork_rng():
        torch.rand(100)
    assert torch.rand(2).tolist() == expected


def test_a_transposed_tensor_is_filled_in_the_order_of_its_memory():
    torch.manual_seed(0)
    expected = torch.rand(3, 4)
    torch.manual_seed(0)
    found = torch.empty(3, 4).transpose(0, 1).uniform_().transpose(0, 1)
    assert found.tolist() == expected.tolist()


def test_filling_erases_the_gradient():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.uniform_()
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="leaf"):
        x.normal_()


def test_generators_are_copied_with_their_place():
    import copy
    import pickle

    g = torch.Generator().manual_seed(9)
    torch.rand(5, generator=g)
    copies = [g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))]
    expected = torch.rand(3, generator=g).tolist()
    assert all(torch.rand(3, generator=c).tolist() == expected for c in copies)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: torch.ones(2).uniform_(2, 1), RuntimeError),
        (lambda: torch.ones(2).normal_(0, -1), RuntimeError),
        (lambda: torch.ones(2).bernoulli_(2), RuntimeError),
        (lambda: torch.multinomial(torch.ones(3), 4), RuntimeError),
        (lambda: torch.randint(5, 5, (2,)), RuntimeError),
        (lambda: torch.rand(2, dtype=torch.int64), NotImplementedError),
        (lambda: torch.randperm(-1), RuntimeError),
        (lambda: torch.Generator("cuda"), RuntimeError),
        (lambda: torch.normal(0.0, 1.0), TypeError),
    ],
)
def test_random_refusals(call, error):
    with pytest.raises(error):
        call()


def test_a_list_that_is_its_own_element():
    one, two = [], []
    one.append(one)
    two += [two, two]
    for data in (one, two):
        with pytest.raises(ValueError, match="too many dimensions 'list'"):
            torch.tensor(data)


def test_short_ramps_and_eyes_are_torch_s():
    reference = pytest.importorskip("torch")

    def made(lib):
        found = [lib.arange(n) for n in (0, 1, 9, 70000)] + [lib.linspace(-1.7, 3, n)
                                                             for n in (0, 1, 2, 7, 64, 1001)]
        found += [lib.linspace(3, -1, 6, dtype=lib.float64),
                  lib.linspace(0, 10, 5, dtype=lib.int64)]
        for _ in range(2):
            found += [lib.eye(3), lib.eye(2, 4), lib.eye(4, 2, dtype=lib.int64), lib.eye(0)]
        return [(f.tolist(), str(f.dtype)) for f in found]

    assert made(torch) == made(reference)
    torch.eye(3), torch.eye(2, 3)
    assert torch.eye(3, requires_grad=True).requires_grad
    assert torch.eye(3, dtype=torch.float64).dtype is torch.float64
    for wrong in ((3.0,), (2, 3.0)):
        with pytest.raises(TypeError):
            torch.eye(*wrong)
    with torch.device("meta"):
        assert torch.eye(3).is_meta and torch.arange(3).is_meta and torch.linspace(0, 1, 3).is_meta
    kept = torch.eye(3)
    kept[0, 1] = 5
    assert torch.eye(3)[0, 1] == 0


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize(("start", "step", "n"), [
    (0, 0.1, 10), (0.0, 1.0, 70_001), (-5.5, 1e-4, 40_000), (10, -0.01, 999), (1e-3, 0.37, 33_000),
    (3, 1, 17), (2.5, 3, 1)])
def test_native_sequences_of_floats(kind, start, step, n):
    """Against what is rounded step by step with numpy."""
    found = torch.arange(start, start + (n - 0.5) * step, step, dtype=kind)
    assert np.array_equal(found.numpy(), sequence.arange_values(start, step, n, kind))
    if n > 1:
        found = torch.linspace(start, start + step, n, dtype=kind)
        assert np.array_equal(found.numpy(), sequence.linspace_values(start, start + step, n, kind))


def test_sequences_of_integers_with_steps():
    for given in ((0, 10, 3), (10, 0, -4), (-7, 7, 5), (5,), (3, 4), (2**40, 2**40 + 3)):
        assert torch.arange(*given).tolist() == list(range(*given))
        assert torch.arange(*given, dtype=torch.float64).tolist() == list(range(*given))
    assert torch.arange(3, 3).shape == torch.arange(0, -5, -1)[5:].shape == (0,)
    assert torch.arange(2**13 + 3).tolist() == list(range(2**13 + 3))
