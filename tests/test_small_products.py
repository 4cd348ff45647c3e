"""Products whose code knows their sizes: to the bit what any other product makes of the same."""

import itertools

import pytest

import flambeau
from flambeau.compiler.epilogue import words_at
from flambeau.devices.cpu.matmul.block import WORDS
from flambeau.devices.cpu.matmul.front import product_function
from flambeau.devices.cpu.matmul.product import Matrix, Product
from flambeau.devices.cpu.matmul.small import WORK, small_product
from flambeau.devices.cpu.matmul.tile import COLUMN, ROWS

#: vectors of every width and what is left of them, few and many rows, one column, short and long k
SHAPES = [(1, 1, 1), (2, 3, 5), (80, 3, 16), (80, 16, 8), (80, 8, 1), (80, 1, 8), (1, 80, 8),
          (8, 80, 16), (16, 80, 3), (13, 7, 29), (1, 30, 70), (40, 2, 40), (33, 31, 31),
          (70, 21, 21), (17, 100, 17), (3, 11, 67), (67, 11, 3), (12, 200, 13)]
GUARD = 987.0


def laid_out(rows, cols, layout, dtype):
    """Rows side by side, or columns, with something between them."""
    if layout == "n":
        return flambeau.randn(rows, cols + 3, dtype=dtype)[:, :cols]
    return flambeau.randn(cols, rows + 1, dtype=dtype)[:, :rows].T


def both(m, k, n, a, b, dtype, d=None, alpha=1.0, beta=1.0):
    """What the usual code and the code of this product make, with memory beyond their results."""
    name, strides = str(dtype).split(".")[1], None if d is None else d.stride()
    product = Product(name, m, n, k, Matrix(*a.stride()), Matrix(*b.stride()), n,
                      [(0, 0, 0, 0)], strides, alpha, beta)
    small = small_product(words_at(product.address, WORDS), d is not None)
    found = []
    for run in (product_function(name, d is not None), small):
        if run is None:
            return product, found[0], None
        out = flambeau.full((m * n + 80,), GUARD, dtype=dtype)
        run(out.ptr, a.ptr, b.ptr, *([] if d is None else [d.ptr]), product.address)
        found.append(out)
    return product, *found


@pytest.mark.parametrize("dtype", [flambeau.float32, flambeau.float64])
@pytest.mark.parametrize("m, k, n", SHAPES)
def test_the_same_bits_in_every_layout(m, k, n, dtype):
    flambeau.manual_seed(0)
    for one, other in itertools.product("nt", repeat=2):
        a, b = laid_out(m, k, one, dtype), laid_out(k, n, other, dtype)
        _, usual, small = both(m, k, n, a, b, dtype)
        assert small is None or small.equal(usual), (one, other)
        assert (usual[m * n:] == GUARD).all()


@pytest.mark.parametrize("dtype", [flambeau.float32, flambeau.float64])
@pytest.mark.parametrize("m, k, n", [(9, 5, 21), (21, 40, 3), (80, 16, 8), (1, 20, 33),
                                     (33, 20, 1)])
@pytest.mark.parametrize("layout", ["row", "column", "matrix"])
def test_what_is_added(m, k, n, dtype, layout):
    flambeau.manual_seed(0)
    shape = {"row": (1, n), "column": (m, 1), "matrix": (m, n)}[layout]
    d = flambeau.randn(*shape, dtype=dtype).expand(m, n)
    if n == 1 < m:
        d = d.as_strided((m, n), (d.stride(0), 1))
    kind = COLUMN if d.stride(1) == 0 else ROWS
    for one, other in itertools.product("nt", repeat=2):
        a, b = laid_out(m, k, one, dtype), laid_out(k, n, other, dtype)
        for alpha, beta in ((1.0, 1.0), (0.3, -1.7)):
            product, usual, small = both(m, k, n, a, b, dtype, d, alpha, beta)
            assert words_at(product.address, WORDS)["kind"] in (kind, COLUMN)
            assert small is None or small.equal(usual)


@pytest.mark.parametrize("m, k, n", [(80, 3, 16), (80, 16, 8), (80, 8, 1), (8, 80, 16), (16, 80, 3),
                                     (2, 3, 5), (1, 16, 16)])
def test_what_is_small(m, k, n):
    for one, other in ("nn", "tn", "nt"):
        if (one, other) != ("n", "t") or k < 64:    # sums along k, then
            a, b = (laid_out(*given, flambeau.float32) for given in ((m, k, one), (k, n, other)))
            assert both(m, k, n, a, b, flambeau.float32)[2] is not None


def test_a_scaled_product():
    a, b = flambeau.randn(30, 20), flambeau.randn(20, 9)
    _, usual, small = both(30, 20, 9, a, b, a.dtype, None, 0.3)
    assert small.equal(usual)


def test_neither_large_products_nor_those_summed_otherwise_are_small():
    a, b = flambeau.randn(64, 64), flambeau.randn(64, 64)
    assert WORK < 64 ** 3
    assert both(64, 64, 64, a, b, a.dtype)[2] is None
    x, w = flambeau.randn(2, 200), flambeau.randn(9, 200).T
    assert both(2, 200, 9, x, w, x.dtype)[2] is None
    step = flambeau.randn(40, 40)[::2, ::2]
    assert both(20, 20, 20, step, step, step.dtype)[2] is None


def test_nothing_beyond_an_operand_is_multiplied():
    wide = flambeau.full((40, 32), float("nan"))
    wide[:, :7] = 1
    a, b = wide[:, :7], flambeau.ones(7, 21)
    for x, y in ((a, b), (b.T, a.T)):
        m, k, n = *x.shape, y.shape[1]
        _, usual, small = both(m, k, n, x, y, x.dtype)
        assert small is None or small.equal(usual)
        assert (usual[:m * n] == 7).all()


def test_a_compiled_program_calls_them():
    def step(x, w):
        return (x @ w).relu()

    x, w = flambeau.randn(12, 5), flambeau.randn(5, 9)
    fast = flambeau.compile(step, fullgraph=True)
    for _ in range(5):
        assert fast(x, w).equal(step(x, w))
    assert "small_12x5x9" in str(fast.scripts[0].first.program)
