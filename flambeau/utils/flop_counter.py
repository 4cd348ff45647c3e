"""How many floating point operations a program's products and convolutions take, by module.

    with FlopCounterMode() as counter:
        model(x).sum().backward()
    counter.get_total_flops()

Calls are counted where they are made, by formulas over shapes; what going back takes is counted
when it does, by a hook on the result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import prod
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.utils._python_dispatch import Known, Packet, TorchDispatchMode, aten
from flambeau.utils._pytree import tree_map
from flambeau.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "flop_registry", "register_flop_formula"]

#: packet of an op -> f(*args, out_val=result, **kwargs), whose arguments are tensors
flop_registry: dict[Packet, Callable] = {}


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable:
    """Decorator: a formula for some ops, of shapes in place of tensors unless `get_raw`."""
    def register(formula: Callable) -> Callable:
        counted = formula if get_raw else _of_shapes(formula)
        for target in targets if isinstance(targets, list | tuple) else (targets,):
            if not isinstance(target, Packet):
                raise ValueError(f"register_flop_formula(targets): expected each target to be "
                                 f"OpOverloadPacket (i.e. torch.ops.mylib.foo), got {target} which "
                                 f"is of type {type(target)}")
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = counted
        return formula

    return register


def _of_shapes(formula: Callable) -> Callable:
    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        args, kwargs, out = tree_map(_shape, (args, kwargs, out_val))
        return formula(*args, out_shape=out, **kwargs)

    return counted


def _shape(x: Any) -> Any:
    return x.shape if isinstance(x, Tensor) else x


# -- formulas --------------------------------------------------------------------------------------


@register_flop_formula(aten.mm)
def mm_flop(a_shape, b_shape, *args, out_shape=None, **kwargs) -> int:
    """Of a matrix product."""
    return 2 * a_shape[0] * a_shape[1] * b_shape[1]


@register_flop_formula(aten.addmm)
def addmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs) -> int:
    """Of a matrix product; the sum is not counted."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape, b_shape, out_shape=None, **kwargs) -> int:
    """Of a batch of matrix products."""
    return a_shape[0] * mm_flop(a_shape[1:], b_shape[1:])


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs) -> int:
    """Of a batch of matrix products; the sums are not counted."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(x_shape, w_shape, out_shape, transposed: bool = False) -> int:
    """Of a convolution: a product for each weight, wherever it is applied."""
    places = (x_shape if transposed else out_shape)[2:]
    return 2 * x_shape[0] * prod(places) * prod(w_shape)


@register_flop_formula(aten.convolution)
def conv_flop(x_shape, w_shape, _bias, _stride, _padding, _dilation, transposed, *args,
              out_shape=None, **kwargs) -> int:
    """Of a convolution as aten has it."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=transposed)


@register_flop_formula(aten.einsum, get_raw=True)
def einsum_flop(equation, *operands, out_val=None, **kwargs) -> int:
    """Of a sum of products, as that of matrix products."""
    if not isinstance(equation, str) or len(operands) < 2:
        return 0
    before, _, after = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for letters, operand in zip(before.split(","), operands, strict=False):
        if "..." not in letters and "->" in equation:
            sizes.update(zip(letters, operand.shape, strict=False))
    return 2 * out_val.numel() * prod(n for letter, n in sizes.items() if letter not in after)


#: what a call is counted as, where torch makes others of it
COUNTED_AS = {aten.einsum: aten.bmm}


# -- what going back takes -------------------------------------------------------------------------


def _learned(*tensors: Any) -> int:
    return sum(isinstance(x, Tensor) and x.requires_grad for x in tensors)


def _unreached(*args: Any, **kwargs: Any) -> None:
    raise NotImplementedError("going back through a convolution is no op of its own here")


aten._packets.setdefault("convolution_backward", Known("aten", "convolution_backward", _unreached))

#: packet -> (the op that goes back, the tensors whose gradients each take as much as the call)
BACK: dict[Packet, tuple[str, slice]] = {
    aten.mm:          ("mm", slice(0, 2)),
    aten.addmm:       ("mm", slice(1, 3)),
    aten.bmm:         ("bmm", slice(0, 2)),
    aten.baddbmm:     ("bmm", slice(1, 3)),
    aten.convolution: ("convolution_backward", slice(0, 2)),
    aten.einsum:      ("bmm", slice(1, None)),
}  # fmt: skip


class FlopCounterMode:
    """Counts inside its `with`, for the whole and for each module; prints a table at the end.

    `depth` is how deep modules are shown; `custom_mapping` has formulas for more ops.
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True,
                 custom_mapping: dict | None = None):
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        self.mode: _Counting | None = None
        self.tracker = ModuleTracker()
        self.formulas = {**flop_registry, **{
            packet: formula if getattr(formula, "_get_raw", False) else _of_shapes(formula)
            for packet, formula in (custom_mapping or {}).items()}}

    def get_total_flops(self) -> int:
        """All of them."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Module -> op -> how many."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def __enter__(self):
        self.flop_counts.clear()
        self.tracker.__enter__()
        self.mode = _Counting(self)
        self.mode.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        mode, self.mode = self.mode, None
        if mode is not None:
            mode.__exit__(*failure)
        self.tracker.__exit__(*failure)
        if self.display:
            print(self.get_table(self.depth))

    def count(self, packet: Any, result: Any, args: tuple, kwargs: dict) -> None:
        """Count a call, and later what goes back through it."""
        formula = self.formulas.get(packet)
        if formula is None:
            return
        flops, modules = formula(*args, **kwargs, out_val=result), set(self.tracker.parents)
        self._add(COUNTED_AS.get(packet, packet), flops, modules)
        back = BACK.get(packet)
        if back is not None and isinstance(result, Tensor) and result.requires_grad:
            name, taking_part = back
            times = _learned(*args[taking_part])
            step = getattr(aten, name)
            result.register_hook(lambda g: self._add(step, times * flops, modules))

    def _add(self, packet: Any, flops: int, modules: set) -> None:
        if self.mode is not None:
            for name in modules:
                self.flop_counts[name][packet] += flops

    # -- the table ---------------------------------------------------------------------------------

    def get_table(self, depth: int | None = None) -> str:
        """Modules, what they took, and their share of the whole."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        shown = [name for name in sorted(self.flop_counts) if name != "Global"
                 and name.count(".") < (depth or 999999)]
        covered = any(sum(self.flop_counts[name].values()) >= total for name in shown)
        rows = [row for name in shown for row in self._rows(name, name.count("."), total)]
        if "Global" in self.flop_counts and not covered:
            rows = [*self._rows("Global", 0, total), *((" " + a, b, c) for a, b, c in rows)]
        return _table(("Module", "FLOP", "% Total"), rows or [("Global", "0", "0%")])

    def _rows(self, name: str, indent: int, total: int) -> list[tuple[str, str, str]]:
        counts, pad = self.flop_counts[name], " " * indent
        lines = {pad + name: sum(counts.values()),
                 **{f"{pad} - {packet}": n for packet, n in counts.items()}}
        return [(line, convert_num_with_suffix(n, get_suffix_str(total)),
                 convert_to_percent_str(n, total)) for line, n in lines.items()]


class _Counting(TorchDispatchMode):
    def __init__(self, counter: FlopCounterMode):
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: tuple, args: tuple = (), kwargs: Any = None):
        result = func(*args, **(kwargs or {}))
        with flambeau.enable_grad():
            self.counter.count(func.overloadpacket, result, args, kwargs or {})
        return result


SUFFIXES = ("", "K", "M", "B", "T")


def get_suffix_str(number: int) -> str:
    """The suffix that leaves a number two to four digits."""
    return SUFFIXES[max(0, min(len(SUFFIXES) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: int, suffix: str) -> str:
    """A number in units of a suffix, with three decimals."""
    return f"{number / 1000 ** SUFFIXES.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: int, denom: int) -> str:
    """A share in percent."""
    return f"{num / denom:.2%}" if denom else "0%"


def _table(header: tuple, rows: list) -> str:
    """Columns under their names, the first to the left, the others to the right."""
    widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]

    def line(row: tuple) -> str:
        first, *others = row
        return "  ".join([first.ljust(widths[0]), *(
            cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))])

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])
