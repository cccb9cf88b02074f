"""The step beside the commits: sync the write-ahead log to the disk, and move it to the database.

A thread with a connection of its own, so that neither holds up a commit. What it cannot do alone is
the last stretch of a checkpoint under load: while frames keep coming the log never starts again
from its beginning, so the writer is asked to finish what little is left (`finish_due`).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

import apsw

SYNC_SECONDS: Final = 0.5
"""Between two syncs of the log; the promise is one a second at least."""
CHECKPOINT_PAGES: Final = 2_000
"""Pages in the log from which a checkpoint is due."""
LOG_PAGES_MAX: Final = 16_000
"""Pages in the log from which the writer checkpoints itself, whatever it costs."""


class Keeper:
    """Syncs and checkpoints the database at `path` until it is stopped."""

    def __init__(self, path: Path, *, syncs: bool) -> None:
        """syncs: whether the log is to be synced here, because commits do not."""
        self._log = path.with_name(f"{path.name}-wal")
        self._syncs = syncs
        self._wake = threading.Event()
        self._is_stopping = False
        self.pages = 0
        """Pages in the log, as the last commit said; set by the writer."""
        self.finish_due = False
        """Whether the writer should checkpoint the few pages that came in meanwhile."""
        self.failures = 0
        """How often a sync or a checkpoint failed; the next one tries again."""
        self.is_synced = True
        """Whether the last sync succeeded; if not, a power cut may cost more than a second."""
        self._db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        self._db.wal_autocheckpoint(0)
        # A connection learns that there is a log by reading; before that it checkpoints nothing.
        self._db.execute("SELECT number FROM migrations").fetchall()
        self._thread = threading.Thread(target=self._run, name="everyturn-keeper", daemon=True)
        self._thread.start()

    def committed(self, pages: int) -> None:
        """Told by the writer after each commit: pages now in the log."""
        self.pages = pages
        if pages >= CHECKPOINT_PAGES and not self.finish_due:
            self._wake.set()

    def stop(self) -> None:
        """Sync once more and end."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._wake.wait(SYNC_SECONDS)
                self._wake.clear()
                self._sync()
                if self.pages >= CHECKPOINT_PAGES and not self.finish_due:
                    self._checkpoint()
            self._sync()
        finally:
            self._db.close()

    def _sync(self) -> None:
        if not self._syncs:
            return
        try:
            fd = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError:
            self._note_sync(is_synced=False)
            return
        try:
            os.fdatasync(fd)
            self._note_sync(is_synced=True)
        except OSError:
            self._note_sync(is_synced=False)
        finally:
            os.close(fd)

    def _note_sync(self, *, is_synced: bool) -> None:
        self.is_synced = is_synced
        self.failures += not is_synced

    def _checkpoint(self) -> None:
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            # Another connection is at it; the next commit that passes the mark asks again.
            return
        except apsw.Error:
            self.failures += 1
            return
        self.finish_due = True
