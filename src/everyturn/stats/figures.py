"""What a statistic gives: a number, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `value` is None where it is undefined, and `reason` says why."""

    value: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its uncertainty.

    value: None where it is undefined; `reason` says why.
    low, high: the interval; None where the data give none, though there may be a value.
    standard_error: None where it is not what the interval is made from.
    n: what was counted; groups: clusters, where there are any.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None
    n: int = 0
    groups: int | None = None
    reason: str | None = None


def undefined(reason: str) -> Figure:
    """No number, and why."""
    return Figure(None, reason)
