"""torch.compiler's names around compile: how calls run, and marks that need nothing done."""

import pytest

import flambeau as torch
from flambeau import compiler, nn


def calls_of(function):
    """How often a compiled function's Python and its paths were taken."""
    return compiler.explain(function).captured, compiler.explain(function).calls


def test_stances():
    f = torch.compile(lambda x: x * 2 + 1)
    x = torch.ones(3)
    with compiler.set_stance("force_eager"):
        assert torch.equal(f(x), torch.full((3,), 3.0))
    assert calls_of(f) == (0, 0)
    f(x)
    assert calls_of(f) == (1, 1)

    @compiler.set_stance("force_eager")
    def eagerly():
        return f(x)

    f(x)
    eagerly()
    assert calls_of(f) == (1, 2)
    compiler.set_stance("force_eager")
    f(x)
    compiler.set_stance("default")
    assert calls_of(f) == (1, 2)


def test_modules_take_the_stance_too():
    layer = nn.Linear(3, 2)
    compiled = torch.compile(layer)
    x = torch.randn(2, 3)
    with compiler.set_stance("force_eager"):
        torch.testing.assert_close(compiled(x), layer(x))
    assert calls_of(compiled) == (0, 0)


def test_a_recompile_can_be_refused():
    f = torch.compile(lambda x: x.sin())
    f(torch.ones(3))
    with compiler.set_stance("fail_on_recompile"):
        f(torch.ones(3))
        with pytest.raises(RuntimeError, match="Detected recompile"):
            f(torch.ones(2, 2, dtype=torch.float64))


def test_errors_of_stances():
    with pytest.raises(RuntimeError, match=r"invalid torch\.compile stance 'upright'"):
        compiler.set_stance("upright")
    with pytest.raises(RuntimeError, match="force_backend"):
        compiler.set_stance("force_eager", force_backend="eager")
    with pytest.raises(RuntimeError, match="cannot change how it is compiled"):
        torch.compile(lambda x: compiler.set_stance("force_eager"))(torch.ones(1))
    assert compiler.Compiled.stance == "default"


def test_marks():
    def f(x):
        return x

    assert compiler.allow_in_graph(f) is f and compiler.allow_in_graph([f, f]) == [f, f]
    with pytest.raises(AssertionError, match="expects a callable"):
        compiler.allow_in_graph(3)
    assert compiler.assume_constant_result(f) is f
    assert compiler.nested_compile_region(f) is f
    assert compiler.cudagraph_mark_step_begin() is None
    assert compiler.list_backends() == ["inductor"]
    assert "eager" in compiler.list_backends(exclude_tags=())
    assert compiler.substitute_in_graph(f)(lambda x: x)(3) == 3
    with pytest.raises(TypeError, match="Signature mismatch"):
        compiler.substitute_in_graph(f)(lambda y: y)
    with pytest.raises(TypeError, match="expects a function"):
        compiler.substitute_in_graph(3)
