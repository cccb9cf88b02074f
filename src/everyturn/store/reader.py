"""Read a store while a gateway writes it: turns in lists, and one turn whole.

Opens the file read-only and never waits for the writer (WAL). Reads through the views that carry
the contract's names, so what is read here is what any SQL tool reads.

Shapes: a row is a dict with the fields of `audit.records` in their order; `timestamp` is RFC 3339
in UTC with milliseconds, `*_json` fields hold the JSON value itself, number texts included (write
them with `wire.reader.write`), booleans are booleans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import apsw

from everyturn.audit import schema
from everyturn.audit.columns import unescape
from everyturn.audit.schema import Column, Log
from everyturn.ids import is_turn_id
from everyturn.store.base import StoreFailure, StoreRefused
from everyturn.store.folder import DATABASE_NAME
from everyturn.wire.reader import Malformed, read_provider

PREFIX_CHARS_MIN: Final = 6
"""The fewest characters by which a turn may be named."""
_BUSY_MS: Final = 2_000


class TurnUnclear(Exception):
    """The beginning of a turn id that several turns share; `candidates` has some of them."""

    def __init__(self, prefix: str, candidates: Sequence[str]) -> None:
        super().__init__(f"{prefix} is the beginning of several turn ids")
        self.prefix = prefix
        self.candidates = tuple(candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilter:
    """Which turns to list; None asks for nothing."""

    since_us: int | None = None
    """Turns that opened at or after this, in microseconds since 1970."""
    model: str | None = None
    """The model a client asked for, or the name the provider served."""
    outcome: str | None = None
    limit: int = 50


class Reader:
    """Reads one data folder. A context manager; use from one thread."""

    def __init__(self, folder: Path | str) -> None:
        """Raises StoreRefused when the folder has no store, or one of a newer everyturn."""
        path = Path(folder) / DATABASE_NAME
        if not path.exists():
            raise StoreRefused(
                str(folder),
                "There is no record in this folder.",
                "Name the data folder of a gateway with --data or EVERYTURN_DATA.",
            )
        try:
            self._db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            self._db.set_busy_timeout(_BUSY_MS)
            (number,) = next(iter(self._db.execute("SELECT max(number) FROM migrations")))
        except apsw.Error as failure:
            raise StoreRefused(
                str(path),
                f"The file cannot be read: {type(failure).__name__}.",
                "Check that it is the database of a gateway and that you may read it.",
            ) from failure
        if int(number or 0) > schema.MIGRATION_LAST:
            self._db.close()
            raise StoreRefused(
                str(path), "The record is of a newer everyturn.", "Read it with that version."
            )

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def turns(self, wanted: TurnFilter) -> list[dict[str, Any]]:
        """Turns, the newest first, each with `model_calls`: what a list needs of its calls."""
        where: list[str] = ["1"]
        values: list[Any] = []
        if wanted.since_us is not None:
            where.append("t.timestamp >= ?")
            values.append(wanted.since_us)
        if wanted.outcome is not None:
            where.append("t.outcome = ?")
            values.append(wanted.outcome)
        if wanted.model is not None:
            where.append(
                "EXISTS (SELECT 1 FROM model_calls m WHERE m.turn_id = t.turn_id"
                " AND ? IN (m.requested_model, m.served_model_name))"
            )
            values.append(wanted.model)
        log = _log("turn_audit")
        names = ", ".join(f"t.{column.name}" for column in log.columns)
        rows = self._rows(
            log,
            f"SELECT {names} FROM turn_audit t WHERE {' AND '.join(where)}"
            " ORDER BY t.timestamp DESC LIMIT ?",
            [*values, wanted.limit],
        )
        for row in rows:
            row["model_calls"] = self._call_summaries(row["turn_id"])
        return rows

    def turn(self, turn_id: str) -> dict[str, Any] | None:
        """One turn with everything that belongs to it; None if there is none.

        turn_id: whole, or the beginning of one (at least PREFIX_CHARS_MIN characters). Gives
        `turn_id`, `turn`, `access_events` and `model_calls`, each list in time order. Raises
        TurnUnclear when several turns begin so.
        """
        whole = self._whole_id(turn_id)
        if whole is None:
            return None
        found: dict[str, Any] = {"turn_id": whole}
        for log in schema.LOGS:
            rows = self._of_turn(log, whole)
            if log.is_turn:
                found["turn"] = rows[0] if rows else None
            else:
                found[log.name] = rows
        return found

    def _whole_id(self, turn_id: str) -> str | None:
        if is_turn_id(turn_id):
            rows = self._values("SELECT turn_id FROM turn_audit WHERE turn_id = ?", [turn_id])
            return str(rows[0][0]) if rows else None
        if len(turn_id) < PREFIX_CHARS_MIN or not set(turn_id) <= set("0123456789abcdef-"):
            return None
        rows = self._values(
            "SELECT turn_id FROM turn_audit WHERE turn_id >= ? AND turn_id < ? LIMIT 6",
            [turn_id, turn_id + "g"],
        )
        if len(rows) > 1:
            raise TurnUnclear(turn_id, [str(row[0]) for row in rows])
        return str(rows[0][0]) if rows else None

    def _of_turn(self, log: Log, turn_id: str) -> list[dict[str, Any]]:
        names = ", ".join(column.name for column in log.columns)
        return self._rows(
            log,
            f"SELECT {names} FROM {log.name} WHERE turn_id = ? ORDER BY timestamp",
            [turn_id],
        )

    def _call_summaries(self, turn_id: str) -> list[dict[str, Any]]:
        fields = (
            "model_call_id, requested_model, served_model_name, provider_id, stream, stream_state,"
            " latency_ms, time_to_first_token_ms, prompt_tokens, completion_tokens, error_code"
        )
        rows = self._values(
            f"SELECT {fields} FROM model_calls WHERE turn_id = ? ORDER BY timestamp",
            [turn_id],
        )
        names = [name.strip() for name in fields.split(",")]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _rows(self, log: Log, sql: str, values: Iterable[Any]) -> list[dict[str, Any]]:
        return [
            {
                column.name: _value(column, value)
                for column, value in zip(log.columns, row, strict=True)
            }
            for row in self._values(sql, values)
        ]

    def _values(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        try:
            return list(self._db.execute(sql, tuple(values)))
        except apsw.Error as failure:
            raise StoreFailure(f"The record cannot be read: {type(failure).__name__}.") from failure


def _log(name: str) -> Log:
    return next(log for log in schema.LOGS if log.name == name)


def _value(column: Column, value: Any) -> Any:
    """A column's value as it is read: see the shapes in the module's docstring."""
    if value is None:
        return None
    if column.name == "timestamp":
        return rfc3339(int(value))
    if column.kind == "boolean":
        return bool(value)
    if column.kind == "json":
        try:
            return read_provider(str(value).encode("utf-8")).value
        except Malformed:
            return str(value)  # Kept as the text it is, rather than not shown.
    if column.kind == "text":
        return unescape(str(value))
    return value


def rfc3339(microseconds: int) -> str:
    """A time in RFC 3339 with milliseconds, in UTC."""
    when = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
