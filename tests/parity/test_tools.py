"""Tools of training scripts against torch's: pruning, attention by functions, event files."""

import contextlib
import glob
import importlib
import io

import numpy
import pytest
import torch

import flambeau

LIBS = (flambeau, torch)


def part(lib, name):
    return importlib.import_module(f"{lib.__name__}.{name}")


def both(program):
    results = []
    for lib in LIBS:
        lib.manual_seed(0)
        results.append(program(lib))
    return results


PRUNINGS = {
    "l1": lambda prune, m: prune.l1_unstructured(m, "weight", 0.4),
    "random": lambda prune, m: prune.random_unstructured(m, "bias", 2),
    "ln": lambda prune, m: prune.ln_structured(m, "weight", 0.5, 2, 0),
    "channels": lambda prune, m: prune.random_structured(m, "weight", 1, 1),
    "twice": lambda prune, m: prune.l1_unstructured(prune.random_unstructured(m, "weight", 3),
                                                    "weight", 0.5),
    "ln twice": lambda prune, m: prune.ln_structured(prune.ln_structured(m, "weight", 1, 1, 0),
                                                     "weight", 1, 2, 0),
}


@pytest.mark.parametrize("name", PRUNINGS)
def test_pruning(name):
    def program(lib):
        prune = part(lib, "nn.utils.prune")
        layer = lib.nn.Conv2d(3, 4, 2)
        PRUNINGS[name](prune, layer)
        out = layer(lib.ones(1, 3, 5, 5))
        out.sum().backward()
        gradients = [p.grad.numpy() for p in layer.parameters()]
        state = {k: v.numpy().copy() for k, v in layer.state_dict().items()}
        for each in ("weight", "bias"):
            with contextlib.suppress(ValueError):
                prune.remove(layer, each)
        return state, gradients, [k for k, _ in layer.named_parameters()], layer.weight

    (state, grads, names, _), (state2, grads2, names2, _) = both(program)
    assert list(state) == list(state2) and names == names2
    for key, value in state2.items():
        numpy.testing.assert_allclose(state[key], value, rtol=1e-6)
    for mine, its in zip(grads, grads2, strict=True):
        numpy.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-6)


def test_global_pruning_and_its_mistakes():
    def program(lib):
        prune = part(lib, "nn.utils.prune")
        a, b = lib.nn.Linear(4, 3), lib.nn.Linear(3, 5)
        prune.global_unstructured([(a, "weight"), (b, "weight")],
                                  pruning_method=prune.L1Unstructured, amount=0.4)
        errors = []
        for call in (lambda: prune.l1_unstructured(a, "weight", 1000),
                     lambda: prune.l1_unstructured(b, "bias", -1),
                     lambda: prune.remove(b, "bias")):
            with pytest.raises((ValueError, TypeError)) as caught:
                call()
            errors.append(caught.type)
        return a.weight_mask.tolist(), b.weight_mask.tolist(), errors

    mine, its = both(program)
    assert mine == its


def test_flex_attention():
    def program(lib):
        flex = part(lib, "nn.attention.flex_attention")
        q, k, v = (lib.randn(2, 3, 12, 4) for _ in range(3))
        window = flex.and_masks(lambda b, h, q, kv: q >= kv, lambda b, h, q, kv: q - kv < 5)
        mask = flex.create_block_mask(window, None, None, 12, 12, device="cpu", BLOCK_SIZE=4)
        out, lse = flex.flex_attention(q, k, v, lambda s, b, h, q, kv: s + 0.1 * (kv - q) * (h + 1),
                                       mask, return_lse=True)
        return out.numpy(), lse.numpy(), mask.to_dense().tolist()

    mine, its = both(program)
    assert mine[2] == its[2]
    for a, b in zip(mine[:2], its[:2], strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def write(lib, folder):
    lib.manual_seed(0)
    with part(lib, "utils.tensorboard").SummaryWriter(str(folder)) as writer:
        for k in range(3):
            writer.add_scalar("loss", 1 / (k + 1), k)
        numbers = lib.randn(500)
        writer.add_histogram("h", numbers, 1)
        writer.add_histogram("h10", numbers, 1, bins=10)
        writer.add_image("image", lib.rand(3, 7, 9), 2)
        writer.add_images("images", lib.rand(10, 1, 4, 4), 2)
        writer.add_text("text", "# title", 4)
        writer.add_pr_curve("pr", lib.randint(0, 2, (40,)), lib.rand(40), 1)
        writer.add_hparams({"lr": 0.1, "kind": "x"}, {"acc": 0.5}, run_name="tried")


def read(folder):
    """What the tensorboard package finds in a folder."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    image = pytest.importorskip("PIL.Image")
    (path,) = glob.glob(f"{folder}/events*")
    found = reader.EventAccumulator(path, size_guidance={"tensors": 0, "histograms": 0}).Reload()
    tags = found.Tags()
    result = {key: tags[key] for key in ("images", "histograms", "scalars", "tensors")}
    for tag in tags["scalars"]:
        result[f"scalar {tag}"] = [(e.step, e.value) for e in found.Scalars(tag)]
    for tag in tags["histograms"]:
        h = found.Histograms(tag)[0].histogram_value
        result[f"histogram {tag}"] = [h.min, h.max, h.num, *h.bucket_limit, *h.bucket]
    for tag in tags["images"]:
        picture = image.open(io.BytesIO(found.Images(tag)[0].encoded_image_string))
        result[f"image {tag}"] = numpy.array(picture).tolist()
    for tag in tags["tensors"]:
        event = found.Tensors(tag)[0]
        result[f"tensor {tag}"] = (event.step, list(event.tensor_proto.float_val),
                                   list(event.tensor_proto.string_val),
                                   found.SummaryMetadata(tag).plugin_data.plugin_name)
    return result


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_what_it_reads_from_torch(tmp_path):
    pytest.importorskip("tensorboard")
    for lib in LIBS:
        write(lib, tmp_path / lib.__name__)
    for sub in ("", "tried"):
        mine, its = (read(tmp_path / lib.__name__ / sub) for lib in LIBS)
        assert mine == its
    assert mine["scalar acc"] == [(0, 0.5)]
