"""What the rules find in a text, and where: for showing, nothing is changed.

Finds inside JSON, and inside JSON in its strings, are placed by the characters of the text that
holds them, escapes counted as they are written. Pure; linear in the text but for its depth.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from everyturn.audit.redact import DEPTH_MAX, Redactor, may_be_json
from everyturn.audit.rules import KEY_RULE, OPAQUE_KEYS
from everyturn.audit.scan import encode
from everyturn.audit.spans import strings_of

_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
)


class Finding(NamedTuple):
    """A secret in a text; never the secret itself."""

    start: int
    """In characters from the start of the text."""
    end: int
    rule: str


def findings(text: str, redactor: Redactor) -> list[Finding]:
    """Everything the rules find, in order and apart. Lines that are JSON are read as such.

    Raises ScanFailed.
    """
    if not redactor.may_hold(text):
        return []
    found = sorted(_in_text(text, redactor), key=lambda find: (find.start, -find.end))
    apart: list[Finding] = []
    for find in found:
        if not apart or find.start >= apart[-1].end:
            apart.append(find)
    return apart


def _in_text(text: str, redactor: Redactor) -> Iterator[Finding]:
    if _is_json(text):
        yield from _in_json(text, redactor, 0)
        return
    at = 0
    plain_from = 0
    for line in text.splitlines(keepends=True):
        if line[:1] in "{[" and redactor.may_hold(line) and _is_json(line):
            yield from _moved(_in_plain(text[plain_from:at], redactor), plain_from)
            yield from _moved(_in_json(line, redactor, 0), at)
            plain_from = at + len(line)
        at += len(line)
    yield from _moved(_in_plain(text[plain_from:], redactor), plain_from)


def _moved(found: Iterator[Finding], by: int) -> Iterator[Finding]:
    for start, end, rule in found:
        yield Finding(start + by, end + by, rule)


def _in_plain(text: str, redactor: Redactor, *, is_opaque: bool = False) -> Iterator[Finding]:
    raw = encode(text)
    characters = done = 0
    for start, end, rule, _ in redactor.spans(text, is_opaque=is_opaque):
        first = characters + len(raw[done:start].decode())
        characters, done = first + len(raw[start:end].decode()), end
        yield Finding(first, characters, rule)


def _in_json(text: str, redactor: Redactor, depth: int) -> Iterator[Finding]:
    for start, end, value, level, name in strings_of(text):
        token = text[start:end]
        if redactor.is_secret_by_name(value, level, name):
            # As in a record: the format's name, where it explains the whole string.
            inside = list(_in_plain(value, redactor))
            is_whole = len(inside) == 1 and (inside[0].start, inside[0].end) == (0, len(value))
            yield Finding(start, end, inside[0].rule if is_whole else KEY_RULE)
            continue
        if not redactor.may_hold(value):
            continue
        if depth < DEPTH_MAX and _is_json(value):
            found = _in_json(value, redactor, depth + 1)
        else:
            found = _in_plain(value, redactor, is_opaque=name in OPAQUE_KEYS)
        place = _Places(token)
        for first, last, rule in found:
            yield Finding(start + place.of(first), start + place.of(last), rule)


class _Places:
    """From characters of a string to characters of its JSON token."""

    def __init__(self, token: str) -> None:
        self._quote = int(token.startswith('"'))
        self._escapes: list[int] = []
        """Which characters of the string are escaped."""
        self._extra = [0]
        """How many more characters the first n escapes take than they stand for."""
        for escape in _ESCAPE.finditer(token) if "\\" in token else ():
            self._escapes.append(escape.start() - self._quote - self._extra[-1])
            self._extra.append(self._extra[-1] + len(escape[0]) - 1)

    def of(self, at: int) -> int:
        """The place in the token of the string's character `at`, or of its end."""
        return at + self._quote + self._extra[bisect_left(self._escapes, at)]


def _is_json(text: str) -> bool:
    if not may_be_json(text):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
