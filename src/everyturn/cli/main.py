"""`everyturn`: the command line. Each command is a module, loaded when it is asked for."""

from __future__ import annotations

from typing import Any, Final

import click

from everyturn import __version__
from everyturn.cli import streams
from everyturn.cli.lazy import LazyGroup, Places

COMMANDS: Final[Places] = {
    "serve": ("everyturn.cli.serve", "serve_command"),
    "mock": ("everyturn.cli.mock", "mock_command"),
    "turns": ("everyturn.cli.turns", "turns_command"),
    "show": ("everyturn.cli.show", "show_command"),
    "find": ("everyturn.cli.find", "find_command"),
    "failures": ("everyturn.cli.failures", "failures_command"),
    "export": ("everyturn.cli.export", "export_command"),
    "import": ("everyturn.cli.import_spans", "import_command"),
    "presets": ("everyturn.cli.presets", "presets_command"),
    "check": ("everyturn.cli.check", "check_command"),
    "key": ("everyturn.cli.key", "key_command"),
    "bench": ("everyturn.cli.bench", "bench_command"),
    "worker": ("everyturn.cli.worker", "worker_command"),
    "redact-scan": ("everyturn.cli.redact_scan", "redact_scan_command"),
}


class _Everyturn(LazyGroup):
    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command, its standard streams in order."""
        streams.prepare()
        with streams.told_when_lost():
            return super().main(*arguments, **settings)


@click.group(
    cls=_Everyturn, places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="everyturn")
def main() -> None:
    """Keep every turn of an LLM application whole: a gateway and a record.

    Start with `everyturn serve --config everyturn.toml`, point an OpenAI SDK at
    http://127.0.0.1:8080/v1, and read what happened with `everyturn turns` and `everyturn show`.
    Without a provider, `everyturn mock` is one.
    """


if __name__ == "__main__":
    main()
