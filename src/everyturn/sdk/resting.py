"""What of a record may rest in a spill file: facts always, texts only after redaction.

The engine (`everyturn.audit`) is imported when the first text has to rest, since most processes
never need it. Where it cannot be imported, texts are left out. Reasoning is marked first, secrets
and media after it, by the same code that the gateway stores with. The key of the marks is drawn for
this process and never rests anywhere: equal secrets of one process can be seen to be equal.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any, Final

from everyturn.sdk.counting import Counters
from everyturn.sdk.forking import IMPORTS

IDS_AND_ENUMS: Final = frozenset(
    {
        "log",
        "turn_id",
        "trace_id",
        "span_id",
        "parent_span_id",
        "request_id",
        "access_id",
        "model_call_id",
        "fallback_of",
        "tool_call_id",
        "retrieval_id",
        "review_id",
        "timestamp",
        "created_at",
        "outcome",
        "failure_type",
        "human_review_status",
        "transport",
        "stream_state",
        "tool_family",
        "status",
        "review_source",
        "method",
    }
)
"""Fields of text that this package makes or checks itself. Numbers and booleans rest as well."""

NAMES: Final = frozenset(
    {
        "service",
        "instance",
        "environment",
        "project_id",
        "chat_id",
        "plugin",
        "user_message_id",
        "assistant_message_id",
        "error_code",
        "prompt_id",
        "prompt_version",
        "variant",
        "origin",
        "tool_name",
        "target_service",
        "provider_call_id",
        "profile",
        "index_version",
        "path_template",
        "client_type",
        "label_primary_issue",
        "rubric_version",
        "reviewer",
        "provider_id",
        "provider_type",
        "requested_model",
        "served_model_name",
        "finish_reason",
    }
)
"""Short words of the application: redacted like a text, and without the engine kept where they
look like a name (`_NAME`)."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/{}-]{0,63}")

Clean = Callable[[dict[str, Any]], dict[str, Any] | None]


class Resting:
    """Decides what of each record is written."""

    def __init__(self, counters: Counters, known: str | None) -> None:
        """known: the API key, which is removed wherever it stands."""
        self._counters = counters
        self._known = known
        self._clean: Clean | None = None
        self._is_tried = False

    def line(self, record: bytes) -> bytes:
        """The record as it may rest: one line of JSON, without a line end."""
        item: dict[str, Any] = json.loads(record)
        facts: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in item.items():
            is_fact = name in IDS_AND_ENUMS or isinstance(value, bool | int | float)
            (facts if is_fact else rest)[name] = value
        if rest:
            facts.update(self._redacted(rest))
        return json.dumps(facts, ensure_ascii=True, separators=(",", ":")).encode()

    def _redacted(self, rest: dict[str, Any]) -> dict[str, Any]:
        if not self._is_tried:
            self._is_tried = True
            self._clean = _engine(self._known)
        cleaned = self._clean(rest) if self._clean is not None else None
        if cleaned is not None:
            return cleaned
        named = {
            name: value
            for name, value in rest.items()
            if name in NAMES and isinstance(value, str) and _NAME.fullmatch(value)
        }
        if len(named) < len(rest):
            self._counters.add("payload_not_spilled")
        return named


def _engine(known: str | None) -> Clean | None:
    """The redaction engine, ready; None where this installation lacks it."""
    try:
        with IMPORTS:
            from everyturn.audit.cleaning import Cleaner
            from everyturn.audit.reasoning import mark_tags
            from everyturn.audit.redact import Redactor
    except ImportError:
        return None
    key = os.urandom(32)
    cleaner = Cleaner(Redactor(key, known=[known] if known else ()), key)

    def without_tags(value: Any) -> Any:
        if isinstance(value, str):
            return mark_tags(value)[0]
        if isinstance(value, list):
            return [without_tags(one) for one in value]
        if isinstance(value, dict):
            return {name: without_tags(one) for name, one in value.items()}
        return value

    def clean(rest: dict[str, Any]) -> dict[str, Any] | None:
        try:
            cleaned = json.loads(cleaner.said(without_tags(rest)).value)
        except Exception:  # noqa: BLE001 - fails closed: the facts rest, the texts are left out
            return None
        # Where the scan failed, a mark stands for the whole and nothing is left of the members.
        return cleaned if isinstance(cleaned, dict) else None

    return clean
