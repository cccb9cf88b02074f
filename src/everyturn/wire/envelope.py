"""The ids that a request carries in its body, for clients that cannot set headers.

`"everyturn": {"turn_id", "trace_id", "request_id"}` at the top level of a request. It is ours: read
strictly, and taken out, so that no provider sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from everyturn import ids
from everyturn.errors import InvalidValue, UnknownParameter
from everyturn.wire.reader import key_name

KEY: Final = "everyturn"

_CHECKS: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "turn_id": (ids.is_turn_id, "a UUID version 4 in lower case"),
    "trace_id": (ids.is_trace_id, "32 lower-case hex digits, not all zero"),
    "request_id": (ids.is_request_id, "1 to 128 letters, digits and `._:/+=@-`"),
}


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The ids that a client named; None: it did not name that one."""

    turn_id: str | None = None
    """The turn this request is part of."""
    trace_id: str | None = None
    """The trace this request is part of; it names no span as its parent."""
    request_id: str | None = None


def take_envelope(body: dict[str, Any]) -> Envelope | None:
    """Remove the envelope from a request's tree and read it; None where there is none.

    Raises InvalidValue and UnknownParameter, with the path of what is wrong.
    """
    if KEY not in body:
        return None
    given = body.pop(KEY)
    if type(given) is not dict:
        raise InvalidValue(f"`{KEY}` must be an object.", param=KEY)
    for name, value in given.items():
        path = f"{KEY}.{key_name(name)}"
        if name not in _CHECKS:
            raise UnknownParameter(
                f"`{path}` is not known.",
                param=path,
                hint=f"The envelope holds {', '.join(_CHECKS)} and nothing else.",
            )
        is_valid, form = _CHECKS[name]
        if value is not None and not (type(value) is str and is_valid(value)):
            raise InvalidValue(
                f"`{path}` must be {form}, or null.",
                param=path,
                hint="Leave it out, or send it as it was received.",
            )
    return Envelope(**given)
