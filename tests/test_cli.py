"""The `flambeau` command, its progress bar and the data it trains on."""

import importlib.metadata
import io
import json
import re
import shutil
import struct
import subprocess
import zlib

import numpy
import pytest

import flambeau
from flambeau.cli import COMMANDS, main
from flambeau.cli.picture import Canvas, png
from flambeau.cli.progress import Progress
from flambeau.cli.terminal import chart
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


def test_demo_reaches_98_percent_and_leaves_a_picture(tmp_path, capsys):
    picture = tmp_path / "demo.png"
    assert main(["demo", "--picture", str(picture)]) == 0
    told = capsys.readouterr().out
    assert float(re.search(r"test accuracy ([\d.]+)%", told)[1]) >= 98
    assert re.search(r"eager +compiled\n +the network above +[\d,]+ +[\d,]+\n", told)
    assert "Read wrong:" in told and "what to try next" in told
    assert read_png(picture.read_bytes()).shape == (400, 960, 3)


def test_demo_repeats_itself(tmp_path, capsys):
    pictures = []
    for k in range(2):
        picture = tmp_path / f"{k}.png"
        assert main(["demo", "--epochs", "1", "--picture", str(picture)]) == 0
        pictures.append(picture.read_bytes())
    assert pictures[0] == pictures[1]


def test_demo_gpt_learns_and_writes(capsys):
    assert main(["demo", "--model", "gpt", "--steps", "15", "--batch", "8"]) == 0
    told = capsys.readouterr().out
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)  ", told)]
    assert losses[-1] < losses[0] - 0.3
    assert "\n    def " in told


def read_png(data):
    """The pixels of a PNG file of RGB bytes without filters."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    place, parts, size = 8, b"", None
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place:place + 8])
        body = data[place + 8:place + 8 + length]
        (sum_,) = struct.unpack(">I", data[place + 8 + length:place + 12 + length])
        assert sum_ == zlib.crc32(kind + body)
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
            assert body[8:] == bytes([8, 2, 0, 0, 0])
        parts += body if kind == b"IDAT" else b""
        place += 12 + length
    rows = numpy.frombuffer(zlib.decompress(parts), numpy.uint8).reshape(size[1], -1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(size[1], size[0], 3)


def test_pictures_are_what_was_drawn():
    canvas = Canvas(20, 10, (255, 255, 255))
    canvas.box(2, 3, 4, 2, (1, 2, 3))
    canvas.line(0, 0, 19, 9, (9, 0, 0))
    canvas.text(10, 1, "1", (0, 5, 0))
    seen = read_png(png(canvas.pixels))
    assert (seen == canvas.pixels).all()
    assert seen[4, 5].tolist() == [1, 2, 3] and seen[9, 19].tolist() == [9, 0, 0]
    assert (seen[1:6, 10:13] == [0, 5, 0]).all(-1).tolist() == [
        [False, True, False], [True, True, False], [False, True, False], [False, True, False],
        [True, True, True]]
    with pytest.raises(ValueError, match="bytes are needed"):
        png(numpy.zeros((2, 2, 4), numpy.uint8))


def test_charts_fall_as_the_values_do(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    lines = chart([4.0, 3.0, 2.0, 1.0], "loss", height=4).splitlines()
    assert lines[0].startswith("   4.000 |") and lines[3].startswith("   1.000 |")
    assert [len(line) for line in lines[:4]] == sorted(len(line) for line in lines[:4])


@pytest.mark.parametrize("arguments", [["demo", "--epochs", "0"], ["demo", "--lr", "-1"],
                                       ["demon"], [], ["cache", "empty"]])
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


def test_info_as_json(capsys):
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flambeau"] == flambeau.__version__


def test_mistakes_are_told_without_a_traceback(tmp_path, capsys):
    nowhere = str(tmp_path / "no" / "where.png")
    assert main(["demo", "--picture", nowhere]) == 2
    assert re.fullmatch(r"flambeau demo: no folder .*\n", capsys.readouterr().err)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"flambeau {command}" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)
    assert ("-l epochs" if shell == "fish" else "--epochs") in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True).returncode == 0


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes(capsys):
    main(["completion", "bash"])
    script = capsys.readouterr().out + """
    COMP_WORDS=(flambeau in) COMP_CWORD=1; _flambeau; echo ${COMPREPLY[@]}
    COMP_WORDS=(flambeau demo --mod) COMP_CWORD=2; _flambeau; echo ${COMPREPLY[@]}
    """
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["info", "--model"]


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
