"""The pool of threads: the same bits on any number of threads, many callers at once, forks."""

import os
import threading

import numpy as np
import pytest

import flambeau
from flambeau.devices.cpu import remember
from flambeau.nn import functional as F


@pytest.fixture(autouse=True)
def threads_as_before():
    before = flambeau.get_num_threads()
    yield
    flambeau.set_num_threads(before)


WIDE = {
    "add a row":        lambda x, w: x + x[0],
    "exp":              lambda x, w: x.exp(),
    "compare":          lambda x, w: x > 0,
    "tril":             lambda x, w: x.tril(),
    "transposed copy":  lambda x, w: x.t().contiguous(),
    "sum":              lambda x, w: x.sum(),
    "sum of rows":      lambda x, w: x.sum(0),
    "sum of columns":   lambda x, w: x.sum(1),
    "var":              lambda x, w: x.var(),
    "var, tall":        lambda x, w: w.var(0),
    "argmax":           lambda x, w: x.argmax(),
    "argmax, tall":     lambda x, w: w.argmax(0),
    "argmax, narrow":   lambda x, w: w.argmax(1),
    "any":              lambda x, w: (x > 0).any(),
    "logsumexp":        lambda x, w: x.logsumexp((0, 1)),
    "complex sum":      lambda x, w: flambeau.complex(x, x + 1).sum(),
    "softmax":          lambda x, w: F.softmax(x, 1),
    "softmax, tall":    lambda x, w: F.softmax(w, 0),
    "layer_norm":       lambda x, w: F.layer_norm(x, (503,)),
    "matmul":           lambda x, w: x @ x.t(),
    "rows added":       lambda x, w: flambeau.zeros(7, 10).index_add(0, DRAWN % 7, w),
    "rows put":         lambda x, w: flambeau.zeros(7, 10).index_put((DRAWN % 7,), w),
    "elements added":   lambda x, w: flambeau.zeros(7, 10).scatter_add(
                            0, (DRAWN % 7)[:, None].expand(40000, 10), w),
    "in each row":      lambda x, w: flambeau.zeros(40000, 3).scatter_add(
                            1, (DRAWN % 3)[:, None].expand(40000, 10), w),
    "embedding":        lambda x, w: slope_of_embedding(w),
}  # fmt: skip

DRAWN = flambeau.from_numpy(np.random.default_rng(0).integers(0, 1000, 40000))


def slope_of_embedding(g):
    table = flambeau.zeros(1000, 10, requires_grad=True)
    F.embedding(DRAWN, table).backward(g)
    return table.grad


@pytest.mark.parametrize("case", WIDE)
def test_bits_do_not_depend_on_the_number_of_threads(case):
    flambeau.manual_seed(3)
    x, w = flambeau.randn(601, 503), flambeau.randn(40000, 10)
    found = []
    for count in (1, 2, 5):
        flambeau.set_num_threads(count)
        found.append(WIDE[case](x, w).numpy())
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_folds_in_blocks_are_right():
    flambeau.manual_seed(3)
    w = flambeau.randn(100_003, 3)
    exact = w.numpy().astype(np.float64)
    assert np.allclose(w.sum(0).numpy(), exact.sum(0), rtol=1e-4)
    assert np.allclose(w.var().numpy(), exact.var(ddof=1), rtol=1e-5)
    assert w.argmax().item() == exact.argmax()
    assert (w.amin(0).numpy() == exact.min(0).astype(np.float32)).all()


def test_many_threads_of_python_at_once():
    flambeau.set_num_threads(3)
    x = flambeau.arange(200_000, dtype=flambeau.float32)
    wrong = []

    def work(k):
        for _ in range(40):
            if not ((x + k) - k == x).all() or (x * 0 + k).sum().item() != k * 200_000:
                wrong.append(k)

    callers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not wrong and not any(caller.is_alive() for caller in callers)


def test_plans_may_be_forgotten_while_kernels_run():
    """Large work lets Python's other threads run, which may throw away the plan it runs by."""
    x = flambeau.ones(300_000, requires_grad=True)
    right = []

    def work():
        y = x
        for _ in range(60):
            y = (y + 1.0) * 1.0
        right.append(float(y.detach().max()) == 61.0)
        y.sum().backward()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        remember.forget_all()
    assert right == [True] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_process_has_a_pool_of_its_own():
    flambeau.set_num_threads(2)
    x = flambeau.ones(500_000)
    assert x.sum().item() == 500_000
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0 if (x + 1).sum().item() == 1_000_000 else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert (x + x).sum().item() == 1_000_000


def test_the_environment_says_how_many(monkeypatch):
    from flambeau.devices.cpu import threads

    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert threads.available_threads() == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    if hasattr(os, "sched_getaffinity"):
        assert threads.available_threads() == len(os.sched_getaffinity(0))
