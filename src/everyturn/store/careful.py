"""The careful way into the store: each record against what is stored, one at a time.

For what the quick way does not serve: keys that came before, revisions out of order, values that
no column takes as they are. It decides what the seam promises: the same again is no change, other
content under the same key is refused.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from everyturn.audit import columns as text_columns
from everyturn.audit import schema
from everyturn.audit.records import (
    ContentRef,
    Group,
    ModelCall,
    Record,
)
from everyturn.store.base import RecordRefused
from everyturn.store.batch import Batch
from everyturn.store.rows import CODECS, DIGEST_BYTES, NOWHERE_ELSE, RowCodec, digest_of
from everyturn.store.state import Stored, record_id


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
    codec = CODECS[type(record)]
    turn_key = None if record.turn_id is None else batch.turn_key(record.turn_id)
    batch.write()
    found = _find_row(db, codec, record, turn_key)
    if found is None:
        key = turn_key if codec.log.is_turn else batch.next_row_key(type(record), turn_key)
        assert key is not None
        _write(db, batch, codec, record, key, turn_key, None)
        return
    key, revision, older = found
    if record.revision > revision:
        before = _as_stored(db, _read(db, codec, key), key)
        older = (older or b"") + codec.digest(before)
        if not codec.log.is_turn and before.turn_id != record.turn_id:
            # Rows stand with their turn, and this one goes to another.
            db.execute(f"DELETE FROM {codec.log.rows} WHERE row_key = ?", (key,))
            key = batch.next_row_key(type(record), turn_key)
        _write(db, batch, codec, record, key, turn_key, older)
    elif record.revision < revision:
        _add_older(db, batch, codec, record, key, older)
    elif not _is_same(db, _read(db, codec, key), record):
        raise _conflict(record)


def _find_row(
    db: apsw.Connection, codec: RowCodec, record: Record, turn_key: int | None
) -> tuple[int, int, bytes | None] | None:
    log = codec.log
    where, value = (
        ("turn_key", turn_key) if log.is_turn else (log.id, text_columns.escape(record_id(record)))
    )
    row: tuple[int, int, bytes | None] | None = db.execute(
        f"SELECT {codec.key_column}, revision, older_digests FROM {log.rows} WHERE {where} = ?",
        (value,),
    ).fetchone()
    return row


def _read(db: apsw.Connection, codec: RowCodec, key: int) -> Record:
    row = db.execute(f"{codec.select_sql} WHERE r.{codec.key_column} = ?", (key,)).fetchone()
    assert row is not None
    return codec.decode(row)


def _as_stored(db: apsw.Connection, record: Record, key: int) -> Record:
    """A read record with its lists as references again, as its digest was to be taken."""
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
    """Whether a record, put to rest and read again, is what is stored."""
    codec = CODECS[type(record)]
    lists = {
        column.name: list_text(db, value.node)
        for column in codec.log.listed
        if isinstance(value := getattr(record, column.name), ContentRef)
    }
    return codec.canonical(msgspec.structs.replace(record, **lists)) == stored


_ITEM_SQL = (
    f"SELECT n.parent, {schema.CONTENT_TEXT} FROM prefix_nodes n"
    " JOIN contents c ON c.content_key = n.content_key"
    " LEFT JOIN contents p ON p.content_key = c.part_key"
)


def list_text(db: apsw.Connection, node: int) -> str | None:
    """The JSON text of a list, from its last prefix node; None if anything of it is missing."""
    texts: list[str] = []
    at: int | None = node
    while at is not None:
        row = db.execute(f"{_ITEM_SQL} WHERE n.node = ?", (at,)).fetchone()
        if row is None:
            return None
        at = row[0]
        texts.append(row[1])
    return "[" + ",".join(reversed(texts)) + "]"


def _write(
    db: apsw.Connection,
    batch: Batch,
    codec: RowCodec,
    record: Record,
    key: int,
    turn_key: int | None,
    older: bytes | None,
) -> None:
    row_key = None if codec.log.is_turn else key
    row = codec.encode_carefully(record, turn_key=turn_key, row_key=row_key, older=older)
    db.execute(codec.careful_replace_sql, row)
    batch.remember(record, key, turn_key, older, NOWHERE_ELSE[type(record)])


def _add_older(
    db: apsw.Connection,
    batch: Batch,
    codec: RowCodec,
    record: Record,
    key: int,
    older: bytes | None,
) -> None:
    """An older revision than the stored one: known by its digest, or taken up as one."""
    mine = codec.digest(record)
    known = digest_of(older, record.revision)
    if known is None:
        entries = older or b""
        kept = [entries[i : i + DIGEST_BYTES] for i in range(0, len(entries), DIGEST_BYTES)]
        together = b"".join(sorted([*kept, mine]))
        db.execute(
            f"UPDATE {codec.log.rows} SET older_digests = ? WHERE {codec.key_column} = ?",
            (together, key),
        )
        remembered = batch.stored(record_id(record))
        if remembered is not None:
            batch.rows[record_id(record)] = Stored(
                key, remembered.turn_key, remembered.record, together, remembered.elsewhere
            )
    elif known != mine:
        raise _conflict(record)


def _conflict(record: Record) -> RecordRefused:
    name = CODECS[type(record)].log.name
    return RecordRefused(
        f"Revision {record.revision} of `{name}` record `{record_id(record)}` is stored"
        " with other content."
    )


def _refused(group: Group, message: str) -> RecordRefused:
    names = ", ".join(f"`{record_id(record)}`" for record in group.records)
    return RecordRefused(f"{message} Records: {names}.")
