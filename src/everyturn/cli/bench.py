"""`everyturn bench`: runs of models, prompts and routes against each other."""

from __future__ import annotations

from typing import Final

import click

from everyturn.cli.lazy import LazyGroup, Places

COMMANDS: Final[Places] = {
    "run": ("everyturn.cli.bench_run", "run_command"),
    "judge": ("everyturn.cli.bench_judge", "judge_command"),
    "report": ("everyturn.cli.bench_report", "report_command"),
    "compare": ("everyturn.cli.bench_compare", "compare_command"),
    "rows": ("everyturn.cli.bench_rows", "rows_command"),
    "export": ("everyturn.cli.bench_export", "export_command"),
    "close": ("everyturn.cli.bench_close", "close_command"),
}


@click.group("bench", cls=LazyGroup, places=COMMANDS)
def bench_command() -> None:
    """Run models, prompts and routes against each other on the same items.

    A run is a folder. It can be killed at any moment and resumed with the same command.
    """
