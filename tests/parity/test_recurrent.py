"""Recurrent layers against torch: results, last states and gradients, padded and packed."""

import numpy as np
import pytest
import torch

import flambeau as fl

CASES = {
    "LSTM":      ("LSTM", {"num_layers": 2}),
    "GRU":       ("GRU", {"num_layers": 2, "bidirectional": True}),
    "RNN":       ("RNN", {"nonlinearity": "relu", "batch_first": True}),
    "no bias":   ("LSTM", {"bias": False, "bidirectional": True}),
    "projected": ("LSTM", {"proj_size": 5, "num_layers": 2}),
    "dropout":   ("GRU", {"num_layers": 3, "dropout": 0.3}),
}


def run(lib, name, options, lengths=None):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(7, 20, **options)
    module = getattr(lib.nn, name)(7, 20, **options)
    module.load_state_dict({k: lib.tensor(p.numpy()) for k, p in theirs.state_dict().items()})
    x = lib.tensor(np.random.default_rng(1).standard_normal((6, 3, 7)).astype("f"),
                   requires_grad=True)
    given = x if lengths is None else lib.nn.utils.rnn.pack_padded_sequence(
        x, lib.tensor(lengths), batch_first=options.get("batch_first", False), enforce_sorted=False)
    lib.manual_seed(2)
    out, last = module(given)
    out = out if lengths is None else out.data
    last = last if isinstance(last, tuple) else (last,)
    total = out.square().sum()
    for state in last:
        total = total + state.sum()
    total.backward()
    return [out.detach().numpy(), *(s.detach().numpy() for s in last), x.grad.numpy(),
            *(p.grad.numpy() for p in module.parameters())]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("packed", [False, True])
def test_against_torch(case, packed):
    name, options = CASES[case]
    lengths = ([3, 6, 2, 1, 6, 4] if options.get("batch_first") else [4, 6, 2]) if packed else None
    if packed and options.get("batch_first"):
        lengths = [min(n, 3) for n in lengths]
    for a, b in zip(run(fl, name, options, lengths), run(torch, name, options, lengths),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1, np.abs(b).max()))
