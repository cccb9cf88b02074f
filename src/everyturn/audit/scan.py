"""The pattern engine: which rules occur in a text, and where.

RE2 only (linear time on any input). Spans are bytes of UTF-8. A lone surrogate, which UTF-8 does
not have, is seen as U+FFFD: both are three bytes, so spans hold for the text that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import re2  # type: ignore[import-untyped]

MEMORY_BYTES_MAX: Final = 16 << 20
"""What the automaton of one set may use; when it is full its states are built anew."""

PATTERN_BYTES_MAX: Final = 1 << 17
"""What the automaton of one pattern of an operator may use."""

_WITNESS: Final = r"\z"
_ONLY_WITNESS: Final = [1]
"""What a set of a pattern and the witness says of a text without the pattern."""
_SHORT_BYTES: Final = 8192

Check = Callable[[str, str], bool]
"""(secret, whole match) → whether it is one."""


class ScanFailed(Exception):
    """The engine gave no answer; what it looked at must not be stored."""


class PatternRefused(Exception):
    """RE2 does not take a pattern, or it would match everywhere; says why."""


def options(memory_bytes_max: int = MEMORY_BYTES_MAX) -> Any:
    """RE2 options for everything here."""
    chosen = re2.Options()
    chosen.max_mem = memory_bytes_max
    chosen.log_errors = False
    return chosen


def encode(text: str) -> bytes:
    """UTF-8 for the engine; a lone surrogate becomes U+FFFD, which is as long."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def quoted(literal: str) -> str:
    """A pattern that matches exactly `literal`."""
    return str(re2.escape(literal))


def check_pattern(pattern: str) -> None:
    """Raises PatternRefused for a foreign pattern that cannot run within bounds."""
    try:
        compiled = re2.compile(pattern, options(PATTERN_BYTES_MAX))
    except re2.error as bad:
        reason = bad.args[0] if bad.args else ""
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternRefused(f"RE2 refuses it ({words})") from None
    if compiled.search(b"") is not None:
        raise PatternRefused("it matches the empty text, and so everywhere")


class Scanner:
    """Says which of its patterns occur in a text: one RE2 set, in one pass.

    RE2's set answers "nothing" when its automaton cannot run, which would let secrets through. A
    last pattern that always matches tells the two apart.

    apart: patterns that get a pass of their own and come after the others. One that keeps many
    places open at once would multiply the states of all the others. A pattern alone falls back to
    another engine when its automaton is full, so its answer holds.
    """

    __slots__ = ("_apart", "_match", "_witness", "patterns")

    def __init__(self, patterns: Sequence[str], *, apart: Sequence[str] = ()) -> None:
        self.patterns = (*patterns, *apart)
        engine = re2.Set.SearchSet(options())
        for pattern in patterns:
            engine.Add(pattern)
        self._witness: int = engine.Add(_WITNESS)
        engine.Compile()
        self._match = _match_of(engine)
        self._apart = [
            (index, _Alone(pattern)) for index, pattern in enumerate(apart, start=len(patterns))
        ]

    def scan(self, raw: bytes) -> list[int]:
        """Indexes of the patterns that occur in `raw`, ascending. Raises ScanFailed."""
        found = self._match(raw)
        if self._witness not in found:
            raise ScanFailed
        if len(found) == 1:
            found.clear()
        else:
            found.remove(self._witness)
            found.sort()
        for index, alone in self._apart:
            if alone.occurs(raw):
                found.append(index)
        return found


def _match_of(engine: Any) -> Callable[[bytes], list[int]]:
    """What says which patterns of a set match; an empty list, where it cannot say.

    The set's own method, without the one in Python around it, which looks at the type of the text.
    """
    match: Callable[[bytes], list[int]] = engine._set.Match
    return match


class _Alone:
    """A pattern with a pass of its own.

    A set of it is asked at half the cost of a search, but reads on to the end after a find, so it
    is for short texts; and it may have no answer, which its witness tells.
    """

    __slots__ = ("_match", "_search")

    def __init__(self, pattern: str) -> None:
        engine = re2.Set.SearchSet(options())
        engine.Add(pattern)
        engine.Add(_WITNESS)
        engine.Compile()
        self._match = _match_of(engine)
        self._search: Callable[[bytes], Any] = re2.compile(pattern, options()).search

    def occurs(self, raw: bytes) -> bool:
        if len(raw) <= _SHORT_BYTES:
            found = self._match(raw)
            if found:
                return found != _ONLY_WITNESS
        return self._search(raw) is not None


class Finder:
    """One rule with its pattern compiled."""

    __slots__ = ("_candidates_max", "_pattern", "check", "is_entropy", "name", "secret")

    def __init__(
        self,
        name: str,
        pattern: str,
        *,
        check: Check | None = None,
        is_entropy: bool = False,
        secret: bytes = b"",
        candidates_max: int | None = None,
    ) -> None:
        """secret: what the pattern finds, where it finds it encoded; empty: what it finds.

        candidates_max: for a pattern that we do not know. One with an optional tail may look at all
        of the rest of the text for each match, so matches are bounded, those that `check` refuses
        too; past the bound all of the text is one find.
        """
        self.name = name
        self.secret = secret
        self.check = check
        self.is_entropy = is_entropy
        self._candidates_max = candidates_max
        self._pattern = re2.compile(pattern, options())

    def find(self, raw: bytes) -> Iterator[tuple[int, int]]:
        """Spans of the secrets in `raw`, left to right and apart."""
        for number, match in enumerate(self._pattern.finditer(raw)):
            if number == self._candidates_max:
                yield 0, len(raw)
                return
            start, end = match.span(match.lastindex or 0)
            if start == end:
                continue
            if self.check is None or self.check(raw[start:end].decode(), match.group().decode()):
                yield start, end


class Pattern:
    """A pattern that is asked about a text."""

    __slots__ = ("_pattern",)

    def __init__(self, pattern: str) -> None:
        self._pattern = re2.compile(pattern, options())

    def matches(self, text: str) -> bool:
        """Whether all of `text` matches."""
        return self._pattern.fullmatch(encode(text)) is not None

    def occurs(self, raw: bytes) -> bool:
        """Whether the pattern matches somewhere in `raw`."""
        return self._pattern.search(raw) is not None

    def spans(self, raw: bytes) -> list[tuple[int, int]]:
        """Where the pattern matches inside `raw`, left to right and apart."""
        return [match.span() for match in self._pattern.finditer(raw)]

    def ends(self, text: str) -> bool:
        """Whether some end of `text` matches; for patterns that are anchored at the end."""
        return self._pattern.search(encode(text)) is not None
