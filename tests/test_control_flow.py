"""cond and while_loop, eager, compiled and differentiated; get_device_module; rearrange."""

import pytest

import flambeau as torch


def test_a_branch_is_taken():
    x = torch.tensor([1.0, 4.0], requires_grad=True)
    for pred, slope in ((torch.tensor([True]), 2.0), (torch.tensor(0), 3.0), (True, 2.0)):
        y = torch.cond(pred, lambda v: v * 2, lambda v: v * 3, (x,))
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [slope, slope]


def test_a_compiled_branch_follows_its_values():
    @torch.compile
    def signed(x):
        return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))

    assert signed(torch.ones(2)).tolist() == [2, 2]
    assert signed(-torch.ones(2)).tolist() == [-2, -2]


@pytest.mark.parametrize(("args", "words"), [
    ((torch.ones(2), abs, abs, ()), "single-element tensor"),
    (("yes", abs, abs, ()), "Expected pred to be bool or tensor"),
    ((torch.tensor(True), 1, abs, ()), "both branches to be callable"),
    ((torch.tensor(True), abs, abs, (1,)), "consists of tensor leaves"),
])
def test_a_branch_is_refused(args, words):
    with pytest.raises(RuntimeError, match=words):
        torch.cond(*args)


def test_a_loop_runs_while_its_condition_holds():
    doubled = torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, torch.ones(2)))
    assert doubled[0] == 3
    assert doubled[1].tolist() == [8, 8]
    counted, = torch.while_loop(lambda i: i.sum() < 5, lambda i: (i + 1,), (torch.zeros(1),))
    assert counted.item() == 5


def test_a_loop_carries_what_it_was_given():
    with pytest.raises(RuntimeError, match="same shapes and dtypes"):
        torch.while_loop(lambda x: x.sum() < 9, lambda x: (torch.cat([x, x]),), (torch.ones(2),))
    with pytest.raises(RuntimeError, match="tensor or int leaves"):
        torch.while_loop(lambda x: False, lambda x: x, ("a",))


def test_the_module_of_a_device():
    assert torch.get_device_module() is torch.get_device_module("cpu") is torch.cpu
    assert torch.get_device_module(torch.device("cpu")) is torch.cpu
    with pytest.raises(RuntimeError, match="Invalid value of device"):
        torch.get_device_module(5)


@pytest.mark.parametrize(("pattern", "lengths", "wanted"), [
    ("b h w c -> b (c h w)", {}, lambda x: x.permute(0, 3, 1, 2).reshape(2, -1)),
    ("... c -> c ...", {}, lambda x: x.permute(3, 0, 1, 2)),
    ("b ... -> (b ...)", {}, lambda x: x.reshape(-1)),
    ("b h w c -> b 1 h w c", {}, lambda x: x.unsqueeze(1)),
    ("b (h s) w c -> b h w (c s)", {"s": 2},
     lambda x: x.reshape(2, 2, 2, 5, 3).permute(0, 1, 3, 4, 2).reshape(2, 2, 5, 6)),
])
def test_rearranged(pattern, lengths, wanted):
    x = torch.arange(120).reshape(2, 4, 5, 3)
    assert torch.equal(torch.func.rearrange(x, pattern, **lengths), wanted(x))


@pytest.mark.parametrize(("pattern", "lengths", "words"), [
    ("a b c d -> a b c", {}, "only on one side"),
    ("a b -> b a", {}, "Number of dimensions in pattern"),
    ("a b c (d e) -> a b c d e", {}, "cannot be told"),
    ("a b c (d e) -> a b c d e", {"e": 2}, "size 3 cannot be split"),
    ("a a b c -> a b c", {}, "twice"),
    ("a b c d -> a b c d", {"q": 2}, "not found"),
    ("a b c d", {}, "separator"),
    ("(a b c d -> a b c d", {}, "not balanced"),
])
def test_patterns_that_are_refused(pattern, lengths, words):
    with pytest.raises(ValueError, match=words):
        torch.func.rearrange(torch.ones(2, 4, 5, 3), pattern, **lengths)
