"""The cases of benchmarks/kernels.py: each kernel at the sizes where models use it.

A case is a function of the library that returns what to run; what it runs returns its tensors,
which are compared. Inputs come from numpy, so that both libraries are given the same numbers.
"""

from __future__ import annotations

import functools
import itertools

import numpy


class Given:
    """Makes inputs: the same sequence of numbers in both libraries."""

    def __init__(self, torch, seed=7):
        self.torch, self._rng = torch, numpy.random.default_rng(seed)

    def normal(self, *shape, grad=False, scale=1.0):
        values = self._rng.standard_normal(shape, dtype="f4") * numpy.float32(scale)
        return self.torch.from_numpy(numpy.asarray(values)).requires_grad_(grad)

    def integers(self, below: int, *shape):
        return self.torch.from_numpy(self._rng.integers(0, below, shape))

    def shuffled(self, *shape):
        """Whole numbers as floats, none twice: there is one right order."""
        count = int(numpy.prod(shape))
        return self.torch.from_numpy(self._rng.permutation(count).astype("f4").reshape(shape))


def forward_backward(torch, function, inputs):
    """Run forward and backward; the results are the output and the gradients."""
    wanted = [x for x in inputs if x.requires_grad]
    g = None

    def run():
        nonlocal g
        for x in wanted:
            x.grad = None
        out = function(*inputs)
        g = Given(torch, 8).normal(*out.shape) if g is None else g
        out.backward(g)
        return (out, *[x.grad for x in wanted])
    return run


# -- matmul -----------------------------------------------------------------------------------

WIDE = ((64, 784, 128), (128, 128, 128), (768, 128, 512), (512, 512, 512), (1024, 1024, 1024),
        (2048, 2048, 2048), (48, 64, 32, 64))
SMALL = ((16, 16, 16), (80, 3, 16), (64, 128, 10), (1, 1024, 1024), (8, 1024, 1024),
         (1024, 8, 1024), (700, 200, 10000), (127, 255, 511), (256, 16, 16, 16))


def product(torch, sizes, transposed):
    given = Given(torch)
    *batch, m, k, n = sizes
    a = given.normal(*batch, *((k, m) if transposed[0] == "t" else (m, k)))
    b = given.normal(*batch, *((n, k) if transposed[1] == "t" else (k, n)))
    a = a.mT if transposed[0] == "t" else a
    b = b.mT if transposed[1] == "t" else b
    return lambda: a @ b


def products(shapes, forms):
    return {f"mm {'x'.join(map(str, s))} {f}": functools.partial(product, sizes=s, transposed=f)
            for s in shapes for f in forms}


# -- convolution ------------------------------------------------------------------------------

#         input             out  kernel  stride  padding  groups  transposed
CONVOLUTIONS = (
    ((32, 1, 28, 28),       32,  3,      1,      0,       1,      False),
    ((32, 32, 26, 26),      64,  3,      1,      0,       1,      False),
    ((16, 64, 32, 32),      64,  3,      1,      1,       1,      False),
    ((16, 128, 16, 16),    256,  3,      2,      1,       1,      False),
    ((8, 256, 14, 14),     256,  1,      1,      0,       1,      False),
    ((8, 96, 28, 28),       96,  3,      1,      1,       96,     False),
    ((4, 3, 224, 224),      64,  7,      2,      3,       1,      False),
    ((16, 512, 4, 4),      512,  3,      1,      1,       1,      False),
    ((16, 128, 8, 8),       64,  4,      2,      1,       1,      True),
)  # fmt: skip


def convolution(torch, row, channels_last=False):
    shape, out, size, stride, padding, groups, transposed = row
    given, functional = Given(torch), torch.nn.functional
    channels = shape[1]
    widths = (channels, out) if transposed else (out, channels // groups)
    x = given.normal(*shape)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_(True)
    w = given.normal(*widths, size, size, grad=True, scale=0.1)
    b = given.normal(out, grad=True)
    apply = functional.conv_transpose2d if transposed else functional.conv2d
    return forward_backward(
        torch, lambda x, w, b: apply(x, w, b, stride=stride, padding=padding, groups=groups),
        (x, w, b))


def convolutions():
    found = {}
    for row in CONVOLUTIONS:
        shape, out, size, stride, _, groups, transposed = row
        name = (f"conv{'_transpose' if transposed else ''} {'x'.join(map(str, shape))} to {out} "
                f"{size}x{size}/{stride}{' depthwise' if groups > 1 else ''}")
        found[name] = functools.partial(convolution, row=row)
    return found


def max_pool(torch, shape, backward):
    x = Given(torch).normal(*shape, grad=backward)
    pool = torch.nn.functional.max_pool2d
    return forward_backward(torch, lambda x: pool(x, 2), (x,)) if backward else lambda: pool(x, 2)


POOLED = ((32, 64, 24, 24), (16, 64, 112, 112))


def poolings():
    return {f"max_pool2d {'x'.join(map(str, s))}{' with backward' if b else ''}":
            functools.partial(max_pool, shape=s, backward=b) for s in POOLED for b in (False, True)}


# -- attention --------------------------------------------------------------------------------

ATTENTIONS = (((12, 4, 64, 32), True), ((4, 6, 128, 64), True), ((2, 8, 512, 64), False))


def attention(torch, shape, causal):
    given, attend = Given(torch), torch.nn.functional.scaled_dot_product_attention
    inputs = [given.normal(*shape, grad=True) for _ in range(3)]
    return forward_backward(torch, lambda q, k, v: attend(q, k, v, is_causal=causal), inputs)


def attentions():
    return {f"attention {'x'.join(map(str, s))}{' causal' if c else ''}":
            functools.partial(attention, shape=s, causal=c) for s, c in ATTENTIONS}


# -- elementwise, rows, reductions, movement --------------------------------------------------

#         matrix          images
SIZES = {
    "10k":  ((100, 100),    (4, 25, 10, 10)),
    "1M":   ((1024, 1024),  (16, 64, 32, 32)),
    "16M":  ((4096, 4096),  (64, 64, 64, 64)),
    "tall": ((100000, 10),  (1000, 10, 10, 10)),
}  # fmt: skip


def elementwise(torch, given, shape):
    x, y, row = given.normal(*shape), given.normal(*shape), given.normal(shape[-1])
    mask = x > 0.3
    gelu = torch.nn.functional.gelu
    return {
        "gelu": lambda: gelu(x), "exp": lambda: torch.exp(x), "tanh": lambda: torch.tanh(x),
        "where": lambda: torch.where(mask, x, y), "compare": lambda: x > y,
        "add": lambda: x + y, "broadcast add": lambda: x + row,
        "gelu fb": lambda: forward_backward(torch, gelu, (given.normal(*shape, grad=True),)),
    }


def rows(torch, given, shape, images):
    functional = torch.nn.functional
    x = given.normal(*shape)
    target = given.integers(shape[1], shape[0])
    weight, bias = given.normal(shape[1], grad=True), given.normal(shape[1], grad=True)
    pixels = given.normal(*(shape if shape[0] > 50000 else images))
    scale, shift = (given.normal(pixels.shape[1], grad=True) for _ in range(2))
    mean, var = torch.zeros(pixels.shape[1]), torch.ones(pixels.shape[1])

    def layer(x):
        return functional.layer_norm(x, (shape[1],), weight, bias)

    def batch(pixels):
        return functional.batch_norm(pixels, mean, var, scale, shift, True, 0.1)

    def entropy(x):
        return functional.cross_entropy(x, target)

    def with_backward(function, *shape, more=()):
        return lambda: forward_backward(torch, lambda x, *_: function(x),
                                        (given.normal(*shape, grad=True), *more))

    def softmax(x):
        return torch.softmax(x, -1)

    def log_softmax(x):
        return torch.log_softmax(x, -1)

    return {
        "softmax": lambda: softmax(x), "log_softmax": lambda: log_softmax(x),
        "logsumexp": lambda: torch.logsumexp(x, -1), "softmax dim 0": lambda: torch.softmax(x, 0),
        "layer_norm": lambda: layer(x).detach(), "batch_norm": lambda: batch(pixels).detach(),
        "cross_entropy": lambda: entropy(x), "softmax fb": with_backward(softmax, *shape),
        "log_softmax fb": with_backward(log_softmax, *shape),
        "layer_norm fb": with_backward(layer, *shape, more=(weight, bias)),
        "batch_norm fb": with_backward(batch, *pixels.shape, more=(scale, shift)),
        "cross_entropy fb": with_backward(entropy, *shape),
    }


def reductions(torch, given, shape):
    x = given.normal(*shape) + 1.0  # so that a sum is not what rounding leaves of nothing
    found = {}
    for dim in (0, 1, None):
        at = () if dim is None else (dim,)
        named = "all" if dim is None else f"dim {dim}"
        found |= {
            f"sum {named}": lambda at=at: torch.sum(x, *at),
            f"mean {named}": lambda at=at: torch.mean(x, *at),
            f"var {named}": lambda at=at: torch.var(x, *at),
            f"amax {named}": lambda at=at: torch.amax(x, *at),
            f"argmax {named}": lambda at=at: torch.argmax(x, *at),
        }
    return found


def movement(torch, given, shape, images):
    functional = torch.nn.functional
    x, y, pixels = given.normal(*shape), given.normal(*shape), given.normal(*images)
    width = min(64, shape[1])
    table = given.normal(1000, width, grad=True)
    ids = given.integers(1000, shape[0] * shape[1] // width)

    def dropout():
        torch.manual_seed(3)
        return functional.dropout(x, 0.2)

    def look_up(table):
        return functional.embedding(ids, table)

    def pool(x):
        return functional.max_pool2d(x, 2)

    return {
        "transposed copy": lambda: x.t().contiguous(),
        "cat dim 0": lambda: torch.cat((x, y)), "cat dim 1": lambda: torch.cat((x, y), 1),
        "embedding": lambda: look_up(table).detach(), "max_pool2d": lambda: pool(pixels),
        "dropout": dropout,
        "embedding fb": lambda: forward_backward(torch, look_up, (table,)),
        "max_pool2d fb": lambda: forward_backward(torch, pool, (given.normal(*images, grad=True),)),
    }


FAMILIES = {"elementwise": elementwise, "rows": rows, "reduce": reductions, "move": movement}


def sized(torch, family, name, size):
    """A case of a family: those with backward are built only when asked for."""
    function, (shape, images) = FAMILIES[family], SIZES[size]
    more = (images,) if family in ("rows", "move") else ()
    run = function(torch, Given(torch), shape, *more)[name]
    return run() if name.endswith(" fb") else run


class _Names:
    """Stands for a library where only the names of cases are wanted."""

    shape = (1, 1, 1, 1)

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return self

    def __gt__(self, other):
        return self

    def __add__(self, other):
        return self


def family(name):
    stand_in, (shape, images) = _Names(), SIZES["10k"]
    more = (images,) if name in ("rows", "move") else ()
    cases = FAMILIES[name](stand_in, stand_in, shape, *more)
    return {f"{case} {size}": functools.partial(sized, family=name, name=case, size=size)
            for case, size in itertools.product(cases, SIZES)}


# -- optimizers -------------------------------------------------------------------------------


def parameters(torch, count, size):
    given = Given(torch)
    found = [given.normal(size, grad=True) for _ in range(count)]
    for p in found:
        p.grad = given.normal(size)
    return found


def step(torch, name, count, size, **options):
    params = parameters(torch, count, size)
    optimizer = getattr(torch.optim, name)(params, **options)

    def run():
        optimizer.step()
        return params[:3]
    return run


def clip_norm(torch):
    params = parameters(torch, 200, 256)
    clip = torch.nn.utils.clip_grad_norm_
    return lambda: (clip(params, 1.0), *[p.grad for p in params[:3]])


def clip_value(torch):
    params = parameters(torch, 200, 256)
    clip = torch.nn.utils.clip_grad_value_

    def run():
        clip(params, 0.5)
        return [p.grad for p in params[:3]]
    return run


def zero_grad(torch):
    params = parameters(torch, 200, 256)
    optimizer = torch.optim.SGD(params, lr=0.1)

    def run():
        optimizer.zero_grad(set_to_none=False)
        return [p.grad for p in params[:3]]
    return run


def optimizers():
    many, one = {"count": 200, "size": 256}, {"count": 1, "size": 10_000_000}
    make = functools.partial
    return {
        "Adam 200 of 256": make(step, name="Adam", **many),
        "AdamW 200 of 256": make(step, name="AdamW", **many),
        "SGD 200 of 256": make(step, name="SGD", lr=0.01, **many),
        "SGD momentum 200 of 256": make(step, name="SGD", lr=0.01, momentum=0.9, **many),
        "RMSprop 200 of 256": make(step, name="RMSprop", **many),
        "Adagrad 200 of 256": make(step, name="Adagrad", **many),
        "Adam 1 of 10M": make(step, name="Adam", **one),
        "SGD momentum 1 of 10M": make(step, name="SGD", lr=0.01, momentum=0.9, **one),
        "clip_grad_norm_ 200 of 256": clip_norm,
        "clip_grad_value_ 200 of 256": clip_value,
        "zero_grad 200 of 256": zero_grad,
    }


# -- random, sorting, recurrent ---------------------------------------------------------------


def drawn(torch, name):
    n = 1_000_000
    x = Given(torch).normal(n)
    draw = {
        "rand": lambda: torch.rand(n), "randn": lambda: torch.randn(n),
        "randint": lambda: torch.randint(0, 1000, (n,)),
        "bernoulli": lambda: torch.empty(n).bernoulli_(0.3),
        "dropout": lambda: torch.nn.functional.dropout(x, 0.5),
    }[name]

    def run():
        torch.manual_seed(11)
        return draw()
    return run


def draws():
    return {f"{name} 1M": functools.partial(drawn, name=name)
            for name in ("rand", "randn", "randint", "bernoulli", "dropout")}


def ordered(torch, name):
    given = Given(torch)
    x = given.shuffled(*((4096, 4096) if "4096" in name else (1_000_000,)))
    whole, mask = given.integers(100_000, 1_000_000), x > 300_000
    return {
        "sort 1M": lambda: torch.sort(x), "argsort 1M": lambda: torch.argsort(x),
        "topk 100 of 1M": lambda: torch.topk(x, 100), "unique 1M": lambda: torch.unique(whole),
        "mask 1M": lambda: x[mask], "cumsum 1M": lambda: torch.cumsum(x, 0),
        "cumsum 4096x4096": lambda: torch.cumsum(x, 1),
        "sort 4096x4096": lambda: torch.sort(x),
        "topk 10 of 4096x4096": lambda: torch.topk(x, 10),
        "transposed copy 4096x4096": lambda: x.t().contiguous(),
    }[name]


def orders():
    names = ("sort 1M", "argsort 1M", "topk 100 of 1M", "unique 1M", "mask 1M", "cumsum 1M",
             "cumsum 4096x4096", "sort 4096x4096", "topk 10 of 4096x4096",
             "transposed copy 4096x4096")
    return {name: functools.partial(ordered, name=name) for name in names}


def lstm(torch):
    torch.manual_seed(1)
    given, layer = Given(torch), torch.nn.LSTM(200, 200, 2)
    x = given.normal(35, 20, 200, grad=True)
    run = forward_backward(torch, lambda x: layer(x)[0], (x,))

    def step():
        layer.zero_grad()
        return (*run(), *[p.grad for p in layer.parameters()])
    return step


# -- groups -----------------------------------------------------------------------------------

ROUNDING = 2e-5  # the error allowed beside the largest value of a tensor


class Group:
    """Cases with a target: the least ratio of any, and of their geometric mean."""

    def __init__(self, cases, least=0.0, mean=0.0, targets=None, tolerance=ROUNDING):
        self.cases, self.least, self.mean = cases, least, mean
        self.targets = targets or {}  # the least ratio of single cases
        self.tolerance = tolerance


GROUPS = {
    "matmul":      Group(products(WIDE, ("nn", "nt", "tn", "tt")), 0.92, 1.0),
    "small":       Group(products(SMALL, ("nn",)), 0.0, 1.5),
    "conv":        Group(convolutions(), 0.85, 1.3),
    "pool":        Group(poolings(), 5.0, 5.0),
    "attention":   Group(attentions(), 0.0, 1.3),
    "elementwise": Group(family("elementwise"), 0.95, 2.0),
    "rows":        Group(family("rows"), 0.95, 2.0),
    "reduce":      Group(family("reduce"), 0.95, 2.0),
    "move":        Group(family("move"), 0.95, 2.0),
    "optimizer":   Group(optimizers(), 1.0, 1.0, {
        "Adam 200 of 256": 20, "Adam 1 of 10M": 1.2, "clip_grad_norm_ 200 of 256": 10,
        "zero_grad 200 of 256": 10}),
    "random":      Group(draws(), 2.0, 2.0),
    "sort":        Group(orders(), 1.0, 2.0),
    "lstm":        Group({"LSTM 2 x 200, T 35, batch 20": lstm}, 1.2, 1.2),
}  # fmt: skip

# Groups whose geometric means are promised together.
TOGETHER = {("elementwise", "rows", "reduce", "move"): 2.0}


def find(name: str):
    """The case called so, in whatever group."""
    for group in GROUPS.values():
        if name in group.cases:
            return group.cases[name]
    raise KeyError(name)
