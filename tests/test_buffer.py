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
