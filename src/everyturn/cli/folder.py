"""The `--data` option: which record a command reads, and what is said when it cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from everyturn.errors import AuditUnavailable, ConfigError
from everyturn.store.reader import Reader

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT: Final = Path("everyturn-data")


def data_option(command: F) -> F:
    """Add `--data` to a command."""
    return click.option(
        "--data",
        type=click.Path(path_type=Path),
        envvar="EVERYTURN_DATA",
        default=DEFAULT,
        show_default=True,
        help="The data folder of the gateway; EVERYTURN_DATA names it too.",
    )(command)


@contextmanager
def told_failures() -> Iterator[None]:
    """Ends the command with status 1, and says why, when the record cannot be read."""
    try:
        yield
    except ConfigError as bad:
        for _, _, what, hint in bad.faults:
            click.echo(f"everyturn: {bad.path}: {what} {hint}", err=True)
        sys.exit(1)
    except AuditUnavailable as bad:
        click.echo(f"everyturn: {bad.message} {bad.hint}", err=True)
        sys.exit(1)


@contextmanager
def opened(folder: Path) -> Iterator[Reader]:
    """A reader of the record in a folder; ends the command with status 1 when there is none."""
    with told_failures(), Reader(folder) as reader:
        yield reader
