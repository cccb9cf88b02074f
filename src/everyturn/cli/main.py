"""`everyturn`: the command line. Each command is a module, loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import Final

import click

from everyturn import __version__

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "serve": ("everyturn.cli.serve", "serve_command"),
    "mock": ("everyturn.cli.mock", "mock_command"),
    "turns": ("everyturn.cli.turns", "turns_command"),
    "show": ("everyturn.cli.show", "show_command"),
    "find": ("everyturn.cli.find", "find_command"),
    "failures": ("everyturn.cli.failures", "failures_command"),
    "export": ("everyturn.cli.export", "export_command"),
    "presets": ("everyturn.cli.presets", "presets_command"),
    "check": ("everyturn.cli.check", "check_command"),
    "key": ("everyturn.cli.key", "key_command"),
    "bench": ("everyturn.cli.bench", "bench_command"),
    "worker": ("everyturn.cli.worker", "worker_command"),
    "redact-scan": ("everyturn.cli.redact_scan", "redact_scan_command"),
}
"""Command → the module and the name it lives under."""


class _Lazy(click.Group):
    """Loads a command's module only when that command is used, so that each starts fast."""

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


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="everyturn")
def main() -> None:
    """Keep every turn of an LLM application whole: a gateway and a record.

    Start with `everyturn serve --config everyturn.toml`, point an OpenAI SDK at
    http://127.0.0.1:8080/v1, and read what happened with `everyturn turns` and `everyturn show`.
    """


if __name__ == "__main__":
    main()
