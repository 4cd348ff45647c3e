"""Models that leave Python: graphs of op calls, saved programs, machine code."""

import copy
import ctypes
import io
import itertools
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path

import onnx_cases
import pytest

import flambeau as torch
from flambeau import export, jit, nn
from flambeau.export.record import recorded
from flambeau.export.varying import Varies, record_varying

MODELS = onnx_cases.models()
REPOSITORY = Path(__file__).resolve().parents[1]


# -- graphs ----------------------------------------------------------------------------------------


def test_a_graph_prints_itself():
    model = nn.Linear(2, 3)
    graph = recorded(model, (torch.randn(4, 2),), {}, ["x"])
    assert str(graph).splitlines() == [
        "graph Linear(%x: torch.float32 [4, 2]):",
        "    %v0 = nn.functional.linear(%x, %weight, %bias)",
        "    return %v0",
    ]
    assert graph.weights["weight"].data.data_ptr() == model.weight.data_ptr()


def test_recording_leaves_no_trace():
    model, x = nn.Linear(2, 2), torch.randn(3, 2)
    recorded(model, (x,), {}, ["x"])
    arange, add = torch.arange, torch.Tensor.add_
    with pytest.raises(ZeroDivisionError):
        recorded(lambda x: x / (1 // 0), (x,), {}, ["x"])
    assert (torch.arange, torch.Tensor.add_) == (arange, add)
    assert torch.equal(model(x), nn.functional.linear(x, model.weight, model.bias))
    model(x).sum().backward()
    assert model.weight.grad is not None


def test_sizes_are_explained():
    def fold(x):
        b, t, c = x.shape
        return x.reshape(b * t, c // 2, 2)[:, :, 0].reshape(b, t + 0, -1) + torch.arange(t)[:, None]

    graph = record_varying(fold, (torch.randn(3, 5, 4),), {}, ["x"],
                           {"b": [(0, 0)], "t": [(0, 1)]})
    assert "reshape(%x, b*t, 2, 2)" in str(graph)
    assert "arange(t)" in str(graph)


def test_axes_of_one_name_have_one_size():
    with pytest.raises(Varies, match="sizes \\[2, 3\\]"):
        record_varying(torch.add, (torch.randn(2), torch.randn(3)), {}, ["x", "y"],
                       {"n": [(0, 0), (1, 0)]})


# -- saved programs --------------------------------------------------------------------------------


def outputs(value):
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in outputs(v)]


@pytest.mark.parametrize("name", MODELS)
def test_programs_round_trip(name, tmp_path):
    model, x, other, _ = MODELS[name]
    model.eval()
    program = jit.trace(model, x)
    program.save(tmp_path / "model.pt")
    back = jit.load(tmp_path / "model.pt")
    assert list(back.state_dict()) == list(program.state_dict())
    assert set(back.state_dict()) == set(model.state_dict())
    for given in (x, other):
        for found, wanted in zip(outputs(back(given)), outputs(model(given)), strict=True):
            assert torch.equal(found, wanted)


def test_a_program_runs_without_its_class(tmp_path):
    model, x, _, _ = MODELS["gpt"]
    model.eval()
    jit.save(jit.trace(model, x), tmp_path / "gpt.pt")
    torch.save((x, model(x).detach()), tmp_path / "data.pt")
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import flambeau as torch\n"
            "x, y = torch.load(sys.argv[3]); assert torch.equal(torch.jit.load(sys.argv[2])(x), y)")
    subprocess.run([sys.executable, "-c", code, str(REPOSITORY), str(tmp_path / "gpt.pt"),
                    str(tmp_path / "data.pt")], check=True, cwd=tmp_path)


def test_a_program_trains_and_compiles():
    from flambeau.compiler import compile

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    file = io.BytesIO()
    jit.save(jit.trace(model, x), file, _extra_files={"notes": "hello"})
    file.seek(0)
    extra = {"notes": ""}
    program = jit.load(file, _extra_files=extra)
    assert extra["notes"] == b"hello"
    optimizer = torch.optim.SGD(program.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        loss = ((program(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    with torch.no_grad():
        compiled = compile(program)
        for _ in range(3):
            assert torch.allclose(compiled(x), program(x), atol=1e-6)


def test_a_traced_model_shares_its_weights():
    model = nn.Linear(2, 2)
    program = jit.trace(model, torch.randn(1, 2))
    assert program.weight is model.weight


def test_tracing_leaves_statistics_alone():
    model, x = nn.BatchNorm1d(3).train(), torch.randn(8, 3)
    state = torch.get_rng_state()
    program = jit.trace(model, x)
    assert model.num_batches_tracked == 0 and torch.equal(model.running_mean, torch.zeros(3))
    assert torch.equal(state, torch.get_rng_state())
    program(x)
    assert model.num_batches_tracked == 1 and not torch.equal(model.running_mean, torch.zeros(3))


def test_nested_arguments_and_results():
    def mix(x, pair, scale=1.0):
        return {"sum": x + pair[0] * scale, "both": [pair[1].exp(), (x, pair[0])]}

    x, y, z = torch.randn(3), torch.randn(3), torch.randn(3)
    program = jit.trace(mix, (x, (y, z)))
    found = program(x, (y, z))
    assert torch.equal(found["sum"], x + y)
    assert torch.equal(found["both"][1][1], y)
    with pytest.raises(TypeError, match="takes a tensor"):
        program(1, (y, z))


def test_changes_in_place_are_seen():
    def change(x):
        h = x + 1
        row = h[0]
        h[1] = 5.0
        row.mul_(3)
        return h, row

    x = torch.randn(3, 2)
    for found, wanted in zip(jit.trace(change, x)(x), change(x), strict=True):
        assert torch.equal(found, wanted)


def test_what_cannot_be_traced_or_saved_says_so(tmp_path):
    with pytest.raises(jit.TracingCheckError, match="chance"):
        jit.trace(lambda x: x + torch.rand(3), torch.randn(3))
    with pytest.raises(RuntimeError, match="no traced program"):
        jit.save(nn.Linear(2, 2), tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match="no saved program"):
        jit.load(io.BytesIO(b"nothing of the kind"))
    with pytest.raises(RuntimeError, match="function, class or module"):
        jit.script(3)


def test_scripted_functions_and_modules_run_as_they_are():
    @jit.script
    def double(x: torch.Tensor) -> torch.Tensor:
        if jit.is_scripting():
            return x
        return x * 2

    assert torch.equal(double(torch.ones(2)), torch.full((2,), 2.0))
    model = nn.Linear(2, 2)
    scripted = jit.script(model)
    assert isinstance(scripted, jit.ScriptModule) and isinstance(scripted, nn.Linear)
    assert scripted.weight is model.weight and jit.script(scripted) is scripted
    assert scripted.original_name == "Linear" and "linear" in scripted.code
    x = torch.randn(3, 2)
    assert torch.equal(scripted(x), model(x))
    assert torch.equal(copy.deepcopy(scripted)(x), model(x))
    assert torch.equal(pickle.loads(pickle.dumps(scripted))(x), model(x))


@pytest.mark.parametrize("name", ["linear", "convolution", "recurrent", "embedding"])
def test_scripted_modules_are_saved_without_having_been_called(name, tmp_path):
    model, x = {
        "linear": (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(5, 4)),
        "convolution": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()),
                        torch.randn(2, 3, 32, 32)),
        "recurrent": (nn.GRU(3, 5, batch_first=True), torch.randn(2, 7, 3)),
        "embedding": (nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)), torch.tensor([[1, 8]])),
    }[name]
    model.eval()
    jit.script(model).save(tmp_path / "model.pt")
    loaded = jit.load(tmp_path / "model.pt")
    assert isinstance(loaded, jit.ScriptModule)
    for found, wanted in zip(outputs(loaded(x)), outputs(model(x)), strict=True):
        torch.testing.assert_close(found, wanted)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)

    def forward(self, x, y):
        return self.drop(self.layer(x)) + y


def test_scripted_modules_are_saved_as_they_were_called(tmp_path):
    scripted = jit.script(TwoInputs().eval())
    with pytest.raises(RuntimeError, match="call the scripted TwoInputs once"):
        scripted.save(tmp_path / "m.pt")
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    expected = scripted(x, y)
    jit.save(scripted, tmp_path / "m.pt", {"note": "kept"})
    extra = {"note": ""}
    torch.testing.assert_close(jit.load(tmp_path / "m.pt", _extra_files=extra)(x, y), expected)
    assert extra["note"] in ("kept", b"kept")
    given = jit.script(TwoInputs().eval(), example_inputs=[(x, y)])
    given.save(tmp_path / "n.pt")
    torch.testing.assert_close(jit.load(tmp_path / "n.pt")(x, y), given(x, y))
    scripted.train()
    with pytest.raises(RuntimeError, match=r"call \.eval\(\) on it first"):
        scripted.save(tmp_path / "m.pt")
    assert scripted.training and scripted.drop.training


class Branching(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1


def test_what_reads_values_is_not_saved_as_if_it_did_not(tmp_path):
    scripted = jit.script(Branching())
    scripted(torch.ones(2))
    with pytest.raises(RuntimeError, match="reads the value of a tensor"):
        scripted.save(tmp_path / "m.pt")

    @jit.script
    def shifted(x):
        return x + x.shape[0]

    shifted(torch.ones(4))
    shifted.save(tmp_path / "f.pt")
    assert torch.equal(jit.load(tmp_path / "f.pt")(torch.ones(6)), torch.full((6,), 7.0))


# -- machine code ----------------------------------------------------------------------------------

linker = pytest.mark.skipif(shutil.which("cc") is None or not sys.platform.startswith("linux"),
                            reason="needs a C compiler")


def called(made, *inputs):
    """The outputs of a native library's function."""
    function = getattr(ctypes.CDLL(str(made.library)), made.name)
    outs = [torch.empty(shape, dtype=dtype) for _, dtype, shape in made.outputs]
    function.argtypes = [ctypes.c_void_p] * (len(inputs) + len(outs))
    return function(*[t.data_ptr() for t in (*inputs, *outs)]), outs


@linker
@pytest.mark.parametrize("name", MODELS)
def test_native_code_gives_the_same_numbers(name, tmp_path):
    model, x, _, _ = MODELS[name]
    made = export.native(model.eval(), x, tmp_path / name)
    with torch.no_grad():
        wanted = outputs(model(x))
    code, found = called(made, x)
    assert code == 0
    for f, w in zip(found, wanted, strict=True):
        assert torch.allclose(f, w, rtol=1e-6, atol=1e-6)


PROGRAM = """
#include <stdio.h>
#include <time.h>
#include "model.h"

static %(in_type)s x[%(in_count)d];
static %(out_type)s y[%(out_count)d];

int main(void) {
    struct timespec a, b;
    double best = 1e9;
    FILE *file = fopen("x.raw", "rb");
    if (!file || fread(x, sizeof *x, %(in_count)d, file) != %(in_count)d) return 2;
    for (int k = 0; k < 300; k++) {
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (model(x, y)) return 1;
        clock_gettime(CLOCK_MONOTONIC, &b);
        double t = (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec);
        if (t < best) best = t;
    }
    fwrite(y, sizeof *y, %(out_count)d, stdout);
    fprintf(stderr, "%%.9g", best);
    return 0;
}
"""
C_TYPES = {torch.float32: "float", torch.int64: "long long"}


@linker
@pytest.mark.parametrize("name", MODELS)
def test_a_c_program_calls_it_and_is_sooner(name, tmp_path):
    model, x, _, _ = MODELS[name]
    made = export.native(model.eval(), x, tmp_path / "model")
    with torch.no_grad():
        wanted = model(x)
    (tmp_path / "x.raw").write_bytes(x.numpy().tobytes())
    (tmp_path / "main.c").write_text(PROGRAM % {
        "in_type": C_TYPES[x.dtype], "in_count": x.numel(),
        "out_type": C_TYPES[wanted.dtype], "out_count": wanted.numel()})
    subprocess.run(["cc", "-O1", "-o", "main", "main.c", str(made.object_file), "-lm"],
                   check=True, cwd=tmp_path)
    linked = subprocess.run(["ldd", "main"], capture_output=True, text=True, cwd=tmp_path)
    assert "python" not in linked.stdout
    done = subprocess.run([tmp_path / "main"], capture_output=True, check=True, cwd=tmp_path)
    found = torch.frombuffer(bytearray(done.stdout), dtype=wanted.dtype).reshape(wanted.shape)
    assert torch.allclose(found, wanted, rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        eager = 1e9
        for _ in range(300):
            start = time.perf_counter()
            model(x)
            eager = min(eager, time.perf_counter() - start)
    assert float(done.stderr) < eager, (name, float(done.stderr), eager)


@linker
def test_native_code_checks_indices(tmp_path):
    model = nn.Embedding(10, 3)
    made = export.native(model, torch.tensor([1, 9]), tmp_path / "rows")
    code, (found,) = called(made, torch.tensor([2, 3]))
    assert code == 0 and torch.equal(found, model.weight.detach()[2:4])
    code, _ = called(made, torch.tensor([2, 10]))
    assert code != 0


@linker
def test_native_code_with_threads_and_several_tensors(tmp_path):
    def both(a, b):
        return (a @ b).relu(), {"sum": a.sum(), "same": b}

    a, b = torch.randn(128, 300), torch.randn(300, 200)
    made = export.native(both, (a, b), tmp_path / "both", threads=2, input_names=["a", "b"])
    assert "const float *a, const float *b, float *output0" in made.header.read_text()
    code, (product, total, same) = called(made, a, b)
    assert code == 0 and torch.equal(same, b)
    assert torch.allclose(product, (a @ b).relu(), atol=1e-4)
    assert torch.allclose(total, a.sum(), rtol=1e-4, atol=1e-3)


#: architecture -> the number that ELF has for it
MACHINES = {"aarch64-unknown-linux-gnu": 183, "riscv64-unknown-linux-gnu": 243}


@pytest.mark.parametrize(
    ("triple", "name"),
    [*itertools.product(["aarch64-unknown-linux-gnu"], MODELS),
     ("riscv64-unknown-linux-gnu", "mlp")],
)
def test_native_code_for_another_machine(triple, name, tmp_path):
    model, x, _, _ = MODELS[name]
    made = export.native(model.eval(), x, tmp_path / "model", triple=triple)
    raw = made.object_file.read_bytes()
    assert raw[:4] == b"\x7fELF"
    assert int.from_bytes(raw[18:20], "little") == MACHINES[triple]
    assert made.library is None


def test_what_cannot_be_native_says_so(tmp_path):
    with pytest.raises(ValueError, match="no name for a C function"):
        export.native(nn.Linear(2, 2), torch.randn(1, 2), tmp_path / "my-model")
    with pytest.raises(export.NativeError, match="no machine"):
        export.native(nn.Linear(2, 2), torch.randn(1, 2), tmp_path / "model", triple="abacus")
