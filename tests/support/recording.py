"""Builders for the recorder: facts of a turn, and what it makes of them."""

from __future__ import annotations

import json
from typing import Any

from everyturn.audit.cleaning import Cleaner
from everyturn.audit.content import ContentIndex
from everyturn.audit.facts import CallClosing, CallOpening, TurnOpening
from everyturn.audit.group import Group
from everyturn.audit.recorder import TurnRecorder
from everyturn.audit.records import ContentRef, ModelCall, TurnAudit
from everyturn.audit.redact import Redactor
from everyturn.audit.turn_state import TurnState
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Preset, Target
from everyturn.wire.reply import Reply
from everyturn.wire.stream import read_whole
from tests.support.chat_requests import a_target, encoded

KEY = b"k" * 32
TURN_ID = "6f1d2c3b-4a59-4e68-8f77-0123456789ab"
PRESET = Preset(
    name="p",
    title="P",
    read=("reasoning_content", "reasoning_details", "content_list"),
    finish_failures=("broken",),
)


def a_cleaner() -> Cleaner:
    """The cleaner of a test's installation."""
    return Cleaner(Redactor(KEY), KEY)


def a_reply(
    content: Any = "a", *, target: Target | None = None, usage: Any = None, **message: Any
) -> Reply:
    """A whole reply with one choice; `finish` ends it, other members are the message's."""
    finish = message.pop("finish", "stop")
    body: dict[str, Any] = {
        "id": "c1",
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, **message},
                "finish_reason": finish,
            }
        ],
    }
    if usage is not None:
        body["usage"] = usage
    return reply_of(body, target=target)


def reply_of(body: dict[str, Any], *, target: Target | None = None) -> Reply:
    """The reply that a provider's whole body is read as."""
    raw = json.dumps(body).encode()
    return read_whole(raw, target or a_target(PRESET), Limits(), choices=1)[0]


class Turn:
    """A turn under record, its groups, and its rows as a store would give them back."""

    def __init__(
        self,
        *,
        target: Target | None = None,
        state: TurnState | None = None,
        is_new: bool = False,
    ) -> None:
        self.target = target or a_target(PRESET)
        self.cleaner = a_cleaner()
        self.index = ContentIndex(self.cleaner.version)
        self.recorder = TurnRecorder(
            TurnOpening(
                turn_id=TURN_ID,
                timestamp=1_000,
                trace_id="t" * 32,
                span_id="s" * 16,
                is_new=is_new,
            ),
            cleaner=self.cleaner,
            contents=self.index,
            state=state,
        )
        self.groups: list[Group] = []
        self._texts: dict[bytes, str] = {}
        self._nodes: dict[int, tuple[int | None, bytes]] = {}

    def open(self, call_id: str = "call_1", **members: Any) -> Group:
        """Open a call with a request of these members."""
        request = encoded(self.target, **members)
        return self.keep(
            self.recorder.open_call(
                CallOpening(
                    model_call_id=call_id,
                    timestamp=2_000,
                    span_id="c" * 16,
                    target=self.target,
                    requested_model="m",
                    sent=request.sent,
                    stream=request.stream,
                    reasoning_tags=request.reasoning_tags,
                )
            )
        )

    def close(self, **facts: Any) -> Group:
        """Close the call and the turn."""
        facts = {"stream_state": "whole", "status_code": 200, "latency_ms": 1.5, **facts}
        return self.keep(self.recorder.close_turn(duration_ms=2.0, call=CallClosing(**facts)))

    def keep(self, group: Group) -> Group:
        """Take up a group as a store does."""
        self.groups.append(group)
        self._texts |= {content.address: content.text for content in group.contents}
        self._nodes |= {node.node: (node.parent, node.address) for node in group.nodes}
        self.index.confirm(group)
        return group

    @property
    def call(self) -> ModelCall:
        """The newest row of a call."""
        rows = [r for g in self.groups for r in g.records if isinstance(r, ModelCall)]
        return rows[-1]

    @property
    def turn(self) -> TurnAudit:
        """The newest row of the turn."""
        rows = [r for g in self.groups for r in g.records if isinstance(r, TurnAudit)]
        return rows[-1]

    def listed(self, reference: Any) -> list[Any]:
        """The items behind a reference."""
        assert isinstance(reference, ContentRef)
        items: list[Any] = []
        node: int | None = reference.node
        while node is not None:
            node, address = self._nodes[node]
            items.append(json.loads(self._texts[address]))
        return items[::-1]

    @property
    def at_rest(self) -> str:
        """Everything that was given to the store, as one text."""
        return repr(self.groups)
