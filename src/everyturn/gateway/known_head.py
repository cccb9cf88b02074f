"""The head of a request that the parser has read, to know it again when it comes again.

A client sends the same head with each of its requests, but for the length of the body. Where a read
holds one whole request, and its head is byte for byte the last one of the connection but for the
digits of `content-length`, the parser would say the same again: it is not asked. Only heads that
leave nothing else open are known: one length, no transfer coding, nothing that the client waits
for, and a connection that stays.
"""

from __future__ import annotations

from typing import Final

from everyturn.gateway.request import ClientRequest, Field

_LENGTH: Final = b"content-length"
_DIGITS_MAX: Final = 9
_ZERO: Final = ord("0")
_NINE: Final = ord("9")
_HEAD_BYTES_MAX: Final = 4096
"""A longer head is parsed each time; this bounds what a connection keeps."""


class KnownHead:
    """A head in two pieces, before and after the digits, and what the parser read in it."""

    __slots__ = ("_after", "_before", "_headers", "_named", "_place", "method", "path", "query")

    def __init__(self, request: ClientRequest, before: bytes, after: bytes, place: int) -> None:
        """place: of the length among the headers."""
        self._before = before
        self._after = after
        self._headers = request.headers
        self._named = request.named
        self._place = place
        self.method = request.method
        self.path = request.path
        self.query = request.query

    @classmethod
    def of(cls, request: ClientRequest, data: bytes) -> KnownHead | None:
        """The head of `request`, if it is plain and `data` is that request; else None."""
        named = request.named
        length = named.get(_LENGTH, b"")
        head_bytes = data.find(b"\r\n\r\n") + 4
        if (
            not request.keep_alive
            or len(named) != len(request.headers)  # A name stands twice.
            or b"transfer-encoding" in named
            or b"expect" in named
            or b"upgrade" in named
            or not _is_length(length)
            or head_bytes > _HEAD_BYTES_MAX
            or head_bytes + int(length) != len(data)
        ):
            return None
        begin = data[:head_bytes].lower().find(b"\r\n" + _LENGTH + b": " + length + b"\r\n")
        if begin < 0:
            return None  # Spelled with other space.
        place = request.headers.index((_LENGTH, length))
        start = begin + 2 + len(_LENGTH) + 2
        return cls(request, data[:start], data[start + len(length) : head_bytes], place)

    def length_in(self, data: bytes) -> int:
        """The length of the body, if `data` is this head, but for its digits, and a body as long;
        else 0. The digits are those that `%d` gives."""
        if not data.startswith(self._before):
            return 0
        # Byte by byte: there are few, and asking the bytes for a place costs more.
        start = end = len(self._before)
        length = 0
        while end < len(data) and _ZERO <= data[end] <= _NINE:
            length = 10 * length + data[end] - _ZERO
            end += 1
            if end - start > _DIGITS_MAX:
                return 0
        head_bytes = end + len(self._after)
        if head_bytes + length != len(data) or data[end:head_bytes] != self._after:
            return 0
        return length if length and data[start] != _ZERO else 0

    def headers_with(self, length: bytes) -> list[Field]:
        """The headers with that length."""
        headers = self._headers.copy()
        headers[self._place] = (_LENGTH, length)
        return headers

    def named_with(self, length: bytes) -> dict[bytes, bytes]:
        """The same by their names, of which none stands twice."""
        named = self._named.copy()
        named[_LENGTH] = length
        return named


def _is_length(digits: bytes) -> bool:
    """Whether these are the digits of a length that is not nothing; leading zeros are not plain."""
    return len(digits) <= _DIGITS_MAX and digits.isdigit() and digits[0] != _ZERO
