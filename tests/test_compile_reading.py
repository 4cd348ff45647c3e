"""What people read of a compiled function: programs as loops, passes, code, guards."""

import os
import subprocess
import sys
import textwrap

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler.loops import steps_text
from flambeau.engine.launch import Check, Finished


def programs_of(function, *args, calls: int = 2) -> list[str]:
    """The text of all programs that calls of a function make."""
    compiled = torch.compile(function, verify=1)
    for _ in range(calls):
        compiled(*args)
    return [str(program) for _, program in torch.compiler.explain(compiled).programs if program]


def lines_of(text: str) -> list[str]:
    """Without what is said beside a line."""
    return [line.partition("#")[0].rstrip() for line in text.splitlines()]


# -- loops -----------------------------------------------------------------------------------------


def test_a_loop_of_what_is_fused():
    (text,) = programs_of(lambda x: (x * 2 + 1).relu(), torch.ones(4, 3))
    first, *lines = lines_of(text)
    assert first.startswith("program of 1 launches")
    assert lines[0] == "for i in range(12):"
    assert lines[-1].startswith("    b") and "[i] = " in lines[-1] and "o0[i]" in text


def test_sums_and_what_lies_apart():
    (text,) = programs_of(lambda x: x.T.sum(0), torch.ones(4, 3))
    assert lines_of(text)[1:] == [
        "for i in range(4):", "    s0 = 0.0", "    for j in range(3):",
        "        s0 = s0 + o0[i*3 + j]", "    b0[i] = s0"]


def test_rows_with_several_stages_and_what_is_shared():
    (text,) = programs_of(lambda x: x.softmax(-1), torch.ones(4, 3))
    assert text.count("for j in range(3):") == 4 and "exp" in text
    (text,) = programs_of(lambda x: (x + 1).square(), torch.ones(5))
    assert "t0 = o0[i] + " in text and "t0 * t0" in text


def test_products_and_what_is_added():
    (text,) = programs_of(torch.nn.functional.linear, torch.ones(5, 4), torch.ones(3, 4),
                          torch.ones(3))
    assert "b0 = o0 @ o1.T + o2" in text and "# 5x4 by 4x3: small_5x4x3_" in text
    (text,) = programs_of(torch.bmm, torch.ones(2, 50, 40), torch.ones(2, 40, 60))
    assert "b0 = o0 @ o1 " in text and "2 times 50x40 by 40x60" in text
    (text,) = programs_of(torch.mv, torch.ones(90, 7), torch.ones(7))
    assert "# 90x7 by 7x1" in text


def test_indices_are_checked_and_followed():
    (text,) = programs_of(lambda x, i: x[i], torch.ones(9, 4), torch.tensor([3, 1]))
    assert "check 0 <= b" in text or "check -9 <= b" in text
    assert any(line.strip().startswith("b") and "o0[j + " in line for line in text.splitlines())


def test_what_is_finished_in_the_cache_and_routines():
    layer = nn.Linear(64, 256)
    (text,) = programs_of(lambda x: layer(x).relu(), torch.ones(1024, 64))
    assert "    and then, to each piece while it is in the cache:" in text
    (text,) = programs_of(lambda x: x.sort()[0], torch.randn(6, 50))
    assert "(o0" in text or "(b0" in text


def test_every_step_of_a_step_of_training_has_its_lines():
    model = nn.Sequential(nn.Embedding(11, 8), nn.Flatten(), nn.Linear(24, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randint(11, (4, 3)), torch.tensor([0, 1, 2, 4])

    @torch.compile(fullgraph=True)
    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        step()
    for _, program in torch.compiler.explain(step).programs:
        for launch in program.launches:
            told = steps_text([launch])
            assert told and all(told)
            assert isinstance(launch, (Check, Finished)) or str(launch.args[0]) in told[-1] or (
                launch.kernel is not None)


# -- what a switch shows ---------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["passes", "program", "llvm", "assembly"])
def test_what_is_asked_for_is_shown(what):
    code = """
    import flambeau as torch
    f = torch.compile(lambda x, w: (x @ w).relu() * 2, verify=1)
    for _ in range(3):
        f(torch.ones(6, 4), torch.ones(4, 3))
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True,
                         text=True, env={**os.environ, "FLAMBEAU_SHOW": what})
    assert run.returncode == 0 and run.stdout == ""
    titles = [line[3:] for line in run.stderr.splitlines() if line.startswith("-- ")]
    if what == "passes":
        names = [title.partition(":")[0] for title in titles]
        assert names[:3] == ["recorded", "needed", "in_order"] and names[-1] == "arranged"
        assert "fused: 2 launches" in titles
    elif what == "program":
        assert titles == ["program"] and "b0 = o0 @ o1" in run.stderr
    else:
        assert titles[0] == f"{what} of the program" and len(titles) == 3
        assert ("define void @" if what == "llvm" else "retq") in run.stderr or (
            what == "assembly" and "ret" in run.stderr)


# -- guards ----------------------------------------------------------------------------------------


def test_explain_tells_which_guard_failed():
    model = nn.Linear(4, 2)
    settings = {"scale": 2.0}

    @torch.compile(fullgraph=True)
    def f(x):
        return model(x) * settings["scale"]

    def told() -> str:
        return str(torch.compiler.explain(f))

    for _ in range(4):
        f(torch.ones(3, 4))
    assert "without Python, in one call, as long as" in told()
    assert "it is given float32[3, 4]" in told() and "not without Python" not in told()
    for _ in range(4):
        f(torch.ones(5, 4))
    assert "argument 1 is float32[5, 4], and was float32[3, 4]" in told()
    assert "linear: argument 1 is float32[5, 4], and was float32[3, 4]" in told()
    settings["scale"] = 3.0
    f(torch.ones(3, 4))
    assert "'scale' stands for something else" in told()
    with torch.no_grad():
        f(torch.ones(3, 4))
    assert "gradients are off" in told()
    model.eval()
    f(torch.ones(3, 4))
    assert "an attribute of a module was set" in told()
    f(torch.ones(4, 3).T.contiguous().double().float().as_strided((3, 4), (1, 3)))
    assert "float32[3, 4] with strides (1, 3)" in told()


def test_explain_tells_what_made_a_path_part():
    @torch.compile
    def f(x, times, rate):
        x = x.exp() if times > 2 else x.sin()
        return (x * rate).sum(dim=times % 2)

    x = torch.ones(300, 300)
    for given, times in ((x, 1), (x, 3), (x, 4), (x.double(), 1)):
        for _ in range(9):
            f(given, times, 0.5)
    told = str(torch.compiler.explain(f))
    assert "exp, where sin came before" in told
    assert "sum: argument 2 is 0, and was 1" in told
    assert "sin: argument 1 is float64[300, 300], and was float32[300, 300]" in told
