"""Half precision beside float32, one thread: products, convolutions, attention, there and back.

    python benchmarks/half_precision.py [part of a name ...]

Prints how fast each is where float32 is 1; none may be under 0.5, with or without instructions for
it in the CPU.
"""

import sys
import time

import flambeau as torch
import flambeau.nn.functional as F

LEAST, SECONDS = 0.5, 0.15
r = torch.randn

#: name -> what is called, shapes of its inputs
CASES = {
    **{f"mm {n}": (torch.mm, (n, n), (n, n)) for n in (32, 128, 512)},
    "mm of a row":        (torch.mm, (1, 1024), (1024, 1024)),
    "mm, tall":           (torch.mm, (4096, 64), (64, 64)),
    "mm, transposed":     (lambda x, y: x @ y.t(), (256, 512), (256, 512)),
    "bmm":                (torch.bmm, (16, 64, 64), (16, 64, 64)),
    "matmul of heads":    (torch.matmul, (4, 8, 64, 32), (4, 8, 32, 64)),
    "linear":             (F.linear, (64, 512), (512, 512), (512,)),
    "linear, small":      (F.linear, (8, 32), (32, 32), (32,)),
    "addmm":              (torch.addmm, (512,), (128, 256), (256, 512)),
    "conv1d":             (F.conv1d, (4, 32, 256), (64, 32, 3)),
    "conv2d 3x3":         (F.conv2d, (4, 32, 32, 32), (64, 32, 3, 3)),
    "conv2d 1x1":         (F.conv2d, (4, 64, 32, 32), (128, 64, 1, 1)),
    "conv2d 7x7 in twos": (lambda x, w: F.conv2d(x, w, None, 2, 3), (4, 3, 64, 64), (64, 3, 7, 7)),
    "conv2d, depthwise":  (lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 64), (4, 64, 32, 32),
                           (64, 1, 3, 3)),
    "conv3d":             (F.conv3d, (1, 8, 16, 16, 16), (16, 8, 3, 3, 3)),
    "conv_transpose2d":   (lambda x, w: F.conv_transpose2d(x, w, None, 2), (4, 32, 16, 16),
                           (32, 32, 2, 2)),
    "attention":          (F.scaled_dot_product_attention, *[(2, 8, 128, 64)] * 3),
    "attention, causal":  (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                           *[(2, 8, 256, 32)] * 3),
    "attention, small":   (F.scaled_dot_product_attention, *[(2, 4, 16, 16)] * 3),
}  # fmt: skip


def best(call):
    """Seconds of the best call among many."""
    call()
    least, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - began)
    return least


def both_ways(function):
    def run(*given):
        given = [x.detach().requires_grad_() for x in given]
        function(*given).sum().backward()

    return run


def main(wanted):
    torch.set_num_threads(1)
    slow = []
    print(f"{'':20}{'bf16':>8}{'f16':>8}{'bf16, both ways':>18}{'f16, both ways':>16}")
    for name, (function, *shapes) in CASES.items():
        if wanted and not any(word in name for word in wanted):
            continue
        given, rates = [r(*shape) for shape in shapes], []
        for run in (function, both_ways(function)):
            for dtype in (torch.bfloat16, torch.float16):
                halves = [x.to(dtype) for x in given]
                once = [best(lambda x=x, run=run: run(*x)) for x in (given, halves, given)]
                rates.append(min(once[0], once[2]) / once[1])
        slow += [name] if min(rates) < LEAST else []
        print(f"{name:20}{rates[0]:8.2f}{rates[1]:8.2f}{rates[2]:18.2f}{rates[3]:16.2f}")
    return f"slower than half of float32: {', '.join(slow)}" if slow else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
