"""Every layer of nn with an example input, for tests of models that leave Python."""

import flambeau as torch
from flambeau import nn

r = torch.randn


def integers(*shape, below=5):
    return torch.randint(0, below, shape)


def lazy(layer, x):
    """A layer that took its sizes from an input."""
    layer(x)
    return layer


def _spatial(n):
    """Layers of n spatial dimensions."""
    def layer(kind, *args, **named):
        return getattr(nn, f"{kind}{n}d")(*args, **named)

    x = r(2, 4, *[8] * n)
    pooled, places = layer("MaxPool", 2, return_indices=True)(x)
    return [
        (layer("Conv", 4, 6, 3, stride=2, padding=1, groups=2), x),
        (layer("Conv", 4, 6, 3, padding="same", dilation=2), x),
        (layer("Conv", 4, 6, 3, padding=1, padding_mode="circular"), x),
        (layer("Conv", 4, 6, 3, bias=False), x[0]),
        (layer("ConvTranspose", 4, 6, 3, stride=2, padding=1, output_padding=1), x),
        (layer("MaxPool", 3, 2, 1, ceil_mode=True), x),
        (layer("MaxPool", 2, return_indices=True), x),
        (layer("MaxUnpool", 2), pooled, places),
        (layer("AvgPool", 2), x),
        (layer("AvgPool", 3, 2, 1, count_include_pad=False), x),
        (layer("AvgPool", 3, 2, 1, ceil_mode=True), x),
        (layer("LPPool", 2, 2), x.abs()),
        (layer("AdaptiveAvgPool", 3), x),
        (layer("AdaptiveAvgPool", 1), x),
        (layer("AdaptiveMaxPool", 3), x),
        (layer("AdaptiveMaxPool", 3, return_indices=True), x),
        (layer("AdaptiveMaxPool", 1, return_indices=True), x[0]),
        *((layer("FractionalMaxPool", 2, return_indices=both, output_ratio=0.4,
                 _random_samples=torch.rand(2, 4, n)), x) for both in (True, False) if n > 1),
        *((lazy(layer(f"Lazy{kind}", *sizes), x), x) for kind, *sizes in (
            ("Conv", 6, 3), ("ConvTranspose", 6, 3), ("BatchNorm",), ("InstanceNorm",))),
        (layer("BatchNorm", 4), x),
        (layer("InstanceNorm", 4, affine=True), x),
        (layer("InstanceNorm", 4, track_running_stats=True), x),
        (layer("Dropout"), x),
        (layer("ReflectionPad", 1), x),
        (layer("ReplicationPad", 1), x),
        (layer("ZeroPad", 1), x),
        (layer("CircularPad", 1), x),
        (layer("ConstantPad", 1, 2.5), x),
    ]


class Held(nn.Module):
    """Layers and parameters in every container."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.ReLU()})
        self.rows = nn.ModuleList([nn.Linear(4, 4)])
        self.scale = nn.ParameterDict({"s": nn.Parameter(r(4))})
        self.shifts = nn.ParameterList([nn.Parameter(r(4)), nn.Parameter(r(4))])

    def forward(self, x):
        h = self.rows[0](self.parts["b"](self.parts["a"](x)))
        return h * self.scale["s"] + self.shifts[0] - self.shifts[1]


class Packed(nn.Module):
    """A recurrent layer on sequences of different lengths."""

    def __init__(self, kind, total=None, sort=False, **options):
        super().__init__()
        self.rnn, self.total, self.sort = kind(3, 4, batch_first=True, **options), total, sort

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True,
                                                   enforce_sorted=not self.sort)
        out, last = self.rnn(packed)
        padded, lengths = nn.utils.rnn.pad_packed_sequence(
            out, batch_first=True, padding_value=-1.0, total_length=self.total)
        return padded, lengths, last


ACTIVATIONS = """ReLU ELU GELU SiLU Mish Softplus Softsign Tanhshrink Hardshrink Softshrink Sigmoid
    LogSigmoid Hardtanh ReLU6 Hardswish Hardsigmoid CELU SELU LeakyReLU PReLU RReLU Tanh Dropout
    AlphaDropout FeatureAlphaDropout""".split()
IN_PLACE = "ReLU ELU SiLU Mish Hardtanh ReLU6 Hardswish Hardsigmoid CELU SELU LeakyReLU".split()


def _activations():
    x = r(2, 4, 3) * 3
    return [
        *((getattr(nn, name)(), x) for name in ACTIVATIONS),
        *((nn.Sequential(nn.Linear(3, 3), getattr(nn, name)(inplace=True)), x)
          for name in IN_PLACE),
        (nn.PReLU(4), x), (nn.GELU("tanh"), x), (nn.Softplus(2.0, 5.0), x), (nn.ELU(0.5), x),
        (nn.CELU(0.5), x), (nn.Threshold(0.1, 2), x), (nn.GLU(1), x), (nn.Softmax(-1), x),
        (nn.LogSoftmax(1), x), (nn.Softmin(-1), x), (nn.Softmax2d(), r(2, 3, 4, 4)),
    ]


def _sequences():
    q = r(2, 5, 8)
    cases = []
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        cases += [(kind(3, 4, 2, batch_first=True, bidirectional=True), r(2, 5, 3)),
                  (kind(3, 4, bias=False), r(5, 2, 3)), (kind(3, 4), r(5, 3))]
    return [
        *cases,
        (nn.RNN(3, 4, nonlinearity="relu"), r(5, 2, 3)),
        (nn.LSTM(3, 4), r(5, 2, 3), (r(1, 2, 4), r(1, 2, 4))),
        (nn.LSTM(3, 4, proj_size=2, bidirectional=True), r(5, 2, 3)),
        (nn.RNNBase("GRU", 3, 4), r(5, 2, 3)),
        *((Packed(kind, **how), r(3, 5, 3), torch.tensor([5, 3, 2])) for kind, how in (
            (nn.LSTM, {}), (nn.GRU, {"num_layers": 2}), (nn.RNN, {"bidirectional": True}),
            (nn.LSTM, {"proj_size": 2, "bidirectional": True}))),
        (Packed(nn.LSTM, total=7, sort=True, bidirectional=True, num_layers=2), r(3, 5, 3),
         torch.tensor([2, 4, 3])),
        (nn.LSTMCell(3, 4), r(2, 3)), (nn.GRUCell(3, 4), r(2, 3)), (nn.RNNCell(3, 4), r(2, 3)),
        (nn.MultiheadAttention(8, 2, batch_first=True), q, q, q),
        (nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True), q, r(4, 5, 8),
         r(4, 5, 8)),
        (nn.MultiheadAttention(8, 2, kdim=3, vdim=5, batch_first=True), q, r(2, 4, 3), r(2, 4, 5)),
        (nn.MultiheadAttention(8, 2, batch_first=True), q, q, q,
         torch.tensor([[False] * 5, [False] * 3 + [True] * 2])),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), q),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), q,
         nn.Transformer.generate_square_subsequent_mask(5)),
        (nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True,
                                    activation="gelu"), q, r(2, 3, 8)),
        (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), q),
        (nn.Transformer(8, 2, 1, 1, 16, batch_first=True), q, r(2, 3, 8)),
    ]


def _images():
    x = r(1, 2, 4, 4)
    return [
        *((nn.Upsample(scale_factor=2, mode=m), x) for m in ("nearest", "bilinear", "bicubic")),
        *((nn.Upsample(size=(7, 5), mode=m), x) for m in ("nearest", "bilinear", "bicubic")),
        (nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), x),
        (nn.Upsample(scale_factor=1.5, mode="linear"), r(1, 2, 4)),
        (nn.Upsample(scale_factor=2, mode="trilinear"), r(1, 2, 4, 3, 3)),
        (nn.UpsamplingNearest2d(scale_factor=2), x), (nn.UpsamplingBilinear2d(scale_factor=2), x),
        (nn.PixelShuffle(2), r(1, 4, 3, 3)), (nn.PixelUnshuffle(2), r(1, 4, 4, 4)),
        (nn.ChannelShuffle(2), r(1, 4, 4, 4)), (nn.Unfold(2, padding=1), r(1, 4, 3, 3)),
        (nn.Fold((3, 3), 2), r(1, 16, 4)), (nn.AvgPool2d(2, divisor_override=3), x),
    ]


def _plain():
    return [
        (nn.Linear(3, 4), r(2, 3)), (nn.Linear(3, 4, bias=False), r(2, 5, 3)),
        (nn.Bilinear(3, 4, 5), r(2, 3), r(2, 4)), (nn.Identity(), r(2)),
        (nn.LayerNorm(8), r(2, 3, 8)), (nn.LayerNorm((3, 8), bias=False), r(2, 3, 8)),
        (nn.LayerNorm(8, elementwise_affine=False), r(2, 3, 8)),
        (nn.GroupNorm(2, 4), r(2, 4, 8, 3)), (nn.RMSNorm(8), r(2, 8)),
        (nn.LocalResponseNorm(3), r(2, 4, 8)), (nn.CrossMapLRN2d(3), r(2, 4, 8, 8)),
        (nn.Embedding(10, 3, padding_idx=0), integers(2, 3)),
        *((nn.EmbeddingBag(10, 3, mode=m), integers(2, 3)) for m in ("sum", "mean", "max")),
        *((nn.EmbeddingBag(10, 3, mode=m), integers(6), torch.tensor([0, 2, 2, 5]))
          for m in ("sum", "mean", "max")),
        *((nn.EmbeddingBag(10, 3, mode=m, padding_idx=2), torch.tensor([[2, 2, 2], [1, 2, 0]]))
          for m in ("sum", "mean", "max")),
        *((nn.EmbeddingBag(10, 3, mode=m, padding_idx=-8, include_last_offset=True),
           torch.tensor([2, 2, 1, 2, 4, 5]), torch.tensor([0, 2, 2, 6]))
          for m in ("sum", "mean", "max")),
        (nn.EmbeddingBag(10, 3, mode="sum"), integers(2, 3), None, r(2, 3)),
        (nn.EmbeddingBag(10, 3, max_norm=0.5, mode="sum"), integers(2, 3)),
        (nn.Embedding(10, 3, max_norm=1.0, norm_type=1.0), integers(2, 3)),
        (nn.SyncBatchNorm(4), r(2, 4, 3)), (nn.LazyLinear(4), r(2, 3)),
        (nn.DataParallel(nn.Linear(3, 4)), r(2, 3)), (Held(), r(2, 3)),
        (nn.Unflatten(1, (2, 2)), r(3, 4)), (nn.Flatten(), r(1, 2, 2)),
        (nn.CosineSimilarity(), r(2, 3), r(2, 3)), (nn.PairwiseDistance(), r(2, 3), r(2, 3)),
    ]


def _losses():
    x, y, signs = r(4, 3), r(4, 3), r(4, 3).sign()
    classes = torch.tensor([0, 1, 2, 0])
    found = []
    for how in ("mean", "none"):
        found += [
            (nn.CrossEntropyLoss(reduction=how), x, classes),
            (nn.CrossEntropyLoss(torch.rand(3), label_smoothing=0.1, ignore_index=1,
                                 reduction=how), x, classes),
            (nn.NLLLoss(reduction=how), x.log_softmax(1), classes),
            *((kind(reduction=how), x, y.abs()) for kind in (
                nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.KLDivLoss,
                nn.PoissonNLLLoss)),
            (nn.BCELoss(reduction=how), torch.rand(4, 3), torch.rand(4, 3)),
            (nn.BCEWithLogitsLoss(reduction=how), x, torch.rand(4, 3)),
            (nn.SoftMarginLoss(reduction=how), x, signs),
            (nn.HingeEmbeddingLoss(reduction=how), x, signs),
            (nn.MarginRankingLoss(reduction=how), r(4), r(4), r(4).sign()),
            (nn.CosineEmbeddingLoss(reduction=how), x, y, r(4).sign()),
            (nn.TripletMarginLoss(reduction=how), x, y, r(4, 3)),
            (nn.TripletMarginWithDistanceLoss(reduction=how), x, y, r(4, 3)),
            (nn.GaussianNLLLoss(reduction=how), x, y, r(4, 3).abs() + 0.1),
            (nn.MultiMarginLoss(reduction=how), x, classes),
            (nn.MultiLabelMarginLoss(reduction=how), r(2, 3),
             torch.tensor([[0, 1, -1], [2, -1, 0]])),
            (nn.MultiLabelSoftMarginLoss(reduction=how), x, (y > 0).float()),
        ]
        # Labels in rows and in a row; lengths as tensors and as numbers; one that cannot be.
        scores = r(10, 3, 5).log_softmax(-1)
        found += [
            (nn.CTCLoss(reduction=how), scores, integers(3, 4) % 4 + 1, torch.tensor([10, 9, 8]),
             torch.tensor([4, 3, 0])),
            (nn.CTCLoss(2, reduction=how, zero_infinity=True), scores,
             torch.tensor([0, 0, 1, 3, 3, 3]), (10, 8, 4), (2, 1, 3)),
            (nn.CTCLoss(reduction=how), scores[:, 0], torch.tensor([1, 1, 2]), (10,), (3,)),
            (nn.NLLLoss2d(reduction=how), r(2, 3, 4, 4).log_softmax(1), integers(2, 4, 4) % 3),
            (nn.LinearCrossEntropyLoss(3, 5, reduction=how), x, classes),
        ]
    return [*found,
            (nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10]), r(6, 16),
             torch.tensor([0, 7, 19, 3, 12, 4])),
            (nn.CrossEntropyLoss(), r(2, 3, 4), integers(2, 4, below=3)),
            (nn.CrossEntropyLoss(), r(2, 3), r(2, 3).softmax(1))]


#: classes of nn that are no layers: what others are derived from
ABSTRACT = {"Container", "Module", "RNNCellBase"}


def layers():
    """(layer, *inputs), the same ones in every process."""
    torch.manual_seed(0)
    return [*_plain(), *_activations(), *(case for n in (1, 2, 3) for case in _spatial(n)),
            *_sequences(), *_images(), *_losses()]


# -- models ----------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions and a way around them, in place where it can."""

    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norms[0](self.one(x)))
        y = self.norms[1](self.two(y))
        y += x
        return self.relu(y)


class ResNet(nn.Module):
    """A small residual network."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(True),
                                  nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
        return self.head(torch.flatten(x, 1))


class Attention(nn.Module):
    """Causal attention by hand, with a mask in a buffer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for p in self.qkv(x).split(c, 2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        mixed = nn.functional.softmax(scores, -1) @ v
        return self.out(mixed.transpose(1, 2).contiguous().view(b, t, c))


class GPT(nn.Module):
    """A small language model whose head shares the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.attention = nn.ModuleList([Attention(16, 4) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(16) for _ in range(5)])
        self.mlps = nn.ModuleList([nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
                                   for _ in range(2)])
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, index):
        places = torch.arange(0, index.shape[1], device=index.device).unsqueeze(0)
        x = self.tokens(index) + self.places(places)
        for k, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * k](x))
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.head(self.norms[4](x))


class Tagger(nn.Module):
    """An embedding, a recurrent layer in both directions, and a head."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 5)

    def forward(self, index):
        return self.head(self.lstm(self.words(index))[0]).log_softmax(-1)


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(-1))


def models():
    """name -> (model, an input, an input of other sizes, names of axes that vary)"""
    torch.manual_seed(0)
    text = {0: "batch", 1: "length"}
    return {
        "mlp":    (mlp(), r(4, 8), r(7, 8), {0: "batch"}),
        "resnet": (ResNet(), r(2, 3, 32, 32), r(3, 3, 48, 40), {0: "batch", 2: "h", 3: "w"}),
        "gpt":    (GPT(), integers(2, 8, below=50), integers(3, 20, below=50), text),
        "tagger": (Tagger(), integers(2, 8, below=50), integers(3, 12, below=50), text),
        "encoder": (nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), r(2, 5, 8), r(3, 7, 8),
            text),
    }  # fmt: skip
