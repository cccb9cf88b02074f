"""Plots as SVG text: intervals, scatter, quantile strips, bars. No script, no reference outside.

Colours are CSS variables of the page, so that they follow its light or dark scheme. Every plot has
a title for readers who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 720
LABEL: Final = 210
ROW: Final = 26
LABEL_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing in a plot: a value with its interval. colour: number of the series."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    ghost: float | None = None
    """A second value, drawn hollow: the worst case."""
    colour: int = 0
    note: str = ""


def intervals(title: str, marks: Sequence[Mark]) -> str:
    """Rates from 0 to 1 with their intervals, one a line."""
    height = ROW * len(marks) + 34

    def x(value: float) -> float:
        return LABEL + value * (WIDTH - LABEL - 60)

    parts = [_grid(x, height, [(tick / 4, f"{tick / 4:g}") for tick in range(5)])]
    for number, mark in enumerate(marks):
        y = 14 + ROW * number
        parts.append(_label(mark.label, y))
        if mark.value is None:
            parts.append(f'<text x="{x(0) + 4:.1f}" y="{y + 4}" class="dim">{mark.note}</text>')
            continue
        hue = f"var(--c{mark.colour % 6})"
        if mark.low is not None and mark.high is not None:
            low, high = x(max(0.0, mark.low)), x(min(1.0, mark.high))
            parts.append(
                f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{hue}" '
                'stroke-width="3" opacity=".45" stroke-linecap="round"/>'
            )
        if mark.ghost is not None:
            parts.append(
                f'<circle cx="{x(mark.ghost):.1f}" cy="{y}" r="4" fill="none" stroke="{hue}"/>'
            )
        parts.append(f'<circle cx="{x(mark.value):.1f}" cy="{y}" r="5" fill="{hue}"/>')
        parts.append(f'<text x="{WIDTH - 52}" y="{y + 4}">{mark.value:.3f}</text>')
    return _svg(title, height, parts)


def scatter(title: str, points: Sequence[tuple[str, float, float, int]], x_name: str) -> str:
    """Accuracy (0 to 1, upwards) against something; each point is (label, x, y, colour)."""
    if not points:
        return ""
    height, left, right, top, bottom = 280, 46, WIDTH - 150, 12, 240
    most = max(point[1] for point in points) or 1.0
    ticks = _ticks(most)
    span = max(most, ticks[-1])

    def x(value: float) -> float:
        return left + value / span * (right - left)

    def y(value: float) -> float:
        return bottom - value * (bottom - top)

    parts = []
    for tick in range(5):
        at = y(tick / 4)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        parts.append(f'<text x="4" y="{at + 4:.1f}" class="dim">{tick / 4:g}</text>')
    for value in ticks:
        parts.append(
            f'<text x="{x(value):.1f}" y="{bottom + 18}" class="dim" text-anchor="middle">'
            f"{value:g}</text>"
        )
    middle = (left + right) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{height - 6}" class="dim" text-anchor="middle">'
        f"{escape(x_name)}</text>"
    )
    taken: list[tuple[float, float]] = []
    for label, across, up, colour in sorted(points, key=lambda point: -point[2]):
        at_x, at_y = x(across), y(up)
        # A label moves down until no other one is in its way.
        text_y = at_y + 4
        while any(
            abs(at_x - other_x) < 150 and abs(text_y - other_y) < 13 for other_x, other_y in taken
        ):
            text_y += 13
        taken.append((at_x, text_y))
        parts.append(
            f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="6" fill="var(--c{colour % 6})" '
            'opacity=".85"/>'
        )
        parts.append(f'<text x="{at_x + 9:.1f}" y="{text_y:.1f}">{_short(label)}</text>')
    return _svg(title, height, parts)


def strips(title: str, rows: Sequence[tuple[str, Sequence[float], int]], unit: str) -> str:
    """Distributions by quantiles (5, 25, 50, 75, 95), on a logarithmic scale.

    rows: (label, the five quantiles or none, colour).
    """
    known = [value for _, found, _ in rows for value in found if value > 0]
    if not known:
        return ""
    least, most = math.log10(min(known)), math.log10(max(known))
    if most - least < 0.3:
        least, most = least - 0.15, most + 0.15
    height = ROW * len(rows) + 34

    def x(value: float) -> float:
        share = (math.log10(max(value, 10**least)) - least) / (most - least)
        return LABEL + share * (WIDTH - LABEL - 90)

    decades = range(math.ceil(least), math.floor(most) + 1)
    ticks = [(10.0**power, _compact(10.0**power)) for power in decades]
    if len(ticks) < 2:
        ticks = [(10**least, _compact(10**least)), (10**most, _compact(10**most))]
    parts = [_grid(x, height, ticks)]
    for number, (label, found, colour) in enumerate(rows):
        y = 14 + ROW * number
        parts.append(_label(label, y))
        if not found:
            continue
        hue = f"var(--c{colour % 6})"
        p5, p25, p50, p75, p95 = (x(value) for value in found)
        parts.append(
            f'<line x1="{p5:.1f}" x2="{p95:.1f}" y1="{y}" y2="{y}" stroke="{hue}" opacity=".4" '
            'stroke-width="2"/>'
        )
        parts.append(
            f'<rect x="{p25:.1f}" y="{y - 6}" width="{max(1.0, p75 - p25):.1f}" height="12" rx="3" '
            f'fill="{hue}" opacity=".55"/>'
        )
        parts.append(
            f'<line x1="{p50:.1f}" x2="{p50:.1f}" y1="{y - 8}" y2="{y + 8}" stroke="{hue}" '
            'stroke-width="3"/>'
        )
        parts.append(f'<text x="{WIDTH - 82}" y="{y + 4}">{_compact(found[2])} {unit}</text>')
    return _svg(title, height, parts)


def bar(parts: Sequence[tuple[str, int, str]], width: int = 160) -> str:
    """One bar of shares: (name, count, CSS colour)."""
    total = sum(count for _, count, _ in parts) or 1
    at, drawn = 0.0, []
    for name, count, colour in parts:
        size = count / total * width
        drawn.append(
            f'<rect x="{at:.2f}" width="{size:.2f}" height="12" fill="{colour}">'
            f"<title>{escape(name)}: {count}</title></rect>"
        )
        at += size
    told = ", ".join(f"{name} {count}" for name, count, _ in parts)
    return (
        f'<svg class="bar" width="{width}" height="12" role="img" aria-label="{escape(told)}">'
        f"{''.join(drawn)}</svg>"
    )


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{escape(title)}">{"".join(parts)}</svg></figure>'
    )


def _grid(x: object, height: float, ticks: Sequence[tuple[float, str]]) -> str:
    assert callable(x)
    drawn = []
    for value, text in ticks:
        at = x(value)
        drawn.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="2" y2="{height - 22}" class="grid"/>')
        drawn.append(
            f'<text x="{at:.1f}" y="{height - 6}" class="dim" text-anchor="middle">{text}</text>'
        )
    return "".join(drawn)


def _label(text: str, y: float) -> str:
    return (
        f'<text x="{LABEL - 12}" y="{y + 4}" text-anchor="end">{_short(text)}'
        f"<title>{escape(text)}</title></text>"
    )


def _short(text: str) -> str:
    return escape(text if len(text) <= LABEL_CHARS else text[: LABEL_CHARS - 1] + "…")


def _ticks(most: float) -> list[float]:
    step = 10 ** math.floor(math.log10(most))
    for factor in (0.2, 0.5, 1, 2, 5):
        if most / (step * factor) <= 5:
            step *= factor
            break
    return [step * number for number in range(math.ceil(most / step) + 1)]


def _compact(value: float) -> str:
    for bound, unit in ((1e6, "M"), (1e3, "k")):
        if value >= bound:
            return f"{value / bound:.3g}{unit}"
    return f"{value:.3g}"
