"""Parity: whatever a provider does, a worker beside it changes nothing.

Every scenario of the scripted provider, whole and streamed, and every recording of a real one,
directly and over a real link: the client's bytes and the stored call are equal, but for ids, times
and who ran it.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAIError

from everyturn.mock.scenario import Scenario
from everyturn.mock.scenarios import GROUPS
from everyturn.mock.server import MockProvider
from tests.gateway.test_records import recorded
from tests.recordings.test_recordings import ALLOWED, RECORDED
from tests.support.comparing import write_json
from tests.support.gateway import Running, running_gateway
from tests.support.paired import TARGET, a_worker, paired
from tests.support.recorded import Recording, read_recordings
from tests.support.scripted_upstream import until

NOW = 1_750_000_000.0
LIMITS = "[limits]\nframe_bytes_max = 2097152\nbody_bytes_max = 2097152"
SHORT = {"slow": "slow-50", "drip": "drip-2", "deep": "deep-1000", "bench": "bench-20"}
"""Families whose own numbers take long."""
IMPATIENT = {"first_byte_ms": 400, "idle_ms": 400}
"""Time limits where nothing comes."""
AT_ONCE = 8
ECHOING = "echo"
"""Answers with the request's own ids, which are each call's own."""

OWN_FIELDS = {
    *("model_call_id", "turn_id", "trace_id", "span_id", "parent_span_id", "timestamp"),
    *("latency_ms", "time_to_first_token_ms", "queue_ms", "link_ms", "upstream_ms"),
    *("transport", "worker", "base_url", "model_registry_id", "route_name", "requested_model"),
}
"""What two calls differ in because they are two, and because one ran on a worker."""
OWN_HEADERS = {"x-request-id", "traceparent", "x-everyturn-turn-id", "date", "content-length"}
KEPT = ", on a connection kept from an earlier call"
"""Whether a connection was kept depends on the calls before."""


def played(group: str) -> list[Scenario]:
    """The scenarios of a group that answer equal requests equally."""
    return [scenario for scenario in GROUPS[group] if scenario.name != ECHOING]


def entries(group: str, base_url: str) -> list[dict[str, Any]]:
    """Two models for each scenario of a group: `direct-NAME` and `worker-NAME`."""
    models = []
    for scenario in played(group):
        name = SHORT.get(scenario.name, scenario.name)
        entry = {
            "preset": scenario.preset,
            "upstream_model": name,
            "timeouts": IMPATIENT if name.startswith("hang") else {},
        }
        models += both_ways(name, base_url, entry)
    return models


def both_ways(name: str, base_url: str, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """A model's entry as `direct-NAME` and as `worker-NAME`."""
    on_worker = {"transport": "worker", "worker": "box", "target": TARGET}
    return [
        {"name": f"direct-{name}", "base_url": base_url, **entry},
        {"name": f"worker-{name}", **on_worker, **entry},
    ]


def seen_by_client(answer: httpx.Response) -> tuple[Any, ...]:
    """Status, headers and body, without what each answer has of its own."""
    headers = [pair for pair in answer.headers.multi_items() if pair[0] not in OWN_HEADERS]
    return answer.status_code, sorted(headers), answer.content.replace(KEPT.encode(), b"")


def stored(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls and the turn as stored, without what each has of its own."""
    rows = [*turn["model_calls"], {"outcome": turn["turn"]["outcome"]}]
    own = [{key: value for key, value in row.items() if key not in OWN_FIELDS} for row in rows]
    told: list[dict[str, Any]] = json.loads(json.dumps(own).replace(KEPT, ""))
    return told


async def differences(running: Running, label: str, answers: list[httpx.Response]) -> list[str]:
    """What the two answers, or what is on record of them, do not have in common."""
    turns = [await recorded(running, answer) for answer in answers]
    direct, worker = (seen_by_client(answer) for answer in answers)
    rows, others = (stored(turn) for turn in turns)
    found = []
    if direct != worker:
        found.append(f"{label}: the client saw {direct} and {worker}")
    if rows != others:
        found.append(f"{label}: stored {json.dumps(rows)} {json.dumps(others)}")
    return found


@pytest.mark.parametrize("group", GROUPS)
async def test_over_a_worker_as_directly(tmp_path: Path, group: str) -> None:
    """Bytes, headers and stored rows of each scenario are the same in both ways."""
    data, gate = tmp_path / "data", asyncio.Semaphore(AT_ONCE)
    different: list[str] = []
    async with (
        MockProvider(clock=lambda: NOW) as mock,
        running_gateway(entries(group, mock.url), data, extra=LIMITS) as running,
    ):
        await paired(f"ws://127.0.0.1:{running.gateway.port}", data, tmp_path / "worker")
        async with a_worker(tmp_path / "worker", mock.url) as beside:
            await until(lambda: beside.has("worker.connected"))

            async def both(scenario: Scenario, *, is_stream: bool) -> None:
                name = SHORT.get(scenario.name, scenario.name)
                more = {"stream_options": {"include_usage": True}} if is_stream else {}
                async with gate:
                    answers = [
                        await running.chat(f"{way}-{name}", stream=is_stream, **more)
                        for way in ("direct", "worker")
                    ]
                label = f"{name} {'streamed' if is_stream else 'whole'}"
                different.extend(await differences(running, label, answers))

            for is_stream in (False, True):
                await asyncio.gather(*(both(one, is_stream=is_stream) for one in played(group)))

    assert not different, "\n".join(one[:3000] for one in different)


async def ask_both(
    running: Running, mock: MockProvider, recording: Recording
) -> list[httpx.Response]:
    """Send a recorded request both ways; the provider gives the recorded answer."""
    mock.add(recording.model, recording.script(random.Random(recording.id)))
    return [
        await running.client.post(
            "/chat/completions",
            content=write_json({**recording.request, "model": f"{way}-{recording.model}"}),
            headers={"content-type": "application/json"},
        )
        for way in ("direct", "worker")
    ]


@pytest.mark.parametrize("preset", RECORDED)
async def test_recordings_over_a_worker_as_directly(
    tmp_path: Path, recordings_folder: Path, preset: str
) -> None:
    """The same of every recorded exchange, cut at random places on its way."""
    data = tmp_path / "data"
    different: list[str] = []
    recordings = read_recordings(recordings_folder, preset)
    names = dict.fromkeys(recording.model for recording in recordings)
    async with MockProvider(clock=lambda: NOW) as mock:
        models = [
            model
            for name in names
            for model in both_ways(
                name, mock.url, {"preset": preset, "upstream_model": name, "allow": [ALLOWED]}
            )
        ]
        async with running_gateway(models, data) as running:
            await paired(f"ws://127.0.0.1:{running.gateway.port}", data, tmp_path / "worker")
            async with a_worker(tmp_path / "worker", mock.url) as beside:
                await until(lambda: beside.has("worker.connected"))
                for recording in recordings:
                    answers = await ask_both(running, mock, recording)
                    different += await differences(running, recording.id, answers)

    assert not different, "\n".join(one[:3000] for one in different)


OFFICIAL = ("deepseek", "tools", "refusal", "length", "cut-close", "error-mid", "error-429")


async def through_client(client: AsyncOpenAI, model: str, *, is_stream: bool) -> list[Any]:
    """What the official client makes of an answer, its failure included."""
    messages: Any = [{"role": "user", "content": "hello"}]
    seen: list[Any] = []
    try:
        if not is_stream:
            whole = await client.chat.completions.create(model=model, messages=messages)
            return [whole.model_dump()]
        async for event in await client.chat.completions.create(
            model=model, messages=messages, stream=True
        ):
            seen.append(event.model_dump())
    except OpenAIError as failure:
        seen.append((type(failure).__name__, getattr(failure, "code", None), str(failure)))
    return seen


async def test_the_official_client_sees_no_difference(tmp_path: Path) -> None:
    """Answers, tool calls, refusals, cuts and errors are the same objects both ways."""
    data = tmp_path / "data"
    async with MockProvider(clock=lambda: NOW) as mock:
        models = [
            model
            for name in OFFICIAL
            for model in both_ways(name, mock.url, {"preset": "deepseek", "upstream_model": name})
        ]
        async with running_gateway(models, data) as running:
            await paired(f"ws://127.0.0.1:{running.gateway.port}", data, tmp_path / "worker")
            async with (
                a_worker(tmp_path / "worker", mock.url) as beside,
                AsyncOpenAI(base_url=running.url, api_key="sk-test-FAKE", max_retries=0) as client,
            ):
                await until(lambda: beside.has("worker.connected"))
                for name in OFFICIAL:
                    for is_stream in (False, True):
                        direct, worker = [
                            await through_client(client, f"{way}-{name}", is_stream=is_stream)
                            for way in ("direct", "worker")
                        ]
                        assert direct
                        assert direct == worker, name
