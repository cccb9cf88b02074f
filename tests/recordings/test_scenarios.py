"""Every scenario of the scripted provider through a gateway: it arrives whole, or fails typed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from everyturn.mock.scenario import Ask, Scenario, split_number
from everyturn.mock.scenarios import GROUPS, SCENARIOS
from everyturn.mock.server import MockProvider
from everyturn.presets.load import load_preset
from tests.mock.reading import split_answer, written
from tests.support.comparing import (
    DONE,
    data_events,
    differences,
    fold,
    ledger,
    named_events,
    read_json,
    unclear_calls,
)
from tests.support.gateway import Running, running_gateway
from tests.support.mapping import Mapping, one_run, split_tags

NOW = 1_750_000_000.0
SHORT = {"slow": "slow-50", "drip": "drip-2", "deep": "deep-1000", "bench": "bench-20"}
"""Families whose own numbers take long."""
LIMITS = "[limits]\nframe_bytes_max = 2097152\nbody_bytes_max = 2097152"
IMPATIENT = {"first_byte_ms": 1000, "idle_ms": 1000}
"""Time limits where nothing comes; elsewhere those that users have, whatever else runs here."""
WAIT_S = 60
AT_ONCE = 8
KEY = "sk-test-FAKE-provider"
TWO = ("n2", "one-of-two")
"""Scenarios with two choices."""

FAILS = {
    **dict.fromkeys(("conflict", "conflict-at-once", "conflict-late"), "reasoning_conflict"),
    **dict.fromkeys(("carrier-number", "carrier-object", "carrier-list"), "translation_error"),
    **dict.fromkeys(("details-string", "content-number"), "translation_error"),
    **dict.fromkeys(("unevidenced", "thinking-blocks", "unknown-thought"), "protocol_drift"),
    **dict.fromkeys(("unknown-thought-choice", "unknown-thought-body"), "protocol_drift"),
    **dict.fromkeys(("cut-close", "cut-abort", "cut-reasoning"), "upstream_stream_incomplete"),
    **dict.fromkeys(("cut-after-finish", "reset-in"), "upstream_stream_incomplete"),
    **dict.fromkeys(("error-mid", "error-mid-no-done", "error-field"), "upstream_error"),
    **dict.fromkeys(("error-first", "error-401", "error-403"), "upstream_error"),
    **dict.fromkeys(("error-500", "error-502-html", "error-503", "error-529"), "upstream_error"),
    **dict.fromkeys(("error-200", "error-200-json", "redirect"), "upstream_error"),
    **dict.fromkeys(("error-400", "error-404", "error-429"), "upstream_rejected"),
    **dict.fromkeys(("error-429-date", "error-array", "error-flat"), "upstream_rejected"),
    **dict.fromkeys(("error-string", "error-late", "error-event"), "upstream_rejected"),
    **dict.fromkeys(("html", "wrong-type", "invalid-json", "invalid-utf8"), "translation_error"),
    **dict.fromkeys(("duplicate-keys", "deep", "not-object", "null-frame"), "translation_error"),
    **dict.fromkeys(("choices-object", "gzip", "not-http", "bad-chunk"), "translation_error"),
    "short-length": "translation_error",
    **dict.fromkeys(("reset-before", "close-before", "reset-head"), "upstream_unreachable"),
    **dict.fromkeys(("hang", "hang-head", "hang-mid"), "upstream_timeout"),
    **dict.fromkeys(("endless-line", "endless-head"), "upstream_too_large"),
}
"""Scenario → code of its failure, whole and streamed. What is in none of these tables arrives."""

FAILS_WHOLE = {
    **FAILS,
    "alias-short": "reasoning_conflict",
    # HTTP says that the body is complete, and its JSON is not.
    **dict.fromkeys(("cut-clean", "cut-frame"), "translation_error"),
    **dict.fromkeys(("empty-body", "no-events", "empty-frame"), "translation_error"),
    "other-shape": "translation_error",
    "no-choices": "upstream_error",
}
FAILS_STREAMED = {
    **FAILS,
    "tools-orphan": "tool_fragment_orphan",
    **dict.fromkeys(("cut-clean", "cut-frame", "no-finish"), "upstream_stream_incomplete"),
    **dict.fromkeys(("one-of-two", "no-choices", "other-shape"), "upstream_stream_incomplete"),
    **dict.fromkeys(("empty-body", "no-events"), "upstream_stream_incomplete"),
}


def test_tables_name_scenarios() -> None:
    """Only what exists is expected to fail."""
    assert {*FAILS_WHOLE, *FAILS_STREAMED} <= set(SCENARIOS)


def asked(scenario: Scenario) -> str:
    """The name under which a scenario is asked for here."""
    return SHORT.get(scenario.name, scenario.name)


async def ask(running: Running, scenario: Scenario, *, is_stream: bool) -> httpx.Response:
    """One request for a scenario, with the usage of the stream."""
    more: dict[str, Any] = {"n": 2} if scenario.name in TWO else {}
    if is_stream:
        more["stream_options"] = {"include_usage": True}
    async with asyncio.timeout(WAIT_S):
        return await running.chat(asked(scenario), stream=is_stream, **more)


Provided = Callable[[], bytes]
"""Gives the body that the provider wrote."""


def provided(scenario: Scenario, mock: MockProvider, *, is_stream: bool) -> bytes:
    """The body that the provider wrote for the newest request for this scenario."""
    seen = next(
        (seen for seen in reversed(mock.requests) if seen.model == asked(scenario)),
        mock.requests[-1],
    )
    ask = Ask(
        name=asked(scenario),
        number=split_number(asked(scenario))[1],
        request=seen,
        body=seen.json(),
        now=NOW,
    )
    wire = written(scenario.play(ask), streamed=is_stream)
    while wire.startswith(b"HTTP/1.1 103"):
        wire = wire.partition(b"\r\n\r\n")[2]
    return split_answer(wire)[2]


def faults_of_whole(answer: httpx.Response, scenario: Scenario, body: Provided) -> list[str]:
    """Where a whole answer is not what the provider said, or its failure not what is documented."""
    wanted = FAILS_WHOLE.get(scenario.name)
    found = read_json(answer.content)
    if "error" in found or wanted is not None:
        code = found.get("error", {}).get("code")
        is_typed = answer.status_code >= 400
        return [] if code == wanted and is_typed else [f"{code} instead of {wanted}"]
    preset = load_preset(scenario.preset)
    if scenario.name == "stream-to-whole":
        expected = {**fold(data_events(body())[:-1]), "object": "chat.completion"}
    else:
        expected = Mapping(preset).body(read_json(body()))
    return differences(expected, found)


def until_failure(body: bytes) -> list[Any]:
    """The frames of a stream that broke off or reported an error, as far as they are whole."""
    whole = body[: body.rindex(b"\n\n") + 2]
    before = []
    for name, event in named_events(whole):
        if event == DONE or event.get("error") or name == "error":
            break
        before.append(event)
    return before


def faults_of_stream(answer: httpx.Response, scenario: Scenario, body: Provided) -> list[str]:
    """The same of a streamed answer."""
    wanted = FAILS_STREAMED.get(scenario.name)
    if answer.headers["content-type"] == "application/json":
        *shown, last = [read_json(answer.content)]
        if answer.status_code < 400:
            return ["no stream and no error status"]
    else:
        *shown, last = data_events(answer.content)
    if last != DONE or wanted is not None:
        code = last["error"]["code"] if last != DONE else DONE
        faults = [] if code == wanted and DONE not in shown else [f"{code} instead of {wanted}"]
        if shown and code in ("upstream_stream_incomplete", "upstream_error", "upstream_rejected"):
            mapping = Mapping(load_preset(scenario.preset))
            before = [frame for event in until_failure(body()) for frame in mapping.frame(event)]
            faults += differences(ledger(before), ledger(shown), "before the failure")
        return faults
    preset = load_preset(scenario.preset)
    mapping = Mapping(preset)
    if scenario.name == "json-to-stream":
        expected = mapping.body(read_json(body()))
        return differences({**expected, "object": "chat.completion.chunk"}, fold(shown))
    events = data_events(body())
    events = events[: events.index(DONE)] if DONE in events else events
    told, found = ledger([f for event in events for f in mapping.frame(event)]), ledger(shown)
    if preset.tags != "off":
        is_marked = scenario.name == "gemini"
        told = split_tags(told, preset, is_marked=is_marked)
        found = one_run(found)
    return unclear_calls(shown) + differences(told, found)


@pytest.mark.parametrize("group", GROUPS)
async def test_arrives_or_fails_typed(tmp_path: Path, group: str) -> None:
    """Each scenario, whole and streamed, gives every value or its documented error; none hangs."""
    faults: list[str] = []
    gate = asyncio.Semaphore(AT_ONCE)
    async with MockProvider(clock=lambda: NOW) as mock:
        models = [
            {
                "name": asked(scenario),
                "preset": scenario.preset,
                "base_url": mock.url,
                "api_key_env": "PROVIDER_KEY",
                "timeouts": IMPATIENT if scenario.name.startswith("hang") else {},
            }
            for scenario in GROUPS[group]
        ]
        async with running_gateway(
            models, tmp_path / "data", extra=LIMITS, environment={"PROVIDER_KEY": KEY}
        ) as running:

            async def check(scenario: Scenario, *, is_stream: bool) -> None:
                async with gate:
                    answer = await ask(running, scenario, is_stream=is_stream)
                body = partial(provided, scenario, mock, is_stream=is_stream)
                judge = faults_of_stream if is_stream else faults_of_whole
                form = "streamed" if is_stream else "whole"
                found = judge(answer, scenario, body)
                faults.extend(f"{scenario.name} {form}: {fault}" for fault in found)

            for is_stream in (False, True):
                await asyncio.gather(*(check(one, is_stream=is_stream) for one in GROUPS[group]))

    assert not faults, "\n".join(faults)
