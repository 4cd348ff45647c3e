"""The buffer protocol: other libraries see a tensor's memory without copying it."""

import gc
import hashlib
import struct

import numpy as np
import pytest

import flambeau as torch


def test_memoryview_shares_memory():
    x = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    view = memoryview(x)
    assert (view.format, view.shape, view.itemsize, view.readonly) == ("i", (2, 3), 4, False)
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    view[1, 2] = 50
    assert x[1, 2] == 50
    x[0, 0] = 7
    assert view[0, 0] == 7


def test_strided_views_keep_their_strides():
    x = torch.arange(12.0).reshape(3, 4).t()
    view = memoryview(x)
    assert view.shape == (4, 3) and view.strides == (4, 16)
    assert view.tolist() == x.tolist()


def test_a_view_keeps_the_memory_alive():
    view = memoryview(torch.full((1000,), 3.0))
    gc.collect()
    torch.zeros(1000)
    assert set(view.tolist()) == {3.0}


def test_what_takes_bytes_takes_tensors():
    x = torch.tensor([1.0, 2.0])
    assert hashlib.sha256(x).digest() == hashlib.sha256(struct.pack("ff", 1, 2)).digest()
    assert np.frombuffer(x, np.float32).tolist() == [1.0, 2.0]
    assert torch.frombuffer(x, dtype=torch.float32).data_ptr() == x.data_ptr()


def test_parameters_and_arrays():
    x = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(BufferError, match="requires grad"):
        memoryview(x)
    assert memoryview(x.detach()).tolist() == [1.0, 1.0, 1.0]
    y = torch.ones(3)
    np.asarray(y)[0] = 5
    assert y[0] == 5


def test_what_has_no_memory_that_others_understand():
    for x in (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, device="meta")):
        with pytest.raises(BufferError):
            memoryview(x)


def test_arrays_met_before_are_adopted_and_refused_alike():
    kinds = [np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6)[::2], np.zeros((0, 3)),
             np.arange(6.0).reshape(2, 3).T, np.array(3.5)]
    for given in kinds + kinds:  # the second time by the plan of the first
        x = torch.from_numpy(given)
        assert tuple(x.shape) == given.shape and x.tolist() == given.tolist()
        back = x.numpy()
        assert back.strides == given.strides and back.dtype == given.dtype
        if given.size:
            assert np.shares_memory(back, given)
        assert torch.tensor(given).tolist() == given.tolist()
        assert not given.size or torch.tensor(given).data_ptr() != x.data_ptr()
    for _ in range(2):
        with pytest.raises(ValueError, match="stride"):
            torch.from_numpy(np.arange(4)[::-1])
        with pytest.raises(ValueError, match="byte order"):
            torch.from_numpy(np.arange(4).astype(">i8"))
        with pytest.raises(TypeError):
            torch.from_numpy([1.0])


def test_an_array_of_a_tensor_and_a_tensor_of_an_array_keep_the_memory():
    back = torch.ones(1000).numpy()
    x = torch.from_numpy(np.full(1000, 2.0))
    others = [torch.zeros(1000) for _ in range(50)]
    assert back.sum() == 1000 and x.sum().item() == 2000 and len(others) == 50


def test_sizes_by_dimension():
    x = torch.zeros(2, 3)
    assert (x.size(0), x.size(-1), x.size(np.int64(1))) == (2, 3, 3)
    for wrong in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            x.size(wrong)
    with pytest.raises(IndexError, match="no dimensions"):
        torch.tensor(1.0).size(0)
