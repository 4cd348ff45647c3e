"""inference_mode: what is made inside says so, and can never become part of a graph."""

import threading

import pytest

import flambeau as torch
from flambeau import nn

MADE = {
    "factory":    lambda n: torch.ones(2, 2),
    "pointwise":  lambda n: n + 1,
    "chain":      lambda n: (n * 2).exp(),
    "product":    lambda n: n @ n,
    "linear":     lambda n: torch.nn.functional.linear(n, n, n[0]),
    "reduction":  lambda n: n.sum(0),
    "rows":       lambda n: torch.softmax(n, 0),
    "cat":        lambda n: torch.cat([n, n]),
    "random":     lambda n: torch.rand(2),
    "recorded":   lambda n: torch.ones(2, requires_grad=True) * 2,
}  # fmt: skip


@pytest.mark.parametrize("case", MADE)
def test_what_is_made_inside_is_marked(case):
    n = torch.ones(2, 2)
    for _ in range(2):  # the second time natively
        with torch.inference_mode():
            made = MADE[case](n)
            assert made.is_inference() and made[0].is_inference()
            assert not n.view(4).is_inference()
        assert not made.clone().is_inference() and not n.is_inference()


def test_it_cannot_become_part_of_a_graph():
    with torch.inference_mode():
        a = torch.ones(2, 2) + 1
        a.add_(1)
    w = torch.ones(2, 2, requires_grad=True)
    for _ in range(2):
        assert (w + a).requires_grad  # nothing of a is kept
        for use in (lambda: w * a, lambda: a @ w, lambda: torch.nn.functional.linear(a, w)):
            with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
                use()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        a.add_(1)
    with pytest.raises(RuntimeError, match="do not track version"):
        _ = a._version
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
        a.requires_grad_()
    assert a.clone().requires_grad_().is_leaf


def test_memory_is_not_marked_for_the_next_who_uses_it():
    with torch.inference_mode():
        del_me = [torch.ones(64) + k for k in range(200)]
    del del_me
    assert not any((torch.ones(64) + k).is_inference() for k in range(200))


def test_layers_infer_by_native_fronts():
    """What is made of parameters is marked as well, is not recorded, and never can be."""
    layer, x = nn.Linear(4, 3), torch.ones(2, 4)
    expected = layer(x).detach()
    with torch.inference_mode():
        out = layer(x)
        parts = [out, out[0], out + layer.bias, torch.relu(layer.bias), x @ layer.weight.t()]
        assert all(t.is_inference() and not t.requires_grad for t in parts)
    assert torch.equal(out, expected)
    with pytest.raises(RuntimeError, match="Inference tensors"):
        out * layer.bias


def test_other_threads_record_meanwhile():
    layer, x, found = nn.Linear(4, 3), torch.ones(2, 4), []

    def elsewhere():
        found.append((layer(x) * 2).requires_grad)

    with torch.inference_mode():
        layer(x)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert not (layer(x) * 2).requires_grad
    assert found == [True] and layer(x).requires_grad


def test_shapes_in_turn_are_planned_once(monkeypatch):
    """One plan serves all shapes of a kind; who does not find it must not take it from others."""
    from flambeau.engine import pointwise

    pairs = [(torch.ones(n), torch.ones(n, requires_grad=True)) for n in (3, 5)]
    planned, plan = [], pointwise.plan
    for turn in range(4):
        if turn == 2:
            monkeypatch.setattr(pointwise, "plan", lambda *a: planned.append(a) or plan(*a))
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            for x, y in pairs:  # hooks are Python's to see to
                torch.atan2(x, y)
    assert not planned
