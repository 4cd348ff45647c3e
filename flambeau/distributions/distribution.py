"""The base of all distributions: shapes, validation, expansion."""

import warnings

import flambeau
from flambeau import Size, Tensor

from . import constraints
from .utils import (
    broadcast_all,
    expanded,
    lazy_property,
    logits_to_probs,
    one_of,
    probs_to_logits,
)

__all__ = ["Distribution"]


class Distribution:
    """A batch of distributions over events.

    A sample has shape sample_shape + batch_shape + event_shape; log_prob of it lacks the last.
    `arg_constraints` names the parameters, which also makes `expand` and `repr` work.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value):
        """Check parameters and samples from now on, or not."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape=None, event_shape=None, validate_args=None):
        self._batch_shape = Size(batch_shape or ())
        self._event_shape = Size(event_shape or ())
        if validate_args is not None:
            self._validate_args = validate_args
        elif flambeau.engine.interception.tracing():
            self._validate_args = False  # as in PyTorch: looking at values ends a program
        if self._validate_args:
            self._check_arguments()
        super().__init__()  # a distribution of another package may be a module too

    def _broadcast(self, validate_args, **parameters):
        """Begin with parameters of single numbers, brought to one shape."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values, strict=True))
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def _check_arguments(self):
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set "
                "`arg_constraints = {}` or initialize the distribution with `validate_args=False` "
                "to turn off validation.",
                stacklevel=4,
            )
            return
        for name, constraint in wanted.items():
            lazy = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (lazy and name not in self.__dict__):
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    # -- what it is ---------------------------------------------------------------------------

    @property
    def batch_shape(self):
        return self._batch_shape

    @property
    def event_shape(self):
        return self._event_shape

    @property
    def arg_constraints(self):
        raise self._lacks("arg_constraints")

    @property
    def support(self):
        raise self._lacks("support")

    @property
    def mean(self):
        raise self._lacks("mean")

    @property
    def mode(self):
        raise self._lacks("mode")

    @property
    def variance(self):
        raise self._lacks("variance")

    @property
    def stddev(self):
        return self.variance.sqrt()

    def _lacks(self, name):
        return NotImplementedError(f"{type(self)} does not implement {name}")

    # -- what it does -------------------------------------------------------------------------

    def sample(self, sample_shape=()):
        """Samples that carry no gradient."""
        with flambeau.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """Samples as a differentiable function of the parameters."""
        raise self._lacks("rsample")

    def sample_n(self, n):
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample((n,))

    def log_prob(self, value):
        raise self._lacks("log_prob")

    def cdf(self, value):
        raise self._lacks("cdf")

    def icdf(self, value):
        raise self._lacks("icdf")

    def enumerate_support(self, expand=True):
        raise self._lacks("enumerate_support")

    def entropy(self):
        raise self._lacks("entropy")

    def perplexity(self):
        return self.entropy().exp()

    def expand(self, batch_shape, _instance=None):
        """The same distributions with a larger batch_shape; no parameter is copied."""
        new = self._get_checked_instance(type(self), _instance)
        batch_shape = Size(batch_shape)
        for name, constraint in self.arg_constraints.items():
            if name in self.__dict__:
                value = self.__dict__[name]
                event = value.shape[value.dim() - constraint.event_dim :]
                new.__dict__[name] = value.expand(expanded(batch_shape, event))
        return self._expanded(new, batch_shape)

    def _expanded(self, new, batch_shape):
        """Finish an expansion; subclasses carry over what is no parameter."""
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    # -- for subclasses -----------------------------------------------------------------------

    def _extended_shape(self, sample_shape=()):
        return expanded(sample_shape, self._batch_shape, self._event_shape)

    def _validate_sample(self, value):
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        wanted = expanded(self._batch_shape, self._event_shape)
        actual = value.shape
        if actual[len(actual) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {actual} vs "
                f"{self._event_shape}."
            )
        for i, j in zip(reversed(actual), reversed(wanted), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{actual} vs {wanted}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def _checked(self, value):
        """The value, once it is known to lie within the support."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def __repr__(self):
        given = {k: self.__dict__[k] for k in self.arg_constraints if k in self.__dict__}
        shown = ", ".join(f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in given.items())
        return f"{type(self).__name__}({shown})"


class ByProbability(Distribution):
    """A distribution given by `probs` or by `logits`, the other following when asked for."""

    _is_binary = True

    def _given(self, probs, logits, **others):
        """Store the one that was given, brought to one shape with the others."""
        name = one_of(probs=probs, logits=logits)
        names = [*others, name]
        value = probs if name == "probs" else logits
        values = broadcast_all(*others.values(), value)
        self.__dict__.update(zip(names, values, strict=True))
        return self._param

    @property
    def _param(self):
        return self.probs if "probs" in self.__dict__ else self.logits

    @property
    def param_shape(self):
        return self._param.size()

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, is_binary=self._is_binary)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=self._is_binary)
