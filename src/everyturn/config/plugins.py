"""The `[plugins.NAME]` tables: typed attributes of records, and labels of reviews."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from everyturn.audit.plugins import KINDS, Attribute, Plugin
from everyturn.config.faults import Faults, read_table
from everyturn.config.table import PLUGIN
from everyturn.errors import FAILURE_TYPES

_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,64}")
_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LABEL: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_TYPES: Final = ", ".join(f'"{kind}"' for kind in KINDS)


def read_plugins(given: Any, faults: Faults) -> Mapping[str, Plugin]:
    """All declarations that are right; what is wrong is in `faults`."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        faults.add("plugins", "must hold tables.", "Write [plugins.NAME] and its keys below.")
        return {}
    return {name: _plugin(name, entry, faults) for name, entry in given.items()}


def _plugin(name: str, entry: Any, faults: Faults) -> Plugin:
    path = f"plugins.{name}"
    if not _NAME.fullmatch(name):
        hint = "Use 1 to 64 characters without blanks, as records name the plugin."
        faults.add("plugins", "has a name that cannot be used.", hint)
    if not isinstance(entry, dict):
        faults.add(path, "must be a table.", f"Write [{path}] and its keys below.")
        return Plugin()
    values = read_table(path, entry, PLUGIN, faults)
    return Plugin(
        fields=_fields(f"{path}.fields", values["fields"], faults),
        labels=_labels(f"{path}.labels", values["labels"], faults),
    )


def _fields(path: str, given: Any, faults: Faults) -> dict[str, Attribute]:
    if not isinstance(given, dict):
        faults.add(path, "must be a table.", 'Write fields = { base_id = "str" }.')
        return {}
    fields: dict[str, Attribute] = {}
    for name, kind in given.items():
        if not _ATTRIBUTE.fullmatch(name):
            hint = "Use letters, digits and `_`, at most 64, not a digit first."
            faults.add(path, "has a name that cannot be used.", hint)
            continue
        attribute = _attribute(kind)
        if attribute is None:
            hint = f"Write one of {_TYPES}, or a list of the words it may be."
            faults.add(f"{path}.{name}", "is not a type.", hint)
            continue
        fields[name] = attribute
    return fields


def _attribute(kind: Any) -> Attribute | None:
    if isinstance(kind, str):
        return Attribute(kind) if kind in KINDS else None
    if not isinstance(kind, list) or not kind or not all(isinstance(one, str) for one in kind):
        return None
    return Attribute("enum", tuple(kind)) if len(set(kind)) == len(kind) else None


def _labels(path: str, given: list[str], faults: Faults) -> frozenset[str]:
    for label in given:
        if not _LABEL.fullmatch(label):
            hint = "Use small letters, digits, `_`, `.` and `-`, at most 64."
            faults.add(path, "has what is no label.", hint)
        elif label in FAILURE_TYPES:
            faults.add(path, f"has `{label}`, which is a failure type.", "Leave it out.")
    return frozenset(given)
