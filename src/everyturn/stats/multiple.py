"""Several tests at once: adjusted p-values, in the order given.

Sources: Holm 1979; Benjamini and Hochberg 1995.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that bound the chance of even one false find."""
    count = len(p_values)
    adjusted = [0.0] * count
    largest = 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that bound the expected share of false finds."""
    count = len(p_values)
    adjusted = [0.0] * count
    smallest = 1.0
    order = sorted(range(count), key=lambda i: p_values[i], reverse=True)
    for rank, index in zip(range(count, 0, -1), order, strict=True):
        smallest = min(smallest, p_values[index] * count / rank)
        adjusted[index] = smallest
    return adjusted
