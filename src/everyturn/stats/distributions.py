"""The few distributions that the statistics need: normal, Student's t, beta, binomial, chi-square.

The incomplete beta function is a continued fraction (Abramowitz and Stegun 26.5.8, evaluated by
Lentz's method); quantiles are found by bisection, which is slow and cannot miss.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

_NORMAL: Final = NormalDist()
_TINY: Final = 1e-300
_STEPS_MAX: Final = 500
_BISECTIONS: Final = 200


def normal_quantile(level: float) -> float:
    """The z of a two-sided interval: 1.96 for a level of 0.95."""
    return _NORMAL.inv_cdf(0.5 + level / 2)


def chi_square_tail(value: float) -> float:
    """The chance of a chi-square with one degree of freedom of at least `value`."""
    return math.erfc(math.sqrt(value / 2))


def binomial_two_sided(successes: int, n: int) -> float:
    """The chance, at one half, of a count at least as far from n/2 as `successes`."""
    few = min(successes, n - successes)
    if 2 * few >= n:
        return 1.0
    tail = sum(math.comb(n, count) for count in range(few + 1))
    # Whole numbers until here: at n = 2000 a chance of one count is below what a double holds.
    return float(min(1.0, 2 * _ratio(tail, 1 << n)))


def _ratio(part: int, whole: int) -> float:
    shift = max(0, whole.bit_length() - 1000)
    return float(part >> shift) / float(whole >> shift)


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(1 - x, b, a)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(log_front) / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    result = d
    for m in range(1, _STEPS_MAX):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for numerator in (even, odd):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            step = d * c
            result *= step
        if abs(step - 1) < 1e-15:
            break
    return result


def beta_quantile(chance: float, a: float, b: float) -> float:
    """The x at which `beta_cdf` is `chance`."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < chance:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@lru_cache(maxsize=1024)
def t_quantile(level: float, freedom: int) -> float:
    """The t of a two-sided interval: 2.045 for a level of 0.95 and 29 degrees of freedom."""
    # P(|T| < t) = 1 - I(freedom / (freedom + t²); freedom/2, 1/2)
    x = beta_quantile(1 - level, freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - x) / x)


def t_two_sided(t: float, freedom: int) -> float:
    """The chance of a Student's t at least as far from zero as `t`."""
    return beta_cdf(freedom / (freedom + t * t), freedom / 2, 0.5)
