"""Strict JSON that keeps what other readers lose, and the writer that gives it back.

A tree is made of dict, list, str, bool, None, int, float and `Num`. `Num` stands for a number whose
text Python would not give back (`0.10`, `1E5`, `-0`, `1e400`), so a value that is read and written
again has the same digits. Duplicate keys, bad UTF-8 and depth are always refused; non-finite
numbers and lone surrogates are refused from clients and carried from providers.

Source: RFC 8259; I-JSON (RFC 7493) for duplicate keys and surrogates.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final, NoReturn

import msgspec

DEPTH_MAX: Final = 128
"""Nesting of arrays and objects; the gateway's contract, section 2."""

_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# Possessive, and content with a string that never ends: linear on any bytes.
_SCAN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_INTEGER_CHARS_MAX: Final = 40
_REAL_CHARS_MAX: Final = 32
"""Longer texts of decimals are never what repr() gives."""


class Malformed(Exception):
    """JSON that is not acceptable. `reason` says why, without content; `path` where, if known."""

    def __init__(self, reason: str, path: str | None = None) -> None:
        super().__init__(reason if path is None else f"{reason} at `{path}`")
        self.reason = reason
        self.path = path


class Num:
    """A number kept as its source text, because int or float would write it differently."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Num) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Num({self.text})"

    def __float__(self) -> float:
        return float(self.text)


class NonFinite:
    """`NaN`, `Infinity` or `-Infinity` as a provider sent it; written as null."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NonFinite) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"NonFinite({self.text})"


class Document:
    """A read JSON text."""

    __slots__ = ("has_nonfinite", "value")

    def __init__(self, value: Any, *, has_nonfinite: bool) -> None:
        self.value: Final = value
        self.has_nonfinite: Final = has_nonfinite
        """Whether `NonFinite` stands somewhere in `value`; only ever true for providers."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise Malformed("an object has the same key twice", key_name(twice))
    return value


def key_name(key: str) -> str:
    """A key as it may stand in a message or a header: short, and escaped where it is odd."""
    shown = key if len(key) <= 64 else key[:61] + "..."
    return shown.encode("unicode_escape").decode("ascii")


def _integer(text: str) -> int | Num:
    if len(text) > _INTEGER_CHARS_MAX:
        # int() of a long text is quadratic and refused beyond 4300 digits; the text is enough.
        return Num(text)
    value = int(text)
    return value if value or text == "0" else Num(text)


_COMMON_REALS: Final = {repr(part / 100): part / 100 for part in range(201)}
"""The texts of what requests have as temperatures and penalties; repr() is slow."""


def _real(text: str) -> float | Num:
    common = _COMMON_REALS.get(text)
    if common is not None:
        return common
    if "e" in text or "E" in text or len(text) > _REAL_CHARS_MAX:
        # repr() and the encoder write exponents differently (`1e+16`, `1e16`).
        return Num(text)
    value = float(text)
    return value if repr(value) == text else Num(text)


def _refuse_constant(text: str) -> NoReturn:
    raise Malformed(f"{text} is not JSON")


_CLIENT: Final = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_int=_integer,
    parse_float=_real,
    parse_constant=_refuse_constant,
)
_PROVIDER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_real, parse_constant=NonFinite
)


def read_client(raw: bytes) -> Any:
    """The tree of a client's JSON text. Raises Malformed."""
    return read_client_text(raw)[0]


def read_client_text(raw: bytes) -> tuple[Any, bytes]:
    """The tree of a client's JSON text, and that text if it is what `write` gives for the tree,
    else b"". Raises Malformed."""
    value, is_written_so = _read_quickly(raw)
    if value is not _UNSURE:
        return value, raw if is_written_so else b""
    value = _decode(raw, _CLIENT)
    if _SURROGATE_ESCAPE.search(raw):
        path = surrogate_path(value)
        if path is not None:
            raise Malformed("a string has a lone surrogate", path)
    return value, b""


def read_provider(raw: bytes | memoryview) -> Document:
    """The tree of a provider's JSON text, non-finite numbers and lone surrogates included.

    Raises Malformed for anything else that is not strict JSON.
    """
    data = bytes(raw)
    value, _ = _read_quickly(data)
    if value is not _UNSURE:
        return Document(value, has_nonfinite=False)
    value = _decode(data, _PROVIDER)
    suspect = data.find(b"NaN") >= 0 or data.find(b"Infinity") >= 0
    return Document(value, has_nonfinite=suspect and _has_nonfinite(value))


_QUICK: Final = msgspec.json.Decoder(float_hook=_real)
_INTEGER_SHORT: Final = 1 << 60
"""What is nearer to zero is an int at sight, without the arithmetic of long ones."""
_INTEGER_MIN: Final = -(10 ** (_INTEGER_CHARS_MAX - 1))
_INTEGER_MAX: Final = 10**_INTEGER_CHARS_MAX
"""What is between the two, these left out, has a text of at most _INTEGER_CHARS_MAX."""
_UNSURE: Final = object()


def _read_quickly(raw: bytes) -> tuple[Any, bool]:
    """The tree of a text that our own writer would give for it, else _UNSURE; and whether the
    writer gives every byte of it.

    Most texts are compact JSON as programs write it. One that is the same when it is written again
    has lost nothing in between: no key stood twice, no number and no escape had another form. So
    the quick decoder, which would not tell, is good enough for it. Blanks between tokens make no
    difference and are left out of the comparison.
    """
    try:
        value = _QUICK.decode(raw)
        # As long as it will be, so that it need not grow while it is written.
        text = bytearray(len(raw))
        _ENCODER.encode_into(value, text)
        is_written_so = text == raw
        if not is_written_so and text != msgspec.json.format(raw, indent=-1):
            return _UNSURE, False
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return _UNSURE, False  # The strict reader says what is wrong, or carries it.
    return (value, is_written_so) if _is_ordinary(value, DEPTH_MAX) else (_UNSURE, False)


def _is_ordinary(value: Any, levels: int) -> bool:
    """Whether a tree is nested at most `levels` deep, and holds no integer that stays a text.

    Looked for in the tree, not in the text, which has many more bytes than the tree has values.
    """
    if isinstance(value, dict):
        if not levels:
            return False
        for item in value.values():
            if isinstance(item, str) or item is None:
                continue
            if not _is_ordinary(item, levels - 1):
                return False
    elif isinstance(value, list):
        if not levels:
            return False
        for item in value:
            if isinstance(item, str) or item is None:
                continue
            if not _is_ordinary(item, levels - 1):
                return False
    elif isinstance(value, int):
        is_short = -_INTEGER_SHORT < value < _INTEGER_SHORT
        return is_short or _INTEGER_MIN < value < _INTEGER_MAX
    return True


def _decode(raw: bytes, decoder: json.JSONDecoder) -> Any:
    """The tree of any acceptable text, by the strict and slow way. Raises Malformed."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as bad:
        raise Malformed(f"byte {bad.start} is not UTF-8") from None
    _check_depth(raw)
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as bad:
        raise Malformed(f"{_syntax(bad.msg)} (character {bad.pos})") from None


def _syntax(message: str) -> str:
    """The decoder's complaint, without what might be content."""
    return message[:1].lower() + message[1:].partition(":")[0]


def _check_depth(raw: bytes) -> None:
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX:
        return
    depth = 0
    for token in _SCAN.finditer(raw):
        byte = raw[token.start()]
        if byte in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise Malformed(f"nested deeper than {DEPTH_MAX} (byte {token.start()})")
        elif byte in b"]}":
            depth -= 1


def surrogate_path(value: Any, path: str = "") -> str | None:
    """Where the first lone surrogate stands in a tree; None if nowhere."""
    if isinstance(value, str):
        return path if _SURROGATE.search(value) else None
    if isinstance(value, dict):
        for key, item in value.items():
            here = f"{path}.{key_name(key)}" if path else key_name(key)
            if _SURROGATE.search(key):
                return here
            found = surrogate_path(item, here)
            if found is not None:
                return found
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found = surrogate_path(item, f"{path}[{index}]")
            if found is not None:
                return found
    return None


def _has_nonfinite(value: Any) -> bool:
    if isinstance(value, NonFinite):
        return True
    if isinstance(value, dict):
        return any(_has_nonfinite(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_nonfinite(item) for item in value)
    return False


def _foreign(value: Any) -> Any:
    if isinstance(value, Num):
        return msgspec.Raw(value.text.encode())
    if isinstance(value, NonFinite):
        return None
    raise TypeError(f"not a JSON value: {type(value).__name__}")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_foreign)


def write(value: Any) -> bytes:
    """The compact JSON text of a tree, in UTF-8: numbers as they were read, NonFinite as null.

    Lone surrogates are written as the escapes they came as, never replaced.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _write_slowly(value).encode("ascii")


def _write_slowly(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict):
        members = (f"{json.dumps(key)}:{_write_slowly(item)}" for key, item in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_write_slowly(item) for item in value) + "]"
    return _ENCODER.encode(value).decode()


def write_text(value: Any) -> str:
    """As `write`, as str. Lone surrogates stand as escapes, so the text can always be encoded."""
    return write(value).decode("utf-8")
