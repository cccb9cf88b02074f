"""Groups of commands that load the module of a command only when it is used, and so start fast."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import click

_SENTENCE_MAX: Final = 200

Places = Mapping[str, tuple[str, str]]
"""Command → the module and the name it lives under."""


class ToldGroup(click.Group):
    """A group whose help says all of each command's first sentence, over lines where need be."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands; click's own cuts each sentence at the width of one line."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(_SENTENCE_MAX))
                    for name, command in commands
                    if command is not None
                ]
            )


class LazyGroup(ToldGroup):
    """A group whose commands are named, and imported when asked for."""

    def __init__(self, *args: Any, places: Places, **more: Any) -> None:
        super().__init__(*args, **more)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """The commands in the order in which they were named."""
        return list(self._places)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        cmd_name: str,
    ) -> click.Command | None:
        """The command of that name; None if there is none."""
        if cmd_name not in self._places:
            return None
        module, name = self._places[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command
