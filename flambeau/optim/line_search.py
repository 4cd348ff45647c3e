"""A search along a line for a point that meets the strong Wolfe conditions.

First an interval is found that must contain such a point, by growing the distance; then it is
narrowed by cubic interpolation.
"""

from typing import Any, NamedTuple

DECREASE = 1e-4  # share of the promised descent a step must bring
FLATTEN = 0.9  # share of the first slope that may be left
MAX_PROBES = 25
NARROW = 1e-9  # an interval that moves no parameter by more than this is a point


class Point(NamedTuple):
    """What was found at a distance: the loss, the gradient, and the slope along the line."""

    t: Any
    loss: float
    gradient: Any
    slope: Any


def strong_wolfe(probe, t, origin, reach):
    """(loss, gradient, distance, number of probes) of the best point found.

    probe(t) gives (loss, gradient, slope) at distance t, and origin is that at 0; reach is by
    how much the fastest parameter moves per unit of distance.
    """
    search = _Search(probe, Point(0, *origin), reach)
    low, high = search.bracket(t)
    best = search.narrow(low, high) if high is not None else low
    return best.loss, best.gradient, best.t, search.probes


class _Search:
    def __init__(self, probe, origin, reach):
        self._probe, self.origin, self.reach = probe, origin, reach
        self.probes = 0

    def probe(self, t):
        self.probes += 1
        return Point(t, *self._probe(t))

    def too_high(self, point):
        return point.loss > self.origin.loss + DECREASE * point.t * self.origin.slope

    def flat(self, point):
        return abs(point.slope) <= -FLATTEN * self.origin.slope

    def bracket(self, t):
        """Two points around a good one; or a good one and None."""
        previous, point = self.origin, self.probe(t)
        for i in range(MAX_PROBES):
            if self.too_high(point) or (i > 1 and point.loss >= previous.loss):
                return previous, point
            if self.flat(point):
                return point, None
            if point.slope >= 0:
                return previous, point
            bounds = point.t + 0.01 * (point.t - previous.t), point.t * 10
            previous, point = point, self.probe(interpolate(previous, point, bounds))
        return self.origin, point

    def narrow(self, first, second):
        """Shrink the interval until its lower end is good."""
        ends, stuck = [first, second], False
        low = 0 if first.loss <= second.loss else 1
        while self.probes <= MAX_PROBES:
            left, right = sorted((ends[0].t, ends[1].t))
            if (right - left) * self.reach < NARROW:
                break
            t, stuck = self.inside(interpolate(*ends), left, right, stuck)
            point = self.probe(t)
            if self.too_high(point) or point.loss >= ends[low].loss:
                ends[1 - low] = point
                low = 0 if ends[0].loss <= ends[1].loss else 1
                continue
            good = self.flat(point)
            if not good and point.slope * (ends[1 - low].t - ends[low].t) >= 0:
                ends[1 - low] = ends[low]
            ends[low] = point
            if good:
                break
        return ends[low]

    @staticmethod
    def inside(t, left, right, stuck):
        """t, kept off the ends of the interval when it was near one twice in a row."""
        margin = 0.1 * (right - left)
        if min(right - t, t - left) >= margin:
            return t, False
        if not (stuck or t >= right or t <= left):
            return t, True
        return (right - margin if abs(t - right) < abs(t - left) else left + margin), False


def interpolate(a, b, bounds=None):
    """Where the cubic through two points and their slopes is least, within bounds."""
    left, right = bounds or sorted((a.t, b.t))
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    if not square >= 0:
        return (left + right) / 2.0
    a, b = (a, b) if a.t <= b.t else (b, a)
    root = square**0.5
    t = b.t - (b.t - a.t) * ((b.slope + root - d1) / (b.slope - a.slope + 2 * root))
    return min(max(t, left), right)
