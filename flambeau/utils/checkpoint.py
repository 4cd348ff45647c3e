"""Memory for time: what a function keeps for backward is computed again when backward needs it.

`use_reentrant=False` replaces every kept tensor by a number and runs the function again when the
first is asked for; `use_reentrant=True` is one step of the graph that differentiates inside.
"""

import contextlib
import warnings
import weakref

import flambeau
from flambeau import Tensor
from flambeau.autograd import Function
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.random import fork_rng
from flambeau.utils.selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "DefaultDeviceType",
    "SelectiveCheckpointContext", "check_backward_validity", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "detach_variable",
    "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip


class CheckpointError(RuntimeError):
    """The second run of a function did not keep what the first one kept."""


class Switches:
    """Settings that a context manager overrides for every checkpoint inside it."""

    early_stop = True
    debug = None


@contextlib.contextmanager
def _switched(name, value):
    before = getattr(Switches, name)
    setattr(Switches, name, value)
    try:
        yield
    finally:
        setattr(Switches, name, before)


def set_checkpoint_early_stop(enable):
    """Context: whether the second run ends as soon as everything asked for is there."""
    return _switched("early_stop", enable)


def set_checkpoint_debug_enabled(enabled):
    """Context: whether checkpoints inside say which ops they saw, whatever their `debug` is."""
    return _switched("debug", enabled)


class DefaultDeviceType:
    """The device whose random state is kept beside the CPU's."""

    _name = "cuda"

    @staticmethod
    def set_device_type(device="cuda"):
        """Choose it by name."""
        DefaultDeviceType._name = device

    @staticmethod
    def get_device_type():
        """Its name."""
        return DefaultDeviceType._name


def get_device_states(*args):
    """(devices, their random states) of the accelerators among the arguments: there are none."""
    return [], []


def set_device_states(devices, states, *, device_type=None):
    """Give accelerators their random states back."""


def noop_context_fn():
    """Contexts of the first and of the second run that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def detach_variable(inputs):
    """The same tensors as leaves of a new graph."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: "
                           f"{type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
                 for x in inputs)


def check_backward_validity(inputs):
    """Warn where no input can bring a gradient back."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None",
                      stacklevel=2)


class Surroundings:
    """What a second run must find as the first one did: random numbers and autocast."""

    def __init__(self, preserve_rng_state):
        self.random = flambeau.get_rng_state() if preserve_rng_state else None
        self.autocast = None
        if hasattr(flambeau, "is_autocast_enabled"):
            self.autocast = {"device_type": "cpu",
                             "enabled": flambeau.is_autocast_enabled("cpu"),
                             "dtype": flambeau.get_autocast_dtype("cpu")}

    @contextlib.contextmanager
    def restored(self):
        """Random numbers drawn inside are those of the first run, and leave the stream alone."""
        with contextlib.ExitStack() as inside:
            inside.enter_context(fork_rng(enabled=self.random is not None))
            if self.random is not None:
                flambeau.set_rng_state(self.random)
            if self.autocast is not None:
                inside.enter_context(flambeau.autocast(**self.autocast))
            yield


# -- as one step of the graph ---------------------------------------------------------------------


class CheckpointFunction(Function):
    """Runs the function unrecorded; its backward records it and differentiates."""

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = Surroundings(preserve_rng_state)
        ctx.places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.others = [None if isinstance(x, Tensor) else x for x in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with flambeau.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *gradients):
        args = list(ctx.others)
        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = tensor
        args = detach_variable(tuple(args))
        with ctx.surroundings.restored(), flambeau.enable_grad():
            outputs = ctx.run_function(*args)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        wanted = [(out, g) for out, g in zip(outputs, gradients, strict=True)
                  if isinstance(out, Tensor) and out.requires_grad]
        if not wanted:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not "
                               "necessary")
        flambeau.autograd.backward(*map(list, zip(*wanted, strict=True)))
        return None, None, *(x.grad if isinstance(x, Tensor) else None for x in args)


# -- as numbers in place of tensors ---------------------------------------------------------------


class EnoughRecomputed(Exception):
    """Ends a second run: everything that was kept is there again."""


class KeepInputs(Function):
    """Keeps tensors as a step of the graph keeps them, so that hooks around a checkpoint see them.

    A checkpoint inside another must not hold its inputs: they are what the outer one gives up.
    """

    @staticmethod
    def forward(ctx, anchor, *tensors):
        ctx.save_for_backward(*tensors)
        return anchor.clone()

    @staticmethod
    def backward(ctx, *gradients):
        raise AssertionError("a step that only keeps is never gone back through")


class Place:
    """What stands in the graph for one kept tensor."""

    __slots__ = ("__weakref__", "metadata", "number")

    def __init__(self, number, metadata):
        self.number, self.metadata = number, metadata


METADATA = {
    "default": lambda t: {"shape": tuple(t.shape), "dtype": t.dtype, "device": t.device},
    "none": lambda t: None,
}


class Checkpoint:
    """One checkpointed call: what it kept as numbers, and how to compute that again."""

    def __init__(self, function, args, kwargs, options):
        self.function, self.kwargs, self.options = function, kwargs, options
        self.surroundings = Surroundings(options["preserve_rng_state"])
        self.first, self.second = options["context_fn"]()
        self.describe = METADATA[options["determinism_check"]]
        self.places = []  # weak references: a step that has gone needs nothing computed again
        self.recomputed = {}
        self.ended = False
        tensors = {i: x for i, x in enumerate(args) if isinstance(x, Tensor)}
        self.learned = {i: x.requires_grad for i, x in tensors.items()}
        self.others = [None if isinstance(x, Tensor) else x for x in args]
        anchor = flambeau.empty(0, requires_grad=True)
        with flambeau.enable_grad():
            self.inputs = KeepInputs.apply(anchor, *tensors.values()).grad_fn

    def forward(self, args):
        """The first run."""
        with saved_tensors_hooks(self._number, self._tensor), self.first:
            result = self.function(*args, **self.kwargs)
        self.ended = True
        return result

    def _number(self, tensor):
        place = Place(len(self.places), self.describe(tensor))
        self.places.append(weakref.ref(place))
        return place

    def _tensor(self, place):
        if not self.ended:  # backward inside of the function: what it kept is not all known yet
            raise RuntimeError("checkpoint(use_reentrant=False): backward() was called inside of "
                               "the checkpointed function, before it had returned")
        if place.number not in self.recomputed:
            self._run_again()
        if place.number not in self.recomputed:
            raise CheckpointError(
                "A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.places)}\n"
                f"Number of tensors saved during recomputation: {len(self.recomputed)}")
        tensor = self.recomputed.pop(place.number)
        found = self.describe(tensor)
        if found != place.metadata:
            raise CheckpointError(
                "Recomputed values for the following tensors have different metadata than during "
                f"the forward pass.\ntensor at position {place.number}:\nsaved metadata: "
                f"{place.metadata}\nrecomputed metadata: {found}")
        return tensor

    def _run_again(self):
        args = list(self.others)
        for (i, learned), x in zip(self.learned.items(), self.inputs.saved_tensors, strict=True):
            args[i] = x if x.requires_grad == learned else x.detach().requires_grad_(learned)
        needed = [i for i, place in enumerate(self.places) if place() is not None]
        again = Recomputation(self.recomputed, needed, self.options["early_stop"])
        with (contextlib.suppress(EnoughRecomputed), self.surroundings.restored(), self.second,
              flambeau.enable_grad(), saved_tensors_hooks(again.keep, again.give)):
            self.function(*args, **self.kwargs)


class Recomputation:
    """A second run: every tensor it keeps is the one of that number."""

    def __init__(self, found, needed, early_stop):
        self.found, self.needed = found, set(needed)
        self.last = max(needed, default=-1) if early_stop and Switches.early_stop else None
        self.count = 0

    def keep(self, tensor):
        number, self.count = self.count, self.count + 1
        if number in self.needed:
            self.found[number] = tensor.detach()
        if number == self.last:
            raise EnoughRecomputed
        # A function may differentiate inside: what it keeps must stay within reach for that.
        return tensor.detach()

    @staticmethod
    def give(tensor):
        return tensor


# -- the public functions -------------------------------------------------------------------------


def checkpoint(function, *args, use_reentrant=None, context_fn=noop_context_fn,
               determinism_check="default", debug=False, early_stop=True, **kwargs):
    """function(*args, **kwargs), keeping only its inputs; the rest is computed again in backward.

    Random numbers drawn by the function are the same both times (`preserve_rng_state=False` spares
    the bookkeeping). `context_fn` gives two contexts, for the first and for the second run.
    """
    if use_reentrant is None:
        warnings.warn("checkpoint: the use_reentrant parameter should be passed explicitly; "
                      "use_reentrant=False is recommended, and True is the default for now",
                      stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when "
                             "use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in METADATA:
        raise ValueError(f"determinism_check should be one of {list(METADATA)}, "
                         f"but got {determinism_check}")
    if not flambeau.is_grad_enabled():
        return function(*args, **kwargs)
    options = {"preserve_rng_state": preserve, "context_fn": context_fn,
               "determinism_check": determinism_check, "early_stop": early_stop}
    return Checkpoint(function, args, kwargs, options).forward(args)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Run a Sequential, or a list of functions, in segments that are checkpointed, but the last."""
    if use_reentrant is None:
        warnings.warn("checkpoint_sequential: the use_reentrant parameter should be passed "
                      "explicitly; True is the default for now", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if isinstance(functions, flambeau.nn.Sequential):
        functions = list(functions.children())
    size = len(functions) // segments
    starts = [k * size for k in range(segments)]
    for start in starts[:-1]:
        input = checkpoint(_chain(functions[start:start + size]), input,
                           use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _chain(functions[starts[-1]:])(input)


def _chain(functions):
    def run(x):
        for function in functions:
            x = function(x)
        return x

    return run
