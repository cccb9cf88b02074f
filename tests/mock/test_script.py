"""Scripts are exactly the bytes and steps they say."""

from __future__ import annotations

from everyturn.mock import ABORT, CLOSE, HANG, Pause, Repeat, Script
from everyturn.mock.script import as_chunk, head


def test_whole_answer_has_its_length() -> None:
    """A whole answer is one write with a status line, a content type and a length."""
    script = Script.whole(200, {"X-Mine": "1"}, b'{"a":1}')

    assert script.on_whole == (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nX-Mine: 1\r\n"
        b'content-length: 7\r\n\r\n{"a":1}',
    )
    assert script.on_stream == script.on_whole


def test_given_headers_stand_true_or_not() -> None:
    """A content type and a length that are given are sent as given."""
    script = Script.whole(529, [("Content-Type", "text/html"), ("Content-Length", "3")], b"12345")

    assert script.on_whole == (
        b"HTTP/1.1 529 \r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n12345",
    )


def test_stream_is_one_chunk_a_piece() -> None:
    """Each piece of a stream is one chunk and one write; the head is a write of its own."""
    script = Script.sse([b"data: a\n\n", Pause(5), b"", b"dat"])

    assert script.on_stream == (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        b"9\r\ndata: a\n\n\r\n",
        Pause(5),
        b"",
        b"3\r\ndat\r\n",
        b"0\r\n\r\n",
    )


def test_stream_without_chunks_ends_by_closing() -> None:
    """A stream that is not chunked writes its pieces bare and closes."""
    script = Script.sse([b"data: a\n\n"], chunked=False)

    assert script.on_stream[1:] == (b"data: a\n\n", CLOSE)
    first = script.on_stream[0]
    assert isinstance(first, bytes)
    assert b"connection: close" in first
    assert b"chunked" not in first


def test_nothing_follows_an_ending() -> None:
    """After an ending there is neither the last chunk nor what was written behind it."""
    for last in (ABORT, CLOSE, HANG):
        assert Script.sse([b"a", last, b"b"]).on_stream[1:] == (b"1\r\na\r\n", last)


def test_pair_answers_each_kind_of_request() -> None:
    """A pair takes the whole answer of one script and the stream of the other."""
    script = Script.pair(whole=Script.raw([b"w"]), stream=Script.raw([b"s"]))

    assert script.steps(streamed=False) == (b"w",)
    assert script.steps(streamed=True) == (b"s",)


def test_repeated_bytes_are_chunks_too() -> None:
    """A repetition inside a chunked body is framed as often as it is played."""
    assert as_chunk(Repeat(b"ab", 3)) == Repeat(b"2\r\nab\r\n", 3)


def test_repeated_headers_stay_apart() -> None:
    """A header that is given twice is sent twice, in order."""
    assert head(204, [("set-cookie", "a"), ("set-cookie", "b")]) == (
        b"HTTP/1.1 204 No Content\r\nset-cookie: a\r\nset-cookie: b\r\n\r\n"
    )
