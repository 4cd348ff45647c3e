"""Rates that rise and fall, with the momentum moving against them."""

import math
import types

from .base import LRScheduler, assign, checked_optimizer, per_group


class _MomentumCycle(LRScheduler):
    """For schedules that move the momentum against the rate."""

    def _begin_momentum(self, optimizer, base, top, last_epoch):
        """The base and top momenta per group, written into the groups at the start."""
        if not {"momentum", "betas"} & optimizer.defaults.keys():
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        base = per_group("base_momentum", optimizer, base)
        top = per_group("max_momentum", optimizer, top)
        if last_epoch == -1:
            for group, low, high in zip(optimizer.param_groups, base, top, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low
        return base, top

    def _set_momentum(self, group, value):
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_MomentumCycle):
    """Triangles between base_lr and max_lr, their height scaled by the mode or by scale_fn."""

    # mode: (height of a triangle, what it is a function of)
    MODES = {
        "triangular": (lambda self, x: 1.0, "cycle"),
        "triangular2": (lambda self, x: 1 / (2.0 ** (x - 1)), "cycle"),
        "exp_range": (lambda self, x: self.gamma**x, "iterations"),
    }

    def __init__(
        self,
        optimizer,
        base_lr,
        max_lr,
        step_size_up=2000,
        step_size_down=None,
        mode="triangular",
        gamma=1.0,
        scale_fn=None,
        scale_mode="cycle",
        cycle_momentum=True,
        base_momentum=0.8,
        max_momentum=0.9,
        last_epoch=-1,
    ):
        checked_optimizer(optimizer)
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, base_lrs, strict=True):
                assign(group, "lr", lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in self.MODES and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else self.MODES[mode][1]
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._begin_momentum(
                optimizer, base_momentum, max_momentum, last_epoch
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x):
        """The height of a triangle, as a share of the whole."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return self.MODES[self.mode][0](self, x)

    def get_lr(self):
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rising = x <= self.step_ratio
        share = x / self.step_ratio if rising else (x - 1) / (self.step_ratio - 1)
        share *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            ends = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, ends, strict=True):
                self._set_momentum(group, high - (high - low) * share)
        pairs = zip(self.base_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * share for low, high in pairs]

    def state_dict(self):
        """A scale_fn that is a function is left out; an object is represented by its attributes."""
        state = super().state_dict()
        function = state.pop("_scale_fn_custom")
        kept = function is not None and not isinstance(function, types.FunctionType)
        return {**state, "_scale_fn_custom": vars(function).copy() if kept else None}

    def load_state_dict(self, state_dict):
        state = dict(state_dict)
        attributes = state.pop("_scale_fn_custom")
        super().load_state_dict(state)
        if attributes is not None:
            vars(self._scale_fn_custom).update(attributes)


def anneal_cos(start, end, share):
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def anneal_linear(start, end, share):
    return (end - start) * share + start


ANNEAL = {"cos": anneal_cos, "linear": anneal_linear}


class OneCycleLR(_MomentumCycle):
    """Up from max_lr / div_factor to max_lr, then far down; the momentum goes the other way."""

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps=None,
        epochs=None,
        steps_per_epoch=None,
        pct_start=0.3,
        anneal_strategy="cos",
        cycle_momentum=True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        self.optimizer = checked_optimizer(optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ANNEAL:
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        max_lrs = per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        self._warn_outside_step()
        if self.last_epoch > self.total_steps:
            raise ValueError(
                f"Tried to step {self.last_epoch} times. "
                f"The specified number of total steps is {self.total_steps}"
            )
        phase, share = self._position()
        anneal = ANNEAL[self._anneal_func_type]
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, anneal(*ends, share))
        return [anneal(group[phase["start_lr"]], group[phase["end_lr"]], share) for group in groups]

    def _position(self):
        """The phase of this step, and the share of it that is done."""
        begun = 0.0
        for phase in self._schedule_phases:
            if self.last_epoch <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            begun = phase["end_step"]
        return phase, (self.last_epoch - begun) / (phase["end_step"] - begun)


def _total_steps(total_steps, epochs, steps_per_epoch):
    given = {"total_steps": total_steps}
    if total_steps is None:
        given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        if epochs is None or steps_per_epoch is None:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, count in given.items():
        if not isinstance(count, int) or count <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {count}")
    return math.prod(given.values())


def _phases(total, up, three_phase):
    """When each phase ends, and between which options of the group it moves."""
    top, peak = float(up * total) - 1, ("max_lr", "base_momentum")
    start, end = ("initial_lr", "max_momentum"), ("min_lr", "max_momentum")
    moves = [(top, start, peak), (total - 1, peak, end)]
    if three_phase:
        down = float(2 * up * total) - 2
        moves = [(top, start, peak), (down, peak, start), (total - 1, start, end)]
    return [
        {
            "end_step": step,
            "start_lr": before[0],
            "end_lr": after[0],
            "start_momentum": before[1],
            "end_momentum": after[1],
        }
        for step, before, after in moves
    ]
