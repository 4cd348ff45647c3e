"""The shape, dtype and layout of every value of a graph, found by running it once."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its numbers."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor) -> TensorMetadata:
    """What is known of a tensor without its numbers."""
    formats = (flambeau.contiguous_format, flambeau.channels_last, flambeau.channels_last_3d)
    fitting = next((each for each in formats if _is_laid_out(result, each)), None)
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(),
                          fitting, False, {})


def _is_laid_out(x: Tensor, memory_format: Any) -> bool:
    ranks = {flambeau.channels_last: 4, flambeau.channels_last_3d: 5}
    return ranks.get(memory_format, x.dim()) == x.dim() and (
        x.is_contiguous(memory_format=memory_format))


class ShapeProp(Interpreter):
    """Runs a graph and notes in `meta` what each node gives: `tensor_meta`, and `type`.

    >>> import flambeau as torch
    >>> traced = torch.fx.symbolic_trace(torch.nn.Linear(4, 2))
    >>> out = ShapeProp(traced).propagate(torch.zeros(3, 4))
    >>> {node.name: node.meta["tensor_meta"].shape for node in traced.graph.nodes}["linear"]
    torch.Size([3, 2])
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        tensors = 0

        def noted(value: Any) -> Any:
            nonlocal tensors
            if not isinstance(value, Tensor):
                return value
            tensors += 1
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, noted)
        if tensors:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on these inputs; what it returns."""
        return super().run(*args)
