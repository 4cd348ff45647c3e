"""What `flambeau explore` shows of a program is what PyTorch computes and records for it."""

import pytest
import torch

from flambeau.cli.explore import broadcasting, graph, strides

PROGRAMS = [
    ("c = a*b\nd = c + a\nL = d**2", {"a": 2.0, "b": 3.0}),
    ("z = w @ x + b\ny = sigmoid(z)\nL = (y - 1)**2",
     {"w": [0.5, -1.0], "x": [1.0, 2.0], "b": 0.2}),
    ("h = tanh(a*b)\nk = h.detach()\nwith no_grad():\n    m = h*b\nL = h*k + a*m - exp(-a)/b",
     {"a": 0.5, "b": 1.5}),
    ("c = a*b\nc.retain_grad()\nL = sin(c) + c**2", {"a": 1.0, "b": 0.5}),
    ("s = softmax(W @ W.T, dim=0)\nL = (s.log()*s).sum() + relu(v).mean()*v[0]",
     {"W": [[0.1, 0.2], [0.3, -0.4]], "v": [1.0, -2.0, 3.0]}),
]


def recorded(L):
    """Names of the steps, in the order in which torch walks them, with what comes to each."""
    walked, seen, waiting = [], set(), [L.grad_fn]
    while waiting:
        step = waiting.pop()
        if step is None or step in seen or step.name().endswith("AccumulateGrad"):
            continue
        seen.add(step)
        step.register_hook(lambda _, given, step=step: walked.append((step.name(), given[0])))
        waiting += [behind for behind, _ in step.next_functions]
    return walked


@pytest.mark.parametrize(("program", "inputs"), PROGRAMS)
def test_graphs_are_those_of_torch(program, inputs):
    answer = graph.compute({"program": program, "inputs": inputs})
    names = {name: torch.tensor(value, requires_grad=True) for name, value in inputs.items()}
    exec(program, vars(torch) | {}, names)
    walked = recorded(names["L"])
    names["L"].backward()
    assert [step["grad_fn"] for step in answer["steps"]] == [name for name, _ in walked]
    for step, (_, given) in zip(answer["steps"], walked):
        torch.testing.assert_close(torch.tensor(step["adjoint"]), given)
    for node in answer["nodes"]:
        for name in node["names"]:
            theirs = names[name]
            torch.testing.assert_close(torch.tensor(node["value"]), theirs.detach())
            assert node["requires_grad"] == theirs.requires_grad
            grad = theirs.grad if theirs.is_leaf or theirs.retains_grad else None
            assert (node["grad"] is None) == (grad is None), name
            if grad is not None:
                torch.testing.assert_close(torch.tensor(node["grad"]), grad)


@pytest.mark.parametrize("shapes", [("64,1", "768"), ("2,1,3", "4,1"), ("", "5"), ("0,3", "1")])
def test_strides_are_those_of_torch(shapes):
    answer = broadcasting.compute({"shapes": list(shapes)})
    tensors = [torch.empty(broadcasting.shape_of(text, "A")) for text in shapes]
    for operand, expanded in zip(answer["operands"], torch.broadcast_tensors(*tensors)):
        assert operand["expanded_strides"] == list(expanded.stride())
    assert answer["result"]["shape"] == list((tensors[0] + tensors[1]).shape)


@pytest.mark.parametrize("formula", [formula for _, formula in strides.PRESETS[:-1]])
def test_views_are_those_of_torch(formula):
    step = strides.compute({"shape": "3,4", "formula": formula})["steps"][-1]
    x = torch.arange(12).reshape(3, 4).clone()
    theirs = eval(formula, {"x": x})
    assert (step["shape"], step["strides"], step["offset"], step["contiguous"]) == (
        list(theirs.shape), list(theirs.stride()), theirs.storage_offset(), theirs.is_contiguous())
    assert step["values"] == theirs.tolist()
    assert step["shares"] == (theirs.untyped_storage().data_ptr() == x.data_ptr())
