"""How a run goes, for people: one line that changes in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Final, TextIO

from everyturn.bench.budget import Budget
from everyturn.bench.runner import Tally

TERMINAL_EVERY_S: Final = 0.25
PLAIN_EVERY_S: Final = 10.0


class Progress:
    """Writes to a stream; never to stdout, which is for data."""

    def __init__(self, out: TextIO, label: str = "rows") -> None:
        self._out = out
        self._label = label
        self._is_terminal = out.isatty()
        self._width = 0
        self._budget: Budget | None = None
        self.tally: Tally | None = None

    @property
    def every_s(self) -> float:
        """How often to call `show`."""
        return TERMINAL_EVERY_S if self._is_terminal else PLAIN_EVERY_S

    def began(self, tally: Tally, budget: Budget) -> None:
        """From now on show these."""
        self.tally, self._budget = tally, budget
        if tally.done_before:
            self.say(f"going on: {tally.done_before} of {tally.total} {self._label} are there")

    def say(self, text: str) -> None:
        """One line of its own."""
        self._clear()
        self._out.write(f"everyturn: {text}\n")
        self._out.flush()

    def show(self) -> None:
        """The line as it is now."""
        if self.tally is None:
            return
        text = self.line()
        if not self._is_terminal:
            self._out.write(f"everyturn: {text}\n")
            self._out.flush()
            return
        self._clear()
        self._out.write(text)
        self._width = len(text)
        self._out.flush()

    def end(self) -> None:
        """The last state, as a line of its own."""
        if self.tally is not None:
            self.say(self.line())

    def line(self) -> str:
        """Rows, rate, spend, time left, failures by kind."""
        tally = self.tally
        assert tally is not None
        done = tally.done_before + tally.done
        seconds = max(1e-9, time.monotonic() - tally.started)
        rate = tally.done / seconds
        parts = [f"{done} of {tally.total} {self._label}", f"{rate:.1f}/s"]
        if self._budget is not None and self._budget.spend.calls:
            cap = self._budget.cap
            amount = f"${self._budget.spend.total:.4f}"
            parts.append(amount if cap is None else f"{amount} of ${cap:.2f}")
        if tally.done and done < tally.total:
            parts.append(f"{_duration((tally.total - done) / rate)} left")
        parts += [
            f"{kind} {count}" for kind, count in sorted(tally.outcomes.items()) if kind != "ok"
        ]
        return "  ".join(parts)

    def _clear(self) -> None:
        if self._is_terminal and self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._width = 0


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
