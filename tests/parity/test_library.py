"""Schemas are inferred as torch infers them, and refused as it refuses them."""

import typing

import pytest
import torch

import flambeau


def functions(T):
    Tensor, Optional = T.Tensor, typing.Optional

    def plain(x: Tensor) -> Tensor: ...
    def numbers(x: Tensor, n: int, f: float = 1.5, b: bool = True, s: str = "a") -> Tensor: ...
    def optional(x: Optional[Tensor] = None, n: Optional[int] = None) -> None: ...  # noqa: UP045
    def modern(x: Tensor | None, n: int | None = None) -> None: ...
    def lists(xs: list[Tensor], ns: typing.Sequence[int], fs: list[float]) -> list[Tensor]: ...
    def several(x: Tensor, *, dtype: T.dtype = T.float32) -> tuple[Tensor, Tensor]: ...
    def one(x: Tensor) -> tuple[Tensor]: ...
    def number(x: Tensor) -> int: ...
    def unannotated(x) -> Tensor: ...
    def unknown_result(x: Tensor): ...
    def star(*x: Tensor) -> Tensor: ...
    def bad_default(n: list[int] = (1,)) -> Tensor: ...  # noqa: B006
    return dict(locals())


@pytest.mark.parametrize("name", [k for k, v in functions(flambeau).items() if callable(v)
                                  and hasattr(v, "__code__")])
@pytest.mark.parametrize("mutates", [(), ("x",), "unknown", ("q",)], ids=str)
def test_inferred_schemas(name, mutates):
    def told(T):
        try:
            return T.library.infer_schema(functions(T)[name], mutates_args=mutates)
        except ValueError as error:
            return str(error).partition("Got func")[0].partition("The valid types")[0]

    assert told(flambeau) == told(torch)
