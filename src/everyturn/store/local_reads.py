"""Reads of reasoning by who can read the data folder, noted before the text is shown.

The folder belongs to one gateway, which alone writes records. So a command that reads beside it
leaves a small file in `reads/`; the gateway makes an access event of it within seconds, or the next
one does when it starts. What cannot be noted is not read.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Final

import msgspec

from everyturn import ids
from everyturn.store.base import StoreRefused

FOLDER: Final = "reads"
WAITING_MAX: Final = 1000
"""Files that may wait; beyond them reasoning is not read until a gateway took them up."""
SUFFIX: Final = ".json"
_REFUSED_SUFFIX: Final = ".refused"
_BYTES_MAX: Final = 4096


class LocalRead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That somebody read the reasoning of a turn on this machine."""

    access_id: str
    timestamp: int
    """Microseconds since 1970."""
    turn_id: str


def note(data: Path, turn_id: str) -> Path:
    """Note a read of a turn's reasoning; returns when that is on disk. Raises StoreRefused."""
    now = time.time_ns() // 1000
    access_id = ids.time_id("acc", now, random.getrandbits(64))
    read = LocalRead(access_id=access_id, timestamp=now, turn_id=turn_id)
    folder = data / FOLDER
    try:
        owner = data.stat()
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)
            if owner.st_uid != os.geteuid():
                os.chown(folder, owner.st_uid, owner.st_gid)
        if len(os.listdir(folder)) >= WAITING_MAX:
            raise StoreRefused(
                str(folder),
                f"{WAITING_MAX} reads of reasoning wait to be recorded, so there is no further"
                " one.",
                "Start the gateway of this folder; it records them.",
            )
        return _written(folder / f"{access_id}{SUFFIX}", msgspec.json.encode(read), owner)
    except OSError as failure:
        raise StoreRefused(
            str(folder),
            f"A read of reasoning cannot be noted there: {failure.strerror}.",
            "Every such read is recorded. Run it as the user of the gateway, or leave out"
            " `--include-reasoning`.",
        ) from failure


def _written(path: Path, content: bytes, owner: os.stat_result) -> Path:
    """A file that is there whole or not at all, readable by the owner of the data alone."""
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if owner.st_uid != os.geteuid():
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return path


def waiting(data: Path) -> list[tuple[Path, LocalRead | None]]:
    """The notes that wait, oldest first; None in place of one that is none. Raises OSError."""
    folder = data / FOLDER
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except FileNotFoundError:
        return []
    return [(folder / name, _read(folder / name)) for name in names]


def _read(path: Path) -> LocalRead | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        read = msgspec.json.decode(os.read(descriptor, _BYTES_MAX), type=LocalRead)
    except msgspec.MsgspecError:
        return None
    finally:
        os.close(descriptor)
    is_one = ids.is_turn_id(read.turn_id) and read.access_id == path.stem
    return read if is_one else None


def put_aside(path: Path) -> None:
    """Keep a file that no record can be made of, out of the way. Raises OSError."""
    path.rename(path.with_suffix(_REFUSED_SUFFIX))
