"""Reasoning that no preset expects like this: copies, contradictions, wrong types, new names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from everyturn.mock.scenario import Ask, Play, Scenario
from everyturn.mock.script import Script
from everyturn.mock.speech import (
    ANSWER,
    DONE,
    THOUGHT,
    Said,
    Shown,
    Speech,
    chunk,
    frame,
    pieces,
    streamed,
    whole,
)

OTHER_THOUGHT: Final = "No: eighty-four pears and one rotten one, that makes eighty-five to share."


def carrying(value: Any, *, key: str = "reasoning_content") -> Speech:
    """A speech whose reasoning carrier holds `value`, whatever its type, in one delta."""
    return Speech(said=(Shown({key: value}), Said("content", ANSWER)), message={key: value})


def _late_conflict() -> Speech:
    """Both carriers agree for two deltas, then each goes its own way."""
    other = THOUGHT[:40] + OTHER_THOUGHT[40:]
    return Speech(
        said=(
            Shown({"reasoning": THOUGHT[:20], "reasoning_content": other[:20]}),
            Shown({"reasoning": THOUGHT[20:40], "reasoning_content": other[20:40]}),
            Shown({"reasoning": THOUGHT[40:], "reasoning_content": other[40:]}),
            Said("content", ANSWER),
        ),
        message={"reasoning": THOUGHT, "reasoning_content": other},
    )


def _lagging() -> Speech:
    """One carrier is a few deltas behind the other and catches up at the end."""
    ahead = pieces(THOUGHT, 10)
    return Speech(
        said=(
            Shown({"reasoning": ahead[0]}),
            Shown({"reasoning": ahead[1]}),
            *(
                Shown({"reasoning": a, "reasoning_content": b})
                for a, b in zip(ahead[2:], ahead, strict=False)
            ),
            Shown({"reasoning_content": ahead[-2]}),
            Shown({"reasoning_content": ahead[-1]}),
            Said("content", ANSWER),
        ),
        message={"reasoning": THOUGHT, "reasoning_content": THOUGHT},
    )


def _short() -> Speech:
    """One carrier holds only the beginning of the other."""
    return Speech(
        said=(
            Shown({"reasoning": THOUGHT[:30], "reasoning_content": THOUGHT[:30]}),
            Shown({"reasoning": THOUGHT[30:]}),
            Said("content", ANSWER),
        ),
        message={"reasoning": THOUGHT, "reasoning_content": THOUGHT[:30]},
    )


def _at(place: str, added: Mapping[str, Any]) -> Play:
    """A plain answer with further keys in its `body` or `choice`, once in a stream."""

    def play(ask: Ask) -> Script:
        speech = Speech()
        body, told = speech.body(ask.name), speech.chunks(ask.name)
        for value in (body, told[1]):
            (value if place == "body" else value["choices"][0]).update(added)
        return Script.pair(
            whole=whole(ask.name, body), stream=streamed(ask.name, [*map(frame, told), DONE])
        )

    return play


def _conflict_in_one_frame(ask: Ask) -> Script:
    speech = Speech(message={"reasoning": THOUGHT, "reasoning_content": OTHER_THOUGHT})
    told = speech.chunks(ask.name)
    delta = {"reasoning": THOUGHT, "reasoning_content": OTHER_THOUGHT}
    told.insert(1, chunk(ask.name, delta))
    return Script.pair(
        whole=whole(ask.name, speech.body(ask.name)),
        stream=streamed(ask.name, [*map(frame, told), DONE]),
    )


SCENARIOS: Final = (
    Scenario(
        name="conflict",
        title="Two carriers hold different text.",
        play=Speech(
            said=(
                Said("reasoning", THOUGHT),
                Said("reasoning_content", OTHER_THOUGHT),
                Said("content", ANSWER),
            )
        ),
    ),
    Scenario(
        name="conflict-at-once",
        title="Two carriers hold different text in one delta.",
        play=_conflict_in_one_frame,
    ),
    Scenario(
        name="conflict-late",
        title="Two carriers agree for two deltas, then they do not.",
        play=_late_conflict(),
    ),
    Scenario(
        name="alias-equal",
        title="Two carriers with the same text in every delta.",
        play=Speech(
            said=(
                *(Shown({"reasoning": t, "reasoning_content": t}) for t in pieces(THOUGHT)),
                Said("content", ANSWER),
            ),
            message={"reasoning": THOUGHT, "reasoning_content": THOUGHT},
        ),
    ),
    Scenario(
        name="alias-lagging",
        title="Two carriers with the same text, one of them two deltas late.",
        play=_lagging(),
    ),
    Scenario(
        name="alias-short",
        title="One carrier stops early; what it holds begins the other.",
        play=_short(),
    ),
    Scenario(
        name="carrier-null",
        title="`reasoning_content` is null.",
        preset="deepseek",
        play=carrying(None),
    ),
    Scenario(
        name="carrier-empty",
        title="`reasoning_content` is an empty string.",
        preset="deepseek",
        play=carrying(""),
    ),
    Scenario(
        name="carrier-number",
        title="`reasoning_content` is a number.",
        preset="deepseek",
        play=carrying(42),
    ),
    Scenario(
        name="carrier-object",
        title="`reasoning_content` is an object.",
        preset="deepseek",
        play=carrying({"text": THOUGHT}),
    ),
    Scenario(
        name="carrier-list",
        title="`reasoning_content` is a list of strings.",
        preset="deepseek",
        play=carrying([THOUGHT]),
    ),
    Scenario(
        name="details-string",
        title="`reasoning_details` is a string.",
        preset="openrouter",
        play=carrying(THOUGHT, key="reasoning_details"),
    ),
    Scenario(
        name="content-number",
        title="`content` is a number.",
        play=Speech(said=(Shown({"content": 42}),), message={"content": 42}),
    ),
    Scenario(
        name="unevidenced",
        title="Reasoning from a provider that is known to send none.",
        preset="openai-chat",
        play=Speech(said=(Said("reasoning_content", THOUGHT), Said("content", ANSWER))),
    ),
    Scenario(
        name="unknown-thought",
        title="A new key of the message whose name speaks of thoughts.",
        play=Speech(said=(Said("inner_thoughts", THOUGHT), Said("content", ANSWER))),
    ),
    Scenario(
        name="unknown-thought-choice",
        title="A new key of the choice whose name speaks of thinking.",
        play=_at("choice", {"thinking_trace": [THOUGHT]}),
    ),
    Scenario(
        name="unknown-thought-body",
        title="A new key of the body whose name speaks of reasoning.",
        play=_at("body", {"model_reasoning": {"text": THOUGHT}}),
    ),
    Scenario(
        name="thinking-blocks",
        title="`thinking_blocks` beside `reasoning_content`, as a proxy in between sends them.",
        preset="deepseek",
        play=Speech(
            said=(
                Said("reasoning_content", THOUGHT),
                Shown(
                    {
                        "thinking_blocks": [
                            {"type": "thinking", "thinking": THOUGHT, "signature": "RkFLRQ=="}
                        ]
                    }
                ),
                Said("content", ANSWER),
            ),
            message={
                "thinking_blocks": [
                    {"type": "thinking", "thinking": THOUGHT, "signature": "RkFLRQ=="}
                ]
            },
        ),
    ),
)
