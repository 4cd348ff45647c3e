"""Programs as graphs: traced, changed, written back, run and kept; the examples of torch's docs."""

import copy
import io
import itertools
import operator
import pickle
import statistics
import subprocess
import sys
import threading
import time

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import fx, nn
from flambeau.fx import symbolic_trace, wrap
from flambeau.fx._symbolic_trace import is_fx_tracing
from flambeau.fx.experimental import optimization
from flambeau.fx.passes.shape_prop import ShapeProp
from flambeau.fx.passes.split_module import split_module
from flambeau.fx.proxy import TraceError
from flambeau.nn.functional import relu as relu_of_mine


@wrap
def clipped(x, bound):
    return x.clamp(max=bound) if x.max() > bound else x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.param = nn.Parameter(torch.rand(3, 4))
        self.linear = nn.Linear(4, 5)
        self.register_buffer("shift", torch.ones(5))

    def forward(self, x):
        return self.linear(x + self.param).clamp(min=0.0, max=1.0) + self.shift


def targets(gm):
    return [node.target for node in gm.graph.nodes if node.op == "call_function"]


# -- the examples of the documentation ------------------------------------------------------------


def test_operators_are_replaced():
    traced = symbolic_trace(lambda x, y: torch.add(x, y) + torch.add(x, x))
    for node in traced.graph.nodes:
        if node.op == "call_function" and node.target == torch.add:
            node.target = torch.mul
    traced.graph.lint()
    traced.recompile()
    x, y = torch.tensor([2.0]), torch.tensor([3.0])
    assert traced(x, y) == 10.0 and "torch.mul(x, y)" in traced.code


def test_nodes_are_inserted():
    traced = symbolic_trace(lambda x, y: torch.add(x, y))
    for node in traced.graph.nodes:
        if node.target == torch.add:
            with traced.graph.inserting_after(node):
                new = traced.graph.call_function(torch.relu, args=(node,))
                node.replace_all_uses_with(new)
                new.replace_input_with(new, node)
    traced.recompile()
    assert traced(torch.tensor([-3.0]), torch.tensor([1.0])) == 0
    assert targets(traced) == [torch.add, torch.relu]


def test_a_module_is_replaced_by_another():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 2), nn.ReLU6(), nn.Linear(2, 2))

        def forward(self, x):
            return self.body(x)

    traced = symbolic_trace(Wide())
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and isinstance(modules[node.target], nn.ReLU6):
            with traced.graph.inserting_after(node):
                traced.add_submodule("body.act", nn.Hardtanh(0.0, 6.0))
                new = traced.graph.call_module("body.act", node.args)
                node.replace_all_uses_with(new)
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    assert [name for name, _ in traced.named_modules()] == [
        "", "body", "body.0", "body.2", "body.act"]
    assert traced(torch.ones(1, 2)).shape == (1, 2)


def test_calls_are_decomposed_with_proxies():
    rules = {F.relu: lambda x: (x > 0) * x}

    def decompose(model):
        graph = fx.Tracer().trace(model)
        new_graph, env = fx.Graph(), {}
        tracer = fx.proxy.GraphAppendingTracer(new_graph)
        for node in graph.nodes:
            if node.op == "call_function" and node.target in rules:
                args = [fx.Proxy(env[x.name], tracer) if isinstance(x, fx.Node) else x
                        for x in node.args]
                env[node.name] = rules[node.target](*args).node
            else:
                env[node.name] = new_graph.node_copy(node, lambda x: env[x.name])
        return fx.GraphModule(model, new_graph)

    class Model(nn.Module):
        def forward(self, x):
            return F.relu(x) + 1

    made = decompose(Model())
    assert targets(made) == [operator.gt, operator.mul, operator.add]
    assert made(torch.tensor([-1.0, 2.0])).tolist() == [1.0, 3.0]


def test_an_interpreter_profiles():
    class Profiling(fx.Interpreter):
        def __init__(self, model):
            super().__init__(symbolic_trace(model))
            self.times = {}

        def run_node(self, n):
            began = time.perf_counter()
            value = super().run_node(n)
            self.times.setdefault(n, []).append(time.perf_counter() - began)
            return value

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    profiler, x = Profiling(model), torch.ones(1, 2)
    assert torch.equal(profiler.run(x), model(x))
    assert [node.op for node in profiler.times] == [
        "placeholder", "call_module", "call_module", "output"]
    assert all(statistics.mean(each) >= 0 for each in profiler.times.values())


def test_a_function_is_inverted():
    invert = {torch.exp: torch.log, torch.log: torch.exp, torch.tanh: torch.atanh}
    traced = symbolic_trace(lambda x: torch.exp(torch.tanh(x)))
    new_graph, env = fx.Graph(), {}
    for node in reversed(traced.graph.nodes):
        if node.op == "call_function":
            env[node.args[0].name] = new_graph.call_function(
                invert[node.target], (env[node.name],))
        elif node.op == "placeholder":
            new_graph.output(env[node.name])
        elif node.op == "output":
            env[node.args[0].name] = new_graph.placeholder("x")
    new_graph.lint()
    inverse = fx.GraphModule({}, new_graph)
    x = torch.tensor([0.1, 0.5])
    assert torch.allclose(inverse(traced(x)), x)


def test_convolutions_and_batch_norms_are_fused():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
            self.conv, self.bn = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)

        def forward(self, x):
            x = self.conv(self.first(x))
            return self.bn(x) + x  # the second is needed as it was

    model, x = Wrapped(), torch.randn(2, 1, 5, 5)
    model(x)  # statistics that are not zero and one
    model.eval()
    made = optimization.fuse(model)
    kinds = [type(m) for m in made.modules()]
    assert kinds.count(nn.BatchNorm2d) == 1 and torch.allclose(made(x), model(x), atol=1e-5)


# -- tracing --------------------------------------------------------------------------------------


def test_a_trace_computes_what_the_module_does_and_shares_its_parameters():
    model = Net()
    traced, x = symbolic_trace(model), torch.randn(3, 4)
    assert torch.equal(traced(x), model(x))
    assert traced.param is model.param and traced.linear is model.linear
    assert sorted(traced.state_dict()) == sorted(model.state_dict())
    traced(x).sum().backward()
    assert model.param.grad is not None


def test_flags_and_hooks_are_those_of_any_module():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()
    traced = symbolic_trace(model)
    assert not traced.training and traced.train().get_submodule("1").training
    seen = []
    handle = traced.register_forward_hook(lambda m, args, out: seen.append(out.shape))
    traced.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    traced(torch.ones(1, 2))
    copied = copy.deepcopy(traced)
    copied(torch.ones(1, 2))
    handle.remove()
    traced(torch.ones(1, 2))
    assert len(seen) == 2


def test_functions_under_names_of_ones_own_are_seen():
    act = F.silu

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = F.gelu

        def forward(self, x):
            return self.act(relu_of_mine(x)) + act(x)

    before = relu_of_mine
    traced = symbolic_trace(Model())
    assert relu_of_mine is before
    assert targets(traced)[:2] == [F.relu, F.gelu] and len(targets(traced)) == 4
    x = torch.randn(3)
    assert torch.equal(traced(x), Model()(x))


def test_names_mean_what_they_did_after_a_trace_that_failed():
    call, relu = nn.Module.__call__, torch.relu
    with pytest.raises(TraceError, match="cannot be used as inputs to control flow"):
        symbolic_trace(lambda x: torch.relu(x) if x.sum() > 0 else x)
    assert torch.relu is relu and nn.Module.__call__ is call and not is_fx_tracing()
    assert "__getattribute__" not in vars(nn.Module) and nn.Linear(2, 2).weight.shape == (2, 2)


def test_a_class_whose_module_is_gone_is_traced():
    model = Net()
    type(model).__module__, home = "gone", type(model).__module__
    try:
        assert symbolic_trace(model)(torch.ones(3, 4)).shape == (3, 5)
    finally:
        type(model).__module__ = home


def test_other_threads_go_on_while_a_trace_is_under_way():
    layer, x, found = nn.Linear(2, 2), torch.ones(1, 2), []

    def f(y):
        worker = threading.Thread(target=lambda: found.append((layer(x), layer.weight)))
        worker.start()
        worker.join()
        return y + 1

    symbolic_trace(f)
    assert torch.equal(found[0][0], layer(x)) and found[0][1] is layer.weight


def test_a_trace_inside_a_trace():
    inner = nn.Linear(2, 2)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))

        def forward(self, x):
            self.made = symbolic_trace(inner)
            return x * self.w

    outer = Outer()
    traced = symbolic_trace(outer)
    assert "self.w" in traced.code and "self.weight" in outer.made.code


def test_wrapped_functions_run_whole():
    traced = symbolic_trace(lambda x: clipped(x, 0.5) * 2)
    assert targets(traced)[0] is clipped and "wrap(" in traced.code
    assert traced(torch.tensor([0.1, 1.0])).tolist() == pytest.approx([0.2, 1.0])
    with pytest.raises(NotImplementedError, match="top level of a module"):
        wrap("clipped")


def test_asserts_are_recorded_when_asked_for():
    class Asserting(fx.Tracer):
        trace_asserts = True

    space = {}  # pytest writes the asserts of this file otherwise
    exec("def f(x):\n    assert x.shape[0] > 1, 'too short'\n    return x + 1", space)
    graph = Asserting().trace(space["f"])
    made = fx.GraphModule({}, graph)
    assert torch.equal(made(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(AssertionError, match="too short"):
        made(torch.ones(1))


def test_lines_of_the_program_are_kept_when_asked_for():
    class Keeping(fx.Tracer):
        record_stack_traces = True

    graph = Keeping().trace(lambda x: torch.relu(x) + 1)
    made = fx.GraphModule({}, graph)
    assert "test_fx.py" in made.print_readable(print_output=False)


def test_buffers_are_read_as_nodes_when_asked_for():
    class Reading(fx.Tracer):
        proxy_buffer_attributes = True

    graph = Reading().trace(Net())
    assert [node.target for node in graph.find_nodes(op="get_attr")] == ["param", "shift"]


def test_classes_may_be_made_of_proxies():
    class Pair(metaclass=fx.ProxyableClassMeta):
        def __init__(self, left, right):
            self.left, self.right = left, right

        def total(self):
            return self.left + self.right

    traced = symbolic_trace(lambda x, y: Pair(x, y).total())
    assert targets(traced) == [Pair] and traced(torch.ones(1), 2) == 3


def test_loops_over_what_has_a_length_are_unrolled():
    def f(x, n=3):
        for k in range(3):
            x = x + k
        return x

    assert targets(symbolic_trace(f)) == [operator.add] * 3


# -- functions are asked wherever they are --------------------------------------------------------


def test_every_public_function_is_recorded_as_one_node():
    import importlib
    import inspect

    from flambeau import _function_mode

    missed = []
    with _function_mode.listening():
        for space in _function_mode.SPACES:
            owner = importlib.import_module(space)
            for name, value in list(vars(owner).items()):
                original = getattr(value, "original", None)
                if original is None or not _function_mode.is_seen(name, original):
                    continue
                graph = fx.Graph()
                x = fx.Proxy(graph.placeholder("x"))
                out = value(x)
                if not isinstance(out, fx.Proxy) or len(graph.nodes) != 2:
                    missed.append(name)
    assert missed == [] and inspect.isroutine(torch.add)


@pytest.mark.parametrize("call", [
    lambda x: torch.relu(x), lambda x: F.linear(x, torch.ones(2, 2)), lambda x: torch.add(1, x),
    lambda x: torch.cat([x, torch.ones(2)]), lambda x: torch.stack((x, x), dim=1),
    lambda x: torch.relu_(x), lambda x: F.conv2d(x, torch.ones(1, 1, 3, 3)),
    lambda x: torch.rand_like(x), lambda x: torch.full_like(x, 2), lambda x: torch.bernoulli(x),
    lambda x: torch.split(x, 2),
    lambda x: F.cross_entropy(x, torch.zeros(2)), lambda x: torch.einsum("ij->ji", x),
    lambda x: F.scaled_dot_product_attention(x, x, x), lambda x: torch.max(x, 1),
    lambda x: torch.where(x, 1, 2), lambda x: torch.clamp(x, min=0), lambda x: torch.linalg.norm(x),
    lambda x: torch._assert(x, "no"), lambda x: torch.fft.fft(x), lambda x: x.shape[0] + 0,
])  # fmt: skip
def test_functions_ask_outside_of_a_trace(call):
    class Stand:
        """Answers everything with what it was asked."""

        shape = (2,)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    assert isinstance(call(Stand()), (str, int))


# -- graphs ---------------------------------------------------------------------------------------


def test_a_graph_is_walked_while_it_changes():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(5):
        graph.call_method("neg", (x,))
    for node in graph.nodes:
        if node.op == "call_method":
            graph.erase_node(node)
    assert list(graph.nodes) == [x] and len(graph.nodes) == 1


def test_users_follow_arguments():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    node = graph.call_function(torch.add, (x, [x, {"k": y}]), {"alpha": slice(y, None)})
    assert node.all_input_nodes == [x, y] and list(x.users) == [node]
    node.args = (y,)
    assert not x.users and node.kwargs["alpha"] == slice(y, None)
    node.update_kwarg("alpha", x)
    node.insert_arg(0, x)
    node.update_arg(1, x)
    assert node.args == (x, x) and not y.users
    with pytest.raises(TypeError, match="does not support mutation"):
        node.kwargs["alpha"] = 1


def test_order_is_known_however_nodes_were_put():
    graph = fx.Graph()
    nodes = [graph.placeholder("x")]
    for k in range(60):  # between the first and the last, in ever smaller gaps
        with graph.inserting_after(nodes[k // 2]):
            nodes.insert(k // 2 + 1, graph.call_method("neg", (nodes[0],)))
    assert list(graph.nodes) == nodes
    assert all(a < b and not b < a for a, b in itertools.pairwise(nodes))


def test_tables_are_printed(capsys):
    symbolic_trace(lambda x: torch.relu(x)).graph.print_tabular()
    assert capsys.readouterr().out.splitlines()[3].split() == [
        "call_function", "relu", "torch.relu", "(x,)", "{}"]


def test_code_is_changed_on_its_way():
    traced = symbolic_trace(lambda x: torch.relu(x))
    with traced.graph.on_generate_code(lambda before: lambda body: [*body[:-1], "relu = relu + 1\n",
                                                                    body[-1]]):
        traced.recompile()
    assert traced(torch.ones(1)) == 2
    traced.recompile()
    assert traced(torch.ones(1)) == 1


def test_an_error_tells_the_line_of_the_code():
    traced = symbolic_trace(lambda x: torch.relu(x).view(7, 7))
    with pytest.raises(RuntimeError) as caught:
        traced(torch.ones(2))
    assert "view = relu.view(7, 7);  relu = None" in "".join(caught.value.__notes__)


# -- copies, files, other ways to run --------------------------------------------------------------


@pytest.mark.parametrize("keep", [
    lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, copy.copy,
    lambda m: _saved_and_loaded(m)], ids=["pickle", "deepcopy", "copy", "file"])
def test_a_graph_module_is_kept(keep):
    class Model(Net):
        def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            parts = torch.split(super().forward(x), [2, 3], dim=1)
            return clipped(parts[0], 1.5).to(torch.float64) * scale

    traced, x = symbolic_trace(Model().eval()), torch.randn(3, 4)
    kept = keep(traced)
    assert kept.code == traced.code and str(kept.graph) == str(traced.graph)
    assert torch.equal(kept(x), traced(x)) and not kept.training
    assert kept.graph.owning_module is kept
    assert list(kept.state_dict()) == list(traced.state_dict())
    kept.graph.lint()


def _saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_a_folder_is_a_package(tmp_path, monkeypatch):
    class Model(Net):
        def forward(self, x):
            return clipped(super().forward(x["given"][0]), 1.5) + abs(x["more"])

    model = Model()
    traced = symbolic_trace(model, {"x": {"given": [fx.PH], "more": fx.PH}})
    traced.to_folder(tmp_path / "written", "Written")
    monkeypatch.syspath_prepend(tmp_path)
    from written import Written

    x = {"given": [torch.randn(3, 4)], "more": torch.ones(1)}
    assert torch.equal(Written()(x), model(x)) and torch.equal(traced(x), model(x))


def test_a_graph_module_is_compiled_traced_and_exported():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    traced, x = symbolic_trace(model), torch.randn(5, 4)
    expected = model(x)
    assert torch.allclose(torch.compile(traced)(x), expected, atol=1e-6)
    assert torch.allclose(torch.compile(traced, fullgraph=True)(x), expected, atol=1e-6)
    assert torch.allclose(torch.jit.trace(traced, x)(x), expected, atol=1e-6)
    file = io.BytesIO()
    torch.onnx.export(traced, (x,), file)
    assert torch.allclose(torch.jit.script(traced)(x), expected) and len(file.getvalue()) > 100


def test_a_changed_graph_is_compiled_anew():
    traced, x = symbolic_trace(lambda x: torch.relu(x)), torch.tensor([-1.0, 2.0])
    compiled = torch.compile(traced)
    assert compiled(x).tolist() == [0.0, 2.0]
    traced.graph.find_nodes(op="call_function", target=torch.relu)[0].target = torch.neg
    traced.recompile()
    assert compiled(x).tolist() == [1.0, -2.0]


# -- passes ----------------------------------------------------------------------------------------


def test_patterns_are_replaced_by_modules():
    class Pattern(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x) + 1

    class Replacement(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((1,), 3.0))
            self.other = nn.Tanh()

        def forward(self, x):
            return self.other(x) * self.scale

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x * 2) + 1

    traced, x = symbolic_trace(Model()), torch.ones(1)
    found = fx.replace_pattern(traced, symbolic_trace(Pattern()), symbolic_trace(Replacement()))
    assert len(found) == 1 and torch.allclose(traced(x), torch.tanh(2 * x) * 3)
    assert [name for name, _ in traced.named_modules()] == ["", "other"]


def test_several_results_of_a_pattern_are_replaced():
    traced = symbolic_trace(lambda x, y: torch.add(torch.relu(x), torch.neg(y)))
    found = fx.replace_pattern(traced, lambda a, b: (torch.relu(a), torch.neg(b)),
                               lambda a, b: (a * 2, b * 3))
    assert len(found) == 1 and traced(torch.ones(1), torch.ones(1)) == 5


def test_shapes_are_noted():
    traced = symbolic_trace(Net())
    ShapeProp(traced).propagate(torch.ones(3, 4))
    shapes = {node.name: node.meta["tensor_meta"].shape for node in traced.graph.nodes}
    assert shapes["linear"] == (3, 5) and shapes["param"] == (3, 4)


def test_a_module_is_split():
    traced, x = symbolic_trace(Net()), torch.randn(3, 4)
    names = {}
    parts = split_module(traced, traced, lambda node: node.name in ("clamp", "add_1"), names)
    assert torch.equal(parts(x), traced(x)) and names == {"submod_False.linear": "linear"}
    with pytest.raises(RuntimeError, match="cycle exists between partitions"):
        split_module(traced, traced, lambda node: node.name == "linear")


# -- the library around it ------------------------------------------------------------------------


def test_it_is_imported_when_it_is_asked_for():
    said = subprocess.run(
        [sys.executable, "-c", "import sys, flambeau\nprint('flambeau.fx' in sys.modules)\n"
         "print(flambeau.fx.symbolic_trace(lambda x: x + 1).code.split()[0])"],
        capture_output=True, text=True, check=True).stdout.split()
    assert said == ["False", "def"]


def test_it_is_found_under_the_name_of_torch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\nimport torch.fx\nfrom torch.fx import symbolic_trace\n"
                      "from torch.fx.passes.shape_prop import ShapeProp\nrelu = torch.relu\n"
                      "traced = symbolic_trace(lambda x: torch.cat([torch.relu(x), x], dim=0))\n"
                      "assert torch.relu is relu and traced(torch.ones(2)).shape == (4,)\n"
                      "print(traced.code.strip())\n", encoding="utf-8")
    said = subprocess.run([sys.executable, "-m", "flambeau", "run", str(script)],
                          capture_output=True, text=True, check=True).stdout
    assert "cat = torch.cat([relu, x], dim = 0);  relu = x = None" in said
