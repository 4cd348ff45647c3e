"""Steps as functions: an optimizer's rule on lists of parameters, gradients and state.

torch has such a function beside every optimizer (`torch.optim.adam.adam`). Each is made here from
three lines: the lists of state it is given, its flags with their defaults, and its options.
"""

import ast
import inspect

from flambeau import Tensor

from .rule import check_flags

#: lists of state -> the name that one of their tensors has in an optimizer's state
REMEMBERED = {
    "acc_deltas":           "acc_delta",
    "axs":                  "ax",
    "col_vars":             "col_var",
    "etas":                 "eta",
    "exp_avg_sqs":          "exp_avg_sq",
    "exp_avgs":             "exp_avg",
    "exp_infs":             "exp_inf",
    "grad_avgs":            "grad_avg",
    "max_exp_avg_sqs":      "max_exp_avg_sq",
    "momentum_buffer_list": "momentum_buffer",
    "mu_products":          "mu_product",
    "muon_momentum_bufs":   "momentum_buffer",
    "mus":                  "mu",
    "prevs":                "prev",
    "row_vars":             "row_var",
    "square_avgs":          "square_avg",
    "state_steps":          "step",
    "state_sums":           "sum",
    "step_sizes":           "step_size",
    "variances":            "variance",
}  # fmt: skip

#: options of a group -> the arguments they are made of, where they are several
PAIRS = {
    "betas":      ("beta1", "beta2"),
    "eps":        ("eps1", "eps2"),
    "etas":       ("etaminus", "etaplus"),
    "step_sizes": ("step_size_min", "step_size_max"),
}  # fmt: skip


def step_function(kind, lists, flags="", options="", gradients="grads", fixed=None):
    """A function that updates parameters and state in place, as one step of an optimizer does.

    `fixed` are options of the group that the function has no argument for.
    """
    lists = lists.split()
    signature = _signature((*("params", gradients), *lists), flags.split(), options.split())

    def step(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        given = given.arguments
        params, grads = given.pop("params"), given.pop(gradients)
        state = {REMEMBERED[name]: given.pop(name) for name in lists}
        _check_steps(kind, state)
        scale, found_inf = given.pop("grad_scale", None), given.pop("found_inf", None)
        if found_inf is not None and found_inf:
            return
        if scale is not None:
            grads = [g / scale for g in grads]
        _update(kind, params, grads, state, {**(fixed or {}), **_group(given)})

    step.__name__ = step.__qualname__ = kind.__module__.rpartition(".")[2]
    step.__doc__ = f"One step of `{kind.__name__}` on these parameters, in place."
    step.__module__, step.__signature__ = kind.__module__, signature
    return step


def _update(kind, params, grads, state, group):
    check_flags(group)
    optimizer = object.__new__(kind)
    optimizer.state = {}
    for k, (p, g) in enumerate(zip(params, grads, strict=True)):
        own = {name: values[k] for name, values in state.items() if k < len(values)}
        optimizer.state[p] = own
        optimizer.update(p, g, group)
        for name, values in state.items():
            if k < len(values) and not isinstance(values[k], Tensor):
                values[k] = own[name]  # a count, or what begins with the first step


def _check_steps(kind, state):
    steps = state.get("step", ())
    if kind.__name__ != "SparseAdam" and not all(isinstance(t, Tensor) for t in steps):
        raise RuntimeError("API has changed, `state_steps` argument must contain a list of "
                           "singleton tensors")


def _group(given):
    """Arguments as the options of a group."""
    group = dict(given)
    for name, parts in PAIRS.items():
        if parts[0] in group:
            group[name] = tuple(group.pop(part) for part in parts)
    return group


def _signature(positional, flags, options):
    kinds = inspect.Parameter
    found = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in positional]
    for flag in flags:
        name, _, default = flag.partition("=")
        found.append(kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=ast.literal_eval(default)))
    for option in options:
        name, _, default = option.partition("=")
        given = {"default": ast.literal_eval(default)} if default else {}
        found.append(kinds(name, kinds.KEYWORD_ONLY, **given))
    return inspect.Signature(found)
