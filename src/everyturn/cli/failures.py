"""`everyturn failures`: failed calls in groups, one a line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from everyturn.cli.folder import data_option, told_failures
from everyturn.cli.names import Names
from everyturn.cli.terminal import json_line, print_table, safe_line
from everyturn.cli.turns import Since
from everyturn.store.document import rfc3339
from everyturn.store.failures import GROUP_COLUMNS, FailureGroup, failure_groups

_WORDS_MAX = 60


@click.command("failures")
@click.option(
    "--by",
    type=Names(GROUP_COLUMNS),
    default=",".join(GROUP_COLUMNS),
    show_default=True,
    help="What makes a group.",
)
@click.option("--since", type=Since(), help="Only calls since then: 90s, 15m, 1h, 7d or RFC 3339.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@data_option
def failures_command(by: tuple[str, ...], since: int | None, as_json: bool, data: Path) -> None:
    """Group the calls that failed: how many, the first and the last, and a turn to look at.

    The turn and the trace are those of the last call of the group. Calls that a client gave up have
    not failed. Exit status 0: listed, also when there are none; 1: there is no record to read; 2:
    bad use.
    """
    with told_failures():
        groups = failure_groups(data, by=by, since=since)
    if as_json:
        for group in groups:
            sys.stdout.buffer.write(json_line(_told(group)))
        return
    if not groups:
        click.echo("No call failed.", err=True)
        return
    _print(groups, by)


def _told(group: FailureGroup) -> dict[str, Any]:
    return {
        **group.values,
        "count": group.count,
        "first": rfc3339(group.first),
        "last": rfc3339(group.last),
        "turn_id": group.turn_id,
        "trace_id": group.trace_id,
    }


def _print(groups: list[FailureGroup], by: tuple[str, ...]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("count", justify="right", no_wrap=True)
    for name in by:
        table.add_column(name, overflow="fold")
    for name in ("first (UTC)", "last (UTC)", "turn", "trace"):
        table.add_column(name, no_wrap=True)
    for group in groups:
        table.add_row(
            str(group.count),
            *(Text(safe_line(value or "-", _WORDS_MAX)) for value in group.values.values()),
            _time(group.first),
            _time(group.last),
            group.turn_id or "-",
            Text(safe_line(group.trace_id or "-", _WORDS_MAX)),
        )
    print_table(table, width=240, is_fitted=False)


def _time(microseconds: int) -> str:
    return rfc3339(microseconds)[:19].replace("T", " ")
