"""The media of a turn as files: under names of our own making, and never over what is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from everyturn.audit.records import Medium

_ENDINGS: Final = {
    "application/json": "json",
    "application/pdf": "pdf",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/webp": "webp",
    "mp3": "mp3",
    "text/csv": "csv",
    "wav": "wav",
}
"""Of other types the text is `txt` and all else `bin`: no type that a client chose is in a name,
and none is there that a desktop would run."""


def write_media(media: Iterable[Medium], folder: Path) -> Iterator[tuple[Path, Medium]]:
    """Write each medium into `folder`, made when missing; where it is, and what it is.

    What is there with the same content is left and named again. Raises FileExistsError where
    another file has the name, OSError where nothing can be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number, medium in enumerate(media, 1):
        path = folder / file_name(number, medium)
        try:
            # As private as the record; a link in its place is an existing file.
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if path.is_symlink() or path.read_bytes() != medium.data:
                raise
        else:
            with os.fdopen(target, "wb") as file:
                file.write(medium.data)
        yield path, medium


def file_name(number: int, medium: Medium) -> str:
    """The file's name: its place in the turn, the beginning of its hash, and an ending."""
    is_known = medium.media_type in _ENDINGS
    ending = _ENDINGS[medium.media_type] if is_known else "txt" if medium.is_text else "bin"
    return f"{number:02d}-{medium.media_id[:12]}.{ending}"
