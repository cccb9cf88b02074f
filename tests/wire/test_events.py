from __future__ import annotations

from typing import get_args

import pytest

from everyturn.wire import events as ev
from everyturn.wire.reply import Fold, Reply


@pytest.mark.parametrize("kind", get_args(ev.Event))
def test_an_event_cannot_be_changed(kind: type) -> None:
    """Events are facts: each kind is frozen and compares by its members."""
    members = dict.fromkeys(kind.__match_args__, 0) if kind.__match_args__ else {}
    event = kind(**members)

    assert event == kind(**members)
    for name in members:
        with pytest.raises(AttributeError):
            setattr(event, name, 1)


def test_a_fragment_says_only_what_it_says() -> None:
    """A tool-call fragment without members says nothing of them."""
    fold = Fold()
    fold.add(ev.ToolCallDelta(0, 3))

    reply = fold.reply()

    assert isinstance(reply, Reply)
    (call,) = reply.choices[0].tool_calls
    assert (call.index, call.id, call.type, call.name, call.arguments) == (
        3,
        None,
        None,
        None,
        None,
    )
