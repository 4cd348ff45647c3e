"""torch.export beside PyTorch's: the same ops in the same order, and programs that run and last."""

import io

import pytest
import torch

import flambeau

LIBRARIES = (torch, flambeau)


def _layers(t):
    t.manual_seed(0)
    return t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Linear(8, 2), t.nn.Softmax(-1))


def _picture_net(t):
    t.manual_seed(0)
    return t.nn.Sequential(t.nn.Conv2d(1, 2, 3), t.nn.GELU(), t.nn.Flatten(), t.nn.Linear(8, 3))


def _handmade(t):
    class Handmade(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = t.nn.Linear(3, 4)
            self.register_buffer("scale", t.full((4,), 2.0))
            self.register_buffer("hidden", t.ones(2), persistent=False)

        def forward(self, x, pair, *, by=2):
            first, second = self.layer(x).tanh().split(2, 1)
            total = first * self.scale[:2] + by - pair[0] @ pair[1]["w"].T
            return {"total": total, "others": (second.sum(), second * self.hidden)}

    t.manual_seed(0)
    return Handmade()


CASES = {
    "layers": (_layers, lambda t: ((t.linspace(-1, 1, 12).view(3, 4),), {})),
    "pictures": (_picture_net, lambda t: ((t.linspace(-1, 1, 16).view(1, 1, 4, 4),), {})),
    "handmade": (_handmade, lambda t: (
        (t.linspace(-1, 1, 6).view(2, 3), (t.ones(2, 3), {"w": t.ones(2, 3)})), {"by": 3})),
}


def exported(t, name):
    make, given = CASES[name]
    model = make(t)
    args, kwargs = given(t)
    return model, t.export.export(model, args, kwargs), args, kwargs


def flat(result):
    return [x.tolist() for x in flambeau.utils._pytree.tree_leaves(result)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_programs_have_torchs_ops(name):
    ops = []
    for t in LIBRARIES:
        graph = exported(t, name)[1].graph
        ops.append([str(node.target) for node in graph.nodes if node.op == "call_function"])
    assert [op for op in ops[0] if "permute" not in op and "numpy_T" not in op] == [
        op for op in ops[1] if "permute" not in op]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_what_inputs_and_outputs_are(name):
    found = []
    for t in LIBRARIES:
        signature = exported(t, name)[1].graph_signature
        found.append(([(s.kind.name, s.target, s.persistent) for s in signature.input_specs],
                      signature.inputs_to_parameters, signature.inputs_to_buffers,
                      signature.non_persistent_buffers,
                      [s.kind.name for s in signature.output_specs]))
    assert found[1] == found[0]


@pytest.mark.parametrize("name", CASES)
def test_programs_run_as_the_model(name):
    model, program, args, kwargs = exported(flambeau, name)
    module = program.module()
    assert flat(module(*args, **kwargs)) == flat(model(*args, **kwargs))
    others = flambeau.utils._pytree.tree_map(
        lambda x: x * 0.5 if isinstance(x, flambeau.Tensor) else x, args)
    assert flat(module(*others, **kwargs)) == flat(model(*others, **kwargs))
    assert module.state_dict().keys() == model.state_dict().keys()
    assert dict(program.named_parameters()).keys() == dict(model.named_parameters()).keys()
    leaves = flambeau.utils._pytree.tree_leaves(module(*args, **kwargs))
    leaves[0].sum().backward()
    assert all(p.grad is not None for p in model.parameters())  # they are the model's own


@pytest.mark.parametrize("name", CASES)
def test_programs_are_saved(name):
    model, program, args, kwargs = exported(flambeau, name)
    file, texts = io.BytesIO(), {"note.txt": ""}
    flambeau.export.save(program, file, extra_files={"note.txt": "read me"})
    file.seek(0)
    again = flambeau.export.load(file, extra_files=texts)
    assert texts == {"note.txt": "read me"}
    assert str(again) == str(program) and again.state_dict.keys() == program.state_dict.keys()
    assert flat(again.module()(*args, **kwargs)) == flat(model(*args, **kwargs))


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_program():
    for t in LIBRARIES:
        with pytest.raises(ValueError):
            t.export.export(lambda x: x, (t.ones(1),))
        with pytest.raises(RuntimeError, match="directly"):
            exported(t, "layers")[1](t.ones(1))

    class Reading(flambeau.nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    with pytest.raises(RuntimeError, match="reads the value"):
        flambeau.export.export(Reading(), (flambeau.ones(2),))
    with pytest.raises(NotImplementedError, match="dynamic_shapes"):
        flambeau.export.export(_layers(flambeau), (flambeau.ones(2, 4),),
                               dynamic_shapes={"input": {0: "batch"}})


def test_constants_are_part_of_a_program():
    class Adding(flambeau.nn.Module):
        def forward(self, x):
            return x + flambeau.tensor([1.0, 2.0])

    program = flambeau.export.export(Adding(), (flambeau.zeros(2),))
    assert program.graph_signature.lifted_tensor_constants == ("lifted_tensor_0",)
    assert program.module()(flambeau.ones(2)).tolist() == [2, 3]
    assert not program.module().state_dict()


def test_changes_in_place_and_conversions_are_followed():
    class Changing(flambeau.nn.Module):
        def forward(self, x):
            y = x.t().contiguous().double()
            y[0] = 7
            y.mul_(2)
            return y.mT.real, y.data + x.T

    model, x = Changing(), flambeau.arange(6.0).view(2, 3)
    module = flambeau.export.export(model, (x,)).module()
    assert flat(module(x + 1)) == flat(model(x + 1))
