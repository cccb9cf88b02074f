"""`everyturn key`: API keys for the gateway."""

from __future__ import annotations

import click

from everyturn.cli.lazy import ToldGroup
from everyturn.config.keys import NAME
from everyturn.config.table import PERMISSIONS
from everyturn.gateway.auth import new_key


@click.group("key", cls=ToldGroup)
def key_command() -> None:
    """Make API keys for a gateway that others than this machine may use."""


class _Permissions(click.ParamType[tuple[str, ...]]):
    """A list of permissions with commas between."""

    name = "list"

    def convert(
        self,
        value: str | tuple[str, ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, ...]:
        """The permissions; ends the command with status 2 for an unknown one."""
        if isinstance(value, tuple):
            return value
        wanted = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        unknown = [name for name in wanted if name not in PERMISSIONS]
        if unknown or not wanted:
            known = ", ".join(PERMISSIONS)
            self.fail(
                f"{', '.join(unknown) or 'nothing'} is no permission; known: {known}.", param, ctx
            )
        return wanted


@key_command.command("new")
@click.argument("name")
@click.option(
    "--permissions",
    type=_Permissions(),
    default="call",
    show_default=True,
    help=f"What the key allows, with commas between: {', '.join(PERMISSIONS)}.",
)
def new_command(name: str, permissions: tuple[str, ...]) -> None:
    """Make a key for NAME: the key goes to stdout, its table for the configuration to stderr.

    The key is shown once and kept nowhere; the configuration gets its hash, by hand or with
    `2>> everyturn.toml`. Exit status 0: made; 2: NAME or a permission cannot be used.
    """
    if not NAME.fullmatch(name):
        raise click.BadParameter(
            "use small letters, digits and `-`, at most 63.", param_hint="NAME"
        )
    key, sha256 = new_key(name)
    listed = ", ".join(f'"{permission}"' for permission in permissions)
    click.echo(key)
    click.echo(
        "\n# Keep the key: it is not shown again. Add this to the configuration and restart.\n"
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256}"\npermissions = [{listed}]',
        err=True,
    )
