"""Where keys stand in a TOML text: the parser of the standard library does not say."""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.\"'-]+)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_\"'-]+(?:\s*\.\s*[A-Za-z0-9_\"'-]+)*)\s*=")


def key_lines(text: str) -> dict[str, int]:
    """Path of a table or key (`gateway.port`, `models[1].preset`) → its 1-based line.

    Keys inside inline tables and multi-line strings may be missed; whoever asks for one falls back
    to the line of what holds it.
    """
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            name = _plain(header[2])
            if header[1] == "[[":
                index = counts.get(name, -1) + 1
                counts[name] = index
                prefix = f"{name}[{index}]"
            else:
                first, _, rest = name.partition(".")
                prefix = f"{first}[{counts[first]}].{rest}" if first in counts and rest else name
            lines.setdefault(prefix, number)
            continue
        key = _KEY.match(line)
        if key:
            name = _plain(key[1])
            lines.setdefault(f"{prefix}.{name}" if prefix else name, number)
    return lines


def line_of(lines: dict[str, int], path: str) -> int:
    """The line of `path`, else of the nearest thing that holds it; 0 if none is known."""
    while path:
        if path in lines:
            return lines[path]
        path = path[: path.rindex("[")] if path.endswith("]") else path.rpartition(".")[0]
    return 0


def _plain(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
