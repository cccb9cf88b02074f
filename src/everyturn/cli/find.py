"""`everyturn find`: the turns in which words stand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from everyturn.cli.folder import data_option, told_failures
from everyturn.cli.names import Names
from everyturn.cli.terminal import json_line, print_table, safe_line
from everyturn.store.base import StoreFailure
from everyturn.store.document import rfc3339
from everyturn.store.finding import BadQuery, Found, Query, find, read_query
from everyturn.store.folder import is_held
from everyturn.store.said import FIELDS
from everyturn.store.search import SearchIndex, open_index

CATCH_UP_SECONDS: Final = 2.0
"""How long it takes in new turns itself while a gateway does so too."""
_EXCERPT_CHARS: Final = 130
_LAG_TO_TELL: Final = 10_000


@click.command("find")
@click.argument("query")
@click.option(
    "--in",
    "fields",
    type=Names(FIELDS),
    default=",".join(FIELDS),
    show_default=True,
    help="Where the words must stand.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=10_000),
    default=20,
    show_default=True,
    help="The most turns to list.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@data_option
def find_command(
    query: str, fields: tuple[str, ...], limit: int, as_json: bool, data: Path
) -> None:
    """List the turns that have all the words of QUERY, newest first.

    "Words in quotes" are a phrase, `refund*` is a beginning, and case and accents do not matter.
    user: what the user said; assistant: what was answered; tools: what tools were asked and what
    they gave back. System prompts are not searched, and reasoning never is.

    Works while a gateway runs, and without one; new turns are taken into the index first. Exit
    status 0: listed, also when there are none; 1: there is no record to read; 2: bad use.
    """
    try:
        wanted = read_query(query, fields)
    except BadQuery as bad:
        raise click.BadParameter(
            f"{bad} Write words with letters or digits.", param_hint="QUERY"
        ) from None
    with told_failures():
        found = _find(data, wanted, fields, limit)
    if as_json:
        for one in found:
            sys.stdout.buffer.write(json_line(_told(one)))
        return
    if not found:
        click.echo("No turn has these words.", err=True)
        return
    _print(found)


def _find(data: Path, query: Query, fields: tuple[str, ...], limit: int) -> list[Found]:
    index = open_index(data)
    try:
        _catch_up(index, data)
        if index.lag:
            click.echo(f"{index.lag} turns are not in the index yet.", err=True)
        if index.unreadable:
            click.echo(f"{index.unreadable} turns are damaged and not in the index.", err=True)
        return find(index, query, fields=fields, limit=limit)
    finally:
        index.close()


def _catch_up(index: SearchIndex, data: Path) -> None:
    if not index.is_writable:
        click.echo("The index cannot be written here; newer turns may be missing.", err=True)
        return
    if not is_held(data):
        if index.lag > _LAG_TO_TELL:
            click.echo(f"Taking {index.lag} turns into the index first …", err=True)
        index.catch_up_at_rest()
        return
    try:
        index.catch_up(seconds=CATCH_UP_SECONDS)
    except StoreFailure:
        # The gateway's own process is at it, and may be held up by turns; what is there answers.
        click.echo("The index is being written; newer turns may be missing.", err=True)


def _told(one: Found) -> dict[str, Any]:
    return {
        "turn_id": one.turn_id,
        "trace_id": one.trace_id,
        "timestamp": None if one.timestamp is None else rfc3339(one.timestamp),
        "outcome": one.outcome,
        "in": list(one.fields),
        "excerpt": one.excerpt,
    }


def _print(found: list[Found]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("time (UTC)", "turn", "outcome", "in"):
        table.add_column(name, no_wrap=True)
    table.add_column("excerpt", overflow="ellipsis", no_wrap=True)
    for one in found:
        time = "" if one.timestamp is None else rfc3339(one.timestamp)[:19].replace("T", " ")
        table.add_row(
            time,
            Text(safe_line(one.turn_id, 64)),
            one.outcome or ("open" if one.is_open else "not said"),
            ", ".join(one.fields),
            Text(safe_line(one.excerpt, _EXCERPT_CHARS)),
        )
    print_table(table, width=240)
