"""`everyturn bench`: runs of models, prompts and routes against each other."""

from __future__ import annotations

import importlib
from typing import Final

import click

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("everyturn.cli.bench_run", "run_command"),
    "judge": ("everyturn.cli.bench_judge", "judge_command"),
    "report": ("everyturn.cli.bench_report", "report_command"),
    "compare": ("everyturn.cli.bench_compare", "compare_command"),
    "rows": ("everyturn.cli.bench_rows", "rows_command"),
    "export": ("everyturn.cli.bench_export", "export_command"),
    "close": ("everyturn.cli.bench_close", "close_command"),
}
"""Command → the module and the name it lives under."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group("bench", cls=_Lazy)
def bench_command() -> None:
    """Run models, prompts and routes against each other on the same items.

    A run is a folder. It can be killed at any moment and resumed with the same command.
    """
