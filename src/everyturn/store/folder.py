"""The data folder: private to its owner, and used by one gateway at a time."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from everyturn.store.base import StoreRefused

DATABASE_NAME: Final = "everyturn.db"
LOCK_NAME: Final = "gateway.lock"
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


def prepare(folder: Path) -> Path:
    """Make the folder and the database file if they are not there; the path of the database.

    Raises StoreRefused when what is there is open to others than its owner, or its path is no
    UTF-8, as SQLite takes it. An existing folder is never made narrower by us: it may be one that
    was named by mistake, like `/tmp`.
    """
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError as failure:
        shown = str(folder).encode("ascii", "backslashreplace").decode()
        raise StoreRefused(
            shown, "Its path is not UTF-8.", "Choose a folder whose path is."
        ) from failure
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as failure:
        raise StoreRefused(
            str(folder),
            f"The folder cannot be made: {failure.strerror}.",
            "Choose another folder, or create this one.",
        ) from failure
    _check_private(folder, _FOLDER_MODE)
    database = folder / DATABASE_NAME
    # Made before SQLite opens it: SQLite gives `-wal` and `-shm` the mode of this file, and the
    # umask of the process, which other threads share, stays as it is.
    make_private(database)
    for name in (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm", LOCK_NAME):
        if (folder / name).exists():
            _check_private(folder / name, _FILE_MODE)
    return database


def make_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, _FILE_MODE))
    except OSError as failure:
        raise StoreRefused(
            str(path.parent),
            f"`{path.name}` cannot be written: {failure.strerror}.",
            "Give the folder to the user that runs the gateway, or choose another one.",
        ) from failure


def _check_private(path: Path, mode: int) -> None:
    found = stat.S_IMODE(path.stat().st_mode)
    if found & ~mode:
        raise StoreRefused(
            str(path),
            f"Others than its owner may use it (mode {found:04o}).",
            f"Run `chmod {mode:o} {path}`; records are not for other users of this machine.",
        )


class FolderLock:
    """Held while a gateway uses a folder; the kernel lets go of it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        make_private(self._path)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise StoreRefused(
                str(folder),
                f"Another gateway uses this folder (process {holder or 'unknown'}).",
                "Stop it, or give this gateway a folder of its own.",
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let the next gateway have the folder."""
        os.close(self._fd)


def is_held(folder: Path) -> bool:
    """Whether a gateway uses a folder at this moment."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
