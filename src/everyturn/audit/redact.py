"""Take secrets out of what is about to be stored.

One pass of a set over the serialised text decides; text without a hit comes back as the same
object. Only on a hit are the strings of the JSON decoded one by one, the secrets in them replaced,
and the changed strings written back in place, so that every other byte stays as it was. Strings
that hold JSON themselves (tool arguments) are opened the same way, to `DEPTH_MAX` levels.

What stands there after is `[redacted:RULE:TAG]`; TAG is a keyed hash, so that equal secrets can be
seen to be equal and nothing can be computed back. Personal data gets no tag. What is
percent-encoded or in base64, once, is searched as well. The result is a fixpoint: redacting it
again changes nothing. What cannot be scanned becomes `FAILED` and is counted; it is never stored.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from everyturn.audit.checks import CHECKS, is_secret_by_name, looks_secret
from everyturn.audit.encoded import (
    BASE64_HINT,
    BASE64_SIGN,
    PERCENT_HINT,
    base64_forms,
    percent_hint,
    views,
)
from everyturn.audit.rules import (
    ENGINE_VERSION,
    ESCAPED_ASCII,
    FAILED,
    KEY_HINT,
    KEY_NAMES,
    KEY_RULE,
    KNOWN_RULE,
    OPAQUE_KEYS,
    TOKEN_HINT,
    TOKEN_NAMES,
    TOO_MANY_RULE,
    Rule,
    expand,
    expand_hint,
    literal_hint,
    spell_out,
)
from everyturn.audit.ruleset import RULES
from everyturn.audit.scan import Finder, Pattern, ScanFailed, Scanner, encode, quoted
from everyturn.audit.spans import replace_strings
from everyturn.wire import reader

DEPTH_MAX: Final = 5
"""Levels of JSON inside strings that are opened; a deeper string with a hit is removed whole."""

KNOWN_LENGTH_MIN: Final = 8
"""Known values shorter than this (`EMPTY`, `none`) are no secrets and would eat plain words."""

FINDS_MAX: Final = 4096
"""Secrets in one string; a string with more is removed whole (rule `too_many`)."""

_PASSES_MAX: Final = 8
_LENGTH_MIN: Final = 7
"""No built-in rule finds anything in fewer characters."""

Counts = Mapping[str, int]
NONE_FOUND: Final[Counts] = MappingProxyType({})

T = TypeVar("T")


class Redacted(Generic[T]):
    """A value that may rest, and how often each rule found something in it."""

    __slots__ = ("counts", "value")

    def __init__(self, value: T, counts: Counts) -> None:
        self.value = value
        """The same object as was given when nothing was found."""
        self.counts = counts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Redacted):
            return NotImplemented
        return bool(self.value == other.value) and self.counts == other.counts

    def __hash__(self) -> int:
        return hash((self.value, tuple(self.counts.items())))


def rules_version(rules: Sequence[Rule] = RULES) -> str:
    """Twelve hex digits that change whenever the rules or the engine find something else."""
    facts = [str(ENGINE_VERSION), KEY_NAMES, TOKEN_NAMES]
    facts += [repr((r.name, r.kind, expand(r.pattern), r.hint, r.check)) for r in rules]
    return blake2b("\n".join(facts).encode(), digest_size=6).hexdigest()


class Span(NamedTuple):
    """Where something has to go, in bytes of UTF-8."""

    start: int
    end: int
    rule: str
    secret: bytes
    """What the tag is made of: the same however it was encoded."""


class Redactor:
    """The rules, ready to run. Holds no state between calls.

    key: secret of this installation, up to 64 bytes, that makes the tags.
    known: exact values to remove (provider keys, API keys).
    """

    def __init__(
        self, key: bytes, *, known: Iterable[str] = (), rules: Sequence[Rule] = RULES
    ) -> None:
        self._key = key
        self.version = rules_version(rules)
        values = sorted(set(known), key=lambda value: (-len(value), value))
        self.known_ignored = sum(len(value) < KNOWN_LENGTH_MIN for value in values)
        """Known values that are too short to be removed."""
        values = [value for value in values if len(value) >= KNOWN_LENGTH_MIN]
        forms = [form for value in values for form in _known_forms(value)]
        self._finders = [finder for finder, _ in forms]
        self._finders += [
            Finder(
                rule.name,
                expand(rule.pattern),
                check=CHECKS[rule.check] if rule.check else None,
                is_entropy=rule.kind == "entropy",
                candidates_max=FINDS_MAX if rule.kind == "operator" else None,
            )
            for rule in rules
        ]
        escaped = [percent_hint(value, literal_hint) for value in values]
        percent = spell_out("|".join([PERCENT_HINT, *filter(None, escaped)]))
        finder_hints = [*(hint for _, hint in forms), *(expand_hint(rule) for rule in rules)]
        names = (spell_out(expand(KEY_HINT)), spell_out(expand(TOKEN_HINT)))
        others = (*names, ESCAPED_ASCII, percent)
        self.hints = tuple(dict.fromkeys([*finder_hints, *others]))
        """One of these patterns, or of those apart, matches every text that is not clean."""
        self.hints_apart = (BASE64_HINT,)
        """The same, for a pass of their own each."""
        self._scanner = Scanner(self.hints, apart=self.hints_apart)
        self._percent = self.hints.index(percent)
        self._base64 = len(self.hints)
        self._of_hint: list[list[int]] = [[] for _ in (*self.hints, *self.hints_apart)]
        for index, hint in enumerate(finder_hints):
            self._of_hint[self.hints.index(hint)].append(index)
        has_own = any(rule.kind == "operator" for rule in rules)
        self._length_min = 1 if has_own else _LENGTH_MIN
        self._untagged = frozenset(rule.name for rule in rules if rule.kind == "personal")
        words = {finder.name for finder in self._finders} | {KEY_RULE, TOO_MANY_RULE}
        tagged = "|".join(sorted(words - self._untagged))
        plain = "|".join(["scan_failed", *sorted(self._untagged)])
        self._marker = Pattern(rf"(?:\[redacted:(?:(?:{tagged}):[0-9a-f]{{8}}|(?:{plain}))\])+")

    @overload
    def redact_json(self, text: str) -> Redacted[str]: ...
    @overload
    def redact_json(self, text: bytes) -> Redacted[bytes]: ...
    def redact_json(self, text: str | bytes) -> Redacted[Any]:
        """The JSON text without secrets, all other bytes as they were.

        Text that is not JSON is redacted as text.
        """
        try:
            if isinstance(text, bytes):
                if not self._scanner.scan(text):
                    return Redacted(text, NONE_FOUND)
                given = text.decode()
            else:
                if not self._scanner.scan(encode(text)):
                    return Redacted(text, NONE_FOUND)
                given = text
            counts: dict[str, int] = {}
            result = self._json(given, 0, counts)
            if result is None:
                result = self._string(given, 0, counts)
        except Exception:  # noqa: BLE001 - whatever went wrong, the text must not be stored
            return Redacted(_like(f'"{FAILED}"', text), {"scan_failed": 1})
        if result == given:
            return Redacted(text, NONE_FOUND)
        return Redacted(_like(result, text), counts)

    def redact_text(self, text: str) -> Redacted[str]:
        """The text without secrets. Text that is JSON stays JSON."""
        counts: dict[str, int] = {}
        result = self._guarded(text, 0, counts)
        if result == text:
            return Redacted(text, NONE_FOUND)
        return Redacted(result, counts)

    def redact_value(self, tree: Any) -> Redacted[Any]:
        """A JSON tree without secrets; the same object when there were none."""
        try:
            raw = reader.write(tree)
            found = self.redact_json(raw)
            if found.value is raw:
                return Redacted(tree, NONE_FOUND)
            return Redacted(reader.read_provider(found.value).value, found.counts)
        except Exception:  # noqa: BLE001 - what cannot be written and read cannot be scanned
            return Redacted(FAILED, {"scan_failed": 1})

    def tag(self, secret: str) -> str:
        """Eight hex digits that are equal for equal secrets of this installation."""
        data = secret.encode("utf-8", "surrogatepass")
        return blake2b(data, key=self._key, digest_size=4).hexdigest()

    def may_hold(self, text: str) -> bool:
        """Whether a text, or a serialised one, may hold something to remove. Raises ScanFailed."""
        return bool(self._scanner.scan(encode(text)))

    def spans(self, text: str, *, is_opaque: bool = False) -> list[Span]:
        """What the rules find in a text that is no JSON, in order and apart; changes nothing.

        More than `FINDS_MAX` are one find, the whole text. Raises ScanFailed.
        """
        raw = encode(text)
        hits = self._scanner.scan(raw)
        found = self._spans(text, hits, is_opaque=is_opaque) if hits else []
        return [Span(0, len(raw), TOO_MANY_RULE, raw)] if found is None else found

    def is_secret_by_name(self, text: str, level: int, name: str) -> bool:
        """Whether a string goes because of the name of its member (see `checks.name_level`)."""
        if level == 2:
            return is_secret_by_name(text, name) and not self._is_marker(text)
        return level == 1 and name not in OPAQUE_KEYS and looks_secret(text)

    # ------------------------------------------------------------- strings

    def _guarded(
        self, text: str, depth: int, counts: dict[str, int], *, is_opaque: bool = False
    ) -> str:
        """As `_string`; what cannot be scanned becomes a stub."""
        try:
            return self._string(text, depth, counts, is_opaque=is_opaque)
        except Exception:  # noqa: BLE001 - fails closed: one value is lost, no secret is kept
            counts["scan_failed"] = counts.get("scan_failed", 0) + 1
            return FAILED

    def _string(
        self, text: str, depth: int, counts: dict[str, int], *, is_opaque: bool = False
    ) -> str:
        if len(text) < self._length_min:
            return text
        hits = self._scanner.scan(encode(text))
        if not hits:
            return text
        if may_be_json(text):
            if depth >= DEPTH_MAX:
                return self._mark(KEY_RULE, text, counts)
            found = self._json(text, depth + 1, counts)
            if found is not None:
                return found
        for _ in range(_PASSES_MAX):
            spans = self._spans(text, hits, is_opaque=is_opaque)
            if spans is None:
                return self._mark(TOO_MANY_RULE, text, counts)
            if not spans:
                return text
            text = self._replace(text, spans, counts)
            hits = self._scanner.scan(encode(text))
        raise ScanFailed

    def _spans(self, text: str, hits: list[int], *, is_opaque: bool) -> list[Span] | None:
        """Spans in bytes that have to go, in order and apart.

        None when there are more than `FINDS_MAX`.
        """
        raw = encode(text)
        # Names of rules and tags read like assignments; a whole marker holds no secret.
        markers = self._marker.spans(raw) if b"[redacted:" in raw else []
        found: list[tuple[int, int, int, bytes]] = []
        for start, end, hit, secret in self._finds(raw, hits, is_opaque=is_opaque):
            at = bisect_right(markers, (start, len(raw))) - 1
            if at < 0 or end > markers[at][1]:
                found.append((start, -end, hit, secret))
                if len(found) > FINDS_MAX:
                    return None
        spans: list[Span] = []
        for start, negative_end, hit, secret in sorted(found):
            end, name = -negative_end, self._finders[hit].name
            if not spans or start >= spans[-1].end:
                spans.append(Span(start, end, name, secret))
                continue
            # Two finds share characters: both go, under the name of the longer one.
            first, last, longer, tagged = spans[-1]
            if end - start > last - first:
                longer, tagged = name, secret
            if end > last:
                tagged = raw[first:end]
            spans[-1] = Span(first, max(end, last), longer, tagged)
        return spans

    def _finds(
        self, raw: bytes, hits: list[int], *, is_opaque: bool
    ) -> Iterator[tuple[int, int, int, bytes]]:
        """Every find: its span, its finder, and the secret without its encoding."""
        yield from self._plain_finds(raw, hits, is_opaque=is_opaque)
        encoded = views(raw, has_percent=self._percent in hits, has_base64=self._base64 in hits)
        for view in encoded:
            inner = self._scanner.scan(view.raw)
            for start, end, hit, secret in self._plain_finds(view.raw, inner, is_opaque=is_opaque):
                yield *view.source(start, end), hit, secret

    def _plain_finds(
        self, raw: bytes, hits: list[int], *, is_opaque: bool
    ) -> Iterator[tuple[int, int, int, bytes]]:
        for index in sorted(chain.from_iterable(self._of_hint[hit] for hit in hits)):
            finder = self._finders[index]
            if not (is_opaque and finder.is_entropy):
                for start, end in finder.find(raw):
                    yield start, end, index, finder.secret or raw[start:end]

    def _replace(self, text: str, spans: list[Span], counts: dict[str, int]) -> str:
        raw = text.encode("utf-8", "surrogatepass")
        pieces: list[bytes] = []
        done = 0
        for start, end, name, secret in spans:
            mark = self._mark(name, secret.decode("utf-8", "surrogatepass"), counts)
            pieces += [raw[done:start], mark.encode()]
            done = end
        pieces.append(raw[done:])
        return b"".join(pieces).decode("utf-8", "surrogatepass")

    def _mark(self, name: str, secret: str, counts: dict[str, int]) -> str:
        counts[name] = counts.get(name, 0) + 1
        if name in self._untagged:
            return f"[redacted:{name}]"
        return f"[redacted:{name}:{self.tag(secret)}]"

    def _is_marker(self, text: str) -> bool:
        return text.startswith("[redacted:") and self._marker.matches(text)

    # ---------------------------------------------------------------- JSON

    def _json(self, text: str, depth: int, counts: dict[str, int]) -> str | None:
        """The JSON text with the strings replaced that hold secrets; None if it is not JSON."""
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return None

        def on_string(value: str, level: int, name: str) -> str:
            return self._named(value, level, name, depth, counts)

        return replace_strings(text, on_string)

    def _named(self, text: str, level: int, name: str, depth: int, counts: dict[str, int]) -> str:
        """A string that stands under a name of that level (see `checks.name_level`)."""
        if self.is_secret_by_name(text, level, name):
            found: dict[str, int] = {}
            result = self._guarded(text, depth, found) if level == 2 else text
            if not self._is_marker(result):
                return self._mark(KEY_RULE, text, counts)
            # A vendor's format says more than the name does, where it explains the whole string.
            for rule, count in found.items():
                counts[rule] = counts.get(rule, 0) + count
            return result
        return self._guarded(text, depth, counts, is_opaque=name in OPAQUE_KEYS)


def may_be_json(text: str) -> bool:
    """Whether `text` could be an object, an array or a string of JSON."""
    inner = text.strip(" \t\r\n")
    return len(inner) > 1 and (inner[0], inner[-1]) in {("{", "}"), ("[", "]"), ('"', '"')}


def _known_forms(value: str) -> Iterator[tuple[Finder, str]]:
    """What finds a known value as it is and inside base64, each with its hint."""
    yield Finder(KNOWN_RULE, quoted(value)), literal_hint(value)
    raw = value.encode("utf-8", "surrogatepass")
    for inner, has_head, has_tail in base64_forms(raw):
        head, tail = BASE64_SIGN * has_head, BASE64_SIGN * has_tail
        yield Finder(KNOWN_RULE, head + quoted(inner) + tail, secret=raw), literal_hint(inner)


def _like(result: str, given: str | bytes) -> str | bytes:
    """`result` in the type of `given`."""
    return result.encode() if isinstance(given, bytes) else result
