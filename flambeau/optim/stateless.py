"""Run an optimizer on other parameters and state for a while."""

import contextlib
from collections import defaultdict

from flambeau import Tensor

NAME = "swap_in_optimizer_params_and_state"


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """Within the `with`, the optimizer works on these parameters and this state_dict.

    swapin_parameters maps names to tensors, in the order of the optimizer's own parameters.
    Tensors of the state are updated in place; every other change is forgotten at the end.
    """
    if not optimizer.state:
        raise RuntimeError(f"{NAME} requires initialized optimizer state.")
    state, groups = _checked(optimizer, swapin_optim_state)
    replacements = list(swapin_parameters.values())
    if len(replacements) < sum(len(group["params"]) for group in groups):
        raise RuntimeError(
            f"{NAME} requires the explicit parameter state to match optimizer.param_groups "
            f"ordering: {len(replacements)} parameters are too few."
        )
    own_state, own_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        optimizer.state = defaultdict(dict)
        for live, given in zip(optimizer.param_groups, groups, strict=True):
            count = len(given["params"])
            params, replacements = replacements[:count], replacements[count:]
            live.update(given, params=params)
            for p, position in zip(params, given["params"], strict=True):
                optimizer.state[p] = dict(state.get(position, {}))
        yield
    finally:
        for live, own in zip(optimizer.param_groups, own_groups, strict=True):
            live.clear()
            live.update(own)
        optimizer.state = own_state


def _checked(optimizer, state_dict):
    """The two parts of a state_dict that fits the optimizer."""
    _require(isinstance(state_dict, dict), "an optimizer state_dict")
    state, groups = state_dict.get("state"), state_dict.get("param_groups")
    _require(isinstance(state, dict), "swapin_optim_state['state'] to be a dict")
    _require(
        not any(isinstance(key, Tensor) for key in state),
        "optimizer.state_dict()-style state keyed by packed parameter ids",
    )
    _require(
        all(isinstance(entry, dict) for key, entry in state.items() if isinstance(key, int)),
        "per-parameter optimizer state entries to be dictionaries",
    )
    _require(isinstance(groups, list), "swapin_optim_state['param_groups'] to be a list")
    if len(groups) != len(optimizer.param_groups):
        raise RuntimeError(
            "swapin_optim_state has a different number of parameter groups than the live optimizer."
        )
    for i, (live, given) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        _check_group(i, live, given)
    known = {position for group in groups for position in group["params"]}
    extra = [key for key in state if key not in known]
    _require(not extra, f"state keyed only by packed parameter ids; got extra keys {extra!r}")
    return state, groups


def _check_group(i, live, given):
    _require(isinstance(given, dict), "each optimizer param group to be a dictionary")
    positions = given.get("params")
    _require(
        isinstance(positions, list) and all(isinstance(p, int) for p in positions),
        "param_groups[*]['params'] to be lists of packed parameter ids",
    )
    if len(positions) != len(live["params"]):
        raise RuntimeError(
            f"swapin_optim_state param group {i} has a different number of "
            "params than the live optimizer param group."
        )
    _require(
        given.keys() == live.keys(),
        f"param group keys to exactly match the live optimizer group keys for group {i}: "
        f"only on one side are {sorted(given.keys() ^ live.keys())}",
    )


def _require(valid, what):
    if not valid:
        raise RuntimeError(f"{NAME} requires {what}.")
