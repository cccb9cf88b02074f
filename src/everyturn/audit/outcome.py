"""How a turn ended, derived from how its last call ended (sections 4 and 5 of the HTTP reference).

Pure. Applies to turns that only the gateway saw; what an application or a person says outweighs it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from everyturn.audit.records import FailureType, Outcome
from everyturn.errors import Failure
from everyturn.wire.preset import Target
from everyturn.wire.reply import Reply

LENGTH_FINISHES: Final = ("length", "model_length", "max_tokens")
"""Finish values that say the answer stopped at a limit. `model_length` is Mistral's."""


class Ending(NamedTuple):
    """What the turn row says at its end."""

    outcome: Outcome
    failure_type: FailureType
    error_code: str | None


_SUCCESS: Final = Ending("success", "none", None)


def ending_of(
    *,
    reply: Reply | None,
    failure: Failure | None,
    target: Target | None,
    is_client_gone: bool,
    is_shown: bool,
    is_complete: bool,
) -> Ending:
    """The ending of a turn.

    failure: what the client was told; None when nothing went wrong, or nobody was there to tell.
    target: of the last call; None when no call was made.
    is_client_gone: the client left before its answer ended.
    is_shown: some of the answer reached the client.
    is_complete: the provider's answer came to its legal ending.
    """
    if failure is not None:
        kind: FailureType = failure.failure_type  # type: ignore[assignment]
        return Ending("partial" if is_shown else "failure", kind, failure.code)
    if not is_complete or reply is None:
        return Ending("abandoned" if is_client_gone else "failure", "none", None)
    is_filtered = is_at_limit = False
    for choice in reply.choices:
        finish = choice.finish_reason
        if target is not None and finish in target.preset.finish_failures:
            return Ending("failure", "provider_error", None)
        is_filtered = is_filtered or finish == "content_filter"
        is_at_limit = is_at_limit or finish in LENGTH_FINISHES
    if reply.is_refused:
        return Ending("refused", "policy_error" if is_filtered else "none", None)
    return Ending("partial", "none", None) if is_at_limit else _SUCCESS
