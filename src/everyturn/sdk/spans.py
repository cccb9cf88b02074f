"""Where code stands: in which turn, in which span of its trace. Kept in a context variable.

A span is entered with `with` or `async with`; what is entered inside is its child. Threads and
tasks that run at the same time have contexts of their own, so their turns never mix.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final

from everyturn import ids
from everyturn.sdk.plain import Payload
from everyturn.sdk.process import this_process

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

TURN_HEADER: Final = "x-everyturn-turn-id"
REQUEST_HEADER: Final = "x-request-id"
TRACE_HEADER: Final = "traceparent"
STATE_HEADER: Final = "tracestate"

SAMPLED: Final = 1
"""The flag of a trace that goes on here: it is recorded."""

MADE_HERE: Final = SAMPLED | 2
"""The flags of a trace that is made here: it is recorded, and its id is random."""


class Line:
    """The ids that everything in one turn shares, and how much happened in it."""

    __slots__ = (
        "_lock",
        "flags",
        "request_id",
        "retrievals",
        "state",
        "tools",
        "trace_id",
        "turn_id",
    )

    def __init__(
        self,
        *,
        turn_id: str | None,
        trace_id: str | None = None,
        request_id: str | None = None,
        flags: int | None = None,
        state: str | None = None,
    ) -> None:
        """turn_id: None outside of a turn: then nothing is recorded. Other ids are made."""
        self.turn_id = turn_id
        self.trace_id = trace_id or ids.trace_id(int.from_bytes(os.urandom(16)))
        self.request_id = request_id or ids.record_id("req", int.from_bytes(os.urandom(16)))
        self.flags = flags if flags is not None else SAMPLED if trace_id else MADE_HERE
        self.state = state
        self.tools = 0
        self.retrievals = 0
        self._lock = threading.Lock()

    def count_tool(self) -> None:
        """One more tool run; from any thread."""
        with self._lock:
            self.tools += 1

    def count_retrieval(self) -> None:
        """One more retrieval; from any thread."""
        with self._lock:
            self.retrievals += 1


class Span:
    """A piece of work with a span id of its own. Enter it once.

    `line.turn_id` is None for work outside of a turn.
    """

    __slots__ = ("_started", "_token", "line", "parent_span_id", "root", "span_id", "started_us")

    def __init__(self, line: Line, *, parent_span_id: str | None, root: Span | None = None) -> None:
        self.line = line
        self.span_id = ids.span_id(int.from_bytes(os.urandom(8)))
        self.parent_span_id = parent_span_id
        self.root = root if root is not None else self
        """The turn, the joined turn or the request that this belongs to."""
        self.started_us = time.time_ns() // 1000
        self._started = time.perf_counter()
        self._token: Token[Span | None] | None = None

    @property
    def id(self) -> str:
        """The turn's id; empty outside of a turn."""
        return self.line.turn_id or ""

    @property
    def trace_id(self) -> str:
        """The trace's id, 32 hex digits."""
        return self.line.trace_id

    def take_turn_id(self) -> str | None:
        """The turn id that was kept for a turn opened here, once; None if there is none."""
        return None

    @property
    def is_recording(self) -> bool:
        """Whether records that are made here join a turn."""
        return self.line.turn_id is not None

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left."""
        return self._token is not None

    def headers(self) -> dict[str, str]:
        """Headers that carry the ids to another service; this span is the parent there."""
        line = self.line
        headers = {
            TRACE_HEADER: f"00-{line.trace_id}-{self.span_id}-{line.flags:02x}",
            REQUEST_HEADER: line.request_id,
        }
        if line.turn_id is not None:
            headers[TURN_HEADER] = line.turn_id
        if line.state:
            headers[STATE_HEADER] = line.state
        return headers

    def envelope(self) -> dict[str, dict[str, str]]:
        """The ids for places where headers cannot go: a queue's message, a job's arguments."""
        line = self.line
        if line.turn_id is None:
            return {}
        return {
            "everyturn": {
                "turn_id": line.turn_id,
                "trace_id": line.trace_id,
                "request_id": line.request_id,
            }
        }

    def elapsed_ms(self) -> float:
        """Milliseconds since it was made."""
        return round((time.perf_counter() - self._started) * 1000, 3)

    def ids(self) -> dict[str, Any]:
        """The members that every record of this span has."""
        return {
            "turn_id": self.line.turn_id,
            "trace_id": self.line.trace_id,
            "span_id": self.span_id,
            "parent_span_id": self.parent_span_id,
            "timestamp": self.started_us,
        }

    def _opening(self) -> None:
        """Called before the span is entered; raises to refuse."""

    def _closing(self, failure: BaseException | None) -> None:
        """Called when the span is left; records it. Raises nothing."""

    def __enter__(self) -> Self:
        self._opening()
        self.started_us = time.time_ns() // 1000
        self._started = time.perf_counter()
        self._token = CURRENT.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                CURRENT.reset(token)
            except ValueError:
                # Left in another context than entered (a generator that was moved between
                # tasks): nothing is set there, unless it was copied from ours.
                if CURRENT.get() is self:
                    CURRENT.set(None)
        try:
            self._closing(failure)
        except Exception:  # noqa: BLE001 - recording must not break the application
            this_process().counters.add("records_failed")

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, failure, traceback)


_TEXTS: Final = frozenset(
    {
        "assistant_message_id",
        "chat_id",
        "environment",
        "error_code",
        "index_version",
        "instance",
        "label_primary_issue",
        "origin",
        "plugin",
        "profile",
        "project_id",
        "prompt_id",
        "prompt_version",
        "provider_call_id",
        "request_id",
        "reviewer",
        "rubric_version",
        "service",
        "target_service",
        "tool_name",
        "user_message_id",
        "variant",
    }
)
"""Fields of text that applications often have as numbers: keys of a database, versions, codes."""

CURRENT: Final[ContextVar[Span | None]] = ContextVar("everyturn_span", default=None)
"""The innermost span of this context."""

CAPTURE: Final[ContextVar[list[dict[str, Any]] | None]] = ContextVar(
    "everyturn_capture", default=None
)


def emit(log: str, fields: dict[str, Any]) -> None:
    """Make a record of the fields that are not None and hand it on. Never waits."""
    process = this_process()
    item: dict[str, Any] = {"log": log}
    payloads: list[bytes] = []
    for name, value in fields.items():
        if value.__class__ is Payload:
            payloads += [b',"', name.encode(), b'":', value]
        elif value is None:
            continue
        elif value.__class__ is not str and name in _TEXTS:
            item[name] = process.plain.text(value)
        else:
            item[name] = value
    record = process.plain.encode(item)
    if payloads:
        record = b"".join((record[:-1], *payloads, b"}"))
    captured = CAPTURE.get()
    if captured is not None:
        process.counters.add("captured")
        captured.append(json.loads(record))
        return
    process.put(record)


def recording_span() -> Span | None:
    """The innermost span of this context whose records join a turn; None where there is none."""
    span = CURRENT.get()
    return span if span is not None and span.is_recording else None


def new_id(prefix: str) -> str:
    """A record's id, which grows with time."""
    return ids.time_id(prefix, time.time_ns() // 1000, int.from_bytes(os.urandom(8)))


def current() -> Span | None:
    """The innermost span of this context: a turn, a tool run, a retrieval; None outside."""
    return CURRENT.get()


class capture:
    """`with everyturn.capture() as events:` keeps the records of this context in a list.

    For tests. Nothing captured is sent. Tasks started inside belong to it; threads do not, unless
    they run in a copy of the context. Captures that run at the same time never mix.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        self._token = CAPTURE.set(events)
        return events

    def __exit__(self, *_: object) -> None:
        CAPTURE.reset(self._token)
