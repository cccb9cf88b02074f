"""Retrieval over SQLite's full-text search: an index in memory, made at the start of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import apsw

from everyturn.bench.items import Document

_WORD: Final = re.compile(r"\w+")
_WORDS_MAX: Final = 64
"""Words of a query that are looked for; the first ones."""


class Index:
    """Documents by their words, the best match first (BM25)."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = tuple(documents)
        self._database = apsw.Connection(":memory:")
        self._database.execute(
            "create virtual table words using fts5(title, text, tokenize='porter unicode61')"
        )
        with self._database:
            self._database.executemany(
                "insert into words(rowid, title, text) values (?, ?, ?)",
                ((n, document.title, document.text) for n, document in enumerate(documents)),
            )

    def find(self, query: str, top_k: int) -> list[Document]:
        """At most `top_k` documents that hold any word of the query."""
        words = list(dict.fromkeys(word.casefold() for word in _WORD.findall(query)))[:_WORDS_MAX]
        if not words:
            return []
        wanted = " OR ".join(f'"{word}"' for word in words)
        rows: Iterable[tuple[int]] = self._database.execute(
            "select rowid from words where words match ? order by bm25(words), rowid limit ?",
            (wanted, top_k),
        )
        return [self.documents[number] for (number,) in rows]
