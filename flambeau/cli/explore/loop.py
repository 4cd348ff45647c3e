"""INSTRUMENT F1.3: a training loop taken apart, line by line, and what goes wrong without a line.

A run starts from its seed each time, so that any step of it can be looked at again. Beside the loop
as it was asked for, the one without mistakes runs too: what a mistake costs is their difference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import flambeau
from flambeau.cli.explore import WITHOUT, lessons
from flambeau.cli.explore.lessons import Lesson
from flambeau.cli.explore.numbers import plain, short, size
from flambeau.cli.explore.recorded import freed, kept_by, steps_from
from flambeau.cli.usage import UsageError

CALLS = {
    "zero_grad": "optimizer.zero_grad()",
    "forward":   "pred = model(x)",
    "loss":      "loss = loss_fn(pred, y)",
    "backward":  "loss.backward()",
    "step":      "optimizer.step()",
}  # fmt: skip
MOST_STEPS, FRAMES = 1000, 60


def compute(asked: Mapping[str, Any]) -> dict:
    """What the page and the terminal show of {"model", "lr", "steps", "without", "early", "at"}."""
    settings = settings_of(asked)
    with flambeau.random.fork_rng(), flambeau.enable_grad():
        run = Run(settings).go()
        if settings["at"] >= len(run.losses):  # it was refused before it came to that step
            settings["at"] = len(run.losses) - 1
            run = Run(settings).go()
        whole = run
        if settings["without"] or settings["early"] or settings["lr"] != run.lesson.lr:
            whole = Run({**settings, "without": [], "early": False, "lr": run.lesson.lr}).go()
    return {
        **settings, "lines": lines_of(settings), "default_lr": run.lesson.lr,
        "names": [name for name, _ in run.lesson.model.named_parameters()],
        "about": run.lesson.about, "per_epoch": run.lesson.per_epoch,
        "refused": run.refused, "losses": plain(run.losses), "validation": run.validated,
        "should": plain(whole.losses), "should_validation": whole.validated,
        "detail": run.detail, "frames": run.frames, "data": run.lesson.shown(),
        "verdict": verdict(run, whole, settings),
    }


def settings_of(asked: Mapping[str, Any]) -> dict:
    """What was asked, checked, with defaults for the rest."""
    name = asked.get("model", "line")
    if not isinstance(name, str) or name not in lessons.LESSONS:
        raise UsageError(f"there is no model {name!r:.30}; there are {', '.join(lessons.LESSONS)}")
    usual = lessons.LESSONS[name]
    lr = asked.get("lr")
    lr = usual.lr if lr is None else lr
    if isinstance(lr, bool) or not isinstance(lr, (int, float)) or not 0 < lr <= 100:
        raise UsageError(f"the learning rate must be a number above 0 and at most 100, not {lr!r}")
    steps = whole_number(asked.get("steps") or usual.steps, "the number of steps", 1, MOST_STEPS)
    at = whole_number(asked.get("at", 0), "the step looked at", 0, MOST_STEPS)
    without = asked.get("without") or []
    if not isinstance(without, list) or any(each not in WITHOUT for each in map(str, without)):
        raise UsageError(f"what can be left out is {', '.join(WITHOUT)}")
    return {"model": name, "lr": float(lr), "steps": steps, "at": min(at, steps - 1),
            "without": sorted(set(without)), "early": bool(asked.get("early"))}


def whole_number(value: Any, what: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{what} must be a whole number from {least} to {most:,}, not "
                         f"{value!r:.30}")
    return value


def order_of(settings: Mapping[str, Any]) -> list[str]:
    order = ["forward", "loss", "backward", "step"]
    if settings["early"]:
        order = ["forward", "loss", "step", "backward"]
    return order if "zero_grad" in settings["without"] else ["zero_grad", *order]


def lines_of(settings: Mapping[str, Any]) -> list[dict]:
    """The five lines in the order in which they run; one that is left out stays visible."""
    order = order_of(settings)
    gone = [key for key in CALLS if key not in order]
    return [{"key": key, "call": CALLS[key], "runs": key in order} for key in (*gone, *order)]


class Run:
    """One training of a lesson; `go` runs it, then everything seen is here."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings, self.order = settings, order_of(settings)
        self.without = settings["without"]
        self.lesson = Lesson(lessons.LESSONS[settings["model"]], "shuffle" not in self.without)
        self.model = self.lesson.model
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = flambeau.optim.SGD(self.model.parameters(), lr=settings["lr"])
        self.losses: list[float] = []
        self.validated: list[dict] = []
        self.kept: list = []            # the losses of validation, as people keep them
        self.held: dict[int, int] = {}  # the tensors that their graphs keep: address -> bytes
        self.alive = 0                  # and how many steps these have
        self.detail: list[dict] = []
        self.frames: list[dict] = []
        self.refused: dict | None = None
        self.last: Any = None           # the tensor that the newest graph leads to

    def go(self) -> Run:
        steps = self.settings["steps"]
        every = math.ceil(steps / FRAMES)
        for number in range(steps):
            if number % every == 0:
                self.frames.append({"step": number, **self.lesson.fit()})
            try:
                self._iterate(number)
            except RuntimeError as refusal:
                self._refuse(number, refusal)
                return self
            if (number + 1) % self.lesson.per_epoch == 0:
                self._validate(number + 1)
        self.frames.append({"step": steps, **self.lesson.fit()})
        return self

    def _iterate(self, number: int) -> None:
        self.x, self.y = self.lesson.batch(number)
        looked_at = number == self.settings["at"]
        if looked_at:
            self.detail.append(self._seen("start", None))
        for key in self.order:
            self.line = key
            before = self._seen(key, None) if looked_at else None
            getattr(self, "_" + key)()
            if before is not None:
                self.detail.append(self._seen(key, before))
        self.losses.append(self.loss.item())

    def _refuse(self, number: int, refusal: RuntimeError) -> None:
        """The library would not go on: that is what this loop comes to."""
        said = re.sub(r" It was last changed at .* in \S+\.(?= )", "", str(refusal))
        said = said.partition("\n")[0]  # where it was changed is in here: no news to anybody
        self.refused = {"step": number, "line": self.line, "said": said}
        self.losses.append(self.loss.item())
        if number == self.settings["at"]:
            seen = self._seen(self.line, None)
            self.detail.append({**seen, "says": f"RuntimeError: {said}"})
        self.frames.append({"step": number + 1, **self.lesson.fit()})

    # -- the five lines --------------------------------------------------------------------------

    def _zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def _forward(self) -> None:
        self.last = self.pred = self.model(self.x)

    def _loss(self) -> None:
        self.last = self.loss = self.lesson.loss(self.pred, self.y)

    def _backward(self) -> None:
        self.loss.backward()

    def _step(self) -> None:
        self.optimizer.step()

    # -- and the validation after each pass over the data ----------------------------------------

    def _validate(self, number: int) -> None:
        if "eval" not in self.without:
            self.model.eval()
        recording = flambeau.enable_grad() if "no_grad" in self.without else flambeau.no_grad()
        with recording:
            loss = self.lesson.loss(self.model(self.lesson.held_x), self.lesson.held_y)
            again = self.lesson.loss(self.model(self.lesson.held_x), self.lesson.held_y)
        self.model.train()
        self.kept.append(loss)
        steps = list(steps_from([loss]))
        self.alive += len(steps)  # no two losses share a step
        self.held.update(held_by(steps))
        self.validated.append({"step": number, "loss": plain(loss), "again": plain(again),
                               "steps": self.alive, "bytes": sum(self.held.values())})

    # -- what is seen ----------------------------------------------------------------------------

    def _seen(self, key: str, before: dict | None) -> dict:
        """Gradients, parameters and the graph, after a line."""
        measured = self.last is not None and self.last is getattr(self, "loss", None)
        seen = {
            "line": key, "graph": graph_of([] if self.last is None else [self.last]),
            "loss": plain(self.loss) if measured else None,
            "grads": {name: plain(p.grad) for name, p in self.parameters.items()},
            "params": {name: plain(p) for name, p in self.parameters.items()},
            "batch": len(self.x),
        }
        seen["says"] = "" if before is None else SAYS[key](before, seen, self.settings)
        return seen


def graph_of(roots: list) -> dict:
    """How many steps lead to tensors, how many of them are freed, and what the others keep."""
    steps = list(steps_from(roots))
    held = held_by(steps)
    return {"steps": len(steps), "names": [step.name() for step in steps[:12]],
            "kept": len(held), "bytes": sum(held.values()), "freed": sum(map(freed, steps))}


def held_by(steps: list) -> dict[int, int]:
    """The tensors that steps keep, each once: address -> bytes."""
    return {kept.data_ptr(): kept.nbytes for step in steps for kept in kept_by(step)}


# -- what a line did, in a sentence --------------------------------------------------------------


def _first(table: dict) -> tuple[str, Any]:
    """The name and the first number of the first parameter, as an example."""
    name, value = next(iter(table.items()))
    while isinstance(value, list):
        value = value[0]
    return name, value


def _several(value: Any) -> bool:
    """Whether nested lists hold more than one number."""
    while isinstance(value, list):
        if len(value) > 1:
            return True
        value = value[0]
    return False


def says_zero_grad(before: dict, after: dict, settings: Mapping) -> str:
    had = [g for g in before["grads"].values() if g is not None]
    if not had:
        return "Every .grad was None already: nothing to clear."
    return f"The gradients of the step before are gone: {len(had)} .grad are None again."


def says_forward(before: dict, after: dict, settings: Mapping) -> str:
    graph = after["graph"]
    return (f"{after['batch']} examples went through. The graph has {graph['steps']} "
            f"step{'s, which keep' if graph['steps'] != 1 else ', which keeps'} {graph['kept']} "
            f"tensor{'s' * (graph['kept'] != 1)} ({size(graph['bytes'])}) for the way back.")


def says_loss(before: dict, after: dict, settings: Mapping) -> str:
    grown = after["graph"]["steps"] - before["graph"]["steps"]
    return (f"One number says how wrong that was: {short(after['loss'])}. The graph grew by "
            f"{grown} to {after['graph']['steps']} steps.")


def says_backward(before: dict, after: dict, settings: Mapping) -> str:
    name, now = _first(after["grads"])
    had = before["grads"][name]
    freed = f"The {after['graph']['freed']} steps gave back what they kept."
    if had is None:
        verb = "starts with" if _several(after["grads"][name]) else "is"
        return f"Every .grad is filled: {name}.grad {verb} {short(now)}. {freed}"
    _, old = _first(before["grads"])
    added = plain(flambeau.tensor(now) - flambeau.tensor(old)) if _all_finite(now, old) else "nan"
    return (f"Added to what was there: {name}.grad {short(old)} + {short(added)} = {short(now)}. "
            f"{freed}")


def says_step(before: dict, after: dict, settings: Mapping) -> str:
    name, now = _first(after["params"])
    _, old = _first(before["params"])
    if after["grads"][name] is None:
        return "Every .grad is None, so no parameter moved."
    _, g = _first(after["grads"])
    stale = " That gradient is of an earlier step: this one's comes after." * settings["early"]
    return (f"Every parameter moved: {name} {short(old)} - {short(settings['lr'])} × {short(g)} = "
            f"{short(now)}.{stale}")


SAYS = {
    "zero_grad": says_zero_grad, "forward": says_forward, "loss": says_loss,
    "backward": says_backward, "step": says_step,
}  # fmt: skip


# -- what a mistake did --------------------------------------------------------------------------


def _all_finite(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) and math.isfinite(value) for value in values)


def verdict(run: Run, whole: Run, settings: Mapping[str, Any]) -> list[str]:
    """What happened in the end, beside the loop as it should be."""
    mine, right = last_losses(run), last_losses(whole)
    first = short(plain(run.losses[0]))
    said = [f"The loss went from {first} to {short(plain(mine))} (mean of the last pass) in "
            f"{len(run.losses)} steps" + ("." if run is whole else
            f"; with everything as it should be, to {short(plain(right))}.")]
    if run.refused:
        return refused_words(run, right)
    broken = next((k for k, loss in enumerate(run.losses) if not math.isfinite(loss)), None)
    if broken is not None:
        said.append(f"It stopped being a number at step {broken + 1}: the parameters overflowed, "
                    "and nothing brings them back.")
    elif settings["lr"] > run.lesson.lr and not mine < run.losses[0]:
        said.append("The learning rate is too high: each step lands further from the minimum than "
                    "it began.")
    if settings["early"]:
        said.append(early_words(run, settings))
    said += [MISTAKES[each](run, whole) for each in settings["without"]]
    return said


def refused_words(run: Run, right: float) -> list[str]:
    refused = run.refused or {}
    return [f"The loop ended in step {refused['step'] + 1}: {CALLS[refused['line']]} was refused; "
            f"with everything as it should be the loss goes to {short(plain(right))}.",
            "step() wrote new parameters over those that the graph had kept for its way back, and "
            "the library noticed: " + refused["said"]]


def last_losses(run: Run) -> float:
    last = run.losses[-run.lesson.per_epoch:]
    return math.fsum(last) / len(last) if all(map(math.isfinite, last)) else math.nan


def early_words(run: Run, settings: Mapping[str, Any]) -> str:
    moved = any(short(a) != short(b) for a, b in zip(run.frames[0]["params"],
                                                       run.frames[-1]["params"]))
    if not moved:
        return ("step() came between zero_grad() and backward(), so it never saw a gradient: no "
                "parameter ever moved.")
    return "step() used gradients of earlier steps, as backward() came after it."


def zero_grad_words(run: Run, whole: Run) -> str:
    sizes = [max((abs(float(g)) for g in flat(p.grad)), default=0.0) for p in
             run.parameters.values() if p.grad is not None]
    return (f"Without zero_grad every gradient is the sum of all steps so far; the largest is now "
            f"{short(plain(max(sizes, default=0.0)))}, and steps overshoot.")


def shuffle_words(run: Run, whole: Run) -> str:
    return (f"Without shuffling, batches differ: within the last pass the loss lies between "
            f"{spread(run)}; shuffled, between {spread(whole)}.")


def no_grad_words(run: Run, whole: Run) -> str:
    if not run.validated:
        return "No validation has run yet: take more steps."
    last = run.validated[-1]
    return (f"Without no_grad the {len(run.validated)} validation losses that were kept hold "
            f"{last['steps']} steps of graph and {size(last['bytes'])} of tensors; with it, none.")


def eval_words(run: Run, whole: Run) -> str:
    if not run.lesson.has_dropout:
        return "This model has no dropout, so eval() changes nothing here: look at the net."
    if not run.validated:
        return "No validation has run yet: take more steps."
    last, right = run.validated[-1], whole.validated[-1]
    return (f"Without eval() dropout stays on: the same validation twice gives "
            f"{short(last['loss'])} and {short(last['again'])}; with eval() "
            f"{short(right['loss'])} and {short(right['again'])}.")


MISTAKES = {
    "zero_grad": zero_grad_words, "shuffle": shuffle_words, "no_grad": no_grad_words,
    "eval": eval_words,
}  # fmt: skip


def flat(tensor: Any) -> list:
    return tensor.reshape(-1).tolist()


def spread(run: Run) -> str:
    last = run.losses[-run.lesson.per_epoch:]
    return f"{short(plain(min(last)))} and {short(plain(max(last)))}"
