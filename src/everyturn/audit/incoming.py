"""Records that applications and services send: from one JSON object to a row as it may rest.

Pure. Strict: a field that its log does not have, a value of another type and a word outside its
closed set are refused by name, and nothing is repaired. What only this side can know (revisions,
redactions, sources, the principal) is not taken from a sender. Reasoning and secrets are removed
here, as everywhere before a row.

    rows = Incoming(cleaner, plugins)
    taken = rows.take({"log": "tool_calls", …}, principal="app")     # raises CallerFault
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from everyturn import ids
from everyturn.audit import columns
from everyturn.audit.cleaning import Cleaner, merged
from everyturn.audit.plugins import Plugins
from everyturn.audit.reasoning import TAGS, mark_tags
from everyturn.audit.records import AccessEvent, ModelCall, QualityReview, Record, TurnAudit
from everyturn.audit.redact import NONE_FOUND, Counts
from everyturn.audit.schema import LOG_NAMED, Column, Log
from everyturn.errors import InvalidValue, MissingParameter, UnknownParameter
from everyturn.wire import reader

TIMESTAMP_MIN: Final = 946_684_800_000_000
"""The year 2000: integers below it are seconds or milliseconds, sent by mistake."""
TIMESTAMP_MAX: Final = 253_402_300_799_999_999
"""The end of the year 9999; nanoseconds are above it."""
INTEGER_MAX: Final = (1 << 63) - 1

_NOT_FROM_SENDERS: Final = frozenset(
    {
        "principal",
        "revision",
        "schema_version",
        "redaction_applied",
        "redaction_rules_version",
        "redactions_json",
        "sources_by_field_json",
    }
)
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACE_ID: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN_ID: Final = re.compile(r"(?!0{16})[0-9a-f]{16}")
_PATTERNS: Final = {
    "trace_id": (_TRACE_ID, "32 hex digits in lower case"),
    "span_id": (_SPAN_ID, "16 hex digits in lower case"),
    "parent_span_id": (_SPAN_ID, "16 hex digits in lower case"),
    "request_id": (_REQUEST_ID, "1 to 128 letters, digits and . _ : / + = @ -"),
}
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
"""RFC 3339, section 5.6."""
_SAYS_TAGS: Final = tuple(tag.encode() for pair in TAGS for tag in pair)
_TAGGED: Final = frozenset({"assistant_text", "notes", "response_json", "error_json", "drift_json"})
"""Fields in which models speak; reasoning may stand there between tags. In `prompt_messages_json`
only the messages that are a model's: what a user or a tool wrote is theirs."""
_MODELS: Final = ("assistant", "model")
"""Roles of messages that a model wrote."""
_SIGNED: Final = frozenset({"temperature"})


class Taken(NamedTuple):
    """A record that was accepted."""

    record: Record
    """Its row; of a turn, the one to open with where nobody knows the turn."""
    words: dict[str, Any]
    """Of a turn: field → what its application said (see `turn_state`)."""


class _Field(NamedTuple):
    """How one field is read."""

    column: Column
    is_needed: bool
    words: tuple[str, ...]
    """The closed set it is from; empty where there is none."""
    pattern: tuple[re.Pattern[str], str] | None


class Incoming:
    """Reads records. Holds no state between calls."""

    def __init__(self, cleaner: Cleaner, plugins: Plugins) -> None:
        """plugins: which attributes and labels there are."""
        self._cleaner = cleaner
        self._plugins = plugins

    def take(self, item: Any, *, principal: str | None) -> Taken:
        """The row of one item. Raises CallerFault with the field that is at fault.

        principal: who sends it.
        """
        log = log_of(item)
        values = _values(log, item)
        self._check_meaning(log, values)
        rows = _Rest(self._cleaner, item)
        said = {name: rows.at_rest(log, name, value) for name, value in values.items()}
        own: dict[str, Any] = {
            "redaction_applied": True,
            "redaction_rules_version": self._cleaner.version,
        }
        if log.type is TurnAudit:
            turn_id = said.pop("turn_id")
            opened = TurnAudit(
                turn_id=turn_id, timestamp=said["timestamp"], principal=principal, **own
            )
            return Taken(opened, {name: _cut(name, value) for name, value in said.items()})
        if log.type is AccessEvent:
            own["principal"] = principal
        if log.type is ModelCall:
            said = _made_elsewhere(said)
        if rows.counts:
            own["redactions_json"] = reader.write_text(dict(rows.counts))
        return Taken(log.type(**said, **own), {})

    def _check_meaning(self, log: Log, values: Mapping[str, Any]) -> None:
        attributes = values.get("attributes_json")
        if attributes is not None:
            self._plugins.check(values.get("plugin"), attributes)
        label = values.get("label_primary_issue")
        if label is not None and log.type is QualityReview:
            self._plugins.check_label(label)


class _Rest:
    """The values of one item as they may rest, and what was removed from them."""

    def __init__(self, cleaner: Cleaner, item: Any) -> None:
        raw = reader.write(item)
        self._cleaner = cleaner
        self._is_clean = cleaner.is_clean(raw)
        self._has_tags = any(tag in raw for tag in _SAYS_TAGS)
        self.counts: Counts = NONE_FOUND

    def at_rest(self, log: Log, name: str, value: Any) -> Any:
        """One value, of the type of its column."""
        field = _FIELDS[log.name][name]
        if field.column.kind not in ("text", "json"):
            return value
        if self._has_tags and name in _TAGGED:
            value = _untagged(value)
        elif self._has_tags and name == "prompt_messages_json":
            value = _with_untagged_answers(value)
        if field.column.kind == "json":
            return self._json(log, name, value)
        if self._is_clean or field.words or name in ("turn_id", "trace_id"):
            return value
        cleaned = self._cleaner.text(value)
        text = cleaned.value
        if text != value and (name == log.id or field.pattern is not None):
            raise InvalidValue(f"`{name}` looks like a secret", param=name)
        if name == "base_url":
            text = self._cleaner.url(value)
        self.counts = merged(self.counts, cleaned.counts)
        return text

    def _json(self, log: Log, name: str, value: Any) -> str:
        if self._is_clean:
            return reader.write_text(value)
        if log.type is ModelCall and name == "parameters_json" and isinstance(value, dict):
            cleaned = self._cleaner.parameters(value)
        elif log.type is ModelCall and name in ("response_json", "error_json", "drift_json"):
            cleaned = self._cleaner.said(value)
        else:
            cleaned = self._cleaner.sent(reader.write(value))
        self.counts = merged(self.counts, cleaned.counts)
        return cleaned.value


def log_of(item: Any) -> Log:
    """The log that an item names. Raises CallerFault."""
    if not isinstance(item, dict):
        raise InvalidValue("a record is a JSON object", param="log")
    name = item.get("log")
    if name is None:
        raise MissingParameter("`log` is missing", param="log")
    log = LOG_NAMED.get(name) if isinstance(name, str) else None
    if log is None:
        raise InvalidValue(f"`log` must be one of: {', '.join(LOG_NAMED)}", param="log")
    return log


def id_of(item: Any) -> str | None:
    """The id of an item as it may be told; None where it has none that is one."""
    log = LOG_NAMED.get(str(item.get("log"))) if isinstance(item, dict) else None
    value = item.get(log.id) if log is not None else None
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def _values(log: Log, item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item that say something, in the contract's order, each of its type."""
    fields = _FIELDS[log.name]
    for name in item:
        if name not in fields and name != "log":
            shown = reader.key_name(name)
            raise UnknownParameter(f"`{log.name}` takes no `{shown}` from a sender", param=shown)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        value = item.get(name)
        if value is None:
            # JSON knows null as a value; elsewhere it says that there is none.
            if name in item and field.column.kind == "json" and name != "attributes_json":
                values[name] = None
            elif field.is_needed:
                raise MissingParameter(f"`{name}` is missing", param=name)
            continue
        values[name] = _READ[field.column.kind](field, value)
    return values


def _text(field: _Field, value: Any) -> str:
    name = field.column.name
    if not isinstance(value, str):
        raise InvalidValue(f"`{name}` must be a string", param=name)
    if field.words and value not in field.words:
        raise InvalidValue(f"`{name}` must be one of: {', '.join(field.words)}", param=name)
    if name == "turn_id":
        if not ids.is_turn_id(value):
            raise InvalidValue("`turn_id` must be a UUID version 4 in lower case", param=name)
    elif field.pattern is not None and not field.pattern[0].fullmatch(value):
        raise InvalidValue(f"`{name}` must be {field.pattern[1]}", param=name)
    return value


def _json(field: _Field, value: Any) -> Any:
    name = field.column.name
    if name == "attributes_json" and not isinstance(value, dict):
        raise InvalidValue(f"`{name}` must be an object", param=name)
    return value


def _integer(field: _Field, value: Any) -> int:
    name = field.column.name
    if name in ("timestamp", "created_at"):
        return _time(name, value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INTEGER_MAX:
        raise InvalidValue(f"`{name}` must be a whole number from 0 on", param=name)
    return value


def _real(field: _Field, value: Any) -> float:
    name = field.column.name
    if isinstance(value, bool) or not isinstance(value, int | float | reader.Num):
        raise InvalidValue(f"`{name}` must be a number", param=name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or (number < 0 and name not in _SIGNED):
        raise InvalidValue(f"`{name}` must be a number from 0 on", param=name)
    if name.startswith("score_") and number > 1:
        raise InvalidValue(f"`{name}` must be a number from 0 to 1", param=name)
    return number


def _boolean(field: _Field, value: Any) -> bool:
    if not isinstance(value, bool):
        name = field.column.name
        raise InvalidValue(f"`{name}` must be true or false", param=name)
    return value


_READ: Final[dict[str, Callable[[_Field, Any], Any]]] = {
    "text": _text,
    "json": _json,
    "integer": _integer,
    "real": _real,
    "boolean": _boolean,
}


def _time(name: str, value: Any) -> int:
    """Microseconds since 1970, of an integer or of RFC 3339."""
    found = -1
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str) and _TIME.fullmatch(value):
        try:
            found = _microseconds(value.upper())
        except ValueError:  # No such day, hour or zone; 60 seconds, which a clock may show.
            found = -1
    if not TIMESTAMP_MIN <= found <= TIMESTAMP_MAX:
        raise InvalidValue(
            f"`{name}` must be RFC 3339, or whole microseconds since 1970", param=name
        )
    return found


def _microseconds(text: str) -> int:
    whole, point, rest = text.partition(".")
    digits = re.match(r"\d*", rest)
    assert digits is not None
    zone = rest[digits.end() :] if point else ""
    when = datetime.fromisoformat(whole + zone)
    return int(when.timestamp()) * 1_000_000 + int(digits[0][:6].ljust(6, "0"))


def _made_elsewhere(said: dict[str, Any]) -> dict[str, Any]:
    """A call that did not go through the gateway: closed, since nobody else will close it."""
    if said.setdefault("transport", "external") != "external":
        raise InvalidValue("`transport` of a call made elsewhere is `external`", param="transport")
    if "stream_state" not in said:
        has_failed = "error_code" in said or "error_json" in said
        ended = "complete" if said.get("stream") else "whole"
        said["stream_state"] = "error" if has_failed else ended
    return said


def _untagged(value: Any) -> Any:
    """A tree whose texts have marks in place of what stood between reasoning tags."""
    if isinstance(value, str):
        return mark_tags(value)[0]
    if isinstance(value, list):
        return [_untagged(one) for one in value]
    if isinstance(value, dict):
        return {name: _untagged(one) for name, one in value.items()}
    return value


def _cut(name: str, value: Any) -> Any:
    """A turn's field as the store will give it back: the same words again are then no change."""
    if not isinstance(value, str):
        return value
    is_json = _FIELDS["turn_audit"][name].column.kind == "json"
    return columns.cut_json(value) if is_json else columns.cut(value)


def _with_untagged_answers(messages: Any) -> Any:
    """The messages of a prompt, those without reasoning that a model wrote before."""
    if not isinstance(messages, list):
        return messages
    return [
        {**one, "content": _untagged(one["content"])}
        if isinstance(one, dict) and one.get("role") in _MODELS and "content" in one
        else one
        for one in messages
    ]


def _fields_of(log: Log) -> dict[str, _Field]:
    hints = typing.get_type_hints(log.type)
    needed = {field.name for field in msgspec.structs.fields(log.type) if field.required}
    return {
        column.name: _Field(
            column,
            column.name in needed,
            _words(hints[column.name]),
            _PATTERNS.get(column.name) or (_ids_pattern(column, log)),
        )
        for column in log.columns
        if column.name not in _NOT_FROM_SENDERS
    }


def _ids_pattern(column: Column, log: Log) -> tuple[re.Pattern[str], str] | None:
    if column.name == log.id or column.name == "fallback_of":
        return _ID, "1 to 128 letters, digits and . _ : -"
    return None


def _words(hint: Any) -> tuple[str, ...]:
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    return next((found for part in typing.get_args(hint) if (found := _words(part))), ())


_FIELDS: Final = {log.name: _fields_of(log) for log in LOG_NAMED.values()}
"""Log → its fields that a sender may give, in the contract's order."""
