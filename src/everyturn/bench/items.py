"""Items: what is asked, and what is expected. JSONL, CSV, Parquet; each fault names its line.

A data set is known by the SHA-256 of its bytes and of the ids that were selected, so that a run is
never resumed over other data than it began with.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from everyturn.bench.grid import Data
from everyturn.bench.parquet import item_rows
from everyturn.errors import ConfigError

FAULTS_MAX: Final = 20
"""Faults of a data file that are told; the first ones."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One question. cluster: what it shares with others (a conversation, a document)."""

    item_id: str
    question: str
    expected: tuple[str, ...] = ()
    context: str | None = None
    cluster: str | None = None
    category: str | None = None
    attributes: dict[str, Any] = {}


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One text that retrieval may find."""

    doc_id: str
    text: str
    title: str = ""


class Items(msgspec.Struct, frozen=True, kw_only=True):
    """The selected items, in the order of the file, and what they are known by."""

    items: tuple[Item, ...]
    data_sha256: str
    ids_sha256: str
    total: int
    """How many there were to select from."""


def load_items(data: Data, seed: int, limit: int | None = None) -> Items:
    """The items of a data set: a seeded sample where one is asked for, then at most `limit`.

    Raises ConfigError for a file that cannot be read and for each line that is wrong; the lines of
    a Parquet file are its rows, counted from 1.
    """
    raw = _bytes(data.path)
    suffix = Path(data.path).suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        rows: Iterable[tuple[int, Any]] = _jsonl(raw)
    elif suffix == ".csv":
        rows = _csv(raw, data.path)
    elif suffix == ".parquet":
        rows = item_rows(raw, data.path, Item.__struct_fields__)
    else:
        what = "is neither JSONL, CSV nor Parquet."
        raise ConfigError(data.path, [(0, "data.path", what, "Convert it to JSONL.")])
    items = _checked(rows, data.path, "row" if suffix == ".parquet" else "line")
    chosen = _sample(items, data, seed)
    if limit is not None:
        chosen = chosen[:limit]
    ids = "\n".join(item.item_id for item in chosen)
    return Items(
        items=tuple(chosen),
        data_sha256=hashlib.sha256(raw).hexdigest(),
        ids_sha256=hashlib.sha256(ids.encode()).hexdigest(),
        total=len(items),
    )


def load_documents(data: Data, items: Sequence[Item]) -> list[Document]:
    """The documents of a grid; without a file of its own, the contexts of its items, each once."""
    if data.documents is None:
        texts = {item.context: item.cluster or item.item_id for item in items if item.context}
        return [Document(doc_id=doc_id, text=text) for text, doc_id in texts.items()]
    faults: list[tuple[int, str, str, str]] = []
    documents: dict[str, Document] = {}
    for line, value in _jsonl(_bytes(data.documents), quick=False):
        try:
            document = msgspec.convert(_object(value), Document)
            if document.doc_id in documents:
                raise ValueError("`doc_id` is given twice")
            documents[document.doc_id] = document
        except ValueError as bad:
            faults.append((line, "documents", f"{bad}.", "One JSON object a line."))
    if faults:
        raise ConfigError(data.documents, faults[:FAULTS_MAX])
    return list(documents.values())


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as bad:
        what = f"cannot be read: {bad.strerror}."
        raise ConfigError(path, [(0, "data.path", what, "Correct the path.")]) from bad


def _jsonl(raw: bytes, *, quick: bool = True) -> Iterator[tuple[int, Any]]:
    """(line, value) of each line that is not blank; the value is a ValueError where it is none.

    quick: a line that is an item may come as one.
    """
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, (_quick(line) if quick else None) or json.loads(line)
        except (ValueError, RecursionError):
            yield number, ValueError("the line is no JSON")


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    """An item as nearly all lines have it, to be read fast; the others are looked at slowly."""

    item_id: str
    question: str
    expected: tuple[str, ...] | str = ()
    context: str | None = None
    cluster: str | None = None
    category: str | None = None
    attributes: dict[str, Any] = {}


_GIVEN: Final = msgspec.json.Decoder(_Given)


def _quick(line: bytes) -> Item | None:
    """The item of a line that is one and nothing else; None where that has to be looked at."""
    try:
        given = _GIVEN.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not given.item_id or not given.question:
        return None
    expected = given.expected
    return Item(
        item_id=given.item_id,
        question=given.question,
        expected=(expected,) if isinstance(expected, str) else expected,
        context=given.context,
        cluster=given.cluster,
        category=given.category,
        attributes=given.attributes,
    )


def _csv(raw: bytes, path: str) -> Iterator[tuple[int, Any]]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        line = raw.count(b"\n", 0, bad.start) + 1
        what = "holds bytes that are no UTF-8."
        raise ConfigError(path, [(line, "data.path", what, "Save it as UTF-8.")]) from bad
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    known = set(Item.__struct_fields__)
    try:
        for row in reader:
            if None in row or None in row.values():
                wrong = ValueError("the line has more or fewer fields than the first one")
                yield reader.line_num, wrong
                continue
            if "attributes" in row:
                why = "`attributes` is no column; each of another name is an attribute"
                yield reader.line_num, ValueError(why)
                continue
            value: dict[str, Any] = {name: text for name, text in row.items() if name in known}
            value["expected"] = row.get("expected", "").split("|") if row.get("expected") else []
            value["attributes"] = {name: text for name, text in row.items() if name not in known}
            # An empty field of a CSV file is a missing one; there is no other way to say it there.
            yield reader.line_num, {k: v for k, v in value.items() if v != ""}
    except csv.Error as bad:
        yield reader.line_num, ValueError(f"the line is no CSV: {bad}")


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, ValueError):
        raise value
    if not isinstance(value, dict):
        raise ValueError("the line is no JSON object")
    return value


def _item(value: Any) -> Item:
    if isinstance(value, Item):
        return value
    given = dict(_object(value))
    unknown = sorted(set(given) - set(Item.__struct_fields__))
    if unknown:
        raise ValueError(f"`{unknown[0]}` is no member of an item; put it into `attributes`")
    if isinstance(given.get("expected"), str):
        given["expected"] = [given["expected"]]
    if isinstance(given.get("item_id"), int) and not isinstance(given["item_id"], bool):
        given["item_id"] = str(given["item_id"])
    item = msgspec.convert(given, Item)
    if not item.item_id or not item.question:
        raise ValueError("`item_id` and `question` must not be empty")
    return item


def _checked(rows: Iterable[tuple[int, Any]], path: str, line_word: str) -> list[Item]:
    faults: list[tuple[int, str, str, str]] = []
    first: dict[str, int] = {}
    items: list[Item] = []
    for line, value in rows:
        try:
            item = _item(value)
        except ValueError as bad:  # msgspec's ValidationError is one
            hint = "An item is `item_id`, `question` and what the guide lists."
            faults.append((line, "items", f"{bad}.", hint))
            continue
        if item.item_id in first:
            what = f"has the `item_id` of {line_word} {first[item.item_id]}."
            faults.append((line, "items", what, "Ids are unique."))
        first.setdefault(item.item_id, line)
        items.append(item)
    if not items and not faults:
        faults.append((0, "items", "holds no item.", f"One item a {line_word}."))
    if faults:
        more = len(faults) - FAULTS_MAX
        told = faults[:FAULTS_MAX]
        if more > 0:
            told.append((0, "items", f"has {more} more faults.", ""))
        raise ConfigError(path, told)
    return items


def _sample(items: list[Item], data: Data, seed: int) -> list[Item]:
    """A seeded sample in the order of the file, by category where that is asked for."""
    if data.sample is None or data.sample >= len(items):
        return items
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    groups: dict[str | None, list[int]] = {}
    for place, item in enumerate(items):
        groups.setdefault(item.category if data.by else None, []).append(place)
    shares = _shares({name: len(group) for name, group in groups.items()}, data.sample)
    chosen = [at for name, group in groups.items() for at in draw.sample(group, shares[name])]
    return [items[at] for at in sorted(chosen)]


def _shares(sizes: dict[str | None, int], total: int) -> dict[str | None, int]:
    """How many of each group, in proportion; the largest remainders get what is left."""
    whole = sum(sizes.values())
    exact = {name: size * total / whole for name, size in sizes.items()}
    shares = {name: int(value) for name, value in exact.items()}
    by_rest = sorted(exact, key=lambda name: (shares[name] - exact[name], str(name)))
    for name in by_rest[: total - sum(shares.values())]:
        shares[name] += 1
    return shares
