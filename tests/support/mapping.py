"""What a client must see of a provider's answer, said once more and independently of the gateway.

The documented mapping and nothing else: reasoning carriers become `reasoning_content`, and so do
thinking items of a content list and tags in content. All other values stand as the provider sent
them. Source: the HTTP reference and the pages of the presets.
"""

from __future__ import annotations

import re
from typing import Any, Final

from everyturn.wire.preset import Preset
from tests.support.comparing import ALIAS, Ledger, Tree, add_order, index_of, write_json

TEXT_CARRIERS: Final = ("reasoning_content", "reasoning", "thinking")


class Mapping:
    """The provider's answer as a client must see it, frame by frame or as a body.

    read, tags, tag: what the preset (or the operator) says about reasoning. One for each answer,
    since mirrors and tags go over frames.
    """

    def __init__(self, preset: Preset, *, tags: str | None = None) -> None:
        self._read = preset.read
        self._tags = tags or preset.tags
        self._tag = preset.tag
        self._carriers = [name for name in preset.read if name in TEXT_CARRIERS]
        self._said: dict[int, dict[str, str]] = {}
        self._spoken: dict[int, str] = {}

    def body(self, tree: Tree) -> Tree:
        """A whole answer."""
        beside = self._beside(tree)
        shown = dict(tree)
        shown["choices"] = []
        for position, choice in enumerate(tree["choices"]):
            index = index_of(choice, position)
            message = {**choice["message"], **beside}
            told = self._joined(self._message(index, message, is_whole=True), message)
            shown["choices"].append({**choice, "message": told})
        return {key: value for key, value in shown.items() if key != ALIAS or not beside}

    def frame(self, tree: Tree) -> list[Tree]:
        """One frame of a stream; several where it holds more than one delta can say in order."""
        beside = self._beside(tree)
        frames = [{key: value for key, value in tree.items() if key != ALIAS or not beside}]
        if not tree.get("choices"):
            return frames
        frames[0]["choices"] = []
        for position, choice in enumerate(tree["choices"]):
            if not isinstance(choice.get("delta"), dict):
                frames[0]["choices"].append(choice)
                continue
            index = index_of(choice, position)
            deltas = self._message(index, {**choice["delta"], **beside}, is_whole=False)
            frames[0]["choices"].append({**choice, "delta": deltas[0]})
            # Only the order of deltas counts here: what stands around them is said once.
            frames += [{"choices": [{"index": index, "delta": more}]} for more in deltas[1:]]
        return frames

    def _beside(self, tree: Tree) -> Tree:
        """Reasoning at the top of a body, where the preset reads it there."""
        has_it = "body.reasoning_content" in self._read and ALIAS in tree
        return {ALIAS: tree[ALIAS]} if has_it else {}

    def _message(self, index: int, message: Tree, *, is_whole: bool) -> list[Tree]:
        """A message or delta in the client's form: one or more deltas in their order.

        Tags are taken apart in whole messages only: in a stream they lie across deltas.
        """
        present = [name for name in self._carriers if name in message]
        kept = {key: value for key, value in message.items() if key not in present}
        if isinstance(message.get("tool_calls"), list):
            kept["tool_calls"] = [_text_arguments(call) for call in message["tool_calls"]]
        if present or self._has_details(kept):
            kept.update(self._reasoning(index, message, present))
        content = message.get("content")
        if isinstance(content, list) and "content_list" in self._read:
            return self._content_list(kept, content)
        if isinstance(content, str) and self._tags != "off" and is_whole:
            return [self._tagged(kept, content, message)]
        return [kept]

    def _has_details(self, message: Tree) -> bool:
        return "reasoning_details" in self._read and bool(message.get("reasoning_details"))

    def _reasoning(self, index: int, message: Tree, present: list[str]) -> Tree:
        """The one alias: what the carriers say beyond what any of them has said before."""
        said = self._said.setdefault(index, {})
        new, is_text = "", False
        for name in present:
            if isinstance(message[name], str):
                is_text = True
                said[name] = said.get(name, "") + message[name]
        if not is_text and self._has_details(message):
            text = _detail_text(message["reasoning_details"])
            said["details"] = said.get("details", "") + text
            is_text = bool(text)
        spoken = self._spoken.get(index, "")
        for text in said.values():
            if len(text) > len(spoken + new):
                new = text[len(spoken) :]
        self._spoken[index] = spoken + new
        if is_text:
            return {ALIAS: new}
        return {ALIAS: None} if present else {}

    def _content_list(self, kept: Tree, items: list[Any]) -> list[Tree]:
        """A content list of thinking and text: the text as string, what stood beside it as details;
        with other items in it, content stays a list without the thinking."""
        deltas: list[Tree] = [{}]
        others: list[Any] = []
        details: list[Any] = []
        for item in items:
            if item.get("type") != "thinking":
                others.append(item)
                if set(item) == {"type", "text"}:
                    deltas[-1]["content"] = deltas[-1].get("content", "") + item["text"]
                continue
            inner = item["thinking"]
            parts = [{"type": "text", "text": inner}] if isinstance(inner, str) else inner
            text = "".join(part["text"] for part in parts if set(part) == {"type", "text"})
            rest = [part for part in parts if set(part) != {"type", "text"}]
            beside = {key: value for key, value in item.items() if key != "thinking"}
            if rest or len(beside) > 1:
                details.append({**beside, "thinking": rest} if rest else beside)
            if "content" in deltas[-1]:
                deltas.append({})
            deltas[-1][ALIAS] = deltas[-1].get(ALIAS, "") + text
        if any(set(item) != {"type", "text"} for item in others):
            deltas = [{"content": others}]
            thought = [item for item in items if item.get("type") == "thinking"]
            if thought:
                deltas[0][ALIAS] = "".join(_thinking_text(item) for item in thought)
        rest_of = {key: value for key, value in kept.items() if key != "content"}
        if details:
            rest_of["reasoning_details"] = details
        return [{**rest_of, **deltas[0]}, *deltas[1:]]

    def _tagged(self, kept: Tree, content: str, message: Tree) -> Tree:
        """Text with tags around its reasoning."""
        opening, closing = map(re.escape, self._tag)
        if self._tags == "marked":
            marks = (message.get("extra_content") or {}).get("google") or {}
            opening = f"^{opening}" if marks.get("thought") else "(?!)"
        pattern = re.compile(f"{opening}(.*?)(?:{closing}|$)", re.DOTALL)
        thoughts = pattern.findall(content)
        if not thoughts:
            return kept
        return {**kept, "content": pattern.sub("", content), ALIAS: "".join(thoughts)}

    def _joined(self, deltas: list[Tree], message: Tree) -> Tree:
        """The deltas of a whole message as one message."""
        first, *more = deltas
        for delta in more:
            for key, value in delta.items():
                first[key] = first.get(key, "") + value
        if isinstance(message.get("content"), list):
            first.setdefault("content", "")
        return first


def _text_arguments(call: Tree) -> Tree:
    """A call whose arguments came as an object has them as its JSON text."""
    function = call.get("function") or {}
    if not isinstance(function.get("arguments"), dict):
        return call
    arguments = write_json(function["arguments"])
    return {**call, "function": {**function, "arguments": arguments}}


def _thinking_text(item: Tree) -> str:
    inner = item["thinking"]
    if isinstance(inner, str):
        return inner
    return "".join(part["text"] for part in inner if set(part) == {"type", "text"})


def _detail_text(details: list[Tree]) -> str:
    return "".join(
        item[key]
        for item in details
        for key in ("text", "summary")
        if isinstance(item.get(key), str)
    )


def split_tags(found: Ledger, preset: Preset, *, is_marked: bool = False) -> Ledger:
    """The ledger of a stream whose text has tags, as the client must see it.

    Texts are then one run each, since it is free where a delta with a tag is taken apart.
    """
    opening, closing = map(re.escape, preset.tag)
    if preset.tags == "marked":
        opening = f"^{opening}" if is_marked else "(?!)"
    split = dict(found)
    for place in [place for place in found if place.endswith(".delta.content")]:
        index = place.partition(".")[0]
        text = "".join(run or "" for run in found[place])
        thoughts = f"{opening}(.*?)(?:{closing}|$)"
        order: list[list[str]] = []
        for position, piece in enumerate(re.split(thoughts, text, flags=re.DOTALL)):
            if piece:
                add_order(order, ALIAS if position % 2 else "content", piece)
        if order:
            split[f"{index}.order"] = order
        for key in ("content", ALIAS):
            runs = ["".join(piece for kind, piece in order if kind == key)]
            split.pop(f"{index}.delta.{key}", None)
            if runs != [""] or key == "content":
                split[f"{index}.delta.{key}"] = runs
    return split


def one_run(found: Ledger) -> Ledger:
    """The ledger of a client's stream with content and reasoning as one run each, as above."""
    joined = dict(found)
    for place in found:
        key = place.rpartition(".")[2]
        if ".delta." in place and key in ("content", ALIAS):
            text = "".join(run or "" for run in found[place])
            joined[place] = [text]
            if key == ALIAS and not text:
                del joined[place]
    return joined
