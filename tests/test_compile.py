"""compile: the same meaning as eager, on known paths and new ones."""

import copy
import gc
import os
import pickle
import threading
import warnings

import numpy as np
import pytest
import registry_samples as samples
from programs import WIDTH, Lines, World, program

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

PROGRAMS = int(os.environ.get("FLAMBEAU_PROGRAMS", "60"))
FIRST = int(os.environ.get("FLAMBEAU_FIRST_PROGRAM", "0"))
#: rows of the arguments, by kind of call
ROWS = (3, 3, 3, 5, 3, 5)
#: kinds of call, one after the other: most come back, for what is to be known is learnt first
KINDS = (0, 0, 0, 1, 2, 1, 1, 3, 3, 4, 3, 5, 0, 0)
#: and where Python is to be left out, each often enough
CALM_KINDS = (*[0] * 7, *[1] * 7, 0, 0, 2, *[3] * 7, 4, 3, 1, 5, 0, 1, 0)
#: from this call on numbers are others than those that paths were learnt with
OTHER_NUMBERS = 10


def outcome(call, lines, world, turn, kind) -> dict:
    """Everything that can be seen after a call, by name."""
    torch.manual_seed(turn)
    rows = ROWS[kind]
    items = [torch.randn(rows, WIDTH, requires_grad=kind != 4), torch.randn(rows, WIDTH)]
    if kind % 2:
        items[1].requires_grad_(True)
    if kind == 5:
        items[1] = items[0]
    options = {"rate": 0.5 + kind * 0.25 + 0.125 * (turn >= OTHER_NUMBERS), "count": kind % 3,
               "plain": torch.ones(rows, WIDTH)}
    seen = {}
    try:
        found = call(items, options)
        if not lines.goes_back and found["loss"].requires_grad:
            found["loss"].backward()
        seen = {"out": found["out"], "loss": found["loss"], "some": found["some"][0],
                "wants": found["out"].requires_grad, "rate": found["some"][1]}
        with torch.no_grad():  # whoever shares its memory is to see that
            found["some"][0].add_(0.25)
    except RuntimeError as error:
        if "fullgraph=True" in str(error):
            return {}
        seen = {"raised": type(error)}
    seen |= {"x": items[0], "x.grad": items[0].grad, "y.grad": items[1].grad,
             "plain": options["plain"], **world.tensors(), "log": list(world.log),
             "next random numbers": torch.rand(2)}
    world.log.clear()
    world.kept.clear()
    return {k: v.detach().numpy().copy() if isinstance(v, torch.Tensor) else v
            for k, v in seen.items()}


def differences(one: dict, two: dict) -> list[str]:
    """Names of what two calls left differently."""
    if one.keys() != two.keys():
        return [f"{one.keys() ^ two.keys()}: {one.get('raised')} {two.get('raised')}"]
    return [k for k in one if not alike(one[k], two[k])]


def alike(a, b) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and np.allclose(
            a, b, rtol=2e-3, atol=2e-4, equal_nan=True)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float):
        return a == pytest.approx(b, rel=1e-2, abs=5e-3, nan_ok=True)
    return a == b


def agree(lines, seed, kinds=KINDS, **options):
    """Whether all calls were made; a program that fullgraph=True refuses ends there.

    Every call starts from equal worlds: a program that diverges makes much of what was rounded
    otherwise in the call before, in eager as well.
    """
    one, two = World(seed), World(seed)
    eager, compiled = program(lines, one), torch.compile(program(lines, two), **options)
    for turn, kind in enumerate(kinds):
        expected, found = (outcome(call, lines, world, turn, kind)
                           for call, world in ((eager, one), (compiled, two)))
        if not found:
            assert options.get("fullgraph"), f"call {turn} is refused"
            return False
        wrong = differences(expected, found)
        assert not wrong, f"call {turn}: {wrong}"
        two.be_like(one)
    return compiled.calm.played or True


@pytest.mark.parametrize("seed", range(FIRST, FIRST + PROGRAMS))
def test_random_programs_mean_what_they_mean_in_eager(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agree(Lines(seed), seed)


def test_random_programs_without_python_mean_the_same():
    """With fullgraph=True none is refused that does not look at values or hang hooks on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(FIRST, FIRST + PROGRAMS // 3):
            assert agree(Lines(seed, quiet=True), seed, fullgraph=True), f"{seed} is refused"


def test_random_programs_that_become_calm_mean_the_same(monkeypatch):
    """Python is left out of many of them, though nobody asked for that."""
    monkeypatch.setenv("FLAMBEAU_CALM", "1")
    played = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(FIRST, FIRST + PROGRAMS // 3):
            played += agree(Lines(seed, quiet=seed % 2 == 0), seed, CALM_KINDS) > 5
    assert played > PROGRAMS // 30


def seed_example(x, depth=4):
    for _ in range(depth):
        x = torch.tanh(x * 1.5) if x.mean() > 0 else -x
    return x


def test_both_branches_and_explain():
    compiled = torch.compile(seed_example)
    for k in range(12):
        torch.manual_seed(k)
        x = torch.randn(5)
        assert torch.equal(compiled(x), seed_example(x))
    told = str(torch.compiler.explain(compiled))
    assert "tanh" in told and "neg" in told and "Python needs a value" in told
    assert "test_compile.py:" in told


def steps_of(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    return step


def network():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Dropout(0.25), nn.Linear(36, 5))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_training_step(fullgraph):
    torch.manual_seed(0)
    one = network()
    two = copy.deepcopy(one)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (one, two)]
    eager = steps_of(one, optimizers[0])
    compiled = torch.compile(steps_of(two, optimizers[1]), fullgraph=fullgraph)
    for k in range(8):
        if k == 5:
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = 0.1
        torch.manual_seed(k)
        x, y = torch.randn(6, 1, 8, 8), torch.randint(0, 5, (6,))
        losses = []
        for step in (eager, compiled):
            torch.manual_seed(k)
            losses.append(step(x, y).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    assert fullgraph is bool(compiled.scripts)


def test_a_module_keeps_its_names_and_its_class():
    model = network()
    compiled = torch.compile(model)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert isinstance(compiled, nn.Sequential) and repr(compiled) == repr(model)
    compiled.eval()
    assert not model.training
    x = torch.randn(2, 1, 8, 8)
    for _ in range(3):
        assert torch.equal(compiled(x), model(x))
    again = copy.deepcopy(compiled)
    assert torch.equal(again(x), model(x))
    assert torch.equal(pickle.loads(pickle.dumps(compiled))(x), model(x))
    model.compile()
    assert torch.equal(model(x), compiled(x))


def test_backward_after_the_call_and_gradients_add_up():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    compiled = torch.compile(model)
    for turn in range(4):
        x = torch.randn(5, 4)
        model.zero_grad()
        compiled(x).sum().backward()
        compiled(x).sum().backward()
        assert np.allclose(model.weight.grad.numpy(), np.tile(2 * x.numpy().sum(0), (3, 1)),
                           rtol=1e-4, atol=1e-5), turn


def test_numbers_are_inputs_and_side_effects_happen():
    seen = []

    @torch.compile
    def scaled(x, rate):
        seen.append(rate)
        return x * rate + 1.0

    x = torch.ones(3)
    for k in range(6):
        assert scaled(x, k + 0.5)[0].item() == k + 1.5
    assert seen == [k + 0.5 for k in range(6)]
    assert scaled.report.captured <= 2  # once more when a number differs for the first time


def test_a_frozen_or_replaced_parameter_and_no_grad():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    compiled = torch.compile(model)
    x = torch.randn(4, 3)
    for _ in range(2):
        compiled(x).sum().backward()
    model[0].weight.requires_grad_(False)
    model.zero_grad()
    out = compiled(x)
    out.sum().backward()
    assert model[0].weight.grad is None and model[2].weight.grad is not None
    model[2] = nn.Linear(3, 1)
    assert torch.equal(compiled(x), model(x))
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        for _ in range(2):
            assert compiled(x).is_inference()
    model.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})
    assert compiled(x).abs().sum().item() == 0


def test_indices_are_still_checked():
    lookup = nn.Embedding(10, 4)
    compiled = torch.compile(lambda i: lookup(i) * 2)
    for _ in range(3):
        compiled(torch.tensor([1, 2, 9]))
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 2, 10]))
    loss = torch.compile(lambda x, y: F.cross_entropy(x, y))
    for _ in range(3):
        loss(torch.randn(3, 4), torch.tensor([0, 1, 3]))
    with pytest.raises(IndexError):
        loss(torch.randn(3, 4), torch.tensor([0, 1, 4]))


def test_errors_leave_nothing_traced():
    @torch.compile
    def wrong(x):
        x.mul(2)
        raise KeyError("mine")

    x = torch.ones(2)
    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            wrong(x)
    assert (x + 1).sum().item() == 4 and not torch.compiler.is_compiling()


def test_fullgraph_refuses_what_needs_python():
    @torch.compile(fullgraph=True)
    def reads(x):
        return x * 2 if x.sum().item() > 0 else x

    with pytest.raises(RuntimeError, match="fullgraph"):
        for _ in range(3):
            reads(torch.ones(3))


def test_fullgraph_notices_what_changes():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    factor = 2.0

    @torch.compile(fullgraph=True)
    def f(x):
        return model(x) * factor

    x = torch.randn(4, 3)
    for _ in range(4):
        f(x)
    model.eval()
    assert torch.equal(f(x), model(x) * 2.0)
    factor = 3.0
    for _ in range(3):
        assert torch.allclose(f(x), model(x) * 3.0)
    for n in (5, 6, 5, 6, 5, 6):
        x = torch.randn(n, 3)
        assert torch.allclose(f(x), model(x) * 3.0)
    assert len(f.scripts) >= 3


def test_verify_names_the_op(monkeypatch):
    compiled = torch.compile(lambda x: (x * 2).exp().sum(0), verify=3)
    for _ in range(4):
        compiled(torch.randn(3, 3))
    from flambeau.compiler import verify

    monkeypatch.setattr(verify.np, "allclose", lambda *a, **k: False, raising=False)
    compiled = torch.compile(lambda x: x * 2, verify=3)
    compiled(torch.randn(3))
    with pytest.raises(RuntimeError, match="mul differs from eager"):
        compiled(torch.randn(3))


def test_a_function_that_is_never_the_same_runs_eagerly():
    compiled = torch.compile(lambda x: (x * 2).sum())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for n in range(1, 80):
            assert compiled(torch.ones(n)).item() == 2 * n
    assert sum("is seldom called in the same way" in str(w.message) for w in said) == 1
    report = torch.compiler.explain(compiled)
    assert report.captured <= 6 and report.passed > 60
    for _ in range(80):  # what is met again and again is learnt
        assert compiled(torch.ones(30)).item() == 60
    assert report.captured <= 8 and len(report.programs) == 1


def test_a_function_whose_paths_are_never_the_same_runs_eagerly():
    turns = iter(range(1000))
    compiled = torch.compile(lambda x: x.roll(next(turns)) * 2)
    x = torch.arange(1000.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(500):
            assert compiled(x)[k].item() == 0
    assert sum("runs eagerly from now on" in str(w.message) for w in said) == 1
    assert torch.compiler.explain(compiled).captured == 17 and compiled.given_up
    torch.compiler.reset()
    assert not compiled.given_up


def test_a_counter_among_the_arguments_is_no_other_kind_of_call():
    """Nor is a list that grows: the path is the same, whatever they are."""
    compiled, kept = torch.compile(lambda x, k, kept: kept.append(k) or (x * 2).sum()), []
    inputs = [torch.ones(n) for n in range(2, 8)]
    for k in range(3000):
        x = inputs[k % 6]
        assert compiled(x, k, kept).item() == 2 * len(x)
    report = torch.compiler.explain(compiled)
    assert kept == list(range(3000)) and report.captured < 20
    calls, passed = report.calls, report.passed
    for k in range(60):
        compiled(inputs[k % 6], k, kept)
    assert report.calls == calls + 60 and report.passed == passed


def test_many_paths_that_are_taken_again_are_all_learnt():
    @torch.compile
    def f(x):
        for k in range(4):
            x = x - 1 if x[k] > 0 else x * -2 + 0.5
        return x

    torch.manual_seed(0)
    for _ in range(500):
        x = torch.randn(4)
        assert torch.equal(f(x), f.function(x))
    report = torch.compiler.explain(f)
    assert not f.given_up and report.captured > 12 and report.passed < 250


def test_numbers_that_change_where_the_first_way_back_makes_more_than_others():
    """What is made once and kept, such as the gradient of a loss, is no other path."""
    w = torch.ones(3, requires_grad=True)

    @torch.compile
    def step(x, beta):
        loss = (w * x).sum() + beta * (w * w).sum()
        loss.backward()
        return loss

    x = torch.arange(3.0)
    for k in range(12):
        w.grad = None
        assert step(x, 0.5 + k).item() == 3 + 3 * (0.5 + k)
        assert w.grad.tolist() == [2 * (0.5 + k) + v for v in range(3)]
    assert torch.compiler.explain(step).captured <= 4


def test_disable_and_is_compiling():
    told = []

    @torch.compiler.disable
    def outside(x):
        told.append(torch.compiler.is_compiling())
        return x + 1

    @torch.compile
    def f(x):
        told.append(torch.compiler.is_compiling())
        return outside(x * 2) * 3

    for _ in range(3):
        assert f(torch.ones(2))[0].item() == 9
    assert told == [True, False] * 3


def test_several_models_and_lists_of_tensors():
    torch.manual_seed(0)
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)

    @torch.compile
    def f(items, named):
        return {"sum": one(items[0]) + two(named["x"]), "all": [i * 2 for i in items]}

    for _ in range(3):
        a, b = torch.randn(2, 3), torch.randn(2, 3)
        found = f([a, b], {"x": b})
        assert torch.allclose(found["sum"], one(a) + two(b))
        assert torch.equal(found["all"][1], b * 2)


def test_a_program_can_be_read():
    compiled = torch.compile(lambda x: (x + 1).relu())
    for _ in range(2):
        compiled(torch.randn(4))
    (_, found), = compiled.report.programs
    assert len(found.launches) == 1 and "b" in str(found)


def test_other_threads_go_on_while_a_path_is_recorded():
    stop, wrong = threading.Event(), []

    def others():
        x = torch.ones(50, 50)
        while not stop.is_set():
            if ((x * 2 + 1) @ x)[0, 0].item() != 150:
                wrong.append(1)

    threads = [threading.Thread(target=others) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for k in range(12):
            compiled = torch.compile(lambda x: ((x + 1.0) @ x).relu().sum())
            x = torch.full((40, 40), float(k))
            for _ in range(3):
                assert compiled(x).item() == ((x + 1.0) @ x).relu().sum().item()
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not wrong


def test_memory_does_not_grow():
    model = nn.Linear(8, 8)
    step = torch.compile(lambda x: F.relu(model(x)).sum().backward())
    x = torch.randn(4, 8)
    for _ in range(50):
        step(x)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        step(x)
    gc.collect()
    assert len(gc.get_objects()) - before < 50


def test_routines_of_one_name_are_told_apart():
    """Convolutions of one, of few and of many channels are different code under one name."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1),
                          nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.Flatten(),
                          nn.Linear(512, 10))
    compiled = torch.compile(model)
    for _ in range(3):
        x = torch.randn(32, 1, 8, 8)
        assert torch.allclose(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        compiled(x).sum().backward()


# -- every op of the registry ----------------------------------------------------------------------


def same(a, b) -> bool:
    if a is None or b is None:
        return a is b
    a, b = a.detach(), b.detach()
    return a.dtype is b.dtype and a.shape == b.shape and np.allclose(
        a.numpy(), b.numpy(), rtol=2e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "0-d"])
@pytest.mark.parametrize("given", [samples.FLOATS, samples.WHOLES, samples.TRUTHS])
def test_every_op_of_the_registry_is_the_same_compiled(given, layout):
    """All of them in one function: recorded, then replayed."""
    calls = [call for call in calls_of(given, layout) if works(*call)]

    def results(operands):
        return [op.run(*args, *rest)
                for (_, op, _, rest), args in zip(calls, operands, strict=True)]

    operands = [args for _, _, args, _ in calls]
    compiled, expected = torch.compile(results), results(operands)
    for turn in range(3):
        wrong = [call[0] for call, a, b in zip(calls, expected, compiled(operands), strict=True)
                 if not all(map(same, flat(a), flat(b)))]
        assert not wrong, f"call {turn}: {len(wrong)} of {len(calls)} ops differ: {wrong}"
    assert len(calls) > 30


def test_every_gradient_of_the_registry_is_the_same_compiled():
    calls = [call for call in calls_of(samples.FLOATS, "transposed") if works(*call)]

    def total(leaves):
        made = [op.run(*args, *rest) for (_, op, _, rest), args in zip(calls, leaves, strict=True)]
        wanted = [t for t in flat(made) if t.requires_grad and t.dtype is torch.float32]
        return torch.stack([t.sum() for t in wanted]).sum()

    compiled = torch.compile(total)
    for turn in range(2):
        one, two = ([[fresh(a) for a in args] for _, _, args, _ in calls] for _ in range(2))
        total(one).backward()
        compiled(two).backward()
        wrong = [call[0] for call, x, y in zip(calls, one, two, strict=True)
                 if not all(same(p.grad, q.grad) for p, q in zip(x, y, strict=True))]
        assert not wrong, f"call {turn}: {len(wrong)} of {len(calls)} ops differ: {wrong}"


def calls_of(given, layout) -> list:
    """(name, op, operands, other arguments) of the ops of the registry."""
    found = []
    for key, op in samples.pointwise_ops().items():
        if given in samples.kinds(op):
            found.append((key, op, [samples.layouts(samples.values(key, k, given))[layout]
                                    for k in range(len(op.operands))], ()))
    for key, op in samples.reductions().items():
        if given in samples.kinds(op):
            x = samples.layouts(samples.values(key, 0, given))[layout]
            found += [(f"{key} {rest}", op, [x], rest) for rest in ((), (-1,), (0, True))]
    return found


def works(name, op, args, rest) -> bool:
    """Whether an op takes such operands, in eager."""
    try:
        for t in flat(op.run(*map(fresh, args), *rest)):
            if t.requires_grad:
                t.backward(torch.ones_like(t), retain_graph=True)
    except (RuntimeError, TypeError, NotImplementedError, IndexError):
        return False
    return True


def fresh(x):
    """The same tensor as a leaf of its own."""
    return x.detach().requires_grad_(x.dtype is torch.float32)


def flat(value) -> list:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in flat(v)] if isinstance(value, (tuple, list)) else []


# -- what programs do ----------------------------------------------------------------------------


def pair():
    """Two models alike."""
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    return one, copy.deepcopy(one)


def assert_alike(one, two):
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_schedule_changes_the_rate(fullgraph):
    one, two = pair()
    steps, schedules = [], []
    for model in (one, two):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        schedules.append(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        steps.append(lambda x, m=model, o=optimizer: (
            o.zero_grad(), m(x).square().mean().backward(), o.step())[1])
    steps[1] = torch.compile(steps[1], fullgraph=fullgraph)
    for _ in range(6):
        x = torch.randn(3, 4)
        for step, schedule in zip(steps, schedules, strict=True):
            step(x)
            schedule.step()
    assert_alike(one, two)


def test_gradients_accumulate_and_are_clipped():
    one, two = pair()
    made = []
    for model in (one, two):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

        def step(x, last, model=model, optimizer=optimizer):
            model(x).square().mean().backward()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()

        made.append(step)
    made[1] = torch.compile(made[1])
    for k in range(9):
        x = torch.randn(3, 4)
        for step in made:
            step(x, k % 3 == 2)
        assert_alike(one, two)


def test_two_models_and_two_optimizers_in_one_step():
    worlds = []
    for _ in range(2):
        torch.manual_seed(1)
        maker, judge = nn.Linear(3, 3), nn.Linear(3, 1)
        first = torch.optim.Adam(maker.parameters(), lr=0.02)
        second = torch.optim.RMSprop(judge.parameters(), lr=0.01)

        def step(x, maker=maker, judge=judge, first=first, second=second):
            second.zero_grad()
            loss = judge(maker(x).detach()).mean() - judge(x).mean()
            loss.backward()
            second.step()
            first.zero_grad()
            other = -judge(maker(x)).mean()
            other.backward()
            first.step()
            return loss.item() + other.item()

        worlds.append((step, maker, judge))
    compiled = torch.compile(worlds[1][0])
    for _ in range(5):
        x = torch.randn(4, 3)
        assert worlds[0][0](x) == pytest.approx(compiled(x), rel=1e-4, abs=1e-5)
    assert_alike(worlds[0][1], worlds[1][1])
    assert_alike(worlds[0][2], worlds[1][2])


@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"mode": "max-autotune"},
                                     {"dynamic": True}, {"dynamic": False}, {"backend": "eager"},
                                     {"options": {"trace": 1}}, {"disable": True}])
def test_options_of_torch_change_no_result(options):
    compiled = torch.compile(lambda x: (x * 3).sum(0), **options)
    for n in (2, 2, 3, 2):
        x = torch.randn(n, 3)
        assert torch.equal(compiled(x), (x * 3).sum(0))


def test_disable_is_the_function_itself():
    def f(x):
        return x

    assert torch.compile(f, disable=True) is f


def test_a_module_compiles_itself_with_options():
    model = nn.Linear(3, 2)
    model.compile(fullgraph=True, mode="default")
    x = torch.randn(2, 3)
    for _ in range(4):
        out = model(x)
        out.sum().backward()
    assert np.allclose(out.detach().numpy(), F.linear(x, model.weight, model.bias).detach().numpy())
    assert list(model.state_dict()) == ["weight", "bias"]
    assert "linear" in str(torch.compiler.explain(model))


def test_a_checkpoint_is_loaded_and_parameters_move():
    one, two = pair()
    compiled = torch.compile(two)
    x = torch.randn(3, 4)
    for _ in range(3):
        compiled(x)
    two.load_state_dict({k: v * 2 for k, v in one.state_dict().items()})
    one.load_state_dict(two.state_dict())
    assert torch.allclose(compiled(x), one(x))
    two[0].weight = nn.Parameter(torch.ones(6, 4))
    one[0].weight = nn.Parameter(torch.ones(6, 4))
    assert torch.allclose(compiled(x), one(x))
    one[2].weight.data = two[2].weight.data = torch.zeros(2, 6)
    assert torch.allclose(compiled(x), one(x))
    two.double()
    assert compiled(x.double()).dtype is torch.float64


def test_reset_forgets_and_explain_names_lines():
    def reading(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    compiled = torch.compile(reading)
    for sign in (1, -1, 1, -1):
        compiled(torch.ones(3) * sign)
    report = torch.compiler.explain(compiled)
    line = reading.__code__.co_firstlineno + 2
    assert f"test_compile.py:{line}: Python needs a value" in str(report)
    assert report.calls == 4 and report.captured == 2
    torch.compiler.reset()
    assert torch.compiler.explain(compiled).calls == 0
    assert "tanh" in str(torch.compiler.explain(lambda x: x.tanh(), torch.ones(2)))


# -- what was wrong once -------------------------------------------------------------------------


def test_a_value_may_be_asked_for_its_gradient():
    """Each value that outlives a call has its own place in the graph."""
    compiled = torch.compile(lambda x: [h := (x * 2).tanh(), (h * h).sum(), x.sum() * 3])
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        h, loss, other = compiled(x)
        h.retain_grad()
        loss.backward()
        assert np.allclose(h.grad.numpy(), 2 * h.detach().numpy(), rtol=1e-5)
        other.backward()  # its graph was not walked
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_gradients_of_gradients():
    def penalty(x):
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return (g * g).sum()

    compiled, cube = torch.compile(penalty), torch.compile(lambda x: (x**3).sum())
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        compiled(x).backward()
        assert np.allclose(x.grad.numpy(), 36 * x.detach().numpy() ** 3, rtol=1e-4, atol=1e-5)
        (g,) = torch.autograd.grad(cube(x), x, create_graph=True)
        (second,) = torch.autograd.grad(g.sum(), x)
        assert np.allclose(second.numpy(), 6 * x.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_memory_that_is_seen_under_another_name():
    base = torch.ones(2, 2)
    view = base[0]
    compiled = torch.compile(lambda x: (base.mul_(x), view.sum().item(), view * 2)[1:])
    for _ in range(4):
        total, twice = compiled(torch.full((2, 2), 2.0))
        assert total == base[0].sum().item() and torch.equal(twice, base[0] * 2)


def test_numpy_sees_what_was_changed_in_place():
    compiled = torch.compile(lambda x: float(x.mul_(2).numpy()[0]) + x.tolist()[0])
    for k in range(4):
        assert compiled(torch.tensor([1.0 + k])) == 4.0 * (1 + k)


def test_what_was_done_before_an_error_is_done():
    @torch.compile
    def wrong(x):
        x.mul_(2)
        raise KeyError

    for _ in range(3):
        x = torch.ones(2)
        with pytest.raises(KeyError):
            wrong(x)
        assert x[0].item() == 2


def test_hooks_that_come_later_are_called():
    model, seen = nn.Linear(3, 1), []
    step = torch.compile(lambda x: model(x).sum().backward())
    for k in range(5):
        if k == 3:
            model.weight.register_hook(lambda g: seen.append(1) or g * 0)
        model.zero_grad()
        step(torch.ones(2, 3))
        assert (model.weight.grad.abs().sum().item() == 0) is (k >= 3)
    assert len(seen) == 2


def test_numbers_reach_the_way_back():
    compiled = torch.compile(lambda x, rate: (x * rate).sum())
    for k in range(5):
        x = torch.ones(2, requires_grad=True)
        compiled(x, 0.5 + k).backward()
        assert x.grad[0].item() == 0.5 + k


def test_the_default_dtype_and_autocast_are_part_of_a_path():
    ones = torch.compile(lambda x: x + torch.rand(3))
    product = torch.compile(lambda x: x @ x)
    x = torch.ones(3, 3)
    try:
        for kind in (torch.float32, torch.float64) * 2:
            torch.set_default_dtype(kind)
            assert ones(x).dtype is kind
            with torch.autocast("cpu", enabled=kind is torch.float64):
                assert product(x).dtype is (
                    torch.bfloat16 if kind is torch.float64 else torch.float32)
    finally:
        torch.set_default_dtype(torch.float32)


def test_tensors_met_in_vain_are_forgotten():
    """An op that is no part of a program leaves nothing behind in the segment after it."""
    def f(t):
        kept = t.clone()
        rows = (t > 5).nonzero().squeeze(1)
        return kept.unsqueeze(1) * 1 if rows.numel() == 0 else kept

    compiled = torch.compile(f)
    for k in range(4):
        t = torch.tensor([1, 2, k])
        assert torch.equal(compiled(t), f(t))
