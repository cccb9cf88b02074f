"""The record types: what a row of each log holds.

The schema, once: names and order of the fields are the contract of every store, export and API.
`schema` turns these types into tables; nothing here knows how a row rests. A further log is a type
here, an entry in `schema.LOGS` and a migration number.

Values: `timestamp` and `created_at` are integer microseconds since 1970 in UTC, `*_ms` are
milliseconds and may have a fraction, `*_json` is JSON text. None means not reported; zero means
reported as zero.

A turn or a call is appended when it opens (revision 1) and again when it closes (revision 2 and
on), each time as the whole row. Record ids other than turn ids should grow with time, as
`ids.time_id` makes them: stores keep their index by id and a growing id is written beside the one
before it.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SCHEMA_VERSION: Final = 4
"""The version of these types that a row says it was written under."""

Outcome = Literal["success", "partial", "failure", "refused", "abandoned"]
OUTCOMES: Final = ("success", "partial", "failure", "refused", "abandoned")

FailureType = Literal[
    "none",
    "routing",
    "tool_misuse",
    "hallucination",
    "format_error",
    "timeout",
    "provider_error",
    "adapter_error",
    "rag_miss",
    "policy_error",
    "unknown",
]

HumanReviewStatus = Literal["none", "queued", "in_review", "reviewed"]
HUMAN_REVIEW_STATUSES: Final = ("none", "queued", "in_review", "reviewed")

StreamState = Literal["whole", "complete", "missing_done", "cut", "cancelled", "error"]
STREAM_STATES: Final = ("whole", "complete", "missing_done", "cut", "cancelled", "error")

Transport = Literal["direct", "worker", "replay", "external"]
TRANSPORTS: Final = ("direct", "worker", "replay", "external")

ToolFamily = Literal["adapter", "mcp", "rag", "internal", "external-http"]
TOOL_FAMILIES: Final = ("adapter", "mcp", "rag", "internal", "external-http")

ToolStatus = Literal["ok", "error", "timeout", "cancelled", "partial"]
TOOL_STATUSES: Final = ("ok", "error", "timeout", "cancelled", "partial")

ReviewSource = Literal["human", "eval", "heuristic", "llm-judge"]
REVIEW_SOURCES: Final = ("human", "eval", "heuristic", "llm-judge")

REDACTIONS_NONE: str = "{}"
"""`redactions_json` of a row in which no rule found anything. Not `Final`, which compiled code
copies: JSON leaves a default out where the value is that very object."""


class ContentRef(msgspec.Struct, frozen=True, gc=False):
    """A JSON array that rests as content: the prefix node of its last item.

    Stands in `prompt_messages_json` and `tools_json` on the way to a store; a reader gives text.
    """

    node: int


class AccessEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One HTTP request, whether or not a turn came of it. No bodies, headers or query strings."""

    access_id: str
    timestamp: int
    """When the request's head was read."""
    service: str | None = None
    instance: str | None = None
    environment: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    turn_id: str | None = None
    """The turn that came of it; None if none did."""
    principal: str | None = None
    method: str | None = None
    path_template: str | None = None
    """The route, never the path as sent."""
    status_code: int | None = None
    """What was answered; None when the client left before an answer."""
    duration_ms: float | None = None
    request_size_bytes: int | None = None
    response_size_bytes: int | None = None
    client_type: str | None = None
    error_code: str | None = None
    revision: int = 1
    schema_version: int = SCHEMA_VERSION
    redaction_applied: bool = False
    """Whether the rules ran over this row."""
    redaction_rules_version: str | None = None
    redactions_json: str = REDACTIONS_NONE
    """Rule → how often it found something."""


class TurnAudit(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One turn, from what the gateway saw and what the application says of it (see `merge`).

    Open while only the gateway told of it and neither outcome nor duration is known.
    """

    turn_id: str
    timestamp: int
    """When the turn opened."""
    project_id: str | None = None
    chat_id: str | None = None
    plugin: str | None = None
    service: str | None = None
    environment: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    request_id: str | None = None
    principal: str | None = None
    user_message_id: str | None = None
    assistant_message_id: str | None = None
    user_text: str | None = None
    """Text of the last user message; any string, NUL and lone surrogates included."""
    assistant_text: str | None = None
    """Visible text of the answer, never reasoning; any string."""
    outcome: Outcome | None = None
    failure_type: FailureType = "none"
    error_code: str | None = None
    duration_ms: float | None = None
    model_call_count: int | None = None
    tool_call_count: int | None = None
    retrieval_count: int | None = None
    cost_estimate: float | None = None
    """US dollars; None when a price is not known."""
    prompt_id: str | None = None
    prompt_version: str | None = None
    variant: str | None = None
    human_review_status: HumanReviewStatus = "none"
    origin: str | None = None
    attributes_json: str | None = None
    revision: int = 1
    schema_version: int = SCHEMA_VERSION
    redaction_applied: bool = False
    redaction_rules_version: str | None = None
    redactions_json: str = REDACTIONS_NONE
    sources_by_field_json: str | None = None
    """Field → `application` or `gateway`; None while the gateway is the only source."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One attempt at a provider. Open while `stream_state` is None."""

    model_call_id: str
    turn_id: str
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    attempt: int = 1
    """1 for the first try of the turn's request."""
    fallback_of: str | None = None
    """The `model_call_id` this one stands in for."""
    timestamp: int
    """When the call opened."""
    provider_id: str | None = None
    """The preset."""
    provider_type: str | None = None
    """The dialect."""
    base_url: str | None = None
    model_registry_id: str | None = None
    """The entry in the configuration."""
    requested_model: str | None = None
    served_model_name: str | None = None
    route_name: str | None = None
    transport: Transport | None = None
    stream: bool | None = None
    """Whether the provider was asked for a stream."""
    temperature: float | None = None
    max_tokens: int | None = None
    prompt_messages_json: str | ContentRef | None = None
    """The messages that were sent, redacted."""
    tools_json: str | ContentRef | None = None
    parameters_json: str | None = None
    """Every other member of the body that was sent."""
    response_json: str | None = None
    """What came back, redacted; None until the call closes, and when nothing came."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    usage_json: str | None = None
    cost_estimate: float | None = None
    price_source: str | None = None
    price_version: str | None = None
    latency_ms: float | None = None
    time_to_first_token_ms: float | None = None
    finish_reason: str | None = None
    stream_state: StreamState | None = None
    cache_hit: bool | None = None
    status_code: int | None = None
    """What the client was answered."""
    upstream_status: int | None = None
    provider_request_id: str | None = None
    error_code: str | None = None
    error_json: str | None = None
    flags_json: str | None = None
    reasoning_carrier: str | None = None
    reasoning_chars: int | None = None
    """Unicode code points of reasoning."""
    drift_json: str | None = None
    worker: str | None = None
    queue_ms: float | None = None
    link_ms: float | None = None
    upstream_ms: float | None = None
    revision: int = 1
    schema_version: int = SCHEMA_VERSION
    redaction_applied: bool = False
    redaction_rules_version: str | None = None
    redactions_json: str = REDACTIONS_NONE


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One run of a tool, as who ran it tells it."""

    tool_call_id: str
    turn_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    timestamp: int
    """When the run began."""
    provider_call_id: str | None = None
    """The id that the model gave the call."""
    tool_family: ToolFamily
    tool_name: str
    target_service: str | None = None
    """Who ran it, where that is not who tells."""
    request_json: str | None = None
    response_json: str | None = None
    status: ToolStatus
    error_code: str | None = None
    duration_ms: float | None = None
    retry_count: int | None = None
    attributes_json: str | None = None
    revision: int = 1
    schema_version: int = SCHEMA_VERSION
    redaction_applied: bool = False
    redaction_rules_version: str | None = None
    redactions_json: str = REDACTIONS_NONE


class RetrievalEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One search for sources."""

    retrieval_id: str
    turn_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    timestamp: int
    """When the search began."""
    plugin: str | None = None
    profile: str | None = None
    """Which way of searching."""
    index_version: str | None = None
    query_text: str | None = None
    top_k: int | None = None
    sources_json: str | None = None
    """All candidates with rank and score, and which of them entered the prompt."""
    context_chars: int | None = None
    """Characters of what entered the prompt."""
    retrieval_latency_ms: float | None = None
    attributes_json: str | None = None
    revision: int = 1
    schema_version: int = SCHEMA_VERSION
    redaction_applied: bool = False
    redaction_rules_version: str | None = None
    redactions_json: str = REDACTIONS_NONE


class QualityReview(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A judgement of a turn. A turn may have many; none is overwritten."""

    review_id: str
    turn_id: str
    reviewer: str | None = None
    review_source: ReviewSource
    score_helpfulness: float | None = None
    """Scores are 0 to 1; None: not judged."""
    score_correctness: float | None = None
    score_tool_use: float | None = None
    score_safety: float | None = None
    label_primary_issue: str | None = None
    """A failure type, or a label that a plugin declares."""
    notes: str | None = None
    rubric_version: str | None = None
    created_at: int
    revision: int = 1
    schema_version: int = SCHEMA_VERSION
    redaction_applied: bool = False
    redaction_rules_version: str | None = None
    redactions_json: str = REDACTIONS_NONE


Record = AccessEvent | TurnAudit | ModelCall | ToolCall | RetrievalEvent | QualityReview
"""A row of one of the logs."""


class ReasoningText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Reasoning that a deployment keeps (see `kept`). No `Record`: no log holds one."""

    reasoning_id: str
    """Keyed hash of the redacted text and the rules' version; `ref` in the marks of it."""
    turn_id: str
    """The turn that brought the text first; with it, it is erased."""
    model_call_id: str
    timestamp: int
    expires_at: int
    """Microseconds; from then on it is not read, and soon after it is gone."""
    carrier: str
    chars: int
    """Code points of the text as it came."""
    is_encrypted: bool
    text: str
    """Redacted; JSON where the provider sent a structure."""
    schema_version: int = SCHEMA_VERSION
    redaction_applied: bool = False
    redaction_rules_version: str | None = None
    redactions_json: str = REDACTIONS_NONE


class Medium(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A file or medium that a deployment keeps (see `shelf`). No `Record`: no log holds one."""

    media_id: str
    """Keyed hash of `data`, of text with the rules' version; stands in the marks of it."""
    timestamp: int
    """When it first came."""
    media_type: str
    size_bytes: int
    """Of what came."""
    is_text: bool
    data: bytes
    """Of text its redacted form, in UTF-8; of all else what came."""
    schema_version: int = SCHEMA_VERSION
    redaction_applied: bool = False
    redaction_rules_version: str | None = None
    redactions_json: str = REDACTIONS_NONE
