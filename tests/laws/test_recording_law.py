"""Law 8: the client's bytes are the same with recording on and off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everyturn.mock.script import ABORT, CLOSE, Script, Step
from everyturn.mock.server import MockProvider
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.support.background import in_background
from tests.support.gateway import HELLO, running_gateway

PER_REQUEST = {b"date", b"x-request-id", b"traceparent", b"x-everyturn-turn-id"}
"""Headers that differ from one request to the next."""

TEXTS = st.text(max_size=12) | st.just("sk-proj-FAKEfakeFAKEfake1234567890")
PIECES = st.one_of(
    TEXTS.map(lambda text: chunk(content=text)),
    TEXTS.map(lambda text: chunk(reasoning_content=text)),
    TEXTS.map(lambda text: chunk(refusal=text)),
    st.sampled_from(
        [
            chunk(
                tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]
            ),
            chunk(x_unknown={"k": 1}),
            b": comment\n\n",
            b'data: {"error":{"message":"no","code":"x"}}\n\n',
            b"data: {broken\n\n",
            b'data: {"choices":[],"usage":{"total_tokens":3}}\n\n',
            FINISH,
            DONE,
        ]
    ),
)
ENDS: st.SearchStrategy[list[Step]] = st.sampled_from(
    [[FINISH, DONE], [FINISH], [ABORT], [CLOSE], [DONE], []]
)


class Pair:
    """A gateway that records and one that does not, before the same provider."""

    def __init__(self, mock: MockProvider, urls: tuple[str, str]) -> None:
        self.mock = mock
        self.urls = urls
        self.client = httpx.Client(timeout=30, trust_env=False)


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    """Both gateways, listening."""
    async with MockProvider() as mock:
        model = {"name": "m", "preset": "deepseek", "base_url": mock.url}
        off = "[audit]\nenabled = false"
        async with (
            running_gateway([model], folder / "on") as recording,
            running_gateway([model], folder / "off", extra=off) as bare,
        ):
            yield Pair(mock, (recording.url, bare.url))


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One pair for all examples."""
    with in_background(pair(tmp_path_factory.mktemp("law8"))) as both, both.client:
        yield both


def answer(got: httpx.Response) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Status, body and the headers that do not name the request."""
    raw = [(k.lower(), v) for k, v in got.headers.raw]
    return got.status_code, got.content, [(k, v) for k, v in raw if k not in PER_REQUEST]


@given(pieces=st.lists(PIECES, max_size=6), end=ENDS, is_streamed=st.booleans())
@settings(max_examples=40)
def test_recording_changes_no_byte(
    gateways: Pair, pieces: list[bytes], end: list[Step], is_streamed: bool
) -> None:
    """Whatever a provider sends, a client sees the same bytes with the record on and off."""
    gateways.mock.add("m", Script.sse([*pieces, *end]))
    body = {"model": "m", "messages": HELLO, "stream": is_streamed}

    recorded, bare = (
        answer(gateways.client.post(f"{url}/chat/completions", json=body)) for url in gateways.urls
    )

    assert recorded == bare
