"""Answers that were given before. Off by default; a folder of private files.

An entry is known by the whole request, the model with its pinned revision, the gateway's URL, the
item and the epoch: a repeat is never answered from another repeat, and equal texts of two items
stay two. Errors are never kept, and reasoning is not either: it rests in rows alone. Texts are
cleaned as those of rows are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from everyturn.bench.answer import Answer
from everyturn.bench.folder import replace


class Entry(msgspec.Struct, kw_only=True):
    """One answer without its reasoning, and the turn that it was given in."""

    answer: Answer
    turn_id: str
    had_reasoning: bool


_DECODER: Final = msgspec.json.Decoder(Entry)


class Cache:
    """The answers of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")

    @staticmethod
    def key(
        body: bytes, model: str, revision: str | None, url: str, item_id: str, epoch: int
    ) -> str:
        """What an answer is known by. body: the whole request."""
        digest = hashlib.sha256()
        texts = (model, revision or "", url, item_id, str(epoch))
        for part in (body, *(text.encode() for text in texts)):
            digest.update(len(part).to_bytes(8))
            digest.update(part)
        return digest.hexdigest()

    def get(self, key: str) -> Entry | None:
        """The answer of a key; None where there is none, or none that can be read."""
        try:
            return _DECODER.decode(self._path(key).read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def put(self, key: str, entry: Entry) -> None:
        """Keep an answer."""
        path = self._path(key)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace(path, msgspec.json.encode(entry), is_synced=False)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
