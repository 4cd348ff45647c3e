"""Constructs that packages written for PyTorch rely on mean the same in both libraries."""

import re
import warnings

import pytest
import torch

import flambeau

LIBRARIES = pytest.mark.parametrize("library", [flambeau, torch], ids=["flambeau", "torch"])


def test_helpers_of_modules_are_no_names_that_others_could_use():
    """A package's own `_collect` or `_register` in a subclass must replace nothing of ours."""
    ours = set(dir(flambeau.nn.Module)) - set(dir(torch.nn.Module))
    views = {"_parameters", "_buffers", "_modules", "_is_full_backward_hook"}  # of instances there
    private = {name for name in ours if not re.match(r"_\w+__\w", name)}
    assert private - views == {"_hooked"}


@LIBRARIES
def test_writes_through_data_of_results(library):
    x = library.arange(3.0, requires_grad=True)
    h = x * 2
    total = (h * h).sum()
    h.data[1:] *= 3
    total.backward()
    assert (h._version, h.tolist(), x.grad.tolist()) == (0, [0, 6, 12], [0, 24, 48])


@LIBRARIES
def test_kinds_of_copies_of_subclasses(library):
    class Kind(library.Tensor):
        pass

    x = library.arange(6.0).view(2, 3).as_subclass(Kind).t()
    form = library.contiguous_format
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [x.data, x.to(memory_format=form), x.clone(memory_format=form), x.detach(),
                x.to(library.float64, memory_format=form), library.tensor(x), x.double()]
    assert [type(m) is Kind for m in made] == [True] * 5 + [False, True]


@LIBRARIES
def test_keys_of_trees(library):
    tree = library.utils._pytree
    value = {"a": [1, (2, 3)], "b": 4}
    found, _ = tree.tree_flatten_with_path(value)
    assert [(tree.keystr(path), leaf) for path, leaf in found] == [
        ("['a'][0]", 1), ("['a'][1][0]", 2), ("['a'][1][1]", 3), ("['b']", 4)]
    assert found[0][0] == (tree.MappingKey("a"), tree.SequenceKey(0))
    assert tree._get_node_type(value) is dict


@LIBRARIES
def test_refusals_of_checks(library):
    for check, kind in ((library._check, RuntimeError), (library._check_index, IndexError),
                        (library._check_value, ValueError)):
        with pytest.raises(kind, match="Expected cond to be True, but got False"):
            check(False)
        with pytest.raises(kind, match="too far"):
            check(False, lambda: "too far")
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value"):
        library._assert_async(library.tensor(False))


@LIBRARIES
def test_rows_of_sparse_matrices(library):
    begins = library._convert_indices_from_coo_to_csr(library.tensor([0, 0, 2]), 4, out_int32=True)
    assert begins.dtype is library.int32 and begins.tolist() == [0, 2, 2, 3, 3]
    columns = library.tensor([1, 0, 2], dtype=library.int32)
    for turned in (False, True):
        back = library._convert_indices_from_csr_to_coo(begins, columns, transpose=turned)
        assert back.tolist() == [[0, 0, 2], [1, 0, 2]][::-1 if turned else 1]


@LIBRARIES
def test_records_of_a_file(library, tmp_path):
    path = str(tmp_path / "x.pt")
    torch.save({"x": torch.arange(4.0)}, path)
    reader = library.PyTorchFileReader(path)
    assert {"data.pkl", "data/0", "version"} <= set(reader.get_all_records())
    numbers = reader.get_storage_from_record("data/0", 4, library.float32)
    assert numbers.shape == (0,) and list(numbers._typed_storage()) == [0, 1, 2, 3]
    assert reader.has_record("data/0") and not reader.has_record("data/1")


@LIBRARIES
def test_signatures_of_helpers_of_distributions(library):
    utils = library.distributions.utils
    library.manual_seed(0)
    noise = utils._standard_normal(library.Size([2]), library.float64, library.device("cpu"))
    library.manual_seed(0)
    assert noise.tolist() == library.randn(2, dtype=library.float64).tolist()
    assert utils._sum_rightmost(library.ones(2, 3), 1).tolist() == [3, 3]
    sigmoid = library.distributions.transforms._clipped_sigmoid
    assert 0 < sigmoid(library.tensor(-200.0)) < sigmoid(library.tensor(200.0)) < 1
