"""`everyturn show`: everything about one turn."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from everyturn.cli.folder import data_option, opened
from everyturn.cli.story import story
from everyturn.cli.terminal import json_line
from everyturn.store.document import document
from everyturn.store.kept import LOCAL_OPERATOR
from everyturn.store.reader import PREFIX_CHARS_MIN, AmbiguousTurnId

LABEL_WIDTH = 15


@click.command("show")
@click.argument("turn_id")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every field.")
@click.option(
    "--include-reasoning", is_flag=True, help="Reasoning as well, where the record keeps it."
)
@data_option
def show_command(turn_id: str, as_json: bool, include_reasoning: bool, data: Path) -> None:
    """Tell everything about the turn TURN_ID, in order.

    The beginning of a turn id is enough while only one turn begins so. Reads the record while the
    gateway writes it. Exit status 0: shown; 1: no such turn, or no record to read; 2: bad use.
    """
    show_turn(data, turn_id.lower(), as_json=as_json, include_reasoning=include_reasoning)


def show_turn(
    folder: Path, turn_id: str, *, as_json: bool, include_reasoning: bool = False
) -> None:
    """Print a turn of the record in `folder`; ends the process with status 1 if there is none."""
    try:
        with opened(folder) as reader:
            found = reader.turn(
                turn_id, include_reasoning=include_reasoning, permissions=LOCAL_OPERATOR
            )
    except AmbiguousTurnId as unclear:
        click.echo(f"everyturn: {unclear}", err=True)
        sys.exit(1)
    if found is None:
        click.echo(f"everyturn: no turn {turn_id} in {folder}.", err=True)
        hint = f"Give at least {PREFIX_CHARS_MIN} digits of it; `everyturn turns` lists the latest."
        click.echo(hint, err=True)
        sys.exit(1)
    told = document(found)
    if as_json:
        sys.stdout.buffer.write(json_line(told))
        sys.stdout.buffer.flush()
        return
    console = Console(highlight=False, soft_wrap=True)
    for line in story(told):
        if line.is_head:
            console.print(Text(f"\n{line.label}", style="bold"))
            continue
        row = Text(f"  {line.label:<{LABEL_WIDTH}} ", style="dim")
        row.append(line.text, style="not dim")
        console.print(row)
