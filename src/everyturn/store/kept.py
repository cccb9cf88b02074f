"""Reasoning texts at rest: written with their marks, read by permission, gone after their time.

`read` is the one function through which a text comes back, whoever asks: the HTTP API, `show`, an
export of one's own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import apsw
import msgspec

from everyturn.audit import columns as text_columns
from everyturn.audit.reasoning import MARK
from everyturn.audit.records import ReasoningText
from everyturn.errors import NotPermitted
from everyturn.store.erasure import wipe

PERMISSION: Final = "reasoning"
LOCAL_OPERATOR: Final = frozenset({PERMISSION})
"""What a person may do who can read the data folder: anything."""

EXPIRY_SECONDS: Final = 600.0
"""Between two looks for texts whose time is over; until they are deleted, nobody reads them."""
_RETRY_SECONDS: Final = 5.0
_SLICE_ROWS: Final = 64

_NAMES: Final = tuple(field.name for field in msgspec.structs.fields(ReasoningText))
_COLUMNS: Final = ",".join("turn_key" if name == "turn_id" else name for name in _NAMES)
_CHANGES: Final = _COLUMNS.replace("reasoning_id,", "", 1).split(",")
_INSERT_SQL: Final = (
    f"INSERT INTO reasoning_texts_rows ({_COLUMNS}) VALUES ({','.join('?' * len(_NAMES))})"
    " ON CONFLICT (reasoning_id) DO UPDATE SET "
    + ",".join(f"{name}=excluded.{name}" for name in _CHANGES)
    # One that expired and still stands gives way; any other is the same text already.
    + " WHERE reasoning_texts_rows.expires_at <= excluded.timestamp"
)
_DELETE_SQL: Final = (
    "DELETE FROM reasoning_texts_rows WHERE reasoning_id IN (SELECT reasoning_id FROM"
    f" reasoning_texts_rows WHERE expires_at <= ? LIMIT {_SLICE_ROWS})"
)

_REF: Final = re.compile(
    rf'"{MARK}":\{{[^{{}}]*"ref":"([0-9a-f]{{32}})"|\[reasoning:[0-9]+ chars:([0-9a-f]{{32}})\]'
)
"""A mark of a kept text, in the compact JSON that records hold. Nothing in it nests or overlaps."""


def values_of(text: ReasoningText, turn_key: int) -> list[Any]:
    """The row of a text, for `insert`."""
    row = list(msgspec.structs.astuple(text))
    row[_NAMES.index("turn_id")] = turn_key
    for name in ("carrier", "text"):
        at = _NAMES.index(name)
        row[at] = text_columns.escape(row[at])
    return row


def insert(db: apsw.Connection, rows: Sequence[list[Any]]) -> None:
    """Write rows in the open transaction; a text that is kept already stays as it is."""
    for row in rows:
        db.execute(_INSERT_SQL, row)


def read(
    db: apsw.Connection, calls: Iterable[Mapping[str, Any]], permissions: Collection[str]
) -> list[dict[str, Any]]:
    """The kept texts whose marks stand in these rows, in order of their first mark.

    What expired or was erased is left out. Raises NotPermitted without the permission.
    """
    if PERMISSION not in permissions:
        raise NotPermitted(
            f"reasoning is read with the permission `{PERMISSION}`",
            param="include_reasoning",
            hint=f"Leave it out, or ask the operator for a key with `{PERMISSION}`.",
        )
    now = time.time_ns() // 1_000
    found: list[dict[str, Any]] = []
    columns = ("prompt_messages_json", "response_json")
    for ref in refs_in(*(call[column] or "" for call in calls for column in columns)):
        row = db.execute(
            f"SELECT {','.join(_NAMES)} FROM reasoning_texts"
            " WHERE reasoning_id = ? AND expires_at > ?",
            (ref, now),
        ).fetchone()
        if row is not None:
            found.append(_as_read(row))
    return found


def refs_in(*texts: str) -> list[str]:
    """What the marks in JSON texts name, each once, in order."""
    marks = (mark for text in texts for mark in _REF.finditer(text))
    return list(dict.fromkeys(mark[1] or mark[2] for mark in marks))


def _as_read(row: tuple[Any, ...]) -> dict[str, Any]:
    values = dict(zip(_NAMES, row, strict=True))
    for name in ("carrier", "text"):
        values[name] = text_columns.unescape(values[name])
    for name in ("is_encrypted", "redaction_applied"):
        values[name] = bool(values[name])
    return values


class Expiry:
    """Deletes texts whose time is over, a slice at a time, and wipes them from the log."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._next_at = 0.0
        self._is_wipe_due = False

    def run(self) -> bool:
        """Delete a slice, when it is time to look; whether more is left."""
        if time.monotonic() < self._next_at:
            return False
        with self._db:
            self._db.execute(_DELETE_SQL, (time.time_ns() // 1_000,))
            deleted = self._db.changes()
        self._is_wipe_due = self._is_wipe_due or deleted > 0
        if deleted == _SLICE_ROWS:
            return True
        self._next_at = time.monotonic() + (EXPIRY_SECONDS if self._wipe() else _RETRY_SECONDS)
        return False

    def _wipe(self) -> bool:
        """Empty the write-ahead log, which may hold what was deleted; False: somebody reads."""
        if self._is_wipe_due:
            try:
                wipe(self._db)
            except apsw.BusyError:
                return False
            self._is_wipe_due = False
        return True
