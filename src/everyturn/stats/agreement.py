"""How far raters agree beyond chance: Cohen, Fleiss, Randolph, Gwet's AC1.

Sources: Cohen 1960; Fleiss 1971 and Fleiss, Nee and Landis 1979 (z); Randolph 2005; Gwet 2008 and
2014, chapters 3 and 5 (AC1, and the standard errors of Fleiss and AC1 over subjects).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from everyturn.stats.distributions import t_quantile
from everyturn.stats.figures import Estimate, Figure, undefined

Counts = Sequence[Sequence[float]]
"""A row for each subject, a column for each category: how many raters chose it."""


def cohen(table: Sequence[Sequence[float]]) -> Figure:
    """Cohen's kappa of two raters from their table of agreement."""
    total = math.fsum(math.fsum(row) for row in table)
    if total == 0:
        return undefined("nothing was rated")
    rows = [math.fsum(row) / total for row in table]
    columns = [math.fsum(row[j] for row in table) / total for j in range(len(table))]
    seen = math.fsum(table[i][i] for i in range(len(table))) / total
    chance = math.fsum(a * b for a, b in zip(rows, columns, strict=True))
    if math.isclose(chance, 1):
        return undefined("both raters used one category only")
    return Figure((seen - chance) / (1 - chance))


class _Table:
    """What all the coefficients of several raters are made from."""

    def __init__(self, counts: Counts) -> None:
        rated = [(row, math.fsum(row)) for row in counts]
        self.rows = [(row, n) for row, n in rated if n > 0]
        self.paired = [(row, n) for row, n in self.rows if n > 1]
        self.categories = max((len(row) for row in counts), default=0)
        self.each = [_agreement(row, n) if n > 1 else 0.0 for row, n in self.rows]
        self.reason = None if self.paired else "no subject was rated twice"
        if self.reason is None:
            self.seen = math.fsum(self.each) / len(self.paired)
            self.shares = [
                math.fsum(row[j] / n for row, n in self.rows) / len(self.rows)
                for j in range(self.categories)
            ]

    def estimate(self, chance: float, per_row: list[float], level: float = 0.95) -> Estimate:
        """(seen - chance) / (1 - chance), with Gwet's standard error over subjects."""
        n = len(self.rows)
        value = (self.seen - chance) / (1 - chance)
        if n < 2:
            return Estimate(value, n=n, reason="one subject has no spread")
        parts = []
        for (_, raters), agreed, expected in zip(self.rows, self.each, per_row, strict=True):
            is_paired = raters > 1
            part = n / len(self.paired) * (agreed - chance * is_paired) / (1 - chance)
            parts.append(part - 2 * (1 - value) * (expected - chance) / (1 - chance))
        variance = math.fsum((part - value) ** 2 for part in parts) / (n * (n - 1))
        error = math.sqrt(variance)
        reach = t_quantile(level, n - 1) * error
        return Estimate(value, value - reach, min(1.0, value + reach), error, n)


def _agreement(row: Sequence[float], n: float) -> float:
    return math.fsum(count * (count - 1) for count in row) / (n * (n - 1))


def raw_agreement(counts: Counts) -> Figure:
    """The share of pairs of ratings of one subject that are equal, averaged over subjects."""
    table = _Table(counts)
    return Figure(table.seen) if table.reason is None else undefined(table.reason)


def fleiss(counts: Counts) -> Estimate:
    """Fleiss' kappa, with a standard error over subjects."""
    table = _Table(counts)
    if table.reason is not None:
        return Estimate(None, reason=table.reason)
    chance = math.fsum(share * share for share in table.shares)
    if math.isclose(chance, 1):
        return Estimate(None, n=len(table.rows), reason="only one category was ever used")
    per_row = [
        math.fsum(count * share for count, share in zip(row, table.shares, strict=True)) / n
        for row, n in table.rows
    ]
    return table.estimate(chance, per_row)


def fleiss_z(counts: Counts) -> Figure:
    """Fleiss' kappa over its standard error if all agreement were chance (equal raters a row)."""
    value, table = fleiss(counts).value, _Table(counts)
    if value is None:
        return undefined("Fleiss' kappa is undefined")
    raters = table.rows[0][1]
    spread = math.fsum(share * (1 - share) for share in table.shares)
    skew = math.fsum(share * (1 - share) * (1 - 2 * share) for share in table.shares)
    variance = 2 * (spread**2 - skew) / (spread**2 * len(table.rows) * raters * (raters - 1))
    return Figure(value / math.sqrt(variance))


def randolph(counts: Counts) -> Figure:
    """Randolph's free-marginal kappa: chance is one over the number of categories."""
    table = _Table(counts)
    if table.reason is not None:
        return undefined(table.reason)
    if table.categories < 2:
        return undefined("there is one category only")
    chance = 1 / table.categories
    return Figure((table.seen - chance) / (1 - chance))


def ac1(counts: Counts) -> Estimate:
    """Gwet's AC1, with a standard error over subjects."""
    table = _Table(counts)
    if table.reason is not None:
        return Estimate(None, reason=table.reason)
    if table.categories < 2:
        return Estimate(None, n=len(table.rows), reason="there is one category only")
    rest = 1 / (table.categories - 1)
    chance = rest * math.fsum(share * (1 - share) for share in table.shares)
    per_row = [
        rest * math.fsum(c * (1 - share) for c, share in zip(row, table.shares, strict=True)) / n
        for row, n in table.rows
    ]
    return table.estimate(chance, per_row)
