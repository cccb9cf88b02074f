"""Reasoning on every carrier that a preset evidences, alone and between other output.

Shapes: the evidence named in each preset. Signatures and encrypted data are made up.
"""

from __future__ import annotations

from typing import Any, Final

from everyturn.mock.scenario import Scenario
from everyturn.mock.speech import ANSWER, THOUGHT, USAGE, Said, Shown, Speech, pieces

REASONED: Final = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 14}}
THOUGHTS: Final = pieces(THOUGHT)
ANSWERS: Final = pieces(ANSWER)

# ------------------------------------------------------------------ deepseek, vllm, groq …

DEEPSEEK = Speech(
    said=(
        *(Shown({"content": None, "reasoning_content": t}, top={"usage": None}) for t in THOUGHTS),
        *(Shown({"content": t, "reasoning_content": None}, top={"usage": None}) for t in ANSWERS),
    ),
    message={"content": ANSWER, "reasoning_content": THOUGHT},
    opening={"role": "assistant", "content": None, "reasoning_content": ""},
    last={"content": "", "reasoning_content": None},
    usage={
        **REASONED,
        "prompt_tokens_details": {"cached_tokens": 16},
        "prompt_cache_hit_tokens": 16,
        "prompt_cache_miss_tokens": 3,
    },
    usage_in="finish",
    top={"system_fingerprint": "fp_mock"},
)

GROQ = Speech(
    said=(
        *(Shown({"reasoning": t, "channel": "analysis"}) for t in THOUGHTS),
        *(Shown({"content": t, "channel": "final"}) for t in ANSWERS),
    ),
    message={"content": ANSWER, "reasoning": THOUGHT},
    usage=REASONED,
    usage_in="finish",
)

CEREBRAS = Speech(
    said=(Said("reasoning", THOUGHT), Said("content", ANSWER)),
    top={"time_info": {"queue_time": 0.0001, "total_time": 0.02, "created": 1_750_000_000}},
    choice={"reasoning_logprobs": {"content": [{"token": "Seven", "logprob": -0.5}]}},
    usage=REASONED,
)

# ------------------------------------------------------------------ openrouter

TEXT_DETAIL: Final = {
    "type": "reasoning.text",
    "text": THOUGHT,
    "signature": "c2lnbmF0dXJlLUZBS0U=",
    "format": "anthropic-claude-v1",
    "index": 0,
}
ENCRYPTED_DETAIL: Final = {
    "type": "reasoning.encrypted",
    "data": "ZW5jcnlwdGVkLUZBS0U=",
    "id": "rs_mock",
    "format": "openai-responses-v1",
    "index": 1,
}


def _text_piece(text: str) -> dict[str, Any]:
    return {
        "type": "reasoning.text",
        "text": text,
        "format": "anthropic-claude-v1",
        "index": 0,
    }


SIGNATURE_PIECE: Final = {
    "type": "reasoning.text",
    "signature": "c2lnbmF0dXJlLUZBS0U=",
    "format": "anthropic-claude-v1",
    "index": 0,
}
ROUTED_USAGE: Final = {**REASONED, "cost": 0.000615, "is_byok": False}

OPENROUTER = Speech(
    said=(
        *(
            Shown(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning": t,
                    "reasoning_content": t,
                    "reasoning_details": [_text_piece(t)],
                }
            )
            for t in THOUGHTS
        ),
        Shown({"content": "", "reasoning_details": [SIGNATURE_PIECE]}),
        Shown({"content": "", "reasoning": None, "reasoning_details": [ENCRYPTED_DETAIL]}),
        *(Shown({"role": "assistant", "content": t}) for t in ANSWERS),
    ),
    message={
        "content": ANSWER,
        "reasoning": THOUGHT,
        "reasoning_content": THOUGHT,
        "reasoning_details": [TEXT_DETAIL, ENCRYPTED_DETAIL],
    },
    top={"provider": "Orchard Hosting"},
    choice={"native_finish_reason": "end_turn"},
    usage=ROUTED_USAGE,
)
LONE_DETAIL: Final = {**ENCRYPTED_DETAIL, "index": 0}
SUMMARY_DETAIL: Final = {
    "type": "reasoning.summary",
    "summary": THOUGHT,
    "format": "openai-responses-v1",
    "index": 0,
}

# ------------------------------------------------------------------ mistral, gemini, tags

MISTRAL = Speech(
    said=(
        *(
            Shown({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": t}]}]})
            for t in THOUGHTS
        ),
        Shown({"content": [{"type": "thinking", "thinking": [], "closed": True}]}),
        Said("content", ANSWER),
    ),
    message={
        "content": [
            {
                "type": "thinking",
                "thinking": [{"type": "text", "text": THOUGHT}],
                "closed": True,
            },
            {"type": "text", "text": ANSWER},
        ]
    },
    usage_in="finish",
)
REFERENCE: Final = {"type": "reference", "reference_ids": [3, 5]}
MISTRAL_REFERENCE = Speech(
    said=(
        Shown({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]}),
        Shown({"content": [{"type": "text", "text": ANSWER}, REFERENCE]}),
    ),
    message={
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
            {"type": "text", "text": ANSWER},
            REFERENCE,
        ]
    },
    usage_in="finish",
)

SIGNATURE: Final = "dGhvdWdodC1GQUtF"
MARK: Final = {"google": {"thought": True}}
SIGNED: Final = {"google": {"thought_signature": SIGNATURE}}
MARKED_SIGNED: Final = {"google": {"thought": True, "thought_signature": SIGNATURE}}
GEMINI = Speech(
    said=(
        Shown({"content": f"<thought>{THOUGHTS[0]}", "extra_content": MARK}),
        *(Shown({"content": t, "extra_content": MARK}) for t in THOUGHTS[1:]),
        Shown({"content": f"</thought>{ANSWERS[0]}"}),
        *(Shown({"content": t}) for t in ANSWERS[1:]),
        Shown({"content": "", "extra_content": SIGNED}),
    ),
    message={
        "content": f"<thought>{THOUGHT}</thought>{ANSWER}",
        "extra_content": MARKED_SIGNED,
    },
    opening={"role": "assistant"},
)
GEMINI_MARK = Speech(
    said=(Shown({"content": ANSWER, "extra_content": MARKED_SIGNED}),),
    message={
        "content": ANSWER,
        "extra_content": MARKED_SIGNED,
        "thought_signature": SIGNATURE,
    },
    last={"thought_signature": SIGNATURE},
)

TAGGED: Final = f"<think>{THOUGHT}</think>\n\n{ANSWER}"
CITED: Final = {
    "citations": ["https://pears.example/harvest"],
    "search_results": [
        {"title": "The harvest of the year", "url": "https://pears.example/harvest"}
    ],
}
SCENARIOS: Final = (
    Scenario(
        name="deepseek",
        title="`reasoning_content` and `content` in turn, null beside each other.",
        preset="deepseek",
        play=DEEPSEEK,
    ),
    Scenario(
        name="vllm",
        title="`reasoning`, as newer vLLM servers name it.",
        preset="vllm",
        play=Speech(
            said=(Said("reasoning", THOUGHT), Said("content", ANSWER)),
            choice={"stop_reason": None},
        ),
    ),
    Scenario(
        name="openrouter",
        title="Both text names with one text, details with text, signature alone, encrypted.",
        preset="openrouter",
        play=OPENROUTER,
    ),
    Scenario(
        name="openrouter-encrypted",
        title="Encrypted details alone; `reasoning` is null.",
        preset="openrouter",
        play=Speech(
            said=(
                Shown({"content": "", "reasoning": None, "reasoning_details": [LONE_DETAIL]}),
                Said("content", ANSWER),
            ),
            message={"reasoning": None, "reasoning_details": [LONE_DETAIL]},
            usage=ROUTED_USAGE,
        ),
    ),
    Scenario(
        name="openrouter-signature",
        title="The last delta of the stream holds a signature and nothing else.",
        preset="openrouter",
        play=Speech(
            said=(
                *(Shown({"reasoning": t, "reasoning_details": [_text_piece(t)]}) for t in THOUGHTS),
                Said("content", ANSWER),
                Shown({"content": "", "reasoning_details": [SIGNATURE_PIECE]}),
            ),
            message={"reasoning": THOUGHT, "reasoning_details": [TEXT_DETAIL]},
            usage=ROUTED_USAGE,
        ),
    ),
    Scenario(
        name="openrouter-summary",
        title="A summary in the details; `reasoning` is null.",
        preset="openrouter",
        play=Speech(
            said=(
                Shown({"content": "", "reasoning": None, "reasoning_details": [SUMMARY_DETAIL]}),
                Said("content", ANSWER),
            ),
            message={"reasoning": None, "reasoning_details": [SUMMARY_DETAIL]},
            usage=ROUTED_USAGE,
        ),
    ),
    Scenario(
        name="mistral",
        title="Content as a list of thinking items, then as a string.",
        preset="mistral",
        play=MISTRAL,
    ),
    Scenario(
        name="mistral-reference",
        title="A content list with thinking, text and a reference.",
        preset="mistral",
        play=MISTRAL_REFERENCE,
    ),
    Scenario(
        name="perplexity",
        title="`<think>` tags in the text, cut anywhere, with citations in each chunk.",
        preset="perplexity",
        play=Speech(said=(Said("content", TAGGED, size=5),), top=CITED),
    ),
    Scenario(
        name="think-tags",
        title="`<think>` tags one character at a time.",
        preset="perplexity",
        play=Speech(said=(Said("content", TAGGED, size=1),)),
    ),
    Scenario(
        name="think-unclosed",
        title="A `<think>` tag that is never closed.",
        preset="perplexity",
        play=Speech(said=(Said("content", f"<think>{THOUGHT}", size=7),), finish="length"),
    ),
    Scenario(
        name="think-false",
        title="Text that only begins like a tag.",
        preset="perplexity",
        play=Speech(said=(Said("content", "<think>2 </thx> 3</think>4 <thin 5 </", size=3),)),
    ),
    Scenario(
        name="gemini",
        title="`<thought>` text under a mark, then a signature.",
        preset="gemini-openai",
        play=GEMINI,
    ),
    Scenario(
        name="gemini-mark",
        title="A mark and a signature on text without a tag: content stays content.",
        preset="gemini-openai",
        play=GEMINI_MARK,
    ),
    Scenario(
        name="groq",
        title="`reasoning` with a channel beside it.",
        preset="groq",
        play=GROQ,
    ),
    Scenario(
        name="cerebras",
        title="`reasoning` with log probabilities of its own and time information.",
        preset="cerebras",
        play=CEREBRAS,
    ),
    Scenario(
        name="dashscope",
        title="`reasoning_content` at the top of the body, an older form.",
        preset="dashscope",
        play=Speech(
            said=(
                *(Shown({"content": ""}, top={"reasoning_content": t}) for t in THOUGHTS),
                Said("content", ANSWER),
            ),
            body_top={"reasoning_content": THOUGHT},
        ),
    ),
    Scenario(
        name="reasoning-only",
        title="Reasoning took every token: content null, finish `length`.",
        preset="deepseek",
        play=Speech(
            said=(Said("reasoning_content", THOUGHT),),
            opening={"role": "assistant", "content": None},
            finish="length",
        ),
    ),
    Scenario(
        name="reasoning-after-text",
        title="Text first, then reasoning, then text.",
        preset="deepseek",
        play=Speech(
            said=(
                Said("content", "Let me see. "),
                Said("reasoning_content", THOUGHT),
                Said("content", ANSWER),
            )
        ),
    ),
    Scenario(
        name="mixed-delta",
        title="Reasoning and content in the same deltas.",
        preset="deepseek",
        play=Speech(
            said=(
                Shown({"reasoning_content": "Seven ", "content": "Each "}),
                Shown({"content": "gets ", "reasoning_content": "times "}),
                Shown({"reasoning_content": "twelve.", "content": "12 pears."}),
            ),
            message={"content": "Each gets 12 pears.", "reasoning_content": "Seven times twelve."},
        ),
    ),
    Scenario(
        name="late-delta",
        title="Reasoning after the chunk with the finish.",
        preset="deepseek",
        play=Speech(
            after=(Said("reasoning_content", "On reflection: yes, twelve."),),
        ),
    ),
)
