"""The base of all layers and models."""

from typing import TypeVar

import flambeau
from flambeau import Tensor
from flambeau.assemble import fronts, together
from flambeau.nn.modules.handles import HookTable, RemovableHandle
from flambeau.nn.modules.hooks import (
    CALL_HOOKS,
    HOOK_TABLES,
    Hooked,
    call_with_hooks,
    register_module_backward_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from flambeau.nn.modules.state import (
    _EXTRA_STATE_KEY_SUFFIX as _EXTRA_STATE_KEY_SUFFIX,
)
from flambeau.nn.modules.state import STATE_TABLES, Stateful, _IncompatibleKeys
from flambeau.nn.modules.tree import (
    BUFFER,
    MODULE,
    PARAMETER,
    REGISTRATION_HOOKS,
    Tree,
    registered,
)
from flambeau.nn.parameter import Parameter, is_lazy

__all__ = [
    "Module",
    "RemovableHandle",
    "_IncompatibleKeys",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

T = TypeVar("T", bound="Module")


class Module(Tree, Stateful, Hooked):
    """A layer or model: `__init__` makes its parts, `forward` computes with them.

    Parameters, buffers and modules assigned to attributes belong to it: they move, save, load
    and train with it.
    """

    training: bool
    call_super_init = False
    dump_patches = False

    def __init__(self, *args, **kwargs):
        if not self.call_super_init and (args or kwargs):
            name = type(self).__name__
            if kwargs:
                unknown = next(iter(kwargs))
                raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{unknown}'")
            given = len(args) + 1
            raise TypeError(f"{name}.__init__() takes 1 positional argument but {given} were given")
        self.__dict__.update(
            training=True,
            _registered={},
            _non_persistent_buffers_set=set(),
            **{table: HookTable() for table in (*HOOK_TABLES, *STATE_TABLES)},
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args, **kwargs):
        """What the module computes; every subclass says."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def compile(self, *args, **kwargs):
        """From now on, calls of this module run as compiled programs: see `flambeau.compile`."""
        flambeau.compiler.compile_in_place(self, *args, **kwargs)

    def __call__(self, *args, **kwargs):
        """What `forward` computes, between the hooks that are there."""
        return call_with_hooks(self, args, kwargs)

    def __setstate__(self, state):
        Tree.__setstate__(self, state)
        for table in (*HOOK_TABLES, *STATE_TABLES):
            present = self.__dict__.get(table) or ()
            if not isinstance(present, HookTable):
                self.__dict__[table] = HookTable(present)
        if any(self.__dict__[table] for table in CALL_HOOKS):
            self.__dict__["_hooked"] = True

    # -- training and gradients -------------------------------------------------------------

    def train(self, mode=True):
        """Set training mode here and below: dropout drops, batch norm counts."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self):
        """Set evaluation mode: the same as `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Set whether the parameters are learned."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Forget the gradients of all parameters, or fill them with zeros."""
        parameters = list(self.parameters())
        if set_to_none:
            together.forget_gradients(parameters)
            return
        if together.zero_gradients(parameters):
            return
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if parameter.grad.grad_fn is not None:
                parameter.grad.detach_().zero_()
            else:
                parameter.grad.requires_grad_(False).zero_()

    def apply(self, fn):
        """Call `fn` on every descendant and then on the module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # -- conversion -----------------------------------------------------------------------

    def _apply(self, fn, recurse=True):
        """Convert every parameter, gradient and buffer; parameters stay the same objects."""
        if recurse:
            for child in self.children():
                child._apply(fn)
        for name, parameter in registered(self, PARAMETER):
            if parameter is not None:
                self.__dict__[name] = _convert(parameter, fn)
        for name, buffer in registered(self, BUFFER):
            if is_lazy(buffer):
                buffer.data = fn(buffer.data)
            elif buffer is not None:
                self.__dict__[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        """Move to a device, convert floating-point tensors to a dtype, or both."""
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )

        def convert(tensor):
            wanted = dtype if tensor.is_floating_point() or tensor.is_complex() else None
            options = {}
            if memory_format is not None and tensor.dim() in (4, 5):
                options["memory_format"] = memory_format
            return tensor.to(
                device=tensor.device if device is None else device,
                dtype=tensor.dtype if wanted is None else wanted,
                non_blocking=non_blocking,
                **options,
            )

        return self._apply(convert)

    def to_empty(self, *, device, recurse=True):
        """Move to a device without copying: the values are whatever is there."""
        return self._apply(lambda t: flambeau.empty_like(t, device=device), recurse)

    def type(self, dst_type):
        """Convert every parameter and buffer, whatever its kind."""
        return self._apply(lambda t: t.type(dst_type))

    def __float_to(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self):
        """Convert floating-point tensors to float32."""
        return self.__float_to(flambeau.float32)

    def double(self):
        """Convert floating-point tensors to float64."""
        return self.__float_to(flambeau.float64)

    def half(self):
        """Convert floating-point tensors to float16."""
        return self.__float_to(flambeau.float16)

    def bfloat16(self):
        """Convert floating-point tensors to bfloat16."""
        return self.__float_to(flambeau.bfloat16)

    def cpu(self):
        """Move to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device=None):
        """Move to a CUDA device, where there is one."""
        return self._apply(lambda t: t.cuda(device))

    def share_memory(self):
        """Move to memory that other processes can map."""
        return self._apply(lambda t: t.share_memory_())

    # -- printing -------------------------------------------------------------------------

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self):
        """What a subclass wants shown between the brackets."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {_addindent(repr(m), 2)}" for name, m in registered(self, MODULE)]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({extra})"
        if not lines and not children:
            return f"{self._get_name()}()"
        body = "\n  ".join([*lines, *children])
        return f"{self._get_name()}(\n  {body}\n)"


Module.__call__ = fronts.module_call(Module, Module.__call__)  # type: ignore[method-assign]


def _addindent(s_, numSpaces):
    """All lines but the first further in; layers that print themselves use it too."""
    first, *rest = s_.split("\n")
    return "\n".join([first, *(" " * numSpaces + line for line in rest)])


def _convert(parameter, fn):
    """Convert a parameter and its gradient, in place where the device stays."""
    if is_lazy(parameter):
        parameter.data = fn(parameter.data)
        return parameter
    with flambeau.no_grad():
        converted = fn(parameter)
        gradient = None if parameter.grad is None else fn(parameter.grad)
    requires_grad = parameter.requires_grad
    if converted.device.type == parameter.device.type:
        parameter.grad = None
        parameter.data = converted
    else:
        parameter = Parameter(converted, requires_grad)
    if gradient is not None:
        parameter.grad = gradient.requires_grad_(False)
    return parameter


def _parse_to(*args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
    """The device, dtype, ... meant by any of the forms that `to` accepts."""
    flags = [a for a in args if isinstance(a, bool)]
    for value in args:
        if isinstance(value, bool):
            continue
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, flambeau.dtype):
            dtype = value
        elif value is not None:
            device = value
    non_blocking = flags[0] if flags else non_blocking
    return (None if device is None else flambeau.device(device)), dtype, non_blocking, memory_format


# -- hooks on registration, of every module -------------------------------------------------------


def _registration_hook(kind):
    def register(hook):
        return REGISTRATION_HOOKS[kind].add(hook)

    register.__name__ = register.__qualname__ = f"register_module_{kind}_registration_hook"
    register.__doc__ = f"Run `hook(module, name, {kind})` whenever a {kind} is registered."
    return register


register_module_parameter_registration_hook = _registration_hook(PARAMETER)
register_module_buffer_registration_hook = _registration_hook(BUFFER)
register_module_module_registration_hook = _registration_hook(MODULE)
