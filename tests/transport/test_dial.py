"""Making connections: TLS that is always verified, and proxies in between."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from everyturn.errors import UpstreamStreamIncomplete, UpstreamTimeout, UpstreamUnreachable
from everyturn.transport.dial import unreachable
from everyturn.transport.direct import DirectTransport
from tests.support.certificates import client_context, self_signed_context, server_context
from tests.support.scripted_upstream import (
    Peer,
    ScriptedUpstream,
    a_request,
    answer,
    answering,
    answering_once,
    chunk,
    chunked_head,
    limits,
    read_all,
    until,
)

TARGET = "https://provider.test/v1/chat/completions"
"""A name that only a proxy can reach: no test resolves it."""


@pytest_asyncio.fixture
async def trusting() -> AsyncIterator[DirectTransport]:
    """A transport that trusts the authority of this test run."""
    transport = DirectTransport(ssl_context=client_context())
    yield transport
    await transport.close()


async def call(transport: DirectTransport, url: str, **more: int) -> bytes:
    """One whole call: the body of its answer."""
    return await read_all(await transport.open(a_request(url), limits(**more)))


# --------------------------------------------------------------------------------------------- TLS


async def test_a_verified_provider_is_spoken_to(trusting: DirectTransport) -> None:
    """A certificate of a trusted authority for this host: calls work and the connection is kept."""
    async with ScriptedUpstream(
        answering(answer(b"x" * 300_000)), ssl_context=server_context("127.0.0.1")
    ) as upstream:
        assert await call(trusting, upstream.url) == b"x" * 300_000
        assert await call(trusting, upstream.url) == b"x" * 300_000
        assert len(upstream.peers) == 1


@pytest.mark.parametrize(
    "context, reason",
    [
        (server_context("other.test"), "it is for another host"),
        (server_context("127.0.0.2"), "it is for another host"),
        (self_signed_context("127.0.0.1"), "unable to get local issuer certificate"),
    ],
    ids=["wrong-name", "wrong-address", "unknown-authority"],
)
async def test_an_unverified_provider_is_refused(
    trusting: DirectTransport, context: ssl.SSLContext, reason: str
) -> None:
    """A certificate for another host or of an unknown authority ends the call before it is sent."""
    async with ScriptedUpstream(answering(answer()), ssl_context=context) as upstream:
        with pytest.raises(UpstreamUnreachable, match=reason) as failure:
            await call(trusting, upstream.url)

        assert upstream.requests == []
        assert "127.0.0.1" not in failure.value.message


async def test_the_systems_authorities_are_the_default() -> None:
    """Without a context of one's own the test authority is not trusted."""
    transport = DirectTransport()
    async with ScriptedUpstream(
        answering(answer()), ssl_context=server_context("127.0.0.1")
    ) as upstream:
        with pytest.raises(UpstreamUnreachable, match="certificate"):
            await call(transport, upstream.url)
        await transport.close()


async def test_tls_with_a_plain_server_is_refused(trusting: DirectTransport) -> None:
    """A server that does not speak TLS is unreachable, with a reason."""

    async def script(peer: Peer) -> None:
        await peer.receive_bytes()
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with ScriptedUpstream(script) as upstream:
        with pytest.raises(UpstreamUnreachable, match="TLS with the provider failed"):
            await call(trusting, upstream.url.replace("http:", "https:"))


def test_a_context_that_does_not_verify_is_refused() -> None:
    """There is no way to turn verification off, at the start or later."""
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    with pytest.raises(ValueError, match="must verify"):
        DirectTransport(ssl_context=unverified)
    unverified.verify_mode = ssl.CERT_NONE
    with pytest.raises(ValueError, match="must verify"):
        DirectTransport(ssl_context=unverified)


async def test_a_context_that_stops_verifying_is_refused() -> None:
    """Also when it is changed behind our back."""
    context = client_context()
    transport = DirectTransport(ssl_context=context)
    context.check_hostname = False
    async with ScriptedUpstream(
        answering(answer()), ssl_context=server_context("127.0.0.1")
    ) as upstream:
        with pytest.raises(ValueError, match="must verify"):
            await call(transport, upstream.url)
        assert upstream.requests == []
        await transport.close()


@pytest.mark.parametrize("is_clean", [True, False], ids=["alert", "cut"])
async def test_a_body_without_length_needs_the_closure_alert(
    trusting: DirectTransport, is_clean: bool
) -> None:
    """Over TLS a bare end of the connection is a cut, since anybody on the way can make it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        with server_context("127.0.0.1").wrap_socket(accepted, server_side=True) as secured:
            secured.recv(65536)
            secured.sendall(b"HTTP/1.1 200 OK\r\n\r\nbody")
            if is_clean:
                with contextlib.suppress(ssl.SSLError):
                    secured.unwrap()  # Its alert is sent; the client need not answer with its own.
            else:
                secured.shutdown(socket.SHUT_WR)

    with listener:
        serving = asyncio.ensure_future(asyncio.to_thread(serve))
        response = await trusting.open(
            a_request(f"https://127.0.0.1:{listener.getsockname()[1]}/"), limits()
        )
        assert await response.read() == b"body"
        if is_clean:
            assert await response.read() == b""
        else:
            with pytest.raises(UpstreamStreamIncomplete):
                await response.read()
        await serving


async def test_a_slow_reader_slows_a_provider_behind_tls(trusting: DirectTransport) -> None:
    """Back-pressure and an end behind a full buffer work through TLS."""
    body = bytes(range(256)) * 40_000
    async with ScriptedUpstream(
        answering_once(b"HTTP/1.1 200 OK\r\n\r\n" + body), ssl_context=server_context("127.0.0.1")
    ) as upstream:
        response = await trusting.open(a_request(upstream.url), limits())
        await asyncio.sleep(0.1)
        assert response.size < 1_000_000
        assert await read_all(response) == body


async def test_giving_up_behind_tls_is_noticed(trusting: DirectTransport) -> None:
    """Closing does not wait for the other side's closure alert."""
    async with ScriptedUpstream(
        answering(chunked_head(), chunk(b"x")), ssl_context=server_context("127.0.0.1")
    ) as upstream:
        response = await trusting.open(a_request(upstream.url), limits())
        await response.read()
        response.close()
        await upstream.peers[0].gone()


# ------------------------------------------------------------------------------- limits and endings


async def silent(peer: Peer) -> None:
    """Accepts and says nothing."""
    await peer.gone(5)


async def test_a_handshake_must_end_in_time(trusting: DirectTransport) -> None:
    """A server that accepts and stays silent inside TLS costs no more than the connect limit."""
    async with ScriptedUpstream(silent) as upstream:
        url = upstream.url.replace("http:", "https:")
        with pytest.raises(UpstreamTimeout, match=r"made in time; `connect_ms` is: 100$"):
            await call(trusting, url, connect_ms=100)
        await upstream.peers[0].gone()
        async with asyncio.timeout(2):
            with pytest.raises(UpstreamTimeout, match=r"made in time; `total_ms` is: 50$"):
                await call(trusting, url, connect_ms=5000, total_ms=50)


async def test_cancelling_a_handshake_is_noticed(trusting: DirectTransport) -> None:
    """A call given up while its connection is made leaves no socket open."""
    async with ScriptedUpstream(silent) as upstream:
        url = upstream.url.replace("http:", "https:")
        opening = asyncio.ensure_future(call(trusting, url))
        await until(lambda: bool(upstream.peers))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await upstream.peers[0].gone()


async def test_closing_the_transport_ends_a_handshake(trusting: DirectTransport) -> None:
    """A connection being made is given up at once."""
    async with ScriptedUpstream(silent) as upstream:
        url = upstream.url.replace("http:", "https:")
        opening = asyncio.ensure_future(call(trusting, url))
        await until(lambda: bool(upstream.peers))
        await trusting.close()
        with pytest.raises(UpstreamUnreachable, match="closed"):
            await opening
        await upstream.peers[0].gone()


async def test_a_name_that_does_not_exist_is_unreachable() -> None:
    """The failure says so, without the name."""
    transport = DirectTransport()
    with pytest.raises(UpstreamUnreachable, match="could not be resolved") as failure:
        await call(transport, "http://no-such-host.invalid/")
    assert "invalid" not in failure.value.message
    await transport.close()


@pytest.mark.parametrize(
    "error, text",
    [
        (OSError(errno.EMFILE, "x"), "this process has no file descriptor left"),
        (OSError(errno.ENETUNREACH, "x"), "there is no route to its network"),
        (TimeoutError(errno.ETIMEDOUT, "x"), "the system gave up waiting for it"),
        (OSError("Multiple exceptions: 10.0.0.1"), "none of its addresses accepted a connection"),
        (ssl.SSLError("x"), "TLS with the provider failed: no reason given"),
        (socket.gaierror(-2, "x"), "could not be resolved"),
    ],
)
def test_each_error_of_the_network_has_words(error: OSError, text: str) -> None:
    """The system's own text, which may hold an address, is not repeated."""
    failure = unreachable(error, "provider")

    assert text in failure.message
    assert "10.0" not in failure.message


# ------------------------------------------------------------------------------------------ proxies


class ScriptedProxy:
    """A proxy that tunnels to a given provider, whatever name it is asked for."""

    def __init__(self, provider: ScriptedUpstream, reply: bytes = b"") -> None:
        self.provider = provider
        self.reply = reply or b"HTTP/1.1 200 Connection established\r\nx-proxy: 1\r\n\r\n"
        self.heads: list[bytes] = []

    async def script(self, peer: Peer) -> None:
        """Answer `CONNECT`, then pass bytes both ways."""
        self.heads.append((await peer.receive()).head)
        peer.send(self.reply)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.provider.port)

        async def back() -> None:
            while data := await reader.read(65536):
                peer.send(data)
            peer.close()

        passing = asyncio.ensure_future(back())
        try:
            while True:
                writer.write(await peer.receive_bytes())
        finally:
            writer.close()
            passing.cancel()


def behind(proxy: ScriptedUpstream, user: str = "", **more: str) -> DirectTransport:
    """A transport whose every target is behind `proxy`."""
    url = proxy.url.removesuffix("/v1/chat/completions").replace("://", f"://{user}")
    return DirectTransport(proxy_env={"ALL_PROXY": url, **more}, ssl_context=client_context())


@pytest.mark.parametrize("proxy_tls", [False, True], ids=["http-proxy", "https-proxy"])
async def test_an_https_target_is_reached_through_a_tunnel(proxy_tls: bool) -> None:
    """`CONNECT`, then TLS with the provider itself, verified for its name; the tunnel is kept."""
    provider = ScriptedUpstream(
        answering(answer(b"x" * 100_000)), ssl_context=server_context("provider.test")
    )
    async with provider:
        tunnels = ScriptedProxy(provider)
        context = server_context("127.0.0.1") if proxy_tls else None
        async with ScriptedUpstream(tunnels.script, ssl_context=context) as proxy:
            transport = behind(proxy, "user:sk-test-FAKE@")
            for _ in range(2):
                assert await call(transport, TARGET) == b"x" * 100_000
            await transport.close()
            await proxy.peers[0].gone()

    credentials = base64.b64encode(b"user:sk-test-FAKE")
    assert tunnels.heads == [
        b"CONNECT provider.test:443 HTTP/1.1\r\nhost: provider.test:443\r\n"
        b"proxy-authorization: Basic " + credentials
    ]
    head = provider.requests[0].head
    assert b"proxy" not in head
    assert b"\r\nhost: provider.test\r\n" in head


async def test_a_provider_in_a_tunnel_is_verified() -> None:
    """A proxy that leads elsewhere is found out."""
    async with ScriptedUpstream(
        answering(answer()), ssl_context=server_context("other.test")
    ) as provider:
        async with ScriptedUpstream(ScriptedProxy(provider).script) as proxy:
            transport = behind(proxy)
            with pytest.raises(UpstreamUnreachable, match="certificate of the provider"):
                await call(transport, TARGET)
            await proxy.peers[0].gone()
            await transport.close()
        assert provider.requests == []


async def test_an_http_target_is_asked_of_the_proxy_in_full() -> None:
    """Absolute form over a kept connection to the proxy."""
    async with ScriptedUpstream(answering(answer(b"x"))) as proxy:
        transport = behind(proxy, "user:sk-test-FAKE@")
        for _ in range(2):
            assert await call(transport, "http://provider.test:8000/v1/x?y=1") == b"x"
        await transport.close()

        assert len(proxy.peers) == 1
        assert proxy.requests[0].line == "POST http://provider.test:8000/v1/x?y=1 HTTP/1.1"
        headers = dict(proxy.requests[0].headers)
        assert headers["host"] == "provider.test:8000"
        assert headers["proxy-authorization"].startswith("Basic ")


async def test_no_proxy_is_honoured() -> None:
    """An exempt target and loopback are reached directly, others are not."""
    async with (
        ScriptedUpstream(answering(answer(b"proxy"))) as proxy,
        ScriptedUpstream(answering(answer(b"direct"))) as provider,
    ):
        transport = behind(proxy, NO_PROXY="exempt.invalid")
        assert await call(transport, provider.url) == b"direct"
        assert await call(transport, "http://provider.test/") == b"proxy"
        with pytest.raises(UpstreamUnreachable, match="name of the provider could not be resolved"):
            await call(transport, "http://exempt.invalid/")
        await transport.close()


@pytest.mark.parametrize("target", [TARGET, "http://provider.test/"])
async def test_a_proxy_that_wants_credentials_is_no_provider(target: str) -> None:
    """407 is unreachable with a hint, and neither the wrong password nor the body is told."""
    refusal = answer(b"secret page", status="407 Proxy Authentication Required")
    async with ScriptedUpstream(answering(refusal)) as proxy:
        transport = behind(proxy, "user:sk-test-FAKE@")
        with pytest.raises(UpstreamUnreachable, match=r"its status is: 407$") as failure:
            await call(transport, target)
        await transport.close()

    told = str(failure.value.envelope())
    assert "user and password" in told
    assert "FAKE" not in told
    assert "secret" not in told


@pytest.mark.parametrize(
    "reply, text",
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "its status is: 403"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nno\n", "its status is: 502"),
        (b"HTTP/1.1 200 OK\r\n\r\nearly bytes", "before it was spoken to"),
        (b"SSH-2.0-x\r\n\r\n", "did not answer as an HTTP proxy does"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "did not answer as an HTTP proxy does"),
    ],
)
async def test_a_proxy_that_does_not_tunnel_is_unreachable(reply: bytes, text: str) -> None:
    """Whatever it says instead, and its connection is closed."""
    async with ScriptedUpstream(answering(reply)) as proxy:
        transport = behind(proxy)
        with pytest.raises(UpstreamUnreachable, match=text):
            await call(transport, TARGET)
        await proxy.peers[0].gone()
        await transport.close()


async def test_a_proxy_that_leaves_is_unreachable() -> None:
    """Closed before, in and after its answer to `CONNECT`, or not there at all."""
    for pieces in ((), (b"HTTP/1.1 200 O",), (b"HTTP/1.1 200 OK\r\n\r\n",)):
        async with ScriptedUpstream(answering_once(*pieces)) as proxy:
            transport = behind(proxy)
            with pytest.raises(UpstreamUnreachable):
                await call(transport, TARGET)
    for target in (TARGET, "http://provider.test/"):
        with pytest.raises(UpstreamUnreachable, match="the proxy cannot be reached"):
            await call(transport, target)
    await transport.close()


async def test_a_silent_proxy_is_inside_the_connect_limit() -> None:
    """A tunnel that is never answered ends in time and closes the connection."""
    async with ScriptedUpstream(silent) as proxy:
        transport = behind(proxy)
        with pytest.raises(UpstreamTimeout, match="connect_ms"):
            await call(transport, TARGET, connect_ms=100)
        await proxy.peers[0].gone()
        await transport.close()


async def test_a_reset_inside_tls_is_unreachable(trusting: DirectTransport) -> None:
    """A connection that breaks during the handshake is a typed failure."""

    async def script(peer: Peer) -> None:
        await peer.receive_bytes()
        peer.reset()

    async with ScriptedUpstream(script) as upstream:
        with pytest.raises(UpstreamUnreachable):
            await call(trusting, upstream.url.replace("http:", "https:"))
