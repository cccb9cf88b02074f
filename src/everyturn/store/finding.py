"""Find turns by their words: a query as a person writes it, and where the words stand.

A query is words and "phrases in quotes"; a turn is found when it has all of them, case and accents
aside. `refund*` finds what begins so. Everything else, operators of the index included, is text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import apsw

from everyturn.audit import schema
from everyturn.audit.columns import unescape
from everyturn.store.said import FIELDS, PIECES_SQL, spaced
from everyturn.store.search import SearchIndex

PIECES_MAX: Final = 32
"""Words and phrases of a query; more are refused."""
EXCERPT_CHARS: Final = 120

_PIECE: Final = re.compile(r'"([^"]*)"?|([^\s"]+)')
_NOT_TEXT: Final = re.compile(r"[\0\ud800-\udfff]")


class BadQuery(ValueError):
    """A query in which there is nothing to look for, or too much."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for."""

    pieces: tuple[str, ...]
    """Words and phrases, as they were written."""
    expression: str
    """For the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One turn that has all the words. Times are microseconds since 1970."""

    turn_id: str
    trace_id: str | None
    timestamp: int | None
    outcome: str | None
    is_open: bool
    """Whether the turn has not ended; one that ended may have no outcome."""
    fields: tuple[str, ...]
    """Where words of the query stand, of FIELDS."""
    excerpt: str
    """What stands around the first of them."""


def read_query(text: str, fields: Sequence[str] = FIELDS) -> Query:
    """What a person wrote, for the index. Raises BadQuery."""
    pieces: list[str] = []
    terms: list[str] = []
    for quoted, word in _PIECE.findall(_NOT_TEXT.sub(" ", text)):
        piece = quoted or word
        # A term without any letter or digit would match nothing, and with it the whole query.
        if not any(unicodedata.category(character)[0] in "LN" for character in piece):
            continue
        is_start = not quoted and piece.endswith("*")
        pieces.append(piece.rstrip("*") if is_start else piece)
        term = '"' + spaced(pieces[-1]) + '"'
        terms.append(f"{term} *" if is_start else term)
    if not pieces:
        raise BadQuery("The query has no word to look for.")
    if len(pieces) > PIECES_MAX:
        raise BadQuery(f"The query has {len(pieces)} words; at most {PIECES_MAX} are looked for.")
    return Query(tuple(pieces), f"{{{' '.join(fields)}}} : ({' AND '.join(terms)})")


def find(index: SearchIndex, query: Query, *, fields: Sequence[str], limit: int) -> list[Found]:
    """The newest turns that have all the words, the newest first. Raises StoreFailure."""
    try:
        rows: list[Any] = index.db.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?",
            (query.expression, limit),
        ).fetchall()
        found = [_found(index.db, key, query, fields) for (key,) in rows]
    except apsw.Error as failure:
        raise index.failed(failure) from failure
    return [one for one in found if one is not None]


def _found(db: apsw.Connection, key: int, query: Query, fields: Sequence[str]) -> Found | None:
    row = db.execute(
        "SELECT t.turn_id, coalesce(r.trace_id, json_extract(o.record, '$.trace_id')),"
        " coalesce(r.timestamp, json_extract(o.record, '$.timestamp')), r.outcome,"
        " o.record IS NOT NULL"
        " FROM turn_ids t LEFT JOIN turn_audit_rows r ON r.turn_key = t.turn_key"
        f" LEFT JOIN open_records o ON {schema.open_range_sql('t.turn_key')}"
        " AND o.log = 'turn_audit' WHERE t.turn_key = ?",
        (key,),
    ).fetchone()
    if row is None:
        return None  # Erased since the index was read.
    turn_id, trace_id, timestamp, outcome, is_open = row
    places, excerpt = _places(db, key, query, fields)
    return Found(
        turn_id=turn_id,
        trace_id=trace_id,
        timestamp=timestamp,
        outcome=outcome,
        is_open=bool(is_open),
        fields=places,
        excerpt=excerpt,
    )


def _places(
    db: apsw.Connection, key: int, query: Query, fields: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """In which fields words of the query stand, and an excerpt around the first."""
    wanted = [_folded(piece) for piece in query.pieces]
    places: dict[str, str] = {}
    for field, text in db.execute(PIECES_SQL, (key,)):
        if text is None or field not in fields or field in places:
            continue
        told = unescape(str(text))
        folded = _folded(told)
        at = min((at for at in map(folded.find, wanted) if at >= 0), default=-1)
        if at >= 0:
            places[field] = _around(told, at)
    ordered = tuple(field for field in FIELDS if field in places)
    return ordered, places[ordered[0]] if ordered else ""


def _folded(text: str) -> str:
    """`text` without case and accents, near enough to find a place in it."""
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFD", text.lower())
    return "".join(part for part in parts if not unicodedata.combining(part))


def _around(text: str, at: int) -> str:
    start = max(0, at - EXCERPT_CHARS // 3)
    end = start + EXCERPT_CHARS
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return f"{before}{text[start:end].strip()}{after}"
