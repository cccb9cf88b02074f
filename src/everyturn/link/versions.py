"""The versions of the worker protocol, and what each can carry.

Both ends keep the versions they speak as values. The gateway picks the highest that both have, and
it holds for the whole link. What the version at hand cannot carry fails its call; nothing is left
out so that the rest may pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from everyturn.link.messages import Call, Operation


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the protocol."""

    number: int
    operations: tuple[Operation, ...]
    """What may be asked of a target."""
    has_query: bool
    """Whether a call may have query parameters."""

    def lack(self, call: Call) -> str | None:
        """What of `call` this version cannot carry; None if it carries all of it."""
        if call.operation not in self.operations:
            return f"the operation {call.operation}"
        if call.query and not self.has_query:
            return "query parameters"
        return None


VERSIONS: Final = (Version(number=1, operations=("chat.completions", "models"), has_query=True),)
"""What this release speaks, oldest first."""


def highest_common(ours: Iterable[Version], theirs: Iterable[int]) -> Version | None:
    """The highest of our versions that the peer speaks too; None if there is none."""
    numbers = set(theirs)
    return max(
        (version for version in ours if version.number in numbers),
        key=lambda version: version.number,
        default=None,
    )
