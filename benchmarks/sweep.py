"""Every op of torch's own test database beside torch's: which are slower, and by how much.

    python benchmarks/sweep.py                                small samples, there and back
    python benchmarks/sweep.py --only linalg --size 24        ops by a pattern, and larger samples
    python benchmarks/sweep.py --layout sliced --dtype bfloat16 --form inplace_variant
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import sys

import duel

#: sizes that torch's samples are made of, as multiples of the one asked for
SIZES = {"XS": 0.25, "S": 1, "M": 1.5, "L": 2}


@functools.cache
def database(size: int) -> dict:
    """torch's ops by name; their samples are made of dimensions of about `size`."""
    import torch.testing._internal.common_methods_invocations as methods

    if size:
        for name, module in list(sys.modules.items()):
            if name.startswith("torch.testing._internal"):
                for letter, times in SIZES.items():
                    if isinstance(getattr(module, letter, None), int):
                        setattr(module, letter, int(size * times))
    return {f"{op.name}/{op.variant_test_name}".rstrip("/"): op for op in methods.op_db}


@functools.lru_cache(maxsize=2)
def samples(key: str, size: int, dtype: str, layout: str, back: bool) -> list:
    """Samples of an op: the first of each number of dimensions, strided as asked."""
    import torch

    op, kind = database(size)[key], getattr(torch, dtype)
    if kind not in (op.supported_backward_dtypes("cpu") if back else op.supported_dtypes("cpu")):
        return []
    torch.manual_seed(0)
    found, seen = [], set()
    for sample in op.sample_inputs_func(op, "cpu", kind, back):
        shapes = tuple(t.shape for t in tensors((sample.input, sample.args, sample.kwargs), torch))
        if not any(0 in shape for shape in shapes) and tuple(map(len, shapes)) not in seen:
            seen.add(tuple(map(len, shapes)))
            found.append(sample.transform(functools.partial(laid_out, layout=layout)))
    return found[:4]


def laid_out(x, layout: str):
    import torch

    if not isinstance(x, torch.Tensor) or x.dim() < 2 or layout == "plain":
        return x
    values = x.detach()
    if layout == "transposed":
        found = values.movedim(0, -1).contiguous().movedim(-1, 0)
    elif layout == "sliced":
        wide = values.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))
        found = wide[..., ::2].copy_(values)
    else:  # channels_last
        found = values.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else values
    return found.requires_grad_(x.requires_grad)


def tensors(value, lib) -> list:
    if isinstance(value, lib.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [t for v in value for t in tensors(v, lib)] if isinstance(value, (list, tuple)) else []


def given(value, lib):
    """What torch's sample holds, as the library's own: tensors with their strides, dtypes."""
    import torch

    if lib is torch:
        return value
    if isinstance(value, torch.Tensor):
        plain, half = value.detach(), value.dtype is torch.bfloat16
        memory = plain.as_strided((plain.untyped_storage().nbytes() // plain.element_size(),), (1,),
                                  0)
        made = lib.from_numpy((memory.float() if half else memory).numpy().copy())
        made = made.to(lib.bfloat16) if half else made
        made = made.as_strided(tuple(value.shape), value.stride(), value.storage_offset())
        return made.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)([given(v, lib) for v in value])
    if isinstance(value, dict):
        return {name: given(v, lib) for name, v in value.items()}
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return getattr(lib, str(value).rpartition(".")[2])
    return value


def find(name: str):
    """A case by the JSON that says which."""
    asked = json.loads(name)

    def build(lib):
        sample = samples(*asked["samples"])[asked["index"]]
        op = database(asked["samples"][1])[asked["samples"][0]]
        args, named = given((sample.input, *sample.args), lib), given(sample.kwargs, lib)
        path = op.name if asked["form"] == "op" else f"Tensor.{op.name}_"
        function = functools.reduce(getattr, path.split("."), lib)

        def there():
            function(*args, **named)
            return ()

        leaves = [t for t in tensors((args, named), lib) if t.requires_grad]
        outs = tensors(function(*args, **named), lib) if leaves else ()
        slopes = [lib.ones_like(t) for t in outs]

        def back():
            outs = tensors(function(*args, **named), lib)
            lib.autograd.backward(outs, slopes[:len(outs)])
            for x in leaves:
                x.grad = None
            return ()
        return back if leaves else there
    return build


def cases(options) -> list[str]:
    ways = [False, True] if options.dtype in ("float32", "float64") and (
        options.form == "op") else [False]
    found = []
    for key, op in database(options.size).items():
        if not re.search(options.only, key) or getattr(op, options.form) is None:
            continue
        for back in ways:
            asked = (key, options.size, options.dtype, options.layout, back)
            try:
                count = len(samples(*asked))
            except Exception:
                continue  # torch's own samples do not suit every size
            found += [json.dumps({"samples": asked, "index": k, "form": options.form})
                      for k in range(count)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a pattern that names of ops hold")
    parser.add_argument("--size", type=int, default=0, help="of dimensions; 0 is torch's own")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--layout", default="plain",
                        choices=("plain", "transposed", "sliced", "channels_last"))
    parser.add_argument("--form", default="op", choices=("op", "inplace_variant"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        duel.serve(options.serve, options.threads, find)
        return 0
    found = []
    for result in duel.duel(__file__, cases(options), options.threads, 3, 0.004, math.inf):
        asked = json.loads(result.name)
        key, *_, back = asked["samples"]
        result.name = f"{key} #{asked['index']}{' and back' if back else ''}"
        if math.isfinite(result.flambeau):
            found.append(result)
        elif result.fault:
            print(f"{result.name}: {result.fault}", file=sys.stderr)
    slower = sorted((r for r in found if r.ratio < 1), key=lambda r: r.ratio)
    for result in slower:
        print(duel.line_of(result, 60))
    print(f"{len(found)} cases, geometric mean "
          f"{duel.geometric_mean(r.ratio for r in found):.2f}, slower than torch {len(slower)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
