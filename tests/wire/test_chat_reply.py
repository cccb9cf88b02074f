"""What a frame or a body says around its choices: envelope, usage, unknown keys, errors, bounds."""

from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import (
    Failure,
    ProtocolDrift,
    TranslationError,
    UpstreamError,
    UpstreamRejected,
    UpstreamTooLarge,
)
from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_reply import CHOICES_MAX, ChatDecoder
from everyturn.wire.limits import Limits
from everyturn.wire.reader import NonFinite, Num
from everyturn.wire.reply import MISSING
from tests.support.chat_replies import (
    a_chunk,
    a_completion,
    a_message,
    a_target,
    read_body,
    read_stream,
)


def refusal(body: Any, **narrowed: Any) -> Failure:
    """What a whole body is refused with."""
    with pytest.raises(Failure) as failure:
        read_body(a_target(**narrowed), body)
    return failure.value


# ------------------------------------------------------------------ events


def test_every_member_is_an_event() -> None:
    """A frame's members become events in their order; what is named and what is not, apart."""
    chunk = {
        "id": "c",
        "x": [1],
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": "a", "refusal": None, "y": 1},
                "logprobs": None,
                "z": 2,
                "finish_reason": None,
            }
        ],
        "usage": None,
    }

    seen = read_stream(a_target(), chunk, is_closed=False)

    assert seen.events == [
        ev.Value("body", 0, "id", "c"),
        ev.Unknown("body", 0, "x", [1]),
        ev.Value("message", 0, "role", "assistant"),
        ev.TextDelta(0, "a"),
        ev.RefusalDelta(0, None),
        ev.Unknown("message", 0, "y", 1),
        ev.Value("choice", 0, "logprobs", None),
        ev.Unknown("choice", 0, "z", 2),
        ev.Finish(0, None),
        ev.Usage("usage", None),
    ]


def test_unknown_keys_are_forwarded() -> None:
    """Unknown keys of body, choice, message, tool call and usage pass verbatim, and are kept."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "k": 1}
    body = {
        **a_completion(tool_calls=[call], x={"a": [1]}),
        "provider": "P",
        "usage": {"n": 1, "odd": {"b": 0.1}},
    }
    body["choices"][0]["native_finish_reason"] = "STOP"

    seen = read_body(a_target(), body)

    assert seen.body == body
    assert seen.reply.bag == {"provider": "P"}
    assert seen.reply.usage == body["usage"]
    assert seen.choice.message_bag == {"x": {"a": [1]}}
    assert seen.choice.choice_bag == {"native_finish_reason": "STOP"}
    assert seen.choice.tool_calls[0].rest == {"k": 1}


def test_number_texts_survive_a_rewrite() -> None:
    """B43: a frame that has to be rewritten keeps the text of its numbers."""
    raw = (
        b'{"choices":[{"delta":{"reasoning":"r"},"finish_reason":"stop"}],'
        b'"n":2512292042121000001,"p":0.10,"e":1E400}'
    )

    seen = read_stream(a_target(read=("reasoning",)), raw.decode())

    assert seen.shown.endswith(b'"n":2512292042121000001,"p":0.10,"e":1E400}\n\n')
    assert seen.reply.bag == {"n": 2512292042121000001, "p": Num("0.10"), "e": Num("1E400")}


def test_a_non_finite_number_goes_out_as_null() -> None:
    """B41: a bare -Infinity is carried, shown as null and flagged."""
    body = (
        b'{"choices":[{"message":{"content":"a"},"logprobs":{"content":[{"logprob":-Infinity}]}}]}'
    )

    seen = read_body(a_target(), body)

    assert seen.body["choices"][0]["logprobs"] == {"content": [{"logprob": None}]}
    assert seen.choice.choice_values["logprobs"]["content"][0]["logprob"] == NonFinite("-Infinity")
    assert seen.reply.flags == ["nonfinite_number", "missing_finish"]


@pytest.mark.parametrize(
    "data",
    ['{"choices":[],"choices":[]}', '{"a":', "x", '"text"', "[]", "1", "[" * 200 + "]" * 200],
)
def test_json_that_is_no_frame(data: str) -> None:
    """B13, B42: JSON that cannot be read, or is no object, is a typed failure, not a skip."""
    seen = read_stream(a_target(), data)

    assert isinstance(seen.failure, TranslationError)


def test_a_key_twice_is_not_told() -> None:
    """B42: the failure of a repeated key does not name it: deep in an answer a key is content."""
    assert "secret" not in str(refusal(b'{"secret":1,"secret":2}').envelope())


def test_bytes_that_are_no_utf8() -> None:
    """B18: bytes that are truly not UTF-8 are a typed failure."""
    seen = read_stream(a_target(), b'data: {"choices":[{"delta":{"content":"\xe4\xbd"}}]}\n\n')

    assert isinstance(seen.failure, TranslationError)
    assert "UTF-8" in seen.failure.message


# ------------------------------------------------------------------ usage


def test_the_usage_chunk() -> None:
    """B15: usage in a chunk without choices is forwarded and recorded."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    chunks = [a_chunk({"content": "a"}, "stop"), {"choices": [], "usage": usage}]

    seen = read_stream(a_target(), *chunks, "[DONE]")

    assert seen.chunks == chunks
    assert seen.reply.usage == usage


def test_usage_that_is_cumulative() -> None:
    """B16: the last usage object wins, and null erases none; each frame passes as it came."""
    chunks = [
        a_chunk({"content": "a"}, usage={"total_tokens": 10}),
        a_chunk({"content": "b"}, usage=None),
        a_chunk({}, "stop", usage={"total_tokens": 100}),
    ]

    seen = read_stream(a_target(), *chunks)

    assert seen.chunks == chunks
    assert seen.reply.usage == {"total_tokens": 100}


def test_usage_that_is_incremental() -> None:
    """Usage is added up only where the preset says so."""
    chunks = [a_chunk({"content": "a"}, usage={"n": 1}), a_chunk({}, "stop", usage={"n": 2})]

    assert read_stream(a_target(usage_incremental=True), *chunks).reply.usage == {"n": 3}
    assert read_stream(a_target(), *chunks).reply.usage == {"n": 2}


@pytest.mark.parametrize(
    ("place", "body"),
    [
        ("choice.usage", {"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"n": 1}}]}),
        ("x_groq.usage", {**a_chunk({}, "stop"), "x_groq": {"id": "g", "usage": {"n": 1}}}),
    ],
)
def test_usage_in_other_places(place: Any, body: dict[str, Any]) -> None:
    """Usage in a choice or under `x_groq` is read only where the preset evidences it."""
    read = read_stream(a_target(usage_places=("usage", place)), body)
    unread = read_stream(a_target(), body)

    assert read.reply.usage == {"n": 1}
    assert unread.reply.usage is MISSING
    assert read.chunks == unread.chunks == [body]


@pytest.mark.parametrize("value", ["n/a", [], 1])
def test_usage_of_the_wrong_type(value: Any) -> None:
    """Usage that is no object is a typed failure where it is read, and carried elsewhere."""
    assert refusal({**a_completion(), "usage": value}).param == "usage"
    body = {**a_completion(), "x_groq": {"usage": value}}
    assert read_body(a_target(), body).body == body


# ------------------------------------------------------------------ choices


def test_interleaved_choices() -> None:
    """B27: each choice has its own state, and a good end needs a finish for each."""
    chunks = [
        a_chunk({"content": "a"}),
        a_chunk({"content": "x"}, index=1),
        a_chunk({"content": "b"}, "stop"),
        a_chunk({}, "stop", index=1),
    ]

    seen = read_stream(a_target(), *chunks, choices=2)

    assert seen.failure is None
    assert [c.content for c in seen.reply.choices] == ["ab", "x"]
    assert (seen.text(), seen.text(index=1)) == ("ab", "x")
    assert read_stream(a_target(), *chunks[:3], choices=2).failure is not None


def test_choices_without_an_index() -> None:
    """Choices without an index go by their place."""
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"} for text in "ab"]}

    seen = read_body(a_target(), body, choices=2)

    assert [(c.index, c.content) for c in seen.reply.choices] == [(0, "a"), (1, "b")]
    assert seen.body == body


def test_whole_choices_that_share_an_index() -> None:
    """B27: two answers under one index do not become one: the second gets an index of its own."""
    body = a_message({"content": "a"}, {"content": "b"})
    body["choices"][1]["index"] = 0

    seen = read_body(a_target(), body, choices=2)

    assert [c.content for c in seen.reply.choices] == ["a", "b"]
    assert [c["index"] for c in seen.body["choices"]] == [0, 1]
    assert seen.reply.flags == ["choice_index_repaired"]


def test_the_number_of_choices_has_a_bound() -> None:
    """More choices than the bound are a typed failure, also where they share an index."""
    one = {"index": 0, "message": {}}

    assert isinstance(refusal({"choices": [one] * (CHOICES_MAX + 1)}), TranslationError)


def test_fewer_choices_than_asked_for() -> None:
    """An answer with fewer choices than asked for is flagged."""
    assert read_body(a_target(), a_completion(), choices=2).reply.flags == ["missing_choices"]


@pytest.mark.parametrize("index", [None, "0", True, -1, CHOICES_MAX])
def test_an_index_that_cannot_be_used(index: Any) -> None:
    """A choice with an index of the wrong type, or outside its bounds, is a typed failure."""
    failure = refusal({"choices": [{"index": index, "message": {}}]})

    assert isinstance(failure, TranslationError)
    assert failure.param == "choices[0].index"


@pytest.mark.parametrize("choices", [{}, "x", 1, [1], [None]])
def test_choices_of_the_wrong_type(choices: Any) -> None:
    """Choices that are no array of objects are a typed failure, whole and streamed."""
    assert isinstance(refusal({"choices": choices}), TranslationError)
    assert isinstance(read_stream(a_target(), {"choices": choices}).failure, TranslationError)


def test_null_choices_in_a_chunk() -> None:
    """Choices that are null say nothing."""
    chunk = {"choices": None, "x": 1}

    seen = read_stream(a_target(), chunk, a_chunk({}, "stop"))

    assert seen.chunks[0] == chunk
    assert seen.failure is None


@pytest.mark.parametrize("finish", [None, ""])
def test_a_whole_answer_without_a_finish(finish: Any) -> None:
    """A whole answer ends well with a null or empty finish; it is carried and flagged."""
    seen = read_body(a_target(), a_message({"content": "a"}, finish=finish))

    assert seen.body["choices"][0]["finish_reason"] == finish
    assert seen.reply.flags == ["missing_finish"]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'"x"', b'{"object":"list","data":[]}', b'{"choices":null}']
)
def test_what_is_no_completion(body: bytes) -> None:
    """A body of another shape is a typed failure."""
    assert isinstance(refusal(body), TranslationError)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ({"error": {"code": 400, "message": "m"}}, UpstreamRejected, 400),
        ({"error": {"message": "m"}}, UpstreamError, 502),
        ({"choices": []}, UpstreamError, 502),
        ({"choices": [], "error": {"code": 503}}, UpstreamError, 503),
        ([{"error": {"code": 404}}], UpstreamRejected, 404),
        ({**a_completion(), "error": "x"}, UpstreamError, 502),
    ],
)
def test_a_good_status_with_an_error(body: Any, kind: type[Failure], status: int) -> None:
    """B24: a body with an error, or without a choice, is a failure of the provider."""
    failure = refusal(body)

    assert type(failure) is kind
    assert failure.status == status


def test_an_error_in_a_chunk() -> None:
    """B23: an error in a chunk ends the stream; its message and code are told."""
    seen = read_stream(
        a_target(),
        a_chunk({"content": "a"}),
        {"choices": [], "error": {"code": 502, "message": "upstream"}},
    )

    assert isinstance(seen.failure, UpstreamError)
    assert seen.failure.extra == {"message": "upstream", "upstream_code": 502}
    assert seen.failure.frame_extra == {"choices": []}
    assert seen.choice.content == "a"
    assert seen.deltas == [{"content": "a"}]


def test_an_error_after_a_finish() -> None:
    """B23: an error after a finish is a failure all the same, and its usage is recorded."""
    error = {"code": 400, "message": "m"}
    usage = {"completion_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 11}}

    seen = read_stream(
        a_target(), a_chunk({}, "length"), {"error": error, "choices": [], "usage": usage}, "[DONE]"
    )

    assert isinstance(seen.failure, UpstreamRejected)
    assert seen.failure.frame_extra == {"choices": [], "usage": usage}
    assert seen.reply.usage == usage


def test_what_stands_beside_an_error_is_mapped() -> None:
    """What else an error's frame says goes to the client as any frame would, names and all."""
    chunk = {**a_chunk({"reasoning": "r"}), "error": "x"}

    shown = read_stream(a_target(read=("reasoning",)), chunk).failure
    hidden = read_stream(a_target(read=("reasoning",), show_reasoning=False), chunk).failure

    assert shown is not None
    assert hidden is not None
    assert shown.frame_extra["choices"][0]["delta"] == {"reasoning_content": "r"}
    assert hidden.frame_extra["choices"][0]["delta"] == {}


def test_an_error_is_told_whatever_stands_beside_it() -> None:
    """Where what stands beside an error cannot be read, the error alone is told."""
    seen = read_stream(a_target(), {**a_chunk({"reasoning": "r"}), "error": {"message": "m"}})
    whole = refusal({"choices": [{"message": {"reasoning": "r"}}], "error": {"message": "m"}})

    assert isinstance(seen.failure, UpstreamError)
    assert seen.failure.envelope()["error"]["message"] == "m"
    assert seen.failure.frame_extra == whole.frame_extra == {}


def test_an_error_at_the_top_level_of_a_chunk() -> None:
    """B24: an error that is the chunk itself, or an array of one, ends the stream."""
    for data in ({"code": 20015, "message": "m"}, [{"error": {"message": "m"}}]):
        seen = read_stream(a_target(), data)

        assert isinstance(seen.failure, UpstreamError)
        assert seen.failure.extra["message"] == "m"


def test_an_empty_error_is_none() -> None:
    """An `error` member that is null or empty passes as any other key."""
    chunk = a_chunk({"content": "a"}, "stop", error=None)

    seen = read_stream(a_target(), chunk)

    assert seen.failure is None
    assert seen.chunks == [chunk]


# ------------------------------------------------------------------ drift


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"thoughts": "x", **a_completion()}, "thoughts"),
        ({"choices": [{"message": {}, "reasoning_trace": "x"}]}, "choices[0].reasoning_trace"),
    ],
)
def test_drift_beside_the_message(body: dict[str, Any], param: str) -> None:
    """A name that speaks of reasoning is drift in the body and in a choice, too."""
    failure = refusal(body)

    assert isinstance(failure, ProtocolDrift)
    assert failure.param == param


def test_usage_may_speak_of_reasoning() -> None:
    """Usage counts reasoning by name, and is no carrier."""
    body = {**a_completion(), "usage": {"reasoning_tokens": 5, "thinking": {"x": 1}}}

    assert read_body(a_target(), body).body == body


# ------------------------------------------------------------------ bounds


@pytest.mark.parametrize(
    "chunks",
    [
        [a_chunk({"x": "12345"})] * 40,
        [a_chunk({"reasoning_details": [{"text": ""}]})] * 40,
        [a_chunk({"annotations": [1, 2, 3]})] * 40,
        [a_chunk({"refusal": "1234567"})] * 40,
        [a_chunk({"content": [{"type": "image", "x": "1"}]})] * 40,
        [a_chunk({"tool_calls": [{"index": 0, "id": "a", "x": "y"}]})] * 40,
        [{"choices": [{"delta": {}, "logprobs": {"content": [1]}}]}] * 40,
        [{"choices": [{"delta": {}, "token_ids": [1, 2]}]}] * 40,
        [{f"key_{at}": "x"} for at in range(40)],
        [{"x": "y" * 300}],
    ],
)
def test_what_is_kept_beside_the_texts_has_a_bound(chunks: list[dict[str, Any]]) -> None:
    """All that an answer makes the gateway hold is bounded, however it grows."""
    target = a_target(read=("reasoning_details",))
    small = Limits(carried_bytes_max=250)

    seen = read_stream(target, *chunks, limits=small)

    assert isinstance(seen.failure, UpstreamTooLarge)
    assert "250 bytes" in seen.failure.message


def test_what_is_said_anew_counts_once() -> None:
    """Members that each chunk says anew count with their last value only."""
    chunks = [
        {"citations": ["u" * 20], "usage": {"n": 1}, "choices": [{"delta": {}, "verdict": "safe"}]}
    ] * 100

    seen = read_stream(
        a_target(), *chunks, a_chunk({}, "stop"), limits=Limits(carried_bytes_max=250)
    )

    assert seen.failure is None


def test_a_body_has_a_bound() -> None:
    """A whole body beyond the bound is a typed failure."""
    with pytest.raises(UpstreamTooLarge):
        read_body(a_target(), b" " * 11, limits=Limits(body_bytes_max=10))


def test_notes_and_flags_are_told_once() -> None:
    """A note or a flag that comes again is not repeated."""
    decoder = ChatDecoder(a_target(), Limits())
    for _ in range(2):
        decoder.note("n")
        decoder.flag("f")

    assert (decoder.notes, decoder.flags) == (["n"], ["f"])
