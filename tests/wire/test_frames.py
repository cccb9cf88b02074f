from __future__ import annotations

import pytest

from everyturn.wire.frames import Frame, SseSplitter, has_fields, parse_frame

BOM = b"\xef\xbb\xbf"


def split(*chunks: bytes) -> tuple[list[bytes], bytes]:
    """The frames of a body that arrives in these chunks, and what is left of it."""
    splitter = SseSplitter()
    raws = [raw for chunk in chunks for raw in splitter.feed(chunk)]
    left = splitter.close()
    assert b"".join(raws) + left == b"".join(chunks)
    assert splitter.pending == 0
    return raws, left


def one_by_one(body: bytes) -> list[bytes]:
    """A body in single bytes."""
    return [bytes([byte]) for byte in body]


def data_of(*chunks: bytes) -> list[bytes | None]:
    """The data of each frame."""
    return [parse_frame(raw).data for raw in split(*chunks)[0]]


# ------------------------------------------------------------------ where events end


@pytest.mark.parametrize(
    "body",
    [
        b"data: a\n\ndata: b\n\n",
        b"data: a\r\n\r\ndata: b\r\n\r\n",
        b"data: a\r\rdata: b\r\r",
        b"data: a\n\r\ndata: b\r\n\n",
        b"data: a\r\n\ndata: b\n\r\n",
        b"data: a\n\rdata: b\r\r",
    ],
)
def test_each_line_end_ends_events(body: bytes) -> None:
    """B19: LF, CR and CRLF end lines, in any mixture, however the bytes arrive."""
    assert data_of(body) == [b"a", b"b"]
    assert data_of(*one_by_one(body)) == [b"a", b"b"]


@pytest.mark.parametrize(
    "body",
    [
        b"data: a\n\n\ndata: b\n\n",
        b"data: a\n\n\n\ndata: b\n\n\n",
        b"\n\n\n\n",
        b"\n\ndata: a\n\n",
        b"data: a\r\n\r\n\r\n\r\ndata: b\r\n\r\n",
        b"data: a\r\r\ndata: b\r\r\r\r",
        b"data: a\r\n\r\rdata: b\r\n\r\n",
        b"data: a\n\ndata: b\r\n\r\ndata: c\n\n\r\n",
        BOM + b"data: a\n\n",
        BOM[:2],
        b"\xef\xbbdata: a\n\n",
        b"data: a\n",
        b"data: a\r\n\r",
    ],
)
def test_chunks_make_no_difference(body: bytes) -> None:
    """Spare blank lines, byte order marks and half line ends fall the same way in any chunks."""
    assert split(*one_by_one(body)) == split(body)
    for cut in range(len(body)):
        assert split(body[:cut], body[cut:]) == split(body)


def test_an_event_is_given_when_its_last_byte_is_here() -> None:
    """An event is not held back for the one after it."""
    splitter = SseSplitter()

    assert splitter.feed(b"data: a\r") == []
    assert splitter.feed(b"\n\r") == []
    assert splitter.feed(b"\n") == [b"data: a\r\n\r\n"]
    assert SseSplitter().feed(b"data: a\r\r") == [b"data: a\r\r"]


def test_a_character_may_be_cut() -> None:
    """B18: a character split over two chunks is whole in its frame."""
    assert data_of(b'data: "\xe4\xbd', b'\xa0"\n\n') == [b'"\xe4\xbd\xa0"']


def test_a_long_event_in_many_chunks_is_searched_once() -> None:
    """An event of many chunks is found at its end, with line feeds and with carriage returns."""
    part = b"x" * 100_000

    for line_end in (b"\n", b"\r\n"):
        body = [b"data: a" + line_end + b"data: ", *[part] * 100, line_end * 2]
        (raw,), left = split(*body)
        assert (len(raw), left) == (sum(map(len, body)), b"")


# ------------------------------------------------------------------ what is in an event


def test_the_common_event() -> None:
    """One data line is the data."""
    assert parse_frame(b"data: a\n\n") == Frame(b"data: a\n\n", b"a")


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"data:a\n\n", b"a"),
        (b"data:  a\n\n", b" a"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"data: a\r\ndata:b\r\n\r\n", b"a\nb"),
        (b"data: a\r\n\r\n", b"a"),
        (b"data\n\n", b""),
        (b"data: \n\n", b""),
        (b": only a comment\n\n", None),
        (b"retry: 100\n\n", None),
        (b"database: a\n\n", None),
        (b"\n\ndata: a\n\n", b"a"),
        (BOM + b"data: a\n\n", b"a"),
        (b"data: a\nid: 1\n", b"a"),
    ],
)
def test_data_lines(raw: bytes, data: bytes | None) -> None:
    """B19, B21: one space after the colon is optional, and several lines are joined with LF."""
    assert parse_frame(raw).data == data


def test_comments_are_no_data() -> None:
    """B20: comment lines are told apart, as they came."""
    frame = parse_frame(b": PROCESSING\n:\ndata: a\n\n")

    assert frame.data == b"a"
    assert frame.comments == (b" PROCESSING", b"")


def test_other_fields() -> None:
    """An event has a type and an error line; id and retry are known; all others are counted."""
    frame = parse_frame(b"event: error\nid: 1\nretry: 5\nerror: x\nfoo: 1\nbar\n\n")

    assert frame.event == b"error"
    assert frame.error == b"x"
    assert frame.data is None
    assert frame.unknown_fields == 2


# ------------------------------------------------------------------ what a client gets of it


def test_a_byte_order_mark_is_not_forwarded() -> None:
    """What stands before the first line is the provider's own: a mark, and spare blank lines."""
    assert parse_frame(BOM + b"data: a\n\n").shown == b"data: a\n\n"
    assert parse_frame(b"\r\n\ndata: a\n\n").shown == b"data: a\n\n"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"data: a\n\n", b"data: X\n\n"),
        (b"data:a\r\n\r\n", b"data: X\n\n"),
        (b"data: a\ndata\ndata: b\n\n", b"data: X\n\n"),
        (BOM + b"data: a\n\n", b"data: X\n\n"),
        (b"\ndata: a\n\n", b"data: X\n\n"),
        (b": c\nid: 1\ndata: a\nevent: e\n\n", b": c\nid: 1\ndata: X\nevent: e\n\n"),
        (b"database: 1\r\ndata: a\r\n\r\n", b"database: 1\r\ndata: X\n\n"),
    ],
)
def test_other_data_in_the_same_frame(raw: bytes, shown: bytes) -> None:
    """Where the data changes, every other line of the frame stays as it came."""
    assert parse_frame(raw).with_data(b"X") == shown


def test_what_is_part_of_an_event() -> None:
    """Blank lines and comments at the end of a body are no event that broke off."""
    assert has_fields(b"\n: ping\n\n: p") is False
    assert has_fields(b"\xef\xbb\xbf: ping") is False
    assert has_fields(b": ping\nda") is True
