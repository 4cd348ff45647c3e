"""Event files, read back by their own reader: records, check sums, every kind of summary."""

import glob
import struct
import zlib

import numpy
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils.tensorboard import RecordWriter, SummaryWriter, read_records, wire
from flambeau.utils.tensorboard.records import crc32c


def test_check_sums():
    assert crc32c(b"123456789") == 0xE3069283  # the published check value of CRC-32C
    data = bytes(range(256)) * 41 + b"end"
    slow = 0xFFFFFFFF
    for byte in data:
        slow ^= byte
        for _ in range(8):
            slow = slow >> 1 ^ (0x82F63B78 if slow & 1 else 0)
    assert crc32c(data) == slow ^ 0xFFFFFFFF


def test_records_and_damage(tmp_path):
    path = tmp_path / "records"
    writer = RecordWriter(path)
    contents = [b"", b"one", bytes(5000)]
    for each in contents:
        writer.write(each)
    writer.close()
    assert list(read_records(path)) == contents
    raw = path.read_bytes()
    path.write_bytes(raw[:-3])
    with pytest.raises(ValueError, match="cut off"):
        list(read_records(path))
    path.write_bytes(raw[:30] + b"X" + raw[31:])
    with pytest.raises(ValueError, match="damaged"):
        list(read_records(path))


def test_wire_numbers():
    coded = wire.integer(1, 300) + wire.integer(2, -1) + wire.message(3, "é") + wire.double(4, 0.5)
    assert list(wire.fields(coded)) == [(1, 300), (2, 2**64 - 1), (3, "é".encode()),
                                        (4, struct.pack("<d", 0.5))]


def values(folder):
    """(step, {field: content}) of every summary value in the only file of a folder."""
    (path,) = glob.glob(f"{folder}/events.out.tfevents.*")
    found = []
    for record in read_records(path):
        event = dict(wire.fields(record))
        if 5 in event:
            found += [(event.get(2), dict(wire.fields(content)))
                      for _, content in wire.fields(event[5])]
    return found


def test_scalars(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.25, 3)
        writer.add_scalar("loss", torch.tensor(0.5), 4)
        writer.add_scalars("pair", {"a": 1.0, "b": 2.0}, 7)
        with pytest.raises(ValueError, match="must be one number"):
            writer.add_scalar("loss", torch.ones(2), 5)
    got = [(step, v[1], struct.unpack("<f", v[2])[0]) for step, v in values(tmp_path)]
    assert got == [(3, b"loss", 0.25), (4, b"loss", 0.5)]
    assert values(tmp_path / "pair_b")[0][1][1] == b"pair"


def test_a_reader_may_look_before_the_end(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("a", 1.0)
    writer.flush()
    assert len(values(tmp_path)) == 1
    writer.close()
    writer.close()


def test_histograms(tmp_path):
    numbers = torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0])
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("h", numbers, 1)
        writer.add_histogram("even", numbers, 1, bins=3)
    histogram = dict(wire.fields(values(tmp_path)[0][1][5]))
    low, high, count, total, squares = (struct.unpack("<d", histogram[k])[0] for k in range(1, 6))
    assert (low, high, count, total, squares) == (-1, 2, 5, 2, 5.5)
    counts = numpy.frombuffer(histogram[7], "<f8")
    limits = numpy.frombuffer(histogram[6], "<f8")
    assert counts.sum() == 5 and len(limits) == len(counts) and (numpy.diff(limits) > 0).all()
    even = dict(wire.fields(values(tmp_path)[1][1][5]))
    assert numpy.frombuffer(even[7], "<f8").tolist() == [0, 1, 3, 1]


def png_pixels(data):
    """Width, height and the raw rows of a PNG that uses no filters."""
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    at, packed = 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at:at + 4])
        name, content = data[at + 4:at + 8], data[at + 8:at + 8 + size]
        assert zlib.crc32(name + content) == struct.unpack(">I", data[at + 8 + size:][:4])[0]
        packed += content if name == b"IDAT" else b""
        at += 12 + size
    assert (depth, kind) == (8, 2)
    rows = numpy.frombuffer(zlib.decompress(packed), numpy.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_images(tmp_path):
    colour = torch.zeros(3, 2, 4)
    colour[0] = 1.0
    grey = torch.full((5, 1, 2, 3), 0.5)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("red", colour)
        writer.add_images("grid", grey)
        writer.add_image("bytes", torch.full((2, 3), 7, dtype=torch.uint8), dataformats="HW")
        writer.add_image_with_boxes("box", torch.zeros(3, 6, 6), torch.tensor([[1, 1, 4, 4]]))
        with pytest.raises(ValueError, match="does not fit"):
            writer.add_image("bad", torch.zeros(2, 2))
    red, grid, raw, box = (png_pixels(dict(wire.fields(v[4]))[4]) for _, v in values(tmp_path))
    assert red.shape == (2, 4, 3) and (red == [255, 0, 0]).all()
    assert grid.shape == (2, 15, 3) and (grid == 127).all()
    assert (raw == 7).all()
    assert (box[1, 1:5] == [255, 0, 0]).all() and not box[2, 2].any()


def test_text_sound_curves_and_layout(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "*hello*", 2)
        writer.add_audio("tone", torch.linspace(-1, 1, 10), sample_rate=100)
        writer.add_pr_curve("pr", torch.tensor([1, 0, 1]), torch.tensor([0.9, 0.2, 0.6]))
        writer.add_custom_scalars({"A": {"c": ["Margin", ["x", "y", "z"]]}})
    text, sound, curve, _ = (v for _, v in values(tmp_path))
    assert text[1] == b"note/text_summary" and b"*hello*" in text[8]
    audio = dict(wire.fields(sound[6]))
    assert audio[3] == 10 and audio[4][:4] == b"RIFF" and audio[5] == b"audio/wav"
    rows = numpy.frombuffer(dict(wire.fields(curve[8]))[5], "<f4").reshape(6, 127)
    assert rows[0, 0] == 2 and rows[1, 0] == 1 and rows[5, 0] == 1  # at threshold 0 all are found


def test_hyper_parameters(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"lr": 0.1, "kind": "sgd", "nesterov": True}, {"accuracy": 0.5},
                           run_name="one")
        with pytest.raises(ValueError, match="'bad' should be one of"):
            writer.add_hparams({"bad": [1]}, {})
    tags = [v[1] for _, v in values(tmp_path / "one")]
    assert tags == [b"_hparams_/experiment", b"_hparams_/session_start_info",
                    b"_hparams_/session_end_info", b"accuracy"]


def test_a_graph(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, torch.ones(2, 3))
    (path,) = glob.glob(f"{tmp_path}/events*")
    graph = next(e[4] for e in map(dict, map(wire.fields, read_records(path))) if 4 in e)
    nodes = {}
    for number, content in wire.fields(graph):
        if number == 1:
            parts = list(wire.fields(content))
            nodes[dict(parts)[1]] = [v for k, v in parts if k == 3]
    assert nodes[b"Sequential/1"] == [b"Sequential/0"]
    assert nodes[b"output/0"] == [b"Sequential/2"]
    assert model.training


def test_embeddings(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(torch.eye(3), metadata=["a", "b", "c"], global_step=2)
        with pytest.raises(ValueError, match="2 labels, 3 points"):
            writer.add_embedding(torch.eye(3), metadata=["a", "b"])
    folder = tmp_path / "00002" / "default"
    assert numpy.loadtxt(folder / "tensors.tsv").tolist() == numpy.eye(3).tolist()
    assert (folder / "metadata.tsv").read_text() == "a\nb\nc\n"
    assert "00002/default/tensors.tsv" in (tmp_path / "projector_config.pbtxt").read_text()
