"""Native routines, and draws with parameters of tensors, as parts of compiled programs."""

import pytest

import flambeau as torch
from flambeau.nn import functional as F

CALLS = {
    "running sums":     lambda x, p: x.cumsum(-1) * x.cumprod(1),
    "running extremes": lambda x, p: (*x.cummax(1), *x.cummin(1)),
    "modes":            lambda x, p: x.round().mode(1),
    "medians":          lambda x, p: x.nanmedian(1),
    "places":           lambda x, p: torch.searchsorted(p.sort(-1)[0], x),
    "reflections":      lambda x, p: torch.linalg.qr(x),
    "normal":           lambda x, p: torch.normal(x, p),
    "bernoulli":        lambda x, p: torch.bernoulli(p),
    "turned dropout":   lambda x, p: F.dropout(x.t(), 0.5),
    "turned draws":     lambda x, p: torch.randn_like(x.t()) + torch.rand_like(x.t()),
}  # fmt: skip
TURNS = 6


@pytest.fixture(autouse=True)
def eagerly_compiled(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_SMALL", "compiled")
    monkeypatch.setenv("FLAMBEAU_CALM", "1")


def batches():
    torch.manual_seed(1)
    return [(torch.randn(6, 5), torch.rand(6, 5)) for _ in range(TURNS)]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("function", CALLS.values(), ids=CALLS)
def test_they_are_part_of_programs(function, fullgraph):
    wanted = [function(*batch) for batch in batches()]
    after = torch.rand(1)
    compiled = torch.compile(function, fullgraph=fullgraph)
    found = [compiled(*batch) for batch in batches()]
    torch.testing.assert_close([*map(tuple, found)] if isinstance(found[0], tuple) else found,
                               [*map(tuple, wanted)] if isinstance(wanted[0], tuple) else wanted)
    assert torch.rand(1) == after
    assert "break" not in str(torch.compiler.explain(compiled))


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("function, message", [
    (lambda x, p: torch.normal(x, p), "normal expects all elements of std >= 0.0"),
    (lambda x, p: torch.bernoulli(p), "Expected p_in >= 0 && p_in <= 1"),
])
def test_parameters_are_checked_in_every_call(function, message, fullgraph):
    compiled = torch.compile(function, fullgraph=fullgraph)
    for _ in range(TURNS):
        compiled(torch.randn(4), torch.rand(4))
    for wrong in (torch.tensor([0.5, -1.0, 0.0, 0.0]), torch.full((4,), torch.nan)):
        with pytest.raises(RuntimeError, match=message):
            compiled(torch.randn(4), wrong)
    assert compiled(torch.randn(4), torch.rand(4)).shape == (4,)


def test_python_is_left_out_of_steps_that_say_train():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile
    def step(x):
        model.train()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(20):
        step(torch.randn(5, 3))
    assert "calls without Python" in str(torch.compiler.explain(step))
