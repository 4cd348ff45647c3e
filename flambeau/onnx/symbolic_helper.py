"""Symbolic functions, by which PyTorch's first exporter wrote custom ops.

The exporter here writes programs of ops, so that none is called: how an op is written is said with
`flambeau.onnx.lowers`. Packages register theirs when they are imported.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["parse_args", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]

#: (op, version of the opset) -> its symbolic function
registered: dict[tuple[str, int], Callable] = {}


def parse_args(*arg_descriptors: str) -> Callable[[Callable], Callable]:
    """Say of what kinds the arguments of a symbolic function are."""
    def decorate(function: Callable) -> Callable:
        function._arg_descriptors = arg_descriptors  # type: ignore[attr-defined]
        return function

    return decorate


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable,
                                opset_version: int) -> None:
    """Keep the symbolic function of an op, written namespace::name."""
    if symbolic_name.count("::") != 1:
        raise ValueError(f"register_custom_op_symbolic: {symbolic_name} is no name of an op: write "
                         "namespace::name")
    registered[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget the symbolic function of an op."""
    registered.pop((symbolic_name, opset_version), None)
