"""Printed tensors, written out."""

import pickle

import numpy as np

import flambeau as torch
from flambeau.core.printing import PrintOptions, changed_options, format_values, tensor_text


def text(values, dtype="float32", **kwargs):
    return tensor_text(np.asarray(values, dtype), dtype, **kwargs)


def test_whole_floats_end_in_a_point():
    assert text([[1, 2], [3, 4]]) == "tensor([[1., 2.],\n        [3., 4.]])"


def test_fractions_have_four_digits():
    assert text([0.5, -1.25, 3]) == "tensor([ 0.5000, -1.2500,  3.0000])"


def test_wide_ranges_are_scientific():
    assert text([1e-5, 1.0]) == "tensor([1.0000e-05, 1.0000e+00])"


def test_nan_and_infinity():
    assert text([1.5, np.nan, -np.inf]) == "tensor([1.5000,    nan,   -inf])"
    assert text([1.0, np.nan]) == "tensor([1., nan])"


def test_integers_and_booleans():
    assert text([1, -20], "int64") == "tensor([  1, -20])"
    assert text([1, -20], "int32") == "tensor([  1, -20], dtype=torch.int32)"
    assert text([True, False], "bool") == "tensor([ True, False])"


def test_complex():
    assert text([1 + 2j, 0.5 - 1j], "complex64") == "tensor([1.0000+2.j, 0.5000-1.j])"


def test_scalars_and_empties():
    assert text(3.0) == "tensor(3.)"
    assert text(np.ones((0, 3))) == "tensor([], size=(0, 3))"
    assert text([], "int64") == "tensor([], dtype=torch.int64)"
    assert tensor_text(None, "float32", shape=(2, 3), device="meta") == (
        "tensor(..., device='meta', size=(2, 3))"
    )


def test_large_tensors_show_their_edges():
    assert text(np.arange(2000.0)) == (
        "tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03, 1.9980e+03,\n"
        "        1.9990e+03])"
    )


def test_only_the_edges_are_read():
    class Edges(np.ndarray):
        def __getitem__(self, key):
            part = super().__getitem__(key)
            assert part.size <= 36
            return part

    giant = np.broadcast_to(np.float32(1), (1 << 40, 1 << 20)).view(Edges)
    assert format_values(giant).startswith("[[1., 1., 1.,  ..., 1., 1., 1.],")


def test_suffixes_wrap():
    assert text([0.5], grad_fn_name="MulBackward0") == "tensor([0.5000], grad_fn=<MulBackward0>)"
    assert text(np.full(8, 0.5), "float64", requires_grad=True) == (
        "tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000],\n"
        "       dtype=torch.float64, requires_grad=True)"
    )


def test_parameters_say_so():
    expected = "Parameter containing:\ntensor([1.], requires_grad=True)"
    assert text([1.0], requires_grad=True, is_parameter=True) == expected


def test_options_follow_profiles():
    options = changed_options(PrintOptions(sci_mode=True), profile="short", linewidth=40)
    assert options == PrintOptions(precision=2, edgeitems=2, linewidth=40)
    assert text([0.125], options=options) == "tensor([0.12])"


def test_types_that_programs_print_are_called_as_in_torch():
    """And yet they are pickled without torch: by functions of this library."""
    found = [torch.Size([1, 2]), torch.float16, torch.device("cpu"),
             torch.nn.Parameter(torch.ones(1))]
    assert [str(type(value)) for value in found] == [
        "<class 'torch.Size'>", "<class 'torch.dtype'>", "<class 'torch.device'>",
        "<class 'torch.nn.parameter.Parameter'>"]
    for value in found:
        again = pickle.loads(pickle.dumps(value))
        assert type(again) is type(value) and again == value
