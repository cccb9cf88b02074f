"""Law 9: no string that matches a rule survives redaction, as it is or encoded once; it is
idempotent; JSON stays JSON; what holds no secret comes out unchanged.

The judge is Python's own `re` over every decoded string, which shares neither the engine nor the
prefilter with what it judges.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from everyturn.audit.checks import CHECKS, is_secret_by_name, name_level
from everyturn.audit.redact import Redactor
from everyturn.audit.rules import KEY_RULE, KNOWN_RULE, Rule, expand
from everyturn.audit.ruleset import RULES

KNOWN = 'FAKE "known" /väl\\ue'
REDACTOR = Redactor(b"k" * 32, known=[KNOWN])
PATTERNS = {
    rule.name: re.compile(expand(rule.pattern).replace(r"\z", r"\Z"), re.ASCII) for rule in RULES
}
_NAMES = "|".join([*PATTERNS, KEY_RULE, KNOWN_RULE])
MARK = re.compile(rf"\[redacted:(?:(?:{_NAMES}):[0-9a-f]{{8}}|scan_failed)\]")
ALPHABET = st.characters(codec="ascii", exclude_characters="\x0b\x7f") | st.sampled_from(
    "абпароль ёé😀"
)
DEPTH_MAX = 4


def strings_in(value: Any, depth: int = 0) -> list[tuple[str, str]]:
    """Every decoded string of a tree with its member's name, JSON inside strings included."""
    found: list[tuple[str, str]] = []

    def walk(item: Any, name: str) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                walk(key, "")
                walk(inner, key)
        elif isinstance(item, list):
            for inner in item:
                walk(inner, "")
        elif isinstance(item, str):
            nested = None
            if depth <= DEPTH_MAX and item.strip()[:1] in ("{", "[", '"'):
                try:
                    nested = json.loads(item)
                except ValueError:
                    nested = None
            if isinstance(nested, dict | list | str):
                found.extend(strings_in(nested, depth + 1))
            else:
                found.append((item, name))

    walk(value, "")
    return found


def survivors(text: str) -> list[str]:
    """What a rule still finds in one string, outside the marks."""
    marks = [mark.span() for mark in MARK.finditer(text)]
    found: list[str] = []
    for rule in RULES:
        for match in PATTERNS[rule.name].finditer(text):
            group = match.lastindex or 0
            start, end = match.span(group)
            if start == end or any(a <= start and end <= b for a, b in marks):
                continue
            if not rule.check or CHECKS[rule.check](match[group], match[0]):
                found.append(f"{rule.name}: {match[group]}")
    if KNOWN in text:
        found.append("known")
    return found


ESCAPE = re.compile(r"%(?:0[9ad]|[2-7][0-9a-f])", re.IGNORECASE)
"""An escape of a character of ASCII text."""


def decodings(text: str) -> Iterator[str]:
    """What a text reads where it is percent-encoded, or where it is base64 of an ASCII text."""
    if ESCAPE.search(text):
        yield unquote_to_bytes(text.encode("utf-8", "surrogatepass")).decode(errors="replace")
    for run in re.findall(r"[A-Za-z0-9+/_-]{20,}", text):
        plain = run.replace("-", "+").replace("_", "/")
        for skipped in range(4):
            piece = plain[skipped:]
            piece = piece[: len(piece) - (len(piece) % 4 == 1)]
            data = base64.b64decode(piece + "=" * (-len(piece) % 4))
            if data.isascii() and len(data) >= 15:
                yield data.decode()


def survivors_within(text: str) -> list[str]:
    """What a rule still finds in one string, as it is or encoded once."""
    return survivors(text) + [find for inner in decodings(text) for find in survivors(inner)]


def percent(text: str) -> str:
    """Each character escaped."""
    return "".join(f"%{byte:02x}" for byte in text.encode())


ENCODERS = (
    quote,
    lambda text: quote(text, safe=""),
    percent,
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
)


@st.composite
def secrets(draw: st.DrawFn) -> str:
    """A string that some rule finds, as far as its check lets it."""
    rule: Rule = draw(st.sampled_from(RULES))
    return draw(st.from_regex(PATTERNS[rule.name], alphabet=ALPHABET))


names = st.sampled_from(
    ["a", "content", "password", "X-Api-Key", "token", "name", "value", "пароль", "max_tokens"]
)
words = st.text(ALPHABET, max_size=12)
encoded = st.builds(
    lambda encode, before, secret, after: encode(before + secret + after),
    st.sampled_from(ENCODERS),
    words,
    secrets() | st.just(KNOWN),
    words,
)
leaves = st.one_of(
    words,
    secrets(),
    encoded,
    st.builds("{}/{}{}".format, words, encoded, words),
    st.builds("{}{}{}".format, words, secrets(), words),
    st.builds("{}{}{}".format, words, st.just(KNOWN), words),
    st.integers(),
    st.none(),
    st.booleans(),
    st.sampled_from(["[redacted:openai_key:0123abcd]", "password=[redacted:jwt:0123abcd]"]),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(names, inner, max_size=3),
        st.builds(
            lambda tree, is_ascii: json.dumps(tree, ensure_ascii=is_ascii), inner, st.booleans()
        ),
    ),
    max_leaves=6,
)


@given(trees, st.booleans())
def test_no_string_that_matches_a_rule_survives(tree: Any, is_ascii: bool) -> None:
    """Wherever a secret stands, no rule finds it again, and the text is still JSON."""
    text = json.dumps(tree, ensure_ascii=is_ascii)

    result = json.loads(REDACTOR.redact_json(text).value)

    for string, name in strings_in(result):
        assert survivors_within(string) == []
        if name_level(name) == 2 and is_secret_by_name(string, name):
            assert MARK.sub("", string) == ""


@given(trees)
def test_redaction_is_idempotent(tree: Any) -> None:
    """Redacting what was redacted changes nothing, not even the object."""
    once = REDACTOR.redact_json(json.dumps(tree)).value

    assert REDACTOR.redact_json(once).value is once


@given(trees)
def test_redaction_keeps_the_form(tree: Any) -> None:
    """Only strings change, and numbers under a secret's name: the form of the tree stays."""

    def form(value: Any) -> Any:
        if isinstance(value, dict):
            return [form(item) for item in value.values()]
        if isinstance(value, list):
            return [form(item) for item in value]
        return None if value is None or isinstance(value, bool) else "scalar"

    assert form(json.loads(REDACTOR.redact_json(json.dumps(tree)).value)) == form(tree)


@given(st.recursive(words, lambda inner: st.lists(inner) | st.dictionaries(words, inner)))
def test_what_holds_no_secret_comes_out_unchanged(tree: Any) -> None:
    """Text in which no rule finds anything is the same object afterwards."""
    text = json.dumps(tree)
    for string, name in strings_in(tree):
        if survivors_within(string) or name_level(name) > 0:
            return

    assert REDACTOR.redact_json(text).value is text


@given(st.lists(secrets() | encoded | words, max_size=4).map(" ".join))
def test_plain_text_obeys_the_same_laws(text: str) -> None:
    """Text that is no JSON loses its secrets once and for all."""
    once = REDACTOR.redact_text(text).value

    assert all(survivors_within(string) == [] for string, _ in strings_in(once))
    assert REDACTOR.redact_text(once).value is once
