"""Generated matrix products: every shape class, strides, epilogues, dtypes and thread counts."""

import ctypes
import itertools
import sys
import threading

import numpy as np
import pytest

import flambeau
from flambeau.devices.cpu.matmul import block, host, kernels
from flambeau.devices.cpu.matmul.product import Cut, Matrix, Product

RNG = np.random.default_rng(7)

#: one of every way there is: tiny, thin, a vector, one column, several blocks in k, rows, columns
SHAPES = [(1, 1, 1), (2, 3, 5), (8, 8, 8), (7, 13, 17), (1, 70, 100), (1, 300, 9), (33, 90, 1),
          (5, 100, 7), (6, 520, 33), (13, 64, 200), (64, 784, 40), (130, 33, 129), (300, 40, 150),
          (27, 700, 70), (1, 5, 640), (3, 1, 64)]


def matrix(rows, cols, layout, dtype):
    """Rows contiguous, columns contiguous, or neither."""
    if layout == "n":
        return RNG.random((rows, cols + 3)).astype(dtype)[:, :cols]
    if layout == "t":
        return RNG.random((cols, rows + 1)).astype(dtype)[:, :rows].T
    return RNG.random((2 * rows, 3 * cols)).astype(dtype)[::2, ::3]


def close(found, wanted, k, unit):
    return np.abs(np.asarray(found, "f8") - wanted).max() <= unit * (k + 4) * max(1, k / 8)


@pytest.mark.parametrize("dtype, unit", [("float32", 6e-8), ("float64", 2e-16)])
@pytest.mark.parametrize("m, k, n", SHAPES)
def test_every_layout(m, k, n, dtype, unit):
    for one, other in itertools.product("nts", repeat=2):
        a, b = matrix(m, k, one, dtype), matrix(k, n, other, dtype)
        found = flambeau.from_numpy(a) @ flambeau.from_numpy(b)
        assert close(found.numpy(), a.astype("f8") @ b.astype("f8"), k, unit), (one, other)


@pytest.mark.parametrize("m, k, n", SHAPES)
def test_half_precision_is_rounded_once(m, k, n):
    for one, other in (("n", "n"), ("n", "t"), ("s", "t"), ("t", "s")):
        a, b = matrix(m, k, one, "float16"), matrix(k, n, other, "float16")
        wanted = a.astype("f4") @ b.astype("f4")
        found = (flambeau.from_numpy(a) @ flambeau.from_numpy(b)).numpy()
        assert found.dtype == np.float16
        assert np.abs(found - wanted).max() <= np.abs(wanted).max() * 6e-4
        x, y = (flambeau.from_numpy(t).to(flambeau.bfloat16) for t in (a, b))
        wanted = x.float().numpy() @ y.float().numpy()
        found = (x @ y).float().numpy()
        assert np.abs(found - wanted).max() <= np.abs(wanted).max() * 5e-3


def test_half_precision_overflows_to_infinity_and_keeps_nan():
    x = flambeau.full((4, 4), 300.0, dtype=flambeau.float16)
    assert (x @ x).isinf().all()
    y = flambeau.full((4, 4), float("nan"), dtype=flambeau.bfloat16)
    assert (y @ y).isnan().all()


def test_what_lies_beside_an_operand_is_not_read_into_the_result():
    wide = np.full((40, 64), np.nan, "f4")
    wide[:, :37] = RNG.random((40, 37))
    a, b = wide[:, :37], RNG.random((37, 21)).astype("f4")
    assert close((flambeau.from_numpy(a) @ flambeau.from_numpy(b)).numpy(), a @ b, 37, 6e-8)
    x = flambeau.from_numpy(wide)[:, :37]
    assert not (x @ x.T).isnan().any()


@pytest.mark.parametrize("lead, other", [
    ((5,), (5,)), ((2, 3), (3,)), ((4, 1), (1, 6)), ((), (7,))])
def test_batches(lead, other):
    a, b = RNG.random((*lead, 9, 20)).astype("f4"), RNG.random((*other, 20, 11)).astype("f4")
    x, y = flambeau.from_numpy(a), flambeau.from_numpy(b)
    assert close((x @ y).numpy(), a @ b, 20, 6e-8)
    turned = flambeau.from_numpy(np.ascontiguousarray(b.swapaxes(-1, -2))).mT
    assert close((x @ turned).numpy(), a @ b, 20, 6e-8)


ADDENDS = [(5, 9), (9,), (5, 1), (1, 9), (1, 1), ()]


@pytest.mark.parametrize("shape", ADDENDS)
@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2.0), (0, 3), (-1, 1)])
def test_addmm(shape, beta, alpha):
    c = np.asarray(RNG.random(shape), "f4")
    a, b = RNG.random((5, 300)).astype("f4"), RNG.random((300, 9)).astype("f4")
    found = flambeau.addmm(*map(flambeau.from_numpy, (c, a, b)), beta=beta, alpha=alpha)
    assert np.allclose(found.numpy(), beta * c + alpha * (a @ b), rtol=1e-5)


def test_addmm_ignores_what_beta_zero_removes():
    nan = flambeau.full((3, 4), float("nan"))
    a, b = flambeau.ones(3, 5), flambeau.ones(5, 4)
    assert flambeau.addmm(nan, a, b, beta=0).equal(flambeau.full((3, 4), 5.0))


def test_addmm_of_a_transposed_input():
    c = flambeau.rand(7, 6)
    a, b = flambeau.rand(6, 3), flambeau.rand(3, 7)
    assert flambeau.allclose(flambeau.addmm(c.T, a, b), c.T + a @ b)


@pytest.mark.parametrize("shape", [(3, 5, 9), (5, 9), (3, 1, 1), (1, 5, 1), (9,)])
def test_baddbmm(shape):
    c, a, b = flambeau.rand(*shape), flambeau.rand(3, 5, 8), flambeau.rand(3, 8, 9)
    found = flambeau.baddbmm(c, a, b, beta=2, alpha=0.5)
    assert flambeau.allclose(found, 2 * c + 0.5 * flambeau.bmm(a, b))


def test_addmv():
    c, a, b = flambeau.rand(40), flambeau.rand(40, 90), flambeau.rand(90)
    assert flambeau.allclose(flambeau.addmv(c, a, b, beta=3), 3 * c + a @ b)
    assert flambeau.allclose(flambeau.addmv(c[::2], a[:20], b), c[::2] + a[:20] @ b)


def test_gradients_of_added_products():
    shapes = ((5, 1), (5, 7), (7, 6))
    c, a, b = (flambeau.rand(*s, dtype=flambeau.float64).requires_grad_(True) for s in shapes)
    assert flambeau.autograd.gradcheck(
        lambda *t: flambeau.addmm(*t, beta=0.5, alpha=2.0), (c, a, b))


@pytest.mark.parametrize("rows, wide, out", [
    (1, 100, 70), (16, 32, 16), (9, 70, 33), (200, 90, 64)])
def test_linear_adds_its_bias_in_one_call(rows, wide, out):
    x, w, b = RNG.random((rows, wide)), RNG.random((out, wide)), RNG.random(out)
    for dtype, unit in (("f4", 1e-5), ("f8", 1e-12)):
        given = [t.astype(dtype) for t in (x, w, b)]
        found = flambeau.nn.functional.linear(*map(flambeau.from_numpy, given)).numpy()
        assert np.allclose(found, x @ w.T + b, rtol=unit)


# -- cuts, threads ---------------------------------------------------------------------------------


def run(a, b, cut=None, **options):
    """A product by its words, as native code calls it."""
    (m, k), n, size = a.shape, b.shape[1], a.itemsize
    out = np.full((m, n), np.nan, a.dtype)
    words = Product(str(a.dtype), m, n, k, Matrix(*(s // size for s in a.strides)),
                    Matrix(*(s // size for s in b.strides)), n, [(0, 0, 0, 0)], cut=cut, **options)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)(kernels.driver(str(a.dtype)))
    call(out.ctypes.data, a.ctypes.data, b.ctypes.data, None, words.address)
    return out


@pytest.mark.parametrize("a, fetched", [
    (Matrix(1, 900), lambda rows, k: (4 * (2 * rows - 1), 4 * 900)),    # side by side: every k
    (Matrix(700, 1), lambda rows, k: (4 * 700 * rows, 4 * rows)),       # one piece
    (Matrix(9000, 1), lambda rows, k: (0, 0)),                          # far apart
])
def test_a_tile_fetches_what_the_next_one_reads(a, fetched):
    m, n, k = 900, 100, 700
    words = Product("float32", m, n, k, a, Matrix(n, 1), n, [(0, 0, 0, 0)],
                    cut=Cut("down", False, block.SHARED)).words[1:]
    rows = host.host_tile("float32").rows
    assert (words[block.W["next"]], words[block.W["next_step"]]) == fetched(rows, k)


@pytest.mark.parametrize("layout", "nt")
def test_every_cut_gives_the_same_bits(layout):
    """How a product is packed and shared changes nothing; sums along k are another order."""
    a, b = matrix(70, 300, layout, "float32"), matrix(300, 100, "n", "float32")
    cuts = [Cut(route, pack_a, pack_b) for route in ("each", "down", "across")
            for pack_a in (False, True) for pack_b in (block.DIRECT, block.SHARED, block.HERE)
            if not (route == "each" and pack_b == block.SHARED)]
    results = {run(a, b, cut).tobytes() for cut in cuts}
    assert len(results) == 1


@pytest.mark.parametrize("m, k, n", [(64, 784, 128), (300, 300, 300), (1, 900, 900), (8, 900, 900)])
def test_threads_change_no_bit(m, k, n):
    x, y = flambeau.rand(m, k), flambeau.rand(k, n)
    before = flambeau.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3):
            flambeau.set_num_threads(count)
            found.append([(x @ y).numpy().tobytes(), (x @ y.T.contiguous().T).numpy().tobytes()])
        assert found[0] == found[1] == found[2]
    finally:
        flambeau.set_num_threads(before)


def test_many_python_threads_at_once():
    x, y = flambeau.rand(200, 300), flambeau.rand(300, 250)
    wanted, wrong = (x @ y).numpy().tobytes(), []

    def work() -> None:
        for _ in range(20):
            if (x @ y).numpy().tobytes() != wanted:
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_an_activation_is_part_of_the_tile():
    def relu(code, value, vector):
        suffix = f"v{vector[1:].split()[0]}f32"
        return code.call(f"llvm.maxnum.{suffix}", vector,
                         [(vector, value), (vector, "zeroinitializer")])

    made = kernels.Tiles("float32", finish=relu, finish_name="relu")
    a, b = (RNG.random((40, 600)) - 0.5).astype("f4"), RNG.random((600, 37)).astype("f4")
    assert close(run(a, b, kernels=made), np.maximum(a @ b, 0), 600, 6e-8)


# -- pairs ---------------------------------------------------------------------------------------


def in_bfloat16(x):
    """An array's elements as the bits of bfloat16, with its strides, and what they stand for."""
    bits = np.empty_like(x, dtype=np.uint16, subok=False) if x.flags.c_contiguous else (
        np.lib.stride_tricks.as_strided(np.zeros(2 * x.size * 8, np.uint16), x.shape,
                                        [s * 2 // x.itemsize for s in x.strides]))
    bits[...] = (x.astype("f4").view("u4") >> 16).astype("u2")
    return bits, (bits.astype("u4") << 16).view("f4")


@pytest.mark.parametrize("m, k, n", [(2, 2, 3), (7, 14, 17), (13, 64, 200), (64, 784, 40),
                                     (130, 34, 129), (300, 40, 150), (27, 700, 70)])
def test_products_of_pairs(m, k, n, monkeypatch):
    """As CPUs with such an instruction compute them; here its work is done by others."""
    from flambeau.devices.cpu.matmul import product

    monkeypatch.setattr(product, "in_pairs", lambda dtype, k: True)
    monkeypatch.setattr(product, "in_tiles", lambda dtype: False)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)(kernels.driver("float32"))
    for one, other in itertools.product("nts", repeat=2):
        (a, x), (b, y) = (in_bfloat16(matrix(*shape, layout, "float32") - 0.5)
                          for shape, layout in (((m, k), one), ((k, n), other)))
        out = np.zeros((m, n), np.uint16)
        words = Product("bfloat16", m, n, k, Matrix(*(s // 2 for s in a.strides)),
                        Matrix(*(s // 2 for s in b.strides)), n, [(0, 0, 0, 0)],
                        cut=Cut("each", True, block.HERE))
        call(out.ctypes.data, a.ctypes.data, b.ctypes.data, None, words.address)
        found, wanted = (out.astype("u4") << 16).view("f4"), x.astype("f8") @ y.astype("f8")
        assert np.abs(found - wanted).max() <= np.abs(wanted).max() * 5e-3, (one, other)


def test_pairs_are_one_instruction_where_there_is_one():
    """Compiled for a CPU that has it, a tile's inner loop is made of it."""
    import llvmlite.binding as llvm

    from flambeau.devices.cpu.matmul.host import Tile
    from flambeau.devices.cpu.matmul.pairs import PairPack, add_products
    from flambeau.devices.cpu.matmul.text import module
    from flambeau.devices.cpu.matmul.tile import Kernel
    from flambeau.devices.cpu.registers import tile_shape

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    tile = Tile("float32", 12, 2, 16)
    kernel = Kernel(tile, 12, 2, False, "bfloat16",
                    add=lambda *given: add_products(*given, instruction=True))
    text = module([kernel.text("tile"), PairPack(tile, "bfloat16").text("pack")])
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
        cpu="sapphirerapids", opt=2)
    assembly = machine.emit_assembly(llvm.parse_assembly(text))
    loops = tile_shape().steps + 1  # over whole panels, and one by one
    assert assembly.count("vdpbf16ps") == 12 * 2 * loops


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS tells of caches another way")
def test_sizes_of_caches_are_what_the_system_says(tmp_path, monkeypatch):
    for name, *facts in (("index0", 1, "Data", "48K"), ("index1", 1, "Instruction", "32K"),
                         ("index2", 2, "Unified", "2048K"), ("index3", 3, "Unified", "32768K")):
        (tmp_path / name).mkdir()
        for fact, value in zip(("level", "type", "size"), facts, strict=True):
            (tmp_path / name / fact).write_text(f"{value}\n")
    monkeypatch.setattr(host, "_CACHES", str(tmp_path))
    assert host.caches.__wrapped__() == (48 << 10, 2 << 20)
    monkeypatch.setattr(host, "_CACHES", str(tmp_path / "missing"))
    assert host.caches.__wrapped__() == (1 << 15, 1 << 19)
