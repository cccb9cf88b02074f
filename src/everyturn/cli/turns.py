"""`everyturn turns`: the latest turns, one a line."""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from everyturn.audit.records import OUTCOMES
from everyturn.cli.folder import data_option, opened
from everyturn.cli.terminal import json_line, print_table, safe_line
from everyturn.store.document import document, rfc3339
from everyturn.store.wanted import ATTRIBUTE_NAME

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO: Final = re.compile(r"(\d{1,6})([smhd])")
_STYLES: Final = {"success": "green", "partial": "yellow", "failure": "red", "abandoned": "yellow"}
_WORDS_MAX: Final = 60


class AttributeValue(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE` of an attribute that a plugin declares."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Name and value; ends the command with status 2 where there is no name."""
        name, equals, text = str(value).partition("=")
        if not equals or not ATTRIBUTE_NAME.fullmatch(name):
            self.fail(f"{value!r} is no attribute; write NAME=VALUE.", param, ctx)
        return name, text


class Since(click.ParamType[int]):
    """A time: `90s`, `15m`, `1h`, `7d` ago, or RFC 3339. Gives microseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The microseconds; ends the command with status 2 when it is no time."""
        if isinstance(value, int):
            return value
        ago = _AGO.fullmatch(value)
        if ago:
            return time.time_ns() // 1000 - int(ago[1]) * UNITS[ago[2]] * 1_000_000
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is no time; write 90s, 15m, 1h, 7d or 2026-11-30T12:00:00Z.", param, ctx
            )
        if when.tzinfo is None:
            self.fail(f"{value!r} has no zone; end it with Z for UTC.", param, ctx)
        return int(when.timestamp() * 1_000_000)


@click.command("turns")
@click.option("--since", type=Since(), help="Only turns since then: 90s, 15m, 1h, 7d or RFC 3339.")
@click.option("--model", help="Only turns that asked for, or were served by, this model.")
@click.option(
    "--outcome",
    type=click.Choice([*OUTCOMES, "open"]),
    help="Only turns that ended so; `open` for those that have not ended.",
)
@click.option("--plugin", help="Only turns of this plugin.")
@click.option("--label", help="Only turns with a review that has this label.")
@click.option(
    "--attribute",
    "attributes",
    type=AttributeValue(),
    multiple=True,
    help="Only turns that have it, or a tool run or a retrieval of theirs; may be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=100_000),
    default=50,
    show_default=True,
    help="The most turns to list.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@data_option
def turns_command(limit: int, as_json: bool, data: Path, **wanted: Any) -> None:
    """List the latest turns, newest first.

    Reads the record while the gateway writes it. Exit status 0: listed, also when there are none;
    1: there is no record to read; 2: bad use.
    """
    with opened(data) as reader:
        rows = reader.turns(limit=limit, **wanted)
    if as_json:
        for row in rows:
            sys.stdout.buffer.write(json_line(document(row)))
        return
    if not rows:
        click.echo("No turn fits.", err=True)
        return
    _print(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("time (UTC)", no_wrap=True)
    table.add_column("turn", no_wrap=True)
    table.add_column("model", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("asked", overflow="ellipsis", no_wrap=True)
    for row in rows:
        is_open = row["duration_ms"] is None and row["sources_by_field_json"] is None
        outcome = row["outcome"] or ("open" if is_open else "not said")
        error = f" {safe_line(row['error_code'], _WORDS_MAX)}" if row["error_code"] else ""
        duration = row["duration_ms"]
        table.add_row(
            rfc3339(row["timestamp"])[:19].replace("T", " "),
            row["turn_id"] if not sys.stdout.isatty() else row["turn_id"][:8],
            Text(safe_line(", ".join(row["models"]), _WORDS_MAX)),
            Text(outcome + error, style=_STYLES.get(outcome, "")),
            "" if duration is None else f"{duration:.0f}",
            Text(safe_line(row["user_text"] or "", _WORDS_MAX)),
        )
    print_table(table, width=240)
    if sys.stdout.isatty():
        click.echo(
            "`everyturn show TURN` tells one of them; the first 8 digits are enough.", err=True
        )
