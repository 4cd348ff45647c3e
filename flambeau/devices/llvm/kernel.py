"""A kernel's functions: a range of its outermost loop, its folds in blocks, and who calls them."""

from __future__ import annotations

from ...core import dtype as dt
from ...core.kernel import Kernel
from .. import parallel
from .blocks import Body
from .short_rows import ShortRows
from .weights import work_of


class Lowering(ShortRows):
    """Lowers one kernel."""

    def __init__(self, kernel: Kernel, name: str, bits: int) -> None:
        super().__init__(kernel, bits)
        self.name = name
        arguments = [f"ptr %p{k}" for k in range(len(kernel.operands))]
        for k, dtype in enumerate(kernel.params):
            arguments += _param_arguments(k, dtype)
        self.arguments = (*arguments, "i64 %last")

    def text(self) -> str:
        """All functions, and what they call."""
        kernel = self.kernel
        functions = [self._function("range", ("i64 %begin", "i64 %end"), self._range)]
        functions += [self._function(role, parallel.BLOCK_ARGUMENTS, body)
                      for role, body in self.block_functions().items()]
        call = parallel.Call(self.name, self.arguments, kernel.dense, kernel.kept, kernel.reduced,
                             self.native * 8 if self.lane_axis() == 0 else 1, self._grain(),
                             sum(self.slots), self._apart())
        functions.append(parallel.entry(call, len(self.slots)))
        return "".join(functions) + "\n".join(self.declared.values()) + "\n"

    def _function(self, role: str, more: tuple[str, ...], body: Body) -> str:
        """One function of the kernel: its arguments and more, and what `body` writes."""
        self.begin()
        body([f"%p{k}" for k in range(len(self.kernel.operands))])
        self.w.do("ret void")
        lines = "\n".join(self.w.lines)
        return (f"define internal void @{self.name}_{role}("
                f"{', '.join((*self.arguments, *more))}) #0 {{\nentry:\n{lines}\n}}\n")

    def _range(self, pointers: list[str]) -> None:
        """The places from %begin to %end of the outermost loop."""
        if self.kernel.kept:
            self.spans = {0: ("%begin", "%end")}
        self.nest_rows(pointers)

    def _apart(self) -> tuple[int, ...]:
        """Which words of the layout say how far the outermost loop moves what is put somewhere."""
        put = {s.operand for kind, p in self.stages if kind != "fold" for s in p if s.coordinates}
        return tuple(self.loops * (1 + k) for k in sorted(put))

    def _grain(self) -> int:
        """How many elements are worth a thread's while."""
        return int(parallel.RANGE_NS / (work_of(self.kernel, self.stages) / max(1, self.native)))


def _param_arguments(k: int, dtype: dt.dtype) -> list[str]:
    if dtype.kind == "c":
        return [f"double %a{k}r", f"double %a{k}i"]
    return [f"{'double' if dtype.kind == 'f' else 'i64'} %a{k}"]


def to_ir(kernel: Kernel, name: str, bits: int) -> str:
    """The kernel as an LLVM function."""
    return Lowering(kernel, name, bits).text()
