"""Tensors in coordinates beside torch's: printed form, values, gradients, files, optimizers."""

import io

import pytest
import torch

import flambeau

PROGRAMS = {
    "printed": lambda lib: repr(lib.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2, 3], (2, 3))),
    "coalesced": lambda lib: repr(lib.sparse_coo_tensor([[2, 0, 2]], [1, 2, 3]).coalesce()),
    "empty": lambda lib: repr(lib.sparse_coo_tensor(size=(2, 3))),
    "hybrid": lambda lib: repr(lib.sparse_coo_tensor(
        [[0, 2]], lib.arange(6.0).reshape(2, 3).double(), (4, 3), requires_grad=True)),
    "scalar": lambda lib: repr(lib.tensor(3.0).to_sparse()),
    "to_sparse": lambda lib: repr(lib.tensor([[1.0, 0, 3], [0, 5, 6]]).to_sparse(1)),
    "recorded": lambda lib: repr(lib.sparse_coo_tensor(
        [[0], [1]], lib.ones(1, requires_grad=True), (2, 3))),
    "type": lambda lib: lib.ones(2).to_sparse().type(),
    "long": lambda lib: repr(lib.arange(3000.0).to_sparse()),
    "transposed": lambda lib: repr(lib.eye(3).to_sparse().t().coalesce() * 2),
    "embedding": lambda lib: repr(_looked_up(lib)),
    "softmax": lambda lib: repr(lib.sparse.softmax(lib.eye(3).to_sparse(), 0)),
    "diagonals": lambda lib: repr(lib.sparse.spdiags(
        lib.arange(9.0).reshape(3, 3), lib.tensor([0, -1, 2]), (3, 3)).coalesce()),
}


def _looked_up(lib):
    lib.manual_seed(1)
    table = lib.nn.Embedding(5, 3, sparse=True, padding_idx=0)
    for seen in ([[1, 0], [2, 1]], [[1, 0], [2, 1]]):
        table(lib.tensor(seen)).pow(2).sum().backward()
    return table.weight.grad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_text(name):
    assert PROGRAMS[name](flambeau) == PROGRAMS[name](torch)


@pytest.mark.filterwarnings("ignore")
def test_files_both_ways():
    x = [lib.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2, 3], (2, 3))
         for lib in (flambeau, torch)]
    for writer, reader, made in ((flambeau, torch, x[0]), (torch, flambeau, x[1])):
        file = io.BytesIO()
        writer.save([made, made.coalesce()], file)
        file.seek(0)
        plain, united = reader.load(file)
        assert not plain.is_coalesced() and united.is_coalesced()
        assert plain.to_dense().tolist() == united.to_dense().tolist() == made.to_dense().tolist()


@pytest.mark.parametrize("name", ["SparseAdam", "SGD", "Adagrad"])
def test_training_follows_torch(name):
    weights = []
    for lib in (flambeau, torch):
        lib.manual_seed(3)
        table, bag = lib.nn.Embedding(20, 4, sparse=True), lib.nn.EmbeddingBag(20, 4, sparse=True)
        params = [*table.parameters(), *bag.parameters()]
        step = getattr(lib.optim, name)(params, lr=0.05)
        for _ in range(20):
            step.zero_grad()
            seen = lib.randint(0, 20, (3, 5))
            (table(seen).sum(1) * bag(seen)).pow(2).mean().backward()
            step.step()
        weights.append([p.detach().numpy() for p in params])
    for ours, theirs in zip(*weights, strict=True):
        assert abs(ours - theirs).max() < 1e-5
