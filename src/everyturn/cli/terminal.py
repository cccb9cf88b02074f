"""What a terminal may be shown: text that a model wrote must not move a cursor or hide a word."""

from __future__ import annotations

import re
import sys
import unicodedata
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import click

from everyturn.wire.reader import write_text

if TYPE_CHECKING:
    from rich.table import Table

_BIDI: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}]")


def safe(text: str) -> str:
    """`text` with every control character visible as an escape; tabs and line feeds stay.

    Escape sequences, carriage returns, backspaces, bidirectional controls, separators of lines and
    lone surrogates could make a terminal show something else than what is recorded.
    """
    return _UNSAFE.sub(_shown, text)


def safe_line(text: str, length_max: int) -> str:
    """`safe`, on one line of at most `length_max` characters; a cut is marked with an ellipsis."""
    line = " ".join(safe(text).split())
    return line if len(line) <= length_max else line[: length_max - 1] + "…"


def json_line(value: Any) -> bytes:
    """A value as one line of JSON; what could do something to a terminal stands as JSON escapes."""
    text = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", write_text(value))
    return text.encode() + b"\n"


def width(text: str) -> int:
    """Columns that `text` takes on a terminal; East Asian wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def counted(number: int, word: str) -> str:
    """A number and what it counts: `1 model`, `2 models`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def print_table(table: Table, *, width: int, is_fitted: bool = True) -> None:
    """A table on stdout: on a terminal as wide as that is, else `width`, without blanks at ends.

    is_fitted: False lets a terminal break its lines where they end, so that no cell is cut.
    """
    from rich.console import Console

    if sys.stdout.isatty() and is_fitted:
        Console(highlight=False).print(table)
        return
    text = StringIO()
    Console(file=text, width=width, highlight=False).print(table)
    for line in text.getvalue().removesuffix("\n").split("\n"):
        click.echo(line.rstrip())


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
