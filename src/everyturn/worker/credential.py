"""What a worker keeps: which gateway it belongs to, its name, and its credential.

One file, 0600 in a folder of 0700, replaced whole. A folder that others may enter is refused.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from everyturn.errors import InvalidValue

FILE: Final = "credential.json"


class Credential(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paired worker's own."""

    gateway: str
    """`wss://HOST[:PORT]`."""
    name: str
    secret: str

    def __repr__(self) -> str:
        return f"Credential(name={self.name!r})"


def load(folder: Path) -> Credential:
    """The credential in a folder. Raises InvalidValue when there is none that can be used."""
    path = folder / FILE
    try:
        for one in (folder, path):
            mode = one.stat().st_mode & 0o777
            if mode & 0o077:
                raise InvalidValue(
                    f"{one} may be used by others (mode {mode:o})",
                    param="folder",
                    hint=f"Run `chmod go= {one}`, or pair again into another folder.",
                )
        return msgspec.json.decode(path.read_bytes(), type=Credential)
    except FileNotFoundError:
        raise InvalidValue(
            f"this worker is not paired: there is no {path}",
            param="folder",
            hint="Run `everyturn worker pair --gateway wss://HOST:PORT --code CODE` first.",
        ) from None
    except (OSError, msgspec.DecodeError) as bad:
        raise InvalidValue(
            f"{path} cannot be read: {type(bad).__name__}",
            param="folder",
            hint="Pair this worker again.",
        ) from bad


def check_folder(folder: Path) -> None:
    """Make the folder. Raises InvalidValue when it cannot be made or others may use it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode & 0o777
    except OSError as bad:
        raise InvalidValue(
            f"the folder {folder} cannot be made: {bad.strerror}",
            param="folder",
            hint="Name another one with --folder.",
        ) from bad
    if mode & 0o077:
        raise InvalidValue(
            f"the folder {folder} may be used by others (mode {mode:o})",
            param="folder",
            hint="Name a folder of its own with --folder.",
        )


def store(folder: Path, credential: Credential) -> None:
    """Keep the credential in place of an earlier one, synced to the disk. Raises OSError."""
    path = folder / FILE
    draft = folder / f"{FILE}.{os.getpid()}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(credential))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)
