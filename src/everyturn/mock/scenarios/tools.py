"""Tool calls in the forms that providers stream them, whole ones and broken ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from everyturn.mock.scenario import Ask, Play, Scenario
from everyturn.mock.script import Script
from everyturn.mock.speech import (
    THOUGHT,
    Json,
    Said,
    Shown,
    Speech,
    dumps,
    pieces,
    streamed,
    whole,
)

WEIGH: Final = (
    "call_weigh",
    "weigh_fruit",
    '{"fruit":"Birne «Williams»","grams":[181,0.10],"id":2512292042121000001}',
)
SHARE: Final = ("call_share", "share_out", '{"people": 7,\n "note": "say \\"twelve\\" 🍐"}')
_Call = tuple[str, str, str]


def call(call_id: str, name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    """A tool call as a whole message holds it."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **more}


def opening(index: int, call_id: str, name: str, arguments: str = "") -> dict[str, Any]:
    """The first fragment of a call."""
    return {"index": index, **call(call_id, name, arguments)}


def fragment(arguments: str, **more: Any) -> dict[str, Any]:
    """A later fragment of a call."""
    return {**more, "function": {"arguments": arguments}}


def calling(
    fragments: Iterable[Json], calls: Iterable[Json], *, before: tuple[Said, ...] = ()
) -> Speech:
    """A speech that ends in tool calls: each fragment is a delta of its own."""
    shown = tuple(Shown({"tool_calls": [one]}) for one in fragments)
    return Speech(
        said=(*before, *shown),
        message={"tool_calls": list(calls)},
        opening={"role": "assistant", "content": None},
        finish="tool_calls",
    )


def _fragments(index: int, one: _Call, size: int = 9) -> list[Json]:
    call_id, name, arguments = one
    parts = [fragment(part, index=index) for part in pieces(arguments, size)]
    return [opening(index, call_id, name), *parts]


def _interleaved() -> list[Json]:
    """The fragments of two calls in turn, as long as both have any."""
    first, second = _fragments(0, WEIGH), _fragments(1, SHARE)
    turns = max(len(first), len(second))
    return [line[turn] for turn in range(turns) for line in (first, second) if turn < len(line)]


BOTH: Final = (call(*WEIGH), call(*SHARE))
SIGNATURE: Final = {"google": {"thought_signature": "c2lnbmVkLUZBS0U="}}
EXACT: Final = b'{"n":12345678901234567890,"price":0.10,"tiny":1e-7}'


def _as_object(ask: Ask) -> Script:
    """`arguments` is an object, with numbers that no double holds: spliced in as text."""
    told = calling(
        [opening(0, "call_0", "weigh_fruit", "ARGS")], [call("call_0", "weigh_fruit", "ARGS")]
    )
    body = dumps(told.body(ask.name)).replace(b'"ARGS"', EXACT)
    frames = [each.replace(b'"ARGS"', EXACT) for each in told.frames(ask.name)]
    return Script.pair(whole=whole(ask.name, body), stream=streamed(ask.name, frames))


def _ordered(*parts: Said | Shown) -> Play:
    """Reasoning around two calls; the whole message holds all of it."""
    return Speech(
        said=parts,
        message={"tool_calls": list(BOTH)},
        opening={"role": "assistant", "content": None},
        finish="tool_calls",
    )


def _shown(index: int, one: _Call) -> tuple[Shown, ...]:
    return tuple(Shown({"tool_calls": [part]}) for part in _fragments(index, one, 24))


CUSTOM: Final = {
    "id": "call_custom",
    "type": "custom",
    "custom": {"name": "sql", "input": "SELECT 12"},
}
WITH_TEXT = Speech(
    said=(
        Said("content", "I will weigh and count them."),
        Shown({"tool_calls": [{"index": 0, **call(*SHARE)}, {"index": 1, **CUSTOM}]}),
    ),
    message={"tool_calls": [call(*SHARE), CUSTOM]},
    finish="tool_calls",
)

SCENARIOS: Final = (
    Scenario(
        name="tools",
        title="Two parallel calls, their fragments interleaved, after reasoning.",
        preset="deepseek",
        play=calling(_interleaved(), BOTH, before=(Said("reasoning_content", THOUGHT),)),
    ),
    Scenario(
        name="tool-single",
        title="One call in a few fragments.",
        preset="openai-chat",
        play=calling(_fragments(0, SHARE), [call(*SHARE)]),
    ),
    Scenario(
        name="tools-with-text",
        title="Text, then two calls whole in one delta, one of type `custom`.",
        preset="openai-chat",
        play=WITH_TEXT,
    ),
    Scenario(
        name="tools-reasoning-between",
        title="Reasoning before, between and after two calls.",
        preset="deepseek",
        play=_ordered(
            Said("reasoning_content", "Weigh them first. "),
            *_shown(0, WEIGH),
            Said("reasoning_content", "Then share. "),
            *_shown(1, SHARE),
            Said("reasoning_content", "That is all."),
        ),
    ),
    Scenario(
        name="tools-reasoning-after",
        title="Two calls, then reasoning.",
        preset="deepseek",
        play=_ordered(
            *_shown(0, WEIGH), *_shown(1, SHARE), Said("reasoning_content", "Both are needed.")
        ),
    ),
    Scenario(
        name="tools-no-index",
        title="Whole calls without `index`, told apart by id; a signature on the first.",
        preset="gemini-openai",
        play=calling(
            [call(*WEIGH, extra_content=SIGNATURE), call(*SHARE)],
            [call(*WEIGH, extra_content=SIGNATURE), call(*SHARE)],
        ),
    ),
    Scenario(
        name="tools-no-index-parts",
        title="Fragments without `index` and without id: they continue the open call.",
        play=calling(
            [
                call(WEIGH[0], WEIGH[1], ""),
                *(fragment(part) for part in pieces(WEIGH[2], 20)),
                call(SHARE[0], SHARE[1], ""),
                *(fragment(part) for part in pieces(SHARE[2], 20)),
            ],
            BOTH,
        ),
    ),
    Scenario(
        name="tools-empty-id",
        title="Later fragments with an empty id.",
        preset="dashscope",
        play=calling(
            [
                opening(0, SHARE[0], SHARE[1]),
                *(fragment(part, index=0, id="") for part in pieces(SHARE[2], 11)),
            ],
            [call(*SHARE)],
        ),
    ),
    Scenario(
        name="tools-no-id",
        title="Two calls whose ids are empty.",
        preset="gemini-openai",
        play=calling(
            [call("", WEIGH[1], WEIGH[2]), call("", SHARE[1], SHARE[2])],
            [call("", WEIGH[1], WEIGH[2]), call("", SHARE[1], SHARE[2])],
        ),
    ),
    Scenario(
        name="tools-same-index",
        title="Two calls that both claim index 0, told apart by id.",
        preset="ollama-v1",
        play=calling([opening(0, *WEIGH), opening(0, *SHARE)], BOTH),
    ),
    Scenario(
        name="tools-object",
        title="`arguments` is an object with numbers that must keep their text.",
        play=_as_object,
    ),
    Scenario(
        name="tools-empty-arguments",
        title="A call whose arguments are an empty string.",
        preset="openai-chat",
        play=calling([opening(0, "call_now", "tell_time")], [call("call_now", "tell_time", "")]),
    ),
    Scenario(
        name="tools-wrong-index",
        title="The arguments of the only open call arrive under another index.",
        play=calling([opening(0, SHARE[0], SHARE[1]), fragment(SHARE[2], index=1)], [call(*SHARE)]),
    ),
    Scenario(
        name="tools-orphan",
        title="Arguments under an index that none of two open calls has.",
        play=calling(
            [
                opening(0, WEIGH[0], WEIGH[1]),
                opening(1, SHARE[0], SHARE[1]),
                fragment(SHARE[2], index=5),
            ],
            BOTH,
        ),
    ),
    Scenario(
        name="tools-cut-arguments",
        title="The token limit ends the arguments in the middle.",
        preset="openai-chat",
        play=calling(
            [opening(0, SHARE[0], SHARE[1]), fragment('{"people": 7,', index=0)],
            [call(SHARE[0], SHARE[1], '{"people": 7,')],
        ).but(finish="length"),
    ),
    Scenario(
        name="function-call",
        title="The legacy `function_call` instead of tool calls.",
        preset="openai-chat",
        play=Speech(
            said=(
                Shown({"function_call": {"name": SHARE[1], "arguments": ""}}),
                *(Shown({"function_call": {"arguments": part}}) for part in pieces(SHARE[2], 15)),
            ),
            message={"function_call": {"name": SHARE[1], "arguments": SHARE[2]}},
            opening={"role": "assistant", "content": None},
            finish="function_call",
        ),
    ),
)
