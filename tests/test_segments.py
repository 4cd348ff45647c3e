"""segment_reduce: stretches of a dimension, by lengths and by offsets, and the way back."""

import math

import pytest

import flambeau as torch

DATA = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
EXPECTED = {
    "sum":  ([[4, 6], [0, 0], [12, 14]], [[6, 8], [2, 2], [14, 16]]),
    "mean": ([[2, 3], [math.nan] * 2, [6, 7]], [[3, 4], [2, 2], [7, 8]]),
    "max":  ([[3, 4], [-math.inf] * 2, [7, 8]], [[3, 4], [2, 2], [7, 8]]),
    "min":  ([[1, 2], [math.inf] * 2, [5, 6]], [[1, 2], [2, 2], [2, 2]]),
    "prod": ([[3, 8], [1, 1], [35, 48]], [[6, 16], [2, 2], [70, 96]]),
}  # fmt: skip


@pytest.mark.parametrize("reduce", EXPECTED)
def test_segments_by_length_and_by_offset(reduce):
    data, lengths = torch.tensor(DATA), torch.tensor([2, 0, 2])
    plain, begun = (torch.tensor(rows, dtype=torch.float32) for rows in EXPECTED[reduce])
    found = torch.segment_reduce(data, reduce, lengths=lengths)
    assert torch.equal(found.nan_to_num(-1), plain.nan_to_num(-1))
    assert torch.equal(torch.segment_reduce(data, reduce, lengths=lengths, initial=2), begun)
    by_offset = torch.segment_reduce(data, reduce, offsets=torch.tensor([0, 2, 2, 4]))
    assert torch.equal(by_offset.nan_to_num(-1), plain.nan_to_num(-1))


def test_segments_of_each_row():
    lengths = torch.tensor([[1, 1], [2, 0], [0, 2], [1, 1]])
    found = torch.segment_reduce(torch.tensor(DATA), "sum", lengths=lengths, axis=1)
    assert found.tolist() == [[1, 2], [7, 0], [0, 11], [7, 8]]


@pytest.mark.parametrize("reduce", EXPECTED)
def test_gradients(reduce):
    data = torch.tensor(DATA, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([3, 1])
    assert torch.autograd.gradcheck(
        lambda x: torch.segment_reduce(x, reduce, lengths=lengths), (data,))


@pytest.mark.parametrize(("options", "words"), [
    ({}, "Either lengths or offsets must be defined"),
    ({"lengths": [2, 1]}, "Expected all rows of lengths along axis to sum"),
    ({"lengths": [-1, 5]}, "lengths contains negative value"),
    ({"lengths": [2, 2], "axis": 1}, "Expected axis to be the last dimension of lengths"),
    ({"indices": [0, 1]}, "indices based reduction is not supported"),
])
def test_what_is_refused(options, words):
    given = {name: torch.tensor(v) if isinstance(v, list) else v for name, v in options.items()}
    with pytest.raises(RuntimeError, match=words):
        torch.segment_reduce(torch.tensor(DATA), "sum", **given)


def test_unsafe_leaves_out_what_is_in_no_segment():
    found = torch.segment_reduce(torch.tensor(DATA), "sum", lengths=torch.tensor([2, 1]),
                                 unsafe=True)
    assert found.tolist() == [[4, 6], [5, 6]]
