"""What a program prints is what it prints with torch: tensors, and what tensors are made of."""

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
BOTH = (flambeau, torch)


def both(make):
    return [repr(make(lib)) for lib in BOTH]


TENSORS = {
    "0-d": lambda t: t.tensor(1.5),
    "integers": lambda t: t.tensor([[1, -20], [300, 4]]),
    "bool": lambda t: t.tensor([True, False]),
    "complex": lambda t: t.tensor([1 + 2j, -0.5j]),
    "float64": lambda t: t.tensor([1.0, 1e10], dtype=t.float64),
    "float16": lambda t: t.tensor([0.1, 2.0]).half(),
    "bfloat16": lambda t: t.tensor([0.1, 2.0]).bfloat16(),
    "int8": lambda t: t.tensor([1, 2], dtype=t.int8),
    "nan and inf": lambda t: t.tensor([float("nan"), float("inf"), -1.0]),
    "tiny": lambda t: t.tensor([1e-8, 1.0]),
    "empty": lambda t: t.empty(0),
    "empty with shape": lambda t: t.empty(2, 0),
    "empty integers": lambda t: t.empty(0, dtype=t.int64),
    "summarised": lambda t: t.arange(5000.0).reshape(50, 100),
    "long vector": lambda t: t.arange(40),
    "3-d": lambda t: t.arange(24).reshape(2, 3, 4),
    "transposed": lambda t: t.arange(6.0).reshape(2, 3).transpose(0, 1),
    "requires_grad": lambda t: t.ones(2, requires_grad=True),
    "grad_fn": lambda t: t.ones(2, requires_grad=True) * 2,
    "grad_fn of sum": lambda t: t.ones(2, requires_grad=True).sum(),
    "grad_fn of a view": lambda t: t.ones(2, 2, requires_grad=True).transpose(0, 1),
    "meta": lambda t: t.empty(2, 3, device="meta"),
    "meta integers": lambda t: t.empty(2, dtype=t.int64, device="meta"),
    "parameter": lambda t: t.nn.Parameter(t.ones(2, 2)),
    "frozen parameter": lambda t: t.nn.Parameter(t.ones(2), requires_grad=False),
    "double, recorded": lambda t: t.ones(2, dtype=t.float64, requires_grad=True).exp(),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name):
    ours, theirs = both(TENSORS[name])
    assert ours == theirs


OTHERS = {
    "Size": lambda t: t.ones(2, 3).shape,
    "slice of Size": lambda t: t.ones(2, 3, 4).shape[1:],
    "dtype": lambda t: t.float32,
    "bool dtype": lambda t: t.bool,
    "device": lambda t: t.device("cpu"),
    "device with index": lambda t: t.device("cuda", 1),
    "memory format": lambda t: t.channels_last,
    "layout": lambda t: t.strided,
    "finfo": lambda t: t.finfo(t.float16),
    "finfo of bfloat16": lambda t: t.finfo(t.bfloat16),
    "iinfo": lambda t: t.iinfo(t.int8),
    "legacy type": lambda t: t.FloatTensor,
    "tensor class": lambda t: t.Tensor,
    "storage": lambda t: t.arange(3.0).storage(),
    "untyped storage": lambda t: t.tensor([1, 2], dtype=t.uint8).untyped_storage(),
    "list of tensors": lambda t: [t.ones(1), t.zeros(1, 2)],
    "set_grad_enabled": lambda t: t.set_grad_enabled(True),
}


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    ours, theirs = both(OTHERS[name])
    assert ours == theirs


@pytest.mark.parametrize(
    "options",
    [{"precision": 2}, {"sci_mode": True}, {"threshold": 3, "edgeitems": 1}, {"linewidth": 30},
     {"profile": "short"}, {"profile": "full"}],
)
def test_print_options(options):
    for lib in BOTH:
        lib.set_printoptions(**options)
    try:
        ours, theirs = both(lambda t: t.arange(30.0) / 7)
    finally:
        for lib in BOTH:
            lib.set_printoptions(profile="default")
    assert ours == theirs


def test_default_dtype_decides_what_is_shown():
    for lib in BOTH:
        lib.set_default_dtype(lib.float64)
    try:
        ours, theirs = both(lambda t: [t.ones(1), t.ones(1, dtype=t.float32), t.tensor(1j)])
    finally:
        for lib in BOTH:
            lib.set_default_dtype(lib.float32)
    assert ours == theirs


def test_subclasses_show_their_name():
    shown = []
    for lib in BOTH:
        kind = type("Mine", (lib.Tensor,), {})
        shown.append(repr(lib.ones(2).as_subclass(kind)))
    assert shown[0] == shown[1]


def test_formats():
    for spec in ("", ".3f", "8.2e"):
        assert format(flambeau.tensor(1.5), spec) == format(torch.tensor(1.5), spec)
    assert f"{flambeau.ones(2)}" == f"{torch.ones(2)}"


@pytest.mark.parametrize("name", ["arange", "linspace"])
def test_steps_are_equal_to_the_last_bit(name):
    rng = np.random.default_rng(0)
    torch.set_num_threads(1)
    for _ in range(100):
        low, width = rng.uniform(-10, 10), rng.uniform(0, 30)
        step = rng.uniform(0.01, 0.7) if name == "arange" else int(rng.integers(1, 200))
        for dtype in ("float16", "float32", "float64", "int64"):
            if dtype == "int64" and name == "arange":
                continue
            ours, theirs = (getattr(t, name)(low, low + width, step, dtype=getattr(t, dtype))
                            for t in BOTH)
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
