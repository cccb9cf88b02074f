"""Groups of commands that load the module of a command only when it is used, and so start fast."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

Places = Mapping[str, tuple[str, str]]
"""Command → the module and the name it lives under."""


class LazyGroup(click.Group):
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
