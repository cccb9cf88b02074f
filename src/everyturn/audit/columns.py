"""Text on its way into a column and back: what a column cannot hold is escaped, not lost.

Pure. Two things cannot rest in a text column that other tools are to read: NUL, at which many of
them stop, and lone surrogates, which have no UTF-8. In plain text each becomes `␛` and the four
hex digits of its code unit, and a literal `␛` becomes `␛241B`; so every `␛` at rest is followed by
four digits, and the six characters `\\u0000` stay what they are. In JSON columns both become the
escapes that JSON has for them, which mean the same.

Text for search and lists is cut at `TEXT_BYTES_MAX`; what is cut off is named by its hash and its
length. Payloads are never cut.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from everyturn.audit.schema import Column

TEXT_BYTES_MAX: Final = 1 << 20
"""Bytes of UTF-8 that a text column keeps; records.md, section 4."""

ESCAPE: Final = "\u241b"
_SPECIAL: Final = re.compile(r"[\x00\ud800-\udfff\u241b]")
_ESCAPED: Final = re.compile("\u241b([0-9A-Fa-f]{4})")
_CUT: Final = re.compile(r"\[cut:\d+ bytes:sha256 [0-9a-f]{64}\]")
_CUT_MARK_CHARS_MAX: Final = 120
_CUT_JSON: Final = '{"everyturn_cut":{"bytes":'
_NOT_IN_JSON: Final = re.compile(r"[\x00\ud800-\udfff]")


def is_plain(text: str) -> bool:
    """Whether `text` can rest in any column as it is, but for lone surrogates.

    Those are left to the encoding to UTF-8, which every store does anyway and which refuses them.
    """
    return "\0" not in text and (text.isascii() or ESCAPE not in text)


def escape(text: str) -> str:
    """Plain text as it rests."""
    return _SPECIAL.sub(lambda found: f"{ESCAPE}{ord(found[0]):04X}", text)


def unescape(text: str) -> str:
    """Plain text as it was; undoes `escape`. What `escape` cannot have made is left alone."""
    if ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def escape_json(text: str) -> str:
    """JSON text without NUL and lone surrogates: each as the escape that means the same."""
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def at_rest(column: Column, text: str) -> str:
    """The text of one column as it rests: cut where it is too long, then escaped."""
    if column.kind == "json":
        whole = escape_json(text)
        return whole if column.is_whole else cut_json(whole)
    return escape(text if column.is_whole else cut(text))


def cut(text: str) -> str:
    """`text`, or its first `TEXT_BYTES_MAX` bytes and a mark with length and hash of the whole.

    Only a cut text is longer than `TEXT_BYTES_MAX`, so the mark cannot be mistaken for content. A
    text that was cut and read again, for the next revision of its row, stays as it is.
    """
    if len(text) * 3 <= TEXT_BYTES_MAX:
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= TEXT_BYTES_MAX:
        return text
    mark = _CUT.search(text, len(text) - _CUT_MARK_CHARS_MAX)
    if mark and mark.end() == len(text) and len(data) - len(mark[0]) <= TEXT_BYTES_MAX:
        return text
    return _start(data) + f"[cut:{len(data)} bytes:sha256 {hashlib.sha256(data).hexdigest()}]"


def cut_json(text: str) -> str:
    """JSON text, or, where it is too long, an object that says so and holds its beginning."""
    data = text.encode("utf-8", "surrogatepass") if len(text) * 3 > TEXT_BYTES_MAX else b""
    if len(data) <= TEXT_BYTES_MAX:
        return text
    # Escapes make of a byte up to six.
    if text.startswith(_CUT_JSON) and len(data) <= 7 * TEXT_BYTES_MAX:
        return text
    stub = {
        "everyturn_cut": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()},
        "start": _start(data),
    }
    return msgspec.json.encode(stub).decode()


def _start(data: bytes) -> str:
    """The first `TEXT_BYTES_MAX` bytes or up to three less: no character is split."""
    end = TEXT_BYTES_MAX
    while data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass")
