"""Media that a deployment keeps: taken out of what was sent or said, on the way to their own table.

Pure. In the record each medium is a mark, as without keeping, with a word at its end: `kept`,
`redacted` (kept, and the text is another than the one that came), `too_large` or `unreadable` (not
kept). What reads like text is text, whatever its type says: it is decoded, redacted, and rests as
UTF-8, so nothing rests but what the rules have seen. All else rests as it came. `Medium` is no
`Record`: nothing that is made for records can meet one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from everyturn.audit.cleaning import Cleaner
from everyturn.audit.media import UNKNOWN, UNREADABLE
from everyturn.audit.records import REDACTIONS_NONE, Medium
from everyturn.audit.redact import Redacted
from everyturn.wire import reader

_KIND: Final = re.compile(r"[A-Za-z0-9._+/-]{1,100}")
_TEXT_KINDS: Final = re.compile(
    r"text/.*|application/(?:(?:.*[+-])?(?:json|xml|yaml|toml|javascript|sql|csv|sh)|jsonl|x-ndjson)"
    r"|image/svg\+xml",
    re.IGNORECASE,
)
"""Types that are text even where a byte of them says otherwise."""
_CHARSETS: Final = re.compile(
    r"utf-?8|utf-?(?:16|32)(?:-?[bl]e)?|us-ascii|ascii|iso-?8859-?\d{1,2}|latin-?1"
    r"|windows-?\d{3,4}|cp\d{3,4}|koi8-[rut]|gbk|gb2312|gb18030|big5|shift_jis|euc-?(?:jp|kr)",
    re.IGNORECASE,
)
_MARKS: Final = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
"""What a text may begin with to say how it is written."""
_CONTROL_BYTES: Final = bytes(b for b in range(32) if b not in b"\t\n\v\f\r\x1b") + b"\x7f"
"""What stands in nearly every file that is no text, and in no text."""
_CONTROLS: Final = re.compile(f"[{re.escape(_CONTROL_BYTES.decode())}]")
_CONTROLS_IN_BYTES: Final = re.compile(b"[%b]" % re.escape(_CONTROL_BYTES))


class MediaShelf:
    """Takes the media of one turn."""

    def __init__(self, cleaner: Cleaner, timestamp: int, bytes_max: int) -> None:
        """cleaner: for what is inside text. bytes_max: what is larger is not kept."""
        self._cleaner = cleaner
        self._timestamp = timestamp
        self._bytes_max = bytes_max
        self._media: dict[str, Medium] = {}
        self._taken: dict[str, Medium] = {}

    def keep(self, kind: str, charset: str | None, content: bytes) -> str:
        """Take a medium; its mark (see `media.Take`)."""
        kind = kind if _KIND.fullmatch(kind) else UNKNOWN
        if len(content) > self._bytes_max:
            return self._mark(kind, content, self._cleaner.media_hash(content), "too_large")
        try:
            text = read_text(kind, charset, content)
        except (UnicodeError, LookupError):  # LookupError: a charset that Python has not
            return self._mark(kind, content, self._cleaner.media_hash(content), UNREADABLE)
        if text is None:
            name = self._put(kind, content, content, None)
            return self._mark(kind, content, name, "kept")
        clean = self._clean(text)
        name = self._put(kind, content, clean.value.encode("utf-8", "surrogatepass"), clean)
        return self._mark(kind, content, name, "kept" if clean.value == text else "redacted")

    def take(self) -> tuple[Medium, ...]:
        """What came in since the last time; it belongs in the group with its marks."""
        self._taken, self._media = self._media, {}
        return tuple(self._taken.values())

    def give_back(self) -> None:
        """What was taken last could not be stored; it goes with the next group."""
        self._media = {**self._taken, **self._media}

    def _put(self, kind: str, came: bytes, data: bytes, clean: Redacted[str] | None) -> str:
        """Put a medium on the shelf under what names it. clean: of a text."""
        is_text = clean is not None
        version = self._cleaner.version if is_text else None
        name = self._cleaner.media_hash(data, version)
        counts = dict(clean.counts) if clean is not None else {}
        self._media[name] = Medium(
            media_id=name,
            timestamp=self._timestamp,
            media_type=kind,
            size_bytes=len(came),
            is_text=is_text,
            data=data,
            redaction_applied=is_text,
            redaction_rules_version=version,
            redactions_json=reader.write_text(counts) if counts else REDACTIONS_NONE,
        )
        return name

    def _clean(self, text: str) -> Redacted[str]:
        """A text as it may rest. JSON is read: names of members tell secrets."""
        if text.lstrip()[:1] in ("{", "["):
            raw = text.encode("utf-8", "surrogatepass")
            try:
                reader.read_provider(raw)
            except Exception:  # noqa: BLE001 - it only looked like JSON, and is cleaned as text
                return self._cleaner.text(text)
            return self._cleaner.sent(raw)
        return self._cleaner.text(text)

    @staticmethod
    def _mark(kind: str, content: bytes, name: str, word: str) -> str:
        return f"[media:{kind}:{len(content)}:{name}:{word}]"


def read_text(kind: str, charset: str | None, content: bytes) -> str | None:
    """The text that some bytes are; None where they are none.

    Raises UnicodeError where they are text and cannot be read for certain.
    """
    is_text = _TEXT_KINDS.fullmatch(kind) is not None
    for name in _ways(charset, content):
        try:
            text = content.decode(name)
        except UnicodeError:
            continue
        if not _CONTROLS.search(text):
            return text
    if is_text or _is_plain(content):
        raise UnicodeError("text in an encoding that nothing tells")
    return None


def _ways(charset: str | None, content: bytes) -> Iterator[str]:
    """The encodings that some bytes may be text in, the likeliest first."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            yield name
    if charset is not None and _CHARSETS.fullmatch(charset):
        yield charset
    yield "utf-8"
    for name, zeros in (("utf-16-le", content[1:4096:2]), ("utf-16-be", content[:4096:2])):
        if zeros.count(0) * 2 > len(zeros):
            yield name


def _is_plain(content: bytes) -> bool:
    """Whether bytes may be text with eight bits a character."""
    return _CONTROLS_IN_BYTES.search(content) is None
