"""`everyturn bench close`: keep what is worth keeping of a run, and delete the rest."""

from __future__ import annotations

from pathlib import Path

import click

from everyturn.bench.closing import close
from everyturn.cli.bench_run import or_exit


@click.command("close")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--curate",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where summary, manifest and representative rows go.",
)
@click.option("--rows", type=click.IntRange(0, 1000), default=20, show_default=True)
@click.option(
    "--archive",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the raw rows go, compressed, reasoning included; they are deleted without it.",
)
@click.option("--incomplete", is_flag=True, help="Close a run that has rows missing.")
def close_command(
    run: Path, curate: Path, rows: int, archive: Path | None, incomplete: bool
) -> None:
    """Close RUN: summary, manifest and the most telling rows move out, and the folder is deleted.

    What is kept holds no text of reasoning, only its lengths; an archive holds all of it. Exit
    status 0: closed; 1: refused; 2: bad use.
    """
    done = or_exit(
        lambda: close(run, curate, rows=rows, archive=archive, even_if_incomplete=incomplete)
    )
    click.echo(done.curated)
    if done.archived is not None:
        click.echo(done.archived)
