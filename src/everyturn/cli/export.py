"""`everyturn export`: whole days of the record as files, of its tables or of OTLP spans."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import click

from everyturn import __version__
from everyturn.audit.schema import LOG_NAMED
from everyturn.cli.folder import data_option, told_failures
from everyturn.cli.terminal import counted
from everyturn.store.export import Exported, export_day, export_missed
from everyturn.store.spans import export_spans

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


class Day(click.ParamType[date]):
    """A day of UTC that is over."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """The day; ends the command with status 2 when it is none, or is not over."""
        today = datetime.now(UTC).date()
        try:
            day = date.fromisoformat(value if _DAY.fullmatch(value) else "")
        except ValueError:
            self.fail(f"{value!r} is no day; write it as {today.isoformat()}.", param, ctx)
        if day >= today:
            self.fail(
                f"{value} is not over: only whole days of UTC are exported, and there it is"
                f" {today.isoformat()} now.",
                param,
                ctx,
            )
        return day


@click.command("export")
@click.option("--day", type=Day(), help="The day of UTC to write, as YYYY-MM-DD; it must be over.")
@click.option(
    "--missed",
    is_flag=True,
    help="Write each day that is over and that this did not write into the folder before.",
)
@click.option(
    "--table",
    "tables",
    type=click.Choice(list(LOG_NAMED)),
    multiple=True,
    help="Only this table; may be given several times.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["rows", "otlp"]),
    default="rows",
    show_default=True,
    help="rows: a file a table. otlp: a file of OpenTelemetry spans, a request a turn.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("reports/observability"),
    show_default=True,
    help="The folder of the files; made when missing.",
)
@data_option
def export_command(
    day: date | None, missed: bool, tables: tuple[str, ...], form: str, out: Path, data: Path
) -> None:
    """Write a day of the record to files: OUT/TABLE-DAY.jsonl, one JSON object a row.

    With --format otlp it is OUT/spans-DAY.jsonl, for the OpenTelemetry Collector and whatever reads
    spans; `everyturn import` reads it too. No file holds reasoning.

    Each file is written beside its place and renamed into it, and is the same when it is written
    again, as long as the record of that day is. The paths go to stdout. Reads the record while the
    gateway writes it. Exit status 0: written; 1: it could not be; 2: bad use.
    """
    if (day is None) == (not missed):
        raise click.UsageError("Give one of --day and --missed.")
    if missed and tables:
        raise click.UsageError("--missed writes all tables; leave --table out.")
    if form == "otlp" and (day is None or tables):
        raise click.UsageError("--format otlp writes one --day, with all tables in it.")
    try:
        with told_failures():
            if day is not None and form == "otlp":
                _tell([export_spans(data, day, out, version=__version__)], "line")
            elif day is not None:
                _tell(export_day(data, day, out, tables=tables))
            else:
                told = _tell(export_missed(data, out, now=datetime.now(UTC)))
                if not told:
                    click.echo("No day is missing.", err=True)
    except OSError as bad:
        click.echo(f"everyturn: {bad.filename or out} cannot be written: {bad.strerror}.", err=True)
        click.echo("Choose another folder with --out, or make room.", err=True)
        sys.exit(1)


def _tell(files: Iterable[Exported], line: str = "row") -> int:
    """Name each file that is written; how many there were."""
    told = 0
    for told, file in enumerate(files, start=1):  # noqa: B007 (the last count is what is asked)
        click.echo(str(file.path))
        click.echo(f"  {counted(file.rows, line)}", err=True)
    return told
