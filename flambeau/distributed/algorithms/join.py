"""Ranks with fewer batches than others: those that are done shadow the collectives of the rest."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import flambeau
from flambeau.distributed import collectives, groups

WARN_AFTER = 1000  # batches that some rank has more than another


class JoinHook:
    """What a rank that is done does: `main_hook` per batch of others, `post_hook` at the end."""

    def main_hook(self) -> None:
        """Shadow the collectives of one batch."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all are done."""


class Settings(NamedTuple):
    """What a Joinable knows of the Join it is in."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False


class Joinable(ABC):
    """Something with collectives in every batch, which can be shadowed."""

    def __init__(self) -> None:
        super().__init__()
        self._join_config = Settings()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook: ...

    @property
    @abstractmethod
    def join_device(self) -> Any: ...

    @property
    @abstractmethod
    def join_process_group(self) -> Any: ...


class Join:
    """with Join([model, optimizer]): train, on as many batches as this rank has."""

    def __init__(self, joinables: list[Any], enable: bool = True,
                 throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable = joinables, enable
        self._throw = throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._group = joinables[0].join_process_group
        if any(joinable.join_process_group is not self._group for joinable in joinables):
            raise ValueError("Using join context manager with multiple process groups")
        self._set(True)

    def _set(self, inside: bool) -> None:
        for place, joinable in enumerate(self._joinables):
            joinable._join_config = Settings(
                self._enable, self._throw, place == 0) if inside else Settings()

    def __enter__(self) -> Join:
        return self

    def __exit__(self, kind, error, trace) -> None:
        try:
            if self._enable and kind is None:
                self._shadow()
        finally:
            self._set(False)

    def _shadow(self) -> None:
        """Until every rank is here: what the others do, with nothing to add."""
        rounds = 0
        while self._still_at_work() > 0:
            rounds += 1
            if self._throw:
                _all_hear_of_the_end(self._group)
                raise RuntimeError(EXHAUSTED)
            if rounds == WARN_AFTER:
                warnings.warn("Detected uneven input skew of greater than "
                              f"{WARN_AFTER}. This means that rank {groups.get_rank()} has at "
                              f"least {WARN_AFTER} fewer inputs than other currently-active "
                              "ranks.", stacklevel=3)
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(rounds == 0)

    def _still_at_work(self) -> int:
        count = flambeau.zeros(1)
        collectives.all_reduce(count, group=self._group)
        return int(count)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Called by a joinable before the collectives of a batch: this rank is still at work."""
        settings = getattr(joinable, "_join_config", Settings())
        if not settings.enable or not settings.is_first_joinable:
            return None
        group = joinable.join_process_group
        count = flambeau.ones(1)
        work = collectives.all_reduce(count, group=group, async_op=True)
        if settings.throw_on_early_termination:
            work.wait()
            if int(count) < groups.get_world_size(group):
                _all_hear_of_the_end(group)
                raise RuntimeError(EXHAUSTED)
        return work


EXHAUSTED = "Detected at least one rank that exhausted inputs. Throwing across all ranks."


def _all_hear_of_the_end(group: Any) -> None:
    collectives.barrier(group)
