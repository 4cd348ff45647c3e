"""Pruning: weights multiplied by masks of zeros and ones, chosen by size or by chance.

`weight` becomes `weight_orig` (learned) times `weight_mask` (a buffer), computed before each call.
"""

import numbers
from abc import ABC, abstractmethod

import flambeau
from flambeau.nn.parameter import Parameter

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(ABC):
    """A forward pre-hook that masks one parameter; subclasses say how the mask is chosen."""

    _tensor_name: str
    PRUNING_TYPE = "unstructured"

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """The mask for a tensor of which `default_mask` has masked some already."""

    def apply_mask(self, module):
        """The masked parameter."""
        if getattr(self, "_tensor_name", None) is None:
            raise AssertionError(f"Module {module} has to be pruned")
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Prune a parameter; what was pruned before stays so."""
        earlier = [(key, hook) for key, hook in module._forward_pre_hooks.items()
                   if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]
        if len(earlier) > 1:
            raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} "
                                 f"of module {module}. Use a PruningContainer.")
        method = cls(*args, **kwargs)
        method._tensor_name = name
        value = getattr(module, name)
        if importance_scores is None:
            importance_scores = value
        elif importance_scores.shape != value.shape:
            raise AssertionError("importance_scores should have the same shape as parameter "
                                 f"{name} of {module}")
        if earlier:
            key, before = earlier[0]
            del module._forward_pre_hooks[key]
            method = PruningContainer.of(name, before, method)
            mask = getattr(module, name + "_mask").detach().clone(
                memory_format=flambeau.contiguous_format)
        else:
            if not isinstance(value, Parameter):
                raise ValueError(f"prune: '{name}' of {type(module).__name__} is no parameter")
            mask = flambeau.ones_like(importance_scores)
            delattr(module, name)
            module.register_parameter(name + "_orig", value)
        try:
            mask = method.compute_mask(importance_scores, default_mask=mask)
        except Exception:
            if not earlier:  # as if nothing had been asked
                delattr(module, name + "_orig")
                module.register_parameter(name, value)
            else:
                module.register_forward_pre_hook(earlier[0][1])
            raise
        if earlier:
            setattr(module, name + "_mask", mask)
        else:
            module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """A masked copy of a tensor."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        mask = flambeau.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module):
        """Make the pruned parameter an ordinary one, its zeros kept."""
        name = self._tensor_name
        value = self.apply_mask(module)
        if name in module.__dict__:
            delattr(module, name)
        original = getattr(module, name + "_orig")
        original.data = value.data
        for part in (name + "_orig", name + "_mask"):
            delattr(module, part)
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several prunings of one parameter, one after another, each of what the others left."""

    def __init__(self, *args):
        self._pruning_methods = ()
        if not args:
            return
        self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    @classmethod
    def of(cls, name, before, method):
        container = before if isinstance(before, PruningContainer) else cls(before)
        container._tensor_name = name
        container.add_pruning_method(method)
        return container

    def add_pruning_method(self, method):
        """Append a pruning of the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError("Can only add pruning methods acting on the parameter named "
                             f"'{self._tensor_name}' to PruningContainer {self}. Found "
                             f"'{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, index):
        return self._pruning_methods[index]

    def compute_mask(self, t, default_mask):
        """The last pruning, of the part that is still there."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "global":
            part = slice(None)
        elif method.PRUNING_TYPE == "unstructured":
            part = mask == 1
        elif method.PRUNING_TYPE == "structured":
            others = [d for d in range(t.dim()) if d != method.dim % t.dim()]
            alive = mask.sum(dim=others) != 0
            part = (slice(None),) * (method.dim % t.dim()) + (alive,)
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        combined = mask.clone()
        combined[part] = method.compute_mask(t[part], default_mask=mask[part]).to(mask.dtype)
        return combined


# -- the ways to choose --------------------------------------------------------------------------


def _check_amount(amount):
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    if (whole and amount < 0) or (not whole and not 0.0 <= amount <= 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a "
                         "non-negative integer")
    return amount


def _how_many(amount, size):
    """An amount as a number of things; a share is rounded."""
    if isinstance(amount, numbers.Integral):
        if amount > size:
            raise ValueError(f"amount={amount} should be smaller than the number of parameters to "
                             f"prune={size}")
        return amount
    return round(amount * size)


def _check_dim(t, dim):
    if t.dim() <= 1:
        raise ValueError("Structured pruning can only be applied to multidimensional tensors. "
                         f"Found tensor of shape {t.shape} with {t.dim()} dims")
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _channels(t, dim, kept):
    """A mask that lets whole channels through."""
    shape = [1] * t.dim()
    shape[dim] = -1
    return kept.to(t.dtype).reshape(shape).expand(t.shape)


class Identity(BasePruningMethod):
    """Prunes nothing, but sets everything up for it."""

    def compute_mask(self, t, default_mask):
        return default_mask


class _Unstructured(BasePruningMethod):
    """Zeroes the elements whose score is least, or largest."""

    largest = False

    def __init__(self, amount):
        self.amount = _check_amount(amount)

    @abstractmethod
    def scores(self, t):
        """What elements are ranked by, in the shape of t."""

    def compute_mask(self, t, default_mask):
        count = _how_many(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=flambeau.contiguous_format)
        if count:
            scores = self.scores(t).reshape(-1)
            mask.view(-1)[flambeau.topk(scores, k=count, largest=self.largest).indices] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Elements by chance."""

    largest = True  # as torch draws them

    def scores(self, t):
        return flambeau.rand_like(t)

    @classmethod
    def apply(cls, module, name, amount):
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Unstructured):
    """The smallest elements."""

    def scores(self, t):
        return flambeau.abs(t)

    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomStructured(BasePruningMethod):
    """Whole channels by chance."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim=-1):
        self.amount, self.dim = _check_amount(amount), dim

    def compute_mask(self, t, default_mask):
        _check_dim(t, self.dim)
        count = _how_many(self.amount, t.shape[self.dim])
        if not count:
            return default_mask
        chance = flambeau.rand(t.shape[self.dim])
        kept = chance > flambeau.kthvalue(chance, k=count).values
        return _channels(t, self.dim, kept) * default_mask.to(t.dtype)

    @classmethod
    def apply(cls, module, name, amount, dim=-1):
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """The whole channels whose norm is least."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount, n, dim=-1):
        self.amount, self.n, self.dim = _check_amount(amount), n, dim

    def compute_mask(self, t, default_mask):
        _check_dim(t, self.dim)
        size = t.shape[self.dim]
        count = _how_many(self.amount, size)
        if not count:
            return default_mask
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        largest = flambeau.norm(t, p=self.n, dim=others).topk(size - count).indices
        kept = flambeau.zeros(size)
        kept[largest] = 1
        return _channels(t, self.dim, kept) * default_mask.to(t.dtype)

    @classmethod
    def apply(cls, module, name, amount, n, dim, importance_scores=None):
        return super().apply(module, name, amount=amount, n=n, dim=dim,
                             importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """A mask that is given."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        if default_mask.shape != self.mask.shape:
            raise AssertionError("default_mask and mask should have the same shape, got "
                                 f"{default_mask.shape} and {self.mask.shape}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module, name, mask):
        return super().apply(module, name, mask=mask)


# -- as functions -------------------------------------------------------------------------------


def identity(module, name):
    """Set a parameter up for pruning, and prune nothing."""
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    """Zero an amount of elements by chance."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    """Zero the smallest elements."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    """Zero whole channels by chance."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    """Zero the channels of least norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    """Zero where a mask does."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Prune elements of several (module, name), compared with each other."""
    parameters = list(parameters)
    scores = importance_scores or {}
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores should be of type dict")
    tensors = [scores.get(pair, getattr(*pair)) for pair in parameters]
    masks = [getattr(module, name + "_mask", flambeau.ones_like(getattr(module, name)))
             for module, name in parameters]
    method = PruningContainer()
    method._tensor_name = "temp"
    chosen = pruning_method(**kwargs)
    chosen._tensor_name = "temp"
    if chosen.PRUNING_TYPE != "unstructured":
        raise TypeError('Only "unstructured" PRUNING_TYPE supported for the '
                        f"`pruning_method`. Found method {pruning_method} of type "
                        f"{chosen.PRUNING_TYPE}")
    method.add_pruning_method(chosen)
    flat = flambeau.nn.utils.parameters_to_vector(tensors)
    combined = method.compute_mask(flat, flambeau.nn.utils.parameters_to_vector(masks))
    start = 0
    for (module, name), tensor in zip(parameters, tensors, strict=True):
        size = tensor.numel()
        custom_from_mask(module, name, combined[start:start + size].view_as(tensor))
        start += size


def remove(module, name):
    """Make a pruned parameter an ordinary one, its zeros kept."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can "
                     "be removed")


def is_pruned(module):
    """Whether a parameter, here or below, is pruned."""
    return any(isinstance(hook, BasePruningMethod) for part in module.modules()
               for hook in part._forward_pre_hooks.values())
