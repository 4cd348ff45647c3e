"""Mixed precision by itself: gates that cost nothing when open, threads, caches, and training."""

import dis
import pickle
import threading

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.assemble import autocast as engine
from flambeau.nn import functional as F

half, single = flambeau.bfloat16, flambeau.float32


def products(a, b):
    """The same product by every door there is."""
    return [a @ b, a.matmul(b), flambeau.matmul(a, b), flambeau.mm(a, b), a.mm(b),
            F.linear(a, b), F.linear(a, b, b[0]), flambeau.addmm(b, a, b),
            flambeau.matmul(input=a, other=b)]


def test_every_door_leads_through_the_gate():
    a, b = flambeau.rand(3, 3), flambeau.rand(3, 3)
    kept = flambeau.mm  # a name somebody holds from before
    for _ in range(3):  # plans are known from the second time on
        assert {p.dtype for p in products(a, b)} == {single}
        with flambeau.autocast("cpu"):
            assert {p.dtype for p in products(a, b)} == {half}
            assert kept(a, b).dtype is half
        assert {p.dtype for p in products(a, b)} == {single}


def test_open_gates_leave_no_trace():
    """After autocast, fronts are what they were: the same code, the same context."""
    with flambeau.autocast("cpu"):
        pass
    before = [g.front.__code__ if hasattr(g, "inside") else g.context[:] for g in engine.gates]
    with flambeau.autocast("cpu"):
        F.cross_entropy(flambeau.rand(2, 3), flambeau.tensor([0, 1]))
    after = [g.front.__code__ if hasattr(g, "inside") else g.context[:] for g in engine.gates]
    assert before == after
    assert not any("enter" in {i.argval for i in dis.get_instructions(g.front)}
                   for g in engine.gates if hasattr(g, "inside"))


def test_signatures_and_defaults_survive():
    x = flambeau.rand(4, 4)
    with flambeau.autocast("cpu"):
        assert F.mse_loss(x, x, reduction="none").shape == x.shape
        labels = flambeau.tensor([0, 1, 2, 3])
        assert F.cross_entropy(x, labels, label_smoothing=0.1).dtype is single
        assert flambeau.prod(x.to(half), dim=1).dtype is single
        assert flambeau.cat((x, x.to(half)), dim=1).dtype is single
        with pytest.raises(TypeError):
            F.mse_loss(x)


def test_other_threads_are_not_touched():
    a = flambeau.rand(2, 2)
    found, inside, done = [], threading.Event(), threading.Event()

    def bystander():
        inside.wait()
        found.append((a @ a).dtype)
        with flambeau.autocast("cpu", dtype=flambeau.float16):
            found.append((a @ a).dtype)
        found.append((a @ a).dtype)
        done.set()

    thread = threading.Thread(target=bystander)
    thread.start()
    with flambeau.autocast("cpu"):
        inside.set()
        done.wait()
        assert (a @ a).dtype is half
    thread.join()
    assert found == [single, flambeau.float16, single]
    assert (a @ a).dtype is single


def test_a_thread_that_ends_inside_leaves_nothing_behind():
    thread = threading.Thread(target=flambeau.set_autocast_enabled, args=("cpu", True))
    thread.start()
    thread.join()
    assert not engine.active


def test_parameters_are_cast_once():
    w, x = nn.Parameter(flambeau.rand(3, 3)), flambeau.rand(2, 3)
    with flambeau.autocast("cpu"):
        F.linear(x, w)
        (known,) = engine.state.cache.values()
        F.linear(x, w)
        assert len(engine.state.cache) == 1
        with flambeau.no_grad():
            F.linear(x, w)  # without a graph, so not to be used with one
        assert F.linear(x, w).requires_grad
        assert known[1].dtype is half
    assert not engine.state.cache
    with flambeau.autocast("cpu", cache_enabled=False):
        F.linear(x, w)
        assert not engine.state.cache


def test_an_error_inside_ends_autocast():
    a = flambeau.rand(2, 2)
    with pytest.raises(ZeroDivisionError), flambeau.autocast("cpu"):
        raise ZeroDivisionError
    assert (a @ a).dtype is single
    with pytest.raises(RuntimeError), flambeau.autocast("cpu"):
        flambeau.mm(a, flambeau.rand(3, 3))
    assert (a @ a).dtype is single


def test_backward_inside_the_region():
    """What was done in float32 goes back in float32."""
    w = flambeau.rand(3, 3, requires_grad=True)
    loss = (flambeau.rand(2, 3) @ w).sum()
    with flambeau.autocast("cpu"):
        loss.backward()
    assert w.grad.dtype is single


def test_checkpointed_layers_run_again_as_they_ran():
    checkpoint = flambeau.utils.checkpoint.checkpoint
    model, x = nn.Linear(4, 4), flambeau.rand(2, 4, requires_grad=True)
    kinds = []

    def run(value):
        out = model(value)
        kinds.append(out.dtype)
        return model(out)  # running again ends with the last tensor that was kept

    with flambeau.autocast("cpu"):
        out = checkpoint(run, x, use_reentrant=False)
    out.sum().backward()
    assert kinds == [half, half]
    assert model.weight.grad.dtype is single


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_take_half_precision_inputs(kind):
    layer, x = kind(3, 4), flambeau.rand(5, 2, 3)
    with pytest.raises(ValueError, match="does not match weight dtype"):
        layer(x.to(half))
    with flambeau.autocast("cpu"):
        out, _ = layer(x.to(half))
        assert out.dtype is half
        out, _ = layer(x)
    out.float().sum().backward()
    assert layer.weight_ih_l0.grad.dtype is single


def test_out_is_not_cast():
    a, out = flambeau.rand(3, 3), flambeau.empty(3, 3)
    with flambeau.autocast("cpu"):
        flambeau.mm(a, a, out=out)
    np.testing.assert_allclose(out.numpy(), a.numpy() @ a.numpy(), rtol=1e-6)


# -- GradScaler -----------------------------------------------------------------------------------


def test_a_step_with_infinite_gradients_is_skipped():
    w = nn.Parameter(flambeau.ones(2))
    optimizer = flambeau.optim.SGD([w], lr=1.0)
    scaler = flambeau.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    scaler.scale((w * flambeau.tensor([1.0, float("inf")])).sum()).backward()
    assert scaler.step(optimizer) is None
    scaler.update()
    assert w.tolist() == [1.0, 1.0]
    assert scaler.get_scale() == 2.0
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(w.sum()).backward()
        assert w.grad.tolist() == [2.0, 2.0]
        scaler.step(optimizer)
        scaler.update()
    assert w.tolist() == [-1.0, -1.0]
    assert scaler.get_scale() == 4.0
    again = pickle.loads(pickle.dumps(scaler))
    assert again.state_dict() == scaler.state_dict()


def test_float16_gradients_cannot_be_unscaled():
    w = nn.Parameter(flambeau.ones(2, dtype=flambeau.float16))
    w.grad = flambeau.ones(2, dtype=flambeau.float16)
    scaler = flambeau.amp.GradScaler("cpu")
    scaler.scale(flambeau.ones(1))
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(flambeau.optim.SGD([w], lr=1.0))


# -- compiled -------------------------------------------------------------------------------------


def compiled_training(precision, inside, whole, compiler):
    """Losses, precisions and scales of a few steps; autocast inside of what is compiled or not."""
    flambeau.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(),
                          nn.Linear(144, 10))
    optimizer = flambeau.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    scaler = flambeau.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)

    def forward(x, y):
        with flambeau.autocast("cpu", dtype=precision, enabled=inside or
                               flambeau.is_autocast_enabled("cpu")):
            logits = model(x)
            return F.cross_entropy(logits, y), logits

    def step(x, y):
        optimizer.zero_grad()
        with flambeau.autocast("cpu", dtype=precision, enabled=not inside):
            loss, logits = (forward if whole else compiled_forward)(x, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss, logits

    compiled_forward = compiler(forward)
    run = compiler(step) if whole else step
    found = []
    for _ in range(6):
        loss, logits = run(flambeau.randn(8, 1, 6, 6), flambeau.randint(0, 10, (8,)))
        found.append((loss.item(), logits.dtype, loss.dtype, scaler.get_scale()))
    return found


@pytest.mark.parametrize("whole", [False, True], ids=["forward", "step"])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize("precision", [flambeau.bfloat16, flambeau.float16], ids=str)
def test_compiled_code_makes_the_same_decisions(precision, inside, whole):
    wanted = compiled_training(precision, inside, whole, lambda f: f)
    assert wanted[0][1] is precision and wanted[-1][3] == 1024.0
    assert compiled_training(precision, inside, whole, flambeau.compile) == wanted


# -- training -------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.mix(self.before(x)).split(width, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.after(x))


class GPT(nn.Module):
    def __init__(self, letters, width=32, length=32):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 2))
        self.end, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, x):
        h = self.letters(x) + self.places(flambeau.arange(x.size(1)))
        return self.head(self.end(self.blocks(h)))


TEXT = ("to be or not to be that is the question whether tis nobler in the mind to suffer the "
        "slings and arrows of outrageous fortune or to take arms against a sea of troubles ") * 4


def trained(dtype, steps=120):
    """The mean loss of the last steps of a small GPT over a short text."""
    flambeau.manual_seed(0)
    known = sorted(set(TEXT))
    text = flambeau.tensor([known.index(c) for c in TEXT])
    model = GPT(len(known))
    optimizer = flambeau.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        at = flambeau.randint(len(text) - 33, (8,))
        x = flambeau.stack([text[i:i + 32] for i in at])
        y = flambeau.stack([text[i + 1:i + 33] for i in at])
        with flambeau.autocast("cpu", dtype=dtype or half, enabled=dtype is not None):
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        assert loss.dtype is single
        assert logits.dtype is (dtype or single)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


def test_a_gpt_in_bfloat16_reaches_the_loss_of_float32():
    full, mixed = trained(None), trained(half)
    assert full < 2.0  # it has learned something: at first the loss is 3.1
    assert mixed == pytest.approx(full, rel=0.02)
