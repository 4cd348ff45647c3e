"""Compiled functions that are not worth a program run eagerly; others do not."""

import pytest

import flambeau as torch
from flambeau.compiler import compiled as module
from flambeau.compiler.compiled import SEEN, SMALLEST


@pytest.fixture(autouse=True)
def small_is_eager(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_SMALL", "eager")
    monkeypatch.setenv("FLAMBEAU_CALM", "0")


def chain(x):
    for _ in range(6):
        x = torch.tanh(x * 1.5 + 0.25)
    return x


def report_of(compiled):
    return torch.compiler.explain(compiled)


def test_a_function_of_little_work_is_looked_at_now_and_then():
    seen = []

    @torch.compile
    def f(x):
        seen.append(torch.compiler.is_compiling())
        return (x + 1).relu()

    x = torch.tensor([-3.0, 2.0])
    for _ in range(8 * SMALLEST):
        assert f(x).tolist() == [0.0, 3.0]
    traced = [k for k, compiling in enumerate(seen) if compiling]
    assert traced == [0, 2 * SMALLEST + 1, 6 * SMALLEST + 2]
    assert report_of(f).calls == 3 and not report_of(f).programs


def test_the_same_function_of_much_work_is_compiled():
    f = torch.compile(chain)
    small, large = torch.randn(4), torch.randn(512, 512)
    for _ in range(4):
        assert torch.allclose(f(small), chain(small))
        assert torch.allclose(f(large), chain(large), atol=1e-6)
    assert len(report_of(f).programs) == 1 and report_of(f).calls == 5


@pytest.mark.parametrize("inside", [True, False])
def test_a_way_back_inside_is_worth_a_program(inside):
    w = torch.ones(4, requires_grad=True)

    def loss(x):
        return (w * x).relu().sum()

    def step(x):
        loss(x).backward()

    compiled = torch.compile(step if inside else loss)
    for k in range(1, 6):
        w.grad = None
        found = compiled(torch.full((4,), float(k)))
        if not inside:
            found.backward()
        assert w.grad.tolist() == [k] * 4
    assert len(report_of(compiled).programs) == inside


def test_many_segments_cost_more_than_they_save():
    @torch.compile
    def f(x):
        for _ in range(5):
            x = x - 1 if x.mean() > 0 else x * -2 + 0.5
        return x

    for k in range(20):
        x = torch.full((4,), float(k))
        assert torch.equal(f(x), f.function(x))
    assert report_of(f).calls <= SEEN + 2


def test_the_first_calls_are_explained_where_there_are_branches():
    @torch.compile
    def f(x, depth=4):
        for _ in range(depth):
            x = torch.tanh(x * 1.5) if x.mean() > 0 else -x
        return x

    for x in (torch.ones(5), -torch.ones(5)):
        assert torch.equal(f(x), f.function(x))
    told = str(report_of(f))
    assert report_of(f).captured == 2
    assert "test_compile_small.py" in told and ": neg, where mul came before" in told


def test_a_call_that_is_asked_about_is_compiled_whatever_it_does():
    x = torch.ones(3)
    assert len(torch.compiler.explain(lambda x: x + 1, x).programs) == 1
    f = torch.compile(lambda x: x * 2, verify=2)
    for _ in range(3):
        f(x)
    assert len(report_of(f).programs) == 1
    whole = torch.compile(lambda x: x * 2, fullgraph=True)
    for _ in range(3):
        whole(x)
    assert len(report_of(whole).programs) == 1


def test_a_module_of_little_work():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    compiled, x = torch.compile(model), torch.randn(5, 3)
    for _ in range(4):
        assert torch.equal(compiled(x), model(x))
    assert report_of(compiled).calls == 1


def test_a_script_that_is_never_played_is_seldom_written(monkeypatch):
    """And one that would be is written again soon."""
    f = torch.compile(lambda x, factor: (x * factor).sum(), fullgraph=True)
    scripts, x = [], torch.ones(3)
    write = module.scripts()
    monkeypatch.setattr(
        module, "scripts", lambda: lambda *args: scripts.append(args) or write(*args))
    for k in range(200):
        assert f(x, k + 0.5).item() == 3 * (k + 0.5)
    assert len(scripts) < 32
    for _ in range(40):
        assert f(x, 0.25).item() == 0.75
    calls = report_of(f).calls
    for _ in range(5):
        assert f(x, 0.25).item() == 0.75
    assert report_of(f).calls == calls  # Python was skipped


@pytest.mark.parametrize(("layers", "played"), [(1, False), (8, True)])
def test_there_is_hope_that_python_can_be_left_out(layers, played, monkeypatch):
    """The more functions of Python's there are, the more is gained."""
    monkeypatch.setenv("FLAMBEAU_CALM", "16")
    model = torch.nn.Sequential(*[torch.nn.Tanh() for _ in range(layers)])

    @torch.compile
    def f(x):
        return model(x) * 2

    x = torch.ones(2)
    for _ in range(60):
        assert torch.allclose(f(x), f.function(x))
    assert (f.calm.played > 20) is played and (f.small is None) is played


@pytest.mark.parametrize("ops", [5, 16])
def test_what_gains_nothing_is_not_played(ops, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CALM", "16")

    @torch.compile
    def f(x):
        for _ in range(ops):
            x = x * 0.5
        return x

    for _ in range(60):
        assert f(torch.ones(2)).tolist() == [0.5 ** ops] * 2
    assert f.calm.played == 0 and f.small is not None
    assert "gain nothing" in str(torch.compiler.explain(f))


def test_where_there_is_no_hope_little_work_is_done_eagerly(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CALM", "4")
    seen = []

    @torch.compile
    def f(x):
        seen.append(torch.compiler.is_compiling())
        for _ in range(6):
            x = x * 2 - 1
        return x

    for _ in range(60):
        assert f(torch.ones(2)).tolist() == [1.0, 1.0]
    assert sum(seen) < 16
