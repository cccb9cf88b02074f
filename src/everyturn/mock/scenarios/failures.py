"""Errors in the shapes and statuses that providers use, and answers that are none.

Shapes: the evidence named in each preset. Each is the same for a whole and a streamed request,
unless its title says otherwise.
"""

from __future__ import annotations

from email.utils import formatdate
from typing import Any, Final

from everyturn.mock.scenario import Ask, Play, Scenario
from everyturn.mock.script import Headers, Script
from everyturn.mock.speech import ANSWER, DONE, Speech, envelope, frame, streamed, whole

HTML: Final = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n"
    b"<body><h1>Bad Gateway</h1><p>The orchard did not answer.</p></body></html>\n"
)
QUOTA_HEADERS: Final = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "1s",
}
RETRY_SECONDS: Final = 30
"""How far in the future the date of `error-429-date` lies."""


def error(message: str, code: str | int | None, kind: str = "invalid_request_error") -> Any:
    """OpenAI's error envelope."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def refusing(status: int, body: Any, headers: Headers = ()) -> Play:
    """An answer with this status and body, for both kinds of request."""
    return lambda ask: whole(ask.name, body, status=status, headers=dict(headers))


def _with_date(ask: Ask) -> Script:
    """`retry-after` as a date, and the `date` it counts from, both by the provider's clock."""
    headers = {
        **QUOTA_HEADERS,
        "date": formatdate(ask.now, usegmt=True),
        "retry-after": formatdate(ask.now + RETRY_SECONDS, usegmt=True),
    }
    body = error("Too many pears at once.", "rate_limit_exceeded", "requests")
    return whole(ask.name, body, status=429, headers=headers)


def _key_required(ask: Ask) -> Script:
    if ask.request.header("authorization"):
        return Speech()(ask)
    body = error("You did not provide an API key.", None)
    return whole(ask.name, body, status=401, headers={"www-authenticate": "Bearer"})


def _html_page(ask: Ask) -> Script:
    return whole(ask.name, HTML, headers={"content-type": "text/html; charset=utf-8"})


def _wrong_type(ask: Ask) -> Script:
    """The right bytes under the wrong name."""
    told = {"content-type": "text/html"}
    return Script.pair(
        whole=whole(ask.name, Speech().body(ask.name), headers=told),
        stream=streamed(ask.name, Speech().frames(ask.name), headers=told),
    )


def _both_ways(body: Any) -> Play:
    """Status 200 with this body; as the only event of a stream where one was asked for."""
    return lambda ask: Script.pair(
        whole=whole(ask.name, body), stream=streamed(ask.name, [frame(body), DONE])
    )


def _other_shape(ask: Ask) -> Script:
    """What an embedding request would get; in a stream, the events of another API."""
    vectors = {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5, 0.125]}],
        "model": "mock-other-shape",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_mock", "status": "in_progress"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": ANSWER},
        {"type": "response.completed", "response": {"id": "resp_mock", "status": "completed"}},
    ]
    named = [b"event: %b\n%b" % (str(e["type"]).encode(), frame(e)) for e in events]
    return Script.pair(whole=whole(ask.name, vectors), stream=streamed(ask.name, named))


ERROR_200: Final = error("The provider behind the provider is down.", 502, "upstream")

SCENARIOS: Final = (
    Scenario(
        name="error-400",
        title="400: the request is at fault.",
        play=refusing(400, error("`temperature` must be at most 2.", "invalid_value")),
    ),
    Scenario(
        name="error-401",
        title="401: the key is wrong; the message repeats a part of it.",
        play=refusing(
            401, error("Incorrect API key provided: sk-FAKE*******cret.", "invalid_api_key")
        ),
    ),
    Scenario(
        name="error-403",
        title="403: the key may not.",
        play=refusing(403, error("Your project may not pick pears.", "forbidden")),
    ),
    Scenario(
        name="error-404",
        title="404: no such model at the provider.",
        play=refusing(404, error("The model `pear-9` does not exist.", "model_not_found")),
    ),
    Scenario(
        name="error-429",
        title="429 with `retry-after` in seconds and rate-limit headers.",
        play=refusing(
            429,
            error("Too many pears at once.", "rate_limit_exceeded", "requests"),
            {**QUOTA_HEADERS, "retry-after": "2", "retry-after-ms": "1500"},
        ),
    ),
    Scenario(
        name="error-429-date",
        title=f"429 with `retry-after` as a date, {RETRY_SECONDS} seconds ahead.",
        play=_with_date,
        varies=True,
    ),
    Scenario(
        name="error-500",
        title="500 with an error object.",
        play=refusing(500, error("The ladder broke.", None, "server_error")),
    ),
    Scenario(
        name="error-502-html",
        title="502 with a page of HTML, as a proxy in between sends it.",
        play=refusing(502, HTML, {"content-type": "text/html"}),
    ),
    Scenario(
        name="error-503",
        title="503 with `retry-after` and an empty body.",
        play=refusing(503, b"", {"retry-after": "1"}),
    ),
    Scenario(
        name="error-529",
        title="529, a status that is in no register.",
        play=refusing(529, error("Overloaded.", "overloaded_error", "overloaded_error")),
    ),
    Scenario(
        name="error-array",
        title="400 with the error inside a list.",
        preset="gemini-openai",
        play=refusing(
            400,
            [{"error": {"code": 400, "message": "Unknown pear.", "status": "INVALID_ARGUMENT"}}],
        ),
    ),
    Scenario(
        name="error-flat",
        title="400 with code and message at the top and `data` null.",
        play=refusing(400, {"code": 20015, "message": "The pear is not ripe.", "data": None}),
    ),
    Scenario(
        name="error-string",
        title="400 with the error as a string.",
        preset="xai",
        play=refusing(400, {"code": "invalid-argument", "error": "Unknown pear: `Williams`."}),
    ),
    Scenario(
        name="error-200",
        title="Status 200 with an error body; in a stream, the error as the only event.",
        preset="openrouter",
        play=_both_ways(ERROR_200),
    ),
    Scenario(
        name="error-200-json",
        title="Status 200 with an error body as JSON, to a streamed request too.",
        preset="openrouter",
        play=refusing(200, ERROR_200),
    ),
    Scenario(
        name="no-choices",
        title="Status 200 with an empty list of choices.",
        play=lambda ask: _both_ways(envelope(ask.name, []))(ask),
    ),
    Scenario(
        name="empty-body",
        title="Status 200 without a single byte of body.",
        play=lambda ask: Script.pair(whole=whole(ask.name, b""), stream=streamed(ask.name, [])),
    ),
    Scenario(
        name="no-events",
        title="A stream of comments and nothing else; whole, JSON `null`.",
        play=lambda ask: Script.pair(
            whole=whole(ask.name, b"null"), stream=streamed(ask.name, [b": one\n\n", b": two\n\n"])
        ),
    ),
    Scenario(
        name="other-shape",
        title="An answer to another kind of request.",
        play=_other_shape,
    ),
    Scenario(
        name="html",
        title="Status 200 with a page of HTML.",
        play=_html_page,
    ),
    Scenario(
        name="wrong-type",
        title="The right bytes with the content type `text/html`.",
        play=_wrong_type,
    ),
    Scenario(
        name="redirect",
        title="307 to another place.",
        play=refusing(307, b"", {"location": "http://127.0.0.1:9/v1/chat/completions"}),
    ),
    Scenario(
        name="key-required",
        title="An ordinary answer, but 401 without an `authorization` header.",
        play=_key_required,
        varies=True,
    ),
)
