"""What reads like text is redacted before it is kept, whatever its type; all else as it came."""

from __future__ import annotations

import base64
import json
import re

import pytest

from everyturn.audit.cleaning import Cleaner
from everyturn.audit.media import hash_media
from everyturn.audit.redact import Redactor
from everyturn.audit.shelf import MediaShelf, read_text

KEY = b"k" * 32
SECRET = "sk-proj-FAKEfakeFAKEfake1234567890abcdefghij"
BINARY = b"\x89PNG\r\n\x1a\n\x00\x01\x02" + b"\xff" * 40
TEXT = "ключ и key"


def a_shelf(bytes_max: int = 1 << 20) -> MediaShelf:
    """An empty shelf."""
    return MediaShelf(Cleaner(Redactor(KEY), KEY), 7, bytes_max)


@pytest.mark.parametrize(
    ("kind", "charset", "content", "expected"),
    [
        ("text/plain", None, TEXT.encode(), TEXT),
        ("application/octet-stream", None, TEXT.encode(), TEXT),
        ("image/png", None, b"only text", "only text"),
        ("unknown", None, TEXT.encode("utf-16"), TEXT),
        ("text/plain", None, TEXT.encode("utf-8-sig"), TEXT),
        ("text/plain", "utf-16le", TEXT.encode("utf-16-le"), TEXT),
        ("text/plain", "windows-1251", TEXT.encode("cp1251"), TEXT),
        ("application/octet-stream", None, b"wide".decode().encode("utf-16-le"), "wide"),
        ("image/png", None, BINARY, None),
        ("application/octet-stream", "binary", BINARY, None),
        ("unknown", None, b"", ""),
    ],
)
def test_text_is_what_reads_like_it(
    kind: str, charset: str | None, content: bytes, expected: str | None
) -> None:
    """By its content first: a type that says nothing, or something else, hides no text."""
    assert read_text(kind, charset, content) == expected


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text/plain", TEXT.encode("cp1251")),
        ("unknown", TEXT.encode("cp1251")),
        ("text/csv", BINARY),
        ("application/vnd.api+json", b"{}\x00"),
    ],
)
def test_text_that_cannot_be_read_is_not_kept(kind: str, content: bytes) -> None:
    """Nothing tells its encoding, so the rules cannot see what it says: it stays a hash."""
    shelf = a_shelf()

    mark = shelf.keep(kind, None, content)

    assert re.fullmatch(rf"\[media:{re.escape(kind)}:\d+:[0-9a-f]{{32}}:unreadable\]", mark)
    assert shelf.take() == ()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_a_text_rests_redacted_in_utf_8(encoding: str) -> None:
    """The secret is gone, the mark says so, and the row counts it under the rules' version."""
    shelf = a_shelf()

    mark = shelf.keep("text/plain", None, f"{TEXT}: {SECRET}\n".encode(encoding))

    (medium,) = shelf.take()
    assert mark.endswith(f":{medium.media_id}:redacted]")
    assert re.fullmatch(TEXT + r": \[redacted:openai_key:\w{8}\]\n", medium.data.decode())
    assert json.loads(medium.redactions_json) == {"openai_key": 1}
    assert (medium.is_text, medium.redaction_applied, medium.timestamp) == (True, True, 7)
    assert medium.redaction_rules_version == Redactor(KEY).version


def test_json_is_read_as_json() -> None:
    """What the name of a member makes a secret goes, and so does reasoning in a conversation."""
    shelf = a_shelf()
    said = {"role": "assistant", "reasoning_content": "quietly", "content": "a"}

    shelf.keep("unknown", None, json.dumps({"password": "hunter2", "said": [said]}).encode())

    (medium,) = shelf.take()
    tree = json.loads(medium.data)
    assert tree["password"].startswith("[redacted:key_name:")
    assert tree["said"][0]["content"] == "a"
    assert b"quietly" not in medium.data


def test_what_only_begins_like_json_is_text() -> None:
    """A file that is broken, or only looks like JSON, is kept as redacted text."""
    shelf = a_shelf()

    mark = shelf.keep("application/json", None, f"[note]\nkey {SECRET}".encode())

    (medium,) = shelf.take()
    assert mark.endswith(":redacted]")
    assert medium.data.startswith(b"[note]\nkey [redacted:openai_key:")


def test_equal_texts_have_one_name_and_other_rules_another() -> None:
    """What names a text is what rests and the rules; what names a binary is its bytes."""
    shelf = a_shelf()
    names = [shelf.keep(kind, None, b"plain text") for kind in ("text/plain", "text/csv")]
    assert len(shelf.take()) == 1
    binary = shelf.keep("image/png", None, BINARY)
    (medium,) = shelf.take()

    assert names[0].split(":")[3] == names[1].split(":")[3]
    assert binary == f"[media:image/png:{len(BINARY)}:{medium.media_id}:kept]"
    assert medium.media_id == Cleaner(Redactor(KEY), KEY).media_hash(BINARY)
    assert medium.data == BINARY
    assert (medium.redaction_applied, medium.redaction_rules_version) == (False, None)


def test_what_could_not_be_stored_goes_with_the_next_group() -> None:
    """A group that failed gives its media back."""
    shelf = a_shelf()
    shelf.keep("image/png", None, BINARY)
    taken = shelf.take()
    shelf.give_back()

    assert shelf.take() == taken
    assert shelf.take() == ()


def test_a_type_is_no_place_for_anything() -> None:
    """A type that no type looks like is told as unknown, so a mark cannot be broken or forged."""
    mark = a_shelf().keep("a]:kept] b", None, BINARY)

    assert mark.startswith("[media:unknown:")


def test_parameters_with_media_are_taken_each_time() -> None:
    """Parameters that are remembered to be clean are not those with a medium, whoever asked."""
    shelf = a_shelf()
    hashing = Cleaner(Redactor(KEY), KEY)
    cleaner = hashing.keeping(shelf.keep)
    tree = {"prediction": {"image": "data:image/png;base64,iVBORw0KGgoAAQI="}}
    assert ":kept]" not in hashing.parameters(tree).value

    first = cleaner.parameters(tree)
    assert len(shelf.take()) == 1
    again = cleaner.parameters(tree)

    assert first == again
    assert len(shelf.take()) == 1


FILE = f"name,key\r\nmine,{SECRET}\r\n>>>???~~~\r\n".encode() * 4
BASE64 = base64.b64encode(FILE).decode()
LINES = "\n".join(BASE64[start : start + 76] for start in range(0, len(BASE64), 76))


@pytest.mark.parametrize(
    "url",
    [
        f"data:text/csv;base64,{BASE64}",
        f"data:text/csv;base64,{LINES}",
        f"data:text/csv;base64,{LINES}\n".replace("\n", "\r\n"),
        f"data:text/csv;base64,{BASE64}".replace("+", "%2B").replace("/", "%2F"),
        f"see data:text/csv;base64,{BASE64} and say",
    ],
)
def test_a_file_is_taken_whole_however_its_base64_was_written(url: str) -> None:
    """In one line, in lines, percent-encoded, in prose: the same medium, without its secrets."""
    assert "+" in BASE64
    shelf = a_shelf()

    marked = hash_media({"url": url}, KEY, shelf.keep)["url"]

    (medium,) = shelf.take()
    assert f":{len(FILE)}:{medium.media_id}:redacted]" in marked
    assert medium.data.startswith(b"name,key\r\nmine,[redacted:openai_key:")
    assert medium.data.count(b"[redacted:openai_key:") == 4


@pytest.mark.parametrize(
    "url",
    [
        f"data:text/csv;base64,{BASE64[:-8]}!{BASE64[-8:]}",
        f"data:text/csv;base64,{BASE64[:101]}",
        f"look at this: data:text/csv;base64,{LINES}",
    ],
)
def test_what_may_be_half_a_file_is_not_kept(url: str) -> None:
    """Broken base64, and base64 in prose that may go on in the next line, stay hashes: half a
    secret is told by no rule."""
    shelf = a_shelf()

    marked = hash_media({"url": url}, KEY, shelf.keep)["url"]

    assert re.search(r"\[media:text/csv:\d+:[0-9a-f]{32}:unreadable\]", marked)
    assert shelf.take() == ()
