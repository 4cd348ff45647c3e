"""How tensors are written, for programs that write their numbers themselves."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.assemble import protocol

__all__ = ["PRINT_OPTS"]


class _Options:
    """The options of printing as they are now."""

    def __getattr__(self, name: str) -> Any:
        return getattr(protocol.Printing.options, name)


PRINT_OPTS = _Options()


def _tensor_str(self: Tensor, indent: int) -> str:
    """The numbers of a tensor, in brackets."""
    return protocol.printing.format_values(self.detach().numpy(), protocol.Printing.options, indent)


def _str(self: Tensor, *, tensor_contents: Any = None) -> str:
    """What `repr` gives."""
    return Tensor.__repr__(self)
