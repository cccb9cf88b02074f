r"""Text that is percent-encoded or in base64, seen decoded, with the way back to where it stood.

Once, never twice: what is encoded two times over stays unseen, and the work is bounded by a small
multiple of the text. Pure; spans are bytes of UTF-8.

Base64 of a text is told from other long words by its form. The top bit of every ASCII byte is zero,
which leaves half of the alphabet for three of each four characters; five such groups in a row occur
by chance in one of 32,000 places of random base64, and hardly in words, ids or paths.
"""

from __future__ import annotations

import base64
import codecs
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from everyturn.audit.scan import Pattern

BASE64_SIGN: Final = "[A-Za-z0-9+/_-]"
"""One character of base64, standard or URL-safe."""

_ANY: Final = r"(?:[A-Za-z0-9+_-]|\\*/)"
_GROUP: Final = rf"[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589]{_ANY}"

BASE64_HINT: Final = rf"(?:{_GROUP}){{5}}"
"""Serialised text with base64 of at least 15 ASCII bytes."""

PERCENT_HINT: Final = "%(?:0[9aAdD]|[2-7][0-9a-fA-F])"
"""Serialised text in which an escape hides a character of ASCII text."""

_ESCAPE: Final = Pattern("%[0-9a-fA-F]{2}")
_HAS_TEXT: Final = Pattern(BASE64_HINT.replace(_ANY, BASE64_SIGN))
_RUN: Final = Pattern(r"[A-Za-z0-9+/_-]{20,}(?:\r?\n[A-Za-z0-9+/_-]+)*")
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_AROUND: Final = 256
"""Characters of base64 that are read before and after what is surely text."""
_ALIGNMENTS: Final = 4
_BETWEEN: Final = b"\n\x1a\n"
"""Between two runs: nothing that a rule reaches over but the longest of structures."""
_PADDING: Final = (b"", b"", b"==", b"=")
"""By what is left over of the last group."""
_NONE: Final[Sequence[int]] = ()
_BROKEN_MAX: Final = 8
_BLANK: Final = b"\x1a"
_REPLACEMENT: Final = "\ufffd".encode()
_ERRORS: Final = "everyturn.blank"
_ASCII: Final = bytes(range(128)) + _BLANK * 128


class View(Protocol):
    """A decoded text, and the way back from it."""

    raw: bytes
    """Valid UTF-8; what was none is blank."""

    def source(self, start: int, end: int) -> tuple[int, int]:
        """The span in the encoded text that holds these decoded bytes."""


def views(raw: bytes, *, has_percent: bool, has_base64: bool) -> Iterator[View]:
    """The text as it reads decoded: at most five times, however much of it is encoded."""
    if has_percent:
        yield PercentView(raw)
    if has_base64:
        runs = [_Run(start, raw[start:end]) for start, end in _worth_reading(raw)]
        if runs:
            for skipped in range(_ALIGNMENTS):
                yield Base64View(runs, skipped)


def _worth_reading(raw: bytes) -> Iterator[tuple[int, int]]:
    """The parts of runs of base64 that hold text, with some of what is around it.

    A picture or a signature of a megabyte holds a few characters that could be text by chance, and
    no more than these are looked at.
    """
    texts = iter(_HAS_TEXT.spans(raw))
    text = next(texts, None)
    for start, end in _RUN.spans(raw) if text is not None else ():
        window: tuple[int, int] | None = None
        # What is surely text stands in one word, and a word of that length in one run.
        while text is not None and text[0] < end:
            first, last = text
            text = next(texts, None)
            if window is not None and first - _AROUND <= window[1]:
                window = window[0], min(last + _AROUND, end)
                continue
            if window is not None:
                yield window
            window = max(first - _AROUND, start), min(last + _AROUND, end)
        if window is not None:
            yield window


class PercentView:
    """A text with its percent escapes decoded."""

    __slots__ = ("_escapes", "raw")

    def __init__(self, raw: bytes) -> None:
        spans = _ESCAPE.spans(raw)
        self._escapes = [start - 2 * number for number, (start, _) in enumerate(spans)]
        decoded = unquote_to_bytes(raw)
        self.raw = decoded if decoded.isascii() else _text(decoded)

    def source(self, start: int, end: int) -> tuple[int, int]:
        """The span in the encoded text that holds these decoded bytes."""
        escapes = self._escapes
        return start + 2 * bisect_left(escapes, start), end + 2 * bisect_left(escapes, end)


class _Run:
    """A run of base64, standard or URL-safe."""

    __slots__ = ("breaks", "place", "signs")

    def __init__(self, place: int, run: bytes) -> None:
        self.place = place
        """Where it starts in the text."""
        self.signs = run.translate(_STANDARD, b"\r\n")
        """In the standard alphabet, without line breaks."""
        self.breaks: Sequence[int] = _NONE
        """Where in it line breaks were taken out."""
        if len(self.signs) < len(run):
            self.breaks = [at for at, sign in enumerate(run) if sign in b"\r\n"]


class Base64View:
    """The runs of base64 in a text, standard or URL-safe, decoded and put one after the other.

    skipped: how many characters of each run are left out before its first group, since a path or a
    word may stand right before it; 0 to 3.
    """

    __slots__ = ("_runs", "_skipped", "_starts", "raw")

    def __init__(self, runs: Sequence[_Run], skipped: int) -> None:
        self._skipped = skipped
        self._runs = runs
        self._starts: list[int] = []
        """Where each run starts in `raw`."""
        pieces: list[bytes] = []
        length = 0
        for run in runs:
            signs = run.signs
            # The last group is padded, or dropped where it holds no whole byte.
            rest = (len(signs) - skipped) % 4
            whole = signs[skipped : len(signs) - (rest == 1)] + _PADDING[rest]
            decoded = a2b_base64(whole)
            if not decoded.isascii():
                decoded = _text(decoded)
            self._starts.append(length)
            pieces += (decoded, _BETWEEN)
            length += len(decoded) + len(_BETWEEN)
        self.raw = b"".join(pieces)

    def source(self, start: int, end: int) -> tuple[int, int]:
        """The span in the encoded text that holds these decoded bytes."""
        return self._place(start, is_end=False), self._place(end - 1, is_end=True) + 1

    def _place(self, at: int, *, is_end: bool) -> int:
        """Where the first, or the last, character stands that holds the decoded byte `at`."""
        run = bisect_right(self._starts, at) - 1
        inside = at - self._starts[run]
        place = (-(-(inside + 1) * 8 // 6) - 1 if is_end else inside * 8 // 6) + self._skipped
        breaks = self._runs[run].breaks
        low, high = 0, len(breaks)
        while low < high:  # How many breaks stand before it: break i is before breaks[i] - i.
            middle = (low + high) // 2
            if breaks[middle] - middle <= place:
                low = middle + 1
            else:
                high = middle
        return self._runs[run].place + place + low


def percent_hint(value: str, plain: Callable[[str], str]) -> str:
    """A pattern for a known value beyond ASCII, which `PERCENT_HINT` may pass by; else empty.

    plain: `rules.literal_hint`, for how a character stands unescaped in JSON.
    """
    if value.isascii():
        return ""
    pieces = []
    for sign in value:
        escaped = "".join(f"%(?i:{byte:02x})" for byte in sign.encode("utf-8", "surrogatepass"))
        pieces.append(f"(?:{plain(sign)}|{escaped})")
    return "".join(pieces)


def base64_forms(value: bytes) -> list[tuple[str, bool, bool]]:
    """How bytes stand inside base64, wherever they begin and whatever is around them.

    Each: the characters that `value` alone decides, and whether one that it decides in part stands
    before and after them.
    """
    forms: dict[tuple[str, bool, bool], None] = {}
    for before in range(3):
        first, last = -(-8 * before // 6), 8 * (before + len(value)) // 6
        has_head, has_tail = before > 0, 8 * (before + len(value)) % 6 > 0
        padded = bytes(before) + value + bytes(2)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms[encode(padded)[first:last].decode(), has_head, has_tail] = None
    return list(forms)


def _text(decoded: bytes) -> bytes:
    """Valid UTF-8 of the same length: what is none is blank, and blanks continue no word.

    A few broken characters are blanked one by one, as a text has them where it was cut; what has
    more is no text, and only its ASCII stays.
    """
    broken = decoded.decode("utf-8", "replace").count("\ufffd") - decoded.count(_REPLACEMENT)
    if broken == 0:
        return decoded
    if broken >= _BROKEN_MAX:
        return decoded.translate(_ASCII)
    return decoded.decode("utf-8", _ERRORS).encode()


def _blank(bad: UnicodeError) -> tuple[str, int]:
    assert isinstance(bad, UnicodeDecodeError), "only decoding asks for it"
    return _BLANK.decode() * (bad.end - bad.start), bad.end


# The quick way to blank what is broken: the decoder asks for each place, and no exception is made
# anew for each.
codecs.register_error(_ERRORS, _blank)
