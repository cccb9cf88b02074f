"""`everyturn bench rows`: the rows of a run, and all that is known of one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table
from rich.text import Text

from everyturn.bench.client import CallFailed, Gateway
from everyturn.bench.viewing import Joined, Where, find_row, story
from everyturn.cli.bench_run import or_exit, run_options
from everyturn.cli.terminal import print_table, safe_line

_WORDS_MAX = 50


@click.command("rows")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@click.option("--where", multiple=True, help="Such as `outcome=length`; may be given again.")
@click.option("--turn", "turn_id", help="All about the row of one turn, with the exact prompt.")
@click.option("--gateway", help="Where to read that turn; the run's gateway by default.")
@click.option("--include-reasoning", is_flag=True, help="With the text of the reasoning.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def rows_command(
    run: Path,
    where: tuple[str, ...],
    turn_id: str | None,
    gateway: str | None,
    include_reasoning: bool,
    as_json: bool,
) -> None:
    """List the rows of RUN, or tell one of them whole.

    Exit status 0: listed, also when none fits; 1: there is no such run or row; 2: bad use.
    """
    joined = or_exit(lambda: Joined(run))
    if turn_id is not None:
        _one(joined, turn_id, gateway, include_reasoning, indent=0 if as_json else 2)
        return
    conditions = or_exit(lambda: [Where(text, joined.reading.metrics) for text in where])
    table = _table()
    fitting = 0
    for row in joined.rows(include_reasoning=include_reasoning):
        if not all(condition.holds(row) for condition in conditions):
            continue
        fitting += 1
        if as_json or include_reasoning:
            _write(row)
        else:
            _add(table, row)
    if table.row_count:
        print_table(table, width=220)
    if not fitting:
        click.echo("No row fits.", err=True)


def _one(
    joined: Joined, turn_id: str, gateway: str | None, include_reasoning: bool, *, indent: int
) -> None:
    row = or_exit(lambda: find_row(joined.path, turn_id, include_reasoning=include_reasoning))
    told = story(joined, row)
    url = gateway or joined.reading.manifest.grid.gateway
    recorded = row.turn_id or row.cached_from
    told["turn"] = asyncio.run(_recorded(url, str(recorded)))
    _write(told, indent)


async def _recorded(url: str, turn_id: str) -> Any:
    """The gateway's record of a turn; null, with a word on stderr, where it cannot be read."""
    gateway = Gateway(url, run_options().api_key, timeout_s=30, idle_timeout_s=30)
    try:
        return await gateway.get(f"/turns/{turn_id}")
    except CallFailed as failed:
        click.echo(f"everyturn: the turn cannot be read at {url}: {failed.code}.", err=True)
        return None
    finally:
        await gateway.close()


def _write(row: dict[str, Any], indent: int = 0) -> None:
    line = msgspec.json.encode(row)
    sys.stdout.buffer.write((msgspec.json.format(line, indent=indent) if indent else line) + b"\n")
    sys.stdout.buffer.flush()


def _table() -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("turn", "model", "cell", "item", "outcome", "scores", "verdict", "answer"):
        table.add_column(name, no_wrap=name != "scores")
    return table


def _add(table: Table, row: dict[str, Any]) -> None:
    scores = ", ".join(f"{k} {v:g}" for k, v in row["scores"].items() if v is not None)
    table.add_row(
        row["turn_id"] or row["cached_from"] or "",
        *(Text(safe_line(row[name], _WORDS_MAX)) for name in ("model", "cell", "item_id")),
        row["outcome"],
        scores,
        row["judge_label"] or "",
        Text(safe_line(row["model_answer"] or row["error_code"] or "", _WORDS_MAX)),
    )
