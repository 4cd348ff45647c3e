"""Saving and loading: a module as a dictionary of its tensors."""

import difflib
from collections import OrderedDict, namedtuple
from collections.abc import Mapping

import flambeau
from flambeau import Tensor
from flambeau.nn.modules.tree import MODULE, PARAMETER, registered
from flambeau.nn.parameter import Parameter, is_lazy

EXTRA_STATE = _EXTRA_STATE_KEY_SUFFIX = "_extra_state"
STATE_TABLES = (
    "_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class _IncompatibleKeys(namedtuple("_Keys", "missing_keys unexpected_keys")):
    """What a lenient load left out."""

    __slots__ = ()

    def __repr__(self):
        return super().__repr__() if any(self) else "<All keys matched successfully>"

    __str__ = __repr__


def own_state(module):
    """Parameters, then persistent buffers, that a module itself has, by name."""
    parameters, buffers, own = {}, {}, module.__dict__
    for name, kind in own["_registered"].items():
        if kind == PARAMETER:
            if (value := own[name]) is not None:
                parameters[name] = value
        elif kind != MODULE and own[name] is not None and (
            name not in own["_non_persistent_buffers_set"]
        ):
            buffers[name] = own[name]
    return parameters | buffers if buffers else parameters


class Stateful:
    """`state_dict`, `load_state_dict` and their hooks."""

    _version = 1  # saved with the state, for layers whose state changes over time

    # -- saving ---------------------------------------------------------------------------

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Every parameter and persistent buffer by path, sharing memory with the module."""
        if args:  # as was usual once
            given = [*args, *(destination, prefix, keep_vars)[len(args) :]]
            destination, prefix, keep_vars = given
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        if self._state_dict_pre_hooks:
            for hook in self._state_dict_pre_hooks.values():
                hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        if MODULE in self._registered.values():
            for name, child in registered(self, MODULE):
                if child is not None:
                    child.state_dict(
                        destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                    )
        if self._state_dict_hooks:
            destination = self.__hooked_state(destination, prefix, metadata)
        return destination

    def __hooked_state(self, destination, prefix, metadata):
        """The state after all hooks; one that is not of the public kind may replace it."""
        for hook in self._state_dict_hooks.values():
            replacement = hook(self, destination, prefix, metadata)
            if getattr(hook, "_from_public_api", False):
                if replacement is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif replacement is not None:
                destination = replacement
        return destination

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Save what this module owns itself."""
        if self._registered:
            for name, tensor in own_state(self).items():
                destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def get_extra_state(self):
        """Override, with `set_extra_state`, to save something that is not a tensor."""
        raise RuntimeError(
            f"{type(self).__name__}.get_extra_state: the state has an '{EXTRA_STATE}' but the "
            "class does not say how to save one; override get_extra_state and set_extra_state"
        )

    def set_extra_state(self, state):
        """Take back what `get_extra_state` returned."""
        raise RuntimeError(
            f"{type(self).__name__}.set_extra_state: the state has an '{EXTRA_STATE}' but the "
            "class does not say how to load one; override get_extra_state and set_extra_state"
        )

    # -- loading --------------------------------------------------------------------------

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copy tensors by path into the module; with `assign`, let it own them instead."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None)
        state = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata
        missing, unexpected, errors = [], [], []

        def load(module, local, prefix):
            details = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                details = {**details, "assign_to_params_buffers": True}
            module._load_from_state_dict(local, prefix, details, True, missing, unexpected, errors)
            below = _by_child(local, len(prefix))
            for name, child in registered(module, MODULE):
                if child is not None:
                    load(child, below.get(name, {}), f"{prefix}{name}.")
            outcome = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, outcome) is not None:
                    raise RuntimeError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not "
                        "expected to return new values; change incompatible_keys in place."
                    )

        load(self, state, "")
        load = None  # it knows itself: the state would live until garbage is collected
        if strict:
            errors = _difference(missing, unexpected) + errors
        if errors:
            details = "\n\t".join(errors)
            name = type(self).__name__
            raise RuntimeError(f"Error(s) in loading state_dict for {name}:\n\t{details}")
        return _IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        """Load what this module owns itself; append what went wrong to the three lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, tensor in own_state(self).items():
            if prefix + name in state_dict:
                given = state_dict[prefix + name]
                error = self.__load_tensor(name, tensor, given, prefix + name, assign)
                error_msgs += [error] if error else []
            elif strict:
                missing_keys.append(prefix + name)
        extra = prefix + EXTRA_STATE
        if type(self).set_extra_state is not Stateful.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            unexpected_keys += self.__strangers(state_dict, prefix)

    def __strangers(self, keys, prefix):
        """Keys under the prefix that belong neither here nor to a child."""
        own, kinds, found = own_state(self), self._registered, []
        for key in keys:
            if key.startswith(prefix) and key != prefix + EXTRA_STATE:
                name, dot, _ = key[len(prefix) :].partition(".")
                known = kinds.get(name) == MODULE if dot else name in own
                if not known:
                    found.append(key)
        return found

    def __load_tensor(self, name, tensor, given, key, assign):
        """Copy one tensor, or say why not."""
        if not isinstance(given, Tensor):
            return (
                f'While copying the parameter named "{key}", expected flambeau.Tensor or '
                f"Tensor-like object from checkpoint but received {type(given)}"
            )
        if is_lazy(tensor):
            if not is_lazy(given):
                with flambeau.no_grad():
                    tensor.materialize(given.shape)
        elif tensor.dim() == 0 and tuple(given.shape) == (1,):
            given = given[0]  # as scalars were once saved
        if not is_lazy(tensor) and not is_lazy(given) and given.shape != tensor.shape:
            return (
                f"size mismatch for {key}: copying a param with shape {given.shape} from "
                f"checkpoint, the shape in current model is {tensor.shape}."
            )
        try:
            if assign:
                self.__own(name, tensor, given)
            elif not is_lazy(given):
                with flambeau.no_grad():
                    tensor.copy_(given)
        except Exception as error:
            return (
                f'While copying the parameter named "{key}", whose dimensions in the model are '
                f"{tuple(tensor.shape)} and whose dimensions in the checkpoint are "
                f"{tuple(given.shape)}, an exception occurred : {error.args}."
            )
        return None

    def __own(self, name, tensor, given):
        """Let the module hold the given tensor itself."""
        if isinstance(tensor, Parameter):
            if not isinstance(given, Parameter):
                given = Parameter(given, requires_grad=tensor.requires_grad)
            else:
                given.requires_grad_(tensor.requires_grad)
        setattr(self, name, given)

    # -- hooks ----------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook):
        """Run `hook(module, prefix, keep_vars)` before the state is collected."""
        return self._state_dict_pre_hooks.add(hook)

    def register_state_dict_post_hook(self, hook):
        """Run `hook(module, state_dict, prefix, local_metadata)` after; change it in place."""
        hook._from_public_api = True
        return self._state_dict_hooks.add(hook)

    def _register_state_dict_hook(self, hook):
        """As the public one, but what the hook returns replaces the dictionary."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook")
        return self._state_dict_hooks.add(hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Run `hook(module, state_dict, prefix, ...)` before the module loads."""
        return self._load_state_dict_pre_hooks.add(WithModule(hook, self))

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return self._load_state_dict_pre_hooks.add(WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook):
        """Run `hook(module, incompatible_keys)` after the module has loaded."""
        return self._load_state_dict_post_hooks.add(hook)


def _by_child(state, start):
    """The entries of each child; a look at every key for every child would be quadratic."""
    below = {}
    for key, value in state.items():
        name, dot, _ = key[start:].partition(".")
        if dot:
            below.setdefault(name, {})[key] = value
    return below


class WithModule:
    """A hook called with its module first; copied together with it."""

    def __init__(self, hook, module):
        self.hook, self.module = hook, module

    def __call__(self, *args):
        return self.hook(self.module, *args)


# -- saying what did not match -------------------------------------------------------------------


def _difference(missing, unexpected):
    """Lines that name missing and unexpected keys, and what may have gone wrong."""
    lines = []
    if unexpected:
        lines.append(f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
    if missing:
        lines.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    hint = _prefix_hint(missing, unexpected) or _renaming_hint(missing, unexpected)
    return [*lines, hint] if hint else lines


def _quoted(keys):
    return ", ".join(f'"{key}"' for key in keys)


def _prefix_hint(missing, unexpected):
    """One side has the keys of the other under a prefix, as saved from inside a wrapper."""
    prefix = _prefix_of(unexpected, missing)
    if prefix:
        return (
            f"Every key in the checkpoint has '{prefix}' in front that the model has not: "
            f"load {{key.removeprefix('{prefix}'): value for key, value in state.items()}}"
        )
    prefix = _prefix_of(missing, unexpected)
    if prefix:
        return (
            f"Every key of the model has '{prefix}' in front that the checkpoint has not: "
            f"load into model.{prefix.rstrip('.')} instead"
        )
    return None


def _prefix_of(outer, inner):
    """What stands in front of every inner key in the outer ones, if something does."""
    if not inner or not outer:
        return None
    prefix = outer[0].removesuffix(inner[0])
    return prefix if [prefix + key for key in inner] == outer else None


def _renaming_hint(missing, unexpected):
    """Keys that look like each other."""
    pairs = []
    for key in missing[:20]:
        close = difflib.get_close_matches(key, unexpected, n=1, cutoff=0.75)
        if close:
            pairs.append(f"'{close[0]}' -> '{key}'")
    return f"Perhaps renamed: {', '.join(pairs)}" if pairs else None
