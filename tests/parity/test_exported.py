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
    with pytest.raises(RuntimeError, match="a Dim, a hint or an integer"):
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


# -- sizes that vary -------------------------------------------------------------------------------




def _shaped(t):
    class Shaped(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = t.nn.Linear(3, 4)

        def forward(self, x, pair):
            z = self.layer(x).relu()
            z = z.reshape(z.shape[0] * 2, 2) + x.shape[0]
            return z, x[:2].sum(0), pair[0].expand(x.shape[0], -1) + pair[1]["w"]

    t.manual_seed(0)
    return Shaped()


def _shaped_args(t, rows, columns):
    return (t.arange(3.0 * rows).reshape(rows, 3) / 7,
            (t.arange(1.0 * columns), {"w": t.ones(rows, 1)}))


def _described(t):
    rows, columns = t.export.dims("rows", "columns", max=64)
    return {"x": {0: rows}, "pair": ({0: columns}, {"w": {0: rows}})}


@pytest.mark.filterwarnings("ignore")
def test_a_program_for_many_sizes():
    found = []
    for t in LIBRARIES:
        model = _shaped(t)
        program = t.export.export(model, _shaped_args(t, 6, 5), dynamic_shapes=_described(t))
        file = io.BytesIO()
        t.export.save(program, file)
        file.seek(0)
        modules = [program.module(), t.export.load(file).module()]
        for rows, columns in ((6, 5), (2, 3), (9, 7), (64, 2)):
            args = _shaped_args(t, rows, columns)
            for module in modules:
                assert flat(module(*args)) == flat(model(*args))
        found.append(([n.name for n in program.graph.nodes if n.op == "call_function"
                       and "sym_size" not in n.name and n.name not in ("mul", "floordiv")],
                      sorted(map(str, program.range_constraints.values()))))
        for args in ((65, 5), (6, 65)):
            with pytest.raises(AssertionError, match=r"Guard failed: .* <= 64"):
                modules[0](*_shaped_args(t, *args))
        _, pair = _shaped_args(t, 6, 5)
        with pytest.raises(AssertionError, match="Guard failed"):
            modules[0](t.ones(7, 3), pair)
        with pytest.raises(AssertionError, match=r"Guard failed: .*3"):
            modules[0](t.ones(6, 4), pair)
    assert found[0][1] == found[1][1]
    assert {"linear", "relu", "reshape", "slice_1", "expand"} <= set(found[1][0])


@pytest.mark.filterwarnings("ignore")
def test_hints_of_sizes():
    for t in LIBRARIES:
        hint, layer = t.export.Dim.AUTO, t.nn.Linear(3, 4)
        program = t.export.export(layer, (t.ones(5, 3),), dynamic_shapes=({0: hint, 1: hint},))
        assert str([*program.range_constraints.values()]) == "[VR[2, int_oo]]"
        assert program.module()(t.ones(8, 3)).shape == (8, 4)
        with pytest.raises((AssertionError, RuntimeError), match="3"):
            program.module()(t.ones(8, 2))
        plain = t.export.export(layer, (t.ones(5, 3),))
        with pytest.raises((AssertionError, RuntimeError), match="5"):
            plain.module()(t.ones(8, 3))
    assert plain.module(check_guards=False)(t.ones(8, 3)).shape == (8, 4)


def test_halves_and_squares_of_sizes():
    class Halved(flambeau.nn.Module):
        def forward(self, x):
            n = x.shape[0]
            return x[: n // 2].sum(0), (x[:, None] * x[None]).reshape(n * n, -1), x[: n - 1] / n

    program = flambeau.export.export(Halved(), (flambeau.ones(6, 2),), dynamic_shapes=(
        {0: flambeau.export.Dim("n")},))
    for n in (2, 3, 7, 20):
        x = flambeau.randn(n, 2)
        assert flat(program.module()(x)) == flat(Halved()(x))


REFUSED = {
    "unknown name": lambda e: {"z": {0: e.Dim("b")}},
    "too small": lambda e: ({0: e.Dim("b", min=6, max=9)},),
    "another size": lambda e: ((e.Dim("b"), 4),),
    "does not vary": lambda e: ({1: e.Dim("c")},),
    "nor does this": lambda e: ({1: e.Dim.DYNAMIC},),
    "inconsistent": lambda e: ({0: e.Dim("b", min=6, max=3)},),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_cannot_be(name):
    messages = []
    for t in LIBRARIES:
        with pytest.raises(Exception) as caught:
            t.export.export(t.nn.Linear(3, 4), (t.ones(5, 3),), dynamic_shapes=REFUSED[name](
                t.export))
        messages.append(str(caught.value))
    assert messages[0][:21] == messages[1][:21] or "Constraints violated" in messages[1]


def test_named_sizes_print_alike():
    shown = []
    for t in LIBRARIES:
        d = t.export.Dim("batch", min=2, max=8)
        shown.append(str((d, d.__name__, d.min, d.max, t.export.Dim("k"), 2 * d, 2 * d + 1, d - 1,
                          t.export.Dim.AUTO, t.export.Dim.STATIC, t.export.dims("a", "b", min=3))))
    assert shown[0] == shown[1]


@pytest.mark.filterwarnings("ignore")
def test_sizes_computed_of_others():
    for t in LIBRARIES:
        class Shifted(t.nn.Module):
            def forward(self, x, y):
                return x[:, 1:] + y

        h = t.export.Dim("h")
        program = t.export.export(Shifted(), (t.ones(2, 5), t.ones(2, 4)),
                                  dynamic_shapes=({1: 2 * h + 1}, {1: 2 * h}))
        assert program.module()(t.ones(2, 9), t.ones(2, 8)).shape == (2, 8)
        with pytest.raises(AssertionError, match="Guard failed"):
            program.module()(t.ones(2, 9), t.ones(2, 6))


@pytest.mark.filterwarnings("ignore")
def test_dataclasses_as_arguments():
    import dataclasses

    for t in LIBRARIES:
        @dataclasses.dataclass
        class Pair:
            x: t.Tensor
            y: t.Tensor | None = None

        class Summed(t.nn.Module):
            def forward(self, pair):
                return Pair(pair.x * 2, pair.x + pair.y)

        t.export.register_dataclass(Pair)
        program = t.export.export(Summed(), (Pair(t.ones(2), t.ones(2)),))
        found = program.module()(Pair(t.zeros(2), t.ones(2)))
        assert found.y.tolist() == [1, 1] and isinstance(found, Pair)
