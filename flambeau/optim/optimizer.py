"""The base of all optimizers: parameter groups, per-parameter state, hooks, state_dict."""

import functools
import itertools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from types import MappingProxyType
from typing import Any, TypeAlias

import flambeau
from flambeau import Tensor
from flambeau.assemble import together, tracers

__all__ = [
    "Optimizer",
    "register_optimizer_step_pre_hook",
    "register_optimizer_step_post_hook",
]

ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
StateDict: TypeAlias = dict[str, Any]


class _Required:
    """The default of an option that every parameter group must give itself."""

    def __repr__(self):
        return "<required parameter>"


required = _Required()


class RemovableHandle:
    """Takes a registered hook out again, by `remove()` or at the end of a `with`."""

    _ids = itertools.count()

    def __init__(self, hooks):
        self.hooks = hooks
        self.id = next(RemovableHandle._ids)

    def remove(self):
        self.hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


def _register(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


_global_pre_hooks: OrderedDict = OrderedDict()
_global_post_hooks: OrderedDict = OrderedDict()


def register_optimizer_step_pre_hook(hook):
    """Call hook(optimizer, args, kwargs) before every step of every optimizer."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Call hook(optimizer, args, kwargs) after every step of every optimizer."""
    return _register(_global_post_hooks, hook)


HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class Optimizer:
    """Holds what is optimized and how.

    `param_groups` is a list of dicts, each with its "params" and options; options a group
    does not give come from `defaults`. `state` maps a parameter to what is remembered of it.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = cls.profile_hook_step(cls.step)

    def __init__(self, params, defaults):
        self.defaults = defaults
        for name in HOOKS:
            setattr(self, name, OrderedDict())
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts,"
                f" but got {flambeau.typename(params)}"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _patch_step_function(self):
        """For those that never call __init__: steps have told their hooks from the beginning."""

    def __getstate__(self):
        return {name: getattr(self, name) for name in ("defaults", "state", "param_groups")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name in HOOKS:
            self.__dict__.setdefault(name, OrderedDict())

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
            lines.append("")
        return "\n".join(lines[:-1]) + "\n)"

    # -- steps --------------------------------------------------------------------------------

    def step(self, closure=None):
        """Update the parameters once; a closure evaluates the loss anew and returns it."""
        raise NotImplementedError(f"{type(self).__name__} does not define step()")

    @staticmethod
    def profile_hook_step(step):
        """`step` with the hooks called around it."""
        if getattr(step, "hooked", False):
            return step

        @functools.wraps(step)
        def hooked_step(self, *args, **kwargs):
            # In a compiled function: on real tensors, as a call of its own.
            if tracers and tracers[-1].traces():
                return tracers[-1].run_plainly(untraced, self, *args, **kwargs)
            return untraced(self, *args, **kwargs)

        @functools.wraps(step)
        def untraced(self, *args, **kwargs):
            self._opt_called = True
            before, after = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
            if not (before or after or _global_pre_hooks or _global_post_hooks):
                return step(self, *args, **kwargs) if args or kwargs else step(self)
            args = (self, *args)
            for hook in [*_global_pre_hooks.values(), *before.values()]:
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {changed}."
                    )
                args, kwargs = changed
            result = step(*args, **kwargs)
            for hook in [*after.values(), *_global_post_hooks.values()]:
                hook(self, args, kwargs)
            return result

        hooked_step.hooked = True
        return hooked_step

    def zero_grad(self, set_to_none=True):
        """Forget all gradients, or with set_to_none=False fill them with zeros."""
        for group in self.param_groups:
            params = group["params"]
            if set_to_none:
                together.forget_gradients(params)
            elif not together.zero_gradients(params):
                _zero(params)

    # -- parameter groups ---------------------------------------------------------------------

    def add_param_group(self, param_group):
        """Optimize more parameters, with their own options."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        param_group["params"] = _as_list(param_group["params"])
        _separate_names(param_group)
        for p in param_group["params"]:
            self._check_parameter(p)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    + name
                )
            param_group.setdefault(name, default)
        self._check_group(param_group)
        self.param_groups.append(param_group)

    def _check_parameter(self, p):
        if not isinstance(p, Tensor):
            raise TypeError(
                "optimizer can only optimize Tensors, but one of the params is "
                f"{flambeau.typename(p)}"
            )
        if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
            raise ValueError("can't optimize a non-leaf Tensor")

    def _check_group(self, new):
        ids = {id(p) for p in new["params"]}
        if len(ids) != len(new["params"]):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error",
                stacklevel=4,
            )
        for group in self.param_groups:
            if ("param_names" in new) != ("param_names" in group):
                given = "with names" if "param_names" in new else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {given} to the optimizer"
                )
            if not ids.isdisjoint(id(p) for p in group["params"]):
                raise ValueError("some parameters appear in more than one parameter group")

    # -- state_dict ---------------------------------------------------------------------------

    def state_dict(self):
        """{"state", "param_groups"}, with parameters replaced by their positions."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        everything = [p for group in self.param_groups for p in group["params"]]
        positions = {}
        for i, p in enumerate(everything):
            positions.setdefault(id(p), i)
        packed = {
            "state": {
                positions[id(key)] if isinstance(key, Tensor) else key: value
                for key, value in self.state.items()
            },
            "param_groups": [
                {
                    **{key: value for key, value in group.items() if key != "params"},
                    "params": [positions[id(p)] for p in group["params"]],
                }
                for group in self.param_groups
            ],
        }
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, packed)
            packed = packed if changed is None else changed
        return packed

    def load_state_dict(self, state_dict):
        """Take over options and state; tensors are brought to each parameter's dtype."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed

        saved_groups = deepcopy(state_dict["param_groups"])
        self._check_saved_groups(saved_groups)
        owners = {}  # saved position -> (parameter, its saved group)
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            pairs = zip(saved["params"], group["params"], strict=True)
            owners.update({position: (p, saved) for position, p in pairs})
            saved["params"] = group["params"]
            if "param_names" in group:
                saved.setdefault("param_names", group["param_names"])

        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in owners:
                p, saved = owners[key]
                state[p] = _fit(value, p, saved)
            else:
                state[key] = value
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _check_saved_groups(self, saved_groups):
        if len(saved_groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            if len(group["params"]) != len(saved["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group "
                    "that doesn't match the size of optimizer's group"
                )

    # -- hooks --------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook):
        """Call hook(optimizer, args, kwargs) before step; it may return new (args, kwargs)."""
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Call hook(optimizer, args, kwargs) after step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Call hook(optimizer) before state_dict."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Call hook(optimizer, state_dict) after state_dict; it may return another one."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Call hook(optimizer, state_dict) before loading; it may return another one."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Call hook(optimizer) after loading."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)


# Wrappers such as Lookahead hold another optimizer and never call __init__: they have no hooks.
for _name in HOOKS:
    setattr(Optimizer, _name, MappingProxyType({}))


def _zero(params):
    for p in params:
        if p.grad is None:
            continue
        if p.grad.grad_fn is not None:
            p.grad.detach_()
        else:
            p.grad.requires_grad_(False)
        p.grad.zero_()


def _as_list(params):
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but "
            "the ordering of tensors in sets will change between runs. Please use a list instead."
        )
    return [params] if isinstance(params, Tensor) else list(params)


def _separate_names(group):
    """Turn (name, parameter) pairs into "params" and "param_names"."""
    names = [item[0] for item in group["params"] if isinstance(item, tuple)]
    if not names:
        return
    if len(names) != len(group["params"]):
        raise ValueError(
            "all optimizer params should be with/without names. Some param names are missing"
        )
    group["params"] = [p for _, p in group["params"]]
    group["param_names"] = names


def _fit(value, p, group, key=None):
    """A saved value, its tensors brought to the device and dtype of their parameter.

    Step counts keep their own dtype: float16 could not count far.
    """
    if isinstance(value, Tensor):
        if key == "step":
            moves = group.get("capturable") or group.get("fused")
            return value.to(dtype=flambeau.float32, device=p.device) if moves else value
        if p.is_floating_point():
            return value.to(dtype=p.dtype, device=p.device)
        return value.to(device=p.device)
    if isinstance(value, dict):
        return {k: _fit(v, p, group, k) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return type(value)(_fit(v, p, group) for v in value)
    return value
