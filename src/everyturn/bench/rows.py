"""Rows: one for each cell, model, item and epoch, and the one reader of them.

`Row` has no member for the text of reasoning, so whatever takes a `Row` cannot show it: judges,
summaries, reports, exports and pages all do. `FullRow` has it; only the writer makes one, and the
reader gives one only where it is asked to include the reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, overload

import msgspec
from msgspec import UNSET, UnsetType

from everyturn.bench.answer import ReasoningState, without_thoughts

Outcome = Literal[
    "ok",
    "length",
    "refused",
    "empty",
    "timeout",
    "provider_error",
    "limit_reached",
    "skipped_budget",
]
THOUGHTS: Final = "thoughts_in_text"
"""Flag of a row whose answer had thoughts in its text."""
OUTCOMES: Final = Outcome.__args__  # type: ignore[attr-defined]


class Key(NamedTuple):
    """What makes a row unique in its run."""

    cell: str
    model: str
    item_id: str
    epoch: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One call. step: which call of the row's conversation it was for; a retry has the same.

    cost: None where it is not known; `cost_bound` then counts against the budget.
    """

    step: int
    started_at: str
    latency_ms: float
    time_to_first_token_ms: float | None = None
    status: int | None = None
    outcome: Literal["answered", "timeout", "provider_error"]
    error_code: str | None = None
    finish_reason: str | None = None
    served_model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None
    cost_bound: float | None = None
    cache_hit: bool = False


class Row(msgspec.Struct, kw_only=True):
    """One terminal row, without the text of reasoning."""

    run_id: str
    cell: str
    model: str
    item_id: str
    epoch: int
    control: bool
    turn_id: str | None
    """The recorded turn; None for an answer from the cache, whose turn is `cached_from`."""
    trace_id: str | None
    cached_from: str | None = None
    outcome: Outcome
    error_code: str | None = None
    model_answer: str | None = None
    finish_reason: str | None = None
    requested_model: str
    served_model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None
    attempts: tuple[Attempt, ...] = ()
    time_to_first_token_ms: float | None = None
    latency_ms: float | None = None
    reasoning_content_chars: int | None = None
    """Code points of the reasoning on the row; None where it is null or absent."""
    reasoning_carrier: str | None = None
    reasoning_state: ReasoningState = "absent"
    scores: dict[str, float | None] = {}
    flags: tuple[str, ...] = ()
    retrieved: tuple[str, ...] = ()
    cluster: str | None = None
    category: str | None = None
    dataset_version: str | None = None
    started_at: str

    @property
    def key(self) -> Key:
        """What makes it unique."""
        return Key(self.cell, self.model, self.item_id, self.epoch)


class FullRow(Row, kw_only=True):
    """A row with the text of its reasoning; UNSET where there was none."""

    reasoning_content: str | UnsetType | None = UNSET


class _KeyOnly(msgspec.Struct):
    cell: str
    model: str
    item_id: str
    epoch: int
    outcome: str


_ENCODER: Final = msgspec.json.Encoder()
_KEYS: Final = msgspec.json.Decoder(_KeyOnly)
_ROWS: Final = msgspec.json.Decoder(Row)
_FULL_ROWS: Final = msgspec.json.Decoder(FullRow)


def encoded(row: FullRow) -> bytes:
    """A row as its line, with the line end."""
    return _ENCODER.encode(row) + b"\n"


def done_keys(path: Path) -> dict[Key, str]:
    """The keys that have a row, each with its outcome."""
    found: dict[Key, str] = {}
    for line in lines(path):
        row = _KEYS.decode(line)
        found[Key(row.cell, row.model, row.item_id, row.epoch)] = row.outcome
    return found


@overload
def read_rows(path: Path, *, include_reasoning: Literal[False] = False) -> Iterator[Row]: ...
@overload
def read_rows(path: Path, *, include_reasoning: Literal[True]) -> Iterator[FullRow]: ...
def read_rows(path: Path, *, include_reasoning: bool = False) -> Iterator[Row]:
    """The rows of a file, without the text of reasoning unless it is asked for.

    Thoughts that a model left in its text by tags are reasoning too. A torn last line, which only a
    crash leaves, is left out.
    """
    decoder: Any = _FULL_ROWS if include_reasoning else _ROWS
    for line in lines(path):
        row: Row = decoder.decode(line)
        if not include_reasoning and THOUGHTS in row.flags and row.model_answer:
            row.model_answer = without_thoughts(row.model_answer)[0]
        yield row


def lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a JSONL file; none where there is no file."""
    try:
        file = path.open("rb", buffering=1 << 20)
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.endswith(b"\n"):
                yield line
