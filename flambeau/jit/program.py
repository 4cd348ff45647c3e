"""Tracing, saving and loading."""

from __future__ import annotations

import os

import flambeau
from flambeau import Tensor, nn
from flambeau.export.general import record_general
from flambeau.export.graph import mapped
from flambeau.export.play import GraphModule
from flambeau.export.record import names_of_tensors, tensors_of, undisturbed, with_sizes
from flambeau.export.store import read, write
from flambeau.jit.annotations import ScriptModule


class TracingCheckError(RuntimeError):
    """The traced program does not do what the model does."""


class TopLevelTracedModule(GraphModule, ScriptModule):
    """A traced program: op calls in order. It runs without the code it was traced from."""

    @property
    def code(self) -> str:
        """The program, as a person would read it."""
        return str(self.graph)

    def save(self, f, _extra_files=None) -> None:
        """Write the program and its weights to a file."""
        save(self, f, _extra_files)


class ScriptFunction(TopLevelTracedModule):
    """A traced function."""


def trace(func, example_inputs=None, optimize=None, check_trace: bool = True, check_inputs=None,
          check_tolerance: float = 1e-5, strict: bool = True, *, example_kwarg_inputs=None,
          **unused):
    """A program of the op calls that a module or function makes on example inputs.

    Sizes of the inputs may vary later where the model lets them: other sizes are tried. What
    Python decides by values is decided once, here.
    """
    if isinstance(func, GraphModule):
        return func
    args = () if example_inputs is None else (
        tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,))
    kwargs = dict(example_kwarg_inputs or {})
    with_sizes(func, args, kwargs)
    with undisturbed(func):
        names = names_of_tensors(func, args, kwargs)
        graph = record_general(func, args, kwargs, names).without_dead_code()
    module = isinstance(func, nn.Module)
    weights = {**dict(func.named_buffers()), **dict(func.named_parameters())} if module else {}
    program = (TopLevelTracedModule if module else ScriptFunction)(graph, weights)
    if module:
        program.train(func.training)
    if check_trace:
        with undisturbed(func):
            _check_all(func, program, [args, *(check_inputs or ())], kwargs, check_tolerance)
    return program


def _check_all(func, program, examples, kwargs, tolerance: float) -> None:
    for given in examples:
        given = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        _check(func, program, given, kwargs, tolerance)


def trace_module(mod, inputs: dict, *args, **kwargs):
    """Trace the methods of a module that are named; only `forward` can be."""
    if list(inputs) != ["forward"]:
        raise RuntimeError("jit.trace_module: only forward can be traced; got "
                           f"{', '.join(inputs)}")
    return trace(mod, inputs["forward"], *args, **kwargs)


def _check(func, program, args, kwargs, tolerance: float) -> None:
    """Both on copies of the same inputs, from the same state of the random numbers."""
    state = flambeau.get_rng_state()
    outputs = []
    for each in (func, program):
        flambeau.set_rng_state(state)
        given, named = mapped((args, kwargs), lambda a: a.detach().clone()
                              if isinstance(a, Tensor) else a)
        with flambeau.no_grad():
            outputs.append(tensors_of(each(*given, **named)))
    for k, (wanted, found) in enumerate(zip(*outputs, strict=True)):
        if wanted.shape != found.shape or not flambeau.allclose(
                wanted, found, tolerance, tolerance, equal_nan=True):
            raise TracingCheckError(
                f"jit.trace: output {k} of the traced program differs from the model's: the model "
                "depends on chance, or on values that Python reads. check_trace=False traces it "
                "all the same.")


def save(m, f, _extra_files=None) -> None:
    """Write a traced program and its weights to a path or a file."""
    if not isinstance(m, GraphModule):
        if hasattr(m, "save") and callable(m):  # what was scripted knows how
            m.save(f, _extra_files)
            return
        raise RuntimeError(f"jit.save: {type(m).__name__} is no traced program; "
                           "jit.trace(model, example_inputs) makes one")
    extra = {name: raw.encode() if isinstance(raw, str) else bytes(raw)
             for name, raw in (_extra_files or {}).items()}
    write(m.with_own_weights(), f if hasattr(f, "write") else os.fspath(f), extra)


def load(f, map_location=None, _extra_files=None, **unused) -> TopLevelTracedModule:
    """The program that `save` wrote, ready to run, train or compile."""
    graph = read(f if hasattr(f, "read") else os.fspath(f), _extra_files)
    return TopLevelTracedModule(graph)
