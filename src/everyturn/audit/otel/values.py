"""Values as OTLP/JSON writes them: attributes, times, ids.

Source: open-telemetry/opentelemetry-proto `docs/specification.md`, "JSON Protobuf Encoding" (ids
as hex, enums as numbers, 64-bit integers as decimal text), and the specification's page on the
file exporter (one ExportTraceServiceRequest a line); read 2026-12-01.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any, Final

from everyturn.wire.reader import NonFinite, Num

SURROGATES: Final = re.compile("[\ud800-\udfff]")
STATUS_UNSET: Final = 0
STATUS_OK: Final = 1
STATUS_ERROR: Final = 2
SPAN_INTERNAL: Final = 1
SPAN_SERVER: Final = 2
SPAN_CLIENT: Final = 3
_INTEGER_MAX: Final = (1 << 63) - 1
_INTEGER_TEXT: Final = re.compile(r"-?\d{1,19}")


class Unreadable(ValueError):
    """An attribute's value that is not of OTLP's form."""


def well_formed(text: str) -> str:
    """The text as UTF-8 can carry it: a lone surrogate becomes U+FFFD."""
    return SURROGATES.sub("\ufffd", text)


def any_value(value: Any) -> dict[str, Any]:
    """An AnyValue of a text, number, boolean, or list of these."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    return {"stringValue": well_formed(str(value))}


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """KeyValues, in order."""
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def read_value(value: Any) -> Any:
    """What an AnyValue says: a tree. None where it is empty. Raises Unreadable."""
    if not isinstance(value, dict) or len(value) > 1:
        raise Unreadable
    for form, held in value.items():
        match form:
            case "stringValue" | "bytesValue" if isinstance(held, str):
                return held
            case "boolValue" if isinstance(held, bool):
                return held
            case "intValue":
                return read_integer(held)
            case "doubleValue":
                return _real(held)
            case "arrayValue" if isinstance(held, dict):
                return [read_value(one) for one in _listed(held, "values")]
            case "kvlistValue" if isinstance(held, dict):
                return dict(_pair(one) for one in _listed(held, "values"))
            case _:
                raise Unreadable
    return None


def read_attributes(found: Any) -> dict[str, Any]:
    """The values of a list of KeyValues; of a key that stands twice the last. Raises Unreadable."""
    if found is None:
        return {}
    if not isinstance(found, list):
        raise Unreadable
    return dict(_pair(one) for one in found)


def read_integer(held: Any) -> int:
    """A 64-bit integer, which is text in OTLP/JSON and often a number. Raises Unreadable."""
    if isinstance(held, str) and _INTEGER_TEXT.fullmatch(held):
        held = int(held)
    if isinstance(held, bool) or not isinstance(held, int) or abs(held) > _INTEGER_MAX:
        raise Unreadable
    return held


def made_id(digits: int, *parts: str) -> str:
    """An id of so many hex digits that is always the same for the same parts, and not zero."""
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    made = hashlib.sha256(b"everyturn otlp\0" + text).hexdigest()[:digits]
    return made if int(made, 16) else made[:-1] + "1"


def made_turn_id(trace_id: str) -> str:
    """A UUID version 4 for the turn of a trace that names none: always the same for a trace."""
    made = made_id(32, "turn", trace_id)
    variant = "89ab"[int(made[16], 16) & 3]
    return f"{made[:8]}-{made[8:12]}-4{made[13:16]}-{variant}{made[17:20]}-{made[20:]}"


def _pair(one: Any) -> tuple[str, Any]:
    if not isinstance(one, dict) or not isinstance(one.get("key"), str):
        raise Unreadable
    return one["key"], read_value(one.get("value", {}))


def _listed(held: dict[str, Any], name: str) -> list[Any]:
    found = held.get(name, [])
    if not isinstance(found, list):
        raise Unreadable
    return found


def _real(held: Any) -> float:
    if isinstance(held, bool) or not isinstance(held, int | float | Num):
        # Protobuf writes these three as texts; a record has no place for them.
        if held in ("NaN", "Infinity", "-Infinity") or isinstance(held, NonFinite):
            return math.nan
        raise Unreadable
    return float(held)
