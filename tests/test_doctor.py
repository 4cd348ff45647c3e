"""The doctor sees each mistake where it is made, and none where there is none."""

from __future__ import annotations

import linecache
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.cli import main as command
from flambeau.utils.doctor import MISTAKES, doctor, text
from flambeau.utils.doctor.mistake import BEGINNING

ROOT = Path(__file__).resolve().parents[1]


def findings(code: str) -> list:
    """What is found in a program."""
    name = f"<patient {len(linecache.cache)}>.py".replace("<", "").replace(">", "")
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    with doctor(file=None) as found:
        exec(compile(code, name, "exec"), {"__name__": "patient"})
    return found.findings


def titles(code: str) -> list[str]:
    return [finding.mistake.title for finding in findings(code)]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.__name__)
def test_what_is_declared_as_wrong_is_found_there(mistake):
    found = [f for f in findings(BEGINNING + mistake.wrong) if f.mistake is mistake]
    assert found
    for each in found:
        assert each.place.line > BEGINNING.count("\n")  # in the wrong part of the program
        assert each.place.code in mistake.wrong and each.place.code


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.__name__)
def test_what_is_declared_as_right_is(mistake):
    assert findings(BEGINNING + mistake.right) == []


def test_every_mistake_says_what_it_is():
    assert len({m.title for m in MISTAKES}) == len(MISTAKES) >= 14
    for mistake in MISTAKES:
        assert mistake.why.endswith(".") and mistake.title[0].islower()


# -- what looks like a mistake, and is none --------------------------------------------------------

FINE = {
    "gradients of several batches": """
for step in range(8):
    F.cross_entropy(model(x), labels).backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
""",
    "gradients set to zero": """
for _ in range(4):
    optimizer.zero_grad(set_to_none=False)
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()
""",
    "a discriminator that gathers the generator's gradients": """
judge = nn.Linear(2, 1)
other = optim.SGD(judge.parameters(), lr=0.1)
for _ in range(5):
    other.zero_grad()
    (judge(model(x).detach()).mean() ** 2 + 1).backward()
    other.step()
    optimizer.zero_grad()
    (judge(model(x)).mean() ** 2).backward()
    optimizer.step()
""",
    "a loss through a model in evaluation mode": """
judge = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
for p in judge.parameters():
    p.requires_grad_(False)
for _ in range(4):
    optimizer.zero_grad()
    one, two = judge(model(x)), judge(model(x) * 2)
    ((one - two) ** 2 + one ** 2).mean().backward()
    optimizer.step()
""",
    "a model without dropout under no_grad": """
plain = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
with torch.no_grad():
    plain(x)
""",
    "losses kept as numbers, and a total": """
total, kept = 0.0, []
for _ in range(8):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    total += loss.item()
    kept.append(loss.detach())
""",
    "several ways back from one graph": """
for _ in range(5):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
""",
    "differences of pairs": """
places = torch.randn(6, requires_grad=True)
((places[:, None] - places) ** 2).sum().backward()
""",
    "a bias along a batch": """
bias = torch.randn(8, requires_grad=True)
(torch.ones(32, 8) + bias).sum().backward()
(torch.ones(8, 1) * torch.ones(1, 8)).sum()
""",
    "forward of a parent class": """
class Deeper(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()

Deeper(4, 2)(x)
""",
    "modules in a list that are registered elsewhere": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 2)
        self.order = [self.first]
        self.shape = [1, 2]
        self.scale = torch.ones(2)

    def forward(self, x):
        return self.order[0](x) * self.scale

Net()(x)
""",
    "a loss that falls": """
for _ in range(30):
    optimizer.zero_grad()
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()
""",
    "a step that looks at its loss several times": """
optimizer = optim.LBFGS(model.parameters(), max_iter=3)
def closure():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    return loss
for _ in range(3):
    optimizer.step(closure)
""",
    "a layer that is frozen": """
for p in model[0].parameters():
    p.requires_grad_(False)
for _ in range(4):
    optimizer.zero_grad()
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()
""",
}


@pytest.mark.parametrize("what", FINE)
def test_what_is_no_mistake(what):
    assert titles(BEGINNING + FINE[what]) == []


# -- the same mistakes in other clothes ------------------------------------------------------------

WRONG = {
    "a total of losses": ("losses that are kept with their graphs", """
total = 0.0
for _ in range(8):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    total = total + loss
"""),
    "a step before the way back": ("a step without gradients", """
for _ in range(4):
    optimizer.zero_grad()
    optimizer.step()
    F.cross_entropy(model(x), labels).backward()
"""),
    "a square of squared errors": ("a column and a row, stretched to a square", """
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    F.mse_loss(model(x)[:, :1], prices)
"""),
    "a sigmoid too many": ("probabilities where the loss wants scores", """
F.binary_cross_entropy_with_logits(model(x)[:, 0].sigmoid(), labels.float())
"""),
    "batch norm under no_grad": ("eval() was forgotten", """
normed = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
with torch.no_grad():
    normed(x)
"""),
    "a dict of modules": ("parameters that the module does not know", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = {"one": nn.Linear(4, 2)}

    def forward(self, x):
        return self.heads["one"](x)

Net()(x)
"""),
    "a layer that is not used": ("parameters that never get a gradient", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.used(x)

net = Net()
optimizer = optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    F.cross_entropy(net(x), labels).backward()
    optimizer.step()
"""),
    "an inner module's forward": ("forward() is called, not the module", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x):
        return self.inner.forward(x)

Net()(x)
"""),
    "nan in the data": ("a loss that is no number", """
for values in (x, x * float("nan")):
    F.cross_entropy(model(values), labels).backward()
"""),
}


@pytest.mark.parametrize("what", WRONG)
def test_mistakes_in_other_clothes(what):
    title, code = WRONG[what]
    assert title in titles(BEGINNING + code)


# -- how it is told, and that nothing else changes -------------------------------------------------


def trained(steps: int = 6) -> list[float]:
    torch.manual_seed(3)
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    @torch.compile
    def step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return [step().item() for _ in range(steps)]


def test_results_are_what_they_are():
    expected = trained()
    with doctor(file=None) as found:
        seen = trained()
    assert seen == pytest.approx(expected, rel=1e-5)
    assert found.findings == []
    assert torch.compiler.is_compiling() is False and trained() == expected


def test_a_finding_is_told_once_with_its_line_and_how_often():
    (found,) = [f for f in findings(BEGINNING + MISTAKES[0].wrong)
                if f.mistake.title.startswith("gradients of")]
    assert found.times == 4 and found.place.code == "optimizer.step()"
    said = text([found])
    assert said.startswith("doctor: 1 mistake found\n")
    assert f":{found.place.line}: gradients of the step before are still there  (4 times)" in said
    assert text([]) == "doctor: nothing found"


def test_other_threads_are_left_alone():
    model = nn.Linear(2, 1)
    with doctor(file=None) as found:
        thread = threading.Thread(target=lambda: model.forward(torch.ones(1, 2)))
        thread.start()
        thread.join()
    assert found.findings == []


def test_a_mistake_that_fails_does_not_harm_the_program(monkeypatch):
    def fail(self, *told):
        raise KeyError("what")

    monkeypatch.setattr(MISTAKES[0], "on_step", fail)
    with pytest.warns(UserWarning, match="no longer looks for 'gradients of the step before"):
        assert titles(BEGINNING + MISTAKES[0].wrong) == []


def test_an_error_of_the_program_is_its_own():
    with pytest.raises(ZeroDivisionError), doctor(file=None) as found:
        nn.Linear(2, 1).forward(torch.ones(1, 2))
        raise ZeroDivisionError
    assert len(found.findings) == 1


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(BEGINNING.replace("import flambeau as torch", "import torch, sys")
                    .replace("flambeau", "torch") + MISTAKES[0].wrong + "print(sys.argv[1:])\n")
    return path


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "flambeau", "doctor", *map(str, arguments)],
                          capture_output=True, text=True)


def test_the_command(program):
    done = run(program, "--lr", "3")
    assert (done.returncode, done.stdout) == (0, "['--lr', '3']\n")
    assert "train.py:14: gradients of the step before are still there  (4 times)" in done.stderr
    assert run("--strict", program).returncode == 1


def test_the_command_where_a_program_fails(program):
    program.write_text(program.read_text() + "1 / 0\n")
    done = run(program)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr and "gradients of the step before" in done.stderr


def test_the_command_says_what_it_knows(capsys):
    assert command(["doctor", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(mistake.title in said for mistake in MISTAKES)
    assert command(["doctor", "nowhere.py"]) == 2
    assert "no file nowhere.py" in capsys.readouterr().err


def test_the_page_is_what_the_declarations_say():
    assert subprocess.run([sys.executable, ROOT / "tools" / "make_mistakes.py",
                           "--check"]).returncode == 0
