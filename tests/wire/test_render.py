from __future__ import annotations

from typing import Any

import pytest

from everyturn.wire.preset import Carrier
from everyturn.wire.reader import Num, read_provider
from everyturn.wire.render import body_of_reply, frames_of_body
from everyturn.wire.reply import Choice, Reply, ToolCall
from tests.support.chat_replies import a_chunk, a_message, a_target, read_body, read_stream

RC: Carrier = "reasoning_content"
CALLS = [
    {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}, "extra": 1}
    for name in "fg"
]
FULL_MESSAGE = {
    "role": "assistant",
    "content": "c",
    RC: "r",
    "reasoning_details": [{"type": "reasoning.text", "text": "r", "index": 0}],
    "refusal": None,
    "annotations": [{"url": "u"}],
    "audio": {"id": "a", "data": "AA"},
    "tool_calls": CALLS,
    "x": [1],
}
FULL: dict[str, Any] = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": FULL_MESSAGE,
            "logprobs": {"content": [{"token": "c"}], "refusal": None},
            "native_finish_reason": "STOP",
            "finish_reason": "tool_calls",
        },
        {"index": 1, "message": {"role": "assistant", "content": "d"}, "finish_reason": "stop"},
    ],
    "usage": {"total_tokens": 3},
    "system_fingerprint": "fp",
    "provider": "P",
}
TARGET = a_target(read=("reasoning_details", RC))


def chunks_of(body: dict[str, Any], *, include_usage: bool = True) -> list[dict[str, Any]]:
    """The chunks made of a whole answer."""
    frames = frames_of_body(body, include_usage=include_usage)
    assert all(f.startswith(b"data: ") and f.endswith(b"\n\n") for f in frames)
    return [read_provider(frame[6:]).value for frame in frames]


# ------------------------------------------------------------------ frames of a body


def test_the_order_of_made_frames() -> None:
    """First the role, then reasoning, text and the rest; the finish is the last of a choice."""
    deltas = [
        next(iter(choice["delta"]), "finish" if choice["finish_reason"] else "beside")
        for chunk in chunks_of(FULL)
        for choice in chunk["choices"]
        if choice["index"] == 0
    ]

    assert deltas == [
        "role",
        RC,
        "reasoning_details",
        "content",
        "refusal",
        "annotations",
        "audio",
        "tool_calls",
        "tool_calls",
        "x",
        "beside",
        "finish",
    ]


def test_members_of_the_body_go_out_once() -> None:
    """Each made frame has the envelope; every other key of the body is in the first one only."""
    first, *others = chunks_of(FULL)

    assert first["provider"] == "P"
    assert first["system_fingerprint"] == "fp"
    assert not any("provider" in chunk for chunk in others)
    assert {(c["id"], c["object"], c["created"], c["model"]) for c in [first, *others]} == {
        ("c-1", "chat.completion.chunk", 1, "m")
    }


def test_made_usage() -> None:
    """B17: usage made of a whole answer has no choices, is the last frame and appears once."""
    asked, unasked = chunks_of(FULL), chunks_of(FULL, include_usage=False)

    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"] == {"total_tokens": 3}
    assert asked[:-1] == unasked
    assert not any("usage" in chunk for chunk in unasked)
    assert chunks_of({"choices": []}) == []


def test_made_tool_calls_have_an_index() -> None:
    """Each tool call of a whole answer is one fragment with the index clients merge by."""
    calls = [
        call
        for c in chunks_of(FULL)
        for ch in c["choices"]
        for call in ch["delta"].get("tool_calls", [])
    ]

    assert calls == [{"index": at, **call} for at, call in enumerate(CALLS)]


@pytest.mark.parametrize("value", [None, []])
def test_made_frames_of_empty_tool_calls(value: Any) -> None:
    """Tool calls that are null or empty stay what they are."""
    body = a_message({"content": "c", "tool_calls": value})

    assert {"tool_calls": value} in [c["choices"][0]["delta"] for c in chunks_of(body)]


def test_made_frames_say_what_the_body_says() -> None:
    """A whole answer and the frames made of it fold to equal replies."""
    whole = read_body(TARGET, FULL, choices=2)
    made = b"".join(frames_of_body(FULL, include_usage=True))

    seen = read_stream(TARGET, made, "[DONE]", choices=2)

    assert seen.failure is None
    assert seen.reply.choices == whole.reply.choices
    assert seen.reply.usage == whole.reply.usage
    assert seen.reply.bag == whole.reply.bag
    assert seen.shown == made


def test_made_frames_of_a_bare_body() -> None:
    """A body without an envelope, a role, a finish or an index is shown all the same."""
    chunks = chunks_of({"choices": [{"message": {}}]})

    assert chunks == [
        {
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}],
        },
        {
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {}, "finish_reason": None}],
        },
    ]


# ------------------------------------------------------------------ a body of frames


def test_a_folded_body_says_what_the_stream_said() -> None:
    """A stream that is folded into a body loses nothing, and is read as it was."""
    stream = read_stream(TARGET, *chunks_of(FULL), "[DONE]", choices=2)

    body = body_of_reply(stream.reply)

    assert body == FULL
    whole = read_body(TARGET, body, choices=2).reply
    assert whole.envelope.pop("object") == "chat.completion"
    assert whole.choices == stream.reply.choices
    assert (whole.usage, whole.bag) == (stream.reply.usage, stream.reply.bag)


def test_a_folded_body_has_what_clients_need() -> None:
    """A folded message has a role and content; absent reasoning stays absent."""
    reply = Reply(choices=[Choice(0, tool_calls=[ToolCall(0, id="a", name="f")])])

    assert body_of_reply(reply) == {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "a",
                            "type": "function",
                            "function": {"name": "f", "arguments": ""},
                        }
                    ],
                },
                "finish_reason": None,
            }
        ],
    }


def test_members_of_a_folded_call() -> None:
    """Other members of a call and of its function go back where they stood."""
    rest = {"extra_content": {"s": 1}, "function.strict": True}
    custom = ToolCall(1, id="b", type="custom", rest={"custom": {"name": "g", "input": "x"}})
    call = ToolCall(0, id="a", type="function", name="f", arguments="{}", rest=rest)

    body = body_of_reply(Reply(choices=[Choice(0, tool_calls=[call, custom])]))

    assert body["choices"][0]["message"]["tool_calls"] == [
        {
            "id": "a",
            "type": "function",
            "extra_content": {"s": 1},
            "function": {"name": "f", "arguments": "{}", "strict": True},
        },
        {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
    ]


def test_a_content_list_stays_one() -> None:
    """Content that was a list is a list in the folded body."""
    items = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "u"}]

    stream = read_stream(a_target(), a_chunk({"content": items}, "stop"))

    assert body_of_reply(stream.reply)["choices"][0]["message"]["content"] == items


def test_what_a_chunk_says_under_a_name_of_the_body() -> None:
    """A chunk's `message`, or null choices, do not stand in for what was added up."""
    choice = {"index": 0, "delta": {"content": "a"}, "message": {"content": "x"}}
    stream = read_stream(a_target(), {"choices": [choice]}, {"choices": None}, a_chunk({}, "stop"))

    body = body_of_reply(stream.reply)

    assert body["choices"][0]["message"] == {"role": "assistant", "content": "a"}


def test_null_usage_stays_null() -> None:
    """Usage that was only ever null is null, and absent usage absent."""
    null = read_stream(a_target(), a_chunk({}, "stop", usage=None))
    none = read_stream(a_target(), a_chunk({}, "stop"))

    assert body_of_reply(null.reply)["usage"] is None
    assert "usage" not in body_of_reply(none.reply)


def test_numbers_of_a_folded_body() -> None:
    """B43: a folded body keeps the text of its numbers."""
    raw = b'data: {"choices":[{"delta":{"x":0.10},"finish_reason":"stop"}],"n":1E400}\n\n'

    body = body_of_reply(read_stream(a_target(), raw).reply)

    assert body["n"] == Num("1E400")
    assert body["choices"][0]["message"]["x"] == Num("0.10")
