"""Printed tensors against torch's own repr."""

import itertools
import math
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flambeau.core import printing  # noqa: E402

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
COMPLEXES = ("complex32", "complex64", "complex128")
SHAPES = [
    (), (1,), (2,), (5,), (30,), (999,), (1000,), (1001,), (2, 3), (1, 1), (7, 13), (40, 40),
    (2, 600), (600, 2), (3, 4, 5), (10, 11, 12), (1, 1, 1001), (2, 1, 3, 2), (7, 8, 9, 10),
    (2, 2, 2, 2, 2),
]  # fmt: skip
EMPTY_SHAPES = [(0,), (0, 3), (3, 0), (2, 0, 4), (0, 0)]


@pytest.fixture(autouse=True)
def default_printing():
    yield
    torch.set_printoptions(profile="default")
    torch.set_default_dtype(torch.float32)


def as_array(tensor):
    tensor = tensor.detach()
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn):
        tensor = tensor.float()
    if tensor.dtype is torch.complex32:
        tensor = tensor.cfloat()
    return tensor.numpy()


def our_text(tensor, options=printing.PROFILES["default"], **kwargs):
    return printing.tensor_text(
        as_array(tensor), str(tensor.dtype).removeprefix("torch."), options=options, **kwargs
    )


def check(tensor, options=printing.PROFILES["default"], **kwargs):
    assert our_text(tensor, options, **kwargs) == repr(tensor)


def made(values, dtype):
    return torch.from_numpy(np.asarray(values)).to(getattr(torch, dtype))


def draw(rng, shape, kind):
    exponent = rng.uniform(-9, 9)
    spread = rng.choice([0, 0.5, 1, 3, 6])
    signs = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    values = signs * 10.0 ** (exponent + spread * rng.standard_normal(shape))
    if kind == "whole":
        values = np.round(values)
    values = np.asarray(values)
    if kind == "holes":
        for hole in (math.nan, math.inf, -math.inf, 0.0, -0.0):
            values[rng.random(shape) < 0.05] = hole
    return values


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["any", "whole", "holes"])
def test_floats(dtype, kind):
    rng = np.random.default_rng(1)
    for shape, _ in itertools.product(SHAPES, range(6)):
        check(made(draw(rng, shape, kind), dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    rng = np.random.default_rng(2)
    signed = not dtype.startswith("u")
    for shape, bits in itertools.product(SHAPES, (1, 4, 7)):
        check(made(rng.integers(-(2**bits) if signed else 0, 2**bits, shape), dtype))


def test_extreme_integers():
    for dtype in (torch.int8, torch.int64, torch.uint8, torch.int32):
        info = torch.iinfo(dtype)
        check(torch.tensor([info.min, 0, info.max], dtype=dtype))


@pytest.mark.parametrize("dtype", COMPLEXES)
@pytest.mark.parametrize("kind", ["any", "whole", "holes"])
def test_complex(dtype, kind):
    rng = np.random.default_rng(3)
    for shape in SHAPES:
        values = np.empty(shape, np.complex128)
        values.real, values.imag = draw(rng, shape, kind), draw(rng, shape, kind)
        check(made(values, dtype))


def test_boundaries_of_scientific_notation():
    values = [1e-4, 0.99e-4, 1.0, 1000.0, 1001.0, 1e8, 1.1e8, 0.5, 99999.5, 123456789.0, 0.0]
    for a, b in itertools.product(values, repeat=2):
        for dtype in (torch.float32, torch.float64):
            check(torch.tensor([a, b], dtype=dtype))
            check(torch.tensor([a, -b, math.inf], dtype=dtype))
    check(torch.tensor([5e-324, 1.7e308], dtype=torch.float64))
    check(torch.tensor([math.nan, math.inf, -math.inf]))
    check(torch.tensor(math.nan))


def test_empty_tensors():
    for shape, dtype in itertools.product(EMPTY_SHAPES, (*FLOATS, "int64", "bool", "complex64")):
        check(torch.empty(shape, dtype=getattr(torch, dtype)))


def test_meta_tensors():
    for shape, dtype in itertools.product([(), (3,), (2, 0), (4, 5)], ("float32", "int64")):
        tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        text = printing.tensor_text(None, dtype, shape=shape, device="meta")
        assert text == repr(tensor)


OPTION_CHOICES = {
    "precision": (None, 0, 1, 2, 6, 10),
    "threshold": (None, 0, 5, 100, math.inf),
    "edgeitems": (None, 0, 1, 2, 5),
    "linewidth": (None, 20, 40, 120),
    "sci_mode": (None, True, False),
    "profile": (None, "default", "short", "full"),
}


def test_options():
    rng, pick = np.random.default_rng(4), random.Random(4)
    ours = printing.PROFILES["default"]
    for _ in range(400):
        given = {name: pick.choice(choices) for name, choices in OPTION_CHOICES.items()}
        torch.set_printoptions(**given)
        ours = printing.changed_options(ours, **given)
        shape = pick.choice([shape for shape in SHAPES if math.prod(shape) < 1200])
        values = draw(rng, shape, pick.choice(["any", "whole", "holes"]))
        tensor = made(values, pick.choice(["float32", "float64", "complex64", "float16"]))
        assert our_text(tensor, ours) == repr(tensor), (given, shape)


def test_unknown_profile():
    with pytest.raises(ValueError, match="profile"):
        printing.changed_options(printing.PROFILES["default"], profile="wide")


def test_default_dtypes():
    for default in ("float64", "float16", "bfloat16", "float32"):
        torch.set_default_dtype(getattr(torch, default))
        for dtype in (*FLOATS, *COMPLEXES, "int64", "int32", "bool"):
            check(torch.ones(3, dtype=getattr(torch, dtype)), default_dtype_name=default)
            check(torch.ones(0, 3, dtype=getattr(torch, dtype)), default_dtype_name=default)


def test_gradients_and_parameters():
    for n in (1, 2, 9, 10, 11, 12, 50):
        for dtype in (torch.float32, torch.float64):
            leaf = torch.linspace(0, 1, n, dtype=dtype).requires_grad_()
            check(leaf, requires_grad=True)
            check(leaf * 2, requires_grad=True, grad_fn_name="MulBackward0")
            parameter = torch.nn.Parameter(leaf.detach())
            check(parameter, requires_grad=True, is_parameter=True)


def test_subclass_prefix():
    class Marked(torch.Tensor):
        pass

    check(torch.arange(40.0).as_subclass(Marked), prefix="Marked(")


def test_float8():
    check(torch.tensor([1.0, 0.5, -3.0]).to(torch.float8_e4m3fn))


def test_strided_views():
    base = torch.arange(60.0).reshape(3, 4, 5)
    for view in (base.permute(2, 0, 1), base[:, 1:3], base[::2, :, 3], base.expand(2, 3, 4, 5)):
        check(view)


def test_format_of_scalars():
    for value, dtype, spec in (
        (0.1, torch.float32, ""), (0.1, torch.float64, ".3f"), (7, torch.int64, "5d"),
        (True, torch.bool, ""), (2.5, torch.bfloat16, ">9.2f"), (1 + 2j, torch.complex64, ".1f"),
    ):  # fmt: skip
        tensor = torch.tensor(value, dtype=dtype)
        assert printing.scalar_format(as_array(tensor), spec) == format(tensor, spec)
