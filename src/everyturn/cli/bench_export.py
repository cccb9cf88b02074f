"""`everyturn bench export`: a run for other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from everyturn.bench.exporting import FORMATS, inspect_logs, jsonl
from everyturn.bench.viewing import Joined
from everyturn.cli.bench_run import or_exit


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@click.option("--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="A file, or a folder for `inspect`.")
def export_command(run: Path, form: str, out: Path | None) -> None:
    """Write the rows of RUN: `jsonl` (to stdout without `--out`), or logs for Inspect AI.

    Without reasoning. Exit status 0: written; 1: there is no such run; 2: bad use.
    """
    joined = or_exit(lambda: Joined(run))
    if form == "inspect":
        if out is None:
            raise click.UsageError("Name a folder with `--out`.")
        for path in inspect_logs(joined, out):
            click.echo(path)
        return
    if out is None:
        sys.stdout.buffer.writelines(jsonl(joined))
        sys.stdout.buffer.flush()
        return
    with out.open("wb") as file:
        file.writelines(jsonl(joined))
