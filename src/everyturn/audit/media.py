"""Put a mark where images, audio and files stood: media type, bytes and a keyed hash.

Pure. Data URLs are found anywhere in a string; bare base64 where a protocol puts it (`input_audio`,
`file_data`, `b64_json`). The mark is a string, `[media:TYPE:BYTES:HASH]`, so a record keeps its
form; the hash is over the decoded bytes, so equal media are equal however they were written. Where
a deployment keeps media (see `shelf`), the mark says one thing more.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from everyturn.audit.scan import Pattern, encode

Take = Callable[[str, str | None, bytes], str]
"""(media type, charset, content) → the mark; takes the content where it is kept."""

MARK: Final = "[media:"
HINT: Final = (
    r'data:[A-Za-z0-9.+/-]*[;,]|"(?:input_audio|audio|inline_data|inlineData|file_data|b64_json)"'
    r'|"type":"base64"'
)
"""Matches the serialised text of every tree that `hash_media` changes."""

_HOLDERS: Final = frozenset({"input_audio", "audio", "inline_data", "inlineData", "source"})
"""Members that are an object whose `data` is base64."""

_BARE: Final = frozenset({"file_data", "b64_json"})
"""Members that are base64 themselves, or a data URL."""

_TYPE_NAMES: Final = ("format", "media_type", "mime_type", "mimeType")
UNKNOWN: Final = "unknown"
UNREADABLE: Final = "unreadable"
_GOES_ON: Final = re.compile(rb"\r?\n[ \t]*[A-Za-z0-9+/=_-]|%")
_BASE64_LINES: Final = re.compile(r"[A-Za-z0-9+/=_\r\n-]*")
_IN_TEXT: Final = Pattern(
    r"data:[A-Za-z0-9.+/-]{0,100}(?:;[A-Za-z0-9_.+=\"-]{1,100}){0,8};base64,[A-Za-z0-9+/=_-]{64,}"
)


def hash_media(tree: Any, key: bytes, take: Take | None = None) -> Any:
    """The tree with each medium replaced by its mark; the same object when there is none.

    key: secret of this installation, up to 64 bytes. take: where media are kept.
    """
    return _Walk(key, take).any(tree)


def media_mark(kind: str, content: bytes, key: bytes, word: str = "") -> str:
    """The mark of one medium. word: what became of it, where media are kept."""
    end = f":{word}" if word else ""
    return f"{MARK}{kind}:{len(content)}:{media_hash(content, key)}{end}]"


def media_hash(content: bytes, key: bytes) -> str:
    """What names one medium, in 32 hex digits."""
    return blake2b(content, key=key, digest_size=16).hexdigest()


class _Walk:
    """One pass over one tree; copies what it changes and nothing else."""

    def __init__(self, key: bytes, take: Take | None) -> None:
        self._key = key
        self._take = take

    def any(self, value: Any, holder: str = "") -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            new = [self.any(item) for item in value]
            return new if any(a is not b for a, b in zip(new, value, strict=True)) else value
        if isinstance(value, dict):
            return self._members(value, holder)
        return value

    def _members(self, value: dict[str, Any], holder: str) -> dict[str, Any]:
        changed: dict[str, Any] | None = None
        for name, item in value.items():
            if isinstance(item, str) and (
                name in _BARE or (name == "data" and _is_holder(value, holder))
            ):
                new: Any = self._bare(item, _kind_of(value))
            else:
                new = self.any(item, name)
            if new is not item:
                changed = dict(value) if changed is None else changed
                changed[name] = new
        return value if changed is None else changed

    def _bare(self, text: str, kind: str) -> str:
        if not text or text.startswith(MARK):
            return text
        if text.startswith("data:"):
            return self._url(text)
        return self._mark(kind, None, *_decoded(text))

    def _text(self, text: str) -> str:
        if "data:" not in text:
            return text
        if text.startswith("data:") and "," in text[:1024]:
            if not any(c in text for c in " \n") or _is_wrapped(text):
                return self._url(text)
        raw = encode(text)
        spans = _IN_TEXT.spans(raw)
        if not spans:
            return text
        given = text.encode("utf-8", "surrogatepass")
        pieces: list[bytes] = []
        done = 0
        for start, end in spans:
            # Base64 may go on in the next line: what may be half a medium is not kept.
            is_whole = _GOES_ON.match(raw, end) is None
            mark = self._url(raw[start:end].decode(), is_whole=is_whole)
            pieces += [given[done:start], mark.encode()]
            done = end
        pieces.append(given[done:])
        return b"".join(pieces).decode("utf-8", "surrogatepass")

    def _url(self, url: str, *, is_whole: bool = True) -> str:
        head, _, payload = url[len("data:") :].partition(",")
        kind, *parameters = head.split(";")
        if "base64" in parameters:
            content, is_read = _decoded(payload)
            is_read = is_read and is_whole
        else:
            content, is_read = unquote_to_bytes(payload.encode("utf-8", "surrogatepass")), True
        return self._mark(kind or "text/plain", _charset(parameters), content, is_read)

    def _mark(self, kind: str, charset: str | None, content: bytes, is_read: bool) -> str:
        if self._take is None:
            return media_mark(kind, content, self._key)
        if not is_read:
            return media_mark(kind, content, self._key, UNREADABLE)
        return self._take(kind, charset, content)


def _charset(parameters: list[str]) -> str | None:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip('" ')
    return None


def _is_holder(value: dict[str, Any], holder: str) -> bool:
    return holder in _HOLDERS or value.get("type") == "base64"


def _kind_of(value: dict[str, Any]) -> str:
    """The media type that stands beside the base64, if one does."""
    for name in _TYPE_NAMES:
        kind = value.get(name)
        if isinstance(kind, str) and kind.isascii() and 0 < len(kind) <= 100:
            return kind.replace("]", "")
    return UNKNOWN


def _is_wrapped(url: str) -> bool:
    """Whether a data URL is base64 in lines of one length, but for the last."""
    head, _, payload = url.partition(",")
    first, *lines = payload.rstrip("\r\n").split("\n")
    size = len(first)
    return (
        head.endswith(";base64")
        and 60 <= size <= 100
        and all(len(line) == size for line in lines[:-1])
        and all(len(line) <= size for line in lines[-1:])
        and _BASE64_LINES.fullmatch(payload) is not None
    )


def _decoded(text: str) -> tuple[bytes, bool]:
    """The bytes of base64 text, and True; of text that is not base64, its own, and False."""
    data = text.encode("utf-8", "surrogatepass")
    compact = unquote_to_bytes(data) if b"%" in data else data
    compact = compact.replace(b"\n", b"").replace(b"\r", b"")
    compact = compact.replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
    try:
        return base64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True), True
    except (binascii.Error, ValueError):
        return data, False
