"""A module that runs a graph: its forward is the code of the graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import os
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flambeau import Tensor, nn
from flambeau.fx._codegen import PythonCode, _PyTreeCodeGen
from flambeau.fx._folder import write_package
from flambeau.fx.graph import Graph
from flambeau.nn.modules.hooks import HOOK_TABLES
from flambeau.nn.modules.state import STATE_TABLES

__all__ = ["GraphModule", "reduce_graph_module"]

_numbers = itertools.count()


def compiled(code: PythonCode) -> Callable[..., Any]:
    """The function of a code; tracebacks and debuggers find its lines."""
    key = f"<eval_with_key>.{next(_numbers)}"
    linecache.cache[key] = (len(code.src), None, code.src.splitlines(keepends=True), key)
    space = dict(code.globals)
    exec(compile(code.src, key, "exec"), space)
    weakref.finalize(space["forward"], linecache.cache.pop, key, None)
    return space["forward"]


class GraphModule(nn.Module):
    """A module made of a graph, with what of `root` the graph uses.

    `root` is a module, or a dict from the targets of the graph to what they are. After a change of
    the graph, `recompile` makes the module do it.

    >>> import flambeau as torch
    >>> traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    >>> print(traced.code.strip())
    def forward(self, input):
        input_1 = input
        _0 = getattr(self, "0")(input_1);  input_1 = None
        _1 = getattr(self, "1")(_0);  _0 = None
        return _1
    """

    _graph: Graph
    _code: str

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        """Each has a class of its own, since each has a forward of its own."""
        for each in cls.__mro__:
            if each.__qualname__.endswith("GraphModuleImpl"):
                cls = each.__bases__[0]
                break

        class GraphModuleImpl(cls):  # type: ignore[misc, valid-type]
            pass

        return super().__new__(GraphModuleImpl)

    def __init__(self, root: nn.Module | dict[str, Any], graph: Graph,
                 class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, nn.Module):
            self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attribute(root, self, str(node.target))
        elif isinstance(root, dict):
            self._take(root, graph)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.meta: dict[str, Any] = dict(getattr(root, "meta", {}))
        self._tracer_cls = graph._tracer_cls
        self.graph = graph

    def _take(self, root: dict[str, Any], graph: Graph) -> None:
        """What the graph uses, from a dict; parents before what is in them."""
        targets = {}
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not "
                        "provided in ``root``!")
                targets[str(node.target)] = root[str(node.target)]
        for target in sorted(targets, key=lambda name: name.count(".")):
            _assign(targets[target], self, target)

    # -- the graph -------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """What the module does."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        assert isinstance(g, Graph), f"Expected a Graph instance, but got {type(g)}"
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The graph as Python."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def recompile(self) -> PythonCode:
        """Write the code again, and run it from now on: to be called after changes of the graph."""
        if isinstance(self._graph._codegen, _PyTreeCodeGen):
            info = self._graph._codegen.pytree_info
            self._in_spec, self._out_spec = info.in_spec, info.out_spec
        code = self._graph.python_code("self")
        self._code = code.src
        type(self).forward = compiled(code)  # type: ignore[method-assign]
        return code

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            self._tell(error)
            raise

    def _tell(self, error: Exception) -> None:
        """Add to an error in which line of the code a call failed."""
        frames = traceback.extract_tb(error.__traceback__)
        ours = [each for each in frames if each.filename.startswith("<eval_with_key>")]
        if not ours or hasattr(error, "__notes__"):  # a module inside has said it
            return
        number = ours[-1].lineno or 0
        lines = linecache.getlines(ours[-1].filename)
        around = "".join(lines[max(0, number - 2):number])
        after = "".join(lines[number:number + 2])
        error.add_note(
            f"\nCall using an FX-traced Module, line {number} of the traced Module's generated "
            f"forward function:\n{around}\n{'~' * len(lines[number - 1].rstrip())} <--- HERE\n"
            f"{after}")

    # -- what it holds ---------------------------------------------------------------------------

    def add_submodule(self, target: str, m: nn.Module) -> bool:
        """Put a module under a dotted name; False where something else is in the way."""
        *path, last = target.split(".")
        module: nn.Module = self
        for name in path:
            if not hasattr(module, name):
                setattr(module, name, nn.Module())
            module = getattr(module, name)
            if not isinstance(module, nn.Module):
                return False
        module.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take out the module with a dotted name; whether there was one."""
        path, _, name = target.rpartition(".")
        try:
            parent = self.get_submodule(path)
        except AttributeError:
            return False
        if not isinstance(getattr(parent, name, None), nn.Module):
            return False
        delattr(parent, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the modules that the graph neither calls nor reads from."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = str(node.target).split(".")
            used.update(".".join(parts[:k]) for k in range(1, len(parts) + 1))
            if node.op == "call_module":
                try:
                    below = self.get_submodule(str(node.target)).named_modules()
                except AttributeError:  # the graph calls what is not there: lint says so
                    continue
                used.update(f"{node.target}.{name}" for name, _ in below if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # -- showing ---------------------------------------------------------------------------------

    def __str__(self) -> str:
        shown = super().__str__()
        return "\n".join([shown, self._code, "# To see more debug info, please use "
                          "`graph_module.print_readable()`"])

    def print_readable(self, print_output: bool = True, include_stride: bool = False,
                       include_device: bool = False, colored: bool = False, **how: Any) -> str:
        """Print the code as a class, with the lines of the program it came from; the text."""
        code = self._graph.python_code("self", verbose=True).src.strip("\n")
        inside = "\n".join(f"    {line}" if line.strip() else "" for line in code.split("\n"))
        text = f"class {type(self).__name__}(torch.nn.Module):\n{inside.rstrip()}\n"
        for child in self.children():
            if isinstance(child, GraphModule):
                shown = child.print_readable(print_output=False).rstrip()
                text += "\n" + "\n".join(f"    {line}" if line else ""
                                         for line in shown.split("\n")) + "\n"
        if print_output:
            print(text)
        return text

    def to_folder(self, folder: str | os.PathLike, module_name: str = "FxModule") -> None:
        """Write a folder that imports as a package with this module in it, as a class."""
        write_package(self, Path(folder), module_name)

    # -- copies and files --------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict) -> GraphModule:
        holder = nn.Module()
        kept = {name: value for name, value in self.__dict__.items() if name not in _OWN}
        holder.__dict__.update(copy.deepcopy(kept, memo))
        graph = copy.deepcopy(self._graph, memo)
        made = GraphModule(holder, graph)
        _carry_over(holder, made)
        memo[id(self)] = made
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, copy.deepcopy(self._graph))
        made.meta = dict(self.meta)
        return made

    def __reduce__(self) -> Any:
        state = {name: value for name, value in self.__dict__.items() if name not in _OWN}
        return reduce_graph_module, (state, self._graph, type(self).__name__)


#: attributes that are made anew from the graph
_OWN = ("_graph", "_code", "_in_spec", "_out_spec", "_tracer_cls")
#: attributes that no graph refers to
_BESIDE = (*HOOK_TABLES, *STATE_TABLES, "_hooked", "meta")


def _carry_over(holder: nn.Module, made: GraphModule) -> None:
    """Give a new module the hooks and notes of the one it was made from."""
    for name in _BESIDE:
        if name in holder.__dict__:
            made.__dict__[name] = holder.__dict__[name]


def reduce_graph_module(state: dict[str, Any], graph: Graph, name: str) -> GraphModule:
    """The module that a file keeps as its attributes and its graph."""
    holder = nn.Module()
    holder.__dict__.update(state)
    made = GraphModule(holder, graph, name)
    _carry_over(holder, made)
    return made


def _copy_attribute(source: nn.Module, made: nn.Module, target: str) -> None:
    """Give a module what another has under a dotted name, with plain modules on the way."""
    *path, last = target.split(".")
    for name in path:
        inside = getattr(source, name)
        if name in made.__dict__ and getattr(made, name) is inside:
            return  # a parent is there whole
        if name not in made.__dict__:
            setattr(made, name, nn.Module())
        source, made = inside, getattr(made, name)
    value = getattr(source, last)
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        if last not in made.__dict__:
            made.register_buffer(last, value)
    else:
        setattr(made, last, value)


def _assign(value: Any, made: nn.Module, target: str) -> None:
    """Put something under a dotted name, with plain modules on the way."""
    *path, last = target.split(".")
    for name in path:
        if not hasattr(made, name):
            setattr(made, name, nn.Module())
        made = getattr(made, name)
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        made.register_buffer(last, value)
    else:
        setattr(made, last, value)
