"""Two runs over the same items: the difference, and what it is worth.

McNemar 1947; the exact test is the binomial one on the discordant pairs, the corrected one is
Edwards' (1948).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from everyturn.stats.distributions import binomial_two_sided, chi_square_tail, t_two_sided
from everyturn.stats.figures import Estimate
from everyturn.stats.rates import mean

EXACT_BELOW: Final = 25
"""With fewer discordant pairs than this the exact test decides, else the corrected one."""


@dataclass(frozen=True, slots=True)
class McNemar:
    """The tests of one table of pairs. `p` is that of `method`; None without discordant pairs."""

    only_first: int
    only_second: int
    exact_p: float | None
    chi_square: float | None
    corrected: float | None
    corrected_p: float | None
    method: str | None
    p: float | None
    reason: str | None = None


def mcnemar(only_first: int, only_second: int) -> McNemar:
    """McNemar's test from the pairs in which only one of the two was right."""
    discordant = only_first + only_second
    if discordant == 0:
        none = "no pair differs"
        return McNemar(0, 0, None, None, None, None, None, None, none)
    exact = binomial_two_sided(only_first, discordant)
    apart = abs(only_first - only_second)
    corrected = max(0, apart - 1) ** 2 / discordant
    corrected_p = chi_square_tail(corrected)
    is_exact = discordant < EXACT_BELOW
    return McNemar(
        only_first,
        only_second,
        exact,
        apart**2 / discordant,
        corrected,
        corrected_p,
        "exact" if is_exact else "corrected",
        exact if is_exact else corrected_p,
    )


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
) -> Estimate:
    """The mean of second less first over pairs, with an interval that knows of clusters."""
    return mean([b - a for a, b in zip(first, second, strict=True)], clusters, level)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs compared on one metric.

    p: of McNemar's test where all scores are 0 or 1 and there are no clusters, else of the t test
    on the differences; None where nothing differs. verdict: `better`, `worse` or `no evidence`,
    of the second against the first.
    """

    first: float | None
    second: float | None
    difference: Estimate
    test: str | None
    p: float | None
    mcnemar: McNemar | None
    verdict: str


def compare(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
) -> Comparison:
    """Compare scores of the same items, in the same order.

    clusters: what each item belongs to; None where items are independent. A verdict other than `no
    evidence` means that p is below 1 - level.
    """
    difference = paired_difference(first, second, clusters, level)
    n = len(first)
    test, p, table = None, None, None
    if n and set(first) | set(second) <= {0, 1}:
        pairs = list(zip(first, second, strict=True))
        table = mcnemar(sum(a > b for a, b in pairs), sum(b > a for a, b in pairs))
    if table is not None and (clusters is None or len(set(clusters)) == n):
        test, p = (f"McNemar, {table.method}", table.p) if table.p is not None else (None, None)
    elif difference.standard_error:
        freedom = (difference.groups if difference.groups is not None else n) - 1
        assert difference.value is not None
        p = t_two_sided(difference.value / difference.standard_error, freedom)
        test = "t on differences" if clusters is None else "t on differences, by cluster"
    verdict = "no evidence"
    if p is not None and p < 1 - level and difference.value:
        verdict = "better" if difference.value > 0 else "worse"
    return Comparison(
        sum(first) / n if n else None,
        sum(second) / n if n else None,
        difference,
        test,
        p,
        table,
        verdict,
    )
