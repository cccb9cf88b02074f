"""Where providers put their token counts, and when."""

from __future__ import annotations

from typing import Any, Final

from everyturn.mock.http import Refusal
from everyturn.mock.scenario import Ask, Scenario
from everyturn.mock.script import Script
from everyturn.mock.speech import (
    ANSWER,
    DONE,
    USAGE,
    Shown,
    Speech,
    chunk_envelope,
    frame,
    pieces,
    streamed,
    whole,
)

DETAILS: Final = {
    **USAGE,
    "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0, "cache_write_tokens": 3},
    "completion_tokens_details": {
        "reasoning_tokens": 11,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
PIECES: Final = pieces(ANSWER)


def _counted(index: int) -> dict[str, Any]:
    """Usage after the delta of that index, all of it so far."""
    so_far = 2 * (index + 1)
    return {"prompt_tokens": 19, "completion_tokens": so_far, "total_tokens": 19 + so_far}


LAST_COUNT: Final = _counted(len(PIECES) - 1)

CUMULATIVE = Speech(
    said=tuple(
        Shown({"content": piece}, top={"usage": _counted(index)})
        for index, piece in enumerate(PIECES)
    ),
    message={"content": ANSWER},
    usage=LAST_COUNT,
)
INCREMENTAL = Speech(
    said=tuple(
        Shown(
            {"content": piece},
            top={
                "usage": {
                    "prompt_tokens": 0 if index else 19,
                    "completion_tokens": 2,
                    "total_tokens": 2 if index else 21,
                }
            },
        )
        for index, piece in enumerate(PIECES)
    ),
    message={"content": ANSWER},
    usage=LAST_COUNT,
)


def _without_frame(speech: Speech, ask: Ask) -> Script:
    """The whole body has the usage; the stream has only what its own chunks say."""
    return Script.pair(whole=speech(ask), stream=speech.but(usage=None).stream(ask.name))


def _with_choice(ask: Ask) -> Script:
    """The last frame has usage and, again, a choice with an empty delta."""
    speech = Speech()
    told = speech.chunks(ask.name)
    told[-1]["choices"] = [{"index": 0, "delta": {}, "finish_reason": None}]
    return Script.pair(whole=speech(ask), stream=streamed(ask.name, [*map(frame, told), DONE]))


def _in_choice(ask: Ask) -> Script:
    usage = {**USAGE, "cached_tokens": 16}
    speech = Speech(choice={"usage": usage}, usage=None)
    body = Speech(usage=usage).body(ask.name)
    return Script.pair(whole=whole(ask.name, body), stream=speech.stream(ask.name))


X_GROQ = Speech(
    top={"system_fingerprint": "fp_mock"},
    usage_in="finish",
    usage={**USAGE, "queue_time": 0.0041, "total_time": 0.0302},
)


def _x_groq(ask: Ask) -> Script:
    """The usage stands twice: at the top and in `x_groq`."""
    told = X_GROQ.chunks(ask.name)
    told[0]["x_groq"] = {"id": "req_mock", "seed": 7}
    told[-1]["x_groq"] = {"id": "req_mock", "usage": told[-1]["usage"]}
    body = {**X_GROQ.body(ask.name), "x_groq": {"id": "req_mock", "seed": 7}}
    return Script.pair(
        whole=whole(ask.name, body), stream=streamed(ask.name, [*map(frame, told), DONE])
    )


def _x_groq_only(ask: Ask) -> Script:
    told = Speech(usage=None).chunks(ask.name)
    told[-1]["x_groq"] = {"id": "req_mock", "usage": USAGE}
    return Script.pair(whole=Speech()(ask), stream=streamed(ask.name, [*map(frame, told), DONE]))


def _null(ask: Ask) -> Script:
    """Null everywhere, then the object once: a null must not erase it, nor count as one."""
    speech = Speech(top={"usage": None}, usage=None)
    told = speech.chunks(ask.name)
    told.insert(2, {**chunk_envelope(ask.name), "choices": [], "usage": USAGE})
    return Script.pair(whole=Speech()(ask), stream=streamed(ask.name, [*map(frame, told), DONE]))


def _asked(ask: Ask) -> Script:
    """The usage frame comes only where `stream_options.include_usage` is true, as at OpenAI."""
    options = ask.body.get("stream_options")
    is_wanted = isinstance(options, dict) and options.get("include_usage") is True
    return Speech()(ask) if is_wanted else _without_frame(Speech(), ask)


def _refused(ask: Ask) -> Script:
    """A server that does not know `stream_options` and says so."""
    if "stream_options" not in ask.body:
        return _without_frame(Speech(), ask)
    return Refusal(
        status=400,
        message="Unrecognized request argument supplied: stream_options",
        code="unknown_parameter",
        param="stream_options",
    ).script()


SCENARIOS: Final = (
    Scenario(
        name="usage-details",
        title="Cached and reasoning tokens, in a last frame without choices.",
        preset="openai-chat",
        play=Speech(usage=DETAILS),
    ),
    Scenario(
        name="usage-finish",
        title="Usage in the chunk with the finish.",
        preset="mistral",
        play=Speech(usage_in="finish"),
    ),
    Scenario(
        name="usage-cumulative",
        title="Usage in every chunk, all of it so far each time.",
        preset="perplexity",
        play=lambda ask: _without_frame(CUMULATIVE, ask),
    ),
    Scenario(
        name="usage-incremental",
        title="Usage in every chunk, only what that chunk added; then the sum.",
        play=INCREMENTAL,
    ),
    Scenario(
        name="usage-with-choice",
        title="The usage frame repeats a choice with an empty delta.",
        play=_with_choice,
    ),
    Scenario(
        name="usage-in-choice",
        title="Usage inside the choice of the last chunk.",
        preset="moonshot",
        play=_in_choice,
    ),
    Scenario(
        name="usage-x-groq",
        title="Usage twice: at the top and in `x_groq`.",
        preset="groq",
        play=_x_groq,
    ),
    Scenario(
        name="usage-x-groq-only",
        title="Usage in `x_groq` alone.",
        preset="groq",
        play=_x_groq_only,
    ),
    Scenario(
        name="usage-null",
        title="Usage null in every chunk but one in the middle.",
        play=_null,
    ),
    Scenario(
        name="usage-none",
        title="No usage at all.",
        play=Speech(usage=None),
    ),
    Scenario(
        name="usage-asked",
        title="Usage in a stream only where `stream_options` asks for it.",
        preset="openai-chat",
        play=_asked,
        varies=True,
    ),
    Scenario(
        name="usage-refused",
        title="`stream_options` is refused with a 400.",
        preset="mistral",
        play=_refused,
        varies=True,
    ),
)
