"""What the steps of the graph are called: print(loss) shows it, and it is what torch shows."""

import pytest

import flambeau as torch
import flambeau.nn.functional as F

x = torch.rand(2, 3, requires_grad=True)
y = torch.rand(2, 3)
m = torch.rand(3, 3, requires_grad=True)
v = torch.rand(1, 3, 1, requires_grad=True)
b = torch.rand(2, 3, 3, requires_grad=True)
image = torch.rand(1, 4, 4, 4, requires_grad=True)
classes = torch.tensor([0, 1])

NAMES = {
    # losses and their means are one step
    "MseLossBackward0":                      lambda: F.mse_loss(x, y),
    "SmoothL1LossBackward0":                 lambda: F.smooth_l1_loss(x, y, reduction="sum"),
    "HuberLossBackward0":                    lambda: F.huber_loss(x, y),
    "BinaryCrossEntropyBackward0":           lambda: F.binary_cross_entropy(x, y),
    "BinaryCrossEntropyWithLogitsBackward0": lambda: F.binary_cross_entropy_with_logits(x, y),
    "SoftMarginLossBackward0":               lambda: F.soft_margin_loss(x, y),
    "MultiMarginLossBackward0":              lambda: F.multi_margin_loss(x, classes),
    "MeanBackward0":                         lambda: F.mse_loss(x, y, reduction="none").mean(),
    "NllLossBackward0":                      lambda: F.cross_entropy(x, classes),
    "NllLoss2DBackward0":                    lambda: F.cross_entropy(b * 1, torch.zeros(
                                                 2, 3, dtype=torch.long)),
    # forms that torch numbers
    "PowBackward0":        lambda: x**2,
    "PowBackward1":        lambda: x**x,
    "PowBackward2":        lambda: 2**x,
    "SubBackward0":        lambda: x - 1,
    "RsubBackward1":       lambda: 1 - x,
    "LerpBackward0":       lambda: x.lerp(y, 0.5),
    "LerpBackward1":       lambda: x.lerp(y, y),
    "MaskedFillBackward0": lambda: x.masked_fill(y > 0.5, 0),
    "MaskedFillBackward1": lambda: x.masked_fill(y > 0.5, torch.tensor(0.0)),
    "SqueezeBackward0":    lambda: v.squeeze(),
    "SqueezeBackward1":    lambda: v.squeeze(0),
    "SqueezeBackward2":    lambda: v.squeeze((0, 2)),
    # products
    "MmBackward0":         lambda: F.linear(x, m),
    "AddmmBackward0":      lambda: F.linear(x, m, m[0]),
    "UnsafeViewBackward0": lambda: F.linear(b, m),
    "BmmBackward0":        lambda: torch.bmm(b, b),
    # composites that torch does in one step
    "EmbeddingBagBackward0": lambda: F.embedding_bag(classes[None], m),
    "RepeatBackward0":       lambda: x.repeat(2, 1),
    "TraceBackward0":        lambda: m.trace(),
    "PixelShuffleBackward0": lambda: F.pixel_shuffle(image, 2),
    "CdistBackward0":        lambda: torch.cdist(x, m),
    "LinalgDetBackward0":    lambda: torch.det(m),
    "Log1PBackward0":        lambda: x.log1p(),
}


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_called_as_in_torch(name):
    out = NAMES[name]()
    assert out.grad_fn.name() == name
    assert f"grad_fn=<{name}>" in repr(out)
    out.sum().backward()  # by whatever name, it goes back


def test_what_is_handed_on_keeps_its_name():
    given = x * 2
    assert given.conj() is given and given.grad_fn.name() == "MulBackward0"
