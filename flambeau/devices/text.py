"""Instructions, blocks and declarations of one LLVM function, as text: what all writers share."""

from __future__ import annotations


class Text:
    """Collects lines; `block` is the label of the block that is being written."""

    #: between the stem of a register and its number
    mark = ""

    def __init__(self, declared: dict[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {} if declared is None else declared
        self.block = "entry"
        self._count = 0

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"%{stem}{self.mark}{self._count}"

    def emit(self, code: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {code}")
        return name

    def do(self, code: str) -> None:
        self.lines.append(f"  {code}")

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def declare(self, name: str, result: str, args: list[str]) -> None:
        self.declared[name] = f"declare {result} @{name}({', '.join(args)})"

    def call(self, name: str, result: str, args: list[tuple[str, str]]) -> str:
        """A call of a function that is declared with it; of one without a result, nothing."""
        self.declare(name, result, [t for t, _ in args])
        code = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})"
        if result != "void":
            return self.emit(code)
        self.do(code)
        return ""
