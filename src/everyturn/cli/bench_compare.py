"""`everyturn bench compare`: what the difference of two runs is worth."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from everyturn.bench.comparing import Gate, Place, compare_runs
from everyturn.bench.folder import RunRefused
from everyturn.cli.bench_run import or_exit, refuse


@click.command("compare")
@click.argument("first", type=click.Path(path_type=Path, file_okay=False))
@click.argument("second", type=click.Path(path_type=Path, file_okay=False))
@click.option("--metric", help="A scorer, or `judged`; the first scorer by default.")
@click.option("--from", "place_a", help="CELL/MODEL of the first run, with `--to`.")
@click.option("--to", "place_b", help="CELL/MODEL of the second run, which may be the same run.")
@click.option(
    "--gate",
    multiple=True,
    help='Such as "difference > -0.02"; `low`, `high` and `worst` too. May be given again.',
)
@click.option("--json", "as_json", is_flag=True, help="All figures as JSON.")
def compare_command(
    first: Path,
    second: Path,
    metric: str | None,
    place_a: str | None,
    place_b: str | None,
    gate: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare SECOND against FIRST, paired by item, in each cell and model they share.

    Exit status 0: compared, and every gate holds; 1: a gate does not hold, or there is nothing to
    compare; 2: bad use.
    """
    try:
        gates = [Gate.parse(text) for text in gate]
    except RunRefused as bad:
        refuse(str(bad), 2)
    if (place_a is None) != (place_b is None):
        raise click.UsageError("`--from` and `--to` go together.")
    places = None if place_a is None or place_b is None else (_place(place_a), _place(place_b))
    found = or_exit(lambda: compare_runs(first, second, metric, places))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        sys.stdout.buffer.flush()
    else:
        for pair in found["pairs"]:
            click.echo(pair["sentence"])
    if not found["same_data"]:
        click.echo("everyturn: the runs had different data files; paired by `item_id`.", err=True)
    failed = [(one, pair) for one in gates for pair in found["pairs"] if not one.holds(pair)]
    for one, pair in failed:
        place = f"{pair['second']['model']} in {pair['second']['cell']}"
        click.echo(f"everyturn: gate `{one.text}` does not hold for {place}.", err=True)
    sys.exit(1 if failed else 0)


def _place(text: str) -> Place:
    cell, slash, model = text.partition("/")
    if not slash or not cell or not model:
        raise click.UsageError(f"`{text}` is not CELL/MODEL.")
    return cell, model
