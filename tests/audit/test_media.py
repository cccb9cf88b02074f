"""Media stand in a record as type, length and keyed hash."""

from __future__ import annotations

import base64
import json
from hashlib import blake2b
from typing import Any

import pytest

from everyturn.audit.media import hash_media

KEY = b"k" * 32
CONTENT = b"\x89PNG fake picture " * 20
BASE64 = base64.b64encode(CONTENT).decode()
URL = f"data:image/png;base64,{BASE64}"


def a_mark(kind: str, content: bytes = CONTENT) -> str:
    """The mark of a medium."""
    digest = blake2b(content, key=KEY, digest_size=16).hexdigest()
    return f"[media:{kind}:{len(content)}:{digest}]"


PLACES: list[tuple[Any, Any]] = [
    (
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": a_mark("image/png"), "detail": "low"}},
    ),
    (
        {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": a_mark("wav"), "format": "wav"}},
    ),
    (
        {"type": "file", "file": {"file_data": URL, "filename": "a.png"}},
        {"type": "file", "file": {"file_data": a_mark("image/png"), "filename": "a.png"}},
    ),
    ({"file": {"file_data": BASE64}}, {"file": {"file_data": a_mark("unknown")}}),
    (
        {"audio": {"id": "a1", "data": BASE64, "transcript": "hi"}},
        {"audio": {"id": "a1", "data": a_mark("unknown"), "transcript": "hi"}},
    ),
    (
        {"source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
        {"source": {"type": "base64", "media_type": "image/png", "data": a_mark("image/png")}},
    ),
    (f"see ![x]({URL}) and é", f"see ![x]({a_mark('image/png')}) and é"),
    ({"url": "data:text/plain,a%20b"}, {"url": a_mark("text/plain", b"a b")}),
    ({"url": "data:,a"}, {"url": a_mark("text/plain", b"a")}),
    ({"arguments": json.dumps({"u": URL})}, {"arguments": json.dumps({"u": a_mark("image/png")})}),
]


@pytest.mark.parametrize("given, expected", PLACES)
def test_a_medium_becomes_its_mark(given: Any, expected: Any) -> None:
    """Wherever a protocol puts media, the mark stands there, and doing it again changes nothing."""
    hashed = hash_media(given, KEY)

    assert hashed == expected
    assert hash_media(hashed, KEY) == expected


@pytest.mark.parametrize(
    "tree",
    [
        {"url": "https://example.com/a.png"},
        {"text": "data: the numbers, and base64 too"},
        {"data": "plain", "audio": {"voice": "alloy", "format": "mp3"}},
        {"file": {"file_id": "file-1"}, "audio": None},
    ],
)
def test_what_is_no_medium_is_the_same_object(tree: Any) -> None:
    """Addresses, words and references stay."""
    assert hash_media(tree, KEY) is tree


def test_equal_media_are_equal_however_they_were_written() -> None:
    """The hash is over the decoded bytes: padding, line breaks and alphabet do not matter."""
    content = bytes(range(250, 256)) * 11
    forms = [
        base64.b64encode(content).decode(),
        base64.urlsafe_b64encode(content).decode().rstrip("="),
        base64.encodebytes(content).decode(),
    ]

    assert len({hash_media({"file_data": form}, KEY)["file_data"] for form in forms}) == 1


def test_what_is_not_base64_is_hashed_as_it_stands() -> None:
    """A broken medium is still no content at rest."""
    broken = "not base64 at all!"

    assert hash_media({"file_data": broken}, KEY)["file_data"] == a_mark("unknown", broken.encode())
