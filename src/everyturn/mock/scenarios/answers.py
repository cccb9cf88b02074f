"""Ordinary answers, and the parts of an answer that get lost on the way."""

from __future__ import annotations

from typing import Any, Final

from everyturn.mock.scenario import Ask, Scenario
from everyturn.mock.script import Script
from everyturn.mock.speech import (
    ANSWER,
    DONE,
    USAGE,
    Said,
    Shown,
    Speech,
    chunk,
    envelope,
    frame,
    pieces,
    streamed,
    whole,
)

REFUSAL: Final = "I will not help with breaking into a house that is not yours."
CITATION: Final = {
    "type": "url_citation",
    "url_citation": {
        "url": "https://pears.example/harvest",
        "title": "The harvest of the year",
        "start_index": 0,
        "end_index": 4,
    },
}
SECOND_CITATION: Final = {
    "type": "url_citation",
    "url_citation": {
        "url": "https://pears.example/people",
        "title": "Seven people",
        "start_index": 12,
        "end_index": 24,
    },
}
PICTURE: Final = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64,RkFLRS1QSUNUVVJF"},
    "index": 0,
}


def _token(text: str, logprob: float, *others: tuple[str, float]) -> dict[str, Any]:
    listed = [(text, logprob), *others]
    return {
        "token": text,
        "logprob": logprob,
        "bytes": list(text.encode()),
        "top_logprobs": [
            {"token": token, "logprob": value, "bytes": list(token.encode())}
            for token, value in listed
        ],
    }


TOKENS: Final = (
    _token("Twelve", -0.03125, ("12", -3.5), ("Dozen", -9.25)),
    _token(" pears", -0.25, (" each", -1.625)),
    _token(" ✓", -2.75),
)

LOGPROBS = Speech(
    said=tuple(
        Shown({"content": token["token"]}, choice={"logprobs": {"content": [token]}})
        for token in TOKENS
    ),
    message={"content": "Twelve pears ✓"},
)


def _logprobs(ask: Ask) -> Script:
    body = LOGPROBS.body(ask.name)
    body["choices"][0]["logprobs"] = {"content": list(TOKENS), "refusal": None}
    return Script.pair(whole=whole(ask.name, body), stream=LOGPROBS.stream(ask.name))


AUDIO = Speech(
    said=(
        Shown({"audio": {"id": "audio_mock", "transcript": "Twelve "}}),
        Shown({"audio": {"data": "RkFLRS1T"}}),
        Shown({"audio": {"transcript": "pears.", "data": "T1VORA=="}}),
        Shown({"audio": {"expires_at": 1_750_003_600}}),
    ),
    message={
        "content": None,
        "audio": {
            "id": "audio_mock",
            "transcript": "Twelve pears.",
            "data": "RkFLRS1TT1VORA==",
            "expires_at": 1_750_003_600,
        },
    },
)

TWO_TEXTS: Final = ("Twelve pears for each of them.", "A dozen, if nobody takes more.")
TWO_ENDS: Final = ("stop", "length")


def _two_choices(ask: Ask) -> Script:
    """Both choices take turns, the second first; they end one after the other."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": TWO_ENDS[index],
        }
        for index, text in enumerate(TWO_TEXTS)
    ]
    told = [chunk(ask.name, {"role": "assistant", "content": ""}, index=index) for index in (0, 1)]
    for start in range(0, max(map(len, TWO_TEXTS)), 8):
        told += [
            chunk(ask.name, {"content": TWO_TEXTS[index][start : start + 8]}, index=index)
            for index in (1, 0)
            if start < len(TWO_TEXTS[index])
        ]
    told += [chunk(ask.name, {}, finish=TWO_ENDS[index], index=index) for index in (0, 1)]
    told.append({**chunk(ask.name, {}), "choices": [], "usage": USAGE})
    return Script.pair(
        whole=whole(ask.name, envelope(ask.name, choices, usage=USAGE)),
        stream=streamed(ask.name, [*map(frame, told), DONE]),
    )


FILTERS: Final = {
    "hate": {"filtered": False, "severity": "safe"},
    "violence": {"filtered": False, "severity": "low"},
}


def _azure(ask: Ask) -> Script:
    """Filter results arrive in chunks of their own: one without choices, one without a delta."""
    prompt = [{"prompt_index": 0, "content_filter_results": FILTERS}]
    speech = Speech(choice={"content_filter_results": FILTERS}, top={"model": "gpt-mock"})
    body = {**speech.body(ask.name), "prompt_filter_results": prompt}
    opening = {
        "id": "",
        "object": "",
        "created": 0,
        "model": "",
        "choices": [],
        "prompt_filter_results": prompt,
    }
    late = {
        "id": "",
        "object": "",
        "created": 0,
        "model": "",
        "choices": [
            {
                "index": 0,
                "finish_reason": None,
                "content_filter_results": FILTERS,
                "content_filter_offsets": {"check_offset": 19, "start_offset": 0, "end_offset": 39},
            }
        ],
    }
    told = [opening, *speech.chunks(ask.name)]
    told.insert(-2, late)
    return Script.pair(
        whole=whole(ask.name, body), stream=streamed(ask.name, [*map(frame, told), DONE])
    )


EXTRA_TOP: Final = {
    "provider": "Orchard Hosting",
    "system_fingerprint": "fp_0rchard",
    "service_tier": "flex",
    "x_top": {"nested": [1, {"deeper": "kept"}], "none": None},
}

SCENARIOS: Final = (
    Scenario(name="plain", title="An ordinary answer.", preset="openai-chat", play=Speech()),
    Scenario(
        name="length",
        title="An answer that the token limit ended: finish `length`.",
        preset="openai-chat",
        play=Speech(said=(Said("content", "Each of the seven people"),), finish="length"),
    ),
    Scenario(
        name="empty",
        title="An answer with empty content.",
        preset="openai-chat",
        play=Speech(said=(), message={"content": ""}),
    ),
    Scenario(
        name="refusal",
        title="A refusal instead of content.",
        preset="openai-chat",
        play=Speech(said=(Said("refusal", REFUSAL),), opening={"role": "assistant"}),
    ),
    Scenario(
        name="content-filter",
        title="A content filter ends the answer: finish `content_filter`.",
        preset="openai-chat",
        play=Speech(said=(Said("content", "To open the lock, fir"),), finish="content_filter"),
    ),
    Scenario(
        name="logprobs",
        title="Log probabilities with alternatives and token bytes.",
        preset="openai-chat",
        play=_logprobs,
    ),
    Scenario(
        name="annotations",
        title="Citations, the second one in the last delta before the finish.",
        preset="openai-chat",
        play=Speech(
            said=(
                Shown({"annotations": [CITATION]}),
                Said("content", ANSWER),
                Shown({"annotations": [SECOND_CITATION]}),
            ),
            message={"annotations": [CITATION, SECOND_CITATION]},
        ),
    ),
    Scenario(
        name="audio",
        title="Spoken output: data and transcript in pieces, content null.",
        preset="openai-chat",
        play=AUDIO,
    ),
    Scenario(
        name="images",
        title="A picture beside the text.",
        preset="openrouter",
        play=Speech(
            said=(Said("content", ANSWER), Shown({"images": [PICTURE]})),
            message={"images": [PICTURE]},
        ),
    ),
    Scenario(
        name="n2",
        title="Two choices, interleaved; one ends with `stop`, one with `length`.",
        preset="openai-chat",
        play=_two_choices,
    ),
    Scenario(
        name="extras",
        title="Keys nobody asked for: in the body, the choice, the message and the usage.",
        play=Speech(
            said=(Said("content", ANSWER), Shown({"x_message": ["kept", 0.10]})),
            message={"x_message": ["kept", 0.10]},
            top=EXTRA_TOP,
            choice={"x_choice": {"score": 7}, "matched_stop": None},
            usage={**USAGE, "x_usage": {"watt_hours": 0.5}, "cost": 0.00042},
        ),
    ),
    Scenario(
        name="odd-finish",
        title="A finish reason outside of OpenAI's list: `insufficient_system_resource`.",
        preset="deepseek",
        play=Speech(finish="insufficient_system_resource"),
    ),
    Scenario(
        name="new-finish",
        title="A finish reason that nobody has heard of, beside a native one.",
        preset="openrouter",
        play=Speech(finish="orchard_closed", choice={"native_finish_reason": "ORCHARD_CLOSED"}),
    ),
    Scenario(
        name="azure",
        title="Filter results in chunks without choices and without a delta, empty ids.",
        preset="azure-openai",
        play=_azure,
    ),
    Scenario(
        name="mirror-text",
        title="Each choice repeats its text beside the delta.",
        play=Speech(
            said=tuple(
                Shown({"content": piece, "token_id": 5}, choice={"text": piece})
                for piece in pieces(ANSWER)
            ),
            message={"content": ANSWER},
        ),
    ),
    Scenario(
        name="timings",
        title="Timings of a local server in each chunk.",
        preset="llamacpp",
        play=Speech(
            top={"timings": {"cache_n": 4, "prompt_ms": 11.25, "predicted_per_second": 55.5}}
        ),
    ),
    Scenario(
        name="final-delta",
        title="The chunk with the finish carries content too.",
        preset="deepseek",
        play=Speech(
            said=(Said("reasoning_content", "Twelve. "), Said("content", "Each gets ")),
            last={"content": "12 pears.", "reasoning_content": "Checked."},
            message={"content": "Each gets 12 pears.", "reasoning_content": "Twelve. Checked."},
        ),
    ),
)
