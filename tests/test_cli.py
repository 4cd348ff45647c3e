"""The `flambeau` command, its progress bar and the data it trains on."""

import importlib.metadata
import io
import re

import pytest

import flambeau
from flambeau.cli import main
from flambeau.cli.progress import Progress
from flambeau.datasets import load_digits


@pytest.fixture
def kernel_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE", str(tmp_path))
    return tmp_path


def test_digits_are_split_without_overlap():
    images, labels = load_digits()
    assert images.shape == (1797, 1, 8, 8) and images.dtype == flambeau.float32
    assert labels.shape == (1797,) and labels.dtype == flambeau.int64
    assert (images.min().item(), images.max().item()) == (0.0, 1.0)
    parts = [load_digits(split, flat=True) for split in ("train", "test")]
    assert [tuple(x.shape) for x, _ in parts] == [(1442, 64), (355, 64)]
    whole = sorted(map(tuple, images.flatten(1).tolist()))
    assert sorted(tuple(row) for x, _ in parts for row in x.tolist()) == whole
    assert [(parts[1][1] == digit).sum().item() for digit in range(10)] == [
        35, 36, 35, 36, 36, 36, 36, 35, 34, 36
    ]  # fmt: skip


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="no split 'valid'; there are 'train', 'test' and None"):
        load_digits("valid")


def test_demo_learns_and_repeats_itself(capsys):
    told = []
    for _ in range(2):
        assert main(["demo", "--epochs", "10"]) == 0
        told.append(re.search(r"test accuracy ([\d.]+)%", capsys.readouterr().out))
    assert float(told[0][1]) > 90
    assert told[0][1] == told[1][1]


@pytest.mark.parametrize("arguments", [["demo", "--epochs", "0"], ["demon"], []])
def test_wrong_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: flambeau" in capsys.readouterr().err


def test_info(kernel_folder, capsys):
    assert main(["info"]) == 0
    told = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told["flambeau"] == flambeau.__version__
    assert told["numpy"] == importlib.metadata.version("numpy")
    assert told["threads"] == str(flambeau.get_num_threads())
    assert str(kernel_folder) in told["kernel cache"]


def test_cache_is_shown_and_emptied(kernel_folder, capsys):
    for digit in "ab":
        (kernel_folder / (digit * 64)).write_bytes(bytes(500_000))
    stranger = kernel_folder / "notes.txt"
    stranger.write_text("not a kernel")
    assert main(["cache"]) == 0
    assert "2 kernels, 1.0 MB" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "2 kernels removed" in capsys.readouterr().out
    assert list(kernel_folder.iterdir()) == [stranger]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal_is_one_line(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    with Progress(50, terminal) as progress:
        for step in range(50):
            progress.advance(f"loss {step}")
    told = terminal.getvalue()
    assert told.count("\n") == 1 and told.endswith("\n")
    last = told.split("\r")[-1]
    assert f"[{'=' * 24}] loss 49" in last and "ETA 0.0 s" in last


@pytest.mark.parametrize("total", [1, 7, 10, 1234])
def test_progress_elsewhere_is_a_few_lines(total):
    stream = io.StringIO()
    with Progress(total, stream) as progress:
        for _ in range(total):
            progress.advance("loss 1")
    lines = stream.getvalue().splitlines()
    assert 1 <= len(lines) <= 10
    assert f"{total}/{total}" in lines[-1]
    assert "\r" not in stream.getvalue()
