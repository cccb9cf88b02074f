"""Each scenario does what its title says."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path

import pytest

from everyturn.mock import ABORT, CLOSE, HANG, Pause, Repeat, Script
from everyturn.mock.scenarios import GROUPS, SCENARIOS
from everyturn.mock.speech import ANSWER, THOUGHT
from tests.mock.reading import (
    folded,
    payloads,
    script_of,
    split_answer,
    stream_text,
    whole_body,
    written,
)

PRESETS = Path(__file__).resolve().parents[2] / "src" / "everyturn" / "presets"

SAME_BOTH_WAYS = [
    *[each.name for each in GROUPS["Answers"] if each.name != "mirror-text"],
    *[
        each.name
        for each in GROUPS["Reasoning"]
        # Content lists, details and top-level text do not fold by these simple rules.
        if not each.name.startswith(("mistral", "openrouter", "gemini", "dashscope"))
    ],
    *["conflict", "conflict-late", "alias-equal", "alias-lagging", "alias-short", "unevidenced"],
    *["carrier-null", "carrier-empty", "carrier-number", "unknown-thought", "content-number"],
    *["tools", "tool-single", "tools-with-text", "tools-reasoning-between", "tools-empty-id"],
    *["tools-reasoning-after", "tools-empty-arguments", "tools-cut-arguments", "function-call"],
    *["usage-details", "usage-finish", "usage-cumulative", "usage-incremental", "usage-null"],
    *["usage-with-choice", "no-done", "done-twice"],
    *[each.name for each in GROUPS["Framing of streams"] if "-to-" not in each.name],
    *["lone-surrogate", "nul", "escapes", "numbers"],
]
RESPELLED = [
    each.name
    for each in GROUPS["Framing of streams"]
    if each.name not in ("json-to-stream", "stream-to-whole", "multibyte")
]


def test_scenarios_are_described() -> None:
    """A scenario has a name of its own, a title of one sentence and a preset that exists."""
    assert sum(len(group) for group in GROUPS.values()) == len(SCENARIOS)
    for name, each in SCENARIOS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), name
        assert not name.startswith("mock-")
        assert re.fullmatch(r"[^\n]{8,90}\.", each.title), name
        assert (PRESETS / f"{each.preset}.toml").is_file(), name


def test_scenarios_are_deterministic() -> None:
    """The same request gets the same script, and each script writes or ends something."""
    for name in SCENARIOS:
        first = script_of(name)
        assert script_of(name) == first, name
        assert first.on_whole, name
        assert first.on_stream, name


@pytest.mark.parametrize("name", SAME_BOTH_WAYS)
def test_both_forms_say_the_same(name: str) -> None:
    """What a stream says, put together, is what the whole answer says."""
    whole, told = whole_body(name), folded(stream_text(name))

    for kept, put_together in zip(whole["choices"], told["choices"], strict=True):
        message, gathered = kept["message"], put_together["message"]
        for call in gathered.get("tool_calls", []):
            call.pop("index", None)
        spoken = {k: v for k, v in message.items() if v not in (None, "")}
        heard = {k: v for k, v in gathered.items() if v not in (None, "") and k != "channel"}
        assert heard == spoken
        assert put_together["finish_reason"] == kept["finish_reason"]
        assert put_together.get("logprobs", {}).get("content") == (kept.get("logprobs") or {}).get(
            "content"
        )
    if "usage" in whole and name != "usage-incremental":
        assert told["usage"] == whole["usage"]


@pytest.mark.parametrize("name", RESPELLED)
def test_framing_changes_nothing_said(name: str) -> None:
    """However a stream is spelled, its events say the same."""
    told = folded(stream_text(name))

    message = told["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (THOUGHT, ANSWER)
    assert told["usage"]["total_tokens"] == 42


def test_multibyte_cuts_characters() -> None:
    """No write of `multibyte` but the last begins and ends on whole characters everywhere."""
    steps = [step for step in script_of("multibyte").on_stream if isinstance(step, bytes)]
    cut = 0
    for step in steps[1:-1]:
        data = step.partition(b"\r\n")[2][:-2]
        try:
            data.decode()
        except UnicodeDecodeError:
            cut += 1

    assert cut > 20
    assert "🍐" in folded(stream_text("multibyte"))["choices"][0]["message"]["content"]


# ------------------------------------------------------------------ endings and sockets


@pytest.mark.parametrize(
    "name, last",
    [
        ("cut-abort", ABORT),
        ("cut-close", CLOSE),
        ("cut-reasoning", CLOSE),
        ("cut-after-finish", ABORT),
        ("reset-before", ABORT),
        ("reset-head", ABORT),
        ("reset-in", ABORT),
        ("reset-after", ABORT),
        ("close-before", CLOSE),
        ("hang", HANG),
        ("hang-head", HANG),
        ("hang-mid", HANG),
    ],
)
def test_ending_is_last(name: str, last: object) -> None:
    """A scenario that breaks off ends so, whole and streamed."""
    script = script_of(name)

    assert script.on_whole[-1] is last
    assert script.on_stream[-1] is last


def test_cuts_stop_where_they_say() -> None:
    """The cut streams hold no end; each stops at its own place."""
    for name in ("cut-clean", "cut-frame", "cut-close", "cut-abort", "cut-reasoning"):
        text = stream_text(name)
        assert b"[DONE]" not in text
        assert b'"finish_reason":"stop"' not in text
    assert stream_text("cut-clean").endswith(b"}\n\n")
    assert not stream_text("cut-frame").endswith(b"}\n\n")
    assert b'"content":"E' not in stream_text("cut-reasoning")
    assert b'"finish_reason":"stop"' in stream_text("cut-after-finish")
    with pytest.raises(ValueError):
        whole_body("cut-clean")


def test_markers_of_the_end() -> None:
    """Finish and `[DONE]` are there or missing as the names say."""
    assert payloads(stream_text("plain"))[-1] == "[DONE]"
    assert "[DONE]" not in payloads(stream_text("no-done"))
    assert folded(stream_text("no-finish"))["choices"][0]["finish_reason"] is None
    assert payloads(stream_text("no-finish"))[-1] == "[DONE]"
    assert payloads(stream_text("done-twice"))[-2:] == ["[DONE]", "[DONE]"]


def test_errors_in_streams() -> None:
    """Errors stand where their scenarios say: first, in the middle, after the finish."""
    assert "error" in json.loads(payloads(stream_text("error-first"))[0])
    assert "error" in json.loads(payloads(stream_text("error-mid"))[-2])
    late = [json.loads(each) for each in payloads(stream_text("error-late"))[:-1]]
    assert late[-2]["choices"][0]["finish_reason"] == "length"
    assert "error" in late[-1]
    assert "usage" in late[-1]
    assert b"event: error\ndata: " in stream_text("error-event")
    assert "failed_generation" in payloads(stream_text("error-event"))[-1]
    assert b"\nerror: {" in stream_text("error-field")


@pytest.mark.parametrize(
    "name, status",
    [
        ("error-400", 400),
        ("error-401", 401),
        ("error-403", 403),
        ("error-404", 404),
        ("error-429", 429),
        ("error-500", 500),
        ("error-502-html", 502),
        ("error-503", 503),
        ("error-529", 529),
        ("error-200-json", 200),
        ("redirect", 307),
        ("key-required", 401),
    ],
)
def test_statuses_are_the_same_for_streams(name: str, status: int) -> None:
    """An error with a status is the same answer to a streamed request."""
    script = script_of(name)

    assert split_answer(written(script, streamed=False))[0] == status
    assert script.on_stream == script.on_whole


def test_retry_after_as_seconds_and_as_a_date() -> None:
    """A 429 says when to come back: in seconds, or by the provider's clock."""
    seconds = split_answer(written(script_of("error-429"), streamed=False))[1]
    date = split_answer(written(script_of("error-429-date", now=0.0), streamed=False))[1]

    assert seconds["retry-after"] == "2"
    assert date["date"] == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert date["retry-after"] == "Thu, 01 Jan 1970 00:00:30 GMT"


# ------------------------------------------------------------------ bytes that matter


def test_texts_that_no_encoder_writes() -> None:
    """Numbers, escapes and broken text stand in both forms as they were meant."""
    for streamed in (False, True):
        said = {
            name: split_answer(written(script_of(name), streamed=streamed))[2]
            for name in (each.name for each in GROUPS["JSON and text"])
        }
        assert b'"beyond":1e400,"price":0.10,' in said["numbers"]
        assert b'"logprob":NaN' in said["nan-logprob"]
        assert b'"logprob":-Infinity' in said["infinite-logprob"]
        assert b'"x_twice":1,"x_twice":2' in said["duplicate-keys"]
        assert b"\\ud83c" in said["lone-surrogate"]
        assert b"\\u0000pears" in said["nul"]
        assert b"\\\\u0000" in said["nul"]
        assert b"[" * 10_000 in said["deep"]
        with pytest.raises(UnicodeDecodeError):
            said["invalid-utf8"].decode()
    assert (
        b"\\ud83c\\udf50" in split_answer(written(script_of("split-surrogate"), streamed=False))[2]
    )
    assert b'"arguments":{"n":12345678901234567890,"price":0.10' in stream_text("tools-object")


def test_families_take_a_number() -> None:
    """A number at the end of a family's name changes its size or its pace."""
    assert len(payloads(stream_text("bench-50"))) == 51
    assert len(payloads(stream_text("bench"))) == 201
    assert Pause(20) in script_of("drip-20").on_stream
    assert Pause(20) in script_of("drip-20").on_whole
    assert script_of("slow-7").on_whole[0] == Pause(7)
    assert b"[" * 130 + b"1" in stream_text("deep-130")
    assert len(whole_body("big-frame-3")["choices"][0]["message"]["content"]) == 3 * 1024


def test_endless_scenarios_never_hold_their_bytes() -> None:
    """What does not end is one repetition, so that memory stays small."""
    for name in ("endless-line", "endless-head"):
        for steps in (script_of(name).on_whole, script_of(name).on_stream):
            assert sum(isinstance(step, Repeat) for step in steps) == 1


def test_usage_frame_comes_when_asked() -> None:
    """`usage-asked` sends a usage frame where the request wants one, `usage-refused` a 400."""

    def said(name: str, options: str) -> bytes:
        body = b'{"model":"x","messages":[{}],"stream":true%b}' % options.encode()
        return written(script_of(name, body=body), streamed=True)

    wish = ',"stream_options":{"include_usage":true}'
    assert b'"usage"' in said("usage-asked", wish)
    assert b'"usage"' not in said("usage-asked", "")
    assert b'"usage"' not in said("usage-asked", ',"stream_options":null')
    assert said("usage-refused", wish).startswith(b"HTTP/1.1 400 ")
    assert said("usage-refused", "").startswith(b"HTTP/1.1 200 ")


def test_usage_stands_where_it_should() -> None:
    """`usage-finish` has its usage in the chunk with the finish and in no frame of its own."""
    chunks = [json.loads(each) for each in payloads(stream_text("usage-finish"))[:-1]]

    assert all(chunk["choices"] for chunk in chunks)
    assert [chunk for chunk in chunks if "usage" in chunk] == chunks[-1:]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_choices_take_turns() -> None:
    """In `n2` the second choice speaks first, and neither waits for the other to end."""
    chunks = [json.loads(each) for each in payloads(stream_text("n2"))[:-1]]

    spoken = [c["index"] for chunk in chunks for c in chunk["choices"] if c["delta"].get("content")]
    assert spoken[:4] == [1, 0, 1, 0]


def test_compressed_stream_is_flushed_after_each_frame() -> None:
    """Each chunk of `gzip` yields its frame at once; the whole answer is one gzip text."""
    _, headers, packed = split_answer(written(script_of("gzip"), streamed=False))
    steps = [step for step in script_of("gzip").on_stream if isinstance(step, bytes)]
    first = steps[1].partition(b"\r\n")[2]

    assert headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed))["choices"]
    assert zlib.decompressobj(wbits=31).decompress(first).endswith(b"}\n\n")


def test_head_comes_in_two_parts() -> None:
    """`head-apart` holds back the last byte of the head."""
    first, pause, second = script_of("head-apart").on_stream[:3]

    assert isinstance(first, bytes)
    assert first.endswith(b"\r\n\r")
    assert pause == Pause(50)
    assert second == b"\n"


def test_echo_withholds_keys() -> None:
    """`echo` names a header that carries a key, without its value."""
    script = script_of("echo", headers=(("Authorization", "Bearer sk-test-FAKE"), ("X-A", "1")))

    said = written(script, streamed=False)
    assert b"Authorization" in said
    assert b"X-A" in said
    assert b"FAKE" not in said


def test_key_is_required_where_the_name_says_so() -> None:
    """`key-required` answers with a key and refuses without one."""
    with_key = script_of("key-required", headers=(("Authorization", "Bearer sk-test-FAKE"),))

    assert split_answer(written(with_key, streamed=False))[0] == 200
    assert split_answer(written(script_of("key-required"), streamed=False))[0] == 401


def test_echo_says_the_body_byte_for_byte() -> None:
    """`echo` puts the request's body into its answer as it came, numbers included."""
    body = b'{ "model":"echo", "messages":[{"content":"\xc3\xbc"}], "temperature": 0.10 }'

    script: Script = script_of("echo", body=body)

    content = json.loads(split_answer(written(script, streamed=False))[2])
    said = content["choices"][0]["message"]["content"]
    assert body.decode() in said
    assert json.loads(said)["body"]["temperature"] == 0.1
    assert (
        folded(split_answer(written(script, streamed=True))[2])["choices"][0]["message"]["content"]
        == said
    )
