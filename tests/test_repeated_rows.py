"""Rows that a batch fetches more than once, which compiled programs multiply once."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler.rows import turned
from flambeau.devices.cpu.repeated import routines


def routines_of(program) -> list[str]:
    """The names of what a program calls for repeated rows."""
    names = [getattr(step, "name", "").rsplit("_", 1)[0] for step in program.launches]
    return [name for name in names if name in ("repeats", "expand_rows", "fold_rows", "add_rows")]


WHOLE = ["repeats", "expand_rows", "fold_rows", "add_rows"]


# -- the routines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count, high, width", [
    (1, 5, 3), (7, 3, 200), (700, 1000, 800), (700, 40, 133), (64, 100_000, 257)])
def test_rows_are_spread_and_added_up(dtype, count, high, width):
    code, kind = routines(dtype), getattr(torch, dtype)
    numbers = torch.from_numpy(np.random.default_rng(count).integers(0, high, count))
    ids, kinds = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    found, marks = torch.zeros(1, dtype=torch.int64), torch.zeros(high, dtype=torch.int32)
    code.repeats(ids.ptr, kinds.ptr, found.ptr, marks.ptr, numbers.ptr, high, count)
    n, distinct = found.item(), len(set(numbers.tolist()))
    assert n == (distinct if 8 * distinct <= 7 * count else count)
    assert torch.equal(ids[kinds], numbers)

    table = torch.randn(high, width, dtype=kind)
    x = table[ids].clone()
    x[n:] = float("nan")
    code.expand_rows(x.ptr, kinds.ptr, count, width)
    assert torch.equal(x, table[numbers])

    given = torch.randn(count, width, dtype=kind)
    folded = given.clone()
    code.fold_rows(folded.ptr, kinds.ptr, count, width)
    torch.testing.assert_close(
        folded[:n], torch.zeros(n, width, dtype=kind).index_add_(0, kinds, given))
    out = torch.ones(high, width, dtype=kind)
    code.add_rows(out.ptr, folded.ptr, ids.ptr, found.ptr, width, count, width)
    torch.testing.assert_close(
        out, torch.ones(high, width, dtype=kind).index_add_(0, numbers, given))


# -- programs --------------------------------------------------------------------------------------


class Words(nn.Module):
    """Words, and a layer over them that starts with a product."""

    def __init__(self, layer: str, words: int = 60, batch_first: bool = False, **options):
        super().__init__()
        self.embed = nn.Embedding(words, 96, **options)
        self.layer = (nn.Linear(96, 160) if layer == "Linear" else
                      getattr(nn, layer)(96, 96, batch_first=batch_first))

    def forward(self, x):
        found = self.layer(self.embed(x))
        return found[0] if isinstance(found, tuple) else found


def trained(layer: str, batches, compiled: bool, change=lambda model: None, **options):
    """Losses and gradients of some steps, each on a batch of words."""
    torch.manual_seed(0)
    model = Words(layer, **options).to(options.pop("dtype", torch.float32))
    change(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum() / 100
        loss.backward()
        optimizer.step()
        return loss

    run = torch.compile(step) if compiled else step
    losses = torch.stack([run(x).detach() for x in batches])
    return [losses, *[p.grad for p in model.parameters() if p.grad is not None]]


def agree(*args, **options) -> None:
    want, got = (trained(*args, compiled, **options) for compiled in (False, True))
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=3e-5)


def words_of(*highs: int, shape=(20, 8)):
    rng = np.random.default_rng(3)
    return [torch.from_numpy(rng.integers(0, high, shape)) for high in highs]


@pytest.mark.parametrize("layer", ["Linear", "LSTM", "GRU", "RNN"])
def test_training_on_words(layer, programs):
    # Many repeats, few, one word only, and as many words as places.
    batches = [*words_of(60, 60, 60, 5, 1), torch.arange(160).reshape(20, 8) % 60]
    agree(layer, batches)
    assert WHOLE in map(routines_of, programs)


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (160, 1), (1, 160), (13, 13)])
def test_sequences_one_below_the_other(layer, shape, programs):
    """Rows are fetched in the order in which steps are taken, not turned afterwards."""
    agree(layer, words_of(60, 60, 60, 5, shape=shape), batch_first=True)
    assert WHOLE in map(routines_of, programs)
    whole = next(program for program in programs if routines_of(program) == WHOLE)
    assert not any(found is not None and found.width > 1
                   for found in map(turned, whole.launches))


def test_sequences_whose_rows_are_kept(programs):
    torch.manual_seed(0)
    model = Words("LSTM", batch_first=True)

    def step(x):
        model.zero_grad()
        rows = model.embed(x)
        out = model.layer(rows)[0]
        out.sum().backward()
        return rows, out, model.embed.weight.grad

    compiled = torch.compile(step)
    for x in words_of(60, 60, 9, shape=(8, 20)):
        want = [t.clone() for t in step(x)]
        for one, other in zip(want, compiled(x), strict=True):
            torch.testing.assert_close(other, one)


def test_words_that_hardly_repeat(programs):
    agree("LSTM", words_of(10_000, 10_000, 10_000), words=10_000)
    assert WHOLE in map(routines_of, programs)


def test_few_of_very_many_words(programs):
    """To mark those that were met would take more than is gained."""
    agree("LSTM", words_of(100_000, 100_000, 100_000), words=100_000)
    assert not any(map(routines_of, programs))


def test_a_table_that_does_not_learn(programs):
    def freeze(model):
        model.embed.weight.requires_grad_(False)

    agree("Linear", words_of(60, 60, 60, 9), change=freeze)
    assert ["repeats", "expand_rows", "fold_rows"] in map(routines_of, programs)


def test_weights_that_do_not_learn():
    agree("Linear", words_of(60, 60, 60, 9),
          change=lambda model: model.layer.requires_grad_(False))


def test_a_word_for_padding():
    agree("LSTM", words_of(60, 60, 60, 9), padding_idx=3)


def test_prediction(programs):
    model, batches = Words("Linear"), words_of(60, 60, 60, 7)
    compiled = torch.compile(model)
    with torch.no_grad():
        for x in batches:
            assert torch.equal(compiled(x), model(x))
    assert ["repeats", "expand_rows"] in map(routines_of, programs)


def test_gradients_are_added_up():
    torch.manual_seed(0)
    models = [Words("Linear") for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())

    def step(model, x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    compiled = torch.compile(step)
    for x in words_of(60, 60, 8, 60):
        step(models[0], x), compiled(models[1], x)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad)


def test_who_keeps_the_fetched_rows_gets_all_of_them(programs):
    torch.manual_seed(0)
    model = Words("Linear")

    def step(x):
        model.zero_grad()
        rows = model.embed(x)
        rows.retain_grad()
        model.layer(rows).square().sum().backward()
        return rows, rows.grad

    (x,) = words_of(60)
    want = [t.clone() for t in step(x)]
    compiled = torch.compile(step)
    for _ in range(3):
        got = compiled(x)
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(other, one)
    assert not any(map(routines_of, programs))


@pytest.mark.parametrize("apart", [True, False])
def test_two_layers_on_the_same_rows(apart):
    """What comes for the rows is one for both layers, or not."""
    torch.manual_seed(0)
    table = nn.Embedding(50, 96)
    layers = [nn.Linear(96, 160) for _ in range(2)]

    def step(x):
        for module in (table, *layers):
            module.zero_grad()
        rows = table(x)
        found = [layer(rows) for layer in layers]
        loss = sum(x.square().sum() for x in (found if apart else [found[0] + found[1]]))
        loss.backward()
        return loss, table.weight.grad, *[layer.weight.grad for layer in layers]

    compiled = torch.compile(step)
    for x in words_of(50, 50, 6):
        want = [t.clone() for t in step(x)]
        for one, other in zip(want, compiled(x), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-3)


def test_a_word_that_does_not_exist_is_refused_and_nothing_changes():
    torch.manual_seed(0)
    model = Words("Linear")

    def step(x):
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    compiled = torch.compile(step)
    good, wrong = words_of(60, 60)
    for _ in range(3):
        want = compiled(good).item()
    before = [p.clone() for p in model.parameters()]
    wrong[3, 5] = 60
    with pytest.raises(IndexError, match="index out of range"):
        compiled(wrong)
    assert all(torch.equal(one, p) for one, p in zip(before, model.parameters(), strict=True))
    assert compiled(good).item() == want


def test_a_row_of_nothing_known_stays_its_own():
    torch.manual_seed(0)
    model = Words("Linear")
    with torch.no_grad():
        model.embed.weight[7] = float("nan")
    compiled = torch.compile(model)
    (x,) = words_of(60)
    with torch.no_grad():
        for _ in range(3):
            found = compiled(x)
    assert torch.equal(found.isnan().all(-1), x == 7)
    assert torch.equal(found.isnan().any(-1), x == 7)


@pytest.mark.parametrize("threads", [1, 2])
def test_any_number_of_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        agree("LSTM", words_of(60, 60, 60, 9, shape=(40, 16)))
    finally:
        torch.set_num_threads(before)
