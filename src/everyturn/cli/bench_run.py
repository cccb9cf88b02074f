"""`everyturn bench run`: begin a run, or go on with one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import NoReturn, TypeVar

import click
import msgspec

from everyturn.bench.cleaning import known_keys
from everyturn.bench.folder import RunRefused
from everyturn.bench.grid import Grid, read_grid
from everyturn.bench.plan import Plan
from everyturn.bench.progress import Progress
from everyturn.bench.runner import Tally
from everyturn.bench.session import Hooks, Options, plan, start
from everyturn.bench.tagging import tell_turns_to
from everyturn.cli.terminal import counted
from everyturn.config.files import read_file
from everyturn.config.lines import key_lines, line_of
from everyturn.errors import ConfigError

API_KEY: str = "EVERYTURN_API_KEY"
INTERRUPTED: int = 130

T = TypeVar("T")


@click.command("run")
@click.argument("grid", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="The run's folder.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first items of the selection.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Rows at once, at most.")
@click.option("--budget", type=str, help="US dollars, at most; judging included.")
@click.option("--dry-run", is_flag=True, help="Say what would be done and what it may cost.")
def run_command(
    grid: Path,
    out: Path | None,
    limit: int | None,
    concurrency: int | None,
    budget: str | None,
    dry_run: bool,
) -> None:
    """Ask every model about every item of GRID, in every cell; rows go to the folder `--out`.

    The same command goes on after a crash. Ctrl-C once finishes the rows under way, twice stops at
    once. The gateway's key comes from EVERYTURN_API_KEY. Exit status 0: complete; 1: refused, or
    stopped by a bound; 2: bad use; 130: interrupted.
    """
    wanted = changed(load_grid(grid), concurrency=concurrency, budget=budget)
    options = run_options(limit, wanted.gateway)
    if dry_run:
        _tell(wanted, or_exit(lambda: asyncio.run(plan(wanted, options))))
        return
    if out is None:
        raise click.UsageError("Name the run's folder with `--out`.")
    progress = Progress(sys.stderr)

    async def work(stop: asyncio.Event) -> Tally:
        return await start(wanted, out, options, stop, Hooks(progress.began, progress.say))

    tally, was_interrupted = or_exit(lambda: asyncio.run(watched(work, progress)))
    if was_interrupted:
        click.echo("everyturn: stopped; the same command goes on.", err=True)
        sys.exit(INTERRUPTED)
    if tally is not None and tally.stop_reason is not None:
        click.echo(
            f"everyturn: stopped by `run.{tally.stop_reason}`; raise it and start again to go on.",
            err=True,
        )
        sys.exit(1)
    click.echo(f"everyturn: complete; `everyturn bench report {out}` sums it up.", err=True)


def load_grid(path: Path) -> Grid:
    """The grid of a file; ends the command with status 2 where it cannot be used."""
    return load(path, read_grid)


def load(path: Path, read: Callable[[str, str, Callable[[str], int]], T]) -> T:
    """What `read` makes of a file's text; ends the command with status 2 where it cannot be used.

    read: gets the text, the path and what tells the line of a key, and raises ConfigError.
    """
    try:
        text = read_file(path)
    except (OSError, UnicodeDecodeError) as failure:
        refuse(f"{path} cannot be read: {failure}", 2)
    lines = key_lines(text)
    try:
        return read(text, str(path), lambda key: line_of(lines, key))
    except ConfigError as bad:
        refuse(str(bad), 2)


def run_options(limit: int | None = None, gateway: str | None = None) -> Options:
    """What the environment brings; turns are tagged where the gateway can be told of them."""
    key = os.environ.get(API_KEY) or None
    return Options(
        limit=limit,
        api_key=key,
        known=tuple(known_keys(os.environ, key)),
        tags_turns=gateway is not None and tell_turns_to(gateway, key),
    )


def or_exit(work: Callable[[], T]) -> T:
    """Do it; ends the command with status 1 and a message where it is refused."""
    try:
        return work()
    except ConfigError as bad:
        refuse(str(bad), 1)
    except RunRefused as refused:
        refuse(str(refused), 1)
    except OSError as failure:
        where = "" if failure.filename is None else f"{failure.filename}: "
        refuse(f"{where}{failure.strerror or failure}", 1)


def refuse(text: str, status: int) -> NoReturn:
    """Say why on stderr and end."""
    for line in text.splitlines():
        click.echo(f"everyturn: {line}", err=True)
    sys.exit(status)


async def watched(
    work: Callable[[asyncio.Event], Awaitable[T]], progress: Progress
) -> tuple[T | None, bool]:
    """Run it with progress; Ctrl-C once sets its event, twice cancels it.

    Its result (None if it was cancelled), and whether somebody interrupted it.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.ensure_future(work(stop))
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            stop.set()
            progress.say("finishing what is under way; Ctrl-C again stops at once")
        else:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, pressed)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=progress.every_s)
            if not task.done():
                progress.show()
        progress.end()
        return task.result(), presses > 0
    except asyncio.CancelledError:
        return None, True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def changed(
    grid: Grid,
    *,
    concurrency: int | None = None,
    budget: str | None = None,
    gateway: str | None = None,
) -> Grid:
    """The grid with what the command line says."""
    new: dict[str, object] = {}
    if concurrency is not None:
        new["concurrency"] = concurrency
    if gateway is not None:
        new["gateway"] = gateway.rstrip("/")
    if budget is not None:
        try:
            amount = Decimal(budget)
        except ArithmeticError as bad:
            raise click.BadParameter("is no amount", param_hint="--budget") from bad
        if not amount.is_finite() or amount < 0:
            raise click.BadParameter("is no amount", param_hint="--budget")
        new["budget"] = amount
    return msgspec.structs.replace(grid, **new)


def _tell(grid: Grid, made: Plan) -> None:
    models = ", ".join(model.name for model in grid.models)
    cells = ", ".join(cell.name + (" (control)" if cell.control else "") for cell in grid.cells)
    click.echo(
        f"grid    {grid.name}: {counted(len(grid.cells), 'cell')},"
        f" {counted(len(grid.models), 'model')}"
    )
    click.echo(f"cells   {cells}")
    click.echo(f"models  {models}")
    click.echo(f"epochs  {grid.epochs}")
    click.echo(f"rows    {made.rows}")
    click.echo(f"calls   {made.calls} at most")
    worst = "not known: a price or `max_tokens` is missing"
    if made.worst is not None:
        worst = f"${made.worst:.4f} at worst"
    click.echo(f"price   {worst}")
    if grid.budget is not None:
        click.echo(f"budget  ${grid.budget:.4f}")
        if made.worst is not None and made.worst > grid.budget:
            made.notes.append("rows that do not fit the budget become `skipped_budget`")
    for note in made.notes:
        click.echo(f"note    {note}")
    for refusal in made.refusals:
        click.echo(f"refused {refusal}")
    if made.refusals:
        sys.exit(1)
