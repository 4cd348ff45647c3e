"""Containers: modules and parameters in sequence, in lists, by name; and lazy modules."""

import copy
from collections import OrderedDict

import pytest

import flambeau
from flambeau import nn


def kinds(modules):
    return [type(module).__name__ for module in modules]


def test_sequential_is_a_list_of_steps():
    steps = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert kinds(steps) == ["Linear", "ReLU", "Linear"]
    assert steps[-1] is steps[2]
    assert kinds(steps[1:]) == ["ReLU", "Linear"]
    assert steps(flambeau.ones(4, 2)).shape == (4, 1)
    steps[1] = nn.Tanh()
    del steps[0]
    assert list(steps.state_dict()) == ["1.weight", "1.bias"]
    steps.append(nn.GELU()).extend([nn.ReLU()])
    steps.insert(1, nn.SiLU())
    assert kinds(steps) == ["Tanh", "SiLU", "Linear", "GELU", "ReLU"]
    assert isinstance(steps.pop(0), nn.Tanh)
    assert kinds(steps + nn.Sequential(nn.ELU())) == ["SiLU", "Linear", "GELU", "ReLU", "ELU"]
    assert len(steps * 2) == 8


def test_sequential_with_names():
    steps = nn.Sequential(OrderedDict(first=nn.ReLU(), second=nn.Tanh()))
    assert steps.first is steps[0]
    assert list(steps[:1]._modules) == ["first"]


@pytest.mark.parametrize(
    ("deed", "error"),
    [
        (lambda: nn.Sequential(nn.ReLU())[3], IndexError),
        (lambda: nn.Sequential() + 3, ValueError),
        (lambda: nn.Sequential() * 0, ValueError),
        (lambda: nn.Sequential(3), TypeError),
        (lambda: nn.ModuleList([3]), TypeError),
        (lambda: nn.ModuleList().extend(3), TypeError),
        (lambda: nn.ModuleList()[0], IndexError),
        (lambda: nn.ModuleDict({"keys": nn.ReLU()}), KeyError),
        (lambda: nn.ModuleDict(3), TypeError),
        (lambda: nn.ModuleDict([("a", nn.ReLU(), 3)]), ValueError),
        (lambda: nn.ParameterList()(1), RuntimeError),
        (lambda: nn.ParameterDict()["a"], AttributeError),
        (lambda: nn.ParameterDict({1: flambeau.ones(1)}), TypeError),
    ],
)
def test_mistakes(deed, error):
    with pytest.raises(error):
        deed()


def test_module_list():
    layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    layers.append(nn.ReLU())
    layers.insert(0, nn.Tanh())
    assert kinds(layers) == ["Tanh", "Linear", "Linear", "Linear", "ReLU"]
    assert kinds(layers[1:3]) == ["Linear", "Linear"]
    layers.pop(1)
    del layers[0]
    assert list(layers.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert repr(layers) == (
        "ModuleList(\n"
        "  (0-1): 2 x Linear(in_features=1, out_features=1, bias=True)\n"
        "  (2): ReLU()\n"
        ")"
    )


def test_module_dict():
    parts = nn.ModuleDict({"a": nn.ReLU()})
    parts["b"] = nn.Tanh()
    parts.update([("a", nn.GELU())])
    assert kinds(parts.values()) == ["GELU", "Tanh"]
    assert "a" in parts
    assert isinstance(parts.pop("a"), nn.GELU)
    assert list(parts) == ["b"]
    parts.clear()
    assert len(parts) == 0


def test_parameter_list():
    values = nn.ParameterList([flambeau.ones(2), flambeau.zeros(3)])
    values.append(flambeau.ones(1, 2))
    values += ["not a tensor"]
    assert [name for name, _ in values.named_parameters()] == ["0", "1", "2"]
    assert values[3] == "not a tensor"
    assert len(values[1:]) == 3
    values[0] = flambeau.zeros(5)
    assert values[0].shape == (5,)
    assert isinstance(values[0], nn.Parameter)


def test_parameter_dict():
    values = nn.ParameterDict({"a": flambeau.ones(2)})
    values["b"] = flambeau.ones(3)
    assert list(values.state_dict()) == ["a", "b"]
    assert values.get("z") is None
    assert list((values | {"c": flambeau.ones(1)}).keys()) == ["a", "b", "c"]
    assert list(copy.deepcopy(values)) == ["a", "b"]
    assert values.popitem()[0] == "b"
    del values["a"]
    assert len(values) == 0
    assert list(values.parameters()) == []


def test_lazy_modules_take_shapes_from_the_first_input():
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    with pytest.raises(RuntimeError, match="shape of an uninitialized parameter"):
        model[0].weight.shape
    copied = copy.deepcopy(model).double()
    out = copied(flambeau.ones(1, 2, 5, 5, dtype=flambeau.float64))
    assert out.dtype == flambeau.float64
    assert [type(layer) for layer in copied][:2] == [nn.Conv2d, nn.BatchNorm2d]
    assert copied[3].in_features == 36
    assert type(copied[3].weight) is nn.Parameter
    assert not copied[3]._forward_pre_hooks
    assert type(model[0]) is nn.LazyConv2d


def test_lazy_modules_take_shapes_from_a_state():
    lazy, known = nn.LazyLinear(3), nn.Linear(2, 3)
    lazy.load_state_dict(known.state_dict())
    assert lazy.weight.shape == (3, 2)
    x = flambeau.ones(1, 2)
    assert flambeau.equal(lazy(x), known(x))
    assert lazy.in_features == 2
