"""Tensors in coordinates: what they hold, what ops do with them, and gradients that are sparse."""

import copy
import io
import pickle

import pytest

import flambeau as torch
from flambeau import nn

PLACES = [[0, 1, 0], [1, 0, 1]]


def example(requires_grad=False):
    """One element comes twice."""
    return torch.sparse_coo_tensor(PLACES, [1.0, 2.0, 3.0], (2, 3), requires_grad=requires_grad)


DENSE = torch.tensor([[0.0, 4.0, 0.0], [2.0, 0.0, 0.0]])


def equal(x, expected):
    x = x.to_dense() if x.is_sparse else x
    assert torch.allclose(x, expected), (x, expected)


def test_what_it_is():
    x = example()
    assert x.is_sparse and x.layout is torch.sparse_coo and isinstance(x, torch.Tensor)
    assert (x.sparse_dim(), x.dense_dim(), x._nnz(), x.numel()) == (2, 0, 3, 6)
    assert not x.is_coalesced() and x.shape == (2, 3) and x.dtype is torch.float32
    equal(x, DENSE)
    assert not DENSE.is_sparse and DENSE.to_dense() is DENSE and DENSE.sparse_dim() == 0


def test_coalesced_indices_are_in_order_and_unique():
    x = example().coalesce()
    assert x.is_coalesced() and x.coalesce() is x
    assert x.indices().tolist() == [[0, 1], [1, 0]] and x.values().tolist() == [4.0, 2.0]
    with pytest.raises(RuntimeError, match="uncoalesced"):
        example().values()
    with pytest.raises(RuntimeError, match="expected sparse"):
        DENSE.values()


def test_sizes_are_found_or_checked():
    assert torch.sparse_coo_tensor(PLACES, [1, 2, 3]).shape == (2, 2)
    assert torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 5)).shape == (3, 5)
    assert torch.sparse_coo_tensor(size=(2, 3))._nnz() == 0
    for wrong, message in [((2,), "is not satisfied"), ((1, 3), "inconsistent with indices")]:
        with pytest.raises(RuntimeError, match=message):
            torch.sparse_coo_tensor(PLACES, [1.0, 2.0, 3.0], wrong)
    with pytest.raises(RuntimeError, match="same nnz"):
        torch.sparse_coo_tensor(PLACES, [1.0, 2.0], (2, 3))
    with pytest.raises(RuntimeError, match="negative index"):
        torch.sparse_coo_tensor([[-1], [0]], [1.0], (2, 3))


@pytest.mark.parametrize("dims", [None, 1, 2])
def test_there_and_back(dims):
    x = torch.tensor([[1.0, 0, 3], [0, 0, 0], [0, 5, 6]])
    equal(x.to_sparse(dims), x)
    assert x.to_sparse(1)._nnz() == 2
    for scalar in (torch.tensor(3.0), torch.tensor(0.0)):
        equal(scalar.to_sparse(), scalar)


OPS = {
    "x + x": lambda x: x + x, "x - x": lambda x: x - 2 * x, "2 * x": lambda x: 2 * x,
    "x / 2": lambda x: x / 2, "-x": lambda x: -x, "x * x": lambda x: x * x,
    "x ** 2": lambda x: x**2,
    "x * dense": lambda x: x * torch.arange(6.0).reshape(2, 3), "dense + x": lambda x: DENSE + x,
    "dense * x": lambda x: torch.arange(3.0) * x, "sum": lambda x: x.sum(), "t": lambda x: x.t(),
    "sum 0": lambda x: x.sum(0), "sum 1": lambda x: x.sum(1, keepdim=True), "sin": torch.sin,
    "sqrt": torch.sqrt, "abs": abs, "relu": torch.relu, "norm": lambda x: x.norm(),
    "mm": lambda x: x @ torch.arange(6.0).reshape(3, 2), "mv": lambda x: x @ torch.arange(3.0),
    "dense mm": lambda x: torch.arange(4.0).reshape(2, 2) @ x, "x @ x.t()": lambda x: x @ x.t(),
    "addmm": lambda x: torch.addmm(torch.ones(2, 2), x, torch.ones(3, 2), beta=2, alpha=3),
    "row": lambda x: x[0], "element": lambda x: x[1, 0], "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]), "unsqueeze": lambda x: x.unsqueeze(1),
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 1, 1])),
    "double": lambda x: x.double(), "clone": lambda x: x.clone(), "zeros_like": torch.zeros_like,
    "linear": lambda x: nn.functional.linear(x, torch.arange(12.0).reshape(4, 3), torch.ones(4)),
}


@pytest.mark.parametrize("name", OPS)
def test_ops_mean_what_they_mean_for_dense(name):
    equal(OPS[name](example()), OPS[name](DENSE))


def test_softmax_over_what_is_there():
    x = torch.sparse_coo_tensor([[0, 0, 1], [0, 2, 1]], [1.0, 2.0, 7.0], (2, 3))
    full = torch.full((2, 3), -torch.inf)
    full[0, 0], full[0, 2], full[1, 1] = 1.0, 2.0, 7.0
    equal(torch.sparse.softmax(x, 1), full.softmax(1))
    equal(torch.sparse.log_softmax(x, 1).to_dense()[0, 2], full.log_softmax(1)[0, 2])
    equal(torch.sparse.sum(x, 0), x.to_dense().sum(0))


def test_in_place_forms():
    x = example()
    same = x
    x += example()
    x.mul_(2).div_(4)
    assert x is same
    equal(x, DENSE)
    y = torch.zeros(2, 3)
    y.add_(example(), alpha=-2)
    equal(y, -2 * DENSE)
    y -= example()
    equal(y, -3 * DENSE)
    assert x.zero_()._nnz() == 0
    with pytest.raises(RuntimeError, match="dense and sparse"):
        torch.zeros(2, 3).copy_(example())


def test_what_has_no_meaning_is_refused():
    x = example()
    for wrong in (lambda: x.exp(), lambda: x.reshape(3, 2), lambda: x == x, lambda: x.max()):
        with pytest.raises((NotImplementedError, RuntimeError), match="sparse"):
            wrong()
    with pytest.raises(RuntimeError, match=r"add.sparse, dense"):
        x + DENSE
    with pytest.raises(TypeError, match="Sparse layout"):
        x.numpy()


def test_gradients_reach_the_values():
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = torch.sparse_coo_tensor(PLACES, values, (2, 3))
    weights = torch.arange(6.0).reshape(2, 3)
    (x.to_dense() * weights).sum().backward()
    assert values.grad.tolist() == [1.0, 3.0, 1.0]
    values.grad = None
    torch.sparse.mm(x, weights.t()).sum().backward()
    assert values.grad.tolist() == [5.0, 3.0, 5.0]


def test_gradient_of_a_sparse_leaf_is_sparse():
    x = example(requires_grad=True)
    torch.sparse.mm(x, torch.ones(3, 2)).sum().backward()
    assert x.grad.is_sparse and x.grad.values().tolist() == [2.0, 2.0]
    dense = torch.zeros(2, 3, requires_grad=True)
    (dense.to_sparse() * 2 + example() * dense).sum().backward()
    assert dense.grad is not None


def test_copies_and_pickles():
    x = example()
    x.grad = None
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other is not x and not other.is_coalesced()
        equal(other, DENSE)
    for written in (x, x.coalesce()):
        file = io.BytesIO()
        torch.save({"x": written}, file)
        file.seek(0)
        found = torch.load(file)["x"]
        assert found.is_coalesced() == written.is_coalesced()
        equal(found, DENSE)


# -- embeddings and optimizers ---------------------------------------------------------------------


def rows(sparse, seen, **options):
    torch.manual_seed(0)
    table = nn.Embedding(10, 4, sparse=sparse, **options)
    for each in seen:
        table(torch.tensor(each)).pow(2).sum().backward()
    return table.weight


@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}])
@pytest.mark.parametrize("seen", [[[1, 3, 1]], [[1, 3], [3, 5]], [[[1, 2], [2, 3]]]])
def test_embedding_gradients(seen, options):
    sparse, dense = rows(True, seen, **options), rows(False, seen, **options)
    assert sparse.grad.is_sparse and not dense.grad.is_sparse
    equal(sparse.grad, dense.grad)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag_gradients(mode):
    found = []
    for sparse in (True, False):
        torch.manual_seed(0)
        bag = nn.EmbeddingBag(6, 3, mode=mode, sparse=sparse, padding_idx=2)
        bag(torch.tensor([1, 2, 4, 1]), torch.tensor([0, 2])).pow(2).sum().backward()
        found.append(bag.weight.grad)
    assert found[0].is_sparse and found[0]._nnz() == 3
    equal(found[0], found[1])


def test_sparse_and_dense_gradients_add_up():
    table = torch.ones(4, 2, requires_grad=True)
    look = torch.tensor([1, 1])
    lookup = nn.functional.embedding(look, table, sparse=True).sum()
    (lookup + (table * 3).sum()).backward()
    equal(table.grad, torch.tensor([[3.0, 3], [5, 5], [3, 3], [3, 3]]))
    nn.functional.embedding(look, table, sparse=True).sum().backward()
    assert not table.grad.is_sparse and table.grad[1].tolist() == [7.0, 7.0]


def test_hooks_see_the_sparse_gradient():
    table = torch.ones(4, 2, requires_grad=True)
    seen = []
    table.register_hook(lambda g: seen.append(g.is_sparse) or g * 2)
    nn.functional.embedding(torch.tensor([1, 1]), table, sparse=True).sum().backward()
    assert seen == [True] and table.grad.to_dense()[1].tolist() == [4.0, 4.0]


def test_legacy_constructors():
    at = torch.tensor([[0, 1, 1], [2, 0, 2]])
    x = torch.sparse.FloatTensor(at, torch.tensor([3.0, 4.0, 5.0]), torch.Size([2, 3]))
    assert x.is_sparse and x.to_dense().tolist() == [[0, 0, 3], [4, 0, 5]]
    assert torch.sparse.LongTensor(2, 3).shape == (2, 3)
    assert isinstance(x, torch.sparse.FloatTensor) and not isinstance(x, torch.sparse.LongTensor)
    assert not isinstance(x.to_dense(), torch.sparse.FloatTensor)
    with pytest.raises(TypeError, match="int64"):
        torch.sparse.FloatTensor(at, torch.tensor([3, 4, 5]))


def test_frequency_scaling_needs_a_dense_gradient():
    table = torch.ones(4, 2, requires_grad=True)
    look = torch.tensor([1, 1])
    with pytest.raises(RuntimeError, match="scale_grad_by_freq"):
        nn.functional.embedding(look, table, sparse=True, scale_grad_by_freq=True).sum().backward()


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_optimizers_that_take_both(make):
    found = []
    for sparse in (True, False):
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=sparse)
        step = make(list(table.parameters()))
        for seen in ([1, 3, 1], [2, 3], [1, 1]):
            step.zero_grad()
            table(torch.tensor(seen)).pow(2).sum().backward()
            step.step()
        found.append(table.weight.detach())
    equal(found[0], found[1])


def test_sparse_adam_leaves_other_rows_alone():
    table = nn.Embedding(10, 4, sparse=True)
    before = table.weight.detach().clone()
    step = torch.optim.SparseAdam(list(table.parameters()), lr=0.1)
    for _ in range(2):
        step.zero_grad()
        table(torch.tensor([1, 3, 1])).sum().backward()
        step.step()
    moved = (table.weight != before).any(1)
    assert moved.nonzero().flatten().tolist() == [1, 3]
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        table.weight.grad = torch.ones(10, 4)
        step.step()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        table.weight.grad = torch.ones(10, 4).to_sparse()
        torch.optim.RMSprop(list(table.parameters())).step()


def test_products_with_sparse_results():
    x = torch.sparse_coo_tensor([[0, 0, 2], [0, 2, 1]], [1.0, 2.0, 3.0], (4, 3))
    mat = torch.arange(6.0).reshape(3, 2)
    rows = torch.hspmm(x, mat)
    assert (rows.sparse_dim(), rows.dense_dim(), rows._nnz()) == (1, 1, 2)
    assert torch.equal(rows.to_dense(), x.to_dense() @ mat)
    product = x.smm(mat)
    assert product.is_sparse
    assert product._nnz() == 4
    assert torch.equal(product.to_dense(), x.to_dense() @ mat)
    start = torch.eye(4, 2).to_sparse()
    added = torch.sspaddmm(start, x, mat, beta=2, alpha=3)
    assert added._nnz() == 6
    assert torch.equal(added.to_dense(), 2 * torch.eye(4, 2) + 3 * (x.to_dense() @ mat))
    with pytest.raises(RuntimeError, match="sparse_coo"):
        torch.smm(mat, mat)
    with pytest.raises(RuntimeError, match="strided layout"):
        torch.smm(x, x)
    with pytest.raises(RuntimeError, match="expected sparse coordinate tensor layout"):
        mat.sparse_resize_((2, 2), 2, 0)
