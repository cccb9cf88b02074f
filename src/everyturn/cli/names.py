"""An option that takes some of a closed set of names, with commas between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click


class Names(click.ParamType[tuple[str, ...]]):
    """Names of a closed set, in the order in which they were written, each once."""

    name = "names"

    def __init__(self, known: Iterable[str]) -> None:
        self._known = tuple(known)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names; ends the command with status 2 when one is unknown, or there is none."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(n.strip() for n in str(value).split(",") if n.strip()))
        if not names or not set(names) <= set(self._known):
            self.fail(f"{value!r}: write some of {','.join(self._known)}.", param, ctx)
        return names
