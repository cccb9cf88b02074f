"""`everyturn bench judge`: ask models whether the answers of a run are right."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from everyturn.bench.judge_run import judge
from everyturn.bench.judging import Judging, read_judging
from everyturn.bench.manifest import read_manifest
from everyturn.bench.progress import Progress
from everyturn.bench.runner import Tally
from everyturn.bench.session import Hooks
from everyturn.cli.bench_run import (
    INTERRUPTED,
    changed,
    load,
    or_exit,
    run_options,
    watched,
)


@click.command("judge")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--judges",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A TOML file of judges.",
)
@click.option("--gateway", help="Another gateway than the run's, with `/v1`.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Rows at once, at most.")
@click.option("--budget", type=str, help="US dollars, at most, what the run has spent included.")
def judge_command(
    run: Path, judges: Path, gateway: str | None, concurrency: int | None, budget: str | None
) -> None:
    """Judge the answers of RUN; what is judged already stays.

    A judge sees question, expected answers and answer, never the reasoning. Exit status 0: done;
    1: refused, or some rows did not fit the budget; 2: bad use; 130: interrupted.
    """
    judging = load_judging(judges)
    manifest = or_exit(lambda: read_manifest(run))
    grid = changed(manifest.grid, concurrency=concurrency, budget=budget, gateway=gateway)
    progress = Progress(sys.stderr, "rows judged")

    async def work(stop: asyncio.Event) -> Tally:
        hooks = Hooks(progress.began, progress.say)
        return await judge(run, judging, grid, run_options(gateway=grid.gateway), stop, hooks)

    tally, was_interrupted = or_exit(lambda: asyncio.run(watched(work, progress)))
    if was_interrupted:
        click.echo("everyturn: stopped; the same command goes on.", err=True)
        sys.exit(INTERRUPTED)
    if tally is not None and tally.done_before + tally.done < tally.total:
        click.echo("everyturn: the budget has no room for more; raise it to go on.", err=True)
        sys.exit(1)


def load_judging(path: Path) -> Judging:
    """The judging of a file; ends the command with status 2 where it cannot be used."""
    return load(path, read_judging)
