"""The provider over real sockets: exact bytes, real resets, clients that leave."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from everyturn.mock import ABORT, CLOSE, HANG, MockProvider, Pause, Repeat, Script
from tests.support.certificates import client_context, server_context

WAIT_SECONDS = 5.0


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[MockProvider]:
    """A provider on a free port."""
    async with MockProvider() as running:
        yield running


def asking(
    model: str, *, path: str = "/v1/chat/completions", headers: str = "", **more: Any
) -> bytes:
    """A request as bytes."""
    body = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": "12?"}], **more}
    ).encode()
    told = f"POST {path} HTTP/1.1\r\nHost: mock\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return told.encode() + body


async def exchange(provider: MockProvider, sent: bytes, *, expected: int | None = None) -> bytes:
    """Everything that comes back until the provider closes, or until `expected` bytes are there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
    try:
        writer.write(sent)
        async with asyncio.timeout(WAIT_SECONDS):
            return await (reader.read() if expected is None else reader.readexactly(expected))
    finally:
        writer.close()


async def until(fact: Callable[[], bool]) -> None:
    """Wait until something is so; fails after a while."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not fact():
            await asyncio.sleep(0.002)


def raw_bytes(script: Script, *, streamed: bool = False) -> bytes:
    """All bytes of a script."""
    return b"".join(step for step in script.steps(streamed=streamed) if isinstance(step, bytes))


# ------------------------------------------------------------------ exact bytes


async def test_added_script_is_played_to_the_byte(provider: MockProvider) -> None:
    """A script that was added is what comes back, whole and streamed, whatever it says."""
    script = Script(
        (b"HTTP/1.1 200 Sure\r\nx: \xff\r\n\r\n", b"any", b"thing", CLOSE),
        (b"not even HTTP", CLOSE),
    )
    provider.add("mine", script)

    assert (
        await exchange(provider, asking("mine")) == b"HTTP/1.1 200 Sure\r\nx: \xff\r\n\r\nanything"
    )
    assert await exchange(provider, asking("a/b/mock-mine", stream=True)) == b"not even HTTP"


async def test_each_step_leaves_alone(provider: MockProvider) -> None:
    """Steps with a pause between them arrive apart."""
    provider.add("apart", Script.raw([b"one", Pause(30), b"two", CLOSE]))
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)

    writer.write(asking("apart"))

    assert [await reader.read(100), await reader.read(100), await reader.read(100)] == [
        b"one",
        b"two",
        b"",
    ]
    writer.close()


async def test_abort_is_a_reset_after_everything_arrived(provider: MockProvider) -> None:
    """`ABORT` resets the connection, and what was written before arrives first."""
    provider.add("reset", Script.raw([b"x" * 300_000, ABORT]))
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        # A small window keeps most of the answer on the provider's side until it is read.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", provider.port))
        await loop.sock_sendall(sock, asking("reset"))
        received = 0
        async with asyncio.timeout(WAIT_SECONDS):
            while received < 300_000:
                received += len(await loop.sock_recv(sock, 8_192))
            with pytest.raises(ConnectionResetError):
                await loop.sock_recv(sock, 8_192)


async def test_repeat_goes_at_the_readers_speed(provider: MockProvider) -> None:
    """A long repetition waits for its reader instead of filling memory."""
    provider.add("long", Script.raw([Repeat(b"y" * 65_536, 1_000), CLOSE]))
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)

    writer.write(asking("long"))
    await reader.readexactly(1_000)
    seen: list[int] = []
    for _ in range(50):
        await asyncio.sleep(0.002)
        seen.append(provider.stats().answers_open)
    assert set(seen) == {1}
    rest = await reader.read()
    assert len(rest) == 65_536_000 - 1_000
    writer.close()


# ------------------------------------------------------------------ connections


async def test_connection_serves_one_request_after_another(provider: MockProvider) -> None:
    """Requests sent at once on one connection are answered in order on it."""
    provider.add("a", Script.whole(body=b"[1]"))
    provider.add("b", Script.sse([b"data: 2\n\n"]))
    expected = raw_bytes(Script.whole(body=b"[1]")) + raw_bytes(Script.sse([b"data: 2\n\n"]))
    sent = asking("a") + asking("b", stream=True) + asking("a")

    answer = await exchange(
        provider, sent, expected=len(expected + raw_bytes(Script.whole(body=b"[1]")))
    )

    assert answer == expected + raw_bytes(Script.whole(body=b"[1]"))
    assert provider.stats().connections == 1
    assert provider.stats().requests == 3


async def test_connection_closes_when_asked(provider: MockProvider) -> None:
    """A client that says `connection: close` gets its answer and then the end."""
    script = Script.sse([b"data: 2\n\n"])
    provider.add("b", script)

    answer = await exchange(provider, asking("b", headers="Connection: close\r\n"))

    assert answer == raw_bytes(script)


async def test_continue_is_sent_before_the_body(provider: MockProvider) -> None:
    """A client that waits for `100 Continue` gets it."""
    head, _, body = asking("plain", headers="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)

    writer.write(head + b"\r\n\r\n")
    async with asyncio.timeout(WAIT_SECONDS):
        assert await reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
    writer.close()


async def test_what_is_no_http_is_refused_and_closed(provider: MockProvider) -> None:
    """Bytes that are no request get a 400 and the end of the connection."""
    answer = await exchange(provider, b"what\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "bad_http"


async def test_too_much_behind_a_running_answer_closes(provider: MockProvider) -> None:
    """A client that keeps sending while its answer runs is cut off at the bound."""
    _, writer = await asyncio.open_connection("127.0.0.1", provider.port)

    writer.write(asking("hang") + b"x" * 3_000_000)

    await until(lambda: provider.stats().connections_open == 0)
    assert provider.stats().requests == 1
    assert provider.stats().client_aborts == ()
    writer.close()


async def test_stop_drops_what_is_open() -> None:
    """Stopping ends every connection, hanging ones too, and counts none as a client's abort."""
    provider = MockProvider()
    port = await provider.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(asking("hang"))
    await until(lambda: provider.stats().answers_open == 1)

    async with asyncio.timeout(WAIT_SECONDS):
        await provider.stop()
        await provider.stop()

    assert await reader.read() == b""
    assert provider.stats().connections_open == 0
    assert provider.stats().answers_open == 0
    assert provider.stats().client_aborts == ()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def test_https_plays_scripts_too() -> None:
    """Over TLS an answer, a reset and a client that leaves are what they are without it."""
    async with MockProvider(tls=server_context("127.0.0.1")) as provider:
        provider.add("reset", Script.raw([b"some", ABORT]))
        assert provider.url == f"https://127.0.0.1:{provider.port}/v1"
        for model, first in (("plain", b"HTTP"), ("reset", b"some"), ("hang-mid", b"HTTP")):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", provider.port, ssl=client_context()
            )
            writer.write(asking(model))
            assert await reader.readexactly(4) == first
            if model == "reset":
                with pytest.raises(ConnectionError):
                    await reader.read()
            writer.transport.abort()

        await until(lambda: provider.stats().connections_open == 0)
        assert provider.stats().client_abort_counts == {"hang-mid": 1}


async def test_stop_does_not_wait_for_a_handshake() -> None:
    """A client that connects and never says hello does not keep the provider from stopping."""
    provider = MockProvider(tls=server_context("127.0.0.1"))
    port = await provider.start()
    _, writer = await asyncio.open_connection("127.0.0.1", port)

    async with asyncio.timeout(WAIT_SECONDS):
        await provider.stop()

    writer.close()


# ------------------------------------------------------------------ clients that leave


@pytest.mark.parametrize(
    "model", ["hang", "mock-hang-head", "x/hang-mid", "drip-5000", "slow-5000"]
)
async def test_client_that_leaves_is_noticed(provider: MockProvider, model: str) -> None:
    """A client that closes before its answer has ended is counted under the model it asked for."""
    _, writer = await asyncio.open_connection("127.0.0.1", provider.port)
    writer.write(asking(model, stream=True))
    await until(lambda: provider.stats().answers_open == 1)

    writer.close()

    await until(lambda: provider.stats().aborts_of(model) == 1)
    (abort,) = provider.stats().client_aborts
    assert abort.model == model
    assert provider.stats().answers_open == 0
    await until(lambda: provider.stats().connections_open == 0)


async def test_client_that_resets_is_noticed(provider: MockProvider) -> None:
    """A client that resets its connection is counted like one that closes it."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", provider.port))
    await loop.sock_sendall(sock, asking("hang"))
    await until(lambda: provider.stats().answers_open == 1)

    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    sock.close()

    await until(lambda: provider.stats().aborts_of("hang") == 1)


async def test_client_that_leaves_a_full_stream_is_noticed(provider: MockProvider) -> None:
    """A client that reads nothing and then leaves is noticed while writes are held back."""
    _, writer = await asyncio.open_connection("127.0.0.1", provider.port, limit=1024)
    writer.write(asking("endless-line", stream=True))
    await until(lambda: provider.stats().answers_open == 1)

    writer.transport.abort()

    await until(lambda: provider.stats().aborts_of("endless-line") == 1)
    assert provider.stats().client_aborts[0].bytes_sent > 0


async def test_client_that_half_closes_is_noticed(provider: MockProvider) -> None:
    """A client that reads nothing and closes its sending half counts as gone."""
    provider.add("much", Script.raw([bytes(50_000_000), HANG]))
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", provider.port))
        await loop.sock_sendall(sock, asking("much"))
        await until(lambda: provider.stats().answers_open == 1)

        sock.shutdown(socket.SHUT_WR)

        await until(lambda: provider.stats().aborts_of("much") == 1)


async def test_finished_answer_is_no_abort(provider: MockProvider) -> None:
    """A client that leaves after the end of its answer is not counted."""
    for ending in ("plain", "cut-abort", "cut-close", "until-close"):
        for stream in (False, True):
            reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
            writer.write(asking(ending, stream=stream, headers="Connection: close\r\n"))
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await reader.read()
            except ConnectionResetError:
                assert ending == "cut-abort"
            writer.close()

    await until(lambda: provider.stats().connections_open == 0)
    assert provider.stats().client_aborts == ()
    assert provider.stats().requests == 8


# ------------------------------------------------------------------ what was asked


async def test_request_is_kept_as_it_came(provider: MockProvider) -> None:
    """A captured request has its headers in order and its body byte for byte."""
    body = b'{ "model":"x/mock-plain", "messages":[{"content":"1\\u0032?", "n": 1e400}] }'
    head = (
        b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: mock\r\nX-B: 2\r\n"
        b"Authorization: Bearer sk-test-FAKE\r\nx-a: 1\r\nContent-Length: %d\r\n\r\n"
    )

    await exchange(provider, head % len(body) + body, expected=10)

    (seen,) = provider.requests
    assert seen.target == "/v1/chat/completions?a=b"
    assert [name for name, _ in seen.headers] == [
        "Host",
        "X-B",
        "Authorization",
        "x-a",
        "Content-Length",
    ]
    assert seen.header("authorization") == "Bearer sk-test-FAKE"
    assert seen.header("cookie") is None
    assert seen.body == body
    assert (seen.model, seen.scenario, seen.streamed) == ("x/mock-plain", "plain", False)


@pytest.mark.parametrize(
    "body, param",
    [
        (b'{"messages":[{}]}', "model"),
        (b'{"model":7,"messages":[{}]}', "model"),
        (b'{"model":"plain"}', "messages"),
        (b'{"model":"plain","messages":[]}', "messages"),
        (b'{"model":"plain","messages":[{}],"stream":"yes"}', "stream"),
        (b"[]", None),
        (b"{", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
async def test_wrong_request_is_a_400(
    provider: MockProvider, body: bytes, param: str | None
) -> None:
    """A request that cannot be answered gets an error in OpenAI's envelope, and is kept."""
    sent = b"POST /chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"

    answer = await exchange(provider, sent % (len(body), body))

    assert answer.startswith(b"HTTP/1.1 400 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert provider.requests[-1].body == body


@pytest.mark.parametrize(
    "model", ["", "nobody", "plain-5", "bench-", "bench-x", "bench-٣", "__last"]
)
async def test_unknown_scenario_is_a_404(provider: MockProvider, model: str) -> None:
    """A model that is no scenario gets the 404 that OpenAI gives."""
    answer = await exchange(provider, asking(model, headers="Connection: close\r\n"))

    assert answer.startswith(b"HTTP/1.1 404 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert provider.requests[-1].scenario is None


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/chat/completions", 405),
        ("GET", "/v1/models/mock-nobody", 404),
        ("GET", "/v1/models/mock-plain", 200),
        ("GET", "/any/prefix/models?x=1", 200),
        ("GET", "/", 404),
    ],
)
async def test_other_paths(provider: MockProvider, method: str, path: str, status: int) -> None:
    """Models are listed under any prefix; what is not served is a typed error."""
    sent = f"{method} {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode()

    answer = await exchange(provider, sent)

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert isinstance(json.loads(answer.partition(b"\r\n\r\n")[2]), dict)


async def test_models_are_the_scenarios(provider: MockProvider) -> None:
    """The list of models names every scenario, and the scripts that were added."""
    provider.add("mine", Script.raw([HANG]))

    answer = await exchange(provider, b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n")

    listed = [item["id"] for item in json.loads(answer.partition(b"\r\n\r\n")[2])["data"]]
    assert listed == [f"mock-{each.name}" for each in provider.scenarios()] + ["mock-mine"]


async def test_name_of_a_built_in_scenario_is_refused(provider: MockProvider) -> None:
    """A script cannot take the name of a scenario, however it is spelled, nor have none."""
    for name in ("plain", "mock-plain", "x/plain", "usage_details", "bench-7", "", "mock-"):
        with pytest.raises(ValueError, match=r"built in|empty"):
            provider.add(name, Script.raw([CLOSE]))


async def test_underscores_are_hyphens(provider: MockProvider) -> None:
    """`reasoning_only` and `reasoning-only` are the same scenario."""
    for model in ("reasoning_only", "mock-reasoning-only"):
        await exchange(provider, asking(model), expected=10)

    assert [seen.scenario for seen in provider.requests] == ["reasoning-only"] * 2


async def test_bench_is_not_kept(provider: MockProvider) -> None:
    """Requests for load are counted and not kept."""
    await exchange(provider, asking("bench-9", stream=True), expected=10)

    assert provider.stats().requests == 1
    assert provider.requests == []
