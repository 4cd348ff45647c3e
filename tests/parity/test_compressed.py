"""Tensors in compressed rows and columns beside torch's: what they print, compute, learn, save."""

import io

import numpy as np
import pytest
import torch

import flambeau

KINDS = ("csr", "csc", "bsr", "bsc")
pytestmark = pytest.mark.filterwarnings("ignore")


def matrix(lib, dtype="float32"):
    return lib.tensor([[0, 1.0, 0, 2], [3, 0, 0, 0], [0, 0, 0, 0], [4, 5, 0, 6]],
                      dtype=getattr(lib, dtype))


def compressed(x, kind):
    form = getattr(x, f"to_sparse_{kind}")
    return form((2, 2)) if kind[0] == "b" else form()


def outcome(work):
    try:
        return str(work())
    except Exception as error:
        return f"{type(error).__name__} {str(error)[:90]}"


PROGRAMS = (
    lambda t, x, k: x, lambda t, x, k: x.to_dense(), lambda t, x, k: x.values(),
    lambda t, x, k: (x._nnz(), x.layout, x.is_sparse, x.is_sparse_csr, x.sparse_dim()),
    lambda t, x, k: x.crow_indices(), lambda t, x, k: x.row_indices(),
    lambda t, x, k: x.to_sparse(), lambda t, x, k: compressed(x, "csr"),
    lambda t, x, k: compressed(x, "csc"), lambda t, x, k: compressed(x, "bsr"),
    lambda t, x, k: compressed(x, "bsc"), lambda t, x, k: x @ t.ones(4),
    lambda t, x, k: x @ t.arange(8.0).reshape(4, 2), lambda t, x, k: x.transpose(0, 1),
    lambda t, x, k: x.t(), lambda t, x, k: x.clone(), lambda t, x, k: x.detach(),
    lambda t, x, k: x.double(), lambda t, x, k: x.to(t.float16), lambda t, x, k: x.shape,
    lambda t, x, k: x.coalesce(), lambda t, x, k: x.numpy(), lambda t, x, k: x.stride(),
    lambda t, x, k: x.is_contiguous(), lambda t, x, k: x.data_ptr(), lambda t, x, k: x.numel(),
    lambda t, x, k: t.addmm(t.ones(4, 2), x, t.arange(8.0).reshape(4, 2), alpha=2, beta=3),
)
ROW_PROGRAMS = (
    lambda t, x: x.col_indices().dtype, lambda t, x: x + x, lambda t, x: x * 2,
    lambda t, x: 2 * x, lambda t, x: x * x, lambda t, x: x + matrix(t), lambda t, x: matrix(t) + x,
    lambda t, x: x * matrix(t), lambda t, x: (x @ x).to_dense(), lambda t, x: t.ones(2, 4) @ x,
    lambda t, x: x[0], lambda t, x: x[0, 1], lambda t, x: x.select(0, 1), lambda t, x: x.sum(),
    lambda t, x: t.sum(x, 0, keepdim=True), lambda t, x: t.sum(x, 1), lambda t, x: x.abs(),
    lambda t, x: x.sin(), lambda t, x: -x, lambda t, x: x.relu(), lambda t, x: x.sqrt(),
    lambda t, x: t.zeros_like(x), lambda t, x: t.ones_like(x), lambda t, x: t.mv(x, t.ones(4)),
    lambda t, x: t.sparse.mm(x, t.ones(4, 2)), lambda t, x: t.nn.functional.linear(t.ones(2, 4), x),
    lambda t, x: t.sparse.addmm(t.ones(4, 2), x, t.ones(4, 2)), lambda t, x: x.bool(),
    lambda t, x: t.sparse.sampled_addmm(x, t.ones(4, 3), t.arange(12.0).reshape(3, 4), beta=0.5),
    lambda t, x: matrix(t).sparse_mask(x), lambda t, x: x.requires_grad_(),
    lambda t, x: t.zeros(2, 3, layout=t.sparse_csr), lambda t, x: (len(x), x.size(0), x.device),
    lambda t, x: matrix(t).reshape(2, 2, 4).to_sparse_csr(),
    lambda t, x: matrix(t).reshape(2, 2, 4).to_sparse_csr().to_dense(),
    lambda t, x: matrix(t).reshape(2, 2, 4).to_sparse_csr(dense_dim=1),
    lambda t, x: matrix(t).crow_indices(), lambda t, x: matrix(t).to_sparse().crow_indices(),
    lambda t, x: matrix(t).to_sparse(layout=t.sparse_bsr, blocksize=(2, 2)),
    lambda t, x: matrix(t).to_sparse(layout=t.sparse_bsr),
    lambda t, x: matrix(t).to_sparse(layout=t.sparse_csc, blocksize=(2, 2)),
    lambda t, x: matrix(t).to_sparse_bsr((3, 2)),
    lambda t, x: t.sparse_csr_tensor([0, 2, 4], [0, 1, 0, 1], [1, 2, 3, 4]),
    lambda t, x: t.sparse_csr_tensor(t.tensor([0, 2, 4], dtype=t.int32),
                                     t.tensor([0, 1, 0, 3], dtype=t.int32), [1, 2, 3, 4.0]),
    lambda t, x: t.sparse_csr_tensor([0, 2, 4], [0, 1, 0, 1], [1, 2, 3, 4.0], size=(2, 5),
                                     dtype=t.float64, requires_grad=True),
    lambda t, x: t.sparse_compressed_tensor([0, 2, 4], [0, 1, 0, 1], [1, 2, 3, 4.0],
                                            layout=t.sparse_csc),
    lambda t, x: t.sparse_compressed_tensor([0, 2, 4], [0, 1, 0, 1], [1, 2, 3, 4.0]),
    lambda t, x: t.sparse_bsr_tensor([0, 1, 2], [0, 1], t.ones(2, 2, 2)),
    lambda t, x: t.sparse_bsr_tensor([0, 1, 2], [0, 1], t.ones(2)),
)
BROKEN = (
    ([0, 2, 5], [0, 1, 0, 1], (2, 2)), ([1, 2, 4], [0, 1, 0, 1], (2, 2)),
    ([0, 2, 4], [0, 1, 0, 3], (2, 2)), ([0, 2, 4], [0, 1, 0, 1], (3, 2)),
    ([0, 2, 4], [0, 1, 0], (2, 2)), ([0, 3, 4], [0, 1, 0, 1], (2, 2)),
    ([0, 2, 4], [0, 1, 1, 0], (2, 2)),
)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
@pytest.mark.parametrize("kind", KINDS)
def test_same_in_every_layout(kind, number):
    ours, theirs = (outcome(lambda t=t: PROGRAMS[number](t, compressed(matrix(t), kind), kind))
                    for t in (flambeau, torch))
    assert ours == theirs or not_there(theirs)


def not_there(theirs: str) -> bool:
    """Whether torch lacks what is there here."""
    return theirs.startswith("RuntimeError") and any(words in theirs for words in (
        "not supported", "not implemented", "expected SparseCsr or"))


@pytest.mark.parametrize("number", range(len(ROW_PROGRAMS)))
def test_same_in_rows(number):
    ours, theirs = (outcome(lambda t=t: ROW_PROGRAMS[number](t, matrix(t).to_sparse_csr()))
                    for t in (flambeau, torch))
    assert ours == theirs


@pytest.mark.parametrize("parts", BROKEN)
def test_what_does_not_fit_is_refused(parts):
    starts, places, size = parts
    ours, theirs = (outcome(lambda t=t: t.sparse_csr_tensor(
        starts, places, [1, 2, 3, 4.0], size, check_invariants=True)) for t in (flambeau, torch))
    assert ours == theirs


def learnt(t, kind, other, sparse):
    x = compressed(matrix(t, "float64"), kind).requires_grad_()
    y = t.linspace(-1, 1, 4 * other, dtype=t.float64).reshape(4, other).requires_grad_()
    product = t.sparse.mm if sparse else t.matmul
    product(x, y).pow(2).sum().backward()
    (product(x, y) * 2).sum().backward()
    return x.grad.layout, x.grad.to_dense().tolist(), y.grad.tolist()


@pytest.mark.parametrize("width", [1, 3, 20, 70])
@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_of_products(width, sparse):
    (ours, x, y), (theirs, u, v) = (learnt(t, "csr", width, sparse) for t in (flambeau, torch))
    assert str(ours) == str(theirs)
    np.testing.assert_allclose(x, u)
    np.testing.assert_allclose(y, v)


def test_gradients_of_values_and_forms():
    found = []
    for t in (flambeau, torch):
        values = t.tensor([1.0, 2, 3, 4], requires_grad=True)
        x = t.sparse_csr_tensor([0, 2, 4], [0, 1, 0, 2], values, (2, 3))
        whole = (x.to_dense() * t.arange(6.0).reshape(2, 3)).sum()
        (whole + (x @ t.arange(3.0).reshape(3, 1)).sum()).backward()
        dense = matrix(t).requires_grad_()
        (dense.to_sparse_csr().values() * t.arange(6.0)).sum().backward()
        found.append((values.grad.tolist(), dense.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64"])
@pytest.mark.parametrize("width", [1, 2, 7, 16, 33, 64, 100])
def test_products_of_all_widths(dtype, width):
    rng = np.random.default_rng(width)
    x = rng.integers(-3, 4, (37, 50)) * (rng.random((37, 50)) < 0.2)
    y = rng.integers(-3, 4, (50, width))
    kind, wanted = getattr(flambeau, dtype), x @ y
    dense = flambeau.from_numpy(y).to(kind)
    for form in ("csr", "csc"):
        sparse = compressed(flambeau.from_numpy(x).to(kind), form)
        np.testing.assert_array_equal((sparse @ dense).numpy().real, wanted)
        np.testing.assert_array_equal((dense.T @ sparse.t()).numpy().real, wanted.T)


def test_second_gradients():
    pattern = flambeau.eye(3, dtype=flambeau.float64).to_sparse_csr()

    def product(values, y):
        x = flambeau.sparse_csr_tensor(pattern.crow_indices(), pattern.col_indices(), values)
        return (x @ y).pow(2)

    given = [flambeau.randn(3, dtype=flambeau.float64, requires_grad=True),
             flambeau.randn(3, 2, dtype=flambeau.float64, requires_grad=True)]
    assert flambeau.autograd.gradcheck(product, given)
    assert flambeau.autograd.gradgradcheck(product, given)


@pytest.mark.parametrize("kind", KINDS)
def test_files_both_ways(kind):
    for writer, reader in ((flambeau, torch), (torch, flambeau)):
        file = io.BytesIO()
        writer.save(compressed(matrix(writer), kind), file)
        file.seek(0)
        assert str(reader.load(file)) == str(compressed(matrix(writer), kind))


def test_a_graph_network_learns_alike():
    weights = []
    for t in (flambeau, torch):
        t.manual_seed(0)
        links = (t.rand(30, 30) < 0.1).double()
        links = (links / links.sum(1, keepdim=True).clamp(min=1)).to_sparse_csr()
        x, y = t.randn(30, 5, dtype=t.float64), t.randint(0, 3, (30,))
        one, two = (t.nn.Linear(a, b, dtype=t.float64) for a, b in ((5, 8), (8, 3)))
        optimizer = t.optim.Adam([*one.parameters(), *two.parameters()], lr=0.05)
        for _ in range(10):
            optimizer.zero_grad()
            out = two(links @ t.relu(one(links @ x)))
            t.nn.functional.cross_entropy(out, y).backward()
            optimizer.step()
        weights.append(two.weight.tolist())
    np.testing.assert_allclose(*weights)
