"""Canaries: a secret of every kind, put wherever a text can stand, and looked for afterwards."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.secrets import (
    Planted,
    canaries,
    in_base64,
    in_base64url,
    percent,
    percent_light,
    traces,
)

KINDS_MIN = 250
CANARIES = canaries()
TEXTS = [planted.text for planted in CANARIES]
_WAYS = (percent, percent_light, in_base64, in_base64url)
ENCODED = [how(planted).text for how in _WAYS for planted in CANARIES]
TOGETHER = "\n\n".join(TEXTS)
"""All of them in one text; some reach over those behind them."""

_TRACES = {trace: planted.kind for planted in CANARIES for trace in traces(planted)}


def found_in(data: bytes) -> set[str]:
    """The kinds of the secrets that can be read in `data`, as they are or encoded once."""
    return {kind for trace, kind in _TRACES.items() if trace in data}


def found_in_files(*folders: Path) -> dict[str, set[str]]:
    """File → kinds, for every file under these folders that holds a secret."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    found = {str(path): found_in(path.read_bytes()) for path in files}
    return {name: kinds for name, kinds in found.items() if kinds}


def urls(kinds: Iterable[Planted] = CANARIES) -> list[str]:
    """Addresses with the secrets in them: as userinfo, in the query, in the fragment."""
    forms = (
        "https://user:{}@img.example/a.png",
        "https://img.example/a.png?size=1&api_key={}",
        "https://app.example/cb#access_token={}&state=1",
    )
    listed = [planted for planted in kinds if len(planted.core) >= 16]
    return [
        forms[number % len(forms)].format(quote(planted.core, safe=""))
        for number, planted in enumerate(listed)
    ]


def history() -> list[dict[str, Any]]:
    """A conversation with the secrets in every member of a message that holds text."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": TOGETHER}]
    messages += [{"role": "user", "content": f"look: {text}"} for text in TEXTS]
    parts = [{"type": "text", "text": text} for text in TEXTS]
    messages.append({"role": "user", "content": parts, "name": "asker"})
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls()]
    messages.append({"role": "user", "content": images})
    calls = [tool_call(number, {"note": text}) for number, text in enumerate(TEXTS)]
    messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    results = [{"items": [text], "raw": json.dumps({"log": json.dumps([text])})} for text in TEXTS]
    messages += [
        {"role": "tool", "tool_call_id": f"call_{number}", "content": json.dumps(result)}
        for number, result in enumerate(results)
    ]
    thoughts = [
        {"role": "assistant", "content": "so", "reasoning_content": text} for text in TEXTS[::10]
    ]
    return [*messages, *thoughts, {"role": "user", "content": TEXTS[0]}]


def encoded_history() -> list[dict[str, Any]]:
    """The secrets encoded once: percent, base64 and base64url, in messages and in arguments."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": text} for text in ENCODED]
    calls = [tool_call(number, {"blob": text}) for number, text in enumerate(ENCODED[::4])]
    return [*messages, {"role": "assistant", "content": None, "tool_calls": calls}]


def uploads() -> list[dict[str, Any]]:
    """Text files with all secrets, as the protocol carries files: base64, data URLs, bare; of types
    that tell what they are and of types that do not."""
    file = base64.b64encode(TOGETHER.encode()).decode()
    listed = json.dumps({"notes": [{"note": text} for text in TEXTS]}, indent=1)
    table = "".join(f'{number},"{text}"\r\n' for number, text in enumerate(TEXTS))
    urls = [
        _url("application/json", listed.encode()),
        _url("text/csv;charset=utf-8", table.encode()),
        _url("application/octet-stream", TOGETHER.encode("utf-16")),
        _url("text/plain;charset=utf-16le", f"{TOGETHER}.".encode("utf-16-le")),
        f"data:text/html;charset=utf-8,{quote(f'<pre>{TOGETHER}</pre>')}",
    ]
    parts: list[dict[str, Any]] = [
        {"type": "file", "file": {"filename": "env.txt", "file_data": file}},
        {"type": "file", "file": {"file_data": f"data:text/plain;base64,{file}"}},
        {"type": "input_audio", "input_audio": {"data": file, "format": "wav"}},
        {"type": "image_url", "image_url": {"url": f"data:text/plain,{quote(TOGETHER)}"}},
        {"type": "text", "text": f"the file:\n{_wrapped(file)}"},
    ]
    parts += [{"type": "file", "file": {"file_data": url}} for url in urls]
    return [{"role": "user", "content": parts}]


def _url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _wrapped(text: str) -> str:
    return "\r\n".join(text[start : start + 76] for start in range(0, len(text), 76))


def tool_call(number: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool call as it stands in a message."""
    function = {"name": "look_up", "arguments": json.dumps(arguments)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def tools() -> list[dict[str, Any]]:
    """Tool definitions with secrets in descriptions and defaults."""
    return [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number}",
                "description": text,
                "parameters": {"type": "object", "properties": {"a": {"default": text}}},
            },
        }
        for number, text in enumerate(TEXTS)
    ]


def answer() -> dict[str, Any]:
    """A whole answer with secrets in every place a provider has, known or not."""
    calls = [tool_call(number, {"deep": [{"note": text}]}) for number, text in enumerate(TEXTS)]
    message = {
        "role": "assistant",
        "content": TOGETHER,
        "refusal": TOGETHER,
        "reasoning_content": TOGETHER,
        "tool_calls": calls,
        "annotations": [{"type": "url_citation", "url": url, "title": "t"} for url in urls()],
        "unheard_of": TEXTS,
    }
    choice = {"index": 0, "message": message, "finish_reason": TEXTS[3], "extra": {"a": TEXTS}}
    return {
        "id": TEXTS[1],
        "model": TEXTS[2],
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "about": TEXTS},
        "system_fingerprint": TEXTS[4],
        "debug": {"log": json.dumps({"lines": TEXTS})},
    }


def halves(text: str) -> tuple[str, str]:
    """A text cut in the middle."""
    return text[: len(text) // 2], text[len(text) // 2 :]
