"""Composites that come again are played, with the values that they are given then."""

import threading

import pytest

import flambeau as torch
from flambeau.engine import replays

F = torch.nn.functional


def operands():
    x, y = torch.randn(5, 6), torch.randn(5, 6)
    return {"x": x, "y": y, "row": torch.randn(6), "n": torch.randint(0, 5, (5, 6)),
            "img": torch.randn(2, 4, 6, 6), "three": torch.randn(5, 3), "sym": x @ x.T,
            "some": torch.randint(0, 5, (5,)), "turned": y.T, "col": torch.randn(5),
            "complex": torch.randn(4, 5, dtype=torch.complex64)}


CALLS = {
    "cross": lambda o: torch.cross(o["three"], o["three"].flip(1), dim=1),
    "tile": lambda o: torch.tile(o["x"], (2, 3)),
    "block_diag": lambda o: torch.block_diag(o["x"], o["row"], o["x"]),
    "einsum": lambda o: torch.einsum("ij,kj->ik", o["x"], o["y"]),
    "scatter_reduce": lambda o: o["x"].scatter_reduce(0, o["n"], o["y"], "amax"),
    "index_reduce": lambda o: o["turned"].index_reduce(1, o["some"], o["y"].T, "mean"),
    "take_along_dim": lambda o: torch.take_along_dim(o["x"], o["n"], 1),
    "renorm": lambda o: torch.renorm(o["x"], 2, 0, 0.5),
    "addr": lambda o: torch.addr(o["x"], o["col"], o["row"], beta=0.5),
    "irfft": lambda o: torch.fft.irfft(o["complex"]),
    "std_mean": lambda o: torch.std_mean(o["turned"], 1, keepdim=True),
    "max_pool2d": lambda o: F.max_pool2d(o["img"], 2, return_indices=True),
    "interpolate": lambda o: F.interpolate(o["img"], scale_factor=2.0, mode="bilinear"),
    "group_norm": lambda o: F.group_norm(o["img"], 2),
    "aminmax": lambda o: torch.aminmax(o["x"], dim=1),
    "unbind_copy": lambda o: torch.unbind_copy(o["x"], 1),
    "nll_loss": lambda o: F.nll_loss(o["x"].log_softmax(1), o["some"]),
    "tensordot": lambda o: torch.tensordot(o["x"], o["y"], dims=([0], [0])),
    "slice_scatter": lambda o: torch.slice_scatter(o["x"], o["x"][1:3], 0, 2, 4),
}


LINEAR = {name: getattr(torch.linalg, name) for name in (
    "eigh", "svd", "inv", "cholesky", "lu", "lu_factor", "cond", "pinv", "svdvals")}
LINEAR["solve"] = lambda a: torch.linalg.solve(a, a[:, :2])
LINEAR["lstsq"] = lambda a: torch.linalg.lstsq(a, a[:, :2])
CALLS |= {name: lambda o, call=call: call(o["sym"] + 9 * torch.eye(5))
          for name, call in LINEAR.items()}


def same(a, b) -> bool:
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and all(map(same, a, b))
    return a.dtype is b.dtype and a.stride() == b.stride() and torch.equal(a, b)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_played_is_what_the_op_gives(name, monkeypatch):
    call = CALLS[name]
    torch.manual_seed(1)
    others = operands()
    wanted = call(others)
    first = operands()
    for _ in range(replays.OFTEN + 4):
        call(first)
    monkeypatch.setattr(replays, "_met", None)  # from here on nothing is met for the first time
    assert same(call(others), wanted)


def met(call, times=replays.OFTEN + 4):
    for _ in range(times):
        out = call()
    return out


def test_plans_that_are_forgotten_are_not_played():
    from flambeau.devices.cpu.remember import forget_all

    x, y = torch.randn(7, 5), torch.randn(7, 5)
    wanted = met(lambda: torch.einsum("ij,kj->ik", x, y))
    forget_all()
    assert not any(replays._tables)
    assert torch.equal(met(lambda: torch.einsum("ij,kj->ik", x, y)), wanted)


def test_what_is_cast_is_not_played():
    x, y = torch.randn(4, 5), torch.randn(3, 5)

    def call():
        return torch.einsum("ij,kj->ik", x, y)

    met(call)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert met(call).dtype is torch.bfloat16
    assert call().dtype is torch.float32


def test_results_are_new_each_time():
    x = torch.randn(3, 3)
    one, other = met(lambda: torch.tile(x, (2,))), torch.tile(x, (2,))
    one.zero_()
    assert one.data_ptr() != other.data_ptr() and torch.equal(other, torch.cat([x, x], 1))


def test_operands_given_twice_are_not_taken_for_one():
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    met(lambda: torch.block_diag(x, x))
    assert torch.equal(torch.block_diag(x, y)[3:, 3:], y)


def test_indices_are_checked_in_every_call():
    x, index = torch.randn(4, 4), torch.zeros(4, 4, dtype=torch.int64)
    met(lambda: torch.take_along_dim(x, index, 1))
    with pytest.raises((IndexError, RuntimeError), match=r"out of bounds|out of range"):
        torch.take_along_dim(x, index + 7, 1)


@pytest.mark.parametrize("name", ["inv", "solve", "cholesky"])
def test_matrices_that_have_no_result_are_refused_in_every_call(name):
    good, bad = torch.eye(3) * 2, torch.zeros(3, 3)
    met(lambda: LINEAR[name](good))
    with pytest.raises(torch.linalg.LinAlgError, match=f"linalg.{name}: .*1 is"):
        LINEAR[name](bad)
    batch = torch.stack([good, bad])
    met(lambda: LINEAR[name](torch.stack([good, good])) if name != "solve" else None)
    if name != "solve":
        with pytest.raises(torch.linalg.LinAlgError, match="Batch element 1"):
            LINEAR[name](batch)


def test_what_is_written_to_is_never_played():
    x, out = torch.randn(3, 3), torch.empty(6, 6)
    for k in range(replays.OFTEN + 4):
        torch.tile(x + k, (2, 2), out=out)
        assert torch.equal(out[3:, 3:], x + k)
    mean, var = torch.zeros(4), torch.ones(4)
    image = torch.randn(2, 4, 3, 3)
    for _ in range(replays.OFTEN + 4):
        before = mean.clone()
        F.batch_norm(image, mean, var, training=True)
        assert not torch.equal(mean, before)


def test_zeros_of_either_sign_are_two_values():
    assert replays.known_by((0.0, 1), []) != replays.known_by((-0.0, 1), [])
    assert replays.known_by((1.0,), []) != replays.known_by((1,), [])


def test_what_is_part_of_a_graph_is_recorded():
    x = torch.randn(4, 4)
    met(lambda: torch.tile(x, (2, 2)))
    x.requires_grad_(True)
    torch.tile(x, (2, 2)).sum().backward()
    assert torch.equal(x.grad, torch.full((4, 4), 4.0))


@pytest.mark.parametrize("call", [
    lambda x: torch.linalg.vector_norm(x, 3.0), lambda x: torch.std(x, 0),
    lambda x: torch.cumsum(x, 1), lambda x: torch.linalg.qr(x[:4])[1],
    lambda x: torch.fft.rfft(x).abs(), lambda x: x.max(1).values])
def test_formulas_that_are_played_give_the_same_gradients(call):
    torch.manual_seed(2)
    first, other = (torch.randn(6, 4, requires_grad=True) for _ in range(2))

    def slope(x):
        out = call(x)
        return torch.autograd.grad(out, x, torch.full_like(out, 0.5))[0]

    wanted = slope(other)
    met(lambda: slope(first))
    assert torch.equal(slope(other), wanted)


def test_several_threads_meet_the_same_calls():
    x = torch.randn(5, 5)
    wanted, wrong = torch.block_diag(x, x), []

    def work():
        for _ in range(200):
            if not torch.equal(torch.block_diag(x, x), wanted):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
