"""What a value in a preset file may be: one check a fact, over the closed sets of `wire.preset`.

A check takes the TOML value and gives the value that `wire.preset.Preset` holds, or raises Bad with
what is wrong and what to do. Messages name keys and allowed words, never the value that was found.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from everyturn.wire.preset import (
    CARRIERS,
    EFFORTS,
    History,
    HistoryCarrier,
    StreamOptions,
    TagMode,
    Terminal,
    UsagePlace,
)

Check = Callable[[Any], Any]

_ENV_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_HEADER_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_DATE: Final = re.compile(r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?")
_KIND: Final = re.compile(r"[DRCIP](\+[DRCIP])*")

ERROR_SHAPES: Final = ("object", "string", "top_level", "array")


class Bad(Exception):
    """A value that a preset cannot have: what is wrong, and what to do about it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def close_to(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word nearest to `word`, or all of them when none is near."""
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1)
    if near:
        return f"Did you mean `{near[0]}`?"
    return f"Use one of: {', '.join(f'`{item}`' for item in words)}."


def text(value: Any) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise Bad("has to be a string that is not empty.", "Write it in double quotes.")
    return value


def flag(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise Bad("has to be true or false.", "Write `true` or `false` without quotes.")
    return value


def one_of(words: tuple[str, ...]) -> Check:
    """A check for one word of a closed set."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise Bad("has to be a word of a closed set.", close_to("", words))
        if value not in words:
            raise Bad("has a word that is not known here.", close_to(value, words))
        return value

    return check


def some_of(words: tuple[str, ...]) -> Check:
    """A check for a list of different words of a closed set; the order is kept."""
    single = one_of(words)

    def check(value: Any) -> tuple[str, ...]:
        return tuple(single(item) for item in _different(value))

    return check


def _matching(pattern: re.Pattern[str], what: str, hint: str) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise Bad(what, hint)
        return value

    return check


def _different(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Bad("has to be a list.", 'Write it as `["first", "second"]`.')
    if any(item in value[:index] for index, item in enumerate(value)):
        raise Bad("has an item twice.", "Leave the second one out.")
    return value


name = _matching(
    re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*"),
    "has to be lower-case words joined by hyphens.",
    'Write it like `"my-server"`.',
)
date = _matching(_DATE, "has to be a month or a day.", 'Write it as `"2026-11"` or `"2026-11-30"`.')
kind = _matching(
    _KIND,
    "has to be letters for how the fact is known, joined by `+`.",
    "D documentation, R recording, C source code, I issue, P a choice of yours.",
)
_word = _matching(
    _WORD, "has to hold names of JSON members.", "Letters, digits, `_`, `.` and `-` only."
)
_path = _matching(
    _PATH, "has to be a dotted path of members.", 'Write it like `"thinking.budget_tokens"`.'
)


def words(value: Any) -> tuple[str, ...]:
    """A list of different member names."""
    return tuple(_word(item) for item in _different(value))


def url(value: Any) -> str:
    """An http or https URL without user, query and fragment; a trailing slash is taken off."""
    hint = 'Write it as one gives it to an OpenAI SDK: `"https://host/v1"`.'
    if not isinstance(value, str):
        raise Bad("has to be a URL.", hint)
    try:
        parts = urlsplit(value)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_more = bool(parts.query or parts.fragment or parts.username or parts.password)
        _ = parts.port
    except ValueError:
        raise Bad("is not a URL.", hint) from None
    if not is_url or has_more:
        raise Bad("has to be an http or https URL without user, query or fragment.", hint)
    return value.rstrip("/")


def pairs(value: Any) -> tuple[tuple[str, str], ...]:
    """A table of strings, as pairs in its order."""
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise Bad("has to be a table of strings.", 'Write it as `{ api-version = "2026-01-01" }`.')
    return tuple(value.items())


def tag(value: Any) -> tuple[str, str]:
    """The opening and the closing tag."""
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(item, str) and item for item in value)
        or value[0] == value[1]
    ):
        raise Bad("has to be two different tags.", 'Write it as `["<think>", "</think>"]`.')
    return (value[0], value[1])


def members(value: Any) -> dict[str, Any]:
    """A table that is sent as JSON members: no dates, no infinities."""
    if not isinstance(value, dict):
        raise Bad("has to be a table of members to send.", 'Write it as `{ key = "value" }`.')
    if not _is_json(value):
        raise Bad(
            "holds what JSON cannot hold.", "Use strings, numbers, true, false, lists, tables."
        )
    return value


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_json(item) for item in value.values())
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    if isinstance(value, float):
        return value - value == 0
    return isinstance(value, (str, bool, int))


def members_by(keys: tuple[str, ...]) -> Check:
    """A check for a table from words of a closed set to members to send."""
    key_check = one_of(keys)

    def check(value: Any) -> dict[str, dict[str, Any]]:
        if not isinstance(value, dict):
            raise Bad("has to be a table.", close_to("", keys))
        return {key_check(key): members(item) for key, item in value.items()}

    return check


def efforts(value: Any) -> dict[str, str]:
    """A table from an effort to the one it becomes."""
    check = one_of(EFFORTS)
    if not isinstance(value, dict):
        raise Bad("has to be a table of efforts.", 'Write it as `{ xhigh = "high" }`.')
    return {check(key): check(item) for key, item in value.items()}


_BOOLS: Final = ("true", "false")

FACTS: Final[dict[str, Check]] = {
    "base_url": url,
    "api_key_env": _matching(
        _ENV_NAME, "has to be the name of an environment variable.", 'Like `"MY_SERVER_API_KEY"`.'
    ),
    "auth_header": _matching(
        _HEADER_NAME, "has to be a header name in lower case.", 'Like `"authorization"`.'
    ),
    "query": pairs,
    "read": some_of(CARRIERS),
    "tags": one_of(get_args(TagMode)),
    "tag": tag,
    "carry": words,
    "history": one_of(get_args(History)),
    "history_carrier": one_of(get_args(HistoryCarrier)),
    "history_exact": flag,
    "history_omit": words,
    "terminal": one_of(get_args(Terminal)),
    "finish_failures": words,
    "stream_options": one_of(get_args(StreamOptions)),
    "usage_places": some_of(get_args(UsagePlace)),
    "usage_incremental": flag,
    "cached_in_prompt": flag,
    "reasoning_in_completion": flag,
    "request_keys": words,
    "controls.native": words,
    "controls.effort": members_by(EFFORTS),
    "controls.clamps": efforts,
    "controls.enabled": members_by(_BOOLS),
    "controls.budget": _path,
    "controls.exclude": members_by(_BOOLS),
    "adds": members,
    "adds_unless": words,
    "error_shapes": some_of(ERROR_SHAPES),
    "signatures": words,
    "price_provider": text,
}
"""Every fact by its key in the file, in the order in which pages show them."""

REQUIRED: Final = ("read", "tags", "history", "terminal", "stream_options")
"""Facts that decide what may be lost: each file says them, an operator's own too."""


def together(values: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Faults between facts that are each well formed: (key, what is wrong, what to do)."""
    faults = []
    if (values.get("history") == "as_tags") != (values.get("history_carrier") == "tags"):
        faults.append(
            (
                "history_carrier",
                'goes with `history`: `"as_tags"` and the carrier `"tags"` need each other.',
                "Set both or neither.",
            )
        )
    effort, clamps = values.get("controls.effort", {}), values.get("controls.clamps", {})
    for given, becomes in clamps.items():
        if given in effort or becomes not in effort:
            faults.append(
                (
                    "controls.clamps",
                    f"maps `{given}`, which `controls.effort` sends itself, or to one it lacks.",
                    "Clamp only efforts that are absent there, to ones that are present.",
                )
            )
    if not values.get("usage_places", ("usage",)):
        faults.append(("usage_places", "is empty.", 'Write `["usage"]`.'))
    return faults
