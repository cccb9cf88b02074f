"""The careful way into the store: each record against what is stored, one at a time.

For what the quick way does not serve: keys that came before, revisions out of order, values that
no column takes as they are. It decides what the seam promises: the same again is no change, other
content under the same key is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import apsw
import msgspec

from everyturn.audit import columns as text_columns
from everyturn.audit import schema
from everyturn.audit.group import Group
from everyturn.audit.records import ContentRef, ModelCall, Record, TurnAudit
from everyturn.store.base import RecordRefused
from everyturn.store.batch import Batch
from everyturn.store.rows import CODECS, DIGEST_BYTES, digest_of
from everyturn.store.state import Stored, is_open, record_id

_ITEM_SQL: Final = (
    f"SELECT n.parent, {schema.CONTENT_TEXT} FROM prefix_nodes n"
    " JOIN contents c ON c.content_key = n.content_key"
    " LEFT JOIN contents p ON p.content_key = c.part_key WHERE n.node = ?"
)


@dataclass(frozen=True, slots=True)
class _Found:
    """A record as the files have it."""

    key: int
    record: Record
    """With its lists as references, where they are."""
    older: bytes | None
    is_open: bool


def add(db: apsw.Connection, batch: Batch, group: Group) -> None:
    """Write a group in the open transaction. Raises RecordRefused when it cannot be stored."""
    for content in group.contents:
        batch.content_key(content.address, text_columns.escape_json(content.text))
    batch.write()
    for node in group.nodes:
        _add_node(db, batch, group, node.node, node.parent, node.address)
    batch.write()
    for record in group.records:
        _check_lists(db, record)
    for record in group.records:
        _add_record(db, batch, record)
    batch.stage_reasoning(group.reasoning)
    batch.stage_media(group.media)
    batch.write()


def _add_node(
    db: apsw.Connection, batch: Batch, group: Group, node: int, parent: int | None, address: bytes
) -> None:
    content_key = batch.find_content(address)
    if content_key is None:
        raise _refused(group, "A message refers to content that is not stored.")
    stored = db.execute(
        "SELECT parent, content_key FROM prefix_nodes WHERE node = ?", (node,)
    ).fetchone()
    if stored is not None:
        if stored != (parent, content_key):
            raise _refused(group, "A prefix node is stored already and says something else.")
        return
    if parent is not None and parent not in batch.new_nodes:
        if parent >= node or not _has_node(db, parent):
            raise _refused(group, "A list refers to a prefix that is not stored.")
    batch.stage_node(node, parent, content_key)


def _check_lists(db: apsw.Connection, record: Record) -> None:
    if isinstance(record, ModelCall):
        for listed in (record.prompt_messages_json, record.tools_json):
            if isinstance(listed, ContentRef) and not _has_node(db, listed.node):
                raise RecordRefused(f"Call `{record.model_call_id}` refers to a missing list.")


def _has_node(db: apsw.Connection, node: int) -> bool:
    return bool(db.execute("SELECT 1 FROM prefix_nodes WHERE node = ?", (node,)).fetchone())


def _add_record(db: apsw.Connection, batch: Batch, record: Record) -> None:
    turn_key = None if record.turn_id is None else batch.turn_key(record.turn_id)
    batch.write()
    found = _find(db, record, turn_key)
    if found is None:
        _write(db, batch, record, turn_key, None, None)
        return
    last = found.record
    if record.revision > last.revision:
        older = (found.older or b"") + CODECS[type(record)].digest(last)
        _write(db, batch, record, turn_key, found, older)
    elif record.revision < last.revision:
        _add_older(db, batch, record, found)
    elif not _is_same(db, last, record):
        raise _conflict(record)


def _find(db: apsw.Connection, record: Record, turn_key: int | None) -> _Found | None:
    """The stored record with the same id, wherever it rests."""
    codec = CODECS[type(record)]
    log = codec.log
    for key, text, older in db.execute(
        "SELECT open_key, record, older_digests FROM open_records o"
        f" WHERE log = ?1 AND ({schema.open_range_sql('?2')} OR ?3)",
        (log.name, turn_key, not log.is_turn),
    ):
        stored = codec.decode_open(text)
        if record_id(stored) == record_id(record):
            return _Found(codec.row_key_of(key), stored, older, is_open=True)
    where, value = ("turn_key", turn_key) if log.is_turn else (log.id, _id_at_rest(record))
    found = db.execute(
        f"SELECT {codec.key_column}, older_digests FROM {log.rows} WHERE {where} = ?", (value,)
    ).fetchone()
    if found is None:
        return None
    row = db.execute(f"{codec.select_sql} WHERE r.{codec.key_column} = ?", (found[0],)).fetchone()
    assert row is not None
    return _Found(found[0], _with_lists(db, codec.decode(row), found[0]), found[1], is_open=False)


def _id_at_rest(record: Record) -> str:
    return text_columns.escape(record_id(record))


def _with_lists(db: apsw.Connection, record: Record, key: int) -> Record:
    """A record that was read, with its lists as references again, as its digest is taken."""
    if not isinstance(record, ModelCall):
        return record
    changes: dict[str, Any] = {}
    for prompt, tools in db.execute(
        "SELECT prompt_messages_node, tools_node FROM model_calls_rows WHERE row_key = ?", (key,)
    ):
        if prompt is not None:
            changes["prompt_messages_json"] = ContentRef(prompt)
        if tools is not None:
            changes["tools_json"] = ContentRef(tools)
    return msgspec.structs.replace(record, **changes)


def _is_same(db: apsw.Connection, stored: Record, record: Record) -> bool:
    """Whether a record, put to rest and read again, is what is stored.

    What is written once may come again after an upgrade, from a sender that did not hear the first
    answer: then it is the same under whatever version.
    """
    codec = CODECS[type(record)]
    mine = codec.canonical(record)
    if not codec.is_revised:
        versions = {
            name: getattr(stored, name) for name in ("schema_version", "redaction_rules_version")
        }
        mine = msgspec.structs.replace(mine, **versions)
    return with_texts(db, mine) == with_texts(db, stored)


def with_texts(db: apsw.Connection, record: Record) -> Record:
    """The record with its lists as text."""
    lists = {
        column.name: list_text(db, value.node)
        for column in CODECS[type(record)].log.listed
        if isinstance(value := getattr(record, column.name), ContentRef)
    }
    return msgspec.structs.replace(record, **lists) if lists else record


def list_text(db: apsw.Connection, node: int) -> str | None:
    """The JSON text of a list, from its last prefix node; None if anything of it is missing."""
    texts: list[str] = []
    at: int | None = node
    while at is not None:
        row: Any = db.execute(_ITEM_SQL, (at,)).fetchone()
        if row is None:
            return None
        at = row[0]
        texts.append(row[1])
    return "[" + ",".join(reversed(texts)) + "]"


def _write(
    db: apsw.Connection,
    batch: Batch,
    record: Record,
    turn_key: int | None,
    found: _Found | None,
    older: bytes | None,
) -> None:
    """Write a record that is new, or in the place of the revision before it."""
    codec = CODECS[type(record)]
    log = codec.log
    key = None if found is None else found.key
    if found is not None and found.record.turn_id != record.turn_id:
        # Rows stand with their turn, and this one goes to another.
        _remove(db, record, found)
        found, key = None, None
    if key is None:
        key = turn_key if log.is_turn else batch.next_row_key(type(record), turn_key)
    assert key is not None
    if log.is_turn:
        batch.note_turn_row(key)
    will_be_open = is_open(record)
    if found is not None and found.is_open != will_be_open:
        _remove(db, record, found)
    if will_be_open:
        batch.stage_open(codec, key, turn_key, codec.open_data_carefully(record), older)
        batch.write()
    else:
        row_key = None if log.is_turn else key
        row = codec.encode_carefully(record, turn_key=turn_key, row_key=row_key, older=older)
        db.execute(codec.careful_replace_sql, row)
    if isinstance(record, TurnAudit | ModelCall):
        batch.rows[record_id(record)] = Stored(
            key, record, None, older, codec.nowhere_else, will_be_open
        )


def _remove(db: apsw.Connection, record: Record, found: _Found) -> None:
    codec = CODECS[type(record)]
    if found.is_open:
        key = codec.open_key(found.key)
        db.execute("DELETE FROM open_records WHERE open_key = ?", (key,))
    else:
        db.execute(f"DELETE FROM {codec.log.rows} WHERE {codec.key_column} = ?", (found.key,))


def _add_older(db: apsw.Connection, batch: Batch, record: Record, found: _Found) -> None:
    """An older revision than the stored one: known by its digest, or taken up as one."""
    codec = CODECS[type(record)]
    mine = codec.digest(record)
    known = digest_of(found.older, record.revision)
    if known == mine:
        return
    if known is not None:
        raise _conflict(record)
    entries = found.older or b""
    kept = [entries[i : i + DIGEST_BYTES] for i in range(0, len(entries), DIGEST_BYTES)]
    together = b"".join(sorted([*kept, mine]))
    if found.is_open:
        table, column = "open_records", "open_key"
        key = codec.open_key(found.key)
    else:
        table, column, key = codec.log.rows, codec.key_column, found.key
    db.execute(f"UPDATE {table} SET older_digests = ? WHERE {column} = ?", (together, key))
    remembered = batch.stored(record_id(record))
    if remembered is not None:
        batch.rows[record_id(record)] = Stored(
            remembered.key,
            remembered.record,
            remembered.data,
            together,
            remembered.elsewhere,
            remembered.is_open,
        )


def _conflict(record: Record) -> RecordRefused:
    name = CODECS[type(record)].log.name
    return RecordRefused(
        f"Revision {record.revision} of `{name}` record `{record_id(record)}` is stored"
        " with other content."
    )


def _refused(group: Group, message: str) -> RecordRefused:
    names = ", ".join(f"`{record_id(record)}`" for record in group.records)
    return RecordRefused(f"{message} Records: {names}.")
