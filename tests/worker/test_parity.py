"""Parity: whatever a provider does, a worker beside it changes nothing.

Every scenario of the scripted provider, whole and streamed, and every recording of a real one,
directly and over a worker that is a process of its own: the client's bytes, what the official
client makes of them, and all stored rows are equal, but for ids, times and who ran the call.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAIError

from everyturn.mock.scenario import Scenario
from everyturn.mock.scenarios import GROUPS
from everyturn.mock.server import MockProvider
from tests.gateway.test_records import recorded
from tests.recordings.test_recordings import ALLOWED, RECORDED
from tests.support.comparing import DONE, data_events, write_json
from tests.support.gateway import HELLO, Running, running_gateway
from tests.support.paired import TARGET, paired
from tests.support.recorded import read_recordings
from tests.support.worker_process import event, unread, worker_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = 1_750_000_000.0
LIMITS = "[limits]\nframe_bytes_max = 2097152\nbody_bytes_max = 2097152"
SHORT = {"slow": "slow-50", "drip": "drip-2", "deep": "deep-1000", "bench": "bench-20"}
"""Families whose own numbers take long."""
IMPATIENT = {"first_byte_ms": 400, "idle_ms": 400}
"""Time limits where nothing comes."""
AT_ONCE = 8
PLAYED = "played"
"""The worker's other target: the provider that plays recordings."""
WAYS = ("direct", "worker")

OWN_FIELDS = {
    *("model_call_id", "turn_id", "trace_id", "span_id", "parent_span_id", "timestamp"),
    *("request_id", "access_id", "tool_call_id", "duration_ms"),
    *("latency_ms", "time_to_first_token_ms", "queue_ms", "link_ms", "upstream_ms"),
    *("transport", "worker", "base_url", "model_registry_id", "route_name", "requested_model"),
    "response_size_bytes",
}
"""What two turns differ in because they are two, and because one ran on a worker; the answers
themselves are compared, and so is their size."""
OWN_HEADERS = {"x-request-id", "traceparent", "x-everyturn-turn-id", "date", "content-length"}
KEPT = ", on a connection kept from an earlier call"
TRIES = 4
"""How often is asked where another scenario's reset meets a call on a kept connection."""
CHANCE = re.compile(f"{KEPT}|(?<=was lost )(before the answer began|inside the head of the answer)")
"""Whether a connection was kept depends on the calls before; and a reset may overtake the bytes
that were sent before it, whoever reads them."""
IDS = re.compile("[0-9a-f]{16,}")
"""The request's own ids, which the scenario `echo` says back."""
IDS_IN_PARTS = re.compile("[0-9a-f]")


@dataclass
class Both:
    """A gateway that reaches two providers directly, and over one worker process."""

    running: Running
    scripted: MockProvider
    player: MockProvider
    """Plays the recordings; a provider of its own, since names of models may meet."""
    client: AsyncOpenAI


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """One gateway and one worker process for all that is compared here."""
    folder = tmp_path_factory.mktemp("parity")
    data = folder / "data"
    async with (
        MockProvider(clock=lambda: NOW) as scripted,
        MockProvider(clock=lambda: NOW) as player,
        running_gateway(entries(scripted.url, player.url), data, extra=LIMITS) as running,
    ):
        await paired(
            f"ws://127.0.0.1:{running.gateway.port}", data, folder / "everyturn-worker", "box"
        )
        targets = {TARGET: scripted.url, PLAYED: player.url}
        async with (
            worker_process(folder, targets) as worker,
            AsyncOpenAI(base_url=running.url, api_key="sk-test-FAKE", max_retries=0) as client,
        ):
            await event(worker, "worker.connected")
            reading = asyncio.create_task(unread(worker))
            yield Both(running, scripted, player, client)
            worker.terminate()
            assert await worker.wait() == 0
            await reading


def entries(scripted: str, player: str) -> list[dict[str, Any]]:
    """Two models, `direct-NAME` and `worker-NAME`, for each scenario and each preset recorded."""
    models = []
    for group in GROUPS.values():
        for scenario in group:
            name = asked(scenario)
            entry = {
                "preset": scenario.preset,
                "timeouts": IMPATIENT if name.startswith("hang") else {},
            }
            models += both_ways(name, scripted, TARGET, entry)
    for preset in RECORDED:
        entry = {"preset": preset, "allow": [ALLOWED]}
        models += both_ways(f"{PLAYED}-{preset}", player, PLAYED, entry)
    return models


def both_ways(name: str, base_url: str, target: str, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """A model's entry as `direct-NAME` and as `worker-NAME`."""
    on_worker = {"transport": "worker", "worker": "box", "target": target}
    return [
        {"name": f"direct-{name}", "upstream_model": name, "base_url": base_url, **entry},
        {"name": f"worker-{name}", "upstream_model": name, **on_worker, **entry},
    ]


def asked(scenario: Scenario) -> str:
    """The name under which a scenario is asked for here."""
    return SHORT.get(scenario.name, scenario.name)


def seen_by_client(answer: httpx.Response) -> tuple[Any, ...]:
    """Status, headers and body, without what each answer has of its own."""
    headers = [pair for pair in answer.headers.multi_items() if pair[0] not in OWN_HEADERS]
    text = answer.content.decode("utf-8", "surrogateescape")
    return answer.status_code, sorted(headers), CHANCE.sub("", text)


def stored(turn: dict[str, Any]) -> str:
    """All rows of a turn, without what each has of its own."""
    rows = {"turn": [turn["turn"]], **{key: of for key, of in turn.items() if type(of) is list}}
    own = {
        kind: [{key: value for key, value in row.items() if key not in OWN_FIELDS} for row in of]
        for kind, of in rows.items()
    }
    return CHANCE.sub("", json.dumps(own))


def without_ids(text: str) -> str:
    """A text in which each id is as many zeros."""
    return IDS.sub(lambda found: "0" * len(found[0]), text)


def said_back(body: bytes) -> tuple[Any, ...]:
    """What `echo` said, without ids, and the sizes of the frames that it came in."""
    if not body.startswith(b"data: "):
        return (without_ids(body.decode()),)
    *events, done = data_events(body)
    assert done == DONE
    said = "".join(
        choice["delta"].get("content") or "" for event in events for choice in event["choices"]
    )
    return without_ids(said), [len(write_json(event)) for event in events]


async def differences(both: Both, label: str, answers: list[httpx.Response]) -> list[str]:
    """What the two answers, or what is on record of them, do not have in common."""
    turns = [await recorded(both.running, answer) for answer in answers]
    direct, worker = (seen_by_client(answer) for answer in answers)
    rows, others = (stored(turn) for turn in turns)
    if label.startswith("echo"):
        direct, worker = ((*seen[:2], said_back(seen[2].encode())) for seen in (direct, worker))
        rows, others = without_ids(rows), without_ids(others)
    found = []
    (call,) = turns[1]["model_calls"]
    if (call["transport"], call["worker"]) != ("worker", "box"):
        found.append(f"{label}: ran on {call['transport']} {call['worker']}")
    if direct != worker:
        found.append(f"{label}: the client saw {direct} and {worker}")
    if rows != others:
        found.append(f"{label}: stored {rows} {others}")
    return found


async def raw(running: Running, model: str, body: dict[str, Any]) -> httpx.Response:
    """The answer to a request."""
    content = write_json({**body, "model": model})
    headers = {"content-type": "application/json"}
    for _ in range(TRIES):
        answer = await running.client.post("/chat/completions", content=content, headers=headers)
        if KEPT.encode() not in answer.content:
            break
    return answer


async def official(client: AsyncOpenAI, model: str, body: dict[str, Any]) -> str:
    """What the official client makes of an answer."""
    for _ in range(TRIES):
        seen = await through_client(client, model, body)
        if KEPT not in seen:
            break
    return CHANCE.sub("", seen)


async def through_client(client: AsyncOpenAI, model: str, body: dict[str, Any]) -> str:
    """One answer as the official client gives it, its failure included."""
    seen: list[Any] = []
    try:
        made: Any = await client.chat.completions.create(
            model=model,
            messages=[],
            stream=body.get("stream") or False,
            extra_body={**body, "model": model},
        )
        if not body.get("stream"):
            seen.append(made.to_json(exclude_unset=True, warnings=False))
        else:
            async for chunk in made:
                seen.append(chunk.to_json(exclude_unset=True, warnings=False))
    except (OpenAIError, ValueError) as failure:
        about = getattr(failure, "code", None), getattr(failure, "body", None), str(failure)
        seen.append((type(failure).__name__, *about))
    assert seen
    return json.dumps(seen)


async def official_differences(both: Both, label: str, name: str, body: Any) -> list[str]:
    """What the official client does not find in both answers."""
    direct, worker = [await official(both.client, f"{way}-{name}", body) for way in WAYS]
    if label.startswith("echo"):
        # Cut into chunks anywhere, ids included: the raw comparison looks closer.
        direct, worker = (IDS_IN_PARTS.sub("0", text) for text in (direct, worker))
    return [] if direct == worker else [f"{label}: the client read {direct} and {worker}"]


@pytest.mark.parametrize("group", GROUPS)
async def test_over_a_worker_as_directly(both: Both, group: str) -> None:
    """Bytes, headers, the official client's objects and stored rows of each scenario are equal."""
    gate = asyncio.Semaphore(AT_ONCE)
    different: list[str] = []

    async def compare(scenario: Scenario, *, is_stream: bool) -> None:
        name = asked(scenario)
        label = f"{name} {'streamed' if is_stream else 'whole'}"
        body: dict[str, Any] = {"messages": HELLO, "stream": is_stream}
        if is_stream:
            body["stream_options"] = {"include_usage": True}
        async with gate:
            answers = [await raw(both.running, f"{way}-{name}", body) for way in WAYS]
            different.extend(await differences(both, label, answers))
            different.extend(await official_differences(both, label, name, body))

    for is_stream in (False, True):
        await asyncio.gather(*(compare(one, is_stream=is_stream) for one in GROUPS[group]))

    assert not different, "\n".join(one[:3000] for one in different)


@pytest.mark.parametrize("preset", RECORDED)
async def test_recordings_over_a_worker_as_directly(
    both: Both, recordings_folder: Path, preset: str
) -> None:
    """The same of every recorded exchange, cut at random places on its way."""
    different: list[str] = []
    name = f"{PLAYED}-{preset}"
    for recording in read_recordings(recordings_folder, preset):
        both.player.add(name, recording.script(random.Random(recording.id)))
        answers = [await raw(both.running, f"{way}-{name}", recording.request) for way in WAYS]
        different += await differences(both, recording.id, answers)
        different += await official_differences(both, recording.id, name, recording.request)

    assert not different, "\n".join(one[:3000] for one in different)
