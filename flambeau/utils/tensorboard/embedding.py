"""Files of the embedding projector: points, labels, a sheet of pictures, and what belongs where."""

import json
import math
import os

import numpy

from flambeau.utils.tensorboard import pictures

CONFIG = "projector_config.pbtxt"


def write(folder, points, labels, images, step, tag, header):
    """One embedding in its own sub-folder, and an entry in the projector's list."""
    if points.ndim != 2:
        raise ValueError(f"add_embedding: mat should have 2 dimensions, got {points.ndim}")
    place = f"{0 if step is None else step:05d}/{tag}"
    target = os.path.join(folder, place)
    os.makedirs(target, exist_ok=True)
    entry = [f"tensor_name: {json.dumps(f'{tag}:{0 if step is None else step:05d}')}",
             f"tensor_path: {json.dumps(f'{place}/tensors.tsv')}"]
    if labels is not None:
        if len(labels) != len(points):
            raise ValueError(f"#labels should equal with #data points: {len(labels)} labels, "
                             f"{len(points)} points")
        _write_labels(os.path.join(target, "metadata.tsv"), labels, header)
        entry.append(f"metadata_path: {json.dumps(f'{place}/metadata.tsv')}")
    if images is not None:
        if len(images) != len(points):
            raise ValueError(f"#images should equal with #data points: {len(images)} images, "
                             f"{len(points)} points")
        height, width = _write_sheet(os.path.join(target, "sprite.png"), images)
        entry.append(f"sprite {{ image_path: {json.dumps(f'{place}/sprite.png')} "
                     f"single_image_dim: {width} single_image_dim: {height} }}")
    numpy.savetxt(os.path.join(target, "tensors.tsv"), points, delimiter="\t", fmt="%.8g")
    _append(os.path.join(folder, CONFIG), entry)


def _write_labels(path, labels, header):
    with open(path, "w", encoding="utf-8") as file:
        if header:
            file.write("\t".join(map(str, header)) + "\n")
        for label in labels:
            columns = label if header else [label]
            file.write("\t".join(map(str, columns)) + "\n")


def _write_sheet(path, images):
    """A square of pictures, as the projector cuts it up again."""
    count, channels, height, width = images.shape
    side = math.ceil(math.sqrt(count))
    sheet = numpy.zeros((side * height, side * width, channels), numpy.uint8)
    for k, each in enumerate(pictures.as_bytes(images.transpose(0, 2, 3, 1))):
        y, x = k // side * height, k % side * width
        sheet[y:y + height, x:x + width] = each
    with open(path, "wb") as file:
        file.write(pictures.png(sheet))
    return height, width


def _append(path, entry):
    block = "embeddings {\n" + "".join(f"  {line}\n" for line in entry) + "}\n"
    present = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            present = file.read()
    if block not in present:
        with open(path, "a", encoding="utf-8") as file:
            file.write(block)
