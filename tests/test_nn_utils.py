"""nn.utils: parametrizations, norms, functional calls, fusion, packing, clipping."""

import copy
import pickle

import pytest

import flambeau
from flambeau import nn
from flambeau.nn import utils
from flambeau.nn.utils import parametrizations, parametrize, rnn
from flambeau.nn.utils.stateless import functional_call


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, x):
        return x.triu()


@pytest.fixture
def layer():
    flambeau.manual_seed(0)
    return parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())


def close(a, b, tolerance=1e-5):
    return float((a - b).abs().max()) < tolerance


# -- parametrizations -----------------------------------------------------------------------------


def test_a_parametrized_weight_is_computed(layer):
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert flambeau.equal(layer.weight, layer.weight.t())
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    layer(flambeau.ones(1, 3)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None


def test_assigning_goes_through_the_inverse(layer):
    layer.weight = flambeau.full((3, 3), 2.0)
    assert layer.weight.tolist() == [[2, 2, 2]] * 3
    assert layer.parametrizations.weight.original.tolist() == [[2, 2, 2], [0, 2, 2], [0, 0, 2]]


def test_cached_computes_once(layer):
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight


def test_removal_restores_the_class(layer):
    weight = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert flambeau.equal(layer.weight.detach(), weight)
    assert isinstance(layer.weight, nn.Parameter)


def test_copies_are_independent(layer):
    other = copy.deepcopy(layer)
    parametrize.remove_parametrizations(other, "weight")
    assert parametrize.is_parametrized(layer, "weight")
    assert layer(flambeau.ones(1, 3)).shape == (1, 3)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(layer)


def test_wrong_parametrizations_are_refused():
    class Shrinking(nn.Module):
        def forward(self, x):
            return x[:1]

    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", Shrinking())
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(nn.Linear(2, 2), "nothing", Symmetric())


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2)], ids=str)
@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
def test_orthogonal(shape, orthogonal_map):
    flambeau.manual_seed(0)
    layer = parametrizations.orthogonal(nn.Linear(*shape), orthogonal_map=orthogonal_map)
    weight = layer.weight
    product = weight @ weight.t() if weight.size(0) <= weight.size(1) else weight.t() @ weight
    assert close(product, flambeau.eye(product.size(0)))


@pytest.mark.parametrize("apply", [utils.spectral_norm, parametrizations.spectral_norm])
def test_spectral_norm(apply):
    flambeau.manual_seed(0)
    layer = apply(nn.Linear(4, 3))
    for _ in range(50):
        layer(flambeau.ones(1, 4))
    assert abs(float(flambeau.linalg.matrix_norm(layer.weight, 2)) - 1) < 1e-3


@pytest.mark.parametrize("apply", [utils.weight_norm, parametrizations.weight_norm])
def test_weight_norm_keeps_the_weight(apply):
    flambeau.manual_seed(0)
    plain = nn.Linear(4, 3)
    normed = apply(copy.deepcopy(plain))
    x = flambeau.ones(2, 4)
    assert close(normed(x), plain(x))
    assert "weight" not in dict(normed.named_parameters())


def test_weight_norm_can_be_removed():
    layer = utils.weight_norm(nn.Linear(4, 3))
    assert sorted(dict(layer.named_parameters())) == ["bias", "weight_g", "weight_v"]
    utils.remove_weight_norm(layer)
    assert sorted(dict(layer.named_parameters())) == ["bias", "weight"]
    with pytest.raises(ValueError, match="not found"):
        utils.remove_weight_norm(layer)


# -- functional calls, fusion -------------------------------------------------------------------


def test_functional_call_borrows_tensors():
    layer = nn.Linear(2, 2)
    own = layer.weight
    weight = flambeau.zeros(2, 2, requires_grad=True)
    out = functional_call(layer, {"weight": weight, "bias": flambeau.ones(2)}, flambeau.ones(1, 2))
    assert out.tolist() == [[1, 1]]
    out.sum().backward()
    assert weight.grad.tolist() == [[1, 1], [1, 1]]
    assert layer.weight is own
    assert own.grad is None
    with pytest.raises(RuntimeError, match=r"Error\(s\) in reparametrizing for Linear"):
        functional_call(layer, {"weight": weight}, flambeau.ones(1, 2), strict=True)


def test_functional_call_respects_ties():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(flambeau.ones(1))
            self.b = self.a

        def forward(self, x):
            return self.a + 10 * self.b + x

    x = flambeau.zeros(1)
    assert functional_call(Tied(), {"a": flambeau.full((1,), 2.0)}, x).tolist() == [22]
    with pytest.raises(ValueError, match="tied"):
        functional_call(Tied(), {"a": flambeau.ones(1), "b": flambeau.zeros(1)}, x)


def test_fusion_computes_the_same():
    flambeau.manual_seed(0)
    conv, norm = nn.Conv2d(2, 3, 2).eval(), nn.BatchNorm2d(3).eval()
    norm.running_mean.uniform_()
    norm.running_var.uniform_(0.5, 1.5)
    x = flambeau.rand(1, 2, 4, 4)
    assert close(utils.fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)))
    with pytest.raises(AssertionError):
        utils.fuse_conv_bn_eval(conv.train(), norm)


# -- vectors, clipping, packing -------------------------------------------------------------------


def test_parameters_as_a_vector():
    layer = nn.Linear(2, 3)
    vector = utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (9,)
    utils.vector_to_parameters(flambeau.arange(9.0), layer.parameters())
    assert layer.weight.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert layer.bias.tolist() == [6, 7, 8]


def test_clipping():
    parameter = nn.Parameter(flambeau.zeros(2))
    parameter.grad = flambeau.tensor([3.0, 4.0])
    assert float(utils.clip_grad_norm_([parameter], 1.0)) == pytest.approx(5)
    assert parameter.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
    utils.clip_grad_value_(parameter, 0.7)
    assert parameter.grad.tolist() == pytest.approx([0.6, 0.7], rel=1e-5)
    parameter.grad = flambeau.tensor([float("nan"), 1.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_(parameter, 1.0, error_if_nonfinite=True)


def test_packing_round_trip():
    sequences = [flambeau.arange(float(n)) + 10 * n for n in (2, 3, 1)]
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.data.tolist() == [30, 20, 10, 31, 21, 32]
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1)
    assert padded.tolist() == [[20, 21, -1], [30, 31, 32], [10, -1, -1]]
    assert lengths.tolist() == [2, 3, 1]
    assert [s.tolist() for s in rnn.unpack_sequence(packed)] == [s.tolist() for s in sequences]
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        rnn.pack_sequence(sequences)


def test_padding_side():
    sequences = [flambeau.ones(2), flambeau.ones(1)]
    assert rnn.pad_sequence(sequences, True).tolist() == [[1, 1], [1, 0]]
    assert rnn.pad_sequence(sequences, True, 5.0, "left").tolist() == [[1, 1], [5, 1]]


def test_skip_init():
    assert utils.skip_init(nn.Linear, 2, 3).weight.shape == (3, 2)
