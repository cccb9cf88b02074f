"""Records and groups for tests of the store, each with as little as it needs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from everyturn.audit import schema
from everyturn.audit.content import Clean, ContentIndex, Reference
from everyturn.audit.group import Group
from everyturn.audit.records import (
    AccessEvent,
    ModelCall,
    QualityReview,
    RetrievalEvent,
    ToolCall,
    TurnAudit,
)
from everyturn.audit.redact import NONE_FOUND, Redacted
from everyturn.store.sqlite import SqliteStore

START = 1_764_000_000_000_000
_numbers = itertools.count(1)


def start_numbers_at(first: int) -> None:
    """Make ids that no other process makes."""
    global _numbers
    _numbers = itertools.count(first)


def a_turn_id(number: int | None = None) -> str:
    """A UUID version 4 that differs from the others in its first characters."""
    number = next(_numbers) if number is None else number
    mixed = (number * 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
    text = f"{mixed:016x}{number:016x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"


def a_turn(**fields: Any) -> TurnAudit:
    """An open turn."""
    return TurnAudit(**{"turn_id": a_turn_id(), "timestamp": START, **fields})


def a_call(turn: TurnAudit, **fields: Any) -> ModelCall:
    """An open call of a turn."""
    number = next(_numbers)
    given = {
        "model_call_id": f"call_{number:032x}",
        "turn_id": turn.turn_id,
        "timestamp": START + number,
        **fields,
    }
    return ModelCall(**given)


def an_access(turn: TurnAudit | None = None, **fields: Any) -> AccessEvent:
    """An access event."""
    number = next(_numbers)
    given = {
        "access_id": f"acc_{number:032x}",
        "timestamp": START + number,
        "turn_id": None if turn is None else turn.turn_id,
        **fields,
    }
    return AccessEvent(**given)


def a_tool_call(turn: TurnAudit, **fields: Any) -> ToolCall:
    """A run of a tool in a turn."""
    number = next(_numbers)
    given = {
        "tool_call_id": f"tool_{number:032x}",
        "turn_id": turn.turn_id,
        "timestamp": START + number,
        "tool_family": "internal",
        "tool_name": "add",
        "status": "ok",
        **fields,
    }
    return ToolCall(**given)


def a_retrieval(turn: TurnAudit, **fields: Any) -> RetrievalEvent:
    """A search in a turn."""
    number = next(_numbers)
    given = {
        "retrieval_id": f"ret_{number:032x}",
        "turn_id": turn.turn_id,
        "timestamp": START + number,
        **fields,
    }
    return RetrievalEvent(**given)


def a_review(turn: TurnAudit, **fields: Any) -> QualityReview:
    """A review of a turn."""
    number = next(_numbers)
    given = {
        "review_id": f"rev_{number:032x}",
        "turn_id": turn.turn_id,
        "created_at": START + number,
        "review_source": "human",
        **fields,
    }
    return QualityReview(**given)


def closed_turn(turn: TurnAudit, **fields: Any) -> TurnAudit:
    """The next revision of a turn, closed."""
    given = {"outcome": "success", "revision": turn.revision + 1, **fields}
    return msgspec.structs.replace(turn, **given)


def closed_call(call: ModelCall, **fields: Any) -> ModelCall:
    """The next revision of a call, closed."""
    given = {"stream_state": "whole", "revision": call.revision + 1, **fields}
    return msgspec.structs.replace(call, **given)


def as_is(raw: bytes) -> Redacted[str]:
    """A cleaner that finds nothing."""
    return Redacted(raw.decode("utf-8"), NONE_FOUND)


def an_index(**fields: Any) -> ContentIndex:
    """A content index that knows nothing yet."""
    return ContentIndex("rules-1", **fields)


def group_of(
    turn: TurnAudit, index: ContentIndex, messages: Sequence[bytes], clean: Clean = as_is
) -> tuple[Group, ModelCall]:
    """A turn that opens with one call that sends these messages; and that call."""
    sent: Reference = index.refer(messages, clean)
    call = a_call(turn, prompt_messages_json=sent.ref)
    group = Group((turn, call), contents=sent.contents, nodes=sent.nodes, known=sent.known)
    return group, call


def all_records(store: SqliteStore) -> list[object]:
    """Everything in a store, log by log."""
    return [record for log in schema.LOGS for record in store.scan(log.type)]


def bytes_of(folder: Path) -> bytes:
    """The bytes of all files in a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
