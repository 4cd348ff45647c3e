"""ONNX models that torch wrote run here; models of ours give torch's numbers in onnxruntime."""

import io
import warnings

import numpy as np
import pytest
import torch

import flambeau
from flambeau import nn as fnn

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from flambeau import onnx as fonnx  # noqa: E402

CASES = {
    "mlp": (lambda nn: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16),
                                     nn.Linear(16, 4)), (4, 8)),
    "cnn": (lambda nn: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
                                     nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                     nn.Linear(8, 5)), (2, 3, 16, 16)),
    "norms": (lambda nn: nn.Sequential(nn.Conv1d(4, 6, 3, padding=1), nn.GroupNorm(2, 6),
                                       nn.InstanceNorm1d(6, affine=True), nn.Softmax(1)),
              (2, 4, 9)),
    "up": (lambda nn: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2), nn.Upsample(scale_factor=2.0),
                                    nn.Hardswish(), nn.PixelShuffle(2)), (1, 3, 4, 4)),
    "encoder": (lambda nn: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "lstm": (lambda nn: nn.LSTM(3, 4, 2, bidirectional=True), (5, 2, 3)),
    "gru": (lambda nn: nn.GRU(3, 4), (5, 2, 3)),
}


def first(value):
    return value[0] if isinstance(value, tuple) else value


# torch's exporter to files without a compiler of its own fails on its own encoder.
@pytest.mark.parametrize("name", [name for name in CASES if name != "encoder"])
def test_models_that_torch_wrote(name):
    make, shape = CASES[name]
    torch.manual_seed(0)
    model, x = make(torch.nn).eval(), torch.randn(shape)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), file, dynamo=False, opset_version=17)
    with flambeau.no_grad():
        found = fonnx.load(file.getvalue())(flambeau.from_numpy(x.numpy()))
    np.testing.assert_allclose(first(found).numpy(), first(model(x)).detach().numpy(), rtol=1e-5,
                               atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_our_models_give_torchs_numbers(name):
    make, shape = CASES[name]
    torch.manual_seed(0)
    theirs, ours = make(torch.nn).eval(), make(fnn).eval()
    ours.load_state_dict({k: flambeau.from_numpy(v.numpy().copy())
                          for k, v in theirs.state_dict().items()})
    x = torch.randn(shape)
    made = fonnx.export(ours, flambeau.from_numpy(x.numpy()), input_names=["x"])
    found = runtime.InferenceSession(made.SerializeToString(), providers=[
        "CPUExecutionProvider"]).run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(found, first(theirs(x)).detach().numpy(), rtol=1e-5, atol=1e-5)
