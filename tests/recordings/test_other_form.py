"""Every recorded answer in the other form: a stream made from a body, a body made from a stream."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from everyturn.mock.server import MockProvider
from everyturn.presets.load import load_preset
from everyturn.wire.preset import Preset
from tests.recordings.test_recordings import ALLOWED, RECORDED, SEED
from tests.support.comparing import (
    DONE,
    Number,
    data_events,
    differences,
    fold,
    read_json,
    write_json,
)
from tests.support.gateway import running_gateway
from tests.support.mapping import Mapping
from tests.support.recorded import Recording, read_recordings

EMPTY_DELTA = {"role": "assistant", "content": ""}


def faults_of_stream(answer: Any, recording: Recording, preset: Preset) -> list[str]:
    """Where the stream that was made from a whole answer, put together, is not that answer."""
    expected = Mapping(preset).body(recording.raw["body"])
    expected["object"] = "chat.completion.chunk"
    for choice in expected["choices"]:
        # A chunk has its own `delta`; that of Perplexity's whole answers is empty.
        assert choice.pop("delta", EMPTY_DELTA) == EMPTY_DELTA
        for position, call in enumerate(choice["message"].get("tool_calls") or []):
            call.setdefault("index", Number(position))
    *shown, last = data_events(answer.content)
    if last != DONE:
        return [f"ends with {last}"]
    return differences(expected, fold(shown))


def faults_of_body(answer: Any, recording: Recording, preset: Preset) -> list[str]:
    """Where the body that was made from a stream is not what that stream says, put together."""
    mapping = Mapping(preset)
    events = [tree for _, tree in recording.events() if tree != DONE]
    expected = fold([frame for event in events for frame in mapping.frame(event)])
    expected["object"] = "chat.completion"
    for event in events:
        if "usage" in (event.get("x_groq") or {}):
            expected["usage"] = event["x_groq"]["usage"]
    for choice in expected["choices"]:
        message = {"role": "assistant", "content": None, **choice["message"]}
        choice["message"] = message
        for call in message.get("tool_calls") or []:
            # The place in a stream; a body has the order of the list.
            call.pop("index", None)
            call.setdefault("type", "function")
    found = read_json(answer.content)
    for body in (expected, found):
        body.pop("obfuscation", None)  # Padding, another in each frame.
    return differences(expected, found)


def asked_otherwise(recording: Recording) -> dict[str, Any]:
    """The recorded request for the form that its answer has not."""
    stream = "always" if recording.is_stream else "never"
    body = {**recording.request, "model": f"{stream} {recording.model}"}
    body["stream"] = not recording.is_stream
    body.pop("stream_options", None)
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    return body


@pytest.mark.parametrize("name", RECORDED)
async def test_every_value_arrives_in_the_other_form(
    recordings_folder: Path, tmp_path: Path, name: str
) -> None:
    """A provider that only streams, or never does, serves the other kind of request whole."""
    preset = load_preset(name)
    recordings = [
        one
        for one in read_recordings(recordings_folder, name)
        if one.error() is None and (not one.is_stream or one.is_finished())
    ]
    faults: list[str] = []
    async with MockProvider() as mock:
        models = [
            {
                "name": f"{stream} {model}",
                "preset": name,
                "base_url": mock.url,
                "upstream_model": model,
                "allow": [ALLOWED],
                "stream": stream,
            }
            for stream in ("always", "never")
            for model in dict.fromkeys(recording.model for recording in recordings)
        ]
        async with running_gateway(models, tmp_path / "data") as running:
            for recording in recordings:
                mock.add(recording.model, recording.script(random.Random(f"{SEED} {recording.id}")))
                body = asked_otherwise(recording)
                answer = await running.client.post(
                    "/chat/completions",
                    content=write_json(body),
                    headers={"content-type": "application/json"},
                )
                judge = faults_of_body if recording.is_stream else faults_of_stream
                faults += [f"{recording.id} {fault}" for fault in judge(answer, recording, preset)]

    assert not faults, "\n".join(faults)
