"""Whole answers that hold nothing but text, read without going from event to event.

Most whole answers have the same few members. Of such an answer the fold is plain to see, and the
provider's own bytes are what the client gets; any other answer goes the strict way (`read_whole`),
and both ways give equal replies.
"""

from __future__ import annotations

from typing import Any, Final

from everyturn.wire.dialects.chat_reply import ENVELOPE, SIZE_RATIO_MAX
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Target
from everyturn.wire.reader import Malformed, read_provider
from everyturn.wire.reply import MISSING, Choice, Missing, Reply
from everyturn.wire.stream import read_whole

PLAIN_BYTES_MAX: Final = 64 * 1024
"""Longer answers go the strict way at once, so that none is read twice at length."""


def read_answer(
    data: bytes, target: Target, limits: Limits, *, choices: int = 1
) -> tuple[Reply, bytes, list[str]]:
    """Read a whole answer: its reply, the client's bytes, and notes on what was done to it.

    choices: the request's `n`. Raises what `read_whole` raises.
    """
    reply = plain_reply(data, target, limits, choices=choices)
    if reply is not None:
        return reply, data, []
    reply, shown, decoder, _ = read_whole(data, target, limits, choices=choices)
    return reply, shown, decoder.notes


def plain_reply(data: bytes, target: Target, limits: Limits, *, choices: int = 1) -> Reply | None:
    """The reply of a plain answer; None where the strict way must tell."""
    size = len(data)
    if (
        target.tags != "off"
        or size > PLAIN_BYTES_MAX
        or size > limits.body_bytes_max
        or size > limits.text_bytes_max
        or size * SIZE_RATIO_MAX > limits.carried_bytes_max
    ):
        return None
    try:
        document = read_provider(data)
    except Malformed:
        return None
    if type(document.value) is not dict or document.has_nonfinite:
        return None
    tree: dict[str, Any] = document.value
    choices_read: list[Choice] = []
    usage: dict[str, Any] | Missing | None = MISSING
    envelope: dict[str, Any] = {}
    for key, value in tree.items():
        if key in ENVELOPE:
            envelope[key] = value
        elif key == "usage":
            if value is not None and type(value) is not dict:
                return None
            usage = value
        elif key != "choices" or type(value) is not list:
            return None
        else:
            for item in value:
                choice = _plain_choice(item, len(choices_read), target)
                if choice is None:
                    return None
                choices_read.append(choice)
    if not choices_read or len(choices_read) < choices:
        return None
    return Reply(choices_read, usage, envelope)


def _plain_choice(item: Any, index: int, target: Target) -> Choice | None:
    """A choice with a finish and a plain message; None for any other."""
    if type(item) is not dict:
        return None
    members: dict[str, Any] = item
    message: dict[str, Any] | None = None
    finish = None
    choice_values: dict[str, Any] = {}
    for key, value in members.items():
        if key == "message":
            if type(value) is not dict:
                return None
            message = value
        elif key == "finish_reason":
            finish = value
        elif key == "logprobs":
            choice_values[key] = value
        elif key != "index" or type(value) is not int or value != index:
            return None
    if type(finish) is not str or not finish or finish in target.preset.finish_failures:
        return None
    if message is None:
        return None
    content: str | Missing | None = MISSING
    refusal: str | Missing | None = MISSING
    values: dict[str, Any] = {}
    for key, value in message.items():
        if key == "role" or key == "annotations":
            values[key] = value
        elif value is not None and type(value) is not str:
            return None
        elif key == "content":
            content = value
        elif key == "refusal":
            refusal = value
        else:
            return None
    return Choice(
        index,
        content=content,
        refusal=refusal,
        finish_reason=finish,
        values=values,
        choice_values=choice_values,
    )
