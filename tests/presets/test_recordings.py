"""Every recorded exchange is explained by its preset: nothing in it is unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from everyturn.presets.load import load_preset, preset_names
from everyturn.wire.dialects.openai_chat import encode
from everyturn.wire.preset import Preset, target_of
from everyturn.wire.request import CHAT_PARAMETERS, parse_chat_request

FINISHES = {"stop", "length", "tool_calls", "content_filter", "function_call"}
"""The finish values of Chat Completions. Null and empty ones say nothing."""

OPERATORS_KEY = "enable_thinking"
"""Recorded at servers whose preset lacks it; an operator lets it through with `allow`."""

RECORDING = re.compile(r"\S+@\w+ .*(/cassettes/|/vcr_cassettes/|/__fixtures__/)")
"""A cited source that is a recording."""

SPEAKS_OF_REASONING = re.compile("reasoning|think|thought")


@cache
def recordings(folder: Path, name: str) -> list[dict[str, Any]]:
    """The exchanges of one preset; none where nobody recorded any."""
    path = folder / f"{name}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def bodies(recording: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The JSON objects of an answer: one, or one a data event."""
    if not recording["stream"]:
        if isinstance(recording.get("body"), dict):
            yield recording["body"]
        return
    for event in recording["sse"].replace("\r\n", "\n").split("\n\n"):
        data = [line[5:].lstrip() for line in event.split("\n") if line.startswith("data:")]
        if data and data != ["[DONE]"]:
            yield json.loads("\n".join(data))


def parts(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of an answer that may hold reasoning, each with its kind."""
    yield "body", body
    for choice in body.get("choices") or []:
        yield "choice", choice
        for kind in ("message", "delta"):
            if choice.get(kind):
                yield kind, choice[kind]


def unexplained(preset: Preset, body: dict[str, Any]) -> Iterator[str]:
    """Names in one answer that speak of reasoning and that the preset does not evidence."""
    for kind, part in parts(body):
        for key, value in part.items():
            if value in (None, "", [], {}) or not SPEAKS_OF_REASONING.search(key.lower()):
                continue
            read = f"body.{key}" if kind == "body" else key
            if read not in preset.read and key not in preset.carry:
                yield f"{kind}.{key}"
        content = part.get("content")
        if kind in ("message", "delta") and isinstance(content, list):
            thinks = any(item.get("type") == "thinking" for item in content)
            if thinks and "content_list" not in preset.read:
                yield f"{kind}.content"


def usages(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Usage objects of one answer with the place where each stands."""
    groq = body.get("x_groq") or {}
    found = [("usage", body.get("usage")), ("x_groq.usage", groq.get("usage"))]
    found += [("choice.usage", choice.get("usage")) for choice in body.get("choices") or []]
    yield from ((place, usage) for place, usage in found if usage)


def test_every_preset_of_a_recording_exists(recordings_folder: Path) -> None:
    """The recordings are of packaged presets only."""
    names = {path.stem for path in recordings_folder.glob("*.jsonl")}

    assert names
    assert names <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_every_request_key_is_known(recordings_folder: Path, name: str) -> None:
    """Each top-level key that was sent belongs to Chat Completions or to the preset."""
    known = CHAT_PARAMETERS | set(load_preset(name).request_keys) | {OPERATORS_KEY}

    unknown = {
        key
        for recording in recordings(recordings_folder, name)
        for key in recording["request"] or {}
        if key not in known
    }
    assert not unknown


@pytest.mark.parametrize("name", preset_names())
def test_every_carrier_is_evidenced(recordings_folder: Path, name: str) -> None:
    """Whatever speaks of reasoning in an answer is read or carried."""
    preset = load_preset(name)

    drift = {
        found
        for recording in recordings(recordings_folder, name)
        for body in bodies(recording)
        for found in unexplained(preset, body)
    }
    assert not drift


@pytest.mark.parametrize("name", preset_names())
def test_every_finish_is_known(recordings_folder: Path, name: str) -> None:
    """Each finish value is one of Chat Completions or one that the preset calls a failure."""
    known = {*FINISHES, *load_preset(name).finish_failures, None, ""}

    finishes = {
        choice.get("finish_reason")
        for recording in recordings(recordings_folder, name)
        for body in bodies(recording)
        for choice in body.get("choices") or []
    }
    assert finishes <= known


@pytest.mark.parametrize("name", preset_names())
def test_usage_stands_where_the_preset_says(recordings_folder: Path, name: str) -> None:
    """Usage stands in the places of the preset and nowhere else."""
    places = {
        place
        for recording in recordings(recordings_folder, name)
        for body in bodies(recording)
        for place, _ in usages(body)
    }

    assert places <= set(load_preset(name).usage_places)


@pytest.mark.parametrize("name", preset_names())
def test_reasoning_is_counted_as_the_preset_says(recordings_folder: Path, name: str) -> None:
    """The total is prompt and completion where reasoning is inside, and more where it is not."""
    inside = load_preset(name).reasoning_in_completion

    for recording in recordings(recordings_folder, name):
        for body in bodies(recording):
            for _, usage in usages(body):
                apart = usage["total_tokens"] - usage["prompt_tokens"] - usage["completion_tokens"]
                if inside is not None:
                    assert (apart == 0) is inside, recording["id"]


@pytest.mark.parametrize("name", preset_names())
def test_stream_options_were_not_sent_where_refused(recordings_folder: Path, name: str) -> None:
    """Where a recorded client asked for usage in the stream, the preset does not refuse it."""
    asked = any(
        (recording["request"] or {}).get("stream_options")
        for recording in recordings(recordings_folder, name)
    )

    assert not (asked and load_preset(name).stream_options == "refused")


@pytest.mark.parametrize("name", preset_names())
def test_cited_recordings_exist(recordings_folder: Path, name: str) -> None:
    """A fact known from a recording names one that is there."""
    sources = [
        recording["source"]
        for path in recordings_folder.glob("*.jsonl")
        for recording in recordings(recordings_folder, path.stem)
    ]

    missing = []
    for key, evidence in load_preset(name).evidence.items():
        cited = [part for part in evidence.source.split("; ") if RECORDING.match(part)]
        patterns = [
            re.compile(".*".join(re.escape(piece) for piece in part.split("*"))) for part in cited
        ]
        if "R" in evidence.kind.split("+") and not patterns:
            missing.append(key)
        if not all(any(map(pattern.fullmatch, sources)) for pattern in patterns):
            missing.append(key)
    assert not missing


@pytest.mark.parametrize("name", preset_names())
def test_every_request_is_sent_on_as_documented(recordings_folder: Path, name: str) -> None:
    """A recorded request reaches the provider as it was, but for what the preset documents."""
    preset = load_preset(name)
    documented = {*preset.adds, "stream_options"}
    if preset.controls.clamps:
        documented.add("reasoning_effort")

    changed = set()
    for recording in recordings(recordings_folder, name):
        body = recording["request"]
        if body is None:
            continue
        target = replace(
            target_of(preset, name=body["model"], base_url="http://127.0.0.1:9/v1"),
            allow=(OPERATORS_KEY,),
        )
        sent = encode(parse_chat_request(json.dumps(body).encode()), target, api_key=None).sent
        changed |= {key for key in body.keys() | sent.keys() if body.get(key) != sent.get(key)}
    assert changed - documented <= {"messages"}
