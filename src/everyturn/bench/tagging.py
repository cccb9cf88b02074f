"""Which run and cell a turn belongs to: told to the gateway by the SDK, like any application does.

The turn of a row then carries the run as `chat_id`, the grid's name as `project_id`, the cell as
`variant` and `bench` as `origin`. It is told in the background and after the row; a row never waits
for it. How a turn ended stays what the gateway found out. What judges say is told as reviews.
"""

from __future__ import annotations

import os

from everyturn import ids
from everyturn.bench.asking import Conversation
from everyturn.bench.client import Span
from everyturn.bench.manifest import Manifest
from everyturn.bench.votes import Judgement
from everyturn.errors import InvalidValue
from everyturn.sdk import configure, review, turn


def tell_turns_to(gateway: str, api_key: str | None) -> bool:
    """Set the SDK up for a gateway's base URL; whether turns can be told to it.

    They cannot where the URL has no `/v1` at its end, or is plain HTTP to another host, over which
    the SDK sends no records unless it is told to.
    """
    if not gateway.endswith("/v1"):
        return False
    try:
        configure(url=gateway.removesuffix("/v1"), api_key=api_key)
    except InvalidValue:
        return False
    return True


def tell_review(one: Judgement, rubric_version: str) -> None:
    """Tell the gateway what a judge finally said of a row's turn, as a review of it."""
    if one.turn_id is None or one.verdict is None:
        return
    review(
        one.turn_id,
        source="llm-judge",
        correctness=float(one.verdict == "correct"),
        notes=f"{one.label}: {one.rationale}",
        rubric_version=rubric_version,
        reviewer=one.judge,
    )


def new_trace_id() -> str:
    """A trace of its own."""
    return ids.trace_id(int.from_bytes(os.urandom(16)))


def new_conversation(
    item_id: str, epoch: int, manifest: Manifest, cell: str | None
) -> Conversation:
    """A row's conversation with new ids. cell: what its turn is tagged with; None for no tags."""
    if cell is None:
        return Conversation(Span(ids.generate_turn_id(), new_trace_id()), item_id, epoch)
    tagged = turn(
        chat_id=manifest.run_id, project_id=manifest.grid.name, variant=cell, origin="bench"
    )
    talk = Conversation(Span(tagged.id, tagged.trace_id), item_id, epoch)
    talk.turn = tagged
    return talk
