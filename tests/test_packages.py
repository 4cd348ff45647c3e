"""What packages written for PyTorch reach for beyond its usual names, construct by construct."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau import ao, nn
from flambeau._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from flambeau._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from flambeau._higher_order_ops.associative_scan import associative_scan
from flambeau.cli import standin
from flambeau.fx import _pytree as fx_pytree
from flambeau.utils import _pytree as pytree
from flambeau.utils import cpp_extension

ROOT = Path(__file__).resolve().parents[1]

ASKING = """
import importlib.metadata, importlib.util, subprocess, sys
spec = importlib.util.find_spec("torch")            # before it is imported
assert spec is not None and spec.loader is not None
assert importlib.metadata.version("torch") == "{version}"
assert "torch" in importlib.metadata.packages_distributions()["torch"]
import torch
assert torch.__spec__.name == "torch" and importlib.util.find_spec("torch") is torch.__spec__
assert importlib.util.find_spec("torch.nn") is not None
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
print("found")
"""


def test_packages_find_torch_before_they_import_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ASKING.format(version=standin.VERSION))
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", str(program)], cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
                          text=True)
    assert done.stdout.split() == ["found", "found"], done.stderr


# -- files ---------------------------------------------------------------------------------------


def test_storages_over_files_and_parts_of_storages(tmp_path):
    path = tmp_path / "numbers"
    np.arange(6, dtype=np.float32).tofile(path)
    storage = torch.UntypedStorage.from_file(str(path), False, 24)
    x = torch.asarray(storage[8:20], dtype=torch.uint8).view(dtype=torch.float32)
    assert x.tolist() == [2, 3, 4]
    x[0] = 7                                      # the same memory, and not the file
    assert torch.asarray(storage, dtype=torch.float32).tolist() == [0, 1, 7, 3, 4, 5]
    assert np.fromfile(path, np.float32)[2] == 2
    del storage
    assert x.tolist() == [7, 3, 4]

    shared = torch.UntypedStorage.from_file(str(path), True, 24)
    torch.asarray(shared, dtype=torch.float32)[5] = 9
    assert np.fromfile(path, np.float32)[5] == 9
    with pytest.raises(RuntimeError, match="step of 2"):
        shared[::2]


def test_states_of_numpys_generator_are_read_with_its_classes_declared_safe():
    file = io.BytesIO()
    torch.save(np.random.RandomState(3).get_state(), file)
    classes = [np._core.multiarray._reconstruct, np.ndarray, np.dtype, type(np.dtype(np.uint32))]
    with torch.serialization.safe_globals(classes):
        file.seek(0)
        _, keys, *_ = torch.load(file, weights_only=True)
    assert (keys == np.random.RandomState(3).get_state()[1]).all()
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file, weights_only=True)


# -- floats of one byte ----------------------------------------------------------------------------

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("kind", FLOAT8, ids=str)
def test_float8_keeps_what_it_can(kind):
    codes = torch.arange(256).to(torch.uint8)
    values = codes.view(kind).float()
    again = values.to(kind).view(torch.uint8)
    known = ~values.isnan()
    assert (again == codes)[known].all()
    assert values[~known].to(kind).float().isnan().all()
    info = torch.finfo(kind)
    assert values[known & values.isfinite()].max() == info.max
    small = torch.tensor([info.smallest_normal, info.smallest_subnormal])
    assert (small.to(kind).float() == small).all()


def test_float8_rounds_to_even_and_ends():
    x = torch.tensor([1.0625, 1.1875, 464, 1e9, -1e9, float("inf"), float("nan")])
    assert x.to(FLOAT8[0]).float().tolist()[:-1] == [1, 1.25, 448, 448, -448, 448]
    y = torch.tensor([1.125, 1.375, 61439, 61440, -1e9, float("nan")])
    assert y.to(FLOAT8[1]).float().tolist()[:-1] == [1, 1.5, 57344, float("inf"), -float("inf")]


def test_float8_is_for_keeping():
    x = torch.tensor([1.0, -2.5]).to(torch.float8_e4m3fn)
    assert repr(x) == "tensor([ 1.0000, -2.5000], dtype=torch.float8_e4m3fn)"
    assert x.element_size() == 1 and x.tolist() == [1, -2.5]
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch.load(file, weights_only=True).tolist() == [1, -2.5]
    with pytest.raises(RuntimeError, match="Promotion for Float8 Types is not supported"):
        x + torch.ones(2)
    with pytest.raises(TypeError, match="Float8_e4m3fn"):
        x.numpy()


# -- trees ---------------------------------------------------------------------------------------


def test_trees_of_caches():
    class Cache:
        def __init__(self, entries):
            self.entries = entries

    def flatten(cache):
        return pytree._dict_flatten(cache.entries)

    def flatten_with_keys(cache):
        return pytree._dict_flatten_with_keys(cache.entries)

    pytree.register_pytree_node(
        Cache, flatten, lambda values, keys: Cache(pytree._dict_unflatten(values, keys)),
        serialized_type_name="Cache", flatten_with_keys_fn=flatten_with_keys)
    fx_pytree.register_pytree_flatten_spec(
        Cache, lambda cache, spec: [cache.entries[key] for key in spec.context])
    cache = Cache({"keys": 1, "values": (2, 3)})
    leaves, spec = pytree.tree_flatten([cache])
    assert leaves == [1, 2, 3]
    assert pytree.tree_unflatten([4, 5, 6], spec)[0].entries == {"keys": 4, "values": (5, 6)}
    paths = [pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path([cache])]
    assert paths == ["[0]['keys']", "[0]['values'][0]", "[0]['values'][1]"]
    turned = Cache({"values": (2, 3), "keys": 1})
    assert fx_pytree.tree_flatten_spec([turned], spec) == [1, 2, 3]


# -- checks, scans, masks ------------------------------------------------------------------------


def test_checks_raise_what_they_are_told():
    torch._check(True)
    with pytest.raises(RuntimeError, match="seven"):
        torch._check(False, lambda: "seven")
    with pytest.raises(ValueError, match="odd"):
        torch._check_with(ValueError, False, lambda: "odd")
    with pytest.raises(TypeError, match="must be a bool"):
        torch._check(torch.ones(1) > 0)
    with pytest.raises(IndexError):
        torch._check_index(False)
    torch._check_tensor_all(torch.ones(3) > 0)
    with pytest.raises(KeyError, match="some"):
        torch._check_tensor_all_with(KeyError, torch.arange(3) > 0, lambda: "some")
    torch._check_is_size(3)
    with pytest.raises(RuntimeError):
        torch._check_is_size(-1)


@pytest.mark.parametrize("length", range(1, 10))
def test_associative_scan(length):
    x = torch.arange(1.0, length + 1)[None].repeat(2, 1).requires_grad_()
    scanned = associative_scan(torch.add, x, 1)
    assert torch.equal(scanned, x.cumsum(1))
    turned = associative_scan(torch.add, x, -1, reverse=True)
    assert torch.equal(turned, x.flip(1).cumsum(1).flip(1))
    slope, = torch.autograd.grad(scanned.sum(), x)
    assert slope[0].tolist() == list(range(length, 0, -1))


def test_associative_scan_of_pairs_is_a_recurrence():
    torch.manual_seed(0)
    decay, fed = torch.rand(6, 2), torch.randn(6, 2)
    _, states = associative_scan(
        lambda left, right: (left[0] * right[0], right[0] * left[1] + right[1]), (decay, fed), 0)
    state = torch.zeros(2)
    for t in range(6):
        state = decay[t] * state + fed[t]
        assert torch.allclose(states[t], state)
    with pytest.raises(ValueError, match="callable"):
        associative_scan(None, decay, 0)


def test_masks_for_one_position_mapped_over_positions():
    padding = torch.tensor([[True, True, False], [True, False, False]])

    def seen(batch, query, key):
        return padding[batch, key] & (key <= query)

    with TransformGetItemToIndex():
        mapped = seen
        for dims in ((None, None, 0), (None, 0, None), (0, None, None)):
            mapped = torch.vmap(mapped, in_dims=dims)
        mask = mapped(torch.arange(2), torch.arange(3), torch.arange(3))
    expected = padding[:, None, :] & torch.ones(3, 3, dtype=torch.bool).tril()
    assert torch.equal(mask, expected)


# -- what only a device or C++ has ---------------------------------------------------------------


def test_what_only_a_device_has_can_be_named_and_not_made():
    for kind in (torch.cuda.CUDAGraph, torch.cuda.graph, torch.cuda.MemPool, torch.cuda.Stream,
                 torch.cuda.StreamContext):
        with pytest.raises(RuntimeError, match=rf"torch\.cuda\.{kind.__name__} requires CUDA"):
            kind()
    assert torch.cuda.Event | None  # as annotations have it


def test_streams_and_events_of_the_cpu():
    with torch.Stream(device="cpu") as stream:
        before = torch.Event(enable_timing=True)
        before.record(stream)
        after = stream.record_event(torch.Event(enable_timing=True))
    assert stream.query() and after.query() and before.elapsed_time(after) >= 0
    with pytest.raises(ValueError, match="enable_timing"):
        before.elapsed_time(torch.Event())
    with pytest.raises(RuntimeError, match="no device cuda"):
        torch.Stream("cuda")


def test_packages_go_on_without_their_c_part():
    with pytest.raises(OSError, match="cannot be loaded here"):
        torch.ops.load_library("_C.so")
    with pytest.raises(RuntimeError, match="cannot build sums"):
        cpp_extension.load("sums", ["sums.cpp"])

    @torch.library.register_fake("a_package::never_defined")
    def shapes(x):
        return torch.empty_like(x)

    @torch.library.register_fake("a_package::defined_later")
    def shape(x):
        return x.new_empty(3)

    torch.library.define("a_package::defined_later", "(Tensor x) -> Tensor")
    made = torch.ops.a_package.defined_later(torch.ones(2, device="meta"))
    assert made.shape == (3,) and made.is_meta


def test_keys_that_are_left_out():
    keys = DispatchKeySet(DispatchKey.AutocastCPU) | DispatchKeySet(DispatchKey.AutocastCUDA)
    assert keys.has(DispatchKey.AutocastCPU) and not keys.has(DispatchKey.CPU)
    a = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        with _ExcludeDispatchKeyGuard(keys):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16


def test_stubs_of_quantization_let_floats_through():
    model = ao.quantization.QuantWrapper(nn.Linear(2, 2))
    x = torch.ones(1, 2)
    assert torch.equal(model(x), model.module(x))


def test_dirichlet_samples_by_their_private_name():
    torch.manual_seed(0)
    shares = torch._sample_dirichlet(torch.ones(4, 3))
    torch.manual_seed(0)
    assert torch.equal(shares, torch.distributions.Dirichlet(torch.ones(4, 3)).sample())
    assert torch.allclose(shares.sum(-1), torch.ones(4))


def test_onnx_is_asked_without_the_package_onnx():
    code = ("import sys; sys.modules['onnx'] = None\n"
            "import flambeau as torch\n"
            "from flambeau.onnx.symbolic_helper import parse_args\n"
            "assert not torch.onnx.is_in_onnx_export()\n"
            "torch.onnx.register_custom_op_symbolic('a::b', parse_args('v')(lambda g, x: x), 11)\n")
    subprocess.run([sys.executable, "-c", code], check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT)})


# -- experts -------------------------------------------------------------------------------------


def test_products_in_groups():
    torch.manual_seed(0)
    rows, experts = torch.randn(8, 5).requires_grad_(), torch.randn(3, 5, 4).requires_grad_()
    ends = torch.tensor([3, 3, 7], dtype=torch.int32)  # the second has none, the last row no one
    out = nn.functional.grouped_mm(rows, experts, offs=ends)
    expected = torch.cat([rows[:3] @ experts[0], rows[3:7] @ experts[2], torch.zeros(1, 4)])
    assert torch.equal(out, expected)
    slopes = torch.autograd.grad(out.pow(2).sum(), (rows, experts))
    wanted = torch.autograd.grad(expected.pow(2).sum(), (rows, experts))
    assert all(torch.allclose(a, b) for a, b in zip(slopes, wanted, strict=True))

    ends = torch.tensor([3, 5, 8], dtype=torch.int32)
    inner = nn.functional.grouped_mm(rows.T, out.detach(), offs=ends)
    assert torch.equal(inner[1], rows.T[:, 3:5] @ out[3:5]) and inner.shape == (3, 5, 4)
    columns = nn.functional.grouped_mm(experts.mT, rows.T, offs=ends)
    assert torch.equal(columns[:, 5:], experts[2].T @ rows.T[:, 5:])
    assert torch.equal(nn.functional.grouped_mm(experts.mT, experts), experts.mT @ experts)

    with pytest.raises(RuntimeError, match="Have to provide offsets"):
        nn.functional.grouped_mm(rows, experts)
    with pytest.raises(RuntimeError, match="Offsets have to be int32"):
        nn.functional.grouped_mm(rows, experts, offs=ends.long())
    with pytest.raises(RuntimeError, match="batch sizes have to match"):
        nn.functional.grouped_mm(rows, experts, offs=ends[:2])
    with pytest.raises(RuntimeError, match="contraction dimension"):
        nn.functional.grouped_mm(rows[:, 1:], experts, offs=ends)
