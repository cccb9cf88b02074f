"""The figures as a table, as JSON, and in docs/benchmarks.md, each mark with met or not met."""

from __future__ import annotations

import datetime
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

import everyturn.wire.stream
from benchmarks.machine import load_average, processor
from benchmarks.results import Results
from benchmarks.rows import BARE_RELAY, CHUNKS, DIRECT, INTERPRETED, NGINX, RECORD_OFF, RECORD_ON

ROWS: Final = (RECORD_ON, RECORD_OFF, INTERPRETED, BARE_RELAY, NGINX)
DOCS: Final = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BEGIN: Final = "<!-- figures: begin, written by `make bench BENCH_FLAGS=--write-docs` -->"
END: Final = "<!-- figures: end -->"
BUSY_LOAD: Final = 1.0

PER_SECOND_MIN: Final = 2_500
NGINX_PART_MIN: Final = 1 / 12
STREAMS_MIN: Final = 200
ADDED_P50_US_MAX: Final = 600
RESIDENT_MB_MAX: Final = 120
START_S_MAX: Final = 1.0
STORED_RATIO_MAX: Final = 3.0
REDACTION_SHARE_MAX: Final = 0.15


@dataclass(frozen=True, slots=True)
class Mark:
    """A figure of the gateway with the record on, and what it must be."""

    what: str
    figure: str
    mark: str
    is_met: bool


def marks(results: Results) -> list[Mark]:
    """All marks. Of a rate and its ratio to nginx the ratio counts: it holds on a busy machine."""
    rate = results.median(RECORD_ON, "whole_32", "per_second")
    part = results.ratio(RECORD_ON, NGINX, "whole_32", "per_second")
    streams = results.median(RECORD_ON, "streams_32", "per_second")
    added_us = results.added(RECORD_ON, DIRECT, "whole_1", "p50_us")
    resident_mb = results.resident_bytes[RECORD_ON] / 1e6
    start_s = median(results.start_s)
    found = [
        Mark(
            "small requests, part of nginx's",
            f"1/{1 / part:.1f}",
            "at least 1/12",
            part >= NGINX_PART_MIN,
        ),
        Mark(
            "small requests a second",
            f"{rate:,.0f}",
            f"at least {PER_SECOND_MIN:,}",
            rate >= PER_SECOND_MIN,
        ),
        Mark(
            f"streams of {CHUNKS} chunks a second",
            f"{streams:,.0f}",
            f"at least {STREAMS_MIN}",
            streams >= STREAMS_MIN,
        ),
        Mark(
            "added p50 at 1 connection",
            f"{added_us / 1000:.2f} ms",
            "under 0.6 ms",
            added_us < ADDED_P50_US_MAX,
        ),
        Mark(
            "resident memory after load",
            f"{resident_mb:.0f} MB",
            f"under {RESIDENT_MB_MAX} MB",
            resident_mb < RESIDENT_MB_MAX,
        ),
        Mark(
            "start to first answer",
            f"{start_s:.2f} s",
            "under 1 s",
            start_s < START_S_MAX,
        ),
    ]
    redaction = results.redaction_us / results.median(RECORD_ON, "whole_32", "cpu_us")
    found.append(
        Mark(
            "redaction, part of a turn's CPU time",
            f"{redaction:.1%} ({results.redaction_us:.0f} µs)",
            f"under {REDACTION_SHARE_MAX:.0%}",
            redaction < REDACTION_SHARE_MAX,
        )
    )
    talk = results.conversation
    if talk is not None:
        found.append(
            Mark(
                f"conversation of {talk.turns} turns, stored",
                f"{talk.ratio:.2f} x its last request",
                "under 3 x",
                talk.ratio < STORED_RATIO_MAX,
            )
        )
    return found


def table(results: Results) -> list[list[str]]:
    """What was measured of each row; the first line names the columns."""
    lines = [
        [
            "",
            "requests/s, 32 conn.",
            "part of nginx",
            "requests/s, 64 conn.",
            "CPU µs a request",
            f"streams/s, {CHUNKS} chunks",
            "CPU µs a chunk",
            "added p50 / p99, 1 conn.",
            "added p50 / p99, 32 conn.",
            "MB",
        ]
    ]
    for row in ROWS:
        chunk_us = results.median(row, "slow_streams_32", "cpu_us") / CHUNKS
        lines.append(
            [
                row,
                f"{results.median(row, 'whole_32', 'per_second'):,.0f}",
                f"1/{1 / results.ratio(row, NGINX, 'whole_32', 'per_second'):.1f}",
                f"{results.median(row, 'whole_64', 'per_second'):,.0f}",
                f"{results.median(row, 'whole_32', 'cpu_us'):.0f}",
                f"{results.median(row, 'streams_32', 'per_second'):,.0f}",
                f"{chunk_us:.1f}",
                _added(results, row, "whole_1"),
                _added(results, row, "whole_32"),
                f"{results.resident_bytes[row] / 1e6:.0f}",
            ]
        )
    return lines


def _added(results: Results, row: str, measure: str) -> str:
    p50, p99 = (results.added(row, DIRECT, measure, name) / 1000 for name in ("p50_us", "p99_us"))
    return f"{p50:.2f} / {p99:.1f} ms"


def notes(results: Results) -> list[str]:
    """What a reader of the figures must know."""
    share = results.median(RECORD_ON, "whole_32", "core_share")
    told = [
        "everyturn is the compiled build."
        if is_compiled()
        else "everyturn is interpreted: `make bench` measures the compiled build.",
        f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; {results.rounds} interleaved rounds, medians.",
        f"The upstream alone: {results.upstream_alone['whole']:,.0f} whole answers or "
        f"{results.upstream_alone['streams']:,.0f} streams a second of its CPU time.",
        f"Under load the gateway got {share:.0%} of its core; with a core to itself it makes "
        f"{1e6 / results.median(RECORD_ON, 'whole_32', 'cpu_us'):,.0f} requests or "
        f"{1e6 / results.median(RECORD_ON, 'streams_32', 'cpu_us'):,.0f} streams a second by its "
        "CPU time.",
    ]
    talk = results.conversation
    if talk is not None:
        told.append(
            f"The conversation of {talk.turns} turns takes {talk.stored:,} bytes, "
            f"{talk.stored / talk.turns:,.0f} a turn ({talk.empty:,} were there before it); its "
            f"last request has {talk.last_request:,}."
        )
    if results.load_before > BUSY_LOAD:
        told.append(
            f"Warning: other work ran on this machine (load average {results.load_before:.1f} "
            "before the run): only ratios of this run mean anything."
        )
    return told


def is_compiled() -> bool:
    """Whether this process, and so the gateways that it starts, has the compiled build."""
    return not everyturn.wire.stream.__file__.endswith(".py")


def text(results: Results) -> str:
    """Everything, for a terminal."""
    parts = ["", *_aligned(table(results)), ""]
    lines = [["record on", "measured", "mark", ""]]
    lines += [[m.what, m.figure, m.mark, "met" if m.is_met else "NOT MET"] for m in marks(results)]
    return "\n".join([*parts, *_aligned(lines), "", *notes(results)])


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def as_json(results: Results) -> str:
    """Every sample and every mark."""
    body = {
        "taken": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load_after": load_average(),
        "marks": [asdict(mark) for mark in marks(results)],
        **asdict(results),
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def as_markdown(results: Results) -> str:
    """The figures for the page."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [["record on", "measured", "mark", "met"]]
    lines += [[m.what, m.figure, m.mark, "yes" if m.is_met else "**no**"] for m in marks(results)]
    parts = [f"Taken on {today}.", "", *_markdown(lines), "", *_markdown(table(results)), ""]
    return "\n".join([*parts, *(f"- {note}" for note in notes(results))])


def _markdown(lines: list[list[str]]) -> list[str]:
    head, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return [head, "|---" * len(lines[0]) + "|", *rest]


def write_docs(results: Results, page: Path = DOCS) -> None:
    """Put the figures between the markers of the page. Raises ValueError without the markers."""
    page.write_text(
        between_markers(page.read_text(encoding="utf-8"), as_markdown(results)), encoding="utf-8"
    )


def between_markers(page: str, figures: str) -> str:
    """`page` with `figures` between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page lacks the markers between which figures stand")
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"
