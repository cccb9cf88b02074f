"""The closed tree of typed failures that anything in this product may raise.

    Failure
    ├── CallerFault     the request is at fault (4xx)
    ├── ProviderFault   what the provider did or said cannot be served whole (5xx or its own status)
    └── OurFault        this gateway cannot do its part (5xx)

Each leaf has one `code` of the closed set in the HTTP reference, a default HTTP status and a hint
that a person can follow. Messages name parameters, positions and limits; never values or content.
Nothing here does I/O, and no failure is logged where it is raised: it is answered at the edge.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

Blame = Literal["caller", "provider", "us"]

FAILURE_TYPES: Final = (
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
)
"""The closed set of `turn_audit.failure_type`."""


class Failure(Exception):
    """A typed failure: what happened, whose fault it is, and what to do about it.

    message: one sentence, without content, values or secrets.
    param: the request parameter or the path in a provider's body that is at fault; None if neither.
    hint: one sentence that says what to do; the class default when None.
    status: the HTTP status to answer with; the class default when None.
    retry_after_ms: how long the client should wait; None when nobody said.
    extra: further members of the error object (a provider's own `message`, `failed_generation` …).
    frame_extra: further members beside `error` (a provider's `usage` in an error frame).
    """

    code: ClassVar[str] = "internal_error"
    default_status: ClassVar[int] = 500
    blame: ClassVar[Blame] = "us"
    failure_type: ClassVar[str] = "unknown"
    default_hint: ClassVar[str] = "Look for the request id in the gateway's log."

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        hint: str | None = None,
        status: int | None = None,
        retry_after_ms: int | None = None,
        extra: dict[str, Any] | None = None,
        frame_extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.hint = hint if hint is not None else self.default_hint
        self.status = status if status is not None else self.default_status
        self.retry_after_ms = retry_after_ms
        self.extra = extra or {}
        self.frame_extra = frame_extra or {}

    @property
    def type(self) -> str:
        """OpenAI's `error.type` for this failure."""
        if self.status == 429:
            return "rate_limit_error"
        return {
            "caller": "invalid_request_error",
            "provider": "upstream_error",
            "us": "gateway_error",
        }[self.blame]

    def error_object(self) -> dict[str, Any]:
        """The `error` member of the envelope: message, type, param, code, hint and the extras.

        A provider's own members stand as sent; only `code` is always ours (theirs, where there
        was one, is in `extra` as `upstream_code`).
        """
        ours = {"message": self.message, "type": self.type, "param": self.param}
        return {**ours, **self.extra, "code": self.code, "hint": self.hint}

    def envelope(self) -> dict[str, Any]:
        """OpenAI's error envelope, for a body or for the `data:` line of a stream."""
        return {"error": self.error_object(), **self.frame_extra}


# ------------------------------------------------------------------ the caller


class CallerFault(Failure):
    """The request is at fault; sending it again unchanged fails again."""

    code = "invalid_value"
    default_status = 400
    blame = "caller"
    failure_type = "format_error"
    default_hint = "Correct the request and send it again."


class InvalidJson(CallerFault):
    """The body is not strict JSON (syntax, encoding, duplicate keys, non-finite numbers, depth)."""

    code = "invalid_json"
    default_hint = "Send one JSON object in UTF-8, without duplicate keys, NaN or Infinity."


class InvalidValue(CallerFault):
    """A parameter has a type or value that cannot be used."""

    code = "invalid_value"


class UnknownParameter(CallerFault):
    """A key that neither Chat Completions nor the model's preset or `allow` list knows."""

    code = "unknown_parameter"
    default_hint = "Remove the parameter, or let the operator add it to `allow` for this model."


class MissingParameter(CallerFault):
    """A required parameter is absent."""

    code = "missing_parameter"
    default_hint = "Add the parameter."


class RequestTooLarge(CallerFault):
    """The body passes the size limit."""

    code = "request_too_large"
    default_status = 413
    default_hint = "Send a smaller body, or let the operator raise `limits.request_bytes_max`."


class UnsupportedReasoningControl(CallerFault):
    """The canonical reasoning control cannot be expressed at this provider."""

    code = "unsupported_reasoning_control"
    default_hint = "Use a control this preset has: `everyturn presets NAME` lists them."


class HistoryReasoningMissing(CallerFault):
    """The provider certainly refuses this history: an assistant turn lacks its reasoning."""

    code = "history_reasoning_missing"
    default_hint = "Send back `reasoning_content` of each assistant message as it was received."


class Unauthorized(CallerFault):
    """The API key is missing or unknown."""

    code = "unauthorized"
    default_status = 401
    failure_type = "policy_error"
    default_hint = "Send `Authorization: Bearer KEY` with a key of this gateway."


class NotPermitted(CallerFault):
    """The caller may not do this."""

    code = "not_permitted"
    default_status = 403
    failure_type = "policy_error"
    default_hint = "Ask the operator for the permission, or use another key or address."


class ModelNotFound(CallerFault):
    """No such model is configured."""

    code = "model_not_found"
    default_status = 404
    failure_type = "routing"
    default_hint = "`GET /v1/models` lists the models of this gateway."


class EndpointNotFound(CallerFault):
    """This gateway does not serve that path or method, or that turn does not exist."""

    code = "endpoint_not_found"
    default_status = 404
    failure_type = "routing"
    default_hint = "See the HTTP reference for the endpoints this gateway serves."


class RateLimited(CallerFault):
    """The caller's own rate limit at this gateway."""

    code = "rate_limited"
    default_status = 429
    failure_type = "policy_error"
    default_hint = "Wait as long as `retry-after` says."


class QuotaExceeded(CallerFault):
    """The caller's own quota at this gateway."""

    code = "quota_exceeded"
    default_status = 429
    failure_type = "policy_error"
    default_hint = "Wait as long as `retry-after` says, or ask the operator for more."


# ---------------------------------------------------------------- the provider


class ProviderFault(Failure):
    """What the provider did or said cannot be served whole."""

    code = "upstream_error"
    default_status = 502
    blame = "provider"
    failure_type = "provider_error"
    default_hint = "The provider failed; try again or look at `everyturn show TURN_ID`."


class UpstreamRejected(ProviderFault):
    """The provider refused the request with a 4xx of its own."""

    code = "upstream_rejected"
    default_status = 400
    default_hint = "The provider refused the request; its own message says why."


class UpstreamError(ProviderFault):
    """The provider failed (5xx, an error body, or it refused the operator's credentials)."""

    code = "upstream_error"


class UpstreamUnreachable(ProviderFault):
    """No connection, or it was lost before the answer began."""

    may_have_arrived: bool = True
    """Whether the provider may have got the request; False where no connection was made."""

    code = "upstream_unreachable"
    default_hint = "Check `base_url`, that the provider is up, and that this host can reach it."


class UpstreamTimeout(ProviderFault):
    """A time limit for the provider passed."""

    code = "upstream_timeout"
    default_status = 504
    failure_type = "timeout"
    default_hint = "Try again, or let the operator raise `timeouts` for this model."


class UpstreamStreamIncomplete(ProviderFault):
    """The body stopped before its legal ending."""

    code = "upstream_stream_incomplete"
    default_hint = "The provider's answer broke off; `everyturn show TURN_ID` says what arrived."


class UpstreamTooLarge(ProviderFault):
    """A frame, a body or an accumulated text passes its bound."""

    code = "upstream_too_large"
    default_hint = "Ask for a shorter answer, or let the operator raise `limits`."


class AdapterFault(ProviderFault):
    """The provider's bytes do not mean what its preset evidences."""

    code = "translation_error"
    failure_type = "adapter_error"


class ToolFragmentOrphan(AdapterFault):
    """A tool-call fragment belongs to no call."""

    code = "tool_fragment_orphan"
    default_hint = (
        "The provider streamed a tool call that cannot be put together; try without streaming."
    )


class ProtocolDrift(AdapterFault):
    """Output on a known or reasoning-like carrier that the preset does not evidence."""

    code = "protocol_drift"
    default_hint = (
        'Choose the preset that fits this server, or set `on_drift = "carry"` for the model.'
    )


class ReasoningConflict(AdapterFault):
    """Two carriers that should mirror each other differ."""

    code = "reasoning_conflict"
    default_hint = "Narrow `reasoning.read` for the model to the carrier this server really fills."


class TranslationError(AdapterFault):
    """The provider's bytes are not what its protocol allows."""

    code = "translation_error"
    default_hint = "Check that `base_url` and `preset` fit the server."


# -------------------------------------------------------------------------- us


class OurFault(Failure):
    """This gateway cannot do its part."""


class WorkerUnavailable(OurFault):
    """No connected worker can take the call."""

    code = "worker_unavailable"
    default_status = 503
    failure_type = "adapter_error"
    default_hint = "Start the worker, or try again later."


class WorkerLost(OurFault):
    """The link to the worker broke during the call; it is not run again."""

    code = "worker_lost"
    default_status = 502
    failure_type = "adapter_error"
    default_hint = "Send the request again if running it twice does no harm."


class GatewayStopping(OurFault):
    """The gateway is shutting down and takes no new turns."""

    code = "gateway_stopping"
    default_status = 503
    default_hint = "Try again in a moment, or at another instance."


class AuditUnavailable(OurFault):
    """A record cannot be written, so no call is made."""

    code = "audit_unavailable"
    default_status = 503
    default_hint = "The operator should look at `/readyz` and at the space in the data folder."


class InternalError(OurFault):
    """A defect of the gateway."""

    code = "internal_error"


class GatewayInterrupted(OurFault):
    """Stands in the record of a turn that was open when the process died. Never sent."""

    code = "gateway_interrupted"
    default_hint = "The gateway stopped before this turn ended."


class ConfigError(Exception):
    """A configuration that cannot be used; `faults` lists all that is wrong with it.

    faults: (line, key path, what is wrong, what to do); line is 1-based, 0 when unknown.
    """

    def __init__(self, path: str, faults: list[tuple[int, str, str, str]]) -> None:
        self.path = path
        self.faults = faults
        super().__init__(
            "\n".join(
                f"{path}:{line}: `{key}`: {what} {hint}".rstrip()
                if line
                else f"{path}: `{key}`: {what} {hint}".rstrip()
                for line, key, what, hint in faults
            )
        )
