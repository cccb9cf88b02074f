"""Texts that stand in several places of one conversation, stored once.

An answer stands in the call's response, as the text of its turn, and in the history that comes back
with the next request; a user's message in the prompt and as the text of its turn; the same
parameters come with every request. The first place stores the text as a content, the others refer
to it by position, and the views put it back, character by character (decision 0006).

Only what memory knows is found again; where it does not, the text is stored where it stands.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Final

import msgspec

from everyturn.audit import schema
from everyturn.audit.columns import TEXT_BYTES_MAX, is_plain
from everyturn.audit.content import ADDRESS_BYTES
from everyturn.audit.group import Content
from everyturn.audit.records import ModelCall, TurnAudit
from everyturn.store.rows import NOWHERE_ELSE, REFERENCE_CHARS_MIN, Elsewhere, string_in

_ANSWER: Final = '"content":"'
"""Before the first text of an answer, in the compact JSON that records hold."""
_USAGE: Final = '"usage":'
_ASSISTANT: Final = '"role":"assistant"'
_USER_CONTENTS_MAX: Final = 4
"""How many of the last new messages are searched for the user's text."""
_PARAMETERS_CHARS_MIN: Final = 256
_ENCODER: Final = msgspec.json.Encoder()
_PART_SHA256: Final = hashlib.sha256(b"part\0")
"""The hash of an address as it begins, to be copied: a new one is looked for by its name."""

_TURN: Final = [column.name for column in schema.LOG_OF[TurnAudit].columns]
_CALL: Final = [column.name for column in schema.LOG_OF[ModelCall].columns]
_USER_TEXT_AT: Final = _TURN.index("user_text")
_ASSISTANT_TEXT_AT: Final = _TURN.index("assistant_text")
_PARAMETERS_AT: Final = _CALL.index("parameters_json")
_RESPONSE_AT: Final = _CALL.index("response_json")
_USAGE_AT: Final = _CALL.index("usage_json")


class Contents(ABC):
    """Where contents are found and put. No `Protocol`, whose methods are looked up by name."""

    @abstractmethod
    def find_content(self, address: bytes) -> int | None:
        """The key of a content that is stored or staged."""

    @abstractmethod
    def find_part(self, text: str) -> int | None:
        """The key of a text that is stored apart, if it is stored or staged."""

    @abstractmethod
    def part_key(self, text: str) -> int:
        """The key of a text that is stored apart; a new one is staged."""


def part_address(text: str) -> bytes:
    """The address of a text that is stored apart from what it stands in."""
    sha = _PART_SHA256.copy()
    sha.update(text.encode())
    return sha.digest()[:ADDRESS_BYTES]


def answer_in(text: str) -> tuple[str, int] | None:
    """The answer's text as a JSON string, if it is long enough to stand apart, and its offset."""
    if len(text) < REFERENCE_CHARS_MIN:
        return None
    found = text.find(_ANSWER)
    if found < 0:
        return None
    at = found + len(_ANSWER) - 1
    end = _string_end(text, at)
    if end - at < REFERENCE_CHARS_MIN or "\0" in text:
        return None
    return text[at:end], at


def _string_end(text: str, at: int) -> int:
    """Where the JSON string ends that begins at `at`; 0 when it does not."""
    end = text.find('"', at + 1)
    while end >= 0:
        last = end - 1
        while text[last] == "\\":
            last -= 1
        if (end - last) % 2:  # Backslashes before a quote escape each other, or the last one it.
            return end + 1
        end = text.find('"', end + 1)
    return 0


def split_content(text: str, contents: Contents) -> tuple[str, int | None, int | None]:
    """A message as it is stored: its text, and the key and offset of a part that is put in.

    Only an assistant's message is looked at, and only for an answer that was stored as one.
    """
    if _ASSISTANT in text:
        answer = answer_in(text)
        if answer is not None:
            literal, at = answer
            key = contents.find_part(literal)
            if key is not None:
                return text[:at] + text[at + len(literal) :], key, at
    return text, None, None


def call_elsewhere(record: ModelCall, contents: Contents) -> Elsewhere:
    """Which texts of a call rest in contents, or stand in its own response."""
    texts: list[tuple[int, str | None]] = []
    parameters_key = response_key = response_at = usage_at = usage_length = None
    parameters, response = record.parameters_json, record.response_json
    if parameters is not None and len(parameters) >= _PARAMETERS_CHARS_MIN:
        if "\0" not in parameters:
            parameters_key = contents.part_key(parameters)
            texts.append((_PARAMETERS_AT, None))
    if response is not None and "\0" not in response:
        answer = answer_in(response)
        if answer is not None:
            literal, response_at = answer
            response_key = contents.part_key(literal)
            response = response[:response_at] + response[response_at + len(literal) :]
            texts.append((_RESPONSE_AT, response))
        if record.usage_json is not None:
            usage = record.usage_json
            at = response.rfind(_USAGE) + len(_USAGE)
            if not response.startswith(usage, at):
                at = response.find(usage)
            if at >= 0 and len(response) <= TEXT_BYTES_MAX // 4:
                usage_at, usage_length = at + 1, len(usage)
                texts.append((_USAGE_AT, None))
    if not texts:
        return NOWHERE_ELSE[ModelCall]
    return Elsewhere((parameters_key, response_key, response_at, usage_at, usage_length), texts)


def turn_elsewhere(
    record: TurnAudit, before: Elsewhere | None, fresh: tuple[Content, ...], contents: Contents
) -> Elsewhere:
    """Which texts of a turn rest in contents.

    before: of the revision it replaces, when that had the same `user_text`; fresh: the contents
    that came with it.
    """
    texts: list[tuple[int, str | None]] = []
    user: tuple[int | None, ...] = (None, None, None)
    if before is not None:
        user = before.columns[:3]
    elif record.user_text is not None and len(record.user_text) >= REFERENCE_CHARS_MIN:
        user = _user_text(record.user_text, fresh, contents)
    if user[0] is not None:
        texts.append((_USER_TEXT_AT, None))
    assistant = None
    text = record.assistant_text
    if text is not None and REFERENCE_CHARS_MIN <= len(text) <= TEXT_BYTES_MAX // 4:
        if is_plain(text):
            literal = _ENCODER.encode(text).decode()
            assistant = contents.find_part(literal)
            if assistant is not None:
                texts.append((_ASSISTANT_TEXT_AT, None))
    if not texts:
        return NOWHERE_ELSE[TurnAudit]
    return Elsewhere((*user, assistant), texts)


def _user_text(text: str, fresh: tuple[Content, ...], contents: Contents) -> tuple[int | None, ...]:
    for content in fresh[: -_USER_CONTENTS_MAX - 1 : -1]:
        if _ASSISTANT not in content.text:
            found = string_in(content.text, text)
            if found is not None:
                return contents.find_content(content.address), found[0] + 1, found[1]
    return None, None, None
