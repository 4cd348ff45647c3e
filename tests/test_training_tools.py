"""The table of a model, and the line that shows how training goes."""

import io

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils import progress, summary
from flambeau.utils.progress_bar import Progress


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def model():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4, 3))


def test_summary_counts_and_shapes():
    net = model()
    net[0].bias.requires_grad_(False)
    found = summary(net, input_size=(5, 1, 4, 4))
    assert found.total_params == 2 * 9 + 2 + 8 * 3 + 3
    assert found.trainable_params == found.total_params - 2
    assert found.multiplications == 5 * 2 * 4 * 9 + 5 * 3 * 8
    lines = str(found).splitlines()
    assert lines[0].split() == ["Layer", "Output", "shape", "Parameters", "Multiplications"]
    assert "[5, 2, 2, 2]" in lines[3] and lines[3].strip().startswith("0: Conv2d")
    assert "47 parameters, 45 of them trainable, 188 bytes" in lines
    assert net.training and not any(m._forward_hooks for m in net.modules())


def test_summary_without_a_call_and_with_a_depth():
    found = summary(nn.Sequential(model(), nn.LazyLinear(2)), depth=1)
    assert [row.name for row in found.rows] == ["Sequential", "  0: Sequential", "  1: LazyLinear"]
    assert "Output shape" not in str(found)
    twice = nn.Linear(2, 2)
    shared = summary(nn.Sequential(twice, twice), torch.ones(1, 2))
    assert "[1, 2] ×2" in str(shared) and shared.total_params == 6


def test_progress_on_a_terminal():
    screen = Terminal()
    bar = progress(range(4), "epoch 1", stream=screen, every=0)
    for k in bar:
        bar.show(loss=torch.tensor(1 / (k + 1)), correct=k)
    assert len(bar) == 4
    last = screen.getvalue().split("\r\033[K")[-1]
    assert last.startswith("epoch 1  100%") and "4/4" in last and last.endswith("\n")
    assert "loss 0.25" in last and "correct 3" in last


def test_progress_is_quiet_elsewhere_and_after_an_error():
    silent = io.StringIO()
    assert list(progress([1, 2], stream=silent)) == [1, 2] and silent.getvalue() == ""
    screen = Terminal()
    with pytest.raises(RuntimeError):
        for _ in progress(iter([1, 2]), stream=screen):
            raise RuntimeError
    with pytest.raises(TypeError, match="not known"):
        len(progress(iter([])))


def test_the_line():
    bar = Progress(range(100), stream=io.StringIO())
    bar.done = 25
    assert bar.line(50.0) == " 25%  █████                 25/100  2.0 s each  2:30 left"
    bar.done = 50
    assert "10.0/s" in bar.line(5.0) and "0:05 left" in bar.line(5.0)
    endless = Progress(iter([]), stream=io.StringIO())
    endless.done = 7
    assert endless.line(3700.0) == "7  528.6 s each  1:01:40"
