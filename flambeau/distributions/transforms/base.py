"""The base of all transforms, and the inverse of any."""

from flambeau import Tensor

from .. import constraints


class Transform:
    """Subclasses give `_call`, `_inverse` and `log_abs_det_jacobian`.

    With cache_size=1 the last pair is kept, so that the inverse of what was just computed is
    exact and free. `options` names the constructor's arguments, for copies and comparison.
    """

    bijective = False
    options: tuple[str, ...] = ()

    def __init__(self, cache_size=0):
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._cached_x_y = None, None
        self._inv = None
        super().__init__()  # a transform of another package may be a module too

    def __getstate__(self):
        return {**self.__dict__, "_inv": None}

    @property
    def event_dim(self):
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return self.domain.event_dim

    @property
    def inv(self):
        """The inverse, as a transform."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def sign(self):
        """Whether it rises (1) or falls (-1)."""
        raise NotImplementedError(f"{type(self).__name__} does not define sign")

    def with_cache(self, cache_size=1):
        """This transform with another cache."""
        if self._cache_size == cache_size:
            return self
        given = {name: getattr(self, name) for name in self.options}
        return type(self)(**given, cache_size=cache_size)

    def __eq__(self, other):
        if self is other:
            return True
        if type(self) is not type(other) or not self._comparable():
            return False
        return all(same(getattr(self, n), getattr(other, n)) for n in self.options)

    __hash__ = object.__hash__

    def _comparable(self):
        return True

    def __call__(self, x):
        if self._cache_size == 0:
            return self._call(x)
        if x is not self._cached_x_y[0]:
            self._cached_x_y = x, self._call(x)
        return self._cached_x_y[1]

    def _inv_call(self, y):
        if self._cache_size == 0:
            return self._inverse(y)
        if y is not self._cached_x_y[1]:
            self._cached_x_y = self._inverse(y), y
        return self._cached_x_y[0]

    def _call(self, x):
        raise NotImplementedError(f"{type(self).__name__} does not define _call")

    def _inverse(self, y):
        raise NotImplementedError(f"{type(self).__name__} does not define _inverse")

    def log_abs_det_jacobian(self, x, y):
        """log |det dy/dx|, one number per event."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_abs_det_jacobian")

    def forward_shape(self, shape):
        """The shape of y for an x of this shape."""
        return shape

    def inverse_shape(self, shape):
        """The shape of x for a y of this shape."""
        return shape

    def __repr__(self):
        return f"{type(self).__name__}()"


def same(a, b):
    equal = a == b
    return bool(equal.all()) if isinstance(equal, Tensor) else bool(equal)


def need_dims(shape, dims):
    if len(shape) < dims:
        raise ValueError("Too few dimensions on input")


class _InverseTransform(Transform):
    """Another transform, turned around."""

    def __init__(self, transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    def __getstate__(self):
        return self.__dict__

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self):
        return self._inv.domain

    @property
    def bijective(self):
        return self._inv.bijective

    @property
    def sign(self):
        return self._inv.sign

    def with_cache(self, cache_size=1):
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other):
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = object.__hash__

    def __call__(self, x):
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x, y):
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape):
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._inv.forward_shape(shape)

    def __repr__(self):
        return f"{type(self).__name__}({self._inv!r})"


def widened(region, event_dim):
    extra = event_dim - region.event_dim
    return constraints.independent(region, extra) if extra else region
