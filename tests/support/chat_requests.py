"""Builders for requests and targets: say what matters in a test, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from everyturn.wire.dialects.openai_chat import Encoded, encode
from everyturn.wire.preset import Preset, Target, target_of
from everyturn.wire.request import ChatRequest, parse_chat_request

BASE_URL = "http://127.0.0.1:9/v1"
KEY = "sk-test-FAKE"


def a_body(**members: Any) -> dict[str, Any]:
    """A plain request body with further or other members."""
    return {"model": "m", "messages": [{"role": "user", "content": "q"}], **members}


def a_request(**members: Any) -> ChatRequest:
    """The request that `a_body` is read as."""
    return parse_chat_request(json.dumps(a_body(**members)).encode())


def a_target(preset: Preset | None = None, /, **narrowed: Any) -> Target:
    """A target of a preset; what `Preset` has goes there, all else narrows the target."""
    facts = {key: narrowed.pop(key) for key in list(narrowed) if key in _PRESET_ONLY}
    base = preset or Preset(name="p", title="P", **facts)
    return replace(target_of(base, name="m", base_url=BASE_URL), **narrowed)


_PRESET_ONLY = frozenset(Preset.__dataclass_fields__) - {
    "base_url",
    "query",
    "auth_header",
    "tags",
    "tag",
}


def sent(target: Target, **members: Any) -> dict[str, Any]:
    """The tree that goes to the target for a request with these members."""
    return encoded(target, **members).sent


def encoded(target: Target, **members: Any) -> Encoded:
    """What a request with these members is encoded to; the body is the text of the tree."""
    result = encode(a_request(**members), target, api_key=KEY)
    assert json.loads(result.body) == json.loads(json.dumps(result.sent))
    return result
