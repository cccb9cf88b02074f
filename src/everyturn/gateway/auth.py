"""API keys: who a request comes from, and what that principal may do.

A key is `et_NAME_SECRET`. The configuration holds a hash of the secret, never the key; the secret
has 256 random bits, so a plain SHA-256 is as good as a slow hash. Names are looked up, secrets are
compared in constant time, and an unknown name costs the same comparison as a known one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from everyturn.errors import NotPermitted, Unauthorized

Permission = Literal["call", "record", "read", "review", "reasoning", "admin"]
PERMISSIONS: Final[tuple[Permission, ...]] = (
    "call",
    "record",
    "read",
    "review",
    "reasoning",
    "admin",
)

_KEY: Final = re.compile(r"et_([a-z0-9][a-z0-9-]{0,62})_([A-Za-z0-9-]{43})")
_NOBODY: Final = hashlib.sha256(b"nobody").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who a request comes from."""

    name: str | None
    """The key's name; None where the gateway has no keys."""
    permissions: frozenset[str]

    def require(self, permission: Permission) -> None:
        """Raises NotPermitted unless this principal has the permission."""
        if permission not in self.permissions:
            raise NotPermitted(
                f"this key has no permission `{permission}`",
                param="authorization",
                hint=f"Ask the operator for a key with `{permission}`.",
            )


ANYONE: Final = Principal(name=None, permissions=frozenset(PERMISSIONS))
"""Who speaks to a gateway without keys: everything is allowed, on loopback only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A configured key."""

    name: str
    secret_sha256: str
    permissions: frozenset[str]


class Keys:
    """The keys of a gateway."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = {key.name: key for key in keys}

    @property
    def are_needed(self) -> bool:
        """Whether requests need a key."""
        return bool(self._keys)

    def principal(self, authorization: str | None) -> Principal:
        """Who an `Authorization` header names. Raises Unauthorized."""
        if not self._keys:
            return ANYONE
        scheme, _, given = (authorization or "").partition(" ")
        match = _KEY.fullmatch(given.strip()) if scheme.lower() == "bearer" else None
        name, secret = match.groups() if match else ("", "")
        key = self._keys.get(name)
        expected = _NOBODY if key is None else key.secret_sha256
        is_equal = hmac.compare_digest(hash_secret(secret), expected)
        if key is None or not is_equal:
            raise Unauthorized("the API key is missing or unknown", param="authorization")
        return Principal(name=key.name, permissions=key.permissions)


def new_key(name: str) -> tuple[str, str]:
    """A new key of that name, and the hash for the configuration."""
    secret = secrets.token_urlsafe(32).replace("_", "-")
    return f"et_{name}_{secret}", hash_secret(secret)


def hash_secret(secret: str) -> str:
    """SHA-256 of a key's secret, as it stands in the configuration."""
    return hashlib.sha256(secret.encode()).hexdigest()
