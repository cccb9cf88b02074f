"""`everyturn show`: everything about one turn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from everyturn import __version__
from everyturn.audit.otel.spans import request_of
from everyturn.cli.folder import data_option, opened
from everyturn.cli.media_files import write_media
from everyturn.cli.story import story
from everyturn.cli.terminal import json_line
from everyturn.store.document import document
from everyturn.store.kept import LOCAL_OPERATOR
from everyturn.store.local_reads import note
from everyturn.store.media import refs_in, texts_of
from everyturn.store.reader import PREFIX_CHARS_MIN, AmbiguousTurnId

LABEL_WIDTH = 15


@click.command("show")
@click.argument("turn_id")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every field.")
@click.option(
    "--otlp",
    "as_otlp",
    is_flag=True,
    help="One OTLP/JSON request: the turn as OpenTelemetry spans.",
)
@click.option(
    "--include-reasoning", is_flag=True, help="Reasoning as well, where the record keeps it."
)
@click.option(
    "--media",
    "media_folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the turn's files and media into DIR, where the record keeps them.",
)
@data_option
def show_command(
    turn_id: str,
    as_json: bool,
    as_otlp: bool,
    include_reasoning: bool,
    media_folder: Path | None,
    data: Path,
) -> None:
    """Tell everything about the turn TURN_ID, in order.

    The beginning of a turn id is enough while only one turn begins so. Reads the record while the
    gateway writes it. Exit status 0: shown; 1: no such turn, or no record to read; 2: bad use.
    """
    if as_otlp and (as_json or include_reasoning):
        raise click.UsageError("--otlp is a form of its own, and never holds reasoning.")
    turn_id = turn_id.lower()
    if media_folder is not None:
        _write_media(data, turn_id, media_folder)
    if as_otlp:
        _write(request_of(_read(data, turn_id), version=__version__))
        return
    show_turn(data, turn_id, as_json=as_json, include_reasoning=include_reasoning)


def show_turn(
    folder: Path, turn_id: str, *, as_json: bool, include_reasoning: bool = False
) -> None:
    """Print a turn of the record in `folder`; ends the process with status 1 if there is none."""
    told = document(_read(folder, turn_id, include_reasoning=include_reasoning))
    if as_json:
        _write(told)
        return
    console = Console(highlight=False, soft_wrap=True)
    for line in story(told):
        if line.is_head:
            console.print(Text(f"\n{line.label}", style="bold"))
            continue
        row = Text(f"  {line.label:<{LABEL_WIDTH}} ", style="dim")
        row.append(line.text, style="not dim")
        console.print(row)


def _write(told: Any) -> None:
    sys.stdout.buffer.write(json_line(told))
    sys.stdout.buffer.flush()


def _read(folder: Path, turn_id: str, *, include_reasoning: bool = False) -> dict[str, Any]:
    try:
        with opened(folder) as reader:
            found = reader.turn(turn_id)
            if found is not None and include_reasoning:
                # First, so that what cannot be noted is not read.
                note(folder, _id_of(found))
                found = reader.turn(turn_id, include_reasoning=True, permissions=LOCAL_OPERATOR)
    except AmbiguousTurnId as unclear:
        click.echo(f"everyturn: {unclear}", err=True)
        sys.exit(1)
    if found is None:
        click.echo(f"everyturn: no turn {turn_id} in {folder}.", err=True)
        hint = f"Give at least {PREFIX_CHARS_MIN} digits of it; `everyturn turns` lists the latest."
        click.echo(hint, err=True)
        sys.exit(1)
    return found


def _id_of(found: dict[str, Any]) -> str:
    """The whole id of a turn that was found by its beginning; any row of it has that."""
    rows = (
        [found["turn"]] if found["turn"] else [one for rows in found.values() for one in rows or ()]
    )
    return str(rows[0]["turn_id"])


def _write_media(data: Path, turn_id: str, folder: Path) -> None:
    """Write a turn's media, and tell of each; ends the process with status 1 where it cannot."""
    refs = refs_in(*texts_of(_read(data, turn_id)))
    count = 0
    try:
        with opened(data) as reader:
            for path, medium in write_media(reader.media(refs), folder):
                count += 1
                what = f"{medium.media_type}, {len(medium.data)} bytes"
                click.echo(f"everyturn: {path}: {what}", err=True)
    except FileExistsError as there:
        click.echo(f"everyturn: {there.filename} is there and is another file.", err=True)
        click.echo("Nothing is written over. Name another folder, or move that file.", err=True)
        sys.exit(1)
    except OSError as bad:
        click.echo(f"everyturn: {folder} cannot be written: {bad.strerror}.", err=True)
        sys.exit(1)
    if not refs:
        hint = 'They are kept with `[media] store = "keep"`, from the next turn on.'
        click.echo(f"everyturn: the record keeps no files or media of this turn. {hint}", err=True)
    elif count < len(refs):
        click.echo(f"everyturn: {len(refs) - count} of {len(refs)} are gone.", err=True)
