"""`everyturn bench export`: a run for other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from everyturn.bench.exporting import FORMATS, inspect_logs, jsonl, write_jsonl
from everyturn.bench.parquet_export import write_parquet
from everyturn.bench.viewing import Joined
from everyturn.cli.bench_run import or_exit


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@click.option("--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="A file, or a folder for `inspect`.")
def export_command(run: Path, form: str, out: Path | None) -> None:
    """Write the rows of RUN as JSONL (to stdout without `--out`), Parquet, or Inspect AI's logs.

    Without reasoning. A file appears whole or not at all. Parquet needs `everyturn[parquet]`.
    Exit status 0: written; 1: there is no such run, or it cannot be written; 2: bad use.
    """
    joined = or_exit(lambda: Joined(run))
    if form == "inspect":
        if out is None:
            raise click.UsageError("Name a folder with `--out`.")
        folder = out
        for path in or_exit(lambda: inspect_logs(joined, folder)):
            click.echo(path)
        return
    if out is None:
        if form == "parquet":
            raise click.UsageError("Name a file with `--out`.")
        sys.stdout.buffer.writelines(jsonl(joined))
        sys.stdout.buffer.flush()
        return
    # What takes the place of a device or a pipe would destroy it.
    if out.exists() and not out.is_file():
        raise click.UsageError(f"{out} is no file.")
    file = out
    write = write_parquet if form == "parquet" else write_jsonl
    or_exit(lambda: write(joined, file))
