"""OpenAI clients that send the ids of the turn they are used in, call by call.

Needs no OpenAI package: it relies on two things that its clients have, `copy()` and the hook
`_prepare_request(request)`, which their source offers for adding headers to a request.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from everyturn.errors import InvalidValue
from everyturn.sdk.calls import is_coroutine_function
from everyturn.sdk.spans import CURRENT

C = TypeVar("C")


def with_headers(client: C) -> C:
    """A copy of an OpenAI client (sync or async) whose requests carry the headers of their turn.

    The client given is not changed; both use the same connections. Headers that a call gives
    itself (`extra_headers`) stay. Outside of a turn nothing is added. Only for clients of a
    gateway or of your own services: it sends your ids to whom the client speaks to.
    Raises InvalidValue for what is not such a client.
    """
    known: Any = client
    if not callable(getattr(known, "copy", None)) or not callable(
        getattr(known, "_prepare_request", None)
    ):
        raise InvalidValue(
            "this is not a client of the OpenAI package",
            param="client",
            hint="Send `turn.headers()` with each request instead.",
        )
    copied = known.copy()
    copied.__class__ = _carrying(type(known))
    return copied  # type: ignore[no-any-return]


_KINDS: Final[dict[type[Any], type[Any]]] = {}
"""Class of a client → the class of its copies that carry headers."""


def _carrying(kind: type[Any]) -> type[Any]:
    """The client's class with the hook filled in; copies of a copy keep it."""
    if getattr(kind, "_everyturn_carries", False):
        return kind
    if kind not in _KINDS:
        _KINDS[kind] = _derived(kind)
    return _KINDS[kind]


def _derived(kind: type[Any]) -> type[Any]:
    original = kind._prepare_request

    if is_coroutine_function(original):

        async def prepare_async(self: Any, request: Any) -> None:
            await original(self, request)
            _add_headers(request)

        hook: Any = prepare_async
    else:

        def prepare(self: Any, request: Any) -> None:
            original(self, request)
            _add_headers(request)

        hook = prepare
    members = {
        "_prepare_request": hook,
        "_everyturn_carries": True,
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
    }
    return type(kind.__name__, (kind,), members)


def _add_headers(request: Any) -> None:
    span = CURRENT.get()
    if span is None:
        return
    for name, value in span.headers().items():
        if name not in request.headers:
            request.headers[name] = value
