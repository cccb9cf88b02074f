"""Every recorded answer through the wire core alone, cut at random places.

The same is done through a real gateway over real sockets elsewhere; here the core has to hold by
itself, and the record is looked at as well as what the client sees.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everyturn.errors import Failure, UpstreamRejected, UpstreamStreamIncomplete
from everyturn.presets.load import load_preset
from everyturn.wire.dialects.failures import status_failure
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Preset, Target
from everyturn.wire.reader import write
from everyturn.wire.reply import Missing, Reply
from everyturn.wire.stream import read_whole
from tests.support.chat_replies import Seen, a_target, read_stream
from tests.support.comparing import (
    ALIAS,
    DONE,
    data_events,
    differences,
    fold,
    ledger,
    read_json,
    write_json,
)
from tests.support.mapping import Mapping
from tests.support.recorded import Recording, cuts, read_recordings

SEED = 20261201
RECORDED = (
    *("azure-openai", "cerebras", "dashscope", "deepseek", "gemini-openai", "generic-strict"),
    *("groq", "mistral", "moonshot", "ollama-v1", "openai-chat", "openrouter", "perplexity"),
    *("xai", "zai"),
)
"""The presets whose providers somebody recorded."""
TIMES = 3
"""How often each recording is read, cut at other places each time."""


def faults_of(
    recording: Recording, preset: Preset, target: Target, chance: random.Random
) -> list[str]:
    """What of a recording did not arrive, or arrived as something else."""
    error = recording.error()
    if recording.status != 200:
        failure = status_failure(recording.status, recording.body)
        return faults_of_failure(failure, error)
    if recording.is_stream:
        seen = read_stream(target, chunks=cuts(recording.body, chance))
        return faults_of_stream(seen, recording, preset)
    reply, shown, _, _ = read_whole(recording.body, target, Limits())
    expected = Mapping(preset).body(recording.raw["body"])
    return differences(expected, read_json(shown), "body") + faults_of_reply(reply, expected)


def faults_of_failure(failure: Failure | None, error: tuple[int | None, Any] | None) -> list[str]:
    """An error of the provider is told with all that it said."""
    if not isinstance(failure, UpstreamRejected) or error is None:
        return [f"not reported as the provider's error: {failure}"]
    theirs = dict(error[1]["error"])
    theirs["upstream_code"] = theirs.pop("code")
    told = failure.envelope()["error"]
    return [] if all(str(told.get(k)) == str(v) for k, v in theirs.items()) else ["error members"]


def faults_of_stream(seen: Seen, recording: Recording, preset: Preset) -> list[str]:
    """A stream shows every value up to its error or its end, and ends as it has to."""
    error = recording.error()
    events = data_events(recording.body)
    ending = len(events) if error is None or error[0] is None else error[0]
    mapping = Mapping(preset)
    expected = [frame for e in events[:ending] if e != DONE for frame in mapping.frame(e)]
    shown = data_events(seen.shown)
    faults = differences(ledger(expected), ledger(shown), "stream")
    if not seen.stream.ledger.is_balanced:
        faults.append("the ledger does not balance")
    if error is not None:
        return faults + faults_of_failure(seen.failure, error)
    if not recording.is_finished():
        is_told = isinstance(seen.failure, UpstreamStreamIncomplete)
        return faults if is_told else [*faults, "a stream without a finish is not reported"]
    if seen.failure is not None:
        return [*faults, f"fails with {seen.failure!r}"]
    return faults + faults_of_reply(seen.reply, fold(expected))


def faults_of_reply(reply: Reply, body: dict[str, Any]) -> list[str]:
    """What the record has of an answer, against the body that a client sees or puts together."""
    faults: list[str] = []
    for choice, seen in zip(reply.choices, body["choices"], strict=True):
        message = seen["message"]
        content = choice.content
        if choice.content_items is None and (message.get("content") or "") != (content or ""):
            faults.append("content")
        reasoning = "" if isinstance(choice.reasoning, Missing) else choice.reasoning or ""
        if reasoning != (message.get(ALIAS) or ""):
            faults.append("reasoning")
        if (choice.finish_reason or None) != (seen.get("finish_reason") or None):
            faults.append("finish")
        calls = [
            (call["function"]["name"], call["function"]["arguments"], call.get("id"))
            for call in message.get("tool_calls") or []
        ]
        if [(call.name, call.arguments, call.id) for call in choice.tool_calls] != calls:
            faults.append("tool calls")
    usage = body.get("usage")
    told = None if isinstance(reply.usage, Missing) else reply.usage
    if usage is not None and write_json(read_json(write_json(usage))) != _written(told):
        faults.append("usage")
    return faults


def _written(usage: Any) -> str:
    return write_json(read_json(write(usage)))


@pytest.mark.parametrize("name", RECORDED)
def test_every_value_of_every_recording(recordings_folder: Path, name: str) -> None:
    """Each value of each recorded answer arrives, each error is typed, each cut stream reported."""
    preset = load_preset(name)
    target = a_target(preset)
    faults = [
        f"{recording.id} {fault}"
        for recording in read_recordings(recordings_folder, name)
        for time in range(TIMES)
        for fault in faults_of(
            recording, preset, target, random.Random(f"{SEED} {time} {recording.id}")
        )
    ]

    assert not faults, "\n".join(faults)


def test_streams_that_end_with_their_marker_alone(recordings_folder: Path) -> None:
    """Recorded streams without a finish are good answers where the operator says `terminal`."""
    target = replace(a_target(load_preset("generic-strict")), terminal="done")
    recordings = [
        recording
        for recording in read_recordings(recordings_folder, "generic-strict")
        if recording.is_stream and not recording.is_finished()
    ]

    for recording in recordings:
        seen = read_stream(target, chunks=[recording.body])
        assert seen.failure is None
        assert seen.flags == ["missing_finish"]
    assert recordings
