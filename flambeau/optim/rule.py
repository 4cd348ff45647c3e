"""The loop shared by optimizers whose update of a parameter is a formula.

An optimizer states a pure `rule`: from a parameter, its gradient and what is remembered of it
to their new values. The rule holds no loop and no in-place operation, so the same text runs on
whole tensors, at the coordinates of a sparse gradient, recorded for differentiation, or as one
native kernel over all parameters of a group.
"""

import functools
import struct

import flambeau
from flambeau import Tensor
from flambeau.assemble import together, whole_step

from .optimizer import Optimizer

# What groups saved before an option existed mean by leaving it out.
ABSENT = {
    "maximize": False,
    "foreach": None,
    "fused": None,
    "capturable": False,
    "differentiable": False,
    "amsgrad": False,
    "nesterov": False,
    "centered": False,
    "momentum": 0,
    "decoupled_weight_decay": False,
}


FLAGS = ("maximize", "foreach", "capturable", "differentiable")  # that numbers do not tell of
NOTHING = (None, None, (), ())  # what is known of a group at first


def never(groups, state):
    """As long as no step is known that is one native call."""
    return False


class RuleOptimizer(Optimizer):
    """An optimizer given by four declarations.

    remembered(group, p)    names of the state tensors the rule reads and writes
    begin(p, group)         the state before the first step
    numbers(counts, group)  the scalars of this step; it may move counters other than "step" on
    rule(p, g, *state, ...) the new p and state, from these and the numbers as keywords
    """

    pointwise = True  # whether the rule treats every element on its own
    counters: tuple[str, ...] = ("step",)  # what is counted for each parameter, in its state
    first_alone = False  # whether a first step is not like the others
    # what another step found out of a group: its parameters, the state, those updated together, and
    # others
    _known: dict = {}
    # how all updates of a step were repeated, that step as one native call, and what takes it
    _whole: tuple = ([], None)
    _take = staticmethod(never)
    sparse = False  # whether it leaves alone what has no gradient
    no_sparse_hint = ""

    def remembered(self, group, p):
        raise TypeError(f"{type(self).__name__} does not name what it remembers")

    def begin(self, p, group):
        return {
            "step": step_count(),
            **{n: flambeau.zeros_like(p) for n in self.remembered(group, p)},
        }

    def numbers(self, counts, group):
        raise TypeError(f"{type(self).__name__} does not give the numbers of a step")

    @staticmethod
    def rule(p, g, *state, **numbers):
        raise TypeError("the optimizer does not state its rule")

    # -- the loop -----------------------------------------------------------------------------

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ABSENT.keys() & self.defaults.keys():
                group.setdefault(name, ABSENT[name])
            for p in group["params"]:
                remembered = self.state.get(p)
                if remembered and isinstance(remembered.get("step"), float):
                    remembered["step"] = step_count(remembered["step"])

    def step(self, closure=None):
        """Update the parameters once; a closure evaluates the loss anew and returns it."""
        loss = None if closure is None else evaluate(closure)
        if not self._take(self.param_groups, self.state):
            self.step_groups()
        return loss

    def step_groups(self):
        """Update the parameters of one group after the other."""
        repeated = []  # updates that differed from the last ones by their count; None if others did
        for group in self.param_groups:
            params, state, updates, apart = self._known.get(id(group), NOTHING)
            if params is not group["params"] or state is not self.state:
                self.look_again(group, set())
                repeated = None
                continue
            for update in updates:
                if update.repeat(group):
                    if repeated is not None:
                        repeated.append(update)
                    continue
                repeated = None
                if not self.update_together(update, group):
                    before = updates[:updates.index(update)]
                    self.look_again(group, {id(p) for done in before for p in done.members})
                    break
            else:
                if apart:
                    self.update_apart(apart, group)
                    repeated = None
        if repeated:
            self.learn_whole(repeated)

    def learn_whole(self, updates):
        """Let the next step be one native call, if it will be like this one."""
        known, step = self._whole
        ways = [update.repeat for update in updates]
        if known != ways or (step and step.groups is not self.param_groups):
            step = whole_step.whole_step(self.param_groups, self.state, updates)
            self._whole = ways, step
            self._take = step.function() if step else never
        elif step:
            step.learn()

    def update_together(self, update, group):
        """One native call; False, and nothing done, if it no longer fits."""
        check_flags(group)
        counts, negated = update.counts, bool(group.get("maximize"))
        if "step" in counts:
            counts["step"] += 1
        if not update.step(self.rule, self.numbers(counts, group), counts, negated):
            return False
        update.learn(self.rule, self.numbers, group, FLAGS, negated)
        return True

    def update_apart(self, params, group):
        with flambeau.set_grad_enabled(bool(self.defaults.get("differentiable"))):
            for p in params:
                if p.grad is not None:
                    self.update(p, p.grad, group)

    def look_again(self, group, done):
        """Find out which parameters can be updated together, and update those not yet done."""
        check_flags(group)
        params, updates = group["params"], []
        apart = [p for p in params if p.grad is not None and id(p) not in done]
        settled = False
        if self.pointwise and not group.get("differentiable"):
            names = functools.partial(self.remembered, group)
            settled = self.prepare(apart, group, names) and not done
            updates, apart = together.updates(params, self.state, names, self.counters, done)
        for update in updates:
            if not self.update_together(update, group):
                apart += update.members
                settled = False
        self.update_apart(apart, group)
        if not self._known:
            self._known = {}
        # An update also sees when a parameter without a gradient gets one, so there must be one.
        known = (params, self.state, updates, apart) if settled and updates else NOTHING
        self._known[id(group)] = known

    def prepare(self, params, group, names):
        """Begin the state of parameters that have none; whether the next step is like this one."""
        fresh = [p for p in params if names(p) is not None and not self.state.get(p)]
        if self.first_alone:
            return not fresh
        for p in fresh:
            if not p.grad.is_sparse:
                self.state_of(p, group)
        return not any(p.grad.is_sparse for p in fresh)

    def update(self, p, g, group):
        """Apply the rule to one parameter."""
        if g.is_sparse and not self.accepts_sparse(group):
            raise RuntimeError(
                f"{type(self).__name__} does not support sparse gradients{self.no_sparse_hint}"
            )
        names = self.remembered(group, p)
        state = self.state_of(p, group) if names is not None else {}
        numbers = self.numbers_of(state, group)
        tensors = [p, *(state[name] for name in names or ())]
        sign = -1 if group.get("maximize") else 1
        if g.is_sparse:
            return self.update_at(g, tensors, sign, numbers)
        if p.is_complex():
            g = flambeau.view_as_real(g)
            tensors = [flambeau.view_as_real(t) if t.is_complex() else t for t in tensors]
        self.write(tensors, g if sign > 0 else -g, numbers, group.get("differentiable"))
        return None

    def numbers_of(self, state, group):
        """The numbers of a step of one parameter; its counters move on."""
        counts = dict(state)
        for name in self.counters:
            if isinstance(state.get(name), Tensor):
                counts[name] = state[name].item()
        if "step" in counts:
            counts["step"] += 1
        numbers = self.numbers(counts, group)
        for name in self.counters:
            if isinstance(state.get(name), Tensor):
                state[name].fill_(counts[name])
            elif name in state:
                state[name] = counts[name]
        return numbers

    def state_of(self, p, group):
        state = self.state[p]
        if not state:
            with flambeau.no_grad():
                state.update(self.begin(p, group))
        return state

    def write(self, tensors, g, numbers, recorded):
        # What the graph of a recorded step has kept must not be the tensors written to.
        read = [t.clone() for t in tensors] if recorded else tensors
        for tensor, value in zip(tensors, self.rule(read[0], g, *read[1:], **numbers), strict=True):
            if value is not tensor:
                tensor.copy_(value)

    # -- sparse gradients ---------------------------------------------------------------------

    def accepts_sparse(self, group):
        return self.sparse

    def update_at(self, g, tensors, sign, numbers):
        """Apply the rule where a sparse gradient has values, and nowhere else."""
        g = g.coalesce()
        if g.values().numel() == 0:
            return
        at = tuple(g.indices()) or ...
        values = sign * g.values().reshape(tensors[0][at].shape)
        old = [t[at] for t in tensors]
        for tensor, value in zip(tensors, self.rule(old[0], values, *old[1:], **numbers)):
            tensor[at] = value


# -- what optimizers have in common -----------------------------------------------------------


def evaluate(closure):
    """The closure's loss, with gradients recorded; None without a closure."""
    if closure is None:
        return None
    with flambeau.enable_grad():
        return closure()


def step_count(value=0.0):
    """A count as a tensor, precise enough for any number of steps."""
    wide = flambeau.get_default_dtype() == flambeau.float64
    return flambeau.tensor(value, dtype=flambeau.float64 if wide else flambeau.float32)


def as_stored(value):
    """A count as `step_count` holds it."""
    wide = flambeau.get_default_dtype() == flambeau.float64
    return value if wide else struct.unpack("f", struct.pack("f", value))[0]


def number(value, group):
    """An option as a plain number, or as a 0-d tensor where its gradient may be wanted."""
    if not isinstance(value, Tensor):
        return value
    return value.squeeze() if group.get("differentiable") else value.item()


def check_flags(group):
    if group.get("capturable"):
        raise AssertionError(
            "If capturable=True, params and state_steps must be on a device that captures graphs "
            "(cuda, xpu, hpu, xla); set capturable=False on cpu."
        )
    if group.get("foreach") and group.get("differentiable"):
        raise AssertionError("_foreach ops don't support autograd")


def check_rate(lr, message="Invalid learning rate: {}"):
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    check(lr >= 0.0, message, lr)


def check(valid, message, *values):
    if not valid:
        raise ValueError(message.format(*values))


def check_betas(betas):
    for i, beta in enumerate(betas):
        check(0.0 <= beta < 1.0, "Invalid beta parameter at index {}: {}", i, beta)


def check_fused(optimizer, fused, foreach, differentiable):
    """The implementation flag excludes others; what it selects is the same rule."""
    if not fused:
        return
    if differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    for group in optimizer.param_groups:
        if not all(p.is_floating_point() for p in group["params"]):
            raise RuntimeError("`fused=True` requires all the params to be floating point Tensors")
    if foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    optimizer._step_supports_amp_scaling = True
