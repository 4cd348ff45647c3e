"""The profiler: which ops are seen, how events nest and add up, tables, traces, schedules."""

import gzip
import json
import sys
import threading
import time

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.profiler import ProfilerAction, profile, record_function, schedule


def names(p):
    return [event.name for event in p.events()]


@pytest.mark.parametrize("hooked", [False, True])  # a hook on any leaf changes the way back
def test_ops_operators_methods_and_steps_back_are_seen(hooked):
    if hooked:
        torch.ones(1, requires_grad=True).register_hook(lambda g: None).remove()
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    with profile() as p:
        y = layer(x).relu() * 2 + 1
        z = (y @ y.t())[0]
        z.sum().backward()
    seen = names(p)
    for wanted in ("linear", "relu", "mul", "add", "matmul", "index", "sum"):
        assert f"aten::{wanted}" in seen, wanted
    assert {"AddmmBackward0", "ReluBackward0", "torch::autograd::AccumulateGrad"} <= set(seen)
    assert seen.count("aten::mul") == 1


def test_optimizer_steps_are_named():
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(1, 2)).sum().backward()
    with profile() as p:
        optimizer.step()
        optimizer.zero_grad()
    assert {"Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"} <= set(names(p))


def test_events_nest_and_times_add_up():
    x = torch.randn(200, 200)
    with profile() as p, record_function("outer"):
        with record_function("inner"):
            time.sleep(0.02)
        y = x @ x
    outer, inner, product = p.events()[:3]
    assert (outer.name, inner.name, product.name) == ("outer", "inner", "aten::matmul")
    assert inner.cpu_parent is outer and product.cpu_parent is outer
    assert outer.cpu_children == [inner, product]
    assert inner.cpu_time_total >= 19_000
    assert outer.cpu_time_total >= inner.cpu_time_total + product.cpu_time_total
    parts = outer.self_cpu_time_total + inner.cpu_time_total + product.cpu_time_total
    assert outer.cpu_time_total == pytest.approx(parts)
    assert y.shape == (200, 200)


def test_nothing_is_left_behind():
    before = dict(vars(torch.Tensor)), torch.nn.functional.linear, sys.getprofile()
    with pytest.raises(ZeroDivisionError), profile(record_shapes=True):
        torch.ones(2) + 1
        1 / 0
    assert (dict(vars(torch.Tensor)), torch.nn.functional.linear, sys.getprofile()) == before
    with record_function("nobody looks"):
        pass


def test_shapes_and_lines():
    with profile(record_shapes=True, with_stack=True) as p:
        nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))
        torch.ones(2, 3) + torch.ones(3)
    found = {event.name: event for event in p.events()}
    assert found["aten::linear"].input_shapes[:2] == [[2, 3], [4, 3]]
    assert found["aten::add"].input_shapes == [[2, 3], [3]]
    assert "test_profiler.py" in found["aten::add"].stack[0]
    assert found["aten::add"].stack[0].endswith("test_shapes_and_lines")
    by_shape = p.key_averages(group_by_input_shape=True)
    assert "Input Shapes" in by_shape.table()
    assert p.key_averages(group_by_stack_n=1)[0].stack


def test_the_table():
    x = torch.ones(3)
    with profile() as p:
        for _ in range(5):
            x.exp()
        x.sin()
    averages = p.key_averages()
    exp = next(row for row in averages if row.key == "aten::exp")
    assert exp.count == 5 and exp.cpu_time == pytest.approx(exp.cpu_time_total / 5)
    lines = averages.table(sort_by="count", row_limit=1).splitlines()
    assert lines[1].split()[:4] == ["Name", "Self", "CPU", "%"]
    assert lines[3].split()[0] == "aten::exp" and lines[3].split()[-1] == "5"
    assert lines[-1].startswith("Self CPU time total:")
    assert averages.self_cpu_time_total == pytest.approx(p.events().self_cpu_time_total)
    with pytest.raises(AttributeError, match="cannot sort by 'colour'"):
        averages.table(sort_by="colour")


def test_the_chrome_trace(tmp_path):
    with profile() as p, record_function("mine"):
        torch.ones(2).exp()
    p.export_chrome_trace(tmp_path / "trace.json")
    p.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    packed = (tmp_path / "trace.json.gz").read_bytes()
    assert json.loads(gzip.decompress(packed)) == trace
    events = {e["name"]: e for e in trace["traceEvents"] if e["ph"] == "X"}
    assert events["mine"]["cat"] == "user_annotation" and events["aten::exp"]["cat"] == "cpu_op"
    mine, exp = events["mine"], events["aten::exp"]
    assert mine["ts"] <= exp["ts"] and exp["ts"] + exp["dur"] <= mine["ts"] + mine["dur"]


def test_a_schedule_chooses_steps():
    plan = schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
    none, warm, record, save = (ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD,
                                ProfilerAction.RECORD_AND_SAVE)
    assert [plan(k) for k in range(7)] == [none, none, warm, record, save, none, none]
    rounds = []
    with profile(schedule=schedule(wait=1, warmup=0, active=1, repeat=2),
                 on_trace_ready=lambda p: rounds.append(names(p))) as p:
        for k in range(6):
            (torch.exp if k == 1 else torch.sin)(torch.ones(2))
            p.step()
    assert len(rounds) == 2
    assert rounds[0][0] == "ProfilerStep#1" and "aten::exp" in rounds[0]
    assert rounds[1][0] == "ProfilerStep#3" and "aten::sin" in rounds[1]
    with pytest.raises(ValueError):
        schedule(wait=0, warmup=0, active=0)


def test_one_at_a_time_and_other_threads():
    with profile() as p:
        with pytest.raises(RuntimeError, match="another profiler"), profile():
            pass
        thread = threading.Thread(target=lambda: torch.ones(2).exp())
        thread.start()
        thread.join()
    assert "aten::exp" in names(p)
    assert len({event.thread for event in p.events()}) >= 1
    with pytest.raises(RuntimeError, match="nothing has been recorded"):
        profile().key_averages()


@pytest.mark.parametrize("shapes", [False, True])
def test_forms_in_place_are_seen(shapes):
    x, y = torch.ones(3), torch.ones(3)
    for _ in range(2):
        with torch.profiler.profile(record_shapes=shapes) as seen:
            x.zero_().fill_(1).copy_(y).add_(1)
            x += 1
            torch.relu_(x)
        counts = {event.key: event.count for event in seen.key_averages()}
        assert counts == {"aten::zero_": 1, "aten::fill_": 1, "aten::copy_": 1, "aten::add_": 2,
                          "aten::relu_": 1}
