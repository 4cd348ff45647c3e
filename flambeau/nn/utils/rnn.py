"""Batches of sequences of different lengths: packed, padded, and back."""

import itertools

import flambeau
from flambeau import Tensor
from flambeau.nn.modules.packed import PackedSequence, invert_permutation

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
    "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Pack a padded batch, given the length of each sequence."""
    lengths = flambeau.as_tensor(lengths, dtype=flambeau.int64).cpu()
    batch_dim = 0 if batch_first else 1
    order = None
    if not enforce_sorted:
        lengths, order = flambeau.sort(lengths, descending=True)
        order = order.to(input.device)
        input = input.index_select(batch_dim, order)
    data, batch_sizes = _packed(input, lengths, batch_first)
    return PackedSequence(data, batch_sizes, order, None)


def _packed(input, lengths, batch_first):
    """Data and batch sizes of sequences in order of falling length; one node of a graph."""
    sizes = lengths.tolist()
    if batch_first:
        input = input.transpose(0, 1)
    _check_lengths(input, sizes)
    batch_sizes = [sum(size > t for size in sizes) for t in range(sizes[0])]
    parts, start = [], 0
    for batch, steps in itertools.groupby(batch_sizes):
        end = start + len(list(steps))
        part = input[start:end, :batch]
        parts.append(part.reshape(-1, *input.shape[2:]))
        start = end
    return flambeau.cat(parts), flambeau.tensor(batch_sizes)


def _check_lengths(input, sizes):
    if len(sizes) != input.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={input.size(1)})"
        )
    if any(a < b for a, b in itertools.pairwise(sizes)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if sizes and sizes[-1] <= 0:
        raise RuntimeError(
            f"Length of all samples has to be greater than 0, but found an element in 'lengths' "
            f"that is <= 0: {sizes[-1]}"
        )
    if sizes and sizes[0] > input.size(0):
        raise RuntimeError(
            f"pack_padded_sequence: the longest length is {sizes[0]}, but the input has only "
            f"{input.size(0)} steps"
        )


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """The padded batch, and the length of each sequence in it."""
    data, batch_sizes, _, unsorted = sequence
    padded, lengths = _padded(data, batch_sizes, batch_first, padding_value, total_length)
    if unsorted is not None:
        padded = padded.index_select(0 if batch_first else 1, unsorted)
        lengths = lengths[unsorted.cpu()]
    return padded, lengths


def _padded(data, batch_sizes, batch_first, padding_value, total_length):
    """Sequences side by side, and their lengths, in the order they are packed in."""
    sizes = batch_sizes.tolist()
    batch, steps = sizes[0], len(sizes)
    if total_length is not None and total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {steps}"
        )
    parts, start = [], 0
    for size, group in itertools.groupby(sizes):
        count = len(list(group))
        part = data[start : start + count * size].reshape(count, size, *data.shape[1:])
        if size < batch:
            missing = part.new_full((count, batch - size, *data.shape[1:]), padding_value)
            part = flambeau.cat([part, missing], 1)
        parts.append(part)
        start += count * size
    if total_length is not None and total_length > steps:
        shape = (total_length - steps, batch, *data.shape[1:])
        parts.append(data.new_full(shape, padding_value))
    padded = flambeau.cat(parts)
    lengths = flambeau.tensor([sum(size > i for size in sizes) for i in range(batch)])
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Stack sequences, the short ones filled up."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not isinstance(sequences, (list, tuple)):
        if not hasattr(sequences, "__iter__"):
            raise RuntimeError(
                "pad_sequence: Expected iterable for input sequences, but got arg of type: "
                f"{type(sequences).__name__}"
            )
        sequences = tuple(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    longest = max(sequence.size(0) for sequence in sequences)
    rows = []
    for sequence in sequences:
        missing = longest - sequence.size(0)
        if missing:
            fill = sequence.new_full((missing, *sequence.shape[1:]), padding_value)
            pair = (sequence, fill) if padding_side == "right" else (fill, sequence)
            sequence = flambeau.cat(pair)
        rows.append(sequence)
    return flambeau.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The sequences of a padded batch, each at its own length."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(padded_sequences, lengths, strict=True)]


def pack_sequence(sequences, enforce_sorted=True):
    """Pack sequences of different lengths."""
    lengths = [sequence.size(0) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The sequences that were packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
