"""x86 without fused products, conversions of half precision or wide vectors: the same results."""

import ctypes
import math
import os
import platform
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import flambeau as torch
from flambeau.devices.cpu.bridge import jit
from flambeau.devices.cpu.lacking import completed
from flambeau.devices.cpu.linker import _library
from flambeau.devices.cpu.processor import Processor, identity

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86")

_FEATURES = ("64bit", "cmov", "crc32", "cx16", "cx8", "fxsr", "mmx", "popcnt", "sahf", "sse",
             "sse2", "sse3", "sse4.1", "sse4.2", "ssse3")
_OLD = "+" + ",+".join(_FEATURES) + ",-avx,-avx2,-avx512f,-f16c,-fma"

_IR = """
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare <2 x double> @llvm.fma.v2f64(<2 x double>, <2 x double>, <2 x double>)
declare float @llvm.fma.f32(float, float, float)
define void @old_f32(ptr %a, ptr %b, ptr %c, ptr %o) {
  %x = load <4 x float>, ptr %a, align 4
  %y = load <4 x float>, ptr %b, align 4
  %z = load <4 x float>, ptr %c, align 4
  %r = call <4 x float> @llvm.fma.v4f32(<4 x float> %x, <4 x float> %y, <4 x float> %z)
  store <4 x float> %r, ptr %o, align 4
  %x0 = extractelement <4 x float> %x, i32 0
  %y0 = extractelement <4 x float> %y, i32 0
  %r0 = call float @llvm.fma.f32(float %x0, float %y0, float 1.0)
  %p = getelementptr float, ptr %o, i64 4
  store float %r0, ptr %p
  ret void
}
define void @old_f64(ptr %a, ptr %b, ptr %c, ptr %o) {
  %x = load <2 x double>, ptr %a, align 8
  %y = load <2 x double>, ptr %b, align 8
  %z = load <2 x double>, ptr %c, align 8
  %r = call <2 x double> @llvm.fma.v2f64(<2 x double> %x, <2 x double> %y, <2 x double> %z)
  store <2 x double> %r, ptr %o, align 8
  ret void
}
define void @old_wider(ptr %a, ptr %o) {
  %x = load <8 x half>, ptr %a, align 2
  %r = fpext <8 x half> %x to <8 x float>
  store <8 x float> %r, ptr %o, align 4
  ret void
}
define void @old_narrower(ptr %a, ptr %o) {
  %x = load <8 x float>, ptr %a, align 4
  %r = fptrunc <8 x float> %x to <8 x half>
  store <8 x half> %r, ptr %o, align 2
  %first = load float, ptr %a
  %one = fptrunc float %first to half
  store half %one, ptr %o, align 2
  ret void
}
"""


def _old() -> Processor:
    return jit().linker.processor._replace(cpu="nehalem", features=_OLD)


@pytest.fixture(scope="module")
def functions():
    llvm = jit().llvm
    jit().machine
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu="nehalem", features=_OLD, opt=2, codemodel="jitdefault", jit=True)
    module = llvm.parse_assembly(completed(_IR, _old()))
    module.verify()
    code = machine.emit_object(module)
    assert b"fmaf" not in code and b"hfsf2" not in code and b"sfhf2" not in code
    names = "old_f32", "old_f64", "old_wider", "old_narrower"
    return dict(zip(names, jit().load(code, *names), strict=True))


def _run(address: int, *arrays) -> None:
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(address)(
        *(a.ctypes.data for a in arrays))


def _exact(a, b, c, dtype):
    """a * b + c, rounded once."""
    total = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = dtype(float(total))
    beside = [np.nextafter(near, dtype(-math.inf)), near, np.nextafter(near, dtype(math.inf))]
    return min(beside, key=lambda v: abs(Fraction(float(v)) - total))


@pytest.mark.parametrize("name, dtype, lanes", [("old_f32", np.float32, 4),
                                                ("old_f64", np.float64, 2)])
def test_a_product_and_a_sum_are_rounded_once(functions, name, dtype, lanes):
    random = np.random.default_rng(0)
    for trial in range(300):
        a, b = (random.standard_normal(lanes).astype(dtype) for _ in range(2))
        c = -(a * b) if trial % 3 == 0 else random.standard_normal(lanes).astype(dtype)
        out = np.empty(lanes + 1, dtype)
        _run(functions[name], a, b, c, out)
        for k in range(lanes):
            assert out[k] == _exact(a[k], b[k], c[k], dtype)
        if lanes == 4:
            assert out[4] == _exact(a[0], b[0], 1.0, dtype)


@pytest.mark.parametrize("name, dtype, lanes", [("old_f32", np.float32, 4),
                                                ("old_f64", np.float64, 2)])
def test_what_is_not_finite_or_nothing(functions, name, dtype, lanes):
    most, inf, nan = np.finfo(dtype).max, math.inf, math.nan
    for a, b, c, want in ((inf, 1, 1, inf), (inf, 0, 1, nan), (inf, 1, -inf, nan),
                          (1, 2, -inf, -inf), (most, 2, 0, inf), (most, 1, 0, most),
                          (most, 0.5, -most, -most / 2),
                          (-0.0, 1, -0.0, -0.0), (0.0, 1, -0.0, 0.0), (nan, 1, 1, nan)):
        out = np.empty(lanes + 1, dtype)
        _run(functions[name], *(np.full(lanes, v, dtype) for v in (a, b, c)), out)
        assert out[0] == want or (math.isnan(want) and math.isnan(out[0])), (a, b, c)
        assert math.copysign(1, out[0]) == math.copysign(1, want) or math.isnan(want)


def test_every_number_of_half_precision(functions):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide, back = np.empty(1 << 16, np.float32), np.empty(1 << 16, np.float16)
    for k in range(0, 1 << 16, 8):
        _run(functions["old_wider"], halves[k:], wide[k:])
        _run(functions["old_narrower"], wide[k:], back[k:])
    whole = ~np.isnan(halves)
    assert np.array_equal(wide[whole], halves[whole].astype(np.float32))
    assert np.array_equal(back[whole].view(np.uint16), halves[whole].view(np.uint16))
    assert np.isnan(wide[~whole]).all() and np.isnan(back[~whole]).all()


def test_numbers_between_those_of_half_precision(functions):
    halves = np.arange(0x7c00, dtype=np.uint16).view(np.float16).astype(np.float64)
    between = (halves[1:] + halves[:-1]) / 2
    given = np.concatenate([np.nextafter(between.astype(np.float32), np.float32(side))
                            for side in (-1, 1e9)] + [between.astype(np.float32)])
    given = np.concatenate([given, -given, np.float32([65519, 65520, 1e9, math.inf, 1e-9, 1e-40])])
    given = np.concatenate([given, np.zeros(-len(given) % 8, np.float32)])
    found = np.empty(len(given), np.float16)
    for k in range(0, len(given), 8):
        _run(functions["old_narrower"], given[k:], found[k:])
    with np.errstate(over="ignore"):
        assert np.array_equal(found.view(np.uint16), given.astype(np.float16).view(np.uint16))


_PROGRAM = """
import flambeau as torch
from flambeau.nn import functional as F

torch.manual_seed(0)
x, w = torch.randn(7, 3, 9, 9, dtype=torch.DTYPE), torch.randn(6, 3, 3, 3, dtype=torch.DTYPE)
x.requires_grad_(), w.requires_grad_()
y = F.gelu(F.conv2d(x, w)).flatten(1)
z = (y @ y.T).softmax(1).exp() + torch.sin(y.sum(1)) + torch.remainder(y.sum(1), 0.7)
(z.square().mean() + F.layer_norm(y, y.shape[1:]).tanh().sum()).backward()
print([t.float().sum().item() for t in (y, z, x.grad, w.grad, w.grad.half(), x.half().bfloat16())])
from flambeau.devices.cpu.bridge import jit
print(jit().cpu, jit().bits)
"""


@pytest.mark.skipif(sys.platform != "linux" or identity(_library()) is None, reason="reads /proc")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_process_on_an_older_processor(dtype, tmp_path, monkeypatch):
    """What is kept of the processor says that it is an older one."""
    from flambeau.devices.cpu.cache import Cache

    monkeypatch.setenv("FLAMBEAU_CACHE", str(tmp_path))
    kept = Cache("processor")
    kept.put(kept.key(identity(_library())), "\n".join(_old()).encode())
    done = subprocess.run([sys.executable, "-c", _PROGRAM.replace("DTYPE", dtype)],
                          capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr
    numbers, said = done.stdout.splitlines()
    assert said == "nehalem 128"
    found: list = []
    exec(_PROGRAM.replace("DTYPE", dtype), {"print": lambda *said: found.append(said)})
    torch.testing.assert_close(torch.tensor(eval(numbers)), torch.tensor(found[0][0]),
                               rtol=1e-3, atol=1e-3)
