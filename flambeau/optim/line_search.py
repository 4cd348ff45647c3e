"""A step length along a direction that meets the strong Wolfe conditions.

Nocedal and Wright, Numerical Optimization (2nd edition): algorithm 3.5 grows the step until an
interval must hold a good one, algorithm 3.6 ("zoom") shrinks that interval, and both take their
trials from the cubic through two points and their slopes (equation 3.59).
"""

from typing import Any, NamedTuple

C1, C2 = 1e-4, 0.9  # what is asked of the descent, and of the flattening: the book's choices
TRIALS = 25
SMALLEST_MOVE = 1e-9  # an interval this short moves no parameter by an amount that counts
GROWTH = 0.01, 10.0  # the next trial while growing: beyond this share, and within this factor
EDGE = 0.1  # a trial this near to an end, as a share of the interval, has hardly moved


class Trial(NamedTuple):
    """phi(alpha), the loss at a distance alpha, with its slope and the whole gradient there."""

    alpha: Any
    phi: float
    gradient: Any
    slope: Any


class Conditions:
    """The strong Wolfe conditions of a search that begins at alpha = 0."""

    def __init__(self, start):
        self.phi, self.slope = start.phi, start.slope

    def descent(self, trial):
        """Equation 3.7a: the loss has fallen by a share of what the first slope promised."""
        return not trial.phi > self.phi + C1 * trial.alpha * self.slope

    def curvature(self, trial):
        """Equation 3.7b: most of the slope has gone."""
        return abs(trial.slope) <= -C2 * self.slope


def strong_wolfe(measure, alpha, start, reach, trials=TRIALS):
    """(loss, gradient, distance, number of trials) of the best point found.

    measure(alpha) gives (loss, gradient, slope), and start is that at 0; the fastest parameter
    moves by `reach` for each unit of distance. Nothing is tried after so many `trials`.
    """
    count = 0

    def attempt(alpha):
        nonlocal count
        count += 1
        return Trial(alpha, *measure(alpha))

    start = Trial(0, *start)
    wolfe = Conditions(start)
    best, interval = grow(attempt, alpha, start, wolfe, trials)
    if best is None:
        best = zoom(attempt, interval, wolfe, reach, trials + 1 - count)
    return best.phi, best.gradient, best.alpha, count


def grow(attempt, alpha, start, wolfe, trials):
    """Algorithm 3.5: (a good trial, None), or (None, an interval that must hold one)."""
    before, trial = start, attempt(alpha)
    for k in range(trials):
        risen = k > 1 and trial.phi >= before.phi
        if risen or not wolfe.descent(trial):
            return None, (before, trial)
        if wolfe.curvature(trial):
            return trial, None
        if trial.slope >= 0:
            return None, (before, trial)
        past, factor = GROWTH
        least = trial.alpha + past * (trial.alpha - before.alpha)
        before, trial = trial, attempt(minimiser(before, trial, least, trial.alpha * factor))
    return None, (start, trial)


def zoom(attempt, interval, wolfe, reach, trials):
    """Algorithm 3.6: the lower end of an interval that shrinks until that end is good."""
    ends = list(interval)
    low = lower_of(ends)
    cornered = False
    for _ in range(trials):
        left, right = sorted(end.alpha for end in ends)
        if (right - left) * reach < SMALLEST_MOVE:
            break
        alpha, cornered = safeguarded(minimiser(*ends, left, right), left, right, cornered)
        trial = attempt(alpha)
        if not wolfe.descent(trial) or trial.phi >= ends[low].phi:
            ends[1 - low] = trial
            low = lower_of(ends)
            continue
        good = wolfe.curvature(trial)
        towards_high = trial.slope * (ends[1 - low].alpha - ends[low].alpha)
        if not good and towards_high >= 0:
            ends[1 - low] = ends[low]
        ends[low] = trial
        if good:
            break
    return ends[low]


def lower_of(ends):
    """Which end has the smaller loss; of two alike the first."""
    return 0 if ends[0].phi <= ends[1].phi else 1


def safeguarded(alpha, left, right, cornered):
    """(the trial, whether it is near an end): twice near one, it is pushed off.

    The book leaves open how a trial is kept from creeping along an end of its interval.
    """
    room = EDGE * (right - left)
    if right - alpha >= room and alpha - left >= room:
        return alpha, False
    if not cornered and left < alpha < right:
        return alpha, True
    nearer_right = abs(alpha - right) < abs(alpha - left)
    return (right - room if nearer_right else left + room), False


def minimiser(one, other, least, most):
    """Equation 3.59: where the cubic through two trials is least, kept within bounds."""
    d1 = one.slope + other.slope - 3 * (one.phi - other.phi) / (one.alpha - other.alpha)
    square = d1**2 - one.slope * other.slope
    if not square >= 0:  # the cubic has no minimum, or a slope is nan
        return (least + most) / 2.0
    d2 = square**0.5
    near, far = (one, other) if one.alpha <= other.alpha else (other, one)
    share = (far.slope + d2 - d1) / (far.slope - near.slope + 2 * d2)
    return min(max(far.alpha - (far.alpha - near.alpha) * share, least), most)
