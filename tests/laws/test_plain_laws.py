"""Law: an answer that is read the plain way is read as the strict way reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from everyturn.errors import Failure
from everyturn.presets.load import load_preset
from everyturn.wire.limits import Limits
from everyturn.wire.plain import plain_reply, read_answer
from everyturn.wire.preset import Target, target_of
from everyturn.wire.reader import write
from everyturn.wire.reply import Reply
from everyturn.wire.stream import read_whole

PRESETS = ("openai-chat", "deepseek", "vllm", "perplexity", "xai", "groq", "gemini-openai")


def a_target(preset: str, **narrowed: Any) -> Target:
    """A target of a packaged preset."""
    target = target_of(load_preset(preset), name="m", base_url="http://127.0.0.1:9/v1")
    return replace(target, **narrowed)


texts = st.text(max_size=6) | st.sampled_from(["", "Hello", "<think>a</think>b", "\ud83d", "é"])
anything = st.recursive(
    texts | st.integers(-2, 600) | st.floats(allow_nan=False) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


def members(usual: dict[str, st.SearchStrategy[Any]], *odd: str) -> st.SearchStrategy[Any]:
    """Objects with the usual members in any order; now and then one lacks, is odd or is spoiled."""
    plain = st.fixed_dictionaries(usual)
    lacking = st.fixed_dictionaries({}, optional=usual)
    spoiled = st.tuples(plain, st.sampled_from([*usual, *odd]), anything).map(
        lambda drawn: {**drawn[0], drawn[1]: drawn[2]}
    )
    return st.one_of(plain, plain, plain, plain, plain, lacking, spoiled).flatmap(
        lambda tree: st.permutations(list(tree.items())).map(dict)
    )


messages = members(
    {
        "role": st.just("assistant"),
        "content": texts | st.none(),
        "refusal": texts | st.none(),
        "annotations": st.just([]),
    },
    "reasoning_content",
    "tool_calls",
    "audio",
    "thought",
)
choices = members(
    {
        "index": st.sampled_from([0, 0, 0, 1]),
        "message": messages,
        "finish_reason": st.sampled_from(["stop", "stop", "length", "error", "", None]),
        "logprobs": anything,
    },
    "delta",
    "usage",
)
answers = members(
    {
        "id": texts,
        "object": st.just("chat.completion"),
        "created": st.integers(0, 9),
        "model": texts,
        "choices": st.lists(choices, min_size=1, max_size=1) | st.lists(choices, max_size=2),
        "usage": st.none() | st.just({"prompt_tokens": 1, "completion_tokens": 0}),
    },
    "error",
    "detail",
    "reasoning_content",
)


@given(
    answers,
    st.sampled_from(PRESETS),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(
        [Limits(), Limits(), Limits(text_bytes_max=300), Limits(carried_bytes_max=900)]
    ),
    st.sampled_from(["off", "off", "off", "split"]),
)
def test_the_plain_way_reads_what_the_strict_way_reads(
    answer: Any, preset: str, count: int, limits: Limits, tags: str
) -> None:
    """Where the plain way gives a reply, the strict way gives an equal one and changes nothing."""
    target = a_target(preset, tags=tags)
    data = write(answer)

    quick = plain_reply(data, target, limits, choices=count)
    if quick is None:
        return
    reply, shown, decoder, _ = read_whole(data, target, limits, choices=count)

    assert quick == reply
    assert list(quick.choices[0].values) == list(reply.choices[0].values)
    assert shown == data
    assert not decoder.notes


@given(answers, st.sampled_from(PRESETS))
def test_every_answer_is_read_or_refused_as_the_strict_way_does(answer: Any, preset: str) -> None:
    """Whatever the way, reply, bytes and failure are those of the strict one."""
    target = a_target(preset)
    data = write(answer)

    def told(read: Any) -> tuple[Reply, bytes] | tuple[str, str | None]:
        try:
            reply, shown, *_ = read(data, target, Limits())
        except Failure as failure:
            return failure.code, failure.param
        return reply, shown

    assert told(read_answer) == told(read_whole)


def test_a_common_answer_is_plain() -> None:
    """What OpenAI answers to a simple question goes the plain way, pretty printed or not."""
    answer = (
        b'{"id": "chatcmpl-1",\n "object": "chat.completion", "created": 1, "model": "m",'
        b' "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi",'
        b' "refusal": null, "annotations": []}, "logprobs": null, "finish_reason": "stop"}],'
        b' "usage": {"prompt_tokens": 1}, "service_tier": "default"}'
    )
    reply = plain_reply(answer, a_target("openai-chat"), Limits())

    assert reply is not None
    assert reply.choices[0].content == "Hi"
    assert reply == read_whole(answer, a_target("openai-chat"), Limits())[0]
