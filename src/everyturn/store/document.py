"""What a reader found, as JSON: the form of the HTTP API, `--json` and exports.

Field names are the columns'. A time is RFC 3339 in UTC with milliseconds, a `*_json` column is the
JSON value itself with its number texts as they were, and everything else is as it rests.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from everyturn.wire.reader import Malformed, read_provider


def document(found: Any) -> Any:
    """Rows, lists of rows and what holds them, ready for `wire.reader.write`."""
    if isinstance(found, dict):
        return {name: _member(name, value) for name, value in found.items()}
    if isinstance(found, list):
        return [document(item) for item in found]
    return found


def _member(name: str, value: Any) -> Any:
    if name in ("timestamp", "created_at", "expires_at") and isinstance(value, int):
        return rfc3339(value)
    if name.endswith("_json") and isinstance(value, str):
        try:
            return read_provider(value.encode("utf-8", "surrogatepass")).value
        except Malformed:
            return value  # Text that is no JSON is shown as it is, rather than not at all.
    return document(value)


def rfc3339(microseconds: int) -> str:
    """A time in RFC 3339, in UTC with milliseconds; microseconds since 1970."""
    when = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
