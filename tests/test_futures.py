"""Futures: results that other threads give."""

import threading

import pytest

from flambeau.futures import Future, collect_all, wait_all


def test_a_result_from_another_thread():
    found = Future()
    assert not found.done()
    with pytest.raises(RuntimeError, match="not there yet"):
        found.value()
    threading.Timer(0.01, found.set_result, (3,)).start()
    assert found.wait() == 3 and found.done() and found.value() == 3
    with pytest.raises(RuntimeError, match="completed once"):
        found.set_result(4)


def test_what_follows():
    seen, found = [], Future()
    after = found.then(lambda f: f.value() * 2).then(lambda f: seen.append(f.value()) or "end")
    found.add_done_callback(lambda f: seen.append("told"))
    found.set_result(5)
    assert after.wait() == "end" and seen == [10, "told"]
    found.add_done_callback(lambda f: seen.append("late"))
    assert seen[-1] == "late"


def test_failures_reach_whoever_waits():
    found = Future()
    after = found.then(lambda f: f.value())
    found.set_exception(ValueError("lost"))
    for each in (found, after):
        with pytest.raises(ValueError, match="lost"):
            each.wait()
    with pytest.raises(AssertionError, match="not an Exception"):
        Future().set_exception("lost")


def test_all_of_them():
    futures = [Future() for _ in range(3)]
    whole = collect_all(futures)
    for k, each in enumerate(futures):
        assert not whole.done()
        each.set_result(k)
    assert whole.wait() == futures and wait_all(futures) == [0, 1, 2]
    assert wait_all([]) == []
