"""Models that run on a worker: pairing, calls, and what an operator changes while links live."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from everyturn.errors import NotPermitted
from everyturn.gateway.worker_registry import CODE_SECONDS, FILE, FOLDER, Registry
from everyturn.link.messages import MESSAGE_BYTES_MAX
from everyturn.mock.script import HANG, Pause, Script
from everyturn.worker import credential
from everyturn.worker.dial import Refused, Unreachable, dial
from everyturn.worker.main import EXIT_CREDENTIAL, EXIT_REPLACED, EXIT_STOPPED
from everyturn.worker.pair import pair
from tests.gateway.test_answers import DONE, FINISH, chunk, frames
from tests.gateway.test_records import recorded
from tests.support.certificates import authority
from tests.support.gateway import HELLO, running_gateway
from tests.support.paired import TARGET, a_worker, gateway_and_worker, on_worker, paired
from tests.support.scripted_upstream import Peer, ScriptedUpstream, chunked_head, until
from tests.support.scripted_upstream import chunk as framed

TRACE = "0123456789abcdef0123456789abcdef"


def accesses(data: Path, *columns: str) -> list[tuple[object, ...]]:
    """The access records of a data folder, in order."""
    with closing(sqlite3.connect(data / "everyturn.db")) as db:
        rows = db.execute("SELECT * FROM access_events ORDER BY timestamp")
        names = [column[0] for column in rows.description]
        return [tuple(dict(zip(names, row, strict=True))[name] for name in columns) for row in rows]


# ------------------------------------------------------------------------------------------ calls


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_turn_on_a_worker_is_answered_and_recorded(
    tmp_path: Path, is_streamed: bool
) -> None:
    """The answer is the server's; the record names the worker and whose time it was."""
    models = [on_worker("m", preset="deepseek", upstream_model="deepseek", query={"v": "1 2"})]
    async with gateway_and_worker(tmp_path, models) as (running, mock, _):
        headers = {"traceparent": f"00-{TRACE}-0123456789abcdef-01", "x-request-id": "r1"}
        body = {"model": "m", "messages": HELLO, "stream": is_streamed}
        answer = await running.client.post("/chat/completions", json=body, headers=headers)
        turn = await recorded(running, answer)
        seen = mock.requests[-1]

    (call,) = turn["model_calls"]
    assert answer.status_code == 200
    assert turn["turn"]["outcome"] == "success"
    assert (call["transport"], call["worker"]) == ("worker", "box")
    assert call["base_url"] == "worker://server"
    for name in ("queue_ms", "link_ms", "upstream_ms"):
        assert call[name] >= 0
    spent = call["queue_ms"] + call["link_ms"] + call["upstream_ms"]
    assert spent == pytest.approx(call["latency_ms"], abs=0.01)
    assert seen.target.endswith("/chat/completions?v=1%202")
    assert (seen.header("traceparent") or "").split("-")[1:3] == [TRACE, call["span_id"]]
    assert seen.header("x-request-id") == "r1"
    assert call["reasoning_chars"] > 0


async def test_without_a_worker_the_client_is_told(tmp_path: Path) -> None:
    """A typed 503, on record with its reason; the gateway itself calls nobody."""
    async with running_gateway([on_worker("m")], tmp_path / "data") as running:
        answer = await running.chat("m")
        turn = await recorded(running, answer)

    (call,) = turn["model_calls"]
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "worker_unavailable"
    assert (turn["turn"]["outcome"], turn["turn"]["failure_type"]) == ("failure", "adapter_error")
    assert (call["transport"], call["worker"], call["upstream_ms"]) == ("worker", None, None)


async def test_a_worker_that_goes_in_the_middle_is_lost(tmp_path: Path) -> None:
    """What arrived is shown and recorded, then `worker_lost`; the server was asked once."""
    async with gateway_and_worker(tmp_path) as (running, mock, beside):
        mock.add("m", Script.sse([chunk(content="some"), HANG]))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as answer:
            received = b""
            async for part in answer.aiter_raw():
                received += part
                if b"some" in received:
                    beside.run.cancel()
        beside.run = asyncio.create_task(asyncio.sleep(0, 0))
        turn = await recorded(running, answer)

    (call,) = turn["model_calls"]
    told = frames(received)
    assert told[-1]["error"]["code"] == "worker_lost"
    assert "[DONE]" not in told
    assert (turn["turn"]["outcome"], turn["turn"]["assistant_text"]) == ("partial", "some")
    assert (call["stream_state"], call["error_code"]) == ("cut", "worker_lost")
    assert call["worker"] == "box"
    assert len(mock.requests) == 1


async def test_a_client_that_leaves_is_noticed_by_the_model_server(tmp_path: Path) -> None:
    """A cancel goes over the link, the server's connection is closed, and the link goes on."""
    async with gateway_and_worker(tmp_path) as (running, mock, _):
        mock.add("m", Script.sse([chunk(content="a"), HANG]))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as answer:
            await anext(answer.aiter_raw())
        await until(lambda: mock.stats().aborts_of("m") == 1)
        mock.add("m", Script.sse([chunk(content="next"), FINISH, DONE]))
        assert b"next" in (await running.chat("m", stream=True)).content


async def test_the_gateways_own_limits_hold(tmp_path: Path) -> None:
    """A pause over `idle_ms` ends the call as a direct one."""
    models = [on_worker("m", timeouts={"idle_ms": 200})]
    async with gateway_and_worker(tmp_path, models) as (running, mock, _):
        mock.add("m", Script.sse([chunk(content="a"), HANG]))
        answer = await running.chat("m", stream=True)
        await until(lambda: mock.stats().aborts_of("m") == 1)

    assert frames(answer.content)[-1]["error"]["code"] == "upstream_timeout"


# ---------------------------------------------------------------------------------------- pairing


async def test_only_hashes_rest_and_files_are_private(tmp_path: Path) -> None:
    """No code and no credential is in any file of the gateway; the worker's own file is 0600."""
    data = tmp_path / "data"
    async with running_gateway([on_worker("m")], data) as running:
        code = Registry(data).invite("box", int(time.time()))
        gateway = f"ws://127.0.0.1:{running.gateway.port}"
        found = await pair(gateway, code.replace("-", " ").lower(), {})
        credential.check_folder(tmp_path / "worker")
        credential.store(tmp_path / "worker", found)
        log = json.dumps(running.log_lines)

    secret = found.secret.rpartition(".")[2]
    for path in data.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert secret.encode() not in text, path
            assert code.encode() not in text, path
            assert code.replace("-", "").encode() not in text, path
    assert secret not in log
    assert code not in log
    assert stat.S_IMODE((data / FOLDER).stat().st_mode) == 0o700
    assert stat.S_IMODE((data / FOLDER / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "worker").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "worker" / credential.FILE).stat().st_mode) == 0o600
    assert secret not in repr(found)


async def test_five_wrong_codes_close_pairing(tmp_path: Path) -> None:
    """Then the right one is refused too, until somebody invites again."""
    data = tmp_path / "data"
    async with running_gateway([on_worker("m")], data) as running:
        gateway = f"ws://127.0.0.1:{running.gateway.port}"
        registry = Registry(data)
        code = registry.invite("box", int(time.time()))
        for _ in range(5):
            with pytest.raises(NotPermitted):
                await pair(gateway, "2222-2222-2222", {})
        with pytest.raises(NotPermitted):
            await pair(gateway, code, {})
        again = registry.invite("box", int(time.time()))
        assert (await pair(gateway, again, {})).name == "box"
        with pytest.raises(NotPermitted):
            await pair(gateway, again, {})
        events = accesses(data, "path_template", "status_code", "error_code")

    assert events == [
        *[("/v1/workers/pair", 403, "not_permitted")] * 6,
        ("/v1/workers/pair", 200, None),
        ("/v1/workers/pair", 403, "not_permitted"),
    ]


def test_a_code_is_good_for_ten_minutes_and_once(tmp_path: Path) -> None:
    """Too old, used, or replaced by a newer one for the same name: refused."""
    registry = Registry(tmp_path)
    old = registry.invite("a", 1000)
    new = registry.invite("a", 1001)
    other = registry.invite("b", 1001)
    with pytest.raises(NotPermitted):
        registry.pair(old, 1002)
    with pytest.raises(NotPermitted):
        registry.pair(other, 1001 + CODE_SECONDS)
    third = registry.invite("a", 2000)
    name, secret = registry.pair(third, 2000 + CODE_SECONDS - 1)
    with pytest.raises(NotPermitted):
        registry.pair(third, 2001)
    with pytest.raises(NotPermitted):
        registry.pair(new, 2001)

    assert name == "a"
    assert registry.whose(secret, 2002) == "a"
    assert registry.whose(secret[:-1], 2002) is None
    assert registry.whose(secret.replace(".a.", ".b."), 2002) is None
    assert registry.whose("", 2002) is None


def test_guesses_without_an_invitation_write_nothing(tmp_path: Path) -> None:
    """Strangers cannot make the gateway write to its disk."""
    registry = Registry(tmp_path)
    for _ in range(3):
        with pytest.raises(NotPermitted):
            registry.pair("2222-2222-2222", 1)

    assert registry.stamp() == (0, 0)


def test_a_rotation_whose_confirmation_was_lost_locks_nobody_out(tmp_path: Path) -> None:
    """Both credentials are good until the new one is used; then the old one is void."""
    registry = Registry(tmp_path)
    _, old = registry.pair(registry.invite("a", 1), 2)
    registry.want_rotation("a")
    new = registry.begin_rotation("a")
    assert new is not None
    assert registry.whose(old, 3) == "a"
    assert registry.whose(new, 4) == "a"
    assert registry.whose(old, 5) is None
    newest = registry.begin_rotation("a")
    assert newest is not None
    assert registry.whose(new, 6) == "a"
    registry.finish_rotation("a", 7)

    assert registry.whose(new, 8) is None
    assert registry.whose(newest, 8) == "a"


# ------------------------------------------------------------------------------------------ links


async def test_nobody_comes_in_without_a_credential(tmp_path: Path) -> None:
    """A typed 401 in place of the upgrade, and another path is a 404; both are on record."""
    data = tmp_path / "data"
    upgrade = {
        "upgrade": "websocket",
        "connection": "upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with running_gateway([on_worker("m")], data) as running:
        gateway = f"ws://127.0.0.1:{running.gateway.port}"
        with pytest.raises(Refused):
            await dial(gateway, "everyturn-worker.box.obviously-fake")
        refused = await running.client.get("/workers/link", headers=upgrade)
        missing = await running.client.get("/nowhere", headers=upgrade)
        events = accesses(data, "path_template", "status_code")

    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "endpoint_not_found")
    assert events == [("/v1/workers/link", 401)] * 2 + [("unknown", 404)]


async def test_without_a_model_on_a_worker_there_is_no_door(tmp_path: Path) -> None:
    """Neither endpoint is served where nothing could use it."""
    model = {"name": "m", "preset": "generic-strict", "base_url": "http://127.0.0.1:1/v1"}
    async with running_gateway([model], tmp_path / "data") as running:
        answer = await running.client.post("/workers/pair", json={"code": "x"})
        with pytest.raises(Unreachable):
            await dial(f"ws://127.0.0.1:{running.gateway.port}", "x")

    assert answer.status_code == 404


async def test_a_revoked_worker_is_cut_and_ends(tmp_path: Path) -> None:
    """Within seconds: the call under way is lost, the worker ends with its own status."""
    async with gateway_and_worker(tmp_path) as (running, mock, beside):
        mock.add("m", Script.sse([chunk(content="a"), HANG]))
        pending = asyncio.create_task(running.chat("m", stream=True))
        await until(lambda: bool(mock.requests))
        assert Registry(tmp_path / "data").revoke("box")
        status = await asyncio.wait_for(beside.run, 5)
        answer = await pending
        after = await running.chat("m")
        with pytest.raises(Refused):
            own = credential.load(beside.folder)
            await dial(own.gateway, own.secret)

    assert status == EXIT_CREDENTIAL
    assert frames(answer.content)[-1]["error"]["code"] == "worker_lost"
    assert after.json()["error"]["code"] == "worker_unavailable"


async def test_a_credential_is_rotated_on_a_live_link(tmp_path: Path) -> None:
    """The worker stores the new one, the old one is void, and the link goes on."""
    async with gateway_and_worker(tmp_path) as (running, mock, beside):
        old = credential.load(beside.folder)
        registry = Registry(tmp_path / "data")
        assert registry.want_rotation("box")
        await until(lambda: registry.read().workers["box"].rotated_at is not None)
        new = credential.load(beside.folder)
        with pytest.raises(Refused):
            await dial(old.gateway, old.secret)
        mock.add("m", Script.sse([chunk(content="on"), FINISH, DONE]))
        answer = await running.chat("m", stream=True)
        found = registry.read().workers["box"]

    assert old.secret != new.secret
    assert registry.whose(new.secret, 0) == "box"
    assert not found.wants_rotation
    assert found.connected_at is not None
    assert b"on" in answer.content
    assert stat.S_IMODE((beside.folder / credential.FILE).stat().st_mode) == 0o600


async def test_the_same_credential_in_two_processes_ends_the_first(tmp_path: Path) -> None:
    """No storm of replacing each other: the one that was replaced stays away."""
    async with (
        gateway_and_worker(tmp_path) as (running, mock, beside),
        a_worker(beside.folder, mock.url) as second,
    ):
        status = await asyncio.wait_for(beside.run, 5)
        await until(lambda: second.has("worker.connected"))
        answer = await running.chat("m")

    assert status == EXIT_REPLACED
    assert answer.status_code == 200


async def test_a_worker_comes_back_after_its_gateway(tmp_path: Path) -> None:
    """It dials again until the gateway is there, with the credential it has."""
    async with gateway_and_worker(tmp_path) as (running, _, beside):
        port = running.gateway.port
        await running.gateway.stop()
        await until(lambda: beside.has("worker.link_ended"))
        seen = len(beside.lines)
        async with running_gateway(
            [on_worker("m")], tmp_path / "data", environment={"EVERYTURN_GATEWAY_PORT": str(port)}
        ) as again:
            await until(
                lambda: any(line["event"] == "worker.connected" for line in beside.lines[seen:])
            )
            answer = await again.chat("m")
            beside.worker.stop()
            status = await asyncio.wait_for(beside.run, 5)

    assert answer.status_code == 200
    assert status == EXIT_STOPPED


async def test_a_worker_that_stops_ends_what_it_has(tmp_path: Path) -> None:
    """Its calls go on to their end; new ones are refused meanwhile."""
    async with gateway_and_worker(tmp_path) as (running, mock, beside):
        mock.add("m", Script.sse([chunk(content="a"), Pause(1.0), FINISH, DONE]))
        pending = asyncio.create_task(running.chat("m", stream=True))
        await until(lambda: bool(mock.requests))
        assert running.gateway.app.door is not None
        link = running.gateway.app.door.workers.get("box")
        assert link is not None
        beside.worker.stop()
        await until(lambda: not link.serves(TARGET))
        refused = await running.chat("m")
        answer = await pending
        status = await asyncio.wait_for(beside.run, 5)

    assert refused.json()["error"]["code"] == "worker_unavailable"
    assert frames(answer.content)[-1] == "[DONE]"
    assert status == EXIT_STOPPED


async def test_tls_is_spoken_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its certificate trusted the worker pairs and connects; without, nobody is spoken to."""
    issued = authority().issue_cert("127.0.0.1")
    certificate, key, trusted = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    authority().cert_pem.write_to_path(str(trusted))
    data = tmp_path / "data"
    extra = f'tls_cert = "{certificate}"\ntls_key = "{key}"'
    async with running_gateway([on_worker("m")], data, extra=extra) as running:
        gateway = f"wss://127.0.0.1:{running.gateway.port}"
        with pytest.raises(Exception, match="certificate"):
            await paired(gateway, data, tmp_path / "worker")
        with pytest.raises(Unreachable, match="certificate"):
            await dial(gateway, "x")
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        await paired(gateway, data, tmp_path / "worker")
        async with a_worker(tmp_path / "worker", "http://127.0.0.1:1/v1") as beside:
            await until(lambda: beside.has("worker.connected"))


@pytest.mark.parametrize(
    "message", ["text", b"", b"\x00" * 100, b'{"type":"exec"}\n', bytes(MESSAGE_BYTES_MAX + 1)]
)
async def test_a_peer_that_talks_nonsense_is_cut(tmp_path: Path, message: str | bytes) -> None:
    """One that has a credential and breaks the protocol is told and cut; the gateway goes on."""
    async with gateway_and_worker(tmp_path) as (running, _, beside):
        await paired(
            f"ws://127.0.0.1:{running.gateway.port}", tmp_path / "data", tmp_path / "b", "b"
        )
        own = credential.load(tmp_path / "b")
        async with connect(
            f"{own.gateway}/v1/workers/link",
            additional_headers={"authorization": f"Bearer {own.secret}"},
            proxy=None,
        ) as peer:
            await peer.send(message)
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(5):
                    while True:
                        told = await peer.recv()
                        assert b'"type":"bye","code":"fault"' in told
        assert (await running.chat("m")).status_code == 200
        assert not beside.run.done()


async def test_a_slow_client_bounds_what_the_model_server_can_send(tmp_path: Path) -> None:
    """A client that reads next to nothing holds a bounded part of an endless stream."""
    sent = 0
    piece = chunk(content="x" * 1000) * 16

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.receive()
        peer.send(chunked_head("content-type: text/event-stream"))
        while not peer.is_gone:
            peer.send(framed(piece))
            sent += len(piece)
            await peer.drain()

    data = tmp_path / "data"
    async with ScriptedUpstream(script) as upstream, running_gateway([on_worker("m")], data) as run:
        await paired(f"ws://127.0.0.1:{run.gateway.port}", data, tmp_path / "worker")
        base_url = upstream.url.removesuffix("/chat/completions")
        async with a_worker(tmp_path / "worker", base_url) as beside:
            await until(lambda: beside.has("worker.connected"))
            reader, writer = await asyncio.open_connection("127.0.0.1", run.gateway.port, limit=1)
            body = json.dumps({"model": "m", "messages": HELLO, "stream": True}).encode()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            before = -1
            while sent != before:
                before = sent
                assert await reader.read(1)
                await asyncio.sleep(0.2)
            writer.transport.abort()
            await upstream.peers[0].gone(within_s=2)

    assert sent < 24_000_000, "what the systems themselves buffer for sockets is far less"


async def test_connected_workers_are_counted(tmp_path: Path) -> None:
    """`/metrics` tells how many there are, and the record when one came in."""
    async with gateway_and_worker(tmp_path) as (running, _, _):
        root = str(running.client.base_url).removesuffix("/v1/")
        told = (await running.client.get(f"{root}/metrics")).text
        events = accesses(tmp_path / "data", "path_template", "status_code")

    assert "everyturn_workers_connected 1" in told
    assert ("/v1/workers/link", 101) in events
