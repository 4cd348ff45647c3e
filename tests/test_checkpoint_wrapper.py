"""Modules wrapped to compute activations again: same gradients, same names, wherever they are."""

import flambeau as torch
from flambeau import nn
from flambeau.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from flambeau.distributed.fsdp.wrap import enable_wrap, wrap


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()),
                         nn.Linear(4, 1))


def test_gradients_and_names():
    plain, wrapped = model(), model()
    apply_activation_checkpointing(wrapped, check_fn=lambda m: isinstance(m, nn.Linear))
    assert isinstance(wrapped[1][0], CheckpointWrapper) and isinstance(wrapped[1][1], nn.Tanh)
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    wrapped.load_state_dict(plain.state_dict())
    plain.load_state_dict(wrapped.state_dict())
    x = torch.randn(2, 3)
    for each in (plain, wrapped):
        each(x).sum().backward()
    for a, b in zip(plain.parameters(), wrapped.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_one_module():
    runs = []

    class Counting(nn.Linear):
        def forward(self, x):
            runs.append(1)
            return super().forward(x).exp()

    for way in CheckpointImpl:
        runs.clear()
        layer = checkpoint_wrapper(Counting(3, 2), checkpoint_impl=way)
        assert [n for n, _ in layer.named_parameters()] == ["weight", "bias"]
        assert layer.in_features == 3
        layer(torch.randn(2, 3, requires_grad=True)).sum().backward()
        assert len(runs) == 2 and layer.weight.grad is not None


def test_wrap_where_it_is_enabled():
    layer = nn.Linear(2, 2)
    assert wrap(layer) is layer
    with enable_wrap(wrapper_cls=checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT):
        inner = wrap(layer)
        assert inner.checkpoint_impl is CheckpointImpl.REENTRANT
        assert wrap(layer, checkpoint_impl=CheckpointImpl.NO_REENTRANT).checkpoint_impl is (
            CheckpointImpl.NO_REENTRANT)
    assert wrap(layer) is layer
