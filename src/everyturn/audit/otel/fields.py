"""The attributes of one span as fields of a record: which are believed, and which nobody asked for.

Pure. What is read is remembered, so that what is left can be counted and named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from everyturn.audit.otel import names
from everyturn.audit.schema import LOG_NAMED, Kind
from everyturn.wire.reader import Malformed, read_provider

NOT_TAKEN: Final = frozenset(
    {
        "principal",
        "transport",
        "revision",
        "schema_version",
        "redaction_applied",
        "redaction_rules_version",
        "redactions_json",
        "sources_by_field_json",
    }
)
"""Fields that the gateway that takes a record fills itself."""
KINDS: Final[Mapping[str, Mapping[str, Kind]]] = {
    name: {column.name: column.kind for column in log.columns} for name, log in LOG_NAMED.items()
}
_INDEX: Final = re.compile(r"\.\d+(?=\.|$)")
UNSAID: Final = object()
"""An attribute that is not there, or whose value its field cannot hold."""


class Fields:
    """Takes attributes from a span."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = attributes
        self._used: set[str] = set()
        self.misfits: set[str] = set()
        """Attributes whose value is of another form than its field."""

    def get(self, key: str) -> Any:
        """The value of an attribute, which counts as read; None where there is none."""
        self._used.add(key)
        return self.attributes.get(key)

    def text(self, *keys: str) -> str | None:
        """The first of these attributes that is a text."""
        found = [self.get(key) for key in keys]
        return next((one for one in found if isinstance(one, str)), None)

    def row(self, log: str, prefix: str = names.OWN) -> dict[str, Any]:
        """The fields of a log that the attributes say; our own names first."""
        known = {name.field: name for name in names.NAMES[log]} if prefix == names.OWN else {}
        row: dict[str, Any] = {}
        for field, kind in KINDS[log].items():
            if names.is_of_span(field) or field in NOT_TAKEN:
                continue
            value = self._fitting(prefix + field, kind)
            name = known.get(field)
            for key in (*name.written, *name.read) if name is not None else ():
                other = self._fitting(key, kind, name.form if name is not None else kind)
                value = other if value is UNSAID else value
            if value is not UNSAID:
                row[field] = value
        return row

    def json(self, key: str) -> Any:
        """An attribute's tree, where it is JSON text or a structure; None where it is not there."""
        value = self.get(key)
        return read_json(value) if isinstance(value, str) else value

    def listed(self, prefix: str) -> list[dict[str, Any]]:
        """The entries of a flat list `PREFIX.N.…`, each a tree of the names behind the number."""
        entries: dict[int, Any] = {}
        for key, value in self.attributes.items():
            if key.startswith(f"{prefix}."):
                head, _, rest = key.removeprefix(f"{prefix}.").partition(".")
                if head.isdecimal() and rest and len(head) < 7:
                    self._used.add(key)
                    _put(entries.setdefault(int(head), {}), rest.split("."), value)
        return [_with_lists(entries[index]) for index in sorted(entries)]

    def skip(self, keys: Iterable[str], prefixes: tuple[str, ...] = ()) -> None:
        """Count these as read: they say nothing that another one does not."""
        self._used.update(keys)
        self._used.update(key for key in self.attributes if key.startswith(prefixes))

    def unread(self) -> Iterable[str]:
        """The names nobody asked for, numbers in them as N; misfits as well."""
        for key in self.attributes:
            if key not in self._used or key in self.misfits:
                yield _INDEX.sub(".N", key)

    def _fitting(self, key: str, kind: Kind, form: str = "") -> Any:
        if key not in self.attributes:
            return UNSAID
        value = fitting(self.get(key), kind, form)
        if value is UNSAID:
            self.misfits.add(key)
        return value


def fitting(value: Any, kind: Kind, form: str) -> Any:
    """A value as a field of this kind takes it; `UNSAID` where it cannot be one."""
    if form == "texts" and isinstance(value, list) and value:
        value = value[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "json":
            return read_json(value) if isinstance(value, str) else value
        case "text" if isinstance(value, str):
            return value
        case "text" if is_number:
            return str(value)
        case "boolean" if isinstance(value, bool):
            return value
        case "integer" if is_number and math.isfinite(value) and value == int(value):
            return int(value)
        case "real" if is_number and math.isfinite(value):
            return value * 1000 if form == "seconds" else value
        case _:
            return UNSAID


def read_json(text: str) -> Any:
    """The tree of JSON text; other text is a JSON string."""
    try:
        return read_provider(text.encode("utf-8", "surrogatepass")).value
    except Malformed:
        return text


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    """Put a value into a tree of dicts. Where a leaf and a branch meet, the first stays."""
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        if not isinstance(below, dict):
            return
        tree = below
    tree.setdefault(path[-1], value)


def _with_lists(tree: Any) -> Any:
    """The tree with lists where all names of a dict are numbers."""
    if not isinstance(tree, dict):
        return tree
    told = {name: _with_lists(value) for name, value in tree.items()}
    if told and all(name.isdecimal() and len(name) < 7 for name in told):
        return [told[name] for name in sorted(told, key=int)]
    return told
