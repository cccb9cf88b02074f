"""A provider's errors, in all the shapes they come in, as typed failures.

Shapes: `{"error": {…}}`, `{"error": "text"}`, an array with one of these, and `code` with
`message` (or `detail`) at the top level. What the provider said stands as sent; the code is ours,
theirs is kept as `upstream_code`. A refusal of the operator's own credentials says nothing of them.
"""

from __future__ import annotations

from typing import Any

from everyturn.errors import Failure, UpstreamError, UpstreamRejected
from everyturn.wire.reader import Malformed, read_provider
from everyturn.wire.reasoning import is_empty


def status_failure(status: int, body: bytes, *, retry_after_ms: int | None = None) -> Failure:
    """The failure of an HTTP answer with an error status, whatever its body is."""
    try:
        tree: Any = read_provider(body).value
    except Malformed:
        tree = None
    error, rest = _error_of(tree)
    if status in (401, 403):
        return UpstreamError(
            f"the provider refused the gateway's credentials (status {status})",
            hint="The operator should check the API key that `api_key_env` names.",
        )
    said = f"the provider answered with status {status}"
    extra = _extra(error) if error is not None else {}
    if 400 <= status < 500:
        return UpstreamRejected(
            said, status=status, extra=extra, frame_extra=rest, retry_after_ms=retry_after_ms
        )
    return UpstreamError(said, extra=extra, frame_extra=rest, retry_after_ms=retry_after_ms)


def reported_failure(tree: Any) -> Failure | None:
    """The failure that a frame, or a body with a good status, reports; None if it reports none.

    What else it says is in `frame_extra`, as the provider sent it.
    """
    error, rest = _error_of(tree)
    return None if error is None else _failure(error, rest)


def line_failure(value: bytes) -> Failure:
    """The failure of an `error:` line, or of an `event: error` whose data is no error envelope."""
    try:
        tree: Any = read_provider(value).value
    except Malformed:
        tree = value.decode("utf-8", "replace")
    error, rest = _error_of(tree)
    if error is None:
        error, rest = tree, {}
    return _failure(error, rest)


def _failure(error: Any, rest: dict[str, Any]) -> Failure:
    status = _status_of(error, rest)
    said = "the provider sent an error"
    if status in (401, 403):
        return UpstreamError(
            f"the provider refused the gateway's credentials (code {status})",
            hint="The operator should check the API key that `api_key_env` names.",
        )
    if status is not None and status < 500:
        return UpstreamRejected(said, status=status, extra=_extra(error), frame_extra=rest)
    return UpstreamError(said, status=status, extra=_extra(error), frame_extra=rest)


def _error_of(tree: Any) -> tuple[Any, dict[str, Any]]:
    """The error inside a body, and the members beside it; (None, {}) where there is none."""
    if isinstance(tree, list) and tree:
        return _error_of(tree[0])
    if not isinstance(tree, dict):
        return None, {}
    error = tree.get("error")
    if not is_empty(error):
        rest = {key: value for key, value in tree.items() if key != "error"}
        if isinstance(error, str) and "code" in rest:
            # xAI's shape: the code stands beside the text.
            error = {"message": error, "code": rest.pop("code")}
        return error, rest
    if "choices" in tree:
        return None, {}
    if "message" in tree and ("code" in tree or tree.get("object") == "error"):
        return tree, {}
    if "detail" in tree:
        return tree, {}
    return None, {}


def _extra(error: Any) -> dict[str, Any]:
    """The provider's error members as they stand in ours; those that we set get a name of theirs.

    A message that is no string stands as `upstream_message`.
    """
    members = dict(error) if isinstance(error, dict) else {"message": error}
    for key in ("code", "hint"):
        if key in members:
            members[f"upstream_{key}"] = members.pop(key)
    message = members.get("message") or members.get("detail")
    if not isinstance(message, str):
        if not is_empty(message):
            members["upstream_message"] = message
        message = "the provider sent an error"
    return {**members, "message": message}


def _status_of(error: Any, rest: dict[str, Any]) -> int | None:
    """An integer code between 400 and 599; None where there is none."""
    places = [error, rest] if isinstance(error, dict) else [rest]
    for place in places:
        for key in ("code", "status_code", "status"):
            value = place.get(key)
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
                return value
    return None
