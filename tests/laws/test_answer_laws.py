"""What a reply is recorded as, whichever way its usage comes into it."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from everyturn.audit.answer import answer_tree
from everyturn.wire.reader import NonFinite, Num, write, write_text
from everyturn.wire.reply import MISSING, Choice, Missing, Reply

TEXTS = st.text(max_size=8) | st.sampled_from(["é", "\ud800", '"usage":{'])
VALUES = TEXTS | st.sampled_from([0, 12, 1.5, None, True, Num("0.10"), NonFinite("NaN")])
USAGES = st.dictionaries(TEXTS, VALUES | st.dictionaries(TEXTS, VALUES, max_size=2), max_size=4)
BAGS = st.dictionaries(st.sampled_from(["usage", "timings", "x"]), VALUES, max_size=2)


@given(content=TEXTS | st.none(), reasoning=TEXTS | st.just(MISSING), usage=USAGES, bag=BAGS)
@example(content="\ud800", reasoning=MISSING, usage={"é": 1}, bag={})
@example(content="a", reasoning=MISSING, usage={}, bag={"usage": 1})
def test_a_usage_that_was_written_already_stands_in_the_answer_as_it_would(
    content: str | None, reasoning: str | Missing, usage: dict[str, Any], bag: dict[str, Any]
) -> None:
    """The text of the answer is the same as when all of it is written at once."""
    reply = Reply([Choice(0, content=content, reasoning=reasoning)], usage, {"id": "a"}, bag)

    assert write(answer_tree(reply, usage=write_text(usage))) == write(answer_tree(reply))
