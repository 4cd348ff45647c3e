"""Gradients in buckets, each averaged over all processes as soon as backward has filled it.

Every rank must reduce buckets in one order: a bucket that is full waits for those before it.
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed import collectives, common_memory

FIRST_BUCKET = 2**20  # bytes: small, so that the first reduction begins early

UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This "
    "error indicates that your module has parameters that were not used in producing loss. You can "
    "enable unused parameter detection by passing the keyword argument "
    "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by making "
    "sure all `forward` function outputs participate in calculating loss. Parameters which did not "
    "receive grad: {names}")


class Bucket:
    """Gradients of some parameters, in one flat tensor."""

    def __init__(self, number: int, parameters: list[Any], group: Any) -> None:
        self.number, self.parameters = number, parameters
        size, dtype = sum(p.numel() for p in parameters), parameters[0].dtype
        #: the same bucket of every rank, where they share memory
        self.everyone = common_memory.common_tensors(group, size, dtype)
        self.flat = (flambeau.zeros(size, dtype=dtype) if self.everyone is None
                     else self.everyone[group.rank()])
        self.views = [piece.view(p.shape) for p, piece in zip(
            parameters, self.flat.split([p.numel() for p in parameters]), strict=True)]
        self.missing = len(parameters)
        self.work: Any = None


class GradBucket:
    """A bucket as a communication hook sees it."""

    def __init__(self, bucket: Bucket, last: bool) -> None:
        self._bucket, self._last = bucket, last

    def index(self) -> int:
        return self._bucket.number

    def buffer(self) -> Any:
        return self._bucket.flat

    def gradients(self) -> list:
        return list(self._bucket.views)

    def parameters(self) -> list:
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        return self._last

    def set_buffer(self, buffer: Any) -> None:
        self._bucket.flat.copy_(buffer)


class Reducer:
    """Hooks on parameters, the buckets they fill, and what is done when all are reduced."""

    def __init__(self, named: list[tuple[str, Any]], group: Any, caps: list[int], as_views: bool,
                 find_unused: bool) -> None:
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.group, self.as_views, self.find_unused = group, as_views, find_unused
        self.divisor: int | None = None
        self.hook: Any = None
        self.buckets = [Bucket(number, some, group)
                        for number, some in enumerate(shared_out(self.parameters, caps))]
        self.place = {id(p): (bucket, spot) for bucket in self.buckets
                      for spot, p in enumerate(bucket.parameters)}
        self.syncing = False
        self.launched = len(self.buckets)
        self.came: set[int] = set()
        self.used: set[int] = set()
        self.handles = [p.register_post_accumulate_grad_hook(self._gradient_is_there)
                        for p in self.parameters]

    def begin(self, syncing: bool, unused: Any) -> None:
        """A forward is done: expect the gradients of a backward, but not of these."""
        self.syncing = syncing
        if not syncing:
            return
        for bucket in self.buckets:
            bucket.missing, bucket.work = len(bucket.parameters), None
        self.launched = 0
        self.came, self.used = set(), set()
        for parameter in unused:
            self._mark(parameter, used=False)

    def expect_finished(self) -> None:
        if self.syncing and self.came - self._unused_marks() and self.launched < len(self.buckets):
            names = [name for name, p in zip(self.names, self.parameters) if id(p) not in self.came]
            self.launched = len(self.buckets)
            raise RuntimeError(UNFINISHED.format(names=", ".join(names)))

    def _unused_marks(self) -> set[int]:
        return self.came - self.used

    def _gradient_is_there(self, parameter: Any) -> None:
        if self.syncing and id(parameter) not in self.came:
            self._mark(parameter, used=True)

    def _mark(self, parameter: Any, used: bool) -> None:
        bucket, spot = self.place[id(parameter)]
        self.came.add(id(parameter))
        if used:
            self.used.add(id(parameter))
        fill(bucket.views[spot], parameter.grad)
        bucket.missing -= 1
        while self.launched < len(self.buckets) and not self.buckets[self.launched].missing:
            self._launch(self.buckets[self.launched])
            self.launched += 1
        if self.launched == len(self.buckets):
            self._finish()

    def _launch(self, bucket: Bucket) -> None:
        last = bucket.number == len(self.buckets) - 1
        if self.hook is not None:
            state, hook = self.hook
            bucket.work = hook(state, GradBucket(bucket, last))
            return
        divisor = self.divisor or self.group.size()
        if bucket.everyone is not None:
            bucket.work = common_memory.average(self.group, bucket.everyone, divisor)
            return
        with flambeau.no_grad():
            bucket.flat.div_(divisor)
        bucket.work = collectives.all_reduce(bucket.flat, group=self.group, async_op=True)

    def _finish(self) -> None:
        """All buckets are on their way: wait for them, and give parameters their gradients."""
        self.syncing = False
        somewhere = self._used_somewhere()
        for bucket in self.buckets:
            result = bucket.work.wait()
            with flambeau.no_grad():
                if self.hook is not None:
                    result = result[0] if isinstance(result, list) else result
                    fill(bucket.flat, result)
                for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                    if somewhere is None or id(parameter) in somewhere:
                        self._give(parameter, view)

    def _give(self, parameter: Any, view: Any) -> None:
        if self.as_views:
            if parameter.grad is None or parameter.grad.data_ptr() != view.data_ptr():
                parameter.grad = view
        elif parameter.grad is None:
            parameter.grad = view.clone()
        else:
            parameter.grad.copy_(view)

    def _used_somewhere(self) -> set[int] | None:
        """The parameters any rank has used; others keep the gradient they have."""
        if not self.find_unused:
            return None
        marks = flambeau.tensor([int(id(p) in self.used) for p in self.parameters])
        collectives.all_reduce(marks, group=self.group)
        return {id(p) for p, mark in zip(self.parameters, marks.tolist()) if mark}

    def shadow(self) -> None:
        """Take part in one backward of the others, with nothing to add."""
        works = []
        for bucket in self.buckets:
            bucket.flat.zero_()
            self._launch(bucket)
            works.append(bucket.work)
        if self.find_unused:
            self.used = set()
            self._used_somewhere()
        for work in works:
            work.wait()


def fill(view: Any, gradient: Any) -> None:
    """Put a gradient in its place, unless it is there; nothing counts as zero."""
    with flambeau.no_grad():
        if gradient is None:
            view.zero_()
        elif gradient.data_ptr() != view.data_ptr():
            view.copy_(gradient)


def shared_out(parameters: list[Any], caps: list[int]) -> list[list[Any]]:
    """Parameters in buckets, the last first: backward comes to them in about this order.

    The caps are those of the first buckets, in bytes; further ones have the last of them.
    """
    found: list[list[Any]] = []
    room = 0
    for parameter in reversed(parameters):
        size = parameter.numel() * parameter.element_size()
        if not found or size > room or found[-1][0].dtype != parameter.dtype:
            room = caps[min(len(found), len(caps) - 1)]
            found.append([])
        found[-1].append(parameter)
        room -= size
    return found


def unused_parameters(output: Any, parameters: list[Any]) -> list[Any]:
    """The parameters that no tensor of the output comes from."""
    seen: set[Any] = set()
    reached: set[int] = set()
    waiting = [t.grad_fn for t in tensors_of(output) if t.grad_fn is not None]
    reached |= {id(t) for t in tensors_of(output) if t.grad_fn is None}
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            reached.add(id(variable))
        waiting += [following for following, _ in node.next_functions]
    return [p for p in parameters if id(p) not in reached]


def tensors_of(value: Any) -> list[Any]:
    """The tensors anywhere in tuples, lists, dicts and objects with attributes."""
    if isinstance(value, flambeau.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = list(vars(value).values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_of(part)]
    return []
