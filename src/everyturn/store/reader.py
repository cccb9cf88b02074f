"""Read a store while a gateway writes it, from this process or another one.

Read-only: nothing here changes a record, waits for the writer or makes it wait. Each question is
answered from one moment of the store. Rows come as dicts with the contract's columns in order.
Lists are rebuilt; what was escaped in text columns is as it was.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

import msgspec

from everyturn.audit import schema
from everyturn.audit.records import Medium, ModelCall, Record, TurnAudit
from everyturn.store import kept, media
from everyturn.store.careful import with_texts
from everyturn.store.lookup import indexed_to_sql, turn_hash
from everyturn.store.opening import Moment, fetch, open_read_only
from everyturn.store.rows import CODECS
from everyturn.store.wanted import Wanted

PREFIX_CHARS_MIN: Final = 6
_HEX_PREFIX: Final = re.compile(r"[0-9a-f-]+")
_HASH_DIGITS: Final = 15
_OF_A_TURN: Final = [
    schema.LOG_NAMED[name]
    for name in (
        "access_events",
        "model_calls",
        "tool_calls",
        "retrieval_events",
        "quality_reviews",
    )
]


class AmbiguousTurnId(LookupError):
    """The beginning of a turn id fits more than one turn."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"More than one turn id begins with `{prefix}`; give more of it.")


class Reader:
    """Answers questions about the turns in a data folder. Use from one thread at a time."""

    def __init__(self, folder: Path | str) -> None:
        """Raises StoreRefused when the folder holds no store that can be read."""
        self._folder = Path(folder)
        self._db = open_read_only(self._folder)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the files back."""
        self._db.close()

    def turns(self, *, limit: int = 50, **wanted: Any) -> list[dict[str, Any]]:
        """The latest turns, newest first: their columns, and `models`, what their calls asked for.

        wanted: which turns, by the members of `Wanted`.
        """
        chosen = Wanted(**wanted)
        with self._moment():
            found = [
                {**msgspec.structs.asdict(turn), "models": self._models(key)}
                for key, turn in self._open_turns()
                if chosen.fits(key, turn, self._fetch)
                and (chosen.model is None or self._asked_for(key, chosen.model))
            ]
            where, values = chosen.condition()
            keys = self._fetch(
                f"SELECT r.turn_key FROM turn_audit_rows r WHERE {where}"
                " ORDER BY r.timestamp DESC, r.turn_key DESC LIMIT ?",
                [*values, limit],
            )
            for (key,) in keys:
                for row in self._rows(TurnAudit, " WHERE r.turn_key = ?", [key]):
                    found.append({**row, "models": self._models(key)})
        found.sort(key=itemgetter("timestamp"), reverse=True)
        return found[:limit]

    def turn(
        self,
        turn_id: str,
        *,
        include_reasoning: bool = False,
        permissions: Collection[str] = (),
    ) -> dict[str, Any] | None:
        """All that is known of one turn; None if nothing is.

        turn_id: whole, or its beginning, at least 6 characters of it. Members: `turn` (None when
        only other records name it), and the rows of each other log, in the order of their times.
        include_reasoning: adds `reasoning_texts`, what is kept of the reasoning whose marks stand
        in the calls; only for who holds the permission `reasoning`.
        Raises AmbiguousTurnId when the beginning fits several turns, NotPermitted.
        """
        with self._moment():
            key = self._turn_key(turn_id)
            if key is None:
                return None
            found = self._all_of(key)
            if include_reasoning:
                found["reasoning_texts"] = kept.read(self._db, found["model_calls"], permissions)
            return found

    def turn_at(self, key: int) -> dict[str, Any]:
        """What `turn` gives, by the turn's key in the store."""
        with self._moment():
            return self._all_of(key)

    def has_turn_at(self, key: int) -> bool:
        """Whether the record has the turn itself, not only rows that name it."""
        with self._moment():
            return bool(
                self._fetch("SELECT 1 FROM turn_audit_rows WHERE turn_key = ?", [key])
                or self._open_rows(TurnAudit, key)
            )

    def _all_of(self, key: int) -> dict[str, Any]:
        turns = self._rows(TurnAudit, " WHERE r.turn_key = ?", [key])
        turns += self._open_rows(TurnAudit, key)
        return {
            "turn": turns[0] if turns else None,
            **{log.name: self._of_turn(log.type, key) for log in _OF_A_TURN},
        }

    def media(self, refs: Sequence[str]) -> Iterator[Medium]:
        """The media that are kept under these names (`media.refs_in`), one at a time."""
        return media.read(self._db, refs)

    def _of_turn(self, kind: type[Record], key: int) -> list[dict[str, Any]]:
        rows = f" WHERE {schema.turn_range_sql('?1')} AND r.turn_key = ?1"
        time = CODECS[kind].log.time
        found = self._rows(kind, rows + f" ORDER BY r.{time}, r.row_key", [key])
        found += self._open_rows(kind, key)
        return sorted(found, key=itemgetter(time))

    def _open_rows(self, kind: type[Record], key: int) -> list[dict[str, Any]]:
        codec = CODECS[kind]
        rows = self._fetch(
            f"SELECT record FROM open_records o WHERE {schema.open_range_sql('?1')}"
            " AND log = ?2 ORDER BY open_key",
            (key, codec.log.name),
        )
        return [
            msgspec.structs.asdict(with_texts(self._db, codec.decode_open(text)))
            for (text,) in rows
        ]

    def _open_turns(self) -> list[tuple[int, TurnAudit]]:
        codec = CODECS[TurnAudit]
        rows = self._fetch(
            "SELECT turn_key, record FROM open_records WHERE log = ? ORDER BY open_key DESC",
            (codec.log.name,),
        )
        return [(int(key), cast(TurnAudit, codec.decode_open(text))) for key, text in rows]

    def _asked_for(self, key: int, model: str) -> bool:
        calls = self._of_turn(ModelCall, key)
        names = ("requested_model", "model_registry_id", "served_model_name")
        return any(model in (call[name] for name in names) for call in calls)

    def _rows(self, kind: type[Record], rest: str, values: list[Any]) -> list[dict[str, Any]]:
        codec = CODECS[kind]
        rows = self._fetch(codec.select_sql + rest, values)
        return [msgspec.structs.asdict(codec.decode(row)) for row in rows]

    def _fetch(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return fetch(self._db, sql, values)

    def _models(self, key: int) -> list[str]:
        rows = self._fetch(
            "SELECT r.requested_model FROM model_calls_rows r"
            f" WHERE {schema.turn_range_sql('?1')} UNION ALL"
            " SELECT json_extract(o.record, '$.requested_model') FROM open_records o"
            f" WHERE {schema.open_range_sql('?1')} AND o.log = 'model_calls'",
            (key,),
        )
        return list(dict.fromkeys(str(name) for (name,) in rows if name is not None))

    def _turn_key(self, text: str) -> int | None:
        """The key of the turn whose id is `text` or begins with it."""
        low, high = _hash_range(text)
        exact = turn_hash(text)
        found = self._fetch(
            # Rows that the index does not hold yet come last and are few.
            "SELECT turn_id, turn_key FROM turn_ids WHERE turn_key IN (SELECT turn_key"
            " FROM turn_ids_lookup WHERE hash = ?1 OR hash BETWEEN ?2 AND ?3)"
            " AND substr(turn_id, 1, ?4) = ?5"
            f" UNION SELECT turn_id, turn_key FROM turn_ids"
            f" WHERE turn_key > {indexed_to_sql('turn_ids')} AND substr(turn_id, 1, ?4) = ?5",
            (exact, low, high, len(text), text),
        )
        for turn_id, key in found:
            if turn_id == text:
                return int(key)
        if len(text) < PREFIX_CHARS_MIN:
            return None
        if len(found) > 1:
            raise AmbiguousTurnId(text)
        return int(found[0][1]) if found else None

    def _moment(self) -> Moment:
        return Moment(self._db)


def open_reader(folder: Path | str) -> Reader:
    """A reader of the store in a data folder. Raises StoreRefused when there is none."""
    return Reader(folder)


def _hash_range(prefix: str) -> tuple[int, int]:
    """The places in the index where ids that begin with `prefix` can be."""
    if not _HEX_PREFIX.fullmatch(prefix):
        return 1, 0
    digits = prefix.replace("-", "")[:_HASH_DIGITS]
    return int(digits.ljust(_HASH_DIGITS, "0"), 16), int(digits.ljust(_HASH_DIGITS, "f"), 16)
