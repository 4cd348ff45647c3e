"""Object code into the process: by our own loader where it can, by LLVM's linker where not."""

import ctypes
import itertools
import os
import platform
import subprocess
import sys

import pytest

import flambeau as torch
from flambeau.devices.cpu.bridge import jit
from flambeau.devices.cpu.elf import Loader, Unfit, sections_of
from flambeau.devices.cpu.relocations import MACHINES

ours = pytest.mark.skipif(
    platform.machine() not in MACHINES or sys.platform != "linux",
    reason="objects of another form")

_IR = """
@table = global [2 x i64] [i64 5, i64 7]
@zeros = global [100 x i64] zeroinitializer
@third = constant double 0x3FD5555555555555
@self = global ptr @LOAD_add
declare double @fmod(double, double)

define i64 @LOAD_add(i64 %x) {
  %at = getelementptr i64, ptr @table, i64 1
  %y = load i64, ptr %at
  %z = add i64 %x, %y
  store i64 %z, ptr @zeros
  ret i64 %z
}

define double @LOAD_rest(double %x) {
  %third = load double, ptr @third
  %r = call double @fmod(double %x, double %third)
  ret double %r
}
"""


def compiled(name: str, more: str = "") -> bytes:
    """The object code of those functions, under names of their own."""
    return jit().compile(_IR.replace("LOAD", name) + more)


def called(address: int, kind, x):
    return ctypes.CFUNCTYPE(kind, kind)(address)(x)


@ours
def test_functions_variables_and_constants():
    found = Loader(jit().linker.find).load(compiled("one"))
    assert called(found["one_add"], ctypes.c_int64, 4) == 11
    assert ctypes.c_int64.from_address(found["zeros"]).value == 11
    assert called(found["one_rest"], ctypes.c_double, 1.0) == pytest.approx(1.0 % (1 / 3))
    assert ctypes.c_int64.from_address(found["self"]).value == found["one_add"]


@ours
def test_code_is_not_written_once_it_runs():
    found = Loader(jit().linker.find).load(compiled("two"))
    with open("/proc/self/maps") as file:
        rows = [line.split()[:2] for line in file]
    for place, rights in rows:
        low, high = (int(end, 16) for end in place.split("-"))
        if low <= found["two_add"] < high:
            assert rights == "r-xp"
        if low <= found["table"] < high:
            assert rights == "rw-p"


def test_objects_of_another_form():
    for code in (b"", b"MZ" + bytes(200), b"\x7fELF\x02\x02\x01" + bytes(200),
                 b"\x7fELF\x02\x01\x01" + bytes(200), bytes(64)):
        for machine in MACHINES.values():
            with pytest.raises(Unfit):
                sections_of(code, machine)


# -- code of AArch64, which is followed here and not run ------------------------------------------

_ARM = """
@far = external global i64
@own = global [3 x i64] [i64 5, i64 7, i64 9]
@self = global ptr @steps
declare i64 @away(i64)
define i64 @near(i64 %x) noinline {
  %y = add i64 %x, 1
  ret i64 %y
}
define i64 @steps(i64 %x) {
  %a = call i64 @near(i64 %x)
  %b = call i64 @away(i64 %a)
  %c = load i64, ptr @far
  %at = getelementptr i64, ptr @own, i64 2
  %d = load i64, ptr %at
  %e = add i64 %b, %c
  %f = add i64 %d, %e
  %g = load i64, ptr @third
  %h = add i64 %f, %g
  ret i64 %h
}
@third = dso_local constant i64 3
"""


def of_aarch64(text: str) -> bytes:
    """The object code of a module."""
    llvm = jit().llvm
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(
        opt=2, codemodel="jitdefault", jit=True)
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    return target.emit_object(module)


def word(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def long(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def followed(at: int) -> tuple[list[int], list[int]]:
    """Where instructions up to a return call to, and what addresses they make or look up."""
    calls, made, pages, found = list[int](), dict[int, int](), dict[int, int](), list[int]()
    for place in itertools.count(at, 4):
        told = word(place)
        to, source = told & 31, told >> 5 & 31
        if told == 0xd65f03c0:
            return calls, found + list(made.values())
        if told >> 26 == 0b100101:
            called = place + 4 * signed(told & 0x3ffffff, 26)
            # Far away it goes through an entry: ldr x16, 8 bytes on; br x16.
            calls.append(long(called + 8) if word(called) == 0x58000050 else called)
        elif told >> 23 in (0b110100101, 0b111100101):      # movz, movk
            shift = 16 * (told >> 21 & 3)
            before = made.get(to, 0) if told >> 23 == 0b111100101 else 0
            made[to] = (before & ~(0xffff << shift)) | (told >> 5 & 0xffff) << shift
        elif told >> 31 and told >> 24 & 31 == 0b10000:     # adrp
            number = signed((told >> 5 & 0x7ffff) << 2 | told >> 29 & 3, 21)
            pages[to] = (place & ~0xfff) + (number << 12)
        elif told >> 22 == 0b1111100101 and source in pages:
            found.append(long(pages.pop(source) + 8 * (told >> 10 & 0xfff)))
    raise AssertionError


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "mprotect"), reason="pages of POSIX")
def test_code_of_another_processor_knows_its_addresses(monkeypatch):
    monkeypatch.setattr("flambeau.devices.cpu.elf.forgetting", lambda _: lambda *_: None)
    outside = {"far": 0x7fff_1234_5678, "away": 0x5555_0000_4444}
    found = Loader(outside.get, MACHINES["aarch64"]).load(of_aarch64(_ARM))
    calls, seen = followed(found["steps"])
    assert calls == [found["near"], outside["away"]]
    assert set(seen) == {outside["far"], found["own"], found["third"]}
    assert long(found["self"]) == found["steps"]


@ours
def test_what_uses_something_unknown_is_left_to_llvm():
    more = "\ndeclare i64 @flambeau_nobody_knows_this()\ndefine i64 @three_more() {\n" \
           "  %x = call i64 @flambeau_nobody_knows_this()\n  ret i64 %x\n}\n"
    with pytest.raises(Unfit):
        Loader(jit().linker.find).load(compiled("three", more))


def test_llvm_links_the_same_code():
    """And code that it links calls what was loaded before."""
    linker = jit().linker
    code = compiled("four")
    add, rest = linker._linked(code, ("four_add", "four_rest"))
    assert called(add, ctypes.c_int64, 4) == 11
    assert called(rest, ctypes.c_double, 1.0) == pytest.approx(1.0 % (1 / 3))


def second_time(program: str) -> list[str]:
    """The words that a process says which finds all code on disk."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert done.returncode == 0, done.stderr
    return done.stdout.split()


@ours
def test_a_process_without_our_loader():
    program = """
import flambeau as torch
from flambeau.devices.cpu.bridge import jit
if not {ours}:
    jit().linker._loader = None
x = torch.arange(12.0).view(3, 4).requires_grad_()
@torch.compile
def f(x):
    return torch.tanh(x @ x.T).sum()
for _ in range(3):
    x.grad = None
    f(x).backward()
print(x.grad.sum().item(), "engine" in vars(jit().linker))
"""
    said = [second_time(program.format(ours=mine)) for mine in (True, False)]
    assert said[0][0] == said[1][0]
    assert [engine for _, engine in said] == ["False", "True"]


def test_much_code_is_few_pieces_of_memory():
    from flambeau.devices.cpu.linker import pieces

    if sys.platform != "linux":
        pytest.skip("reads /proc")
    torch.ones(3, 5) * 2
    before = pieces()
    for n in range(20):
        torch.compile(lambda x, n=n: (x * n + n).tanh().sum(), fullgraph=True)(torch.ones(2, 3))
    if jit().linker._loader is not None:
        assert pieces() - before < 30


# -- what is known of the processor --------------------------------------------------------------

@ours
def test_llvm_stays_away_where_all_code_is_on_disk():
    program = """
import sys
import flambeau as torch
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=.1)
@torch.compile(fullgraph={fullgraph})
def step(x):
    optimizer.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    optimizer.step()
    return loss
for _ in range(3):
    step(torch.ones(5, 3))
maps = open("/proc/self/maps").read()
print("libllvmlite" in maps, "libcrypto" in maps, "numpy" in sys.modules)
"""
    for fullgraph in (False, True):
        assert second_time(program.format(fullgraph=fullgraph)) == ["False"] * 3


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Who is the processor here, as a fake LLVM says; and how often that was asked."""
    from flambeau.devices.cpu import processor

    library, cpuinfo = tmp_path / "llvm.so", tmp_path / "cpuinfo"
    library.write_bytes(b"LLVM")
    cpuinfo.write_text("processor: 0\nmodel: 7\ncpu MHz: 1\nflags: avx2 fma\n")
    monkeypatch.setenv("FLAMBEAU_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(processor, "_CPUINFO", str(cpuinfo))
    answers: list = []

    def answer():
        answers.append(processor.Processor("20.1", "x86_64", f"zen{len(answers)}", "+avx2,-fma"))
        return answers[-1]

    def ask(path=str(library)):
        return processor.known(path, answer).cpu

    ask.library, ask.cpuinfo, ask.kernels = library, cpuinfo, tmp_path / "kernels"
    return ask


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_a_processor_is_asked_for_once(asked):
    assert [asked(), asked(), asked()] == ["zen0"] * 3
    asked.cpuinfo.write_text("processor: 1\nmodel: 7\ncpu MHz: 2\nflags: avx2 fma\n")
    assert asked() == "zen0"


@linux
def test_another_processor_or_another_llvm_is_asked_for_again(asked):
    assert asked() == "zen0"
    same = asked.cpuinfo.read_text()
    asked.cpuinfo.write_text(same.replace("fma", "fma avx512f"))
    assert [asked(), asked()] == ["zen1"] * 2
    asked.cpuinfo.write_text(same)
    assert asked() == "zen0"
    asked.library.write_bytes(b"LLVM of another version")
    assert [asked(), asked()] == ["zen2"] * 2


@linux
def test_what_is_kept_of_a_processor_is_not_believed_when_damaged(asked):
    assert asked() == "zen0"
    (entry,) = asked.kernels.iterdir()
    entry.write_bytes(entry.read_bytes().replace(b"zen0", b"zen9"))
    assert [asked(), asked()] == ["zen1"] * 2


@linux
def test_where_nothing_is_known_of_a_processor_llvm_is_asked_each_time(asked):
    assert [asked(None), asked(None)] == ["zen0", "zen1"]
    asked.cpuinfo.write_text("processor: 0\nhart: 0\n")
    assert [asked(), asked()] == ["zen2", "zen3"]
    asked.cpuinfo.unlink()
    assert asked() == "zen4"
    assert not list(asked.kernels.glob("*"))


# -- other systems, as far as that can be seen from here -----------------------------------------


def test_the_c_library_of_windows(monkeypatch):
    from flambeau.devices.cpu import clibrary

    here = ctypes.CDLL(None) if sys.platform != "win32" else ctypes.CDLL("ucrtbase")

    class Library:
        def __init__(self, name):
            self.__dict__.update({"ucrtbase": {"exp": here.exp, "_hypotf": here.hypotf},
                                  "msvcrt": {"memset": here.memset},
                                  "ntdll": {"__chkstk": here.abs}}[name])

    want = {"exp": here.exp, "hypotf": here.hypotf, "memset": here.memset, "__chkstk": here.abs}
    monkeypatch.setattr(clibrary.sys, "platform", "win32")
    monkeypatch.setattr(clibrary.ctypes, "CDLL", Library)
    found = dict(clibrary.c_functions())
    assert found == {k: ctypes.cast(v, ctypes.c_void_p).value for k, v in want.items()}


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx14.0",
                                    "x86_64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"])
def test_the_pool_of_threads_on_other_machines(triple):
    """A clock is read wherever one is known, each time anew, and jobs are opened and left by
    instructions that order memory."""
    from flambeau.devices.cpu.thread_text import pool_text

    llvm = jit().llvm
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(opt=2)
    module = llvm.parse_assembly(pool_text(triple, "linux" in triple))
    module.triple = target.triple
    module.verify()
    text = target.emit_assembly(module)
    if triple.startswith(("aarch64", "arm64")):
        assert text.count("CNTVCT_EL0") >= 3 and "CNTFRQ_EL0" in text and "\tisb" in text
        assert "ldar\t" in text and "stlr\t" in text
    elif triple.startswith("x86_64"):
        assert "rdtsc" in text and "pause" in text
    else:
        assert "fence" in text
