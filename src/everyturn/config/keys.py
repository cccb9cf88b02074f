"""The `[[keys]]` entries: who may speak to the gateway, by the hashes of their keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from everyturn.config.faults import Faults, read_table
from everyturn.config.table import KEY

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig:
    """One API key of the gateway, without its secret."""

    name: str
    sha256: str
    permissions: frozenset[str]


def read_keys(given: Any, faults: Faults) -> tuple[KeyConfig, ...]:
    """All keys that are right; what is wrong is in `faults`."""
    if given is None:
        return ()
    if not isinstance(given, list) or not given:
        faults.add("keys", "must be a list of tables.", "Write [[keys]] and its keys below.")
        return ()
    keys: list[KeyConfig] = []
    for index, entry in enumerate(given):
        key = _key(f"keys[{index}]", entry, faults)
        if key is None:
            continue
        if any(key.name == other.name for other in keys):
            faults.add(f"keys[{index}].name", "is the name of an earlier key.", "Choose another.")
        keys.append(key)
    return tuple(keys)


def _key(path: str, entry: Any, faults: Faults) -> KeyConfig | None:
    if not isinstance(entry, dict):
        faults.add(path, "must be a table.", "Write [[keys]] and its keys below.")
        return None
    before = len(faults.found)
    values = read_table(path, entry, KEY, faults)
    name, sha256 = values["name"] or "", values["sha256"] or ""
    if not NAME.fullmatch(name):
        hint = "Use small letters, digits and `-`, at most 63, as `everyturn key new` does."
        faults.add(f"{path}.name", "is missing or not a name for a key.", hint)
    if not _HASH.fullmatch(sha256):
        hint = "Copy the `sha256` line that `everyturn key new` printed; never the key itself."
        faults.add(f"{path}.sha256", "is missing or not a SHA-256 in hex.", hint)
    if not values["permissions"]:
        hint = 'Write what the key allows, such as ["call", "read"].'
        faults.add(f"{path}.permissions", "is missing or empty.", hint)
    if len(faults.found) > before:
        return None
    return KeyConfig(name=name, sha256=sha256, permissions=frozenset(values["permissions"]))
