"""nn against torch's: arguments, names in the state, printed form, and the numbers drawn."""

import inspect
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau  # noqa: E402

# name -> argument lists: (positional, keyword)
LAYERS = {
    "Identity": [((1,), {"a": 2})],
    "Linear": [((5, 3), {}), ((5, 3), {"bias": False})],
    "Bilinear": [((3, 4, 5), {}), ((3, 4, 5), {"bias": False})],
    "LazyLinear": [((4,), {}), ((4,), {"bias": False})],
    **{f"Conv{n}d": [((4, 6, 3), {}), ((4, 6, 3, 2, 1, 2, 2, False, "reflect"), {}),
                     ((4, 6, 3), {"padding": "same"})] for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": [((4, 6, 3), {}), ((4, 6, 3, 2, 1, 1, 2, False), {})]
       for n in (1, 2, 3)},
    **{f"LazyConv{n}d": [((6, 3), {}), ((6, 3, 2), {"groups": 2, "bias": False})]
       for n in (1, 2, 3)},
    **{f"LazyConvTranspose{n}d": [((6, 3), {}), ((6, 3), {"output_padding": 1, "stride": 2})]
       for n in (1, 2, 3)},
    **{f"MaxPool{n}d": [((3,), {}), ((3, 2, 1, 2, True, True), {})] for n in (1, 2, 3)},
    **{f"MaxUnpool{n}d": [((3,), {}), ((3, 2, 1), {})] for n in (1, 2, 3)},
    **{f"AvgPool{n}d": [((3,), {}), ((3, 2, 1, True, False), {})] for n in (1, 2, 3)},
    **{f"FractionalMaxPool{n}d": [((3,), {"output_size": 4}), ((3,), {"output_ratio": 0.5})]
       for n in (2, 3)},
    **{f"LPPool{n}d": [((2, 3), {}), ((1.5, 3, 2, True), {})] for n in (1, 2, 3)},
    **{f"AdaptiveMaxPool{n}d": [((3,), {})] for n in (1, 2, 3)},
    **{f"AdaptiveAvgPool{n}d": [((3,), {})] for n in (1, 2, 3)},
    **{f"{kind}Pad{n}d": [((1,), {}), ((tuple(range(2 * n)),), {})]
       for kind in ("Circular", "Reflection", "Replication", "Zero") for n in (1, 2, 3)},
    **{f"ConstantPad{n}d": [((1, 2.5), {}), ((tuple(range(2 * n)), 0), {})] for n in (1, 2, 3)},
    **{name: [((), {})] for name in ("LogSigmoid", "Sigmoid", "Softmax2d", "Softsign", "Tanh",
                                     "Tanhshrink")},
    **{name: [((), {}), ((True,), {})] for name in ("Hardsigmoid", "Hardswish", "Mish", "ReLU",
                                                    "ReLU6", "SELU", "SiLU")},
    **{name: [((), {}), ((0.3, True), {})] for name in ("CELU", "ELU", "LeakyReLU")},
    **{name: [((), {}), ((0.3,), {})] for name in ("Hardshrink", "Softshrink")},
    **{name: [((), {}), ((1,), {})] for name in ("LogSoftmax", "Softmax", "Softmin")},
    "GELU": [((), {}), (("tanh",), {})],
    "GLU": [((), {}), ((0,), {})],
    "Hardtanh": [((), {}), ((-2, 2, True), {})],
    "PReLU": [((), {}), ((3, 0.1), {})],
    "RReLU": [((), {}), ((0.1, 0.2, True), {})],
    "Softplus": [((), {}), ((2, 10), {})],
    "Threshold": [((0.1, 20), {}), ((0.1, 20, True), {})],
    "MultiheadAttention": [((8, 2), {}), ((8, 2, 0.1, False, True, True), {}),
                           ((8, 2), {"kdim": 4, "vdim": 6, "batch_first": True})],
    **{f"{lazy}BatchNorm{n}d": [(args, {}), (args, {"momentum": None, "affine": False}),
                                (args, {"track_running_stats": False}), (args, {"bias": False})]
       for n in (1, 2, 3) for lazy, args in (("", (4,)), ("Lazy", ()))},
    **{f"{lazy}InstanceNorm{n}d": [(args, {}), (args, {"affine": True}), (args, {"affine": True,
                                   "track_running_stats": True, "bias": False})]
       for n in (1, 2, 3) for lazy, args in (("", (4,)), ("Lazy", ()))},
    "SyncBatchNorm": [((4,), {})],
    "LayerNorm": [((4,), {}), (((3, 4), 1e-3, False), {}), ((4,), {"bias": False})],
    "RMSNorm": [((4,), {}), (((3, 4), 1e-3, False), {})],
    "GroupNorm": [((2, 4), {}), ((2, 4), {"affine": False}), ((2, 4), {"bias": False})],
    "LocalResponseNorm": [((2,), {}), ((3, 1e-3, 0.5, 2), {})],
    "CrossMapLRN2d": [((3,), {})],
    **{f"{kind}Dropout{n}": [((), {}), ((0.3, True), {})]
       for kind, n in (("", ""), ("", "1d"), ("", "2d"), ("", "3d"), ("Alpha", ""),
                       ("FeatureAlpha", ""))},
    **{name: [((4, 5), {}), ((4, 5, 2), {"batch_first": True, "bidirectional": True}),
              ((4, 5, 3), {"bias": False, "dropout": 0.2})] for name in ("RNN", "GRU", "LSTM")},
    "RNNBase": [(("GRU", 4, 5), {})],
    "RNNCell": [((4, 5), {}), ((4, 5, False, "relu"), {})],
    "RNNCellBase": [((4, 5, True, 2), {})],
    "GRUCell": [((4, 5), {}), ((4, 5, False), {})],
    "LSTMCell": [((4, 5), {}), ((4, 5, False), {})],
    "TransformerEncoderLayer": [((8, 2, 16), {}), ((8, 2, 16), {"norm_first": True,
                                 "activation": "gelu", "bias": False})],
    "TransformerDecoderLayer": [((8, 2, 16), {}), ((8, 2, 16), {"batch_first": True})],
    "Transformer": [((8, 2, 2, 1, 16), {}), ((8, 2, 1, 2, 16), {"bias": False})],
    "Embedding": [((10, 6), {}), ((10, 6, 3, 1.0, 1.0, True, True), {}), ((10, 6, -1), {})],
    "EmbeddingBag": [((10, 6), {}), ((10, 6, 1.0, 1.0, True, "sum"), {"padding_idx": 2})],
    "PairwiseDistance": [((), {})],
    "CosineSimilarity": [((), {})],
    **{name: [((), {}), ((), {"reduction": "sum"})]
       for name in ("BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss",
                    "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss",
                    "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss",
                    "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
                    "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
                    "TripletMarginLoss", "TripletMarginWithDistanceLoss")},
    "LinearCrossEntropyLoss": [((4, 5), {}), ((4, 5), {"bias": True, "out_features": (2,)})],
    "AdaptiveLogSoftmaxWithLoss": [((8, 12, [4, 8]), {}), ((16, 20, [5], 2.0, True), {})],
    "Flatten": [((), {}), ((0, 2), {})],
    "Unflatten": [((1, (2, 3)), {})],
    "Fold": [(((3, 3), (2, 2)), {})],
    "Unfold": [((2,), {}), (((2, 3), 1, 2, 3), {})],
    "PixelShuffle": [((2,), {})],
    "PixelUnshuffle": [((2,), {})],
    "ChannelShuffle": [((2,), {})],
    "Upsample": [((), {"scale_factor": 2}), ((3,), {}), (((3, 4), None, "bilinear", True), {}),
                 ((), {"scale_factor": (2, 3)})],
    "UpsamplingBilinear2d": [((), {"scale_factor": 2}), ((3,), {})],
    "UpsamplingNearest2d": [((), {"scale_factor": 2}), (((3, 4),), {})],
    "Module": [((), {})],
    "Sequential": [((), {})],
    "ModuleList": [((), {})],
    "ModuleDict": [((), {})],
    "ParameterList": [((), {})],
    "ParameterDict": [((), {})],
}  # fmt: skip

# Made with another layer, and compared below; not layers; or for several devices.
ELSEWHERE = {
    "TransformerDecoder", "TransformerEncoder", "Container", "NLLLoss2d", "DataParallel",
}  # fmt: skip

CASES = [
    pytest.param(name, args, kwargs, id=f"{name}-{i}")
    for name, choices in LAYERS.items()
    for i, (args, kwargs) in enumerate(choices)
]

NESTED = {
    "sequential": lambda nn: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten()),
    "repeated": lambda nn: nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU()]),
    "named": lambda nn: nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ModuleList()}),
    "encoder": lambda nn: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16), 3, nn.LayerNorm(8)
    ),
    "decoder": lambda nn: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2),
    "weight norm": lambda nn: nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)),
    "old weight norm": lambda nn: nn.utils.weight_norm(nn.Conv1d(3, 4, 2)),
    "spectral norm": lambda nn: nn.utils.parametrizations.spectral_norm(nn.Conv1d(3, 4, 2)),
    "old spectral norm": lambda nn: nn.utils.spectral_norm(nn.ConvTranspose1d(3, 4, 2)),
    "orthogonal": lambda nn: nn.utils.parametrizations.orthogonal(nn.Linear(5, 3)),
}


def quietly(function, *args, **kwargs):
    """Call without the warnings that both libraries give."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def built(lib, make):
    """A module made after a fixed seed, and the next numbers of the stream."""
    lib.manual_seed(1234)
    module = quietly(make)
    return module, lib.rand(3).numpy()


def both(make):
    """(module, next numbers) of torch and of flambeau."""
    return built(torch, lambda: make(torch.nn)), built(flambeau, lambda: make(flambeau.nn))


def assert_same_start(expected, actual):
    """Same names, shapes, values and printed form, and the stream left in the same place."""
    (theirs, their_next), (ours, our_next) = expected, actual
    assert repr(ours).replace("flambeau.", "torch.") == repr(theirs)
    state, wanted = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(wanted)
    for name, tensor in wanted.items():
        if type(tensor).__name__.startswith("Uninitialized"):
            assert type(state[name]).__name__ == type(tensor).__name__
            continue
        assert tuple(state[name].shape) == tuple(tensor.shape), name
        np.testing.assert_allclose(
            state[name].detach().numpy(), tensor.numpy(), rtol=1e-5, atol=1e-6, err_msg=name
        )
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    np.testing.assert_array_equal(our_next, their_next)


def test_every_layer_is_compared():
    layers = {
        name
        for name, value in vars(torch.nn).items()
        if inspect.isclass(value) and issubclass(value, torch.nn.Module)
    }
    assert layers - set(LAYERS) - ELSEWHERE == set()


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES)
def test_a_fresh_layer(name, args, kwargs):
    assert_same_start(*both(lambda nn: getattr(nn, name)(*args, **kwargs)))


@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED)
def test_layers_of_layers(make):
    assert_same_start(*both(make))


def settings(cls):
    """Names and defaults of the arguments, functions by their names."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return [
        (p.name, getattr(p.default, "__name__", p.default))
        for p in parameters
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_arguments_and_defaults(name):
    theirs = settings(getattr(torch.nn, name))
    if theirs:  # some of torch's take anything
        assert settings(getattr(flambeau.nn, name)) == theirs


def test_messages_start_alike():
    state = {"weight": [1], "other": [2]}

    def message(lib):
        layer = lib.nn.Linear(2, 2)
        given = {k: lib.ones(v) for k, v in state.items()}
        with pytest.raises(RuntimeError) as caught:
            layer.load_state_dict(given)
        return str(caught.value).replace("flambeau.", "torch.").split("\n")

    assert message(flambeau)[:3] == message(torch)[:3]


SEQUENCES = ([3, 1, 2], [2, 2], [1])


@pytest.mark.parametrize("lengths", SEQUENCES, ids=str)
@pytest.mark.parametrize("batch_first", [True, False])
def test_packing(lengths, batch_first):
    def packed(lib):
        rnn = lib.nn.utils.rnn
        sequences = [lib.arange(2.0 * n).reshape(n, 2) + n for n in lengths]
        pack = rnn.pack_sequence(sequences, enforce_sorted=False)
        padded, sizes = rnn.pad_packed_sequence(pack, batch_first, -1.0, total_length=4)
        return [*pack, padded, sizes, *rnn.unpack_sequence(pack)]

    for ours, theirs in zip(packed(flambeau), packed(torch), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_on_packed_sequences(name):
    def run(lib):
        lib.manual_seed(3)
        layer = getattr(lib.nn, name)(2, 3, 2, bidirectional=True)
        sequences = [lib.arange(2.0 * n).reshape(n, 2) / 5 for n in (2, 4, 1)]
        packed = lib.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
        output, hidden = layer(packed)
        hidden = hidden if isinstance(hidden, tuple) else (hidden,)
        return [output.data, *hidden]

    for ours, theirs in zip(run(flambeau), run(torch), strict=True):
        np.testing.assert_allclose(
            ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("norm_type", [1, 2, float("inf")])
def test_clipping_gradients(norm_type):
    def clipped(lib):
        lib.manual_seed(0)
        layer = lib.nn.Linear(4, 3)
        (layer(lib.ones(2, 4)) ** 2).sum().backward()
        norm = lib.nn.utils.clip_grad_norm_(layer.parameters(), 0.5, norm_type)
        return [norm, layer.weight.grad, layer.bias.grad]

    for ours, theirs in zip(clipped(flambeau), clipped(torch), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


@pytest.mark.parametrize("options", [
    {}, {"padding": 1}, {"stride": 2}, {"dilation": 2, "padding": 2},
    {"stride": (2, 1), "padding": (0, 2)}])
def test_patches_and_back(options):
    image = torch.randn(2, 3, 9, 8)
    for _ in range(2):
        theirs = torch.nn.functional.unfold(image, (3, 2), **options)
        ours = flambeau.nn.functional.unfold(flambeau.tensor(image.numpy()), (3, 2), **options)
        assert torch.equal(torch.tensor(ours.numpy()), theirs)
        theirs = torch.nn.functional.fold(theirs, (9, 8), (3, 2), **options)
        ours = flambeau.nn.functional.fold(ours, (9, 8), (3, 2), **options)
        torch.testing.assert_close(torch.tensor(ours.numpy()), theirs)
