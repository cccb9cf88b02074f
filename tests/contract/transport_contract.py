"""What every transport must do; one suite for all of them.

Subclass `TransportContract` in a test module, with a `transport` fixture. The suite speaks to a
provider of raw bytes; a transport that reaches providers in another way than by the URL of the
request says how in `request_to`.

    class TestWorker(TransportContract):
        @pytest_asyncio.fixture
        async def transport(self) -> AsyncIterator[Transport]: ...
"""

from __future__ import annotations

import asyncio

import pytest

from everyturn.errors import (
    InvalidValue,
    TranslationError,
    UpstreamStreamIncomplete,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from everyturn.transport.base import Transport
from tests.contract.transport_endings import EndingsContract
from tests.support.scripted_upstream import (
    Peer,
    ScriptedUpstream,
    answer,
    answering,
    answering_once,
    chunk,
    chunked_head,
    limits,
    read_all,
)


class TransportContract(EndingsContract):
    """See the module docstring; what is sent, what comes back, what breaks."""

    # ----------------------------------------------------------------------------- what is sent

    async def test_the_request_arrives_as_given(self, transport: Transport) -> None:
        """Method, path with query, headers in order and body reach the provider, once."""
        headers = (("authorization", "Bearer sk-test-FAKE"), ("x-one", "1"), ("x-one", "2"))
        async with ScriptedUpstream(answering(answer())) as upstream:
            request = self.request_to(
                upstream, query="?api-version=1%202", body=b"\x00body", headers=headers
            )
            response = await transport.open(request, limits())
            await read_all(response)

        (seen,) = upstream.requests
        assert seen.line == "POST /v1/chat/completions?api-version=1%202 HTTP/1.1"
        assert tuple(pair for pair in seen.headers if pair in headers) == headers
        assert seen.body == b"\x00body"

    async def test_nothing_is_added_but_what_http_needs(self, transport: Transport) -> None:
        """Beside the request's own headers there are host, length and the plain encoding."""
        async with ScriptedUpstream(answering(answer())) as upstream:
            await read_all(await transport.open(self.request_to(upstream, headers=()), limits()))

        (seen,) = upstream.requests
        assert sorted(seen.headers) == [
            ("accept-encoding", "identity"),
            ("content-length", "14"),
            ("host", f"127.0.0.1:{upstream.port}"),
        ]

    async def test_a_large_request_arrives_whole(self, transport: Transport) -> None:
        """A body of megabytes reaches the provider unchanged."""
        body = bytes(range(256)) * 20_000
        async with ScriptedUpstream(answering(answer(b"done"))) as upstream:
            response = await transport.open(self.request_to(upstream, body=body), limits())
            assert await read_all(response) == b"done"

        assert upstream.requests[0].body == body

    @pytest.mark.parametrize(
        "header",
        [
            ("x-note", "a\r\nx-evil: 1"),
            ("x-note", "a\nb"),
            ("x-note", "a\x00b"),
            ("x-note", "é…"),
            ("x note", "a"),
            ("x-note\r\nx-evil", "a"),
            ("", "a"),
            ("Content-Length", "5"),
            ("transfer-encoding", "chunked"),
            ("host", "elsewhere"),
        ],
    )
    async def test_a_header_that_cannot_be_sent_is_refused(
        self, transport: Transport, header: tuple[str, str]
    ) -> None:
        """A header that would end a line early or speak for the transport is a typed refusal."""
        async with ScriptedUpstream(answering(answer())) as upstream:
            with pytest.raises(InvalidValue) as failure:
                await transport.open(self.request_to(upstream, headers=(header,)), limits())

        assert upstream.requests == []
        assert "evil" not in failure.value.message

    # -------------------------------------------------------------------------- what comes back

    async def test_the_head_is_told_as_sent(self, transport: Transport) -> None:
        """Status, names in lower case, values and repetitions in order."""
        raw = answer(headers=("Retry-After: 5", "X-A: one", "x-empty:", "X-A:  two \t"))
        async with ScriptedUpstream(answering(raw)) as upstream:
            response = await transport.open(self.request_to(upstream), limits())

        assert response.status == 200
        assert response.headers == (
            ("retry-after", "5"),
            ("x-a", "one"),
            ("x-empty", ""),
            ("x-a", "two"),
            ("content-length", "2"),
        )

    @pytest.mark.parametrize("status", [201, 301, 307, 400, 401, 404, 429, 500, 503, 599])
    async def test_every_status_is_an_answer(self, transport: Transport, status: int) -> None:
        """An error is told with its body, and a redirect is not followed."""
        raw = answer(b"why", status=f"{status} Because", headers=("location: http://127.0.0.1:1/",))
        async with ScriptedUpstream(answering(raw)) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            assert await read_all(response) == b"why"

        assert response.status == status
        assert len(upstream.requests) == 1

    async def test_each_piece_arrives_before_the_next_is_sent(self, transport: Transport) -> None:
        """A stream is passed on as it comes; nothing waits for more."""
        go_on = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.receive()
            peer.send(chunked_head())
            for number in range(5):
                peer.send(chunk(b"data: %d\n\n" % number))
                await go_on.wait()
                go_on.clear()
            peer.send(chunk(b""))

        async with ScriptedUpstream(script) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            for number in range(5):
                assert await response.read() == b"data: %d\n\n" % number
                go_on.set()
            assert await response.read() == b""

    async def test_what_arrived_meanwhile_comes_as_one(self, transport: Transport) -> None:
        """A reader that was busy gets all pieces joined, in order."""
        async with ScriptedUpstream(
            answering(chunked_head(), *[chunk(b"<%d>" % n) for n in range(100)], chunk(b"last"))
        ) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            await asyncio.sleep(0.1)
            data = await response.read()

        assert data.startswith(b"<0><1><2>")
        assert len(data) > 100

    async def test_a_body_may_be_empty(self, transport: Transport) -> None:
        """An answer without content ends at once, with and without framing."""
        for raw in (answer(b""), b"HTTP/1.1 204 No Content\r\n\r\n", chunked_head() + chunk(b"")):
            async with ScriptedUpstream(answering(raw)) as upstream:
                response = await transport.open(self.request_to(upstream), limits())
                assert await response.read() == b""

    async def test_calls_at_once_do_not_mix(self, transport: Transport) -> None:
        """Each of many concurrent calls gets the answer to its own request."""

        async def echo(peer: Peer) -> None:
            while True:
                request = await peer.receive()
                await asyncio.sleep(0.001)
                peer.send(answer(request.body * 100))

        async with ScriptedUpstream(echo) as upstream:

            async def call(number: int) -> bool:
                body = b"[%d]" % number
                response = await transport.open(self.request_to(upstream, body=body), limits())
                return await read_all(response) == body * 100

            assert all(await asyncio.gather(*(call(number) for number in range(200))))

    # ------------------------------------------------------------------------------ what breaks

    @pytest.mark.parametrize(
        "cut",
        [
            answer(b"0123456789")[:-3],
            chunked_head() + chunk(b"0123456"),
            chunked_head() + b"a\r\n0123456",
            chunked_head() + chunk(b"0123456") + b"0\r\n",
        ],
        ids=["length", "no-end", "in-chunk", "no-blank-line"],
    )
    async def test_a_body_that_stops_early_is_incomplete(
        self, transport: Transport, cut: bytes
    ) -> None:
        """What arrived is handed out; then the cut is a typed failure, each time one asks."""
        async with ScriptedUpstream(answering_once(cut)) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            assert await response.read() == b"0123456"
            for _ in range(2):
                with pytest.raises(UpstreamStreamIncomplete):
                    await response.read()

    async def test_a_reset_in_the_body_is_incomplete(self, transport: Transport) -> None:
        """Also where only the end of the connection would have ended the body."""
        for head in (b"HTTP/1.1 200 OK\r\n\r\n", chunked_head() + b"ff\r\n"):

            async def script(peer: Peer, head: bytes = head) -> None:
                await peer.receive()
                peer.send(head + b"some")
                await peer.receive_bytes()

            async with ScriptedUpstream(script) as upstream:
                response = await transport.open(self.request_to(upstream), limits())
                assert await response.read() == b"some"
                upstream.peers[-1].reset()
                with pytest.raises(UpstreamStreamIncomplete):
                    await response.read()

    async def test_a_connection_lost_before_the_answer_is_unreachable(
        self, transport: Transport
    ) -> None:
        """Closed or reset without a byte, or inside the head: unreachable, and not sent again."""

        async def resetting(peer: Peer) -> None:
            await peer.receive()
            peer.reset()

        for script in (
            resetting,
            answering_once(),
            answering_once(b"HTTP/1.1 200 O"),
            answering_once(b"HTTP/1.1 200 OK\r\nx-a: b\r\n"),
            answering_once(b"HTTP/1.1 100 Continue\r\n\r\n"),
        ):
            async with ScriptedUpstream(script) as upstream:
                with pytest.raises(UpstreamUnreachable):
                    await transport.open(self.request_to(upstream), limits())
            assert len(upstream.requests) == 1

    async def test_nobody_listening_is_unreachable(self, transport: Transport) -> None:
        """A refused connection is a typed failure without the address."""
        async with ScriptedUpstream(answering()) as upstream:
            request = self.request_to(upstream)

        with pytest.raises(UpstreamUnreachable) as failure:
            await transport.open(request, limits())
        assert str(upstream.port) not in failure.value.message

    @pytest.mark.parametrize(
        "raw",
        [
            b"SSH-2.0-OpenSSH_9.0\r\n",
            b"HTTP/1.1 abc OK\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 099 OK\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx: a\x00b\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, identity\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n"
            b"0\r\n\r\n",
        ],
    )
    async def test_what_is_not_http_is_a_translation_error(
        self, transport: Transport, raw: bytes
    ) -> None:
        """A head that HTTP/1.1 does not allow, or that says two lengths, is refused."""
        async with ScriptedUpstream(answering(raw)) as upstream:
            with pytest.raises(TranslationError):
                await transport.open(self.request_to(upstream), limits())

    @pytest.mark.parametrize("framing", [b"zz\r\n", b"3\r\n0123456\r\n", b"-1\r\n", b"f" * 17])
    async def test_a_wrong_chunk_is_a_translation_error(
        self, transport: Transport, framing: bytes
    ) -> None:
        """Chunks whose sizes make no sense end the body with a failure, after what came before."""
        raw = chunked_head() + chunk(b"good") + framing
        async with ScriptedUpstream(answering(raw)) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            assert (await response.read()).startswith(b"good")
            for _ in range(2):
                with pytest.raises(TranslationError):
                    await response.read()

    @pytest.mark.parametrize(
        "raw",
        [
            b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 101 + b"\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 102,
            b"HTTP/1.1 200 OK\r\nx: " + b"y" * 66_000 + b"\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx: " + b"y" * 66_000,
            b"HTTP/1.1 200 OK\r\n" + b"y" * 66_000,
            b"HTTP/1.1 200 " + b"y" * 66_000,
        ],
    )
    async def test_a_head_has_bounds(self, transport: Transport, raw: bytes) -> None:
        """More than 100 headers or 64 KiB, ended or not, is too large and closes the connection."""
        async with ScriptedUpstream(answering(raw)) as upstream:
            with pytest.raises(UpstreamTooLarge):
                await transport.open(self.request_to(upstream), limits())
            await upstream.peers[0].gone()

    async def test_the_largest_head_is_taken(self, transport: Transport) -> None:
        """100 headers, and 64 KB in them, are an answer."""
        raw = answer(headers=tuple(f"x-{n}: {'y' * 600}" for n in range(99)))
        async with ScriptedUpstream(answering(raw)) as upstream:
            response = await transport.open(self.request_to(upstream), limits())

        assert len(response.headers) == 100
