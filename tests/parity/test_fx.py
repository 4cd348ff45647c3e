"""Graphs, their code and their messages are the same text as torch's, and compute the same."""

import importlib
import math
import operator
import re
import typing

import pytest
import torch
from torch.fx import wrap as wrap_there

import flambeau
from flambeau.fx import wrap as wrap_here

for _wrap in (wrap_here, wrap_there):
    _wrap("len")
    _wrap("clipped")


def clipped(x, bound):
    """A branch on a value: to be one node."""
    return x.clamp(max=bound) if x.max() > bound else x


def spaces(T):
    """(fx, nn, functional) of a library."""
    return (importlib.import_module(f"{T.__name__}.{name}") for name in (
        "fx", "nn", "nn.functional"))


def texts(T, made):
    """Everything that a graph says of itself."""
    gm, inputs = made
    lines = [gm.code, str(gm.graph), str(gm), gm.print_readable(print_output=False)]
    lines += [f"{node.op} {node.name} {node.type is None} {node.args} {node.kwargs} "
              f"{list(node.users)} {node.all_input_nodes}" for node in gm.graph.nodes]
    lines += list(gm.state_dict())
    if inputs is not None:
        lines.append(numbers(gm(*inputs)))
        fx, *_ = spaces(T)
        lines.append(numbers(fx.Interpreter(gm).run(*inputs)))
    return lines


def numbers(value):
    if isinstance(value, (tuple, list)):
        return [numbers(each) for each in value]
    if isinstance(value, dict):
        return {key: numbers(each) for key, each in value.items()}
    return [round(each, 3) for each in value.double().flatten().tolist()] if hasattr(
        value, "flatten") else str(value)


# -- programs that are traced ---------------------------------------------------------------------


def module(T, forward, **parts):
    """A module with these parts that does this."""
    _, nn, _ = spaces(T)
    made = type("Net", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def of_docs(T):
    fx, nn, _ = spaces(T)
    T.manual_seed(0)

    def forward(self, x):
        return self.linear(x + self.param).clamp(min=0.0, max=1.0)

    made = module(T, forward, param=nn.Parameter(T.rand(3, 4)), linear=nn.Linear(4, 5))
    return fx.symbolic_trace(made), (T.ones(3, 4),)


def of_topk(T):
    fx, nn, _ = spaces(T)
    T.manual_seed(0)

    def forward(self, x):
        return T.topk(T.sum(self.linear(x + self.linear.weight).relu(), dim=-1), 3)

    return fx.symbolic_trace(module(T, forward, linear=nn.Linear(4, 5))), (T.ones(5, 4),)


def operators(T):
    fx, _, _ = spaces(T)

    def f(x, y):
        a = x + y, 1 + x, x - 2, 2 - x, x * y, 3 * x, x / y, 1 / x, x // 2, 7 // x, x % 3, x ** 2
        b = 2 ** x, x @ y, -x, +x, abs(x), x < y, x <= 1, x > y, x >= 1, x == y, x != y
        x += 1
        x *= 2
        c = x[0], x[1:, None], x[..., -1], x[:, :1], x[y.shape[0] - 1]
        return a, b, c

    return fx.symbolic_trace(f), (T.full((2, 2), 3.0), T.full((2, 2), 2.0))


def bits(T):
    fx, _, _ = spaces(T)

    def f(x, y):
        return x & y, x | 1, x ^ y, ~x, x << 1, x >> 1, 1 & x, 2 | x

    return fx.symbolic_trace(f), (T.tensor([3, 4]), T.tensor([1, 2]))


def methods(T):
    fx, _, _ = spaces(T)

    def f(x):
        y = x.view(x.shape[0], -1).transpose(0, 1).contiguous()
        z = y.to(T.float64).sum(dim=(0,), keepdim=True)
        return z, x.size(0), x.dim(), x.T, x.mean().item(), y.reshape(x.size(1), x.size(0))

    return fx.symbolic_trace(f), (T.arange(6.0).reshape(2, 3),)


def functions(T):
    fx, _, F = spaces(T)

    def f(x):
        a = T.cat([x, x], dim=1), T.stack((x, x)), T.add(1, x), T.relu(x), T.sigmoid(x)
        b = T.split(x, 1), T.chunk(x, 2), T.einsum("ij,kj->ik", x, x), T.where(x > 0, x, 0)
        c = F.relu(x), F.gelu(x), F.softmax(x, dim=1), F.dropout(x, training=False), F.silu(x)
        d = F.layer_norm(x, (2,)), F.normalize(x), F.pad(x, (1, 1)), F.mse_loss(x, x), F.softplus(x)
        e = T.max(x, 1)[0], T.max(x, dim=1).values, T.clamp(x, min=0), T.flatten(x, start_dim=0)
        g = T.linalg.norm(x), T.fft.fft(x).real, T.var(x, 1), T.topk(x, 1), T.mm(x, x), T.norm(x)
        return a, b[2:], c, d, e, g[0], g[2], g[4], T.zeros_like(x), F.sigmoid(x), F.tanh(x)

    return fx.symbolic_trace(f), (T.tensor([[1.0, -2.0], [0.5, 3.0]]),)


def pictures(T):
    fx, nn, F = spaces(T)
    T.manual_seed(0)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        x = F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, (1, 1))
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        return F.log_softmax(self.head(T.flatten(x, 1)), dim=-1)

    made = module(T, forward, conv=nn.Conv2d(1, 2, 3), norm=nn.BatchNorm2d(2), head=nn.Linear(8, 3))
    return fx.symbolic_trace(made.eval()), (T.ones(1, 1, 6, 6),)


def nested(T):
    fx, nn, _ = spaces(T)
    T.manual_seed(0)
    inner = module(T, lambda self, x: self.act(self.lin(x)) * self.scale, lin=nn.Linear(2, 2),
                   act=nn.ReLU(), scale=nn.Parameter(T.ones(2)))
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh())), inner])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    return fx.symbolic_trace(module(T, forward, blocks=blocks)), (T.ones(3, 2),)


def sequential(T):
    fx, nn, _ = spaces(T)
    T.manual_seed(0)
    return fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(0.0))), (
        T.ones(1, 2),)


def signatures(T):
    fx, _, _ = spaces(T)

    def f(x: T.Tensor, y: int = 3, *args, flag: float = 1.5, z=None,
          w: typing.Optional[T.Tensor] = None, v: typing.List[int] = (1,),  # noqa: UP006, UP045
          **kw) -> typing.Tuple[T.Tensor, int]:  # noqa: UP006
        return x * flag + args[0], y

    return fx.symbolic_trace(f), None


def constants(T):
    fx, _, _ = spaces(T)
    held = T.ones(2)

    def f(x):
        made = T.full((2,), 3.0).mul(x), T.zeros(2) - x
        return held + x, held * x, held == x, held ** x, made, math.inf * x, x * -math.inf

    return fx.symbolic_trace(f), (T.ones(2),)


def buffers(T):
    fx, _, _ = spaces(T)
    made = module(T, lambda self, x: x * self.mean + self.mean.sum())
    made.register_buffer("mean", T.full((2,), 2.0))
    return fx.symbolic_trace(made), (T.ones(2),)


def containers(T):
    fx, _, _ = spaces(T)
    return fx.symbolic_trace(lambda x: {"a": (x, [x + 1]), "b": slice(0, 1) and x[slice(0, 1)]}), (
        T.ones(2),)


def unpacked(T):
    fx, _, _ = spaces(T)

    def f(x):
        a, b = T.split(x, 1)
        (c, d), e = x, x
        return a + b, c * d, e

    return fx.symbolic_trace(f), (T.ones(2, 2),)


def wrapped(T):
    fx, _, _ = spaces(T)
    return fx.symbolic_trace(lambda x: clipped(x, 0.5) + len(x) + math.floor(x.shape[0])), (
        T.ones(3),)


def concrete(T):
    fx, _, _ = spaces(T)
    return fx.symbolic_trace(lambda x, flag, n, none: x * n if flag else x,
                             concrete_args={"flag": True, "n": 2, "none": None}), (
        T.ones(1), True, 2, None)


def open_places(T):
    fx, _, _ = spaces(T)
    return fx.symbolic_trace(lambda d, x: {"sum": d["a"] + d["b"][0] + x}, concrete_args={
        "d": {"a": fx.PH, "b": [fx.PH]}}), ({"a": T.ones(1), "b": [T.ones(1)]}, T.ones(1))


def deep(T):
    fx, nn, _ = spaces(T)
    T.manual_seed(0)

    class Deep(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return False

    made = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.LayerNorm(2), nn.Softmax(dim=1))
    tracer = Deep()
    graph = tracer.trace(made)
    return fx.GraphModule(tracer.root, graph), (T.ones(1, 2),)


def shapes_known(T):
    fx, nn, _ = spaces(T)
    tracer = fx.Tracer(param_shapes_constant=True)
    made = module(T, lambda self, x: x if self.w.shape[0] > 2 else x + self.w,
                  w=nn.Parameter(T.ones(2)))
    graph = tracer.trace(made)
    return fx.GraphModule(tracer.root, graph), (T.ones(2),)


def residual(T):
    fx, nn, _ = spaces(T)
    T.manual_seed(0)

    def block(self, x):
        y = self.b2(self.c2(self.relu(self.b1(self.c1(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)

    def blocks():
        for c, o in ((2, 2), (2, 3)):
            yield module(T, block, c1=nn.Conv2d(c, o, 3, 1, 1, bias=False), b1=nn.BatchNorm2d(o),
                         relu=nn.ReLU(inplace=True), c2=nn.Conv2d(o, o, 3, 1, 1),
                         b2=nn.BatchNorm2d(o), down=nn.Conv2d(c, o, 1) if c != o else None)

    def forward(self, x):
        return self.fc(T.flatten(self.pool(self.layers(self.stem(x))), 1))

    made = module(T, forward, stem=nn.Sequential(nn.Conv2d(3, 2, 3, 2, 1), nn.MaxPool2d(3, 2, 1)),
                  layers=nn.Sequential(*blocks()), pool=nn.AdaptiveAvgPool2d(1), fc=nn.Linear(3, 2))
    return fx.symbolic_trace(made.eval()), (T.ones(1, 3, 8, 8),)


def attention(T):
    fx, nn, F = spaces(T)
    T.manual_seed(0)

    def attend(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        weights = F.softmax((q @ k.transpose(-2, -1)) * (1.0 / (c // 2) ** 0.5), dim=-1)
        y = F.dropout(weights, 0.1, training=self.training) @ v
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj((y + z).transpose(1, 2).reshape(b, n, c))

    def forward(self, words):
        x = self.tok(words) + self.pos[:, :words.size(1)]
        for each in self.blocks:
            x = x + each(self.ln(x))
        return self.head(x)

    blocks = nn.ModuleList([module(T, attend, qkv=nn.Linear(4, 12), proj=nn.Linear(4, 4))
                            for _ in range(2)])
    made = module(T, forward, tok=nn.Embedding(5, 4), pos=nn.Parameter(T.zeros(1, 8, 4)),
                  blocks=blocks, ln=nn.LayerNorm(4), head=nn.Linear(4, 5, bias=False))
    return fx.symbolic_trace(made.eval()), (T.zeros(1, 3, dtype=T.int64),)


def recurrent(T):
    fx, nn, _ = spaces(T)
    T.manual_seed(0)

    def forward(self, x):
        out, (h, _c) = self.lstm(self.embed(x))
        return self.fc(out[:, -1]), h.squeeze(0)

    made = module(T, forward, embed=nn.Embedding(5, 4), lstm=nn.LSTM(4, 3, batch_first=True),
                  fc=nn.Linear(3, 2))
    return fx.symbolic_trace(made), (T.zeros(2, 3, dtype=T.int64),)


def by_hand(T):
    fx, _, F = spaces(T)
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", default_value=3)
    for name in "iadd isub imul itruediv ifloordiv imod ipow contains truth not_ is_ index".split():
        graph.call_function(getattr(operator, name), (x, 1))
    graph.call_function(operator.setitem, (x, 0, 2))
    graph.call_function(getattr, (x, "a b"))
    graph.call_function(getattr, (x, "shape"))
    graph.call_function(T.Size, ((1, 2),), {"k": [y, (x,)]})
    graph.call_function(F.max_pool2d, (x, 2), {"stride": T.device("cpu")})
    graph.call_module("layer.0", (x,), {"scale": T.float16})
    graph.create_node("call_method", "LayerNorm", (x,), {}, name="for")
    graph.get_attr("layer.0.weight")
    graph.output((x, {"a": [y]}))
    code = graph.python_code("self").src
    return [code, str(graph), *(str(node.format_node()) for node in graph.nodes)]


PROGRAMS = [of_docs, of_topk, operators, bits, methods, functions, pictures, nested, sequential,
            signatures, constants, buffers, containers, unpacked, wrapped, concrete, open_places,
            deep, shapes_known, residual, attention, recurrent]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_traced_programs(program):
    assert texts(flambeau, program(flambeau)) == texts(torch, program(torch))


def test_graphs_by_hand():
    assert by_hand(flambeau) == by_hand(torch)


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    "abc", "aBc", "ReLU", "conv2D", "a.b.c", "a_1", "a_1_2", "1a", "for", "a-b", "__add__", "_foo",
    "len", "x__y", "torch", "inf", "self", "LayerNorm", "add_", "_"])
def test_names_of_nodes(name):
    def named(T):
        fx, _, _ = spaces(T)
        graph = fx.Graph()
        return [graph.call_method(name, ()).name, graph.call_method(name, ()).name,
                graph.create_node("call_method", "z", (), {}, name).name,
                graph.placeholder(name).name, graph.call_method("abc", ()).name]

    assert named(flambeau) == named(torch)


# -- changes --------------------------------------------------------------------------------------


def rewritten(T):
    fx, _, _ = spaces(T)

    class Net(T.nn.Module):
        def forward(self, x, w1, w2):
            val1 = T.neg(w1)
            m1 = T.cat([val1, w2]).sum()
            m2 = T.cat([val1, w2]).sum()
            return x + T.max(m1) + m2

    traced = fx.symbolic_trace(Net())
    found = fx.replace_pattern(traced, lambda w1, w2: T.cat([w1, w2]).sum(),
                               lambda w1, w2: T.stack([w1, w2]))
    return [str(found), traced.code, str(traced.graph)]


def rewritten_in_a_chain(T):
    fx, _, _ = spaces(T)
    traced = fx.symbolic_trace(lambda x: T.relu(T.relu(T.relu(x) + 1) + 1) * 2)
    found = fx.replace_pattern(traced, lambda x: T.relu(x) + 1, lambda x: x.sigmoid())
    return [len(found), traced.code]


def rewritten_only_where_inside_is_unused(T):
    fx, _, _ = spaces(T)

    def f(x):
        inside = T.neg(x)
        return T.relu(inside) + inside, T.relu(T.neg(x + 1))

    traced = fx.symbolic_trace(f)
    found = fx.replace_pattern(traced, lambda x: T.relu(T.neg(x)), lambda x: x * 0)
    return [len(found), traced.code]


def rewritten_with_literals(T):
    fx, _, _ = spaces(T)
    traced = fx.symbolic_trace(lambda x: T.add(x, 1) * T.add(x, 2))
    filters = fx.subgraph_rewriter.replace_pattern_with_filters
    first = filters(traced, lambda x: T.add(x, 1), lambda x: x.neg())
    second = filters(traced, lambda x: T.add(x, 7), lambda x: x.exp(), ignore_literals=True)
    third = filters(traced, lambda x: x.exp(), lambda x: x.log(), match_filters=[
        lambda match, graph, pattern: False])
    return [len(first), len(second), len(third), str(first[0].replacements), traced.code]


def transformed(T):
    fx, _, _ = spaces(T)

    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            target = T.sigmoid if target is T.relu else target
            return super().call_function(target, args, kwargs)

        def call_method(self, target, args, kwargs):
            if target == "neg":
                return args[0] * -1
            return super().call_method(target, args, kwargs)

    traced = fx.symbolic_trace(lambda x: T.relu(x).neg() + T.cat([x, x]).sum(dim=0))
    made = Swap(traced).transform()
    return [made.code, str(made.graph)]


def decomposed(T):
    fx, _, F = spaces(T)
    traced = fx.symbolic_trace(lambda x: F.relu(x) + 1)
    graph, made = fx.Graph(), {}
    tracer = fx.proxy.GraphAppendingTracer(graph)
    for node in traced.graph.nodes:
        if node.op == "call_function" and node.target == F.relu:
            x, = (fx.Proxy(made[each.name], tracer) for each in node.args)
            made[node.name] = ((x > 0) * x).node
        else:
            made[node.name] = graph.node_copy(node, lambda n: made[n.name])
    return [fx.GraphModule(traced, graph).code]


def moved(T):
    fx, _, _ = spaces(T)
    traced = fx.symbolic_trace(lambda x: T.relu(x).neg())
    relu, neg = (node for node in traced.graph.nodes if node.op.startswith("call"))
    with traced.graph.inserting_after(relu):
        added = traced.graph.call_function(T.exp, (relu,))
    neg.replace_input_with(relu, added)
    with traced.graph.inserting_before(neg):
        traced.graph.call_method("cos", (added,))
    traced.recompile()
    before = traced.code, relu < neg, added < neg, neg < added
    return [before, traced.graph.eliminate_dead_code(), str(traced.graph), traced.recompile().src]


def fused(T):
    _, nn, _ = spaces(T)
    optimization = importlib.import_module(f"{T.__name__}.fx.experimental.optimization")
    T.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.5)).eval()
    x = T.ones(1, 1, 4, 4)
    made, without = optimization.fuse(model), optimization.remove_dropout(model)
    return [made.code, numbers(made(x)), list(made.state_dict()), without.code]


def shaped(T):
    fx, nn, _ = spaces(T)
    shape_prop = importlib.import_module(f"{T.__name__}.fx.passes.shape_prop")
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    shape_prop.ShapeProp(traced).propagate(T.ones(4, 2))
    return [str(node.meta["tensor_meta"]) for node in traced.graph.nodes]


def split(T):
    fx, nn, _ = spaces(T)
    split_module = importlib.import_module(f"{T.__name__}.fx.passes.split_module")
    T.manual_seed(0)

    def forward(self, x, y):
        z = self.linear(x + self.param)
        w = T.relu(z) + y
        return w, T.neg(w) * z

    made = fx.symbolic_trace(module(T, forward, param=nn.Parameter(T.ones(2)),
                                    linear=nn.Linear(2, 2)))
    parts = split_module.split_module(
        made, made, lambda node: {"relu": 1, "add_1": 1, "neg": 2, "mul": 2}.get(node.name, 0))
    return [parts.code, *(child.code for child in parts.children()),
            numbers(parts(T.ones(1, 2), T.ones(1, 2)))]


CHANGES = [rewritten, rewritten_in_a_chain, rewritten_only_where_inside_is_unused,
           rewritten_with_literals, transformed, decomposed, moved, fused, shaped, split]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_programs(change):
    assert change(flambeau) == change(torch)


# -- errors ----------------------------------------------------------------------------------------


def _branch(x):
    return x if x.sum() > 0 else -x


def _loop(x):
    return [y for y in x]


def _store(x):
    x[0] = 1


MISTAKES = {
    "branch":         lambda T, fx: fx.symbolic_trace(_branch),
    "loop":           lambda T, fx: fx.symbolic_trace(_loop),
    "not":            lambda T, fx: fx.symbolic_trace(lambda x: not x),
    "in":             lambda T, fx: fx.symbolic_trace(lambda x: 1 in x),
    "stars":          lambda T, fx: fx.symbolic_trace(lambda x: dict(**x)),
    "unpacked":       lambda T, fx: fx.symbolic_trace(lambda x: (*x,)),
    "int":            lambda T, fx: fx.symbolic_trace(lambda x: int(x)),
    "float":          lambda T, fx: fx.symbolic_trace(lambda x: float(x)),
    "range":          lambda T, fx: fx.symbolic_trace(lambda x: range(x.shape[0])),
    "index":          lambda T, fx: fx.symbolic_trace(lambda x: [1, 2][x]),
    "set":            lambda T, fx: fx.symbolic_trace(_store),
    "argument":       lambda T, fx: fx.symbolic_trace(lambda x: x + object()),
    "key":            lambda T, fx: fx.symbolic_trace(lambda x: {x: 1}),
    "method":         lambda T, fx: fx.symbolic_trace(T.nn.ReLU().forward),
    "outside":        lambda T, fx: fx.symbolic_trace(module(
        T, lambda self, x: self.held[0](x), held=[T.nn.ReLU()])),
    "wrap":           lambda T, fx: fx.wrap(3),
    "op":             lambda T, fx: fx.Graph().create_node("foo", "bar"),
    "target":         lambda T, fx: fx.Graph().create_node("call_function", "bar"),
    "erased":         lambda T, fx: _erase_used(T, fx),
    "foreign":        lambda T, fx: fx.Graph().erase_node(fx.Graph().placeholder("x")),
    "insert":         lambda T, fx: fx.Graph().inserting_before(fx.Graph().placeholder("x")),
    "lint":           lambda T, fx: _lint_foreign(T, fx),
    "order":          lambda T, fx: _lint_order(T, fx),
    "missing":        lambda T, fx: _lint_missing(T, fx),
    "dict":           lambda T, fx: fx.GraphModule({}, _attribute(fx)),
    "root":           lambda T, fx: fx.GraphModule(3, fx.Graph()),
    "frozen":         lambda T, fx: _lint_frozen(fx),
    "no output":      lambda T, fx: _only_input(fx).output_node(),
    "specialised":    lambda T, fx: fx.symbolic_trace(
        lambda x, n: x * n, concrete_args={"n": 2})(T.ones(1), 3),
}  # fmt: skip


def _only_input(fx):
    graph = fx.Graph()
    graph.placeholder("x")
    return graph


def _attribute(fx):
    graph = fx.Graph()
    graph.output(graph.get_attr("w"))
    return graph


def _erase_used(T, fx):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(T.relu, (x,))
    graph.erase_node(x)


def _lint_foreign(T, fx):
    graph = fx.Graph()
    graph.call_function(T.relu, (fx.Graph().placeholder("x"),))
    graph.lint()


def _lint_order(T, fx):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(T.relu, (x,))
    x.prepend(y)
    graph.lint()


def _lint_missing(T, fx):
    gm = fx.symbolic_trace(T.nn.Sequential(T.nn.ReLU()))
    gm.delete_submodule("0")
    gm.graph.lint()


def _lint_frozen(fx):
    graph = _only_input(fx)
    next(iter(graph.nodes)).kwargs["a"] = 1


@pytest.mark.parametrize("name", MISTAKES)
def test_messages(name):
    def message(T):
        fx, _, _ = spaces(T)
        with pytest.raises(Exception) as caught:
            MISTAKES[name](T, fx)
        return type(caught.value).__name__, re.sub("0x[0-9a-f]+", "", str(caught.value))

    assert message(flambeau) == message(torch)


#: one function under two names here, or one that torch itself has under another
OTHERWISE = {f"flambeau.{name}" for name in (
    "group_norm", "istft", "layer_norm", "max_pool1d_with_indices", "nn.functional.grouped_mm",
    "nn.functional.logsigmoid", "nn.functional.pdist", "nn.functional.threshold", "pca_lowrank",
    "rms_norm", "segment_reduce", "svd_lowrank")}


def test_functions_are_called_as_in_torch():
    """Every public function, but for other names of the same function."""
    from flambeau import _function_mode
    from flambeau.fx._naming import qualified_name

    here = {}
    for space, owner in _function_mode.spaces().items():
        for name, value in vars(owner).items():
            if _function_mode.is_seen(name, value):
                here.setdefault(id(value), (space, name, value))
    wrong = []
    for space, name, value in here.values():
        owner = torch
        for part in space.split(".")[1:]:
            owner = getattr(owner, part)
        there = getattr(owner, name, None)
        if there is not None and torch.fx.node._get_qualified_name(there) != qualified_name(value):
            wrong.append(f"{space}.{name}")
    assert len(here) > 700 and set(wrong) == OTHERWISE
