"""ONNX: what is exported runs in onnxruntime with the same numbers, and comes back."""

import ast
import warnings
from pathlib import Path

import numpy as np
import onnx_cases
import pytest

import flambeau as torch
from flambeau import nn

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from flambeau import onnx as fonnx  # noqa: E402

TOLERANCE = 1e-5
LAYERS = onnx_cases.layers()
MODELS = onnx_cases.models()


def tensors(value) -> list:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (tuple, list)) else []


def same(found, wanted) -> None:
    wanted = wanted.detach().numpy()
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def session(model):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(model.SerializeToString(), options,
                                    providers=["CPUExecutionProvider"])


def agree(function, *args, **options):
    """Export, run in onnxruntime and here again; the ONNX model."""
    if isinstance(function, nn.Module):
        function.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        made = fonnx.export(function, args, **options)
        wanted, given = tensors(function(*args)), tensors(args)
        there = session(made)
        names = [i.name for i in there.get_inputs()]
        every = [f"{n}" for n in _names(function, args, options)]
        outs = there.run(None, {n: t.numpy() for n, t in zip(every, given, strict=True)
                                if n in names})
        for found, w in zip(outs, wanted, strict=True):
            same(found, w)
        back = fonnx.load(made)(*given)
        for found, w in zip(tensors(back), wanted, strict=True):
            same(found.detach().numpy(), w)
    return made


def _names(function, args, options):
    from flambeau.onnx.exporter import _input_names

    return _input_names(function, args, {}, options.get("input_names"))


@pytest.mark.parametrize("case", LAYERS, ids=[f"{k}-{type(c[0]).__name__}"
                                              for k, c in enumerate(LAYERS)])
def test_every_layer(case):
    agree(*case)


def test_no_layer_is_left_out():
    classes = {name for name in dir(nn) if isinstance(getattr(nn, name), type)
               and issubclass(getattr(nn, name), nn.Module)}
    met = {type(m).__name__ for layer, *_ in LAYERS for m in layer.modules()}
    lazy = {name for name in classes if name.startswith("Lazy") and name[4:] in met}
    assert classes - met - lazy == onnx_cases.ABSTRACT


def runs_at_others(made, model, *given):
    """The same answers on other inputs than the example, in onnxruntime and imported."""
    with torch.no_grad():
        wanted = tensors(model(*given))
        names = [i.name for i in session(made).get_inputs()]
        feeds = {n: t.numpy() for n, t in zip(names, given, strict=True)}
        back = tensors(fonnx.load(made)(*given))
        for found, again, want in zip(session(made).run(None, feeds), back, wanted, strict=True):
            same(found, want)
            same(again.numpy(), want)


@pytest.mark.parametrize("options", [{}, {"proj_size": 2, "bidirectional": True}])
def test_lengths_and_sizes_of_packed_sequences_may_vary(options):
    torch.manual_seed(0)
    model = onnx_cases.Packed(nn.LSTM, sort=True, **options)
    made = agree(model, torch.randn(3, 5, 3), torch.tensor([2, 5, 3]), input_names=["x", "n"],
                 dynamic_axes={"x": {0: "batch", 1: "steps"}, "n": {0: "batch"}})
    runs_at_others(made, model, torch.randn(4, 8, 3), torch.tensor([1, 6, 6, 2]))


def test_steps_of_a_projected_lstm_may_vary():
    torch.manual_seed(0)
    model = nn.LSTM(3, 4, proj_size=2, bidirectional=True)
    made = agree(model, torch.randn(5, 2, 3), input_names=["x"],
                 dynamic_axes={"x": {0: "steps", 1: "batch"}})
    runs_at_others(made, model, torch.randn(9, 3, 3))


def test_sizes_of_a_ctc_loss_may_vary():
    torch.manual_seed(0)
    model = nn.CTCLoss(reduction="none")
    made = agree(model, torch.randn(9, 3, 5).log_softmax(-1), torch.randint(1, 5, (3, 4)),
                 torch.tensor([9, 8, 9]), torch.tensor([4, 3, 2]), input_names=list("xtnm"),
                 dynamic_axes={"x": {0: "steps", 1: "batch"}, "t": {0: "batch", 1: "longest"},
                               "n": {0: "batch"}, "m": {0: "batch"}})
    runs_at_others(made, model, torch.randn(14, 2, 5).log_softmax(-1),
                   torch.tensor([[1, 1, 1, 2, 3, 4], [4, 2, 0, 0, 0, 0]]), torch.tensor([14, 6]),
                   torch.tensor([6, 2]))


def test_windows_by_chance_are_refused():
    with pytest.raises(RuntimeError, match=r"fractional_max_pool2d.*chance"):
        fonnx.export(nn.FractionalMaxPool2d(2, output_size=3), torch.randn(1, 2, 8, 8))


@pytest.mark.parametrize("name", MODELS)
def test_models_at_other_sizes(name):
    model, x, other, axes = MODELS[name]
    made = agree(model, x, input_names=["x"], output_names=["y"],
                 dynamic_axes={"x": axes, "y": {0: "batch"}})
    with torch.no_grad():
        for given in (x, other):
            (found,) = session(made).run(["y"], {"x": given.numpy()})
            same(found, model(given))
            same(fonnx.load(made)(given).detach().numpy(), model(given))


EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

class Agent(nn.Module):
    """What an agent decides from, as tensors: a distribution is no tensor."""

    def __init__(self, agent):
        super().__init__()
        self.agent = agent

    def forward(self, state):
        choice, value = self.agent(state)
        return choice.logits, value


class Likeliest(nn.Module):
    """An autoencoder without its noise."""

    def __init__(self, vae):
        super().__init__()
        self.vae = vae

    def forward(self, images):
        h = self.vae.encoder(images)
        return self.vae.decoder(self.vae.mean(h)), self.vae.log_variance(h)


#: file -> a model of what is defined in it, and its input
EXAMPLE_MODELS = {
    "char_gpt.py":        (lambda d: d["GPT"](50), torch.randint(0, 50, (2, 9))),
    "cnn_digits.py":      (lambda d: d["ConvNet"](), torch.randn(2, 1, 8, 8)),
    "lstm_text.py":       (lambda d: d["Writer"](50), torch.randint(0, 50, (2, 9))),
    "mlp.py":             (lambda d: d["MLP"](8, 16, 4), torch.randn(3, 8)),
    "house_prices.py":    (lambda d: d["HousePriceNet"](5), torch.randn(3, 5)),
    "gan.py":             (lambda d: d["network"](8, 2), torch.randn(3, 8)),
    "transfer.py":        (lambda d: d["network"](10), torch.randn(3, 64)),
    "reinforce.py":       (lambda d: Agent(d["Agent"]()), torch.randn(3, 4)),
    "vae.py":             (lambda d: Likeliest(d["VAE"]()), torch.rand(3, 64)),
    "tree_network.py":    (lambda d: d["TreeNet"](), ("and", 0, ("or", 1, 0))),
    "custom_function.py": (lambda d: d["RoundedLinear"](3, 1), torch.randn(4, 3)),
}  # fmt: skip


def defined_in(name: str) -> dict:
    """What an example imports and defines, and its plain numbers; nothing is trained."""
    plain = (ast.Tuple, ast.Constant, ast.Load, ast.Dict, ast.Lambda, ast.arguments, ast.arg,
             ast.BinOp, ast.operator, ast.Name)
    tree = ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))
    tree.body = [n for n in tree.body
                 if isinstance(n, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef))
                 or (isinstance(n, ast.Assign) and (isinstance(n.value, (ast.Tuple, ast.Constant,
                                                                         ast.Dict))
                                                    and all(isinstance(v, plain)
                                                            for v in ast.walk(n.value))))]
    found: dict = {"__name__": "example"}
    exec(compile(tree, name, "exec"), found)
    return found


@pytest.mark.parametrize("name", EXAMPLE_MODELS)
def test_example_models(name):
    make, given = EXAMPLE_MODELS[name]
    agree(make(defined_in(name)), given)


def test_noise_is_refused():
    with pytest.raises(RuntimeError, match="chance"):
        fonnx.export(defined_in("vae.py")["VAE"](), torch.rand(3, 64))


x, y = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
F = nn.functional


def in_place(x, y):
    h = x * 1
    h.add_(1).mul_(y)
    F.relu_(h)
    k = x + 0
    k[:, 1] = 0.0
    k[0, 1:3] = y[1, 1:3]
    return h, k, torch.zeros(3, 4).scatter_(1, torch.tensor([[0], [1], [2]]), 1.0)


OPS = {
    "arithmetic": lambda x, y: (
        x + y * 2 - 1 / (y.abs() + 1), x // 2, x % 0.7, torch.fmod(x, 0.7), x ** 2,
        y.abs() ** 0.5, 2 ** x, x.clamp(-0.5, 0.5), x.clamp(min=0), torch.clamp(x, max=y)),
    "functions": lambda x, y: (
        x.exp(), y.abs().log(), x.erf(), x.floor(), x.round(), x.trunc(), x.frac(),
        (x.abs() + 1).rsqrt(), x.expm1(), x.abs().log1p(), (x.abs() + 1).log2(),
        torch.atan2(x, y), torch.erfc(x), torch.logit(x.sigmoid()), torch.special.ndtr(x),
        torch.hypot(x, y), torch.heaviside(x, y)),
    "comparisons": lambda x, y: (
        x > y, x != 0, torch.maximum(x, y), torch.where(x > 0, x, y), (x > 0) & (y > 0), ~(x > 0),
        torch.isfinite(x), torch.isclose(x, y)),
    "reductions": lambda x, y: (
        x.sum(), x.mean((0, 2)), x.prod(1), x.amax(1), *x.max(1), x.argmin(), x.var(1), x.std(),
        *torch.var_mean(x, 1), x.norm(dim=1), torch.linalg.vector_norm(x, 3, 1), x.logsumexp(1),
        (x > 0).any(1), (x > 0).sum(1), *torch.aminmax(x), x.median()),
    "shapes": lambda x, y: (
        x.view(12, 5), x.flatten(1), x.permute(2, 0, 1), x.mT, x[:, :1].expand(3, 4, 5),
        x.repeat(1, 2, 1), x.flip(1), x.roll((1, -1), (0, 2)), x.tril(), x.narrow(1, 1, 2),
        x.unfold(2, 2, 2), x.diagonal(0, 1, 2), x.repeat_interleave(2, 1)),
    "indices": lambda x, y: (
        x[0], x[..., -1], x[:, ::2], x[:, None, 1], x[torch.tensor([0, 2])],
        x[:, torch.tensor([0, 1]), torch.tensor([2, -1])], x[[0, -1]],
        x.gather(1, torch.ones(3, 2, 5, dtype=torch.int64)), x.masked_fill(y > 0, -1.0),
        x.index_fill(1, torch.tensor([1]), 2.0), x.index_add(0, torch.tensor([1, 1]), y[:2])),
    "joints": lambda x, y: (
        torch.cat([x, y], 1), torch.stack([x, y], -1), *x.split(3, 1), *x.unbind(0),
        *torch.tensor_split(x, 3, 1), torch.hstack([x, y])),
    "orders": lambda x, y: (*x.topk(2, 1), *x.sort(2, descending=True), x.cumsum(1), x.cumprod(1)),
    "products": lambda x, y: (
        x @ y.mT, torch.einsum("bij,bkj->bik", x, y), torch.addmm(x[0, :4, :4], x[0], y[0].T),
        torch.tensordot(x, y, ([2], [2])), torch.cdist(x, y)),
    "casts": lambda x, y: (
        x.int(), x.double(), x.half().float(), (x > 0).float(), (x * 3).long() % 2),
    "attention": lambda x, y: (
        F.scaled_dot_product_attention(x, y, y, is_causal=True),
        F.scaled_dot_product_attention(x, y, y, torch.ones(4, 4, dtype=torch.bool).tril()),
        F.normalize(x), F.pad(x, (1, 2), value=3.0)),
    "in place": in_place,
}


@pytest.mark.parametrize("name", OPS)
def test_ops(name):
    agree(OPS[name], x, y)


@pytest.mark.parametrize("opset", [17, 18, 20])
def test_opsets(opset):
    made = agree(OPS["reductions"], x, y, opset_version=opset)
    assert made.opset_import[0].version == opset
    agree(OPS["attention"], x, y, opset_version=opset)


def test_file_names_and_weights(tmp_path):
    model = onnx_cases.mlp().eval()
    path = tmp_path / "model.onnx"
    fonnx.export(model, torch.randn(4, 8), path, input_names=["features"], output_names=["odds"],
                 dynamic_axes={"features": {0: "batch"}})
    back = fonnx.load(path)
    assert (back.input_names, back.output_names) == (["features"], ["odds"])
    assert set(back.state_dict()) == set(model.state_dict())
    back(features=torch.randn(2, 8)).sum().backward()
    assert all(p.grad is not None for p in back.parameters())
    bare = fonnx.export(model, torch.randn(4, 8), export_params=False)
    assert {i.name for i in bare.graph.input} == {"input", *model.state_dict()}


def test_mode_is_restored_and_training_is_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train()
    fonnx.export(model, torch.randn(2, 3))
    assert model.training and model[1].training
    with pytest.raises(fonnx.UnsupportedOperatorError, match="dropout"):
        fonnx.export(model, torch.randn(2, 3), training=fonnx.TrainingMode.TRAINING)


def test_what_has_no_lowering_is_named():
    with pytest.raises(fonnx.UnsupportedOperatorError, match=r"linalg\.svd"):
        fonnx.export(lambda x: torch.linalg.svd(x)[1], torch.randn(3, 3))


def test_values_that_python_reads_are_refused():
    def shifted(x):
        return x + torch.tensor(x.sum().item())

    with pytest.raises(RuntimeError, match="depends on the values"):
        fonnx.export(shifted, torch.randn(3))


def test_steps_that_depend_on_a_size_are_refused():
    def steps(x):
        for k in range(x.shape[0]):
            x = x + k
        return x

    with pytest.raises(RuntimeError, match="depends on a size"):
        fonnx.export(steps, torch.randn(3, 2), dynamic_axes={"x": [0]})


def test_changes_seen_by_another_name_are_refused():
    def changed(x):
        h = x + 1
        view = h[0]
        h.mul_(2)
        return view.exp()

    with pytest.raises(fonnx.UnsupportedOperatorError, match="in place"):
        fonnx.export(changed, torch.randn(3, 2))


def test_sizes_that_depend_on_values_are_told():
    with pytest.warns(UserWarning, match="depends on values"):
        fonnx.export(lambda x: x[x > 0], torch.randn(5))


def test_an_own_lowering():
    @fonnx.lowers("linalg.inv_ex")
    def inverse(b, call, x, *rest):
        return [b.op("Identity", x), b.const(0, torch.int32)]

    try:
        made = fonnx.export(lambda x: torch.linalg.inv_ex(x)[0], torch.randn(3, 3))
        assert "Identity" in {n.op_type for n in made.graph.node}
    finally:
        from flambeau.onnx.registry import LOWERINGS

        del LOWERINGS["linalg.inv_ex"]


def control(kind, inputs):
    """A model of one node with a graph inside that doubles what it is given."""
    from onnx import TensorProto, helper

    def info(name, element=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, element, [] if name in "turn going" else None)

    doubled = helper.make_node("Add", ["x", "x"], ["y"])
    if kind == "If":
        inner = helper.make_graph([doubled], "twice", [], [info("y")])
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["z"])], "less", [], [info("z")])
        attributes = {"then_branch": inner, "else_branch": other}
    else:
        keep = helper.make_node("Identity", ["going"], ["still"])
        step = helper.make_node("Add", ["h", "x"], ["more"])
        put = helper.make_node("Identity", ["more"], ["seen"])
        attributes = {"body": helper.make_graph(
            [keep, step, put], "step",
            [info("turn", TensorProto.INT64), info("going", TensorProto.BOOL), info("h")],
            [info("still", TensorProto.BOOL), info("more"), info("seen")])}
    node = helper.make_node(kind, inputs, ["out"] if kind == "If" else ["out", "all"], **attributes)
    elements = {"n": TensorProto.INT64, "c": TensorProto.BOOL, "x": TensorProto.FLOAT}
    graph = helper.make_graph([node], "g", [info(n, e) for n, e in elements.items()],
                              [info(name) for name in node.output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    ("kind", "inputs", "condition"),
    [
        ("If", ["c"], True),
        ("If", ["c"], False),
        ("Loop", ["n", "c", "x"], True),
    ],
)  # fmt: skip
def test_branches_and_loops_are_read(kind, inputs, condition):
    made = control(kind, inputs)
    feeds = {"n": np.array(3), "c": np.array(condition), "x": np.ones(2, np.float32)}
    wanted = session(made).run(None, feeds)
    for found, want in zip(tensors(fonnx.load(made)(*map(torch.tensor, feeds.values()))), wanted,
                           strict=True):
        np.testing.assert_array_equal(found.numpy(), want)


def test_unknown_operators_are_named():
    import onnx

    node = onnx.helper.make_node("Hardmax", ["x"], ["y"])
    info = [onnx.helper.make_tensor_value_info(n, 1, [2]) for n in "xy"]
    graph = onnx.helper.make_graph([node], "g", info[:1], info[1:])
    with pytest.raises(fonnx.UnsupportedOperatorError, match="Hardmax"):
        fonnx.load(onnx.helper.make_model(graph))
