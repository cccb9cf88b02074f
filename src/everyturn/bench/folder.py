"""The folder of a run: who may write in it, what is appended, and what a crash may leave.

Every file is private to its owner, and git ignores the folder from its first file on. A line is
appended by one write of the kernel; a kill can tear at most the last line of a file, which is cut
off at the next start. One process at a time: the lock dies with its holder.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

MANIFEST: Final = "manifest.json"
ITEMS: Final = "items.jsonl"
ROWS: Final = "rows.jsonl"
JUDGEMENTS: Final = "judgements.jsonl"
SPEND: Final = "spend.jsonl"
SUMMARY: Final = "summary.json"
REPORT: Final = "report.html"
LOCK: Final = "run.lock"
_FIRST_FILES: Final = (LOCK, ITEMS, f".{ITEMS}.new", f".{MANIFEST}.new")
WARN_BYTES: Final = 1024**3


class RunRefused(Exception):
    """Something about a run cannot be done; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())


class Appender:
    """Appends whole lines to one file."""

    def __init__(self, path: Path, on_bytes: Callable[[int], None] | None = None) -> None:
        """on_bytes: told the size of each line that was written."""
        self._on_bytes = on_bytes
        self._path = path
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._is_changed = False
        self._drop_torn()

    def _drop_torn(self) -> None:
        size = os.fstat(self._file).st_size
        at = size
        while at > 0:
            start = max(0, at - 65_536)
            piece = os.pread(self._file, at - start, start)
            end = piece.rfind(b"\n")
            if end >= 0:
                at = start + end + 1
                break
            at = start
        if at < size:
            os.ftruncate(self._file, at)
            self._is_changed = True

    def append(self, line: bytes) -> None:
        """Write one line, line end included. Raises RunRefused when the disk cannot take it."""
        done = 0
        self._is_changed = True
        try:
            while done < len(line):
                done += os.write(self._file, line[done:])
        except OSError as failure:
            if done:
                self._drop_torn()
            hint = "Make room, then start the same command again: it goes on."
            raise RunRefused(
                f"{self._path.name} cannot be written: {failure.strerror}.", hint
            ) from failure
        if self._on_bytes is not None:
            self._on_bytes(len(line))

    def close(self) -> None:
        """Sync what was changed, and close. May be called twice."""
        file, self._file = self._file, -1
        if file >= 0:
            if self._is_changed:
                os.fsync(file)
            os.close(file)


class RunFolder:
    """A run folder. Enter it to write: one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        self.bytes = 0
        """Bytes of its files, kept while it is entered."""

    def file(self, name: str) -> Path:
        """The path of a file in it."""
        return self.path / name

    def exists(self) -> bool:
        """Whether a run was begun there."""
        return self.file(MANIFEST).exists()

    def __enter__(self) -> RunFolder:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = {path.name for path in self.path.iterdir()}
        # With our lock, files that a first start left before it was killed are ours as well.
        ours = {".gitignore", *(_FIRST_FILES if LOCK in names else ())}
        if names - ours and not self.exists():
            raise RunRefused(
                f"{self.path} holds other files and no run.", "Name a folder that is new or empty."
            )
        ignore = self.file(".gitignore")
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        self._lock = os.open(self.file(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            os.close(self._lock)
            if failure.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise RunRefused(
                f"another process works in {self.path}.", "Wait for it, or end it."
            ) from failure
        self.bytes = sum(p.stat().st_size for p in self.path.iterdir() if p.is_file())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._lock)

    def appender(self, name: str) -> Appender:
        """An appender that counts into `bytes`."""
        return Appender(self.file(name), self._count)

    def _count(self, size: int) -> None:
        self.bytes += size

    def replace(self, name: str, content: bytes) -> None:
        """Write a whole file at once: it is the old one or the new one, at any moment."""
        replace(self.file(name), content)

    def rewrite(self, name: str, keep: Callable[[bytes], bool]) -> None:
        """Leave only the lines of a file that `keep` says; at once, as `replace`."""
        path = self.file(name)
        with path.open("rb") as source, replacing(path) as target:
            target.writelines(line for line in source if line.endswith(b"\n") and keep(line))


def replace(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Write a whole private file at once. is_synced: False where its loss does no harm."""
    with replacing(path, is_synced=is_synced) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, *, is_synced: bool = True) -> Iterator[BinaryIO]:
    """A private file that takes the place of `path` when the block ends well, and else is gone."""
    half = path.with_name(f".{path.name}.new")
    try:
        with open(half, "wb", opener=_private) as file:
            yield file
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
