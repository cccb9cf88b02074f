"""`everyturn bench report`: what a run found, as JSON or as one page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from everyturn.bench.folder import REPORT, replace
from everyturn.bench.report import report_html
from everyturn.bench.summary import read_run, summarise, write_summary
from everyturn.cli.bench_run import or_exit
from everyturn.cli.terminal import print_table


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the page."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, no table.")
def report_command(run: Path, html: Path | None, as_json: bool) -> None:
    """Sum up RUN: writes `summary.json` and `report.html` into it, and prints a table.

    Neither holds the text of reasoning. Exit status 0: written; 1: there is no run; 2: bad use.
    """

    def make() -> tuple[dict[str, Any], bytes]:
        summary = summarise(run, read_run(run))
        raw = write_summary(run, summary)
        replace(html or run / REPORT, report_html(run, summary).encode("utf-8", "replace"))
        return summary, raw

    summary, raw = or_exit(make)
    if as_json:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    _print(summary)
    click.echo(f"everyturn: the report is {html or run / REPORT}", err=True)


def _print(summary: dict[str, Any]) -> None:
    groups = summary["found"]["groups"]
    metrics = list(groups[0]["metrics"]) if groups else []
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("model", "cell", "rows"):
        table.add_column(name)
    for name in (*metrics, "cost", "p50 ms"):
        table.add_column(name, justify="right")
    for group, timing in zip(groups, summary["timing"], strict=True):
        done = sum(group["outcomes"].values())
        p50 = timing["latency_ms"]["p50"]
        table.add_row(
            group["model"],
            group["cell"],
            f"{done} of {group['n_total']}",
            *(_metric(group["metrics"][name]) for name in metrics),
            f"${timing['cost']:.4f}",
            "" if p50 is None else f"{p50:.0f}",
        )
    print_table(table, width=200)


def _metric(one: dict[str, Any]) -> str:
    if one["value"] is None:
        return "none"
    told = f"{one['value']:.3f}"
    if one["low"] is not None:
        told += f" \\[{one['low']:.3f}, {one['high']:.3f}]"
    return f"{told} of {one['n_scored']}"
