"""Secrets that are percent-encoded or in base64 once are found and replaced where they stand."""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote

import pytest

from everyturn.audit.encoded import views
from everyturn.audit.redact import Redactor

KEY = b"k" * 32
KNOWN = "known-FAKE/väl ue"
VENDOR = "ghp_" + "FAKE" * 9
DIGITS = "123456789:AA" + "FAKE" * 8 + "x"


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    """The rules with one known value."""
    return Redactor(KEY, known=[KNOWN])


def forms(secret: str) -> list[str]:
    """A secret in each encoding, alone and inside longer ones."""
    found = [
        quote(secret, safe="") if quote(secret, safe="") != secret else "",
        "".join(f"%{byte:02X}" for byte in secret.encode()),
        "".join(f"%{byte:02x}" for byte in secret.encode()),
    ]
    for before in ("", " ", "x:", "key: ", "ключ: "):
        inner = f"{before}{secret}\n".encode()
        found += [base64.b64encode(inner).decode(), base64.urlsafe_b64encode(inner).decode()]
        found.append(base64.b64encode(inner).decode().rstrip("="))
    return [form for form in found if form]


@pytest.mark.parametrize("rule, secret", [("known", KNOWN), ("github_token", VENDOR)])
def test_a_secret_that_is_encoded_once_goes(redactor: Redactor, rule: str, secret: str) -> None:
    """In prose, in URLs and in JSON in JSON, its encoded forms go, with the tag of the secret."""
    for form in forms(secret):
        for text in (
            form,
            f"see https://h.example/p/{form}?x={form}&y",
            json.dumps({"a": json.dumps({"b": [f"x {form} y"]})}),
            json.dumps(f"data {form}").replace("/", "\\/"),
        ):
            found = redactor.redact_text(text)

            assert form not in found.value, text
            assert f"[redacted:{rule}:{redactor.tag(secret)}]" in found.value, text
            assert redactor.redact_text(found.value).value is found.value


def test_base64_over_lines_is_read_through(redactor: Redactor) -> None:
    """A text file in base64 of 76 columns loses its secret over the line's end, and no more."""
    before, after = "words of a file\n" * 3, "\nmore words" * 20
    lines = base64.encodebytes(f"{before}{VENDOR}{after}".encode()).decode()

    found = redactor.redact_text(lines)

    assert found.counts == {"github_token": 1}
    head, _, tail = found.value.partition("[redacted:")
    assert lines.startswith(head)
    assert base64.b64decode(head[: len(head) // 4 * 4]).decode() in before
    assert lines.endswith(tail.partition("]")[2])


def test_structure_inside_an_encoding_counts(redactor: Redactor) -> None:
    """A URL with a password inside a URL's parameter, and a file of settings, lose them."""
    url = "https://h/?next=" + quote("https://u:FAKEpass1@db/x", safe="")
    file = base64.b64encode(b"[db]\nhost = x\npassword = FAKEpass1\n").decode()

    assert redactor.redact_text(url).counts == {"url_password": 1}
    assert redactor.redact_text(file).counts == {"assigned_bare": 1}
    assert "FAKEpass1" not in redactor.redact_text(url).value


def test_views_lead_back() -> None:
    """Each part of a decoded text comes from exactly the characters that hold it."""
    raw = b"a%41b%2fc"
    (view,) = views(raw, has_percent=True, has_base64=False)
    assert view.raw == b"aAb/c"
    assert [raw[slice(*view.source(at, at + 1))] for at in range(5)] == [
        b"a",
        b"%41",
        b"b",
        b"%2f",
        b"c",
    ]

    text = b"fifteen bytes and some more of them"
    run = base64.encodebytes(text)[:20] + b"\r\n" + base64.b64encode(text)[20:]
    for view in views(b"x " + run, has_percent=False, has_base64=True):
        if view.raw.startswith(text):
            start, end = view.source(12, 24)
            piece = (b"x " + run)[start:end].replace(b"\r\n", b"")
            assert base64.b64decode(piece) == text[12:24]
            break
    else:
        raise AssertionError


def test_random_bytes_in_base64_stay(redactor: Redactor) -> None:
    """Signatures and encrypted reasoning, with and without line breaks, are the same object."""
    draw = random.Random(5)
    for size in (32, 1000, 100_000):
        for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes):
            text = json.dumps({"x": encode(draw.randbytes(size)).decode()})

            assert redactor.redact_json(text).value is text


def test_twice_is_not_once(redactor: Redactor) -> None:
    """What was encoded two times over is not opened: the work is bounded."""
    twice = base64.b64encode(base64.b64encode(VENDOR.encode())).decode()

    assert redactor.redact_text(twice).value is twice
