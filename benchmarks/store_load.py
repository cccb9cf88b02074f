"""Records as a gateway makes them, for the benchmarks of the store."""

from __future__ import annotations

import json
import random
import string
import uuid
from typing import Any

import msgspec

from everyturn.audit.content import ContentIndex
from everyturn.audit.group import Group
from everyturn.audit.records import AccessEvent, ModelCall, TurnAudit
from everyturn.audit.redact import NONE_FOUND, Redacted
from everyturn.ids import record_id, span_id, trace_id

_START = 1_764_000_000_000_000
_VERSION = "bench00001"


def _as_is(raw: bytes) -> Redacted[str]:
    return Redacted(raw.decode(), NONE_FOUND)


class Conversation:
    """One client that sends its history again with every turn."""

    def __init__(
        self, draw: random.Random, *, message_bytes: int = 1024, index: ContentIndex | None = None
    ) -> None:
        self._draw = draw
        self._message_bytes = message_bytes
        self._history: list[dict[str, Any]] = []
        self.index = index or ContentIndex(_VERSION)
        self._now = _START + draw.randrange(10**9)
        self._turn: TurnAudit | None = None
        self._call: ModelCall | None = None

    def _text(self) -> str:
        """Words that do not repeat; the message around them has `message_bytes` bytes."""
        frame = len('{"role":"user","content":""}')
        words: list[str] = []
        length = 0
        while length < self._message_bytes - frame:
            word = "".join(self._draw.choices(string.ascii_lowercase, k=self._draw.randint(2, 9)))
            words.append(word)
            length += len(word) + 1
        return " ".join(words)[: self._message_bytes - frame]

    def request_body(self) -> bytes:
        """The body of the last request."""
        return msgspec.json.encode({"model": "bench", "messages": self._history[:-1]})

    def open_turn(self) -> Group:
        """The group that is committed before the provider is asked."""
        draw = self._draw
        self._now += 1_500_000
        text = self._text()
        self._history.append({"role": "user", "content": text})
        items = [msgspec.json.encode(message) for message in self._history]
        messages = self.index.refer(items, _as_is)
        trace, span = trace_id(draw.getrandbits(128)), span_id(draw.getrandbits(64))
        turn_id = str(uuid.UUID(int=draw.getrandbits(128), version=4))
        self._turn = TurnAudit(
            turn_id=turn_id,
            timestamp=self._now,
            service="everyturn",
            environment="production",
            trace_id=trace,
            span_id=span,
            request_id=record_id("req", draw.getrandbits(128)),
            principal="local",
            user_text=text,
            redaction_applied=True,
            redaction_rules_version=_VERSION,
        )
        self._call = ModelCall(
            model_call_id=self._id("call"),
            turn_id=turn_id,
            trace_id=trace,
            span_id=span_id(draw.getrandbits(64)),
            parent_span_id=span,
            timestamp=self._now,
            provider_id="openai-chat",
            provider_type="openai_chat",
            base_url="https://api.example.com/v1",
            model_registry_id="bench",
            requested_model="bench",
            route_name="bench",
            transport="direct",
            stream=False,
            prompt_messages_json=messages.ref,
            parameters_json='{"model":"bench"}',
            redaction_applied=True,
            redaction_rules_version=_VERSION,
        )
        return Group(
            records=(self._turn, self._call),
            contents=messages.contents,
            nodes=messages.nodes,
            known=messages.known,
        )

    def close_turn(self) -> Group:
        """The group that is committed before the last bytes of the answer leave."""
        assert self._turn is not None
        assert self._call is not None
        turn, call, draw = self._turn, self._call, self._draw
        text = self._text()
        self._history.append({"role": "assistant", "content": text})
        usage = {
            "prompt_tokens": draw.randint(100, 90_000),
            "completion_tokens": draw.randint(10, 900),
            "total_tokens": draw.randint(100, 90_000),
            "prompt_tokens_details": {"cached_tokens": draw.randint(0, 9_000)},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }
        provider_id = "chatcmpl-" + "".join(draw.choices(string.ascii_letters, k=29))
        closed_call = msgspec.structs.replace(
            call,
            served_model_name="bench-2026-01-01",
            response_json=json.dumps(
                {
                    "id": provider_id,
                    "object": "chat.completion",
                    "created": self._now // 1_000_000,
                    "model": "bench-2026-01-01",
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": text, "refusal": None},
                            "finish_reason": "stop",
                        }
                    ],
                    "usage": usage,
                    "system_fingerprint": "fp_0123456789",
                },
                separators=(",", ":"),
            ),
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            total_tokens=usage["total_tokens"],
            reasoning_tokens=0,
            cache_read_tokens=1024,
            usage_json=json.dumps(usage, separators=(",", ":")),
            cost_estimate=0.01234,
            price_source="genai-prices",
            price_version="0.2.3",
            latency_ms=1234.567,
            time_to_first_token_ms=234.567,
            finish_reason="stop",
            stream_state="whole",
            status_code=200,
            upstream_status=200,
            provider_request_id=provider_id,
            upstream_ms=1230.123,
            revision=2,
        )
        closed_turn = msgspec.structs.replace(
            turn,
            assistant_text=text,
            outcome="success",
            duration_ms=1236.789,
            model_call_count=1,
            tool_call_count=0,
            cost_estimate=0.01234,
            revision=2,
        )
        access = AccessEvent(
            access_id=self._id("acc"),
            timestamp=turn.timestamp,
            service="everyturn",
            instance="gateway-1",
            environment="production",
            request_id=turn.request_id,
            trace_id=turn.trace_id,
            span_id=turn.span_id,
            turn_id=turn.turn_id,
            principal="local",
            method="POST",
            path_template="/v1/chat/completions",
            status_code=200,
            duration_ms=1237.123,
            request_size_bytes=len(text) * len(self._history),
            response_size_bytes=len(text) + 400,
            client_type="openai-python",
            redaction_applied=True,
            redaction_rules_version=_VERSION,
        )
        return Group(records=(closed_call, closed_turn, access))

    def _id(self, prefix: str) -> str:
        return record_id(prefix, self._now << 64 | self._draw.getrandbits(64))
