"""Averages of a model's weights: stochastic weight averaging and exponential moving averages."""

import itertools
import math
from collections import defaultdict
from copy import deepcopy

import flambeau
from flambeau.nn import Module

from .lr_scheduler.base import LRScheduler, per_group

__all__ = [
    "AveragedModel",
    "update_bn",
    "SWALR",
    "get_ema_multi_avg_fn",
    "get_swa_multi_avg_fn",
    "get_ema_avg_fn",
    "get_swa_avg_fn",
]


def _check_decay(decay):
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_avg_fn(decay=0.999):
    """The exponential moving average of one parameter."""
    _check_decay(decay)

    @flambeau.no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """The plain average of one parameter."""

    @flambeau.no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _in_place(average):
    """An averaging function of lists, which writes into the first, from one of tensors."""

    @flambeau.no_grad()
    def update(averaged_params, current_params, num_averaged):
        for averaged, current in zip(averaged_params, current_params, strict=True):
            averaged.copy_(average(averaged, current, num_averaged))

    return update


def get_ema_multi_avg_fn(decay=0.999):
    """The exponential moving average of a list of parameters, in place."""
    return _in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn():
    """The plain average of a list of parameters, in place."""
    return _in_place(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model whose parameters are averages over the calls of update_parameters.

    Buffers are averaged too with use_buffers=True, and otherwise follow the model.
    """

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        count = flambeau.tensor(0, dtype=flambeau.long, device=device)
        self.register_buffer("n_averaged", count)
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def update_parameters(self, model):
        """Let the model's present parameters into the average."""
        averaged, current = self._averaged(self.module), self._averaged(model)
        current = [c.to(a.device) for a, c in zip(averaged, current, strict=True)]
        if self.n_averaged == 0:
            for a, c in zip(averaged, current, strict=True):
                a.copy_(c)
        elif self.avg_fn is not None:
            _in_place(self.avg_fn)(averaged, current, self.n_averaged)
        else:
            self._average_lists(averaged, current)
        if not self.use_buffers:
            for own, other in zip(self.module.buffers(), model.buffers(), strict=True):
                own.detach().copy_(other.detach().to(own.device))
        self.n_averaged += 1

    def _averaged(self, model):
        buffers = model.buffers() if self.use_buffers else ()
        return [p.detach() for p in itertools.chain(model.parameters(), buffers)]

    def _average_lists(self, averaged, current):
        """By multi_avg_fn, which is given tensors of one device and dtype at a time."""
        alike = defaultdict(lambda: ([], []))
        for a, c in zip(averaged, current, strict=True):
            for tensors, tensor in zip(alike[str(a.device), a.dtype], (a, c), strict=True):
                tensors.append(tensor)
        average = self.multi_avg_fn or get_swa_multi_avg_fn()
        for own, other in alike.values():
            average(own, other, self.n_averaged.to(own[0].device))


@flambeau.no_grad()
def update_bn(loader, model, device=None):
    """Estimate the running statistics of batch norm layers anew, by a pass over the data."""
    kind = flambeau.nn.modules.batchnorm._BatchNorm
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, kind)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None  # a plain average over all batches
    for batch in loader:
        x = batch[0] if isinstance(batch, list | tuple) else batch
        model(x if device is None else x.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneal the rate to swa_lr in anneal_epochs, and keep it there."""

    SHARE = {"cos": lambda t: (1 - math.cos(math.pi * t)) / 2, "linear": lambda t: t}

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        rates = per_group("swa_lr", optimizer, swa_lr)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in self.SHARE:
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step):
        done = max(0, min(1, step / max(1, self.anneal_epochs)))
        return self.SHARE[self._anneal_strategy](done)

    def get_lr(self):
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, goal = group["lr"], group["swa_lr"]
            start = goal if before == 1 else (lr - before * goal) / (1 - before)
            rates.append(goal * now + start * (1 - now))
        return rates
