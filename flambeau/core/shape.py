"""Broadcasting, strides, views and coalescing: functions on tuples of integers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Ints = tuple[int, ...]


def contiguous_strides(shape: Ints) -> Ints:
    """Row-major strides, in elements; a dimension of size 0 counts as 1, as in torch."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        if size > 1:
            step *= size
    return tuple(strides[::-1])


def is_contiguous(shape: Ints, strides: Ints) -> bool:
    """Whether the elements lie in row-major order without gaps."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != step and 0 not in shape:
                return False
            step *= size
    return True


def is_dense(shape: Ints, strides: Ints) -> bool:
    """Whether the elements fill their memory exactly, in whatever order of dimensions."""
    step = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != step:
                return prod(shape) == 0
            step *= size
    return True


def broadcast(op: str, *shapes: Ints) -> Ints:
    """The shape all the given ones expand to, or RuntimeError in torch's words."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        d = rank
        for size in reversed(shape):
            d -= 1
            if size != 1 and size != result[d]:
                if result[d] != 1:
                    raise RuntimeError(
                        f"{op}: The size of tensor a ({result[d]}) must match the size of tensor "
                        f"b ({size}) at non-singleton dimension {d}; given shapes "
                        f"{' and '.join(str(s) for s in shapes)}"
                    )
                result[d] = size
    return tuple(result)


def expand_strides(shape: Ints, strides: Ints, target: Ints) -> Ints:
    """Strides that repeat a tensor over a larger shape it broadcasts to."""
    if shape == target:
        return strides
    lead = len(target) - len(shape)
    return (0,) * lead + tuple([
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(shape, strides, target[lead:], strict=True)
    ])


def wrap_dim(dim: int, rank: int, op: str = "") -> int:
    """A dimension counted from the end made positive, or IndexError in torch's words."""
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        prefix = f"{op}: " if op else ""
        raise IndexError(
            f"{prefix}Dimension out of range (expected to be in range of "
            f"[{-bound}, {bound - 1}], but got {dim})"
        )
    return dim + bound if dim < 0 else dim


def wrap_dims(dims, rank: int, op: str = "") -> Ints:
    """Several dimensions made positive; RuntimeError if one appears twice."""
    wrapped = tuple(wrap_dim(int(d), rank, op) for d in dims)
    if len(set(wrapped)) != len(wrapped):
        twice = next(d for d in wrapped if wrapped.count(d) > 1)
        raise RuntimeError(f"{op}: dim {twice} appears multiple times in the list of dims")
    return wrapped


def coalesce(shape: Sequence[int],
             operands: Sequence[Sequence[int]]) -> tuple[Ints, list[Ints]]:
    """Merge neighbouring dimensions that every operand steps through as one."""
    sizes: list[int] = []
    columns: list[Ints] = []  # the strides of all operands along each merged dimension
    for size, column in zip(shape, zip(*operands)):
        if size == 1:
            continue
        if sizes:
            for outer, inner in zip(columns[-1], column):
                if outer != inner * size:
                    break
            else:
                sizes[-1] *= size
                columns[-1] = column
                continue
        sizes.append(size)
        columns.append(column)
    return tuple(sizes), list(zip(*columns)) if columns else [()] * len(operands)


def offsets(shape: Ints, strides: Ints, scale: int = 1) -> list[int]:
    """How far from the first element each one lies, in row-major order."""
    found = [0]
    for size, stride in zip(shape, strides, strict=True):
        step = stride * scale
        found = [start + i * step for start in found for i in range(size)]
    return found


def loop_order(shape: Ints, operands: list[Ints]) -> list[int]:
    """Dimensions from the outermost to the innermost, so that memory is walked forwards.

    The first operand that tells two dimensions apart decides; ties keep their order. The
    outermost comes first, and this is also the order in which a result is laid out.
    """
    order = list(range(len(shape)))
    outer = None
    for stride in operands[0] if operands else ():
        if stride <= 0 or (outer is not None and stride >= outer):
            break
        outer = stride
    else:  # the first tells them all apart, and has them in this order
        return order

    def runs_outside(a: int, b: int) -> int:
        for strides in operands:
            sa, sb = strides[a], strides[b]
            if sa == 0 or sb == 0:
                continue
            if sa != sb:
                return 1 if sa > sb else -1
            if shape[a] != shape[b]:
                return 1 if shape[a] > shape[b] and sa == sb else 0
        return 0

    # Insertion sort: the relation is not transitive across operands, and ranks are small.
    for i in range(1, len(order)):
        j = i
        while j > 0:
            verdict = runs_outside(order[j], order[j - 1])
            if verdict <= 0:
                break
            order[j - 1], order[j] = order[j], order[j - 1]
            j -= 1
    return order


def result_strides(shape: Ints, operands: list[tuple[Ints, Ints]]) -> Ints:
    """Strides of a new elementwise result: like the operands if they agree, else by their order."""
    same = [strides for given, strides in operands if given == shape]
    if same and all(s == same[0] for s in same) and len(same) == len(operands) and is_dense(
        shape, same[0]
    ):
        return same[0]
    expanded = [expand_strides(given, strides, shape) for given, strides in operands]
    strides, step = [0] * len(shape), 1
    for d in reversed(loop_order(shape, expanded)):
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def view_strides(shape: Ints, strides: Ints, wanted: Ints) -> Ints | None:
    """Strides under which the same memory has another shape, or None if it must be copied."""
    if prod(shape) == 0:
        return strides if shape == wanted else contiguous_strides(wanted)
    groups: list[tuple[int, int]] = []  # runs of dimensions that are contiguous with each other
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if groups and groups[-1][1] == stride * size:
            groups[-1] = (groups[-1][0] * size, stride)
        else:
            groups.append((size, stride))
    result: list[int] = []
    d = len(wanted) - 1
    for size, stride in reversed(groups):
        step, left = stride, size
        while d >= 0 and (left > 1 or wanted[d] == 1):
            if left % wanted[d]:
                return None
            result.append(step)
            step *= wanted[d]
            left //= wanted[d]
            d -= 1
        if left != 1:
            return None
    while d >= 0:
        if wanted[d] != 1:
            return None
        result.append(result[-1] * wanted[d + 1] if result else 1)
        d -= 1
    return tuple(reversed(result))


def infer_size(wanted, count: int) -> Ints:
    """A requested shape with its one -1 worked out, or RuntimeError in torch's words."""
    shape = list(map(int, wanted))
    known, hole, bad = 1, None, None
    for d, size in enumerate(shape):
        if size >= 0:
            known *= size
        elif size < -1:
            bad = size if bad is None else bad
        elif hole is not None:
            raise RuntimeError("only one dimension can be inferred")
        else:
            hole = d
    if bad is not None:
        raise RuntimeError(f"invalid shape dimension {bad}")
    if hole is not None:
        if known == 0 and count == 0:
            raise RuntimeError(f"cannot reshape tensor of {count} elements into shape {shape} "
                               "because the unspecified dimension size -1 can be any value "
                               "and is ambiguous")
        if known == 0 or count % known:
            raise RuntimeError(f"shape '{shape}' is invalid for input of size {count}")
        shape[hole] = count // known
    elif known != count:
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {count}")
    return tuple(shape)
