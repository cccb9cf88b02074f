"""Log lines: one JSON object an event on stderr, ids and counts only, never content.

Fields come from a closed set, so that no one can log a prompt, a header or a URL by mistake; an
exception is told by its type and the places it passed, not by its text, which may hold anything.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from datetime import UTC, datetime
from threading import get_ident
from typing import BinaryIO, Final

import msgspec

FIELDS: Final = frozenset(
    {
        "turn_id",
        "model_call_id",
        "request_id",
        "trace_id",
        "reasoning_chars",
        "status_code",
        "error_code",
        "outcome",
        "duration_ms",
        "count",
        "host",
        "port",
        "models",
        "data",
        "exception",
        "places",
        "reason",
        "version",
        "worker",
    }
)
"""All names a log line may have beside `timestamp` and `event`."""

_ENCODER: Final = msgspec.json.Encoder()

_FRACTIONS: Final = [f".{milliseconds:03}Z" for milliseconds in range(1000)]
"""Of a second, as a line has them."""

Value = str | int | float | None | list[str]


class Log:
    """Writes log lines; `is_on = False` writes none."""

    def __init__(self, *, is_on: bool = True, out: BinaryIO | None = None) -> None:
        self._is_on = is_on
        self._out = out if out is not None else sys.stderr.buffer
        self.lines_lost = 0
        """Lines that could not be written; nothing else can be done about a closed stderr."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        """The thread of the loop, where lines are gathered."""
        self._lines: list[bytes] = []
        self._second = -1
        self._second_text = ""
        """The second of the latest line, as it is written."""

    def __call__(self, event: str, **fields: Value) -> None:
        """Write one line. Raises ValueError for a field that is not in FIELDS."""
        for name in fields:
            if name not in FIELDS:
                unknown = ", ".join(sorted(fields.keys() - FIELDS))
                raise ValueError(f"not a field of a log line: {unknown}")
        if not self._is_on:
            return
        line: dict[str, Value] = {"timestamp": self._now(), "event": event}
        line.update(fields)
        text = _ENCODER.encode(line)
        if self._loop is None or get_ident() != self._loop_thread:
            self._write([text])
            return
        if not self._lines:
            self._loop.call_soon(self._write_gathered)
        self._lines.append(text)

    def gather(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """From here on, write the lines of one round of this loop together, in the next: to write
        each costs a call of the system. None: each at once again. Call it in the loop's thread."""
        self._write_gathered()
        self._loop = loop
        self._loop_thread = get_ident()

    def _write_gathered(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self._write(lines)

    def _write(self, lines: list[bytes]) -> None:
        try:
            self._out.write(b"\n".join(lines) + b"\n")
            self._out.flush()
        except (OSError, ValueError):
            self.lines_lost += len(lines)

    def _now(self) -> str:
        second, rest = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._second_text = datetime.fromtimestamp(second, UTC).isoformat()[:19]
            self._second = second
        return self._second_text + _FRACTIONS[rest // 1_000_000]

    def bug(self, event: str, bug: BaseException, **fields: Value) -> None:
        """Write one line about an unexpected exception: its type and where it passed."""
        places = [
            f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(bug.__traceback__)
        ]
        self(event, exception=type(bug).__name__, places=places[-8:], **fields)
