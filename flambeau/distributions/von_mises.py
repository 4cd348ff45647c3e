"""The von Mises distribution, on the circle."""

import math

import flambeau

from . import constraints
from .distribution import Distribution
from .utils import lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles around loc, the closer the larger the concentration."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc, concentration, validate_args=None):
        self._broadcast(validate_args, loc=loc, concentration=concentration)

    def log_prob(self, value):
        k = self.concentration
        log_bessel = flambeau.special.i0e(k).log() + k
        return k * (self._checked(value) - self.loc).cos() - math.log(2 * math.pi) - log_bessel

    @lazy_property
    def _proposal_r(self):
        """The one parameter of the wrapped Cauchy distribution that samples are chosen from."""
        k = self.concentration.double()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        return flambeau.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    @flambeau.no_grad()
    def sample(self, sample_shape=()):
        """By the rejection method of Best and Fisher (1979), in double precision."""
        shape = self._extended_shape(sample_shape)
        k, r = self.concentration.double(), self._proposal_r
        x = flambeau.empty(shape, dtype=flambeau.float64)
        done = flambeau.zeros(shape, dtype=flambeau.bool)
        while not done.all():
            u1, u2, u3 = flambeau.rand((3, *shape), dtype=flambeau.float64).unbind()
            z = (math.pi * u1).cos()
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
            x = flambeau.where(accept, (u3 - 0.5).sign() * f.acos(), x)
            done = done | accept
        angle = (x + math.pi + self.loc.double()) % (2 * math.pi) - math.pi
        return angle.to(self.loc.dtype)

    @property
    def mean(self):
        return self.loc

    mode = mean

    @lazy_property
    def variance(self):
        """The circular variance: one minus the length of the mean direction."""
        k = self.concentration
        return 1 - flambeau.special.i1e(k) / flambeau.special.i0e(k)
