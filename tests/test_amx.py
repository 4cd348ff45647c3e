"""Products of bfloat16 by tiles: the loops around AMX, run with its instructions done by others."""

import ctypes
import functools
import itertools
import mmap
import platform
import re
import struct
import sys

import numpy as np
import pytest

import flambeau
from flambeau.devices.cpu.bridge import jit
from flambeau.devices.cpu.matmul import amx, host, kernels, product
from flambeau.devices.cpu.matmul.block import HERE, SHARED, W
from flambeau.devices.cpu.matmul.host import Tile
from flambeau.devices.cpu.matmul.product import Cut, Matrix, Product
from flambeau.devices.cpu.matmul.text import Code, module

RNG = np.random.default_rng(11)
NAN = 0x7FC0

#: how many blocks have tiles, and the configuration that the last one gave them
STATE = (ctypes.c_int64 * 9)()


class Emulated(amx.Registers):
    """Tiles in memory. They have the shapes they were given, and none outside a block."""

    def __init__(self, w):
        super().__init__(w)
        self.memory = w.emit("alloca [8192 x i8], align 64")
        self.state = f"inttoptr (i64 {ctypes.addressof(STATE)} to ptr)"

    def configure(self):
        for i, word in enumerate(struct.unpack("<8q", amx.CONFIGURATION)):
            self.w.put(self.state, 1 + i, word)
        self.w.emit(f"atomicrmw add ptr {self.state}, i64 1 seq_cst")

    def release(self):
        self.w.emit(f"atomicrmw sub ptr {self.state}, i64 1 seq_cst")

    def shape(self, tile):
        """Rows of a tile, and how many elements of four bytes each has."""
        w = self.w
        rows, line = (w.emit(f"zext {type_} {w.emit(f'load {type_}, ptr {at}')} to i64")
                      for type_, at in (("i8", w.at(self.state, 8 + 48 + tile)),
                                        ("i16", w.at(self.state, 8 + 16 + 2 * tile))))
        some = w.is_("sgt", w.word(self.state, 0), 0)
        return w.pick(some, rows, 0), w.op("lshr", line, 2)

    def place(self, tile, row, column):
        w = self.w
        byte = w.add(w.mul(row, 64), w.mul(column, 4))
        return w.at(w.at(self.memory, 1024 * tile), byte)

    def each(self, tile, body):
        rows, columns = self.shape(tile)
        self.w.loop(0, rows, 1, lambda r, _: self.w.loop(
            0, columns, 1, lambda c, _: body(r, c, self.place(tile, r, c))))

    def zero(self, tile):
        self.each(tile, lambda r, c, own: self.w.do(f"store i32 0, ptr {own}"))

    def load(self, tile, place, stride):
        w = self.w
        self.each(tile, lambda r, c, own: w.do("store i32 " + w.emit(
            f"load i32, ptr {w.at(place, w.add(w.mul(r, stride), w.mul(c, 4)))}")
            + f", ptr {own}"))

    def store(self, tile, place, stride):
        w = self.w
        self.each(tile, lambda r, c, own: w.do(
            f"store i32 {w.emit(f'load i32, ptr {own}')}, "
            f"ptr {w.at(place, w.add(w.mul(r, stride), w.mul(c, 4)))}"))

    def add_products(self, sums, left, right):
        w, (_, depth) = self.w, self.shape(left)

        def halves(pair):
            low, high = w.op("shl", pair, 16, "i32"), w.op("and", pair, -65536, "i32")
            return [w.emit(f"bitcast i32 {bits} to float") for bits in (low, high)]

        def one(r, c, own):
            def pair(k, _):
                pairs = [w.emit(f"load i32, ptr {self.place(*at)}")
                         for at in ((left, r, k), (right, k, c))]
                total = w.emit(f"load float, ptr {own}")
                for x, y in zip(*map(halves, pairs), strict=True):
                    total = w.call("llvm.fmuladd.f32", "float", [
                        ("float", x), ("float", y), ("float", total)])
                w.do(f"store float {total}, ptr {own}")

            w.loop(0, depth, 1, pair)

        self.each(sums, one)


def linked(key, names, build, optimise=False):
    """Code under names of its own, so that neither the process nor the disk takes it for real."""
    text = build()
    for name in names:
        text = re.sub(rf"@{name}\b", f"@emulated_{name}", text)
    return jit().load(jit().compile(text, optimise), *[f"emulated_{name}" for name in names])


@pytest.fixture(scope="module", autouse=True)
def emulated():
    """A machine with AMX, as far as products know."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amx, "Registers", Emulated)
        patch.setattr(kernels, "addresses", linked)
        for name in ("drivers", "packer", "family", "tiles", "around_tiles"):
            again = functools.cache(getattr(kernels, name).__wrapped__)
            patch.setattr(kernels, name, again)
            if hasattr(product, name):
                patch.setattr(product, name, again)
        for module_ in (kernels, product):
            patch.setattr(module_, "host_tile", lambda dtype: Tile(dtype, 14, 2, 16))
        patch.setattr(product, "in_tiles", lambda dtype: dtype == "bfloat16")
        yield
    assert STATE[0] == 0
    assert bytes(STATE)[8:] == amx.CONFIGURATION


@functools.cache
def call():
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)(kernels.driver("float32"))


# -- operands ------------------------------------------------------------------------------------


def value(bits):
    return (bits.astype("u4") << 16).view("f4")


def filled(view):
    view[...] = (RNG.random(view.shape, "f4") - 0.5).view("u4") >> 16
    return view


def operand(rows, cols, layout):
    """The bits of bfloat16, with rows contiguous, columns contiguous, or neither; NaN beside."""
    shape = {"n": (rows, cols + 3), "t": (cols, rows + 1), "s": (2 * rows, 3 * cols)}[layout]
    base = np.full(shape, NAN, "u2")
    return filled({"n": base[:, :cols], "t": base[:, :rows].T, "s": base[::2, ::3]}[layout])


HERE_ALONE = Cut("each", True, HERE)


def bits_of(a, b, cut=HERE_ALONE, added=None, d=None, out=None, batch=None, **more):
    """The bits of a product by its words, as native code calls it."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    count = 1 if batch is None else batch
    out = np.full((count, m, n), NAN, "u2") if out is None else out
    steps = [x.strides[0] if x is not None and x.ndim == 3 else 0 for x in (a, b, out, added)]
    words = Product("bfloat16", m, n, k, Matrix(*(s // 2 for s in a.strides[-2:])),
                    Matrix(*(s // 2 for s in b.strides[-2:])), n,
                    [[i * step for step in steps] for i in range(count)], d, cut=cut, **more)
    call()(out.ctypes.data, a.ctypes.data, b.ctypes.data,
           None if added is None else added.ctypes.data, words.address)
    return out if batch is not None else out.reshape(m, n)


def exact(a, b):
    return value(a).astype("f8") @ value(b).astype("f8")


def assert_near(bits, wanted, k):
    """Sums of float32, rounded once."""
    found, wanted = value(bits).astype("f8"), np.asarray(wanted, "f8")
    assert np.isfinite(found).all()
    assert (np.abs(found - wanted) <= np.abs(wanted) * 2**-8 + 3e-8 * (k + 4)).all()


SHAPES = [(1, 1, 1), (1, 32, 16), (2, 3, 5), (7, 13, 17), (16, 32, 16), (17, 33, 33), (32, 64, 32),
          (33, 31, 65), (40, 96, 24), (64, 784, 40), (130, 34, 129), (300, 41, 150), (27, 701, 70),
          (5, 2, 200), (100, 1, 3)]


@pytest.mark.parametrize("m, k, n", SHAPES)
def test_every_layout(m, k, n):
    for one, other in itertools.product("nts", repeat=2):
        a, b = operand(m, k, one), operand(k, n, other)
        assert_near(bits_of(a, b), exact(a, b), k)


@pytest.mark.parametrize("m, k, n", [(70, 300, 100), (97, 77, 161), (15, 1027, 33)])
@pytest.mark.parametrize("layouts", ["nn", "tn", "nt"])
def test_neither_cut_nor_threads_change_a_bit(m, k, n, layouts):
    a, b = operand(m, k, layouts[0]), operand(k, n, layouts[1])
    before, found = flambeau.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            flambeau.set_num_threads(threads)
            for cut in (HERE_ALONE, Cut("across", True, HERE),
                        Cut("down", True, SHARED), Cut("down", True, HERE), None):
                found.add(bits_of(a, b, cut).tobytes())
                assert STATE[0] == 0
    finally:
        flambeau.set_num_threads(before)
    assert len(found) == 1
    assert bits_of(a[:1], b[:, -1:]).item() == np.frombuffer(found.pop(), "u2")[n - 1]


@pytest.mark.parametrize("m, k, n", [(9, 20, 11), (33, 65, 40)])
def test_batches(m, k, n):
    a, b = filled(np.empty((5, m, k), "u2")), filled(np.empty((5, n, k), "u2")).swapaxes(1, 2)
    for cut in (HERE_ALONE, Cut("down", True, SHARED), None):
        assert_near(bits_of(a, b, cut, batch=5), exact(a, b), k)
        assert_near(bits_of(a, b[2], cut, batch=5), exact(a, b[2]), k)


@pytest.mark.parametrize("strides", [(0, 1), (1, 0), (23, 1)])
@pytest.mark.parametrize("alpha, beta", [(1, 1), (0.5, -2)])
def test_what_is_added(strides, alpha, beta):
    a, b = operand(37, 45, "n"), operand(45, 23, "t")
    added = filled(np.empty(37 * 23, "u2"))
    d = np.lib.stride_tricks.as_strided(added, (37, 23), [2 * s for s in strides])
    assert_near(bits_of(a, b, added=added, d=strides, alpha=alpha, beta=beta),
                alpha * exact(a, b) + beta * value(d), 45)


def test_added_to_what_is_there():
    a, b = operand(50, 64, "t"), operand(64, 40, "n")
    out = filled(np.empty((1, 50, 40), "u2"))
    wanted = exact(a, b) + value(out[0])
    assert_near(bits_of(a, b, added=out, d=(40, 1), out=out), wanted, 64)


def test_scaled():
    a, b = operand(19, 64, "n"), operand(64, 33, "n")
    assert_near(bits_of(a, b, alpha=0.25), 0.25 * exact(a, b), 64)


def test_an_activation_and_a_bias():
    def relu(code, value, vector):
        return code.call("llvm.maxnum.v16f32", vector,
                         [(vector, value), (vector, "zeroinitializer")])

    made = kernels.Tiles("bfloat16", "amx", finish=relu, finish_name="relu")
    a, b, bias = operand(41, 70, "n"), operand(70, 37, "t"), filled(np.empty(37, "u2"))
    found = bits_of(a, b, added=bias, d=(0, 1), kernels=made)
    assert_near(found, np.maximum(exact(a, b) + value(bias), 0), 70)
    assert (value(found) == 0).any()


# -- memory ----------------------------------------------------------------------------------------


def test_what_an_earlier_product_left_in_panels_does_no_harm():
    nan = np.full((128, 512), NAN, "u2")
    for layouts in itertools.product("nt", repeat=2):
        for cut in (HERE_ALONE, Cut("down", True, SHARED)):
            assert np.isnan(value(bits_of(nan, nan.reshape(512, 128), cut))).all()
            a, b = operand(21, 39, layouts[0]), operand(39, 45, layouts[1])
            assert_near(bits_of(a, b, cut), exact(a, b), 39)


def test_infinity_stays_in_its_row_and_column():
    a, b = operand(20, 35, "n"), operand(35, 20, "n")
    a[:], b[:] = 0x3F80, 0x3F80  # ones
    a[3, 34], b[34, 5] = 0x7F80, 0x7F80
    found = value(bits_of(a, b))
    assert np.isinf(found[3]).all() and np.isinf(found[:, 5]).all()
    assert np.isfinite(np.delete(np.delete(found, 3, 0), 5, 1)).all()


@pytest.mark.parametrize("m, k, n", [(1, 2, 3), (700, 500, 90), (4000, 4001, 64), (95, 33, 1000)])
def test_there_is_room_for_panels(m, k, n):
    """Rows are cut into whole tiles, and the last of them may be read beyond its panel."""
    for cut in (HERE_ALONE, Cut("down", True, SHARED)):
        words = Product("bfloat16", m, n, k, Matrix(k, 1), Matrix(n, 1), n, [(0, 0, 0, 0)], cut=cut)
        height, deep, room = (words.words[1 + W[name]] for name in ("height", "k", "spare_at"))
        assert deep % 16 == 0 and 0 <= 2 * deep - k < 32
        assert height % 32 == 0 or height == m
        tiles = -(-min(height, m) // 32)
        assert room >= 4 * min(height, m) * deep + 64 * tiles + 15 * 64


def at_the_end_of_memory(rows, cols, layout):
    """An operand whose last element is the last that may be read."""
    page = mmap.PAGESIZE
    room = -(-rows * cols * 2 // page) * page
    memory = mmap.mmap(-1, room + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0) == 0
    flat = np.frombuffer(memory, "u2", rows * cols, room - rows * cols * 2)
    return filled(flat.reshape(rows, cols) if layout == "n" else flat.reshape(cols, rows).T)


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="memory is protected by mprotect")
@pytest.mark.parametrize("m, k, n", [(17, 33, 19), (31, 63, 33), (48, 96, 48), (3, 5, 7)])
def test_nothing_is_read_beyond_an_operand(m, k, n):
    for one, other in itertools.product("nt", repeat=2):
        a, b = at_the_end_of_memory(m, k, one), at_the_end_of_memory(k, n, other)
        assert_near(bits_of(a, b), exact(a, b), k)


# -- the instructions themselves -------------------------------------------------------------------


@pytest.fixture
def real(monkeypatch):
    monkeypatch.setattr(amx, "Registers", Emulated.__base__)


def assembly(text):
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
        cpu="sapphirerapids", opt=2)
    return machine.emit_assembly(llvm.parse_assembly(text))


def mnemonics(lines):
    return [line.split()[0] for line in lines if line.startswith("\t") and line[1] != "."]


@pytest.mark.parametrize("vectors", [1, 2])
def test_the_inner_loops_are_tiles(real, vectors):
    """Compiled for a CPU that has them, loops in k load and multiply tiles, and touch no stack."""
    text = assembly(module(amx.kernel_texts("tile", vectors, True, "bfloat16", None)))
    own = text[text.index("\ntile:"):text.index("\n.Lfunc_end0")]
    loops = [part for part in re.split(r"\n(?=\.LBB)", own) if "tdpbf16ps" in part]
    assert len(loops) == 2
    for high, loop in zip((2, 1), sorted(loops, key=lambda part: -part.count("tdpbf16ps")),
                          strict=True):
        lines = loop.split("\n")
        label, end = lines[0].split(":")[0], next(i for i, line in enumerate(lines)
                                                  if line.startswith("\tj"))
        assert label in lines[end]
        found = mnemonics(lines[:end])
        assert found.count("tdpbf16ps") == high * vectors
        assert found.count("tileloadd") == high + vectors
        assert not any(name.startswith(("tilestore", "v", "ldtile")) for name in found)
        assert "rsp" not in loop.split("\tj")[0]
    assert own.count("tilestored") == 3 * vectors
    assert own.count("tilezero") == 3 * vectors


def test_a_block_sets_tiles_up_and_gives_them_back(real):
    text = assembly(amx.around_text("left", "right", "enter", "leave"))
    enter = text[text.index("\nenter:"):text.index("\nleave:")]
    leave = text[text.index("\nleave:"):]
    assert mnemonics(enter.split("\n")).count("ldtilecfg") == 1
    assert "tilerelease" in leave
    asked = enter[:enter.index("\tsyscall")]
    assert all(f"${number}, %" in asked for number in host.SYSTEM_CALL)
    assert struct.unpack_from("<B15x8H16x8B", amx.CONFIGURATION) == (1, *[64] * 8, *[16] * 8)


@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"),
                    reason="a system call of Linux on x86")
def test_asking_the_system_is_harmless(real):
    jit().llvm.initialize_native_asmparser()
    w = Code()
    amx.Registers(w).ask()
    (address,) = jit().load(jit().compile(module([(w.function("amx_ask", ""), w.declared)])),
                            "amx_ask")
    for _ in range(2):
        ctypes.CFUNCTYPE(None)(address)()


@pytest.mark.parametrize("has, answer, wanted", [
    ({"amx-tile", "amx-bf16"}, 0, True), ({"amx-tile", "amx-bf16"}, -1, False),
    ({"amx-tile"}, 0, False), (set(), 0, False)])
def test_tiles_are_used_where_the_cpu_has_them_and_the_system_permits(
        has, answer, wanted, monkeypatch):
    class Machine:
        bits = 512

        class linker:
            pass

    class Library:
        asked = []

        def syscall(self, *numbers):
            self.asked.append(tuple(n.value for n in numbers))
            return answer

    Machine.linker.has = frozenset(has)
    monkeypatch.setattr(host, "jit", lambda: Machine)
    monkeypatch.setattr(host.ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(host.sys, "platform", "linux")
    assert host.multiplies_tiles.__wrapped__() is wanted
    assert set(Library.asked) == ({(158, 0x1023, 18)} if len(has) == 2 else set())
