"""benchmarks/peers.py: the same numbers for every library, and losses compared before times are."""

import importlib
import importlib.util
from pathlib import Path

import numpy
import pytest

import flambeau

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def peers():
    return importlib.import_module("peers")


@pytest.fixture
def peer_models():
    return importlib.import_module("peer_models")


def test_every_model_of_the_benchmarks_has_its_peers(peer_models):
    model_cases = importlib.import_module("model_cases")
    assert list(peer_models.MODELS) == list(model_cases.MODELS)


def test_a_start_has_the_numbers_of_flambeaus_model(peer_models, tmp_path):
    model_cases = importlib.import_module("model_cases")
    path = str(tmp_path / "numbers.npz")
    peer_models.write("ResNet-18", flambeau, path)
    flambeau.manual_seed(0)
    model = model_cases.resnet18_model(flambeau)
    first = peer_models.read("ResNet-18", path)
    assert (first.optimizer, first.options) == ("SGD", {"lr": 0.01, "momentum": 0.9})
    for name, weight in model.named_parameters():
        numpy.testing.assert_array_equal(first.weights[name], weight.detach().numpy())
    assert set(first.buffers) == {name for name, _ in model.named_buffers()
                                  if not name.endswith("num_batches_tracked")}
    assert [a.shape for a in first.inputs] == [(8, 3, 32, 32), (8,)]

    last = peer_models.read("ResNet-18", path, lambda name, a: a.transpose(2, 3, 1, 0))
    assert last.inputs[0].shape == (8, 32, 32, 3)
    assert last.weights["0.weight"].shape == (3, 3, 3, 64)
    numpy.testing.assert_array_equal(last.weights["13.weight"], first.weights["13.weight"])


def test_what_is_flattened_last_meets_the_weights_of_its_own_channels(peer_models, tmp_path):
    path = str(tmp_path / "numbers.npz")
    peer_models.write("MNIST CNN", flambeau, path)
    first = peer_models.read("MNIST CNN", path)
    last = peer_models.read("MNIST CNN", path, lambda name, a: a)
    x = numpy.random.default_rng(0).standard_normal((64, 12, 12))
    numpy.testing.assert_allclose(last.weights["7.weight"] @ x.transpose(1, 2, 0).reshape(-1),
                                  first.weights["7.weight"] @ x.reshape(-1), rtol=1e-6, atol=1e-6)


def test_words_choose_models_and_libraries_and_flambeau_is_always_there(peers):
    found = peers.chosen("gpt,house", "jax,full")
    assert found == {"house MLP": ["flambeau compiled", "flambeau fullgraph", "jax jit"],
                     "char GPT": ["flambeau compiled", "flambeau fullgraph", "jax jit"]}


@pytest.mark.parametrize("losses, agree", [
    ([2.0, 1.00001], True), ([2.0, 1.1], False), ([2.0, float("nan")], False)])
def test_other_losses_are_a_fault(peers, losses, agree):
    row = {"losses": losses}
    peers.judge(row, {"losses": [2.0, 1.0]}, 1e-4)
    assert ("fault" not in row) == agree


def test_a_row_says_times_ratios_and_what_is_missing(peers):
    found = {"flambeau compiled": {"step": 1e-4, "start": 0.3}, "mlx compiled": {"fault": "none"},
             "jax jit": {"step": 2.5e-3, "start": 2.0}}
    names = ["flambeau compiled", "torch", "jax jit", "mlx compiled"]
    assert peers.cells(found, names) == ["100.0, 0.3 s", "", "2,500 (25.00), 2.0 s", "-"]
    assert peers.faults(found) == ["mlx compiled: none"]


@pytest.mark.parametrize("library", ["jax jit", "mlx compiled", "tinygrad jit"])
def test_losses_agree(peers, library):
    if not importlib.util.find_spec(library.split()[0]):
        pytest.skip("not installed")
    found = peers.compare("house MLP", 1, 1, 0.01, [peers.OURS, library])
    if "clang" in found[library].get("fault", ""):
        pytest.skip(found[library]["fault"])
    assert not peers.faults(found)
    assert found[library]["error"] < 1e-4 and found[library]["step"] > 0
