"""`flambeau explore`: what the instruments compute, and what they print."""

import json
import re
import shlex
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import pytest

import flambeau
from flambeau.cli import main
from flambeau.cli.explore import WITHOUT, broadcasting, graph, layers, loop, strides
from flambeau.cli.explore.numbers import plain, short, size
from flambeau.cli.explore.program import FUNCTIONS, OPERATORS, REFUSALS, Program
from flambeau.cli.usage import UsageError


def told(capsys, *arguments):
    assert main(["explore", *arguments]) == 0
    return capsys.readouterr().out


def test_numbers_are_what_json_can_carry():
    values = plain(flambeau.tensor([1.5, float("nan"), float("inf"), -float("inf")]))
    assert values == [1.5, "nan", "inf", "-inf"]
    assert short([1 / 3, None, 0.0, "nan"]) == "[0.333333, None, 0, nan]"
    assert [size(n) for n in (1, 999, 196_608, 10**13)] == ["1 byte", "999 bytes", "197 kB",
                                                            "10 TB"]


# -- shapes --------------------------------------------------------------------------------------


def shapes(*texts):
    return broadcasting.compute({"shapes": list(texts)})


def test_shapes_are_aligned_from_the_right():
    answer = shapes("64, 1", "(768,)")
    assert [axis["states"] for axis in answer["axes"]] == [["equal", "missing"],
                                                           ["stretched", "equal"]]
    assert answer["result"] == {"shape": [64, 768], "strides": [768, 1], "elements": 49152,
                                "bytes": 196608}
    a, b = answer["operands"]
    assert (a["expanded_strides"], b["expanded_strides"]) == ([1, 0], [0, 1])
    assert (a["held"], b["held"], a["copied"], b["copied"]) == (256, 3072, 196608, 196608)


def test_every_drawn_cell_is_where_the_library_reads_it():
    one, two = flambeau.randn(2, 1, 3), flambeau.randn(4, 1)
    answer = shapes("2,1,3", "4,1")
    both = one + two
    assert answer["cells"]["whole"] and len(answer["cells"]["list"]) == both.numel()
    for cell in answer["cells"]["list"]:
        first, second = cell["offsets"]
        mine = one.reshape(-1)[first] + two.reshape(-1)[second]
        assert both[tuple(cell["index"])] == mine == both.reshape(-1)[cell["offset"]]


def test_a_clash_is_named_in_the_librarys_words():
    answer = shapes("3, 1, 2", "4")
    assert answer["result"] is None
    assert [axis["clash"] for axis in answer["axes"]] == [False, False, True]
    with pytest.raises(RuntimeError) as refused:
        flambeau.zeros(3, 1, 2) + flambeau.zeros(4)
    assert answer["refused"] == str(refused.value)
    assert answer["notes"] == ["axis -1: A has 2 and B has 4; sizes must be equal, or one of "
                               "them 1"]


def test_outer_products_that_nobody_meant_are_told():
    assert "an outer product" in shapes("64,1", "768")["notes"][0]
    assert "silent mistake" in shapes("64,1", "64")["notes"][1]
    assert "silent mistake" in shapes("64", "64,1")["notes"][1]
    assert not shapes("64,768", "64,1")["notes"] and not shapes("3", "3")["notes"]


def test_scalars_empty_ones_and_three_shapes():
    assert shapes("", "4")["axes"][0]["states"] == ["missing", "equal"]
    assert shapes("", "")["axes"] == [] and shapes("", "")["cells"]["list"][0]["index"] == []
    empty = shapes("0, 3", "1")
    assert empty["result"]["elements"] == 0 and empty["cells"]["list"] == []
    assert shapes("2,1,3", "4,1", "5,1,1,1")["result"]["shape"] == [5, 2, 4, 3]


def test_large_shapes_cost_nothing():
    answer = shapes("1000000, 1", "1000000")
    assert answer["result"]["bytes"] == 4 * 10**12
    assert answer["cells"]["drawn"] == [8, 8] and not answer["cells"]["whole"]
    assert answer["cells"]["list"][-1] == {"index": [7, 7], "offsets": [7, 7], "offset": 7000007}


@pytest.mark.parametrize(("text", "why"), [
    ("a,b", "'a' is not a size"), ("-1", "never negative"), ("2.5", "'2.5' is not a size"),
    ("9" * 40, "is not a size"), ("1000000000000000", "is not a size"),
    ("999999999999999", "at most"), ("99999,99999,99999", "at most"),
    ("1,1,1,1,1,1,1", "at most 6"), ("1," * 80, "short text"), (None, "short text")])
def test_what_is_no_shape_is_refused(text, why):
    with pytest.raises(UsageError, match=why):
        shapes(text, "4")


def test_a_result_beyond_all_measure_is_refused():
    with pytest.raises(UsageError, match="the result would have"):
        shapes("1000000000, 1", "1000000000")
    with pytest.raises(UsageError, match="two or three"):
        shapes("3")


def test_views_are_lenses_over_one_storage():
    x, view, last = strides.compute({"shape": "3,4", "formula": "x.T[1:, ::2]"})["steps"]
    assert (view["strides"], view["contiguous"], view["default"]) == ([1, 4], False, [3, 1])
    assert (last["shape"], last["strides"], last["offset"]) == ([3, 2], [1, 8], 1)
    assert x["shares"] and view["shares"] and last["shares"]
    assert last["values"] == last["places"] == [[1, 9], [2, 10], [3, 11]]
    index = (2, 1)
    place = last["offset"] + sum(i * s for i, s in zip(index, last["strides"]))
    assert last["places"][2][1] == place == 11  # EQ F1.1


def test_copies_have_a_storage_of_their_own():
    copy = strides.compute({"shape": "2,3", "formula": "x.T.reshape(-1)"})["steps"][-1]
    assert not copy["shares"] and copy["values"] == [0, 3, 1, 4, 2, 5]
    assert copy["places"] == [0, 1, 2, 3, 4, 5]
    expanded = strides.compute({"shape": "1,3", "formula": "x.expand(4, 3)"})["steps"][-1]
    assert expanded["strides"] == [0, 1] and expanded["held"] == 24


def test_a_view_that_cannot_be_is_refused_in_the_librarys_words():
    answer = strides.compute({"shape": "3,4", "formula": "x.T.view(-1)"})
    assert "Use .reshape(...) instead" in answer["refused"]
    assert [step["source"] for step in answer["steps"]] == ["x", "x.T"]


def test_every_view_that_is_offered_works():
    for _, formula in strides.PRESETS:
        answer = strides.compute({"shape": "3,4", "formula": formula})
        assert bool(answer["refused"]) == (formula == "x.T.view(-1)")


@pytest.mark.parametrize(("asked", "why"), [
    ({"formula": "y = x"}, "one formula"), ({"formula": "x + y"}, "y is not known"),
    ({"formula": "x.numpy()"}, "no method numpy"), ({"formula": "x["}, "never closed"),
    ({"formula": 3}, "must be text"), ({"shape": "100"}, "1 to 64"), ({"shape": "0"}, "1 to 64"),
    ({"formula": "open('x')"}, "'x' is not a number")])
def test_what_is_no_view_is_refused(asked, why):
    with pytest.raises(UsageError, match=re.escape(why)):
        strides.compute(asked)


# -- the graph -----------------------------------------------------------------------------------


def of(program, frozen=(), **inputs):
    return graph.compute({"program": program, "inputs": inputs, "frozen": list(frozen)})


def node(answer, name):
    return next(each for each in answer["nodes"] if name in each["names"])


def test_the_graph_of_the_book():
    answer = of("c = a*b; d = c + a; L = d**2", a=2, b=3)
    assert [each["value"] for each in answer["nodes"]] == [2, 3, 6, 8, 64]
    assert [each["grad"] for each in answer["nodes"]] == [64, 32, None, None, None]
    assert [step["grad_fn"] for step in answer["steps"]] == ["PowBackward0", "AddBackward0",
                                                             "MulBackward0"]
    assert [step["adjoint"] for step in answer["steps"]] == [1, 16, 16]
    to_a = [(each["value"], step["node"]) for step in answer["steps"] for each in step["gives"]
            if answer["edges"][each["edge"]]["from"] == 0]
    assert to_a == [(16, 3), (48, 2)]
    assert [step["grads"] for step in answer["steps"]] == [{}, {0: 16}, {0: 64, 1: 32}]
    assert [step["keeping"] for step in answer["steps"]] == [[2], [2], []]
    assert node(answer, "c")["kept"] == ["a = 2", "b = 3"] and node(answer, "L")["kept"] == [
        "d = 8"]


def test_adjoints_are_those_of_the_library():
    program = ("h = tanh(W @ x + b)\ny = sigmoid(h.sum()) * exp(-h[0])\n"
               "L = (y - softmax(h, dim=0)).square().mean() / 3")
    inputs = {"W": [[0.1, -0.2], [0.3, 0.4]], "x": [1.0, 2.0], "b": [0.5, -0.5]}
    answer = of(program, **inputs)
    W, x, b = (flambeau.tensor(inputs[name], requires_grad=True) for name in "Wxb")
    h = flambeau.tanh(W @ x + b)
    y = flambeau.sigmoid(h.sum()) * flambeau.exp(-h[0])
    L = (y - flambeau.softmax(h, dim=0)).square().mean() / 3
    L.backward()
    assert [node(answer, n)["grad"] for n in "Wxb"] == [plain(t.grad) for t in (W, x, b)]
    assert node(answer, "L")["value"] == L.item() and not answer["refused"]
    assert len(answer["steps"]) == len({step["node"] for step in answer["steps"]})
    given = [each["edge"] for step in answer["steps"] for each in step["gives"]]
    assert sorted(given) == [k for k, edge in enumerate(answer["edges"]) if edge["live"]]


def test_what_comes_by_several_ways_is_the_adjoint():
    answer = of("s = a*a; L = s*s + s", a=1.5)
    came = {}
    for step in answer["steps"]:
        for each in step["gives"]:
            source = answer["edges"][each["edge"]]["from"]
            came[source] = came.get(source, 0) + each["value"]
    for step in answer["steps"][1:]:
        assert came[step["node"]] == step["adjoint"]
    assert came[0] == node(answer, "a")["grad"] == 4 * 1.5**3 + 2 * 1.5


def test_what_is_cut_off_is_drawn_and_explained():
    answer = of("h = exp(a)\nwith no_grad():\n    m = h*b\nk = h.detach()\nz = h*2\nL = h*m + k*c",
                frozen=["c"], a=0.5)
    why = {name: node(answer, name)["cut"] for name in "ahmkcbz"}
    assert why["a"] is None and why["h"] is None
    assert "no_grad" in why["m"] and "detach" in why["k"] and why["c"] == "requires no gradient"
    assert why["b"] == "no way leads back to it from L" and why["z"] == "not used by L"
    dead = {(edge["from"], edge["to"]) for edge in answer["edges"] if not edge["live"]}
    number = {name: node(answer, name)["id"] for name in "hmk"}
    assert {(number["h"], number["m"]), (number["h"], number["k"])} <= dead
    assert node(answer, "b")["grad"] is None and node(answer, "m")["grad_fn"] is None


def test_retained_gradients_are_seen():
    answer = of("c = a*b; c.retain_grad(); L = c**2", a=2, b=3)
    assert node(answer, "c")["retains"] and node(answer, "c")["grad"] == 12
    assert node(answer, "L")["grad"] is None


def test_inputs_are_free_names_and_literals():
    answer = of("w = [[1, 2], [3, 4]]; L = (w @ x).sum()", x="[1, -1]")
    assert [(each["name"], each["shape"], each["in_program"]) for each in answer["inputs"]] == [
        ("w", [2, 2], True), ("x", [2], False)]
    assert node(answer, "w")["grad"] == [[1, -1], [1, -1]]
    assert node(of("L = t*t", t=3), "t")["grad"] == 6  # the name of a method may be a name
    assert of("L = a*b")["inputs"][1]["value"] == 1  # what is not given is 1
    assert of("L = a", a=3)["steps"] == [] and node(of("L = a", a=3), "a")["grad"] == 1


def test_what_backward_refuses_is_told():
    assert "scalar outputs" in of("L = [1, 2]*a")["refused"]
    assert "does not require grad" in of("L = a*2", frozen=["a"])["refused"]
    assert "a number" in of("c = a*2\nL = 2*3")["refused"]


def test_the_first_value_that_is_no_number_is_told():
    assert "line 2: log(b) is the first that is nan" in of("b = -a\nL = log(b)")["notes"][0]
    assert "a/0 is the first that is inf" in of("L = a/0")["notes"][0]
    assert node(of("L = a/0"), "L")["value"] == "inf"


@pytest.mark.parametrize(("program", "why"), [
    ("", "empty"), ("a b", "invalid syntax"), ("L = a +", "invalid syntax"),
    ("x = __import__('os')", "'os' is not a number"), ("L = open(a)", "no function open"),
    ("L = a.__class__", "only attributes"), ("L = a.numpy()", "no method numpy"),
    ("L = a.data", "only attributes"), ("L = eval(a)", "no function eval"),
    ("import os", "import is not understood"), ("L = (lambda: 1)()", "no function there"),
    ("for i in a: pass", "for is not understood"), ("L = [i for i in a]", "comprehension"),
    ("L = 1/0", "by zero"), ("L = 9**9**9**9", "too large"), ("L = 1e999*a", "too large"),
    ("L = (-8)**0.5*a", "not a real number"), ("L = a % b", "no operator|not understood"),
    ("a += 1", "in place"), ("a[0] = 1", "only a name"), ("_x = a", "cannot be the name"),
    ("L = zork(a)", "no function zork"), ("L = exp", "exp is a function"),
    ("L = [1, 2, 3] @ [1, 2]", "inner sizes"), ("L = a.expand(100000)", "at most 256"),
    ("L = a.view(2, 3)", "line 1"), ("L = sum(a, dim=5)", "out of range"),
    ("L = " + "(" * 300 + "a" + ")" * 300, "nested"), ("L = " + "-" * 1500 + "a", "nested"),
    ("L = a\0", "cannot be read|null bytes"), ("L = a" + "+a" * 100, "more than 80 operations"),
    ("L = " + "a" * 3000, "at most 2,000"), ("L = a.exp(**b)", "not understood"),
    ("with open(a): L = a", "only blocks"), ("L = [[1, 2], [3]]*a", "line 1|a literal"),
    ("a.retain_grad()\n", "names no result"), ("L = True*a", "line 1|L")])
def test_what_is_no_program_is_refused_in_a_sentence(program, why):
    try:
        answer = of(program)
    except UsageError as mistake:
        assert re.search(why, str(mistake)) and "\n" not in str(mistake)
    else:
        assert program == "L = True*a" and answer["output"] == "L"


@pytest.mark.parametrize(("value", "why"), [
    ("nan", "neither"), ("1e99", "finite"), (float("nan"), "finite"), ("[1, x]", "neither"),
    ("[[1, 2], [3]]", "a: "), ([[1] * 20] * 20, "400 elements"), ("[]", "0 elements"), ({}, "a: "),
    ("__import__('os')", "neither"), ("-" * 5000 + "1", "neither"), (None, "a: ")])
def test_what_is_no_value_is_refused(value, why):
    with pytest.raises(UsageError, match=re.escape(why)):
        of("L = a*2", a=value)


def test_unknown_inputs_and_odd_questions_are_refused():
    with pytest.raises(UsageError, match="no input named z; it has a"):
        of("L = a*2", z=1)
    for asked in ({"inputs": [1]}, {"inputs": 3}, {"frozen": "a"}, {"program": 3}):
        with pytest.raises(UsageError):
            graph.compute({"program": "L = a", **asked} if "program" not in asked else asked)


def test_every_function_that_is_offered_is_there():
    two = {"maximum", "minimum"}
    for name in FUNCTIONS:
        more = ", 1*x" if name in two else ", dim=0" if name in ("logsumexp", "softmax") else ""
        answer = of(f"L = {name}(x{more}).sum()", x=[0.5, 0.25])
        assert answer["refused"] is None and node(answer, "x")["grad"] is not None, name
    for sign, do in OPERATORS.values():
        x = flambeau.tensor([0.5, 2.0])
        assert node(of(f"L = x {sign} x", x=[0.5, 2.0]), "L")["value"] == plain(do(x, x))


def test_nothing_outside_is_disturbed():
    with flambeau.no_grad():
        assert node(of("L = a*a", a=3), "a")["grad"] == 6
        assert not flambeau.is_grad_enabled()
    state = flambeau.get_rng_state()
    loop.compute({"steps": 3})
    assert (flambeau.get_rng_state() == state).all()


def test_programs_record_nothing_when_they_may_not():
    text = "h = a*2\nwith no_grad():\n    with enable_grad():\n        L = h*3"
    program = Program(text, {}).run()
    assert program.names["L"].requires_grad and issubclass(RuntimeError, REFUSALS)


# -- where boxes stand ---------------------------------------------------------------------------


def test_boxes_stand_in_layers_with_room_between():
    edges = [(0, 2), (1, 2), (2, 3), (0, 3), (3, 4), (1, 4)]
    places, between = layers.place(5, edges)
    assert [layer for layer, _ in places] == [0, 0, 1, 2, 3]
    assert all(places[a][0] < places[b][0] for a, b in edges)
    assert [[layer for layer, _ in points] for points in between] == [
        [], [], [], [1], [], [1, 2]]
    taken = [*places, *(point for points in between for point in points)]
    for level in range(4):
        heights = sorted(height for layer, height in taken if layer == level)
        assert all(b - a > 0.999 for a, b in pairwise(heights)), heights
    assert min(height for _, height in taken) == 0
    assert layers.place(0, []) == ([], [])


# -- the loop ------------------------------------------------------------------------------------


def trained(**asked):
    return loop.compute({"steps": 30, **asked})


def test_the_five_lines_do_what_they_say():
    answer = trained(at=2)
    assert [seen["line"] for seen in answer["detail"]] == ["start", "zero_grad", "forward", "loss",
                                                           "backward", "step"]
    start, zero, forward, loss, backward, step = answer["detail"]
    assert None not in start["grads"].values() and set(zero["grads"].values()) == {None}
    assert forward["graph"]["names"] == ["AddmmBackward0"] and forward["loss"] is None
    assert loss["graph"]["steps"] == 2 and loss["graph"]["kept"] > forward["graph"]["kept"] > 0
    assert loss["loss"] == answer["losses"][2]
    assert backward["graph"]["freed"] == 2 and backward["graph"]["kept"] == 0
    assert backward["params"] == loss["params"]
    weight, g = backward["params"]["weight"][0][0], backward["grads"]["weight"][0][0]
    assert step["params"]["weight"][0][0] == pytest.approx(weight - 0.1 * g, rel=1e-6)
    assert "Every parameter moved" in step["says"] and short(g) in step["says"]


def test_the_numbers_are_those_of_a_loop_written_out():
    answer = trained(at=4)
    lesson = loop.Lesson(loop.lessons.LESSONS["line"], shuffle=True)
    optimizer = flambeau.optim.SGD(lesson.model.parameters(), lr=0.1)
    losses = []
    for number in range(30):
        x, y = lesson.batch(number)
        optimizer.zero_grad()
        value = flambeau.nn.functional.mse_loss(lesson.model(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert answer["losses"] == losses == answer["should"]
    assert answer["frames"][-1]["params"] == [plain(p) for p in lesson.model.parameters()]
    weight, bias = (plain(p.reshape(-1))[0] for p in lesson.model.parameters())
    assert weight == pytest.approx(2, abs=0.2) and bias == pytest.approx(1, abs=0.2)


def test_any_step_can_be_looked_at_again():
    first, again = trained(at=7, model="net"), trained(at=7, model="net")
    assert json.dumps(first) == json.dumps(again)
    assert trained(at=8, model="net")["losses"] == first["losses"]
    assert len(first["frames"][0]["plane"]) == 2 * first["data"]["grid"] ** 2


def test_without_zero_grad_gradients_add_up():
    answer = trained(without=["zero_grad"], at=3)
    before, after = answer["detail"][2], answer["detail"][3]
    assert (before["line"], after["line"]) == ("loss", "backward")
    assert "Added to what was there" in after["says"]
    assert before["grads"]["weight"] != after["grads"]["weight"]
    assert [line["runs"] for line in answer["lines"]] == [False, True, True, True, True]
    assert answer["losses"][-1] > 10 * answer["should"][-1]


def test_step_before_backward_never_learns():
    answer = trained(early=True)
    assert [line["key"] for line in answer["lines"]][-2:] == ["step", "backward"]
    assert "no parameter ever moved" in answer["verdict"][1]
    assert answer["frames"][0]["params"] == answer["frames"][-1]["params"]
    stale = trained(early=True, without=["zero_grad"], at=5)
    assert "of an earlier step" in stale["detail"][-2]["says"]


def test_step_between_forward_and_backward_is_noticed():
    answer = trained(early=True, without=["zero_grad"], model="net", at=9)
    assert answer["refused"]["step"] == answer["at"] == len(answer["losses"]) - 1 < 9
    assert answer["detail"][-1]["line"] == answer["refused"]["line"] == "backward"
    assert "modified by an inplace operation" in answer["detail"][-1]["says"]
    assert "ended in step" in answer["verdict"][0] and len(answer["should"]) == 30


def test_whatever_is_left_out_is_shown():
    for model in ("line", "net"):
        for count in range(len(WITHOUT) + 1):
            for without in combinations(WITHOUT, count):
                for early in (False, True):
                    answer = trained(model=model, without=list(without), early=early, steps=9, at=5)
                    json.dumps(answer, allow_nan=False)
                    assert answer["verdict"] and len(answer["detail"]) >= 3


def test_validation_without_no_grad_keeps_graphs():
    answer, right = trained(without=["no_grad"]), trained()
    assert [each["steps"] for each in answer["validation"]] == [2 * k for k in range(1, 11)]
    assert {each["steps"] for each in right["validation"]} == {0}
    assert [each["loss"] for each in answer["validation"]] == [
        each["loss"] for each in right["validation"]]
    assert "10 validation losses that were kept hold 20 steps" in answer["verdict"][1]


def test_validation_without_eval_is_never_the_same():
    answer = trained(model="net", without=["eval"])
    assert all(each["loss"] != each["again"] for each in answer["validation"])
    assert all(each["loss"] == each["again"] for each in answer["should_validation"])
    assert "dropout stays on" in answer["verdict"][1]
    assert "no dropout" in trained(without=["eval"])["verdict"][1]


def test_without_shuffling_batches_are_sorted():
    answer = trained(without=["shuffle"], model="net")
    kinds = [{y for [y] in answer["data"]["y"][k:k + 32]} for k in (0, 64)]
    assert kinds == [{0.0}, {1.0}]
    assert "Without shuffling" in answer["verdict"][1] and answer["losses"] != answer["should"]


def test_a_rate_that_is_too_high_overflows():
    answer = trained(lr=50, steps=60)
    assert answer["losses"][-1] == "nan"
    assert "stopped being a number at step" in answer["verdict"][1]
    json.dumps(answer, allow_nan=False)
    assert "too high" in trained(lr=1)["verdict"][1]


@pytest.mark.parametrize("asked", [
    {"lr": 0}, {"lr": "x"}, {"lr": float("nan")}, {"lr": True}, {"steps": 10**9}, {"steps": 2.5},
    {"at": -1}, {"model": []}, {"model": "gpt"}, {"without": "x"}, {"without": ["y"]},
    {"without": [[]]}])
def test_what_is_no_loop_is_refused(asked):
    with pytest.raises(UsageError):
        trained(**asked)


# -- as text -------------------------------------------------------------------------------------


def test_shapes_as_text(capsys):
    text = told(capsys, "broadcasting", "64,1", "768")
    assert re.search(r"A is +equal +stretched\n +B is +missing +equal", text)
    assert "result (64, 768): 49,152 elements, 197 kB" in text
    assert re.search(r"A +\(64, 1\) +\(1, 1\) +\(1, 0\) +256 bytes +197 kB", text)
    assert "size of tensor a (3) must match" in told(capsys, "broadcasting", "3", "4")
    view = told(capsys, "broadcasting", "3,4", "x.T[1:]")
    assert re.search(r"x\.T\[1:\] +\(3, 3\) +\(1, 4\) +1 +no +x's own", view)


def test_the_graph_as_text(capsys):
    text = told(capsys, "graph", "c = a*b; d = c + a; L = d**2", "a=2", "b=3")
    assert "L = 64   PowBackward0   adjoint 1" in text and "c = 6   MulBackward0" in text
    assert text.count("a = 2  <- ") == 2 and "a.grad = 64\n  b.grad = 32" in text
    assert "3. c  MulBackward0: a += 48, b += 32\n     kept a = 2; b = 3" in text
    assert told(capsys, "graph", "--text") == text
    frozen = told(capsys, "graph", "L = a*b", "a=2", "--frozen", "b")
    assert "b = 1   cut off: requires no gradient" in frozen and "b.grad" not in frozen


def test_the_graph_in_plain_letters(capsys, monkeypatch):
    monkeypatch.setattr("flambeau.cli.terminal.alphabet", lambda: "ascii")
    assert "|- c = 6" in told(capsys, "graph", "c = a*b; L = c + a", "a=2", "b=3")


def test_the_loop_as_text(capsys):
    text = told(capsys, "loop", "--without", "zero_grad", "--at", "3", "--steps", "12")
    assert "# optimizer.zero_grad()   left out" in text and "Added to what was there" in text
    assert "step 3, line by line" in text and "12 steps, 3 to a pass, without zero_grad" in text
    assert "step before backward" in told(capsys, "loop", "--early", "--steps", "3")
    assert "nan" in told(capsys, "loop", "--lr", "90", "--steps", "90")


def test_the_documentation_shows_what_is_printed(capsys):
    page = Path(__file__).resolve().parents[1].joinpath("docs", "explore.md")
    shown = re.findall(r"^```\n\$ flambeau explore (.*)\n((?:.*\n)*?)```$",
                       page.read_text(encoding="utf-8"), re.M)
    assert len(shown) == 3
    for command, output in shown:
        assert told(capsys, *shlex.split(command)) == output


@pytest.mark.parametrize(("arguments", "why"), [
    (["broadcasting", "-1,3", "4"], "never negative"), (["broadcasting", "3"], "two or three"),
    (["broadcasting", "a,b", "4"], "'a' is not a size"),
    (["broadcasting", "2,2", "x.T", "x"], "a view is"), (["graph", "L=a+"], "invalid syntax"),
    (["graph", "L=a", "a"], "is no input"), (["graph", "L=a", "z=1"], "no input named z"),
    (["graph", "L=a", "--lr", "1"], "for flambeau explore loop"),
    (["loop", "--frozen", "a"], "for flambeau explore graph"), (["loop", "x"], "no operands"),
    (["--port", "99999"], "0 .* to 65535"), (["loop", "--steps", "5000"], "from 1 to 1,000")])
def test_mistakes_on_the_command_line_are_told_in_a_line(arguments, why, capsys):
    assert main(["explore", *arguments]) == 2
    assert re.fullmatch(f"flambeau explore: .*{why}.*\n", capsys.readouterr().err)


def test_nothing_of_it_is_loaded_before_it_is_asked_for():
    program = ("import sys, flambeau, flambeau.cli.explore\n"
               "assert not [m for m in sys.modules if m.startswith('http.') "
               "or m.startswith('flambeau.cli.explore.')]")
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
