"""Every recorded exchange through a real gateway over real sockets, cut at random places."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from everyturn.mock.server import MockProvider
from everyturn.presets.load import load_preset
from everyturn.wire.preset import Preset
from tests.support.comparing import (
    DONE,
    data_events,
    differences,
    is_usage_frame,
    ledger,
    read_json,
    unclear_calls,
    write_json,
)
from tests.support.gateway import Running, running_gateway
from tests.support.mapping import Mapping
from tests.support.recorded import Recording, read_recordings, sent_request

SEED = 20261107
RECORDED = (
    *("azure-openai", "cerebras", "dashscope", "deepseek", "gemini-openai", "generic-strict"),
    *("groq", "mistral", "moonshot", "ollama-v1", "openai-chat", "openrouter", "perplexity"),
    *("xai", "zai"),
)
"""The presets whose providers somebody recorded."""
ALLOWED = "enable_thinking"
"""Recorded at servers whose preset lacks it; an operator lets it through with `allow`."""


def models_of(
    recordings: list[Recording], preset: str, mock: MockProvider, **more: Any
) -> list[dict[str, Any]]:
    """A configured model for each that was asked for, all of them behind the scripted provider."""
    return [
        {"name": name, "preset": preset, "base_url": mock.url, "allow": [ALLOWED], **more}
        for name in dict.fromkeys(recording.model for recording in recordings)
    ]


async def play(running: Running, mock: MockProvider, recording: Recording) -> Any:
    """Send the recorded request; the provider gives the recorded answer. Returns what came back."""
    chance = random.Random(f"{SEED} {recording.id}")
    mock.add(recording.model, recording.script(chance))
    return await running.client.post(
        "/chat/completions",
        content=write_json(recording.request),
        headers={"content-type": "application/json"},
    )


def faults_of_request(seen: bytes, recording: Recording, preset: Preset) -> list[str]:
    """Where the provider received something else than the mapping says."""
    return differences(sent_request(recording.request, preset), read_json(seen), "request")


def faults_of_answer(answer: Any, recording: Recording, preset: Preset) -> list[str]:
    """Where the client saw something else than the mapping says."""
    error = recording.error()
    if error is not None and error[0] is None:
        return faults_of_error(answer, recording, error[1])
    if recording.is_stream:
        return faults_of_stream(answer, recording, preset)
    expected = Mapping(preset).body(recording.raw["body"])
    found = read_json(answer.content)
    status = [] if answer.status_code == recording.status else [f"status {answer.status_code}"]
    return status + differences(expected, found, "body")


def faults_of_error(answer: Any, recording: Recording, tree: dict[str, Any]) -> list[str]:
    """A whole error: the status, the provider's words and its code, under a code of ours."""
    faults = [] if answer.status_code == recording.status else [f"status {answer.status_code}"]
    return faults + faults_of_error_object(read_json(answer.content), tree)


def faults_of_error_object(found: dict[str, Any], tree: dict[str, Any]) -> list[str]:
    """An error is typed by us, and all that the provider said of it stands."""
    theirs = dict(tree["error"])
    expected = {**tree, "error": theirs}
    theirs["upstream_code"] = theirs.pop("code")
    theirs["code"] = "upstream_rejected"
    told = dict(found)
    told["error"] = {key: found["error"].get(key) for key in theirs}
    return differences(expected, told, "error")


def faults_of_stream(answer: Any, recording: Recording, preset: Preset) -> list[str]:
    """A stream: every value of every frame, and the one ending that it must have."""
    events = [tree for _, tree in recording.events()]
    error = recording.error()
    ending = len(events) if error is None or error[0] is None else error[0]
    is_asked = bool((recording.request.get("stream_options") or {}).get("include_usage"))
    is_withheld = preset.stream_options == "evidenced" and not is_asked
    mapping = Mapping(preset)
    expected = [
        frame
        for event in events[:ending]
        if event != DONE and not (is_withheld and is_usage_frame(event))
        for frame in mapping.frame(event)
    ]
    *shown, last = data_events(answer.content)
    faults = [] if answer.status_code == 200 else [f"status {answer.status_code}"]
    if DONE in shown:
        faults.append("an end marker before the end")
        return faults
    faults += unclear_calls(shown)
    faults += differences(ledger(expected), ledger(shown), "stream")
    return faults + faults_of_ending(last, recording, error)


def faults_of_ending(
    last: Any, recording: Recording, error: tuple[int | None, Any] | None
) -> list[str]:
    """The end marker for a whole answer, else one typed error."""
    if error is not None:
        if last == DONE:
            return ["the provider's error is not reported"]
        return faults_of_error_object(last, error[1])
    if recording.is_finished():
        return [] if last == DONE else [f"ends with {last}"]
    code = last["error"]["code"] if last != DONE else DONE
    return [] if code == "upstream_stream_incomplete" else [f"a stream without a finish: {code}"]


def test_no_recording_is_left_out(recordings_folder: Path) -> None:
    """The presets tested below are those that were recorded."""
    assert sorted(path.stem for path in recordings_folder.glob("*.jsonl")) == sorted(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
async def test_every_value_arrives(recordings_folder: Path, tmp_path: Path, name: str) -> None:
    """Each value of each answer reaches the client, each error is typed, and the provider gets
    the request that was recorded."""
    recordings = read_recordings(recordings_folder, name)
    preset = load_preset(name)
    faults: list[str] = []
    async with MockProvider() as mock:
        models = models_of(recordings, name, mock)
        async with running_gateway(models, tmp_path / "data") as running:
            for recording in recordings:
                answer = await play(running, mock, recording)
                found = faults_of_answer(answer, recording, preset)
                found += faults_of_request(mock.requests[-1].body, recording, preset)
                faults += [f"{recording.id} {fault}" for fault in found]

    assert not faults, "\n".join(faults)


async def test_end_marker_alone_where_the_operator_trusts_it(
    recordings_folder: Path, tmp_path: Path
) -> None:
    """A server that never says a finish arrives in order where `terminal = "done"` says so."""
    everything = read_recordings(recordings_folder, "generic-strict")
    recordings = [one for one in everything if one.is_stream and not one.is_finished()]
    faults: list[str] = []
    async with MockProvider() as mock:
        models = models_of(recordings, "generic-strict", mock, terminal="done")
        async with running_gateway(models, tmp_path / "data") as running:
            for recording in recordings:
                answer = await play(running, mock, recording)
                *shown, last = data_events(answer.content)
                mapping = Mapping(load_preset("generic-strict"))
                trees = [tree for _, tree in recording.events() if tree != DONE]
                said = [frame for tree in trees for frame in mapping.frame(tree)]
                found = differences(ledger(said), ledger(shown))
                found += [] if last == DONE else [f"ends with {last}"]
                faults += [f"{recording.id} {fault}" for fault in found]

    assert recordings
    assert not faults, "\n".join(faults)
