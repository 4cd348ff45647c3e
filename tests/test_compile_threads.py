"""Compiled functions called by several threads of Python at once."""

import threading

import pytest

import flambeau as torch

THREADS, CALLS = 4, 40
SIZE = 400  # squared it is more than a program does before it gives up the GIL


def together(work):
    """Let threads do something many times at once; what any of them raised, or found wrong."""
    wrong, ready = [], threading.Barrier(THREADS)

    def many(number):
        try:
            ready.wait()
            for _ in range(CALLS):
                fault = work(number)
                if fault:
                    wrong.append(fault)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=many, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def f(x):
    return ((x * 2 + 1).tanh() @ x).relu() - x


@pytest.mark.parametrize("fullgraph", [False, True])
def test_results_are_those_of_each_threads_own_arguments(fullgraph):
    torch.manual_seed(0)
    inputs = [torch.randn(SIZE, SIZE) for _ in range(THREADS)]
    expected = [f(x) for x in inputs]
    compiled = torch.compile(f, fullgraph=fullgraph)
    for _ in range(3):
        compiled(inputs[0])
    assert not together(lambda k: None if torch.allclose(
        compiled(inputs[k]), expected[k], atol=1e-4) else f"thread {k} has other numbers")


def test_ways_back_run_at_once():
    torch.manual_seed(0)
    inputs = [torch.randn(SIZE, SIZE) for _ in range(THREADS)]
    compiled = torch.compile(f)

    def gradient(function, x):
        leaf = x.clone().requires_grad_()
        function(leaf).square().mean().backward()
        return leaf.grad

    expected = [gradient(f, x) for x in inputs]
    for _ in range(3):
        gradient(compiled, inputs[0])
    assert not together(lambda k: None if torch.allclose(
        gradient(compiled, inputs[k]), expected[k], atol=1e-5) else f"thread {k} goes astray")


def test_others_look_at_gradients_while_a_step_runs():
    """They see one, or none while it is computed, and may hold it or take it away."""
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(SIZE, SIZE), torch.randn(64, SIZE)
    parameters = [*layer.parameters()]

    @torch.compile(fullgraph=True)
    def step():
        layer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        step()
    expected = [p.grad.clone() for p in parameters]

    def work(number):
        if number == 0:
            step()
            return None
        grads = [p.grad for p in parameters]
        for p, g, known in zip(parameters, grads, expected, strict=True):
            if g is not None and not torch.allclose(g, known, atol=1e-5):
                return "a gradient has other numbers"
            if number == 1:
                p.grad = None
        return None

    assert not together(work)
    step()
    assert all(torch.allclose(p.grad, g, atol=1e-5)
               for p, g in zip(parameters, expected, strict=True))


def test_another_thread_needs_what_is_not_computed_yet():
    """It waits for the call, which may wait for it in turn."""
    @torch.compile
    def f(x):
        y, seen = x * 2, []
        other = threading.Thread(target=lambda: seen.append(y.tolist()))
        other.start()
        other.join()
        return y + 1, seen[0]

    for k in range(3):
        found, seen = f(torch.full((2,), float(k)))
        assert found.tolist() == [2.0 * k + 1] * 2
        assert seen == [2.0 * k] * 2
