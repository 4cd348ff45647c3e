"""The base of all schedulers, and how they read and write parameter groups."""

import warnings

from flambeau import Tensor

from ..optimizer import Optimizer

EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler."
)
ORDER_WARNING = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call them in "
    "the opposite order: `optimizer.step()` before `lr_scheduler.step()`. Failure to do this will "
    "result in skipping the first value of the learning rate schedule."
)


class LRScheduler:
    """Subclasses give `get_lr()`: the rates at `last_epoch`."""

    _get_lr_called_within_step = False

    def __init__(self, optimizer, last_epoch=-1):
        self.optimizer = checked_optimizer(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0: load the optimizer's state first"
                )
        self.base_lrs = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    def state_dict(self):
        """Every attribute but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict):
        self.__dict__.update(state_dict)

    def get_last_lr(self):
        """The rates set by the last step, one per parameter group."""
        return self._last_lr

    def get_lr(self):
        """The rates at `last_epoch`, one per parameter group."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def step(self, epoch=None):
        """Set the next rates; call it after the optimizer's own step."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(ORDER_WARNING, UserWarning, stacklevel=2)
        if epoch is not None:
            warnings.warn(EPOCH_WARNING, UserWarning, stacklevel=2)
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        rates = self.get_lr
        if epoch is not None:
            rates = getattr(self, "_get_closed_form_lr", self.get_lr)
        self._set_rates(rates)

    def _set_rates(self, rates):
        self._get_lr_called_within_step = True
        try:
            values = rates()
        finally:
            self._get_lr_called_within_step = False
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            assign(group, "lr", lr)
        self._last_lr = values_of(self.optimizer, "lr")

    # -- for subclasses -----------------------------------------------------------------------

    def _warn_outside_step(self):
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, "
                "please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _rates(self):
        return values_of(self.optimizer, "lr")

    def _scaled(self, factor):
        return [lr * factor for lr in self._rates()]

    def _scaled_base(self, factor):
        return [base * factor for base in self.base_lrs]


class _LRScheduler(LRScheduler):
    """The name that older programs know."""


def checked_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
    return optimizer


def copied(value):
    """A value that does not change when the group's own tensor does."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def values_of(optimizer, key):
    return [copied(group[key]) for group in optimizer.param_groups]


def assign(group, key, value):
    """Set an option, in place where the group holds it as a tensor."""
    if isinstance(group[key], Tensor):
        group[key].fill_(value.item() if isinstance(value, Tensor) else value)
    else:
        group[key] = value


def per_group(name, optimizer, value):
    """The value as a list, one per parameter group."""
    groups = optimizer.param_groups
    if not isinstance(value, list | tuple):
        value = [value] * len(groups)
    if len(value) != len(groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {len(groups)}."
        )
    return [copied(v) for v in value]
