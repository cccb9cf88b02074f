"""Requests are read from bytes however they are cut."""

from __future__ import annotations

import pytest

from everyturn.mock.http import BODY_BYTES_MAX, HEAD_BYTES_MAX, HttpRequest, Refusal, RequestReader

POST = b"POST /v1/chat/completions?a=1 HTTP/1.1\r\nHost: x\r\nX-Twice: 1\r\nx-twice:2\r\n"
WITH_LENGTH = POST + b"Content-Length: 5\r\n\r\nhello"
IN_CHUNKS = (
    POST + b"Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
)


def read_all(*parts: bytes) -> list[HttpRequest | Refusal]:
    """What a reader makes of the parts, fed one after another."""
    reader, found = RequestReader(), []
    for part in parts:
        reader.feed(part)
        while (request := reader.next()) is not None:
            found.append(request)
            if isinstance(request, Refusal):
                return found
    return found


@pytest.mark.parametrize("sent", [WITH_LENGTH, IN_CHUNKS])
def test_request_is_read_whole_and_byte_by_byte(sent: bytes) -> None:
    """A request is the same whether it arrives at once, in single bytes or with another behind."""
    (request,) = read_all(sent)

    assert isinstance(request, HttpRequest)
    assert (request.method, request.target) == ("POST", "/v1/chat/completions?a=1")
    assert request.headers[:3] == (("Host", "x"), ("X-Twice", "1"), ("x-twice", "2"))
    assert request.body == b"hello"
    assert request.keep_alive
    assert read_all(*[sent[at : at + 1] for at in range(len(sent))]) == [request]
    assert read_all(sent + sent + sent[:9], sent[9:]) == [request] * 3


def test_request_without_body_is_complete_after_its_head() -> None:
    """A request without length or chunks has an empty body."""
    (request,) = read_all(b"\r\nGET /v1/models HTTP/1.1\r\n\r\n")

    assert isinstance(request, HttpRequest)
    assert request.body == b""


@pytest.mark.parametrize(
    "sent, keep_alive",
    [
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
    ],
)
def test_connection_is_kept_as_the_client_says(sent: bytes, keep_alive: bool) -> None:
    """`connection` and the version decide whether another request follows."""
    (request,) = read_all(sent)

    assert isinstance(request, HttpRequest)
    assert request.keep_alive is keep_alive


@pytest.mark.parametrize(
    "sent, status",
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno name\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n", 413),
        (POST + b"Content-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (BODY_BYTES_MAX + 1), 413),
        (POST + b"X-Long: " + b"x" * HEAD_BYTES_MAX, 431),
    ],
)
def test_what_cannot_be_read_is_refused(sent: bytes, status: int) -> None:
    """Bytes that are no request, or too many, are refused and the connection must close."""
    refusal = read_all(sent)[-1]

    assert isinstance(refusal, Refusal)
    assert refusal.status == status
    assert refusal.is_fatal


def test_continue_is_due_once() -> None:
    """A client that asks before it sends its body is told once to go on."""
    reader = RequestReader()
    reader.feed(POST + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n")

    assert reader.next() is None
    assert [reader.take_continue(), reader.take_continue()] == [True, False]
    reader.feed(b"x")
    assert isinstance(reader.next(), HttpRequest)
    assert not reader.take_continue()
