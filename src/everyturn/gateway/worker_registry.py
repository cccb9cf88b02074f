"""Who may dial in as a worker: pairing codes and credentials, of which only salted hashes rest.

One file, `workers/registry.json` in the data folder (0600 in a folder of 0700), changed under a
lock and replaced whole, so that the commands and a running gateway can both use it. A code is good
for ten minutes and for one use; five wrong ones close pairing until somebody invites again. Times
come in as arguments, in seconds since 1970.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from everyturn.errors import AuditUnavailable, InvalidValue, NotPermitted

FOLDER: Final = "workers"
FILE: Final = "registry.json"

CODE_SECONDS: Final = 600
"""How long a pairing code may be used."""

WRONG_CODES_MAX: Final = 5
"""So many wrong codes close pairing."""

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SIGNS: Final = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Of a code: none that is easily taken for another."""
_CODE_GROUPS: Final = (4, 4, 4)
_PREFIX: Final = "everyturn-worker"


class Hashed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret at rest."""

    salt: str
    sha256: str

    def fits(self, secret: str) -> bool:
        """Whether this is the secret; takes the same time for every wrong one."""
        return hmac.compare_digest(_digest(self.salt, secret), self.sha256)


class Invite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pairing code that was given out."""

    name: str
    code: Hashed
    expires_at: int


class Paired(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A worker that has a credential."""

    credential: Hashed
    paired_at: int
    next_credential: Hashed | None = None
    """Sent to the worker and not yet confirmed; good beside the present one."""
    wants_rotation: bool = False
    rotated_at: int | None = None
    connected_at: int | None = None
    """Since when it is connected; None: it is not."""
    seen_at: int | None = None
    """When it last connected or left."""


class Registered(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All that rests."""

    workers: dict[str, Paired] = {}
    invites: list[Invite] = []
    wrong_codes: int = 0


class Registry:
    """The registry of one data folder."""

    def __init__(self, data: Path) -> None:
        self._folder = data / FOLDER
        self._path = self._folder / FILE

    def stamp(self) -> tuple[int, int]:
        """Changes whenever the file was replaced; (0, 0) while there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino

    def read(self) -> Registered:
        """What rests now. Raises AuditUnavailable when the file cannot be read or used."""
        try:
            mode = self._path.stat().st_mode & 0o777
            if mode & 0o077:
                raise AuditUnavailable(
                    f"the worker registry {self._path} may be used by others (mode {mode:o})",
                    hint=f"Run `chmod 600 {self._path}`.",
                )
            return msgspec.json.decode(self._path.read_bytes(), type=Registered)
        except FileNotFoundError:
            return Registered()
        except (OSError, msgspec.DecodeError) as bad:
            raise AuditUnavailable(
                f"the worker registry {self._path} cannot be read: {type(bad).__name__}",
                hint="Restore the file, or move it away and pair the workers anew.",
            ) from bad

    # ------------------------------------------------------------------------------- the operator

    def invite(self, name: str, now: int) -> str:
        """A new code that pairs a worker of this name; an earlier one is void.

        Raises InvalidValue for what is no name.
        """
        if not NAME.fullmatch(name):
            raise InvalidValue(
                "a worker's name has 1 to 63 small letters, digits and `-`", param="name"
            )
        code = "-".join(
            "".join(secrets.choice(_SIGNS) for _ in range(size)) for size in _CODE_GROUPS
        )
        with self._changing() as found:
            found.invites = [one for one in _valid(found, now) if one.name != name]
            found.invites.append(
                Invite(name=name, code=_hashed(_plain(code)), expires_at=now + CODE_SECONDS)
            )
            found.wrong_codes = 0
        return code

    def revoke(self, name: str) -> bool:
        """Forget a worker and what it was invited with; whether there was anything."""
        with self._changing() as found:
            before = len(found.invites)
            found.invites = [one for one in found.invites if one.name != name]
            return found.workers.pop(name, None) is not None or len(found.invites) < before

    def want_rotation(self, name: str) -> bool:
        """Have a worker's credential rotated as soon as it is connected; whether it is known."""
        with self._changing() as found:
            worker = found.workers.get(name)
            if worker is None:
                return False
            worker.wants_rotation = True
        return True

    # -------------------------------------------------------------------------------- the gateway

    def pair(self, code: str, now: int) -> tuple[str, str]:
        """The name and the new credential of who has this code, which is used up by it.

        Raises NotPermitted for a code that is wrong, used or too old; the message does not say
        which.
        """
        plain = _plain(code)
        if not _valid(self.read(), now):
            # Nothing is written for guesses while nobody was invited.
            raise _no_code()
        with self._changing() as found:
            found.invites = _valid(found, now)
            invite = next((one for one in found.invites if one.code.fits(plain)), None)
            if invite is None:
                found.wrong_codes += 1
                if found.wrong_codes >= WRONG_CODES_MAX:
                    found.invites = []
            else:
                found.invites.remove(invite)
                found.wrong_codes = 0
                credential = new_credential(invite.name)
                found.workers[invite.name] = Paired(credential=_hashed(credential), paired_at=now)
        if invite is None:
            raise _no_code()
        return invite.name, credential

    def whose(self, credential: str, now: int) -> str | None:
        """Whose credential this is; None if it is nobody's.

        A worker that comes with a new credential has stored it, though its word was lost: from then
        on the old one is void.
        """
        prefix, _, rest = credential.partition(".")
        name, _, secret = rest.partition(".")
        worker = self.read().workers.get(name)
        if prefix != _PREFIX or not secret or worker is None:
            return None
        if worker.credential.fits(credential):
            return name
        if worker.next_credential is None or not worker.next_credential.fits(credential):
            return None
        self.finish_rotation(name, now)
        return name

    def begin_rotation(self, name: str) -> str | None:
        """A new credential to send to the worker; None if it is not known any more."""
        credential = new_credential(name)
        with self._changing() as found:
            worker = found.workers.get(name)
            if worker is None:
                return None
            worker.next_credential = _hashed(credential)
        return credential

    def finish_rotation(self, name: str, now: int) -> None:
        """The worker has stored the new credential: the old one is void."""
        with self._changing() as found:
            worker = found.workers.get(name)
            if worker is not None and worker.next_credential is not None:
                worker.credential = worker.next_credential
                worker.next_credential = None
                worker.wants_rotation = False
                worker.rotated_at = now

    def note(self, name: str, *, is_connected: bool, now: int) -> None:
        """Keep for `worker list` whether a worker is connected."""
        with self._changing() as found:
            worker = found.workers.get(name)
            if worker is not None:
                worker.connected_at = now if is_connected else None
                worker.seen_at = now

    def forget_connections(self) -> None:
        """At the start of a gateway nobody is connected, whatever one that was killed left."""
        if self.stamp() == (0, 0):
            return
        with self._changing() as found:
            for worker in found.workers.values():
                worker.connected_at = None

    # ------------------------------------------------------------------------------------- inside

    @contextmanager
    def _changing(self) -> Iterator[Registered]:
        """Read, let the body change, and replace the file. Raises AuditUnavailable."""
        try:
            # Both private: the data folder may be made here, before a gateway ever ran.
            self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as bad:
            raise self._unwritable(bad) from bad
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self.read()
            yield found
            self._replace(msgspec.json.encode(found))
        except OSError as bad:
            raise self._unwritable(bad) from bad
        finally:
            os.close(lock)

    def _replace(self, data: bytes) -> None:
        draft = self._folder / f"{FILE}.{os.getpid()}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)

    def _unwritable(self, bad: OSError) -> AuditUnavailable:
        return AuditUnavailable(
            f"the worker registry in {self._folder} cannot be written: {bad.strerror}",
            hint="Run the command as the user that runs the gateway.",
        )


def new_credential(name: str) -> str:
    """A new credential: who it is for, and 256 random bits."""
    return f"{_PREFIX}.{name}.{secrets.token_urlsafe(32)}"


def _no_code() -> NotPermitted:
    return NotPermitted(
        "the pairing code is wrong, used or too old",
        param="code",
        hint="Run `everyturn worker invite NAME` on the gateway's machine for a new one.",
    )


def _valid(found: Registered, now: int) -> list[Invite]:
    return [one for one in found.invites if one.expires_at > now]


def _plain(code: str) -> str:
    """A code as it was typed, without what people add."""
    return re.sub(r"[\s-]", "", code).upper()


def _hashed(secret: str) -> Hashed:
    salt = secrets.token_hex(16)
    return Hashed(salt=salt, sha256=_digest(salt, secret))


def _digest(salt: str, secret: str) -> str:
    # Both kinds of secret are random (58 and 256 bits), so a slow hash would add nothing.
    return hashlib.sha256(f"{salt}:{secret}".encode()).hexdigest()
