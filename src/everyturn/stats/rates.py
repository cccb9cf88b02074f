"""Rates and means with honest intervals, clusters included.

Sources: Wilson 1927; Newcombe 1998 (method 10) for the difference of two rates; Clopper and Pearson
1934. Clustered errors: the sum over clusters of squared sums of residuals, as in Miller 2024
("Adding error bars to evals"), without a small-sample factor; intervals from Student's t with as
many degrees of freedom as there are clusters less one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from everyturn.stats.distributions import beta_quantile, normal_quantile, t_quantile
from everyturn.stats.figures import Estimate, Figure, undefined


def wilson(successes: int, n: int, level: float = 0.95) -> Estimate:
    """A rate with Wilson's interval. None of none is undefined."""
    if n == 0:
        return Estimate(None, reason="nothing was counted")
    low, high = _wilson(successes, n, normal_quantile(level))
    return Estimate(successes / n, low, high, n=n)


def _wilson(successes: int, n: int, z: float) -> tuple[float, float]:
    rate, z2 = successes / n, z * z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    reach = z / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    # At the ends the interval reaches them exactly; rounding may not say otherwise.
    low = 0.0 if successes == 0 else max(0.0, middle - reach)
    high = 1.0 if successes == n else min(1.0, middle + reach)
    return low, high


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Estimate:
    """A rate with the exact interval, which is never too narrow."""
    if n == 0:
        return Estimate(None, reason="nothing was counted")
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else beta_quantile(tail, successes, n - successes + 1)
    high = 1.0 if successes == n else beta_quantile(1 - tail, successes + 1, n - successes)
    return Estimate(successes / n, low, high, n=n)


def newcombe(a: int, a_n: int, b: int, b_n: int, level: float = 0.95) -> Estimate:
    """The difference of two unpaired rates, a less b, by Newcombe's method 10."""
    if a_n == 0 or b_n == 0:
        return Estimate(None, reason="one of the two rates is of nothing")
    z = normal_quantile(level)
    first, second = a / a_n, b / b_n
    a_low, a_high = _wilson(a, a_n, z)
    b_low, b_high = _wilson(b, b_n, z)
    low = first - second - math.hypot(first - a_low, b_high - second)
    high = first - second + math.hypot(a_high - first, second - b_low)
    return Estimate(first - second, low, high, n=a_n + b_n)


def mean(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, level: float = 0.95
) -> Estimate:
    """A mean with its standard error; `clusters` names for each value what it belongs to."""
    n = len(values)
    if n == 0:
        return Estimate(None, reason="nothing was counted")
    middle = math.fsum(values) / n
    if clusters is None:
        groups, freedom = None, n - 1
        squares = math.fsum((value - middle) ** 2 for value in values)
        error = math.sqrt(squares / (n - 1) / n) if n > 1 else None
    else:
        sums: dict[Hashable, float] = {}
        for value, cluster in zip(values, clusters, strict=True):
            sums[cluster] = sums.get(cluster, 0.0) + value - middle
        groups = len(sums)
        freedom = groups - 1
        error = math.sqrt(math.fsum(part * part for part in sums.values())) / n
    if freedom < 1 or error is None:
        return Estimate(middle, n=n, groups=groups, reason="one value or cluster has no spread")
    if error == 0:
        return Estimate(
            middle, standard_error=0.0, n=n, groups=groups, reason="all values are equal"
        )
    reach = t_quantile(level, freedom) * error
    return Estimate(middle, middle - reach, middle + reach, error, n, groups)


def quantile(ordered: Sequence[float], share: float) -> Figure:
    """A quantile of values in ascending order, with linear interpolation between neighbours."""
    if not ordered:
        return undefined("nothing was counted")
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return Figure(ordered[below] + (ordered[above] - ordered[below]) * (place - below))
