"""Functions that run around forward and backward, of one module or of all."""

import warnings

import flambeau
from flambeau import Tensor
from flambeau.nn.modules.handles import HookTable

FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
# Ids of hooks that take keyword arguments too, and of those that run even after an error.
WITH_KWARGS, PRE_WITH_KWARGS, ALWAYS = (
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
CALL_HOOKS = (FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD)
HOOK_TABLES = (*CALL_HOOKS, WITH_KWARGS, PRE_WITH_KWARGS, ALWAYS)

GLOBAL_HOOKS = {table: HookTable() for table in HOOK_TABLES}


class EveryModule:
    """Whether the backward hooks of every module are full, once there is one."""

    full_backward = None


class Hooked:
    """Registration of the hooks of one module."""

    _hooked = False  # whether a call has to look for hooks at all
    _is_full_backward_hook = None  # whether backward hooks are full, once there is one

    def __add_hook(self, table, hook, *marks, first=False):
        self._hooked = True
        return getattr(self, table).add(hook, *(getattr(self, m) for m in marks), first=first)

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Run `hook(module, args)` before forward; what it returns replaces the arguments."""
        marks = [PRE_WITH_KWARGS] if with_kwargs else []
        return self.__add_hook(FORWARD_PRE, hook, *marks, first=prepend)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Run `hook(module, args, output)` after forward; what it returns replaces the output."""
        marks = [WITH_KWARGS] * with_kwargs + [ALWAYS] * always_call
        return self.__add_hook(FORWARD, hook, *marks, first=prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Run `hook(module, grad_output)` before the module's backward."""
        return self.__add_hook(BACKWARD_PRE, hook, first=prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Run `hook(module, grad_input, grad_output)` after the module's backward."""
        self.__choose_backward(full=True)
        return self.__add_hook(BACKWARD, hook, first=prepend)

    def register_backward_hook(self, hook):
        """Run `hook` at the last operation of forward only; prefer the full backward hook."""
        self.__choose_backward(full=False)
        return self.__add_hook(BACKWARD, hook)

    def __choose_backward(self, full):
        if self._is_full_backward_hook not in (None, full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single "
                "Module. Please use only one of them."
            )
        self._is_full_backward_hook = full


def call_with_hooks(module, args, kwargs):
    """What calling a module does once any hook is registered."""
    if not _has_hooks(module):
        return module.forward(*args, **kwargs)
    called = set()
    result = None
    try:
        args, kwargs = _run_forward_pre_hooks(module, args, kwargs)
        watch = BackwardWatch.of(module)
        if watch:
            args = watch.enter(args)
        result = module.forward(*args, **kwargs)
        for key, hook, with_kwargs in _forward_hooks(module):
            called.add(key)
            given = (args, kwargs) if with_kwargs else (args,)
            replacement = hook(module, *given, result)
            result = result if replacement is None else replacement
        if watch:
            result = watch.leave(result)
        _attach_partial_backward_hooks(module, result)
        return result
    except Exception:
        _run_remaining_hooks(module, args, kwargs, result, called)
        raise


def _has_hooks(module):
    """Whether a call has hooks to run; where all have been removed, the next need not ask."""
    here = any(module.__dict__[table] for table in CALL_HOOKS)
    everywhere = any(GLOBAL_HOOKS[table] for table in CALL_HOOKS)
    if not here:
        module.__dict__.pop("_hooked", None)
    Hooked._hooked = everywhere
    return here or everywhere


def _run_forward_pre_hooks(module, args, kwargs):
    for hooks, marks in (
        (GLOBAL_HOOKS[FORWARD_PRE], GLOBAL_HOOKS[PRE_WITH_KWARGS]),
        (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs),
    ):
        for key, hook in list(hooks.items()):
            if key in marks:
                replacement = hook(module, args, kwargs)
                if replacement is None:
                    continue
                if not isinstance(replacement, tuple) or len(replacement) != 2:
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {replacement}."
                    )
                args, kwargs = replacement
            else:
                replacement = hook(module, args)
                if replacement is not None:
                    args = replacement if isinstance(replacement, tuple) else (replacement,)
    return args, kwargs


def _forward_hooks(module, only=None):
    """(key, hook, takes keyword arguments) for every forward hook, or for those marked `only`."""
    everywhere = [(key, hook, GLOBAL_HOOKS) for key, hook in GLOBAL_HOOKS[FORWARD].items()]
    here = [(key, hook, module.__dict__) for key, hook in module._forward_hooks.items()]
    for key, hook, tables in everywhere + here:
        if only is None or key in tables[only]:
            yield key, hook, key in tables[WITH_KWARGS]


def _run_remaining_hooks(module, args, kwargs, result, called):
    """After an error, run what asked to be always called and has not been."""
    for key, hook, with_kwargs in _forward_hooks(module, only=ALWAYS):
        if key not in called:
            try:
                given = (args, kwargs) if with_kwargs else (args,)
                replacement = hook(module, *given, result)
                result = result if replacement is None else replacement
            except Exception as error:
                warnings.warn(
                    f"module forward hook with ``always_call=True`` raised an exception that was "
                    f"silenced as another error was raised in forward: {error}",
                    stacklevel=3,
                )


# -- backward -----------------------------------------------------------------------------------


class Passage(flambeau.autograd.Function):
    """The identity on tensors, telling `seen` the gradients that come back through it."""

    @staticmethod
    def forward(ctx, seen, *tensors):
        ctx.seen = seen
        ctx.set_materialize_grads(False)
        return tensors  # as they are, so that an op in place after this one keeps the way back

    @staticmethod
    def backward(ctx, *grads):
        return None, *ctx.seen(grads)


class BackwardWatch:
    """Runs full backward hooks for one call of a module.

    Gradients of the outputs pass here first and those of the inputs last, so hooks see both.
    """

    def __init__(self, module, pre_hooks, hooks):
        self.module, self.pre_hooks, self.hooks = module, pre_hooks, hooks
        self.grad_output = None
        self.inputs_are_watched = False

    @classmethod
    def of(cls, module):
        pre_hooks = [*GLOBAL_HOOKS[BACKWARD_PRE].values(), *module._backward_pre_hooks.values()]
        hooks = [*GLOBAL_HOOKS[BACKWARD].values()] if EveryModule.full_backward is not False else []
        if module._is_full_backward_hook is not False:
            hooks += module._backward_hooks.values()
        return cls(module, pre_hooks, hooks) if pre_hooks or hooks else None

    def enter(self, args):
        self.size = len(args)
        args, self.input_positions = self._watch(args, self._leaving)
        self.inputs_are_watched = bool(self.input_positions)
        return args

    def leave(self, result):
        if not isinstance(result, (Tensor, tuple)):
            return result
        given = _tuple(result)
        self.output_size = len(given)
        values, self.output_positions = self._watch(given, self._entering)
        if isinstance(result, Tensor):
            return values[0]
        return type(result)._make(values) if hasattr(result, "_fields") else values

    @staticmethod
    def _watch(values, seen):
        """Send what wants a gradient through a passage; return all values, and which did."""
        positions = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not positions or not flambeau.is_grad_enabled():
            return values, []
        values = list(values)
        passed = Passage.apply(seen, *(values[i] for i in positions))
        for i, tensor in zip(positions, passed, strict=True):
            values[i] = tensor
        return tuple(values), positions

    def _entering(self, grads):
        """Backward reaches the outputs."""
        grad_output = _spread(grads, self.output_positions, self.output_size)
        for hook in self.pre_hooks:
            replacement = hook(self.module, grad_output)
            if replacement is not None:
                grad_output = _checked("Backward pre hook", replacement, grad_output)
        self.grad_output = grad_output
        if not self.inputs_are_watched:
            for hook in self.hooks:
                replacement = hook(self.module, (None,) * self.size, grad_output)
                if replacement is not None and any(g is not None for g in _tuple(replacement)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should "
                        "always return None or None for all gradients."
                    )
        return [grad_output[i] for i in self.output_positions]

    def _leaving(self, grads):
        """Backward has come through to the inputs."""
        grad_input = _spread(grads, self.input_positions, self.size)
        if self.grad_output is not None:
            for hook in self.hooks:
                replacement = hook(self.module, grad_input, self.grad_output)
                if replacement is not None:
                    grad_input = _checked("Backward hook", replacement, grad_input)
            self.grad_output = None
        return [grad_input[i] for i in self.input_positions]


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


def _spread(values, positions, size):
    """Put values at their positions among `size` places, None elsewhere."""
    spread = [None] * size
    for i, value in zip(positions, values, strict=True):
        spread[i] = value
    return tuple(spread)


def _checked(what, replacement, grads):
    replacement = _tuple(replacement)
    if len(replacement) != len(grads):
        raise RuntimeError(
            f"{what} returned an invalid number of grad: got {len(replacement)}, "
            f"but expected {len(grads)}"
        )
    return replacement


def _attach_partial_backward_hooks(module, result):
    """Hooks of `register_backward_hook`: on the last operation that made the result."""
    hooks = [*GLOBAL_HOOKS[BACKWARD].values()] if EveryModule.full_backward is False else []
    if module._is_full_backward_hook is False:
        hooks += module._backward_hooks.values()
    if not hooks:
        return
    while not isinstance(result, Tensor):
        parts = result.values() if isinstance(result, dict) else result
        result = next((v for v in parts if isinstance(v, (Tensor, dict, tuple, list))), None)
        if result is None:
            return
    for hook in hooks if result.grad_fn is not None else ():
        result.grad_fn.register_hook(_bound(hook, module))


def _bound(hook, module):
    def run(grad_input, grad_output):
        replacement = hook(module, grad_input, grad_output)
        if replacement is not None and not isinstance(replacement, tuple):
            return (replacement,)
        return replacement

    return run


# -- hooks of every module ------------------------------------------------------------------------


def _add_global_hook(table, hook, *marks):
    Hooked._hooked = True
    return GLOBAL_HOOKS[table].add(hook, *(GLOBAL_HOOKS[mark] for mark in marks))


def register_module_forward_pre_hook(hook):
    """Run `hook(module, args)` before the forward of every module."""
    return _add_global_hook(FORWARD_PRE, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Run `hook(module, args, output)` after the forward of every module."""
    return _add_global_hook(FORWARD, hook, *[WITH_KWARGS] * with_kwargs, *[ALWAYS] * always_call)


def register_module_full_backward_pre_hook(hook):
    """Run `hook(module, grad_output)` before the backward of every module."""
    return _add_global_hook(BACKWARD_PRE, hook)


def register_module_full_backward_hook(hook):
    """Run `hook(module, grad_input, grad_output)` after the backward of every module."""
    _choose_global_backward(full=True)
    return _add_global_hook(BACKWARD, hook)


def register_module_backward_hook(hook):
    """Run `hook` at the last operation of every module; prefer the full backward hook."""
    _choose_global_backward(full=False)
    return _add_global_hook(BACKWARD, hook)


def _choose_global_backward(full):
    if EveryModule.full_backward not in (None, full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module "
            "hook. Please use only one of them."
        )
    EveryModule.full_backward = full
