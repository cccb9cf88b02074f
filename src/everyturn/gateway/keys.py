"""The installation's redaction key: what makes equal secrets recognisable and nothing computable.

It rests beside the data folder, never in it, so that who gets the record cannot try guesses against
the tags in it.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from everyturn.errors import AuditUnavailable

KEY_BYTES: Final = 32


def key_path(data: Path) -> Path:
    """Where the key of a data folder rests: `NAME.key` beside the folder."""
    folder = data.resolve()
    return folder.with_name(f"{folder.name}.key")


def redaction_key(data: Path) -> bytes:
    """The key of a data folder, made with mode 0600 when there is none.

    Raises AuditUnavailable when it cannot be read or made, or when others may read it.
    """
    path = key_path(data)
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            return _make(path)
    except OSError as bad:
        raise AuditUnavailable(
            f"the redaction key {path} cannot be used: {bad.strerror}",
            hint="Make the folder that holds the data folder writable, or move the data folder.",
        ) from bad


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise AuditUnavailable(
                f"the redaction key {path} may be read by others (mode {mode:04o})",
                hint=f"Run `chmod 600 {path}`.",
            )
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise AuditUnavailable(
            f"the redaction key {path} is damaged: it must have {KEY_BYTES} bytes",
            hint="Restore it; with a new key, equal secrets get other tags than before.",
        )
    return key


def _make(path: Path) -> bytes:
    """Make a key. Another process may be first: then its key counts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = secrets.token_bytes(KEY_BYTES)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return _read(path)
    finally:
        draft.unlink()
    return key
