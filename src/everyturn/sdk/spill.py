"""Files for records that the gateway could not take: one file a process, its owner by lock.

A file is made with mode 0600 in a folder of mode 0700, holds one record a line, and is deleted when
all of it was sent. Lines are appended by single writes and synced, so a crash can tear only the
last one. The lock of the file (`flock`) dies with its process; who gets the lock of an orphan owns
it and sends it. What may stand in a line is decided by `resting`.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Sequence
from typing import Final, Literal

SUFFIX: Final = ".jsonl"

Written = Literal["written", "full", "failed"]


class SpillFile:
    """A file that this process owns. `take` reads what was not sent yet, `sent` moves on."""

    __slots__ = ("_descriptor", "_offset", "_taken", "path", "size")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        """Bytes, all of them in lines."""
        self._offset = 0
        self._taken = 0

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines and sync them. Raises OSError; then nothing of them stays."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self.size + written)
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(data)

    def take(self, *, bytes_max: int, count_max: int) -> tuple[list[bytes], int]:
        """The next lines, and how many were torn. No lines and none torn: all was sent.

        A line longer than `bytes_max` is taken alone.
        """
        window = bytes_max
        while True:
            data = os.pread(self._descriptor, window, self._offset)
            end = data.rfind(b"\n") + 1
            if end or len(data) < window:
                break
            window *= 2
        if not end:
            # Somebody cut the file: what is left of it is no line and never will be one.
            self._taken = self.size
            return [], 1 if data else 0
        lines: list[bytes] = []
        used = torn = 0
        for line in data[:end].split(b"\n")[:-1]:
            if len(lines) >= count_max:
                break
            used += len(line) + 1
            if _is_whole(line):
                lines.append(line)
            else:
                torn += 1
        self._taken = self._offset + used
        return lines, torn

    def sent(self) -> None:
        """What `take` gave last need not be sent again."""
        self._offset = self._taken

    @property
    def is_sent(self) -> bool:
        """Whether every line was sent."""
        return self._offset >= self.size

    def delete(self) -> None:
        """Remove the file and let go of it."""
        os.unlink(self.path)
        os.close(self._descriptor)

    def release(self) -> None:
        """Let go of the file; another process may own it now."""
        os.close(self._descriptor)


class SpillFolder:
    """The folder of one user's spill files. Not thread-safe: its sender's lock guards it.

    bytes_max: for all files together, those of other processes included.
    """

    def __init__(self, path: str, *, bytes_max: int) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._own: SpillFile | None = None
        self._refused: set[str] = set()
        """Names that may not be read here; they are not tried again."""

    def write(self, lines: Sequence[bytes]) -> Written:
        """Append lines to this process's file: all of them or none."""
        size = sum(len(line) + 1 for line in lines)
        try:
            if self._own is None:
                _make_folder(self.path)
            if self._size() + size > self._bytes_max:
                return "full"
            if self._own is None:
                self._own = self._make()
            self._own.append(lines)
        except OSError:
            return "failed"
        return "written"

    def next(self) -> tuple[SpillFile | None, int]:
        """A file to send, this process's own or an orphan, and how many could not be read."""
        if self._own is not None:
            return self._own, 0
        unreadable = 0
        try:
            names = sorted(name for name in os.listdir(self.path) if name.endswith(SUFFIX))
        except OSError:
            return None, 0  # No folder: nothing was spilled.
        for name in names:
            if name in self._refused:
                continue
            try:
                found = _adopt(os.path.join(self.path, name))
            except FileNotFoundError:
                continue  # Its owner sent it just now.
            except OSError:
                self._refused.add(name)
                unreadable += 1
                continue
            if found is not None:
                self._own = found
                return found, unreadable
        return None, unreadable

    def done(self) -> None:
        """Delete the file that was sent whole."""
        if self._own is not None:
            self._own.delete()
            self._own = None

    def release(self) -> None:
        """Let go of the file without deleting it, at the end and in a forked child."""
        if self._own is not None:
            self._own.release()
            self._own = None

    def _size(self) -> int:
        with os.scandir(self.path) as entries:
            return sum(
                entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if entry.name.endswith(SUFFIX)
            )

    def _make(self) -> SpillFile:
        path = os.path.join(self.path, f"{os.getpid()}-{os.urandom(6).hex()}{SUFFIX}")
        # Made under a name that nobody looks for, so that it is locked before it can be found.
        draft = f"{path}.new"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(draft, path)
        except OSError:
            os.close(descriptor)
            os.unlink(draft)
            raise
        return SpillFile(path, descriptor)


def _make_folder(path: str) -> None:
    """Make the folder with mode 0700; one that others own or may enter is not used."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        facts = os.lstat(path)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            raise PermissionError("the spill folder belongs to somebody else") from None
        if stat.S_IMODE(facts.st_mode) & 0o077:
            os.chmod(path, 0o700)


def _adopt(path: str) -> SpillFile | None:
    """Own an orphan; None while its process lives. Raises OSError where it may not be read."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between opening and locking, its owner may have sent and deleted it.
        if os.fstat(descriptor).st_nlink == 0:
            raise FileNotFoundError(path)
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError("the spill file belongs to somebody else")
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            # A crash tore the last line. It must not swallow the one that is appended next.
            os.pwrite(descriptor, b"\n", size)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return SpillFile(path, descriptor)


def _is_whole(line: bytes) -> bool:
    """Whether the line is a record; a torn one may end with a brace as well."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
