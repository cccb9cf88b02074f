"""What a worker keeps, where it may go, and the commands, as processes of their own."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

import pytest

from everyturn.errors import InvalidValue, UpstreamUnreachable
from everyturn.gateway.worker_registry import Registry
from everyturn.link.session import Session
from everyturn.mock.script import HANG, Script
from everyturn.mock.server import MockProvider
from everyturn.worker import credential
from everyturn.worker.credential import Credential
from everyturn.worker.dial import Unreachable, dial, gateway_url
from everyturn.worker.main import EXIT_CREDENTIAL, EXIT_STOPPED, EXIT_VERSION, delay_s
from everyturn.worker.pair import pair
from everyturn.worker.targets import parse_targets
from tests.gateway.test_answers import DONE, FINISH, chunk, frames
from tests.gateway.test_records import recorded
from tests.support.gateway import HELLO, running_gateway
from tests.support.linked import OLD
from tests.support.paired import ANSWER, TARGET, a_worker, on_worker, paired
from tests.support.scripted_upstream import (
    Peer,
    ScriptedUpstream,
    answer,
    answering,
    chunked_head,
    until,
)
from tests.support.scripted_upstream import chunk as framed
from tests.support.worker_process import event, run_command, worker_process
from tests.support.workers import a_hub

EXAMPLE = Credential(gateway="wss://gateway.test", name="box", secret="obviously-fake")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "gateway.test",
        "https://gateway.test",
        "ws://gateway.test",
        "ws://10.0.0.1:80",
        "ws://localhost.evil.test",
        "wss://",
        "wss://user:password@gateway.test",
        "wss://gateway.test/path",
        "wss://gateway.test?a=1",
        "wss://gateway.test:99999",
    ],
)
def test_an_address_is_verified_tls_or_loopback(address: str) -> None:
    """Plaintext leaves this machine under no circumstances, and no credentials stand in URLs."""
    with pytest.raises(InvalidValue):
        gateway_url(address)


@pytest.mark.parametrize(
    "address",
    ["wss://gateway.test", "wss://gateway.test:8443/", "ws://127.0.0.1:1", "ws://[::1]:1"],
)
def test_addresses_that_may_be_dialled(address: str) -> None:
    """TLS anywhere, plaintext on loopback."""
    assert gateway_url(address).hostname


@pytest.mark.parametrize(
    "text",
    [
        "llama",
        "=http://127.0.0.1/v1",
        "Llama=http://127.0.0.1/v1",
        "llama=127.0.0.1:80",
        "llama=ftp://127.0.0.1/v1",
        "llama=http://10.0.0.5/v1",
        "llama=http://metadata.test/v1",
        "llama=http://127.0.0.1.evil.test/v1",
        "llama=http://user:pw@127.0.0.1/v1",
        "llama=file:///etc/passwd",
        "llama=http://127.0.0.1:0/v1",
    ],
)
def test_only_loopback_can_be_allowed(text: str) -> None:
    """A worker cannot be made a way into the rest of its network."""
    with pytest.raises(InvalidValue):
        parse_targets((text,))


def test_targets_are_names_of_addresses() -> None:
    """Each name once."""
    one, two = "a=http://127.0.0.1:1/v1/", "b=http://[::1]:2/v1"

    assert parse_targets((one, two)) == {"a": "http://127.0.0.1:1/v1", "b": "http://[::1]:2/v1"}
    with pytest.raises(InvalidValue, match="twice"):
        parse_targets((one, one))


def test_a_credential_is_private(tmp_path: Path) -> None:
    """It is kept as it was; a file or folder that others may use is refused, and so is damage."""
    folder = tmp_path / "worker"
    credential.check_folder(folder)
    credential.store(folder, EXAMPLE)
    assert credential.load(folder) == EXAMPLE
    assert [path.name for path in folder.iterdir()] == [credential.FILE]

    (folder / credential.FILE).chmod(0o640)
    with pytest.raises(InvalidValue, match="may be used by others"):
        credential.load(folder)
    (folder / credential.FILE).chmod(0o600)
    folder.chmod(0o755)
    for use in (credential.load, credential.check_folder):
        with pytest.raises(InvalidValue, match="may be used by others"):
            use(folder)
    folder.chmod(0o700)
    (folder / credential.FILE).write_bytes(b"{}")
    with pytest.raises(InvalidValue, match="cannot be read"):
        credential.load(folder)
    with pytest.raises(InvalidValue, match="not paired"):
        credential.load(tmp_path)


async def test_a_gateway_that_is_not_there_is_said_so() -> None:
    """Pairing and dialling tell it apart from a refusal."""
    async with MockProvider() as mock:
        port = mock.port
    with pytest.raises(Unreachable):
        await dial(f"ws://127.0.0.1:{port}", "x")
    with pytest.raises(UpstreamUnreachable, match="gateway"):
        await pair(f"ws://127.0.0.1:{port}", "x", {})


async def test_no_redirect_is_followed() -> None:
    """Credentials are shown, and calls taken, at the address that was paired and nowhere else."""
    async with ScriptedUpstream(answering(answer())) as other:
        moved = answer(
            status="307 Moved", headers=(f"location: ws://127.0.0.1:{other.port}/v1/workers/link",)
        )
        async with ScriptedUpstream(answering(moved)) as gateway:
            with pytest.raises(Unreachable, match="status 307"):
                await dial(f"ws://127.0.0.1:{gateway.port}", "obviously-fake")

    assert other.peers == []


async def test_a_proxy_that_cannot_be_used_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SOCKS proxy in the environment is no crash; the gateway is just not reached."""
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1")
    monkeypatch.setenv("wss_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(Unreachable):
        await dial("wss://gateway.test", "x")


async def test_no_common_version_is_no_reason_to_come_back(tmp_path: Path) -> None:
    """The worker ends with its own status after one try."""
    credential.check_folder(tmp_path / "worker")
    async with a_hub() as hub:
        hub.gateway_session = lambda: Session("gateway", versions=(OLD,))
        gateway = f"ws://127.0.0.1:{hub.port}"
        credential.store(
            tmp_path / "worker", Credential(gateway=gateway, name="box", secret="obviously-fake")
        )
        async with a_worker(tmp_path / "worker", "http://127.0.0.1:1/v1") as beside:
            status = await asyncio.wait_for(beside.run, 5)

    assert status == EXIT_VERSION
    assert len(hub.endings) == 1


async def test_a_worker_is_stopped_while_nobody_answers(tmp_path: Path) -> None:
    """A gateway that takes the connection and says nothing does not hold it up."""
    credential.check_folder(tmp_path / "worker")
    async with ScriptedUpstream(answering()) as silent:
        gateway = f"ws://127.0.0.1:{silent.port}"
        credential.store(
            tmp_path / "worker", Credential(gateway=gateway, name="box", secret="obviously-fake")
        )
        async with a_worker(tmp_path / "worker", "http://127.0.0.1:1/v1") as beside:
            await until(lambda: bool(silent.requests))
            beside.worker.stop()
            assert await asyncio.wait_for(beside.run, 5) == EXIT_STOPPED


def test_delays_double_up_to_a_cap_and_are_spread() -> None:
    """Half a second first, half a minute at most; chance takes up to half of it away."""
    assert [delay_s(failures, jitter=0.999999) for failures in (0, 1, 2, 6, 1000)] == pytest.approx(
        [0.5, 1, 2, 30, 30], rel=1e-5
    )
    assert delay_s(3, jitter=0) == 2


# -------------------------------------------------------------------------------- real processes


async def test_the_commands_from_invitation_to_revocation(tmp_path: Path) -> None:
    """Invite, pair, run, list, call, kill -9 in the middle of an answer, run again, revoke."""
    data = tmp_path / "data"
    async with MockProvider() as mock, running_gateway([on_worker("m")], data) as running:
        mock.add("m", Script.whole(body=ANSWER))
        gateway = f"ws://127.0.0.1:{running.gateway.port}"
        status, out, _ = await run_command(
            "worker", "invite", "box", "--data", "data", cwd=tmp_path
        )
        code = out.strip()
        assert status == 0
        assert re.fullmatch(r"(?:[2-9A-Z]{4}-){2}[2-9A-Z]{4}", code)
        pairing = ("worker", "pair", "--gateway", gateway, "--code")
        status, _, err = await run_command(*pairing, "2222-2222-2222", cwd=tmp_path)
        assert (status, "wrong, used or too old" in err) == (1, True)
        status, _, err = await run_command(*pairing, code, cwd=tmp_path)
        assert status == 0, err

        async with worker_process(tmp_path, {TARGET: mock.url}) as worker:
            await event(worker, "worker.connected")
            assert (await running.chat("m")).status_code == 200
            listed = ("worker", "list", "--json", "--data", "data")
            _, out, _ = await run_command(*listed, cwd=tmp_path)
            assert json.loads(out)["connected_at"] is not None
            mock.add("m", Script.sse([chunk(content="some"), HANG]))
            body = {"model": "m", "messages": HELLO, "stream": True}
            async with running.client.stream("POST", "/chat/completions", json=body) as answer:
                received = b""
                async for part in answer.aiter_raw():
                    received += part
                    if b"some" in received and worker.returncode is None:
                        worker.send_signal(signal.SIGKILL)
                        await worker.wait()
            turn = await recorded(running, answer)
            await until(lambda: mock.stats().aborts_of("m") == 1)

        assert frames(received)[-1]["error"]["code"] == "worker_lost"
        assert turn["turn"]["assistant_text"] == "some"
        assert len(mock.requests) == 2

        async with worker_process(tmp_path, {TARGET: mock.url}) as worker:
            await event(worker, "worker.connected")
            status, _, _ = await run_command(
                "worker", "revoke", "box", "--data", "data", cwd=tmp_path
            )
            assert status == 0
            await event(worker, "worker.link_ended")
            assert await asyncio.wait_for(worker.wait(), 10) == EXIT_CREDENTIAL
        status, _, _ = await run_command("worker", "rotate", "box", "--data", "data", cwd=tmp_path)
        assert status == 1


async def test_a_worker_is_stopped_by_a_signal(tmp_path: Path) -> None:
    """SIGTERM ends it with status 0, also while its gateway is away; without pairing it is 1."""
    folder = tmp_path / "everyturn-worker"
    async with MockProvider() as mock, worker_process(tmp_path, {TARGET: mock.url}) as unpaired:
        assert await asyncio.wait_for(unpaired.wait(), 20) == 1
    credential.check_folder(folder)
    credential.store(
        folder, Credential(gateway="ws://127.0.0.1:1", name="box", secret="obviously-fake")
    )
    async with worker_process(tmp_path, {TARGET: "http://127.0.0.1:1/v1"}) as worker:
        await event(worker, "worker.unreachable")
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), 20) == 0


async def test_a_stopping_worker_ends_its_calls_and_takes_no_new_ones(tmp_path: Path) -> None:
    """SIGTERM in the middle of a stream: it arrives whole, and the busier process gets the rest.
    A credential that was rotated before is the one with which the first comes back."""
    data, hold = tmp_path / "data", asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            await peer.receive()
            peer.send(chunked_head("content-type: text/event-stream"))
            peer.send(framed(chunk(content="some")))
            await hold.wait()
            peer.send(framed(chunk(content=" more") + FINISH + DONE) + framed(b""))

    models, registry = [on_worker("m", worker=["a", "b"])], Registry(data)
    async with (
        ScriptedUpstream(script) as up_a,
        ScriptedUpstream(script) as up_b,
        running_gateway(models, data) as running,
    ):
        targets = [{TARGET: up.url.removesuffix("/chat/completions")} for up in (up_a, up_b)]
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            folder = tmp_path / name / "everyturn-worker"
            await paired(f"ws://127.0.0.1:{running.gateway.port}", data, folder, name)
        async with (
            worker_process(tmp_path / "a", targets[0]) as first,
            worker_process(tmp_path / "b", targets[1]) as second,
        ):
            for process in (first, second):
                await event(process, "worker.connected")
            assert registry.want_rotation("a")
            await event(first, "worker.credential_rotated")
            await until(lambda: registry.read().workers["a"].rotated_at is not None)
            calls = [asyncio.create_task(running.chat("m", stream=True))]

            def all_run() -> bool:
                return len(up_a.requests) + len(up_b.requests) == len(calls)

            await until(all_run)
            first.terminate()
            taken = 0
            # Until the gateway knows of it; else the first would get at least one of three.
            while taken != len(up_a.requests):
                taken = len(up_a.requests)
                more = [asyncio.create_task(running.chat("m", stream=True)) for _ in range(3)]
                calls.extend(more)
                await until(all_run)
            hold.set()
            answers = await asyncio.gather(*calls)
            assert await asyncio.wait_for(first.wait(), 20) == EXIT_STOPPED
            turns = [await recorded(running, answer) for answer in answers]
        async with worker_process(tmp_path / "a", targets[0]) as again:
            await event(again, "worker.connected")

    assert [turn["model_calls"][0]["worker"] for turn in turns][:1] == ["a"]
    assert {turn["turn"]["assistant_text"] for turn in turns} == {"some more"}
    assert {frames(answer.content)[-1] for answer in answers} == {"[DONE]"}
