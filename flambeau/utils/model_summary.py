"""`summary(model, inputs)`: its modules as a table, with shapes, parameters and multiplications."""

import math

import flambeau

__all__ = ["Summary", "summary"]


class Row:
    """One module of the table."""

    def __init__(self, path, module, depth):
        self.path, self.module, self.depth = path, module, depth
        self.shapes = []
        self.multiplications = 0
        own = list(module.parameters(recurse=False))
        self.parameters = sum(_size(p) for p in own)
        self.trainable = sum(_size(p) for p in own if p.requires_grad)

    @property
    def name(self):
        label = self.path.rpartition(".")[2]
        kind = type(self.module).__name__
        return "  " * self.depth + (f"{label}: {kind}" if label else kind)


class Summary:
    """The table; its text is for people, its attributes for programs."""

    def __init__(self, rows, model):
        self.rows = rows
        parameters = list(model.parameters())
        self.total_params = sum(_size(p) for p in parameters)
        self.trainable_params = sum(_size(p) for p in parameters if p.requires_grad)
        self.multiplications = sum(row.multiplications for row in rows)
        tensors = parameters + list(model.buffers())
        self.bytes = sum(_size(t) * t.element_size() for t in tensors)

    def __str__(self):
        called = any(row.shapes for row in self.rows)
        head = ["Layer", "Output shape", "Parameters", "Multiplications"]
        table = [[row.name, _shapes(row.shapes), _count(row.parameters),
                  _count(row.multiplications)] for row in self.rows]
        kept = [0, 1, 2, 3] if called else [0, 2]
        cells = [[line[k] for k in kept] for line in [head, *table]]
        widths = [max(len(line[k]) for line in cells) for k in range(len(kept))]
        texts = 2 if called else 1  # columns of text come first, numbers are aligned right
        lines = ["  ".join(c.ljust(w) if k < texts else c.rjust(w)
                           for k, (c, w) in enumerate(zip(line, widths, strict=True))).rstrip()
                 for line in cells]
        rule = "─" * max(map(len, lines))
        totals = [f"{self.total_params:,} parameters, {self.trainable_params:,} of them trainable, "
                  f"{_memory(self.bytes)}"]
        if self.multiplications:
            totals.append(f"{self.multiplications:,} multiplications in one call")
        return "\n".join([lines[0], rule, *lines[1:], rule, *totals])

    __repr__ = __str__


def summary(model, *inputs, input_size=None, dtype=None, depth=None):
    """A table of a model's modules.

    With inputs, or an `input_size` to draw one from, the model is called once, in evaluation mode
    and unrecorded, and the table has shapes too. `depth` limits how deep it goes.
    """
    rows, seen = {}, {}
    for path, module in model.named_modules():
        rows[module] = Row(path, module, path.count(".") + 1 if path else 0)
        seen[path] = module
    if input_size is not None:
        sizes = input_size if input_size and isinstance(input_size[0], (tuple, list)) else [
            input_size]
        inputs = [flambeau.zeros(tuple(size), dtype=dtype) for size in sizes]
    if inputs:
        _call(model, inputs, rows)
    chosen = [row for row in rows.values() if depth is None or row.depth <= depth]
    return Summary(chosen, model)


def _call(model, inputs, rows):
    """Call the model with hooks that note what each module gave."""

    def note(module, args, output):
        row = rows[module]
        row.shapes.append(_shape_of(output))
        row.multiplications += _multiplications(module, output)

    handles = [module.register_forward_hook(note) for module in rows]
    modes = {module: module.training for module in rows}
    try:
        with flambeau.no_grad():
            model.eval()(*inputs)
    finally:
        for module, training in modes.items():
            module.training = training
        for handle in handles:
            handle.remove()


def _multiplications(module, output):
    """Products of a call of a layer whose weight meets every position of the output."""
    weight = getattr(module, "weight", None)
    if not isinstance(output, flambeau.Tensor) or weight is None:
        return 0
    if isinstance(module, flambeau.nn.Linear):
        return _size(output) * weight.shape[-1]
    if type(module).__name__.startswith("Conv") and "Transpose" not in type(module).__name__:
        return _size(output) * math.prod(weight.shape[1:])
    return 0


def _size(tensor):
    if flambeau.nn.parameter.is_lazy(tensor):
        return 0
    return tensor.numel()


def _shape_of(value):
    if isinstance(value, flambeau.Tensor):
        return list(value.shape)
    if isinstance(value, (list, tuple)):
        return [_shape_of(each) for each in value]
    return type(value).__name__


def _shapes(shapes):
    if not shapes:
        return ""
    once = str(shapes[0])
    return once if len(shapes) == 1 else f"{once} ×{len(shapes)}"


def _count(number):
    return f"{number:,}" if number else ""


def _memory(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
