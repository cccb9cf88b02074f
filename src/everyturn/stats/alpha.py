"""Krippendorff's alpha: any number of raters, gaps, and four scales.

Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability", by way of coincidences.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

from everyturn.stats.figures import Figure, undefined

Scale = Literal["nominal", "ordinal", "interval", "ratio"]


def krippendorff(units: Sequence[Sequence[Any]], scale: Scale = "nominal") -> Figure:
    """Alpha over units, each the ratings it was given; None stands for a gap.

    Ordinal, interval and ratio ratings are numbers (ordinal: their order counts alone).
    """
    paired = [rated for unit in units if len(rated := [one for one in unit if one is not None]) > 1]
    if not paired:
        return undefined("no unit was rated twice")
    together: Counter[tuple[Hashable, Hashable]] = Counter()
    for rated in paired:
        counts = Counter(rated)
        for a, a_count in counts.items():
            for b, b_count in counts.items():
                pairs = a_count * (b_count - (a == b))
                if pairs:
                    together[a, b] += pairs / (len(rated) - 1)
    totals: Counter[Any] = Counter()
    for (a, _), weight in together.items():
        totals[a] += weight
    if len(totals) == 1:
        return undefined("only one value was ever used")
    apart = _distance(scale, totals)
    n = math.fsum(totals.values())
    seen = math.fsum(weight * apart(a, b) for (a, b), weight in together.items())
    expected = math.fsum(
        totals[a] * totals[b] * apart(a, b) for a in totals for b in totals if a != b
    )
    if expected == 0:
        return undefined("all values are equally far apart from none")
    return Figure(1 - (n - 1) * seen / expected)


def _distance(scale: Scale, totals: Counter[Any]) -> Callable[[Any, Any], float]:
    """The squared difference of two values on a scale."""
    if scale == "nominal":
        return lambda a, b: float(a != b)
    if scale == "interval":
        return lambda a, b: float((a - b) ** 2)
    if scale == "ratio":
        return lambda a, b: 0.0 if a == b else float(((a - b) / (a + b)) ** 2)
    order = sorted(totals)
    place: dict[Any, float] = {}
    below = 0.0
    for value in order:
        place[value] = below + totals[value] / 2
        below += totals[value]
    # The ranks between two values, half of both ends: a difference of mid-ranks.
    return lambda a, b: (place[a] - place[b]) ** 2
