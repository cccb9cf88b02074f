"""`everyturn presets`: what is known of each provider, for a person or for a program."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from everyturn.presets.describe import Fact
    from everyturn.wire.preset import Preset

_WIDTH = 100
"""Columns of what goes to a file or a pipe."""


@click.command("presets")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def presets_command(name: str | None, as_json: bool) -> None:
    """Show what is known of each provider, or all that is known of one.

    Without NAME: one line for each packaged preset. With NAME: every fact of that preset with its
    value, where it is known from (source, kind of evidence, date), and what to know beside it. NAME
    may also be the path of a preset file of your own, which is checked as the gateway checks it.

    \b
    Kinds of evidence:
      D  documentation of the vendor
      R  a recorded exchange in a public repository
      C  source code of the server or of an SDK
      I  an issue or pull request
      P  a choice of this product

    Exit status: 0; 1 where a file of your own has faults; 2 where NAME is not known.
    """
    from everyturn.presets.load import load_preset, preset_names

    if name is None:
        _print_list([load_preset(each) for each in preset_names()], as_json=as_json)
        return
    preset = _preset(name)
    if as_json:
        from everyturn.presets.describe import as_json as facts_as_json

        _print_json(facts_as_json(preset))
    elif sys.stdout.isatty():
        _print_table(preset)
    else:
        _print_plain(preset)


def _preset(name: str) -> Preset:
    """The preset of that name, or the one in the file at that path."""
    from everyturn.config.files import read_file
    from everyturn.presets.check import close_to
    from everyturn.presets.load import PresetError, load_preset, preset_names, read_preset_file

    if name in preset_names():
        return load_preset(name)
    if not name.endswith(".toml"):
        raise click.UsageError(f"There is no preset `{name}`. {close_to(name, preset_names())}")
    try:
        return read_preset_file(read_file(Path(name)), name)
    except OSError as failure:
        raise click.UsageError(f"Cannot read {name}: {failure.strerror}.") from None
    except (PresetError, UnicodeDecodeError) as failure:
        raise click.ClickException(str(failure)) from None


def _print_list(presets: list[Preset], *, as_json: bool) -> None:
    from everyturn.presets.describe import summary_of

    rows = [summary_of(preset) for preset in presets]
    if as_json:
        _print_json([{key.replace(" ", "_"): text for key, text in row.items()} for row in rows])
        return
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for column in rows[0]:
            table.add_column(column, no_wrap=column == "name")
        for row in rows:
            table.add_row(*(Text(text) for text in row.values()))
        Console().print(table)
        return
    shown = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(len(line[at]) for line in shown) for at in range(len(shown[0]) - 1)] + [0]
    for line in shown:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _print_table(preset: Preset) -> None:
    """What is known in a table, the defaults of all else below it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from everyturn.presets.describe import facts_of, kind_text, value_text

    table = Table(show_lines=True)
    table.add_column("fact", overflow="fold")
    table.add_column("value", ratio=1, overflow="fold")
    table.add_column("known from", ratio=1, overflow="fold")
    facts = facts_of(preset)
    for fact in facts:
        if not fact.is_known:
            continue
        value = Text(value_text(fact.value), style="bold")
        if fact.evidence.note:
            value.append(f"\n{fact.evidence.note}", style="not bold")
        sources = fact.evidence.source.replace("; ", "\n")
        origin = Text(f"{kind_text(fact.evidence.kind)}, {fact.evidence.date}\n{sources}")
        table.add_row(Text(fact.key), value, origin)
    console = Console()
    console.print(Text(f"{preset.name}: {preset.title}", style="bold"))
    console.print(table)
    console.print(Text(_defaults(facts)))


def _print_plain(preset: Preset) -> None:
    """Each known fact with its value and where it is from, the defaults of all else at the end."""
    from everyturn.presets.describe import facts_of, kind_text, value_text

    facts = facts_of(preset)
    click.echo(f"{preset.name}: {preset.title}\n")
    for fact in facts:
        if not fact.is_known:
            continue
        click.echo(_wrapped(f"{fact.key}: {value_text(fact.value)}", "  "))
        if fact.evidence.note:
            click.echo(_wrapped(f"    {fact.evidence.note}", "    "))
        click.echo(f"    known from {kind_text(fact.evidence.kind)}, {fact.evidence.date}:")
        for source in fact.evidence.source.split("; "):
            click.echo(f"      {source}")
        click.echo("")
    click.echo(_wrapped(_defaults(facts), "  "))


def _defaults(facts: list[Fact]) -> str:
    """The facts that nobody knows, with the value that holds instead."""
    from everyturn.presets.describe import value_text

    rest = [f"{fact.key}: {value_text(fact.value)}" for fact in facts if not fact.is_known]
    return f"Not known, so the strict default holds: {'; '.join(rest) or 'nothing'}."


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
