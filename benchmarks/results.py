"""The figures of one run of the benchmark, as they were measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from benchmarks.load import Figures


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a stored conversation takes. Sizes in bytes."""

    turns: int
    stored: int
    """All files of the record after a checkpoint."""
    empty: int
    """The same files before the first turn; they are part of `stored`."""
    last_request: int
    """The body of the last request, which holds the whole conversation but its last answer."""

    @property
    def ratio(self) -> float:
        """Bytes stored for each byte of the last request."""
        return self.stored / self.last_request


@dataclass(slots=True)
class Results:
    """Everything measured. Rates are a second; times as their names say."""

    load_before: float
    """The machine's load average before the run."""
    rounds: int
    upstream_alone: dict[str, float] = field(default_factory=dict)
    start_s: list[float] = field(default_factory=list)
    resident_bytes: dict[str, int] = field(default_factory=dict)
    conversation: Conversation | None = None
    redaction_us: float = 0.0
    """What the search for secrets adds to a small turn."""
    samples: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    """Row → measure → figure → one value a round."""

    def add(self, row: str, measure: str, figures: Figures, cpu_s: float) -> None:
        """Keep one run of wrk against a row that used `cpu_s` seconds of CPU time for it."""
        sample = self.samples.setdefault(row, {}).setdefault(measure, {})
        for figure, value in (
            ("per_second", figures.per_second),
            ("p50_us", figures.p50_us),
            ("p99_us", figures.p99_us),
            ("cpu_us", cpu_s / figures.requests * 1e6),
            ("core_share", cpu_s / figures.duration_s),
        ):
            sample.setdefault(figure, []).append(value)

    def median(self, row: str, measure: str, figure: str) -> float:
        """The middle of the rounds."""
        return median(self.samples[row][measure][figure])

    def ratio(self, row: str, other: str, measure: str, figure: str) -> float:
        """The middle of the rounds' own ratios: both were taken within a minute."""
        return median(
            one / two
            for one, two in zip(
                self.samples[row][measure][figure],
                self.samples[other][measure][figure],
                strict=True,
            )
        )

    def added(self, row: str, direct: str, measure: str, figure: str) -> float:
        """The middle of what each round's latency is above the direct one of that round."""
        return median(
            one - two
            for one, two in zip(
                self.samples[row][measure][figure],
                self.samples[direct][measure][figure],
                strict=True,
            )
        )
