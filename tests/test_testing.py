"""torch.testing and torch.utils.benchmark: what users test and measure with."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.testing import assert_close, make_tensor
from flambeau.utils import benchmark


def test_what_is_close():
    assert_close(torch.ones(3), torch.ones(3) + 1e-7)
    assert_close({"a": [torch.ones(2), 1.0]}, {"a": [torch.ones(2), 1.0 + 1e-9]})
    assert_close(torch.tensor([float("nan")]), torch.tensor([float("nan")]), equal_nan=True)
    assert_close(torch.ones(2), torch.ones(2, dtype=torch.float64), check_dtype=False)
    assert_close(1, 1)


FAULTS = {
    "values": ([1.0, 2.0, 1.0], [1.0, 1.0, 1.0],
               "Tensor-likes are not close!\n\nMismatched elements: 1 / 3 (33.3%)\nGreatest "
               "absolute difference: 1.0 at index (1,) (up to 1e-05 allowed)\nGreatest relative "
               "difference: 1.0 at index (1,) (up to 1.3e-06 allowed)"),
    "whole numbers": ([1, 2], [1, 4],
                      "Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\nGreatest "
                      "absolute difference: 2 at index (1,)\nGreatest relative difference: 0.5 at "
                      "index (1,)"),
    "shapes": ([1.0], [1.0, 1.0], "The values for attribute 'shape' do not match: "
               "torch.Size([1]) != torch.Size([2])."),
    "dtypes": ([1], [1.0], "The values for attribute 'dtype' do not match: torch.int64 != "
               "torch.float32."),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_differs_is_told(name):
    actual, expected, told = FAULTS[name]
    with pytest.raises(AssertionError) as raised:
        assert_close(torch.tensor(actual), torch.tensor(expected))
    assert str(raised.value) == told
    with pytest.raises(AssertionError, match=r"\['b'\]\[0\]"):
        assert_close({"b": [torch.tensor(actual)]}, {"b": [torch.tensor(expected)]})


def test_made_tensors():
    for dtype in (torch.float32, torch.int8, torch.bool, torch.complex64):
        made = make_tensor(3, 4, dtype=dtype)
        assert made.shape == (3, 4) and made.dtype is dtype
    bounded = make_tensor((50,), dtype=torch.float64, low=2, high=3, requires_grad=True)
    assert bounded.min() >= 2 and bounded.max() < 3 and bounded.requires_grad
    assert not make_tensor(3, 4, dtype=torch.float32, noncontiguous=True).is_contiguous()


def test_timers():
    timer = benchmark.Timer("x + 1", globals={"x": torch.ones(3)}, sub_label="add")
    found = timer.blocked_autorange(min_run_time=0.01)
    assert found.median > 0 and sum(found.raw_times) >= 0.01 and "add" in repr(found)
    assert timer.timeit(5).number_per_run == 5
    assert "add" in str(benchmark.Compare([found]))
