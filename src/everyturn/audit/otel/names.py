"""Which attribute of a span says which field of a record: one table for export and import.

Pure data. Sources, read 2026-12-01:
- GenAI: open-telemetry/semantic-conventions-genai, `docs/registry/attributes/gen-ai.md` and
  `docs/gen-ai/gen-ai-events.md` at commit 002c8a6e (the conventions moved there from
  open-telemetry/semantic-conventions; all of them have the status Development).
- OpenInference: Arize-ai/openinference, `spec/semantic_conventions.md` at commit 00e2b515.
- HTTP, server, error, service: open-telemetry/semantic-conventions v1.41.1.

A field that has no name in either stands under `everyturn.FIELD`, and so does one whose names
there cannot hold its exact value. `everyturn.FIELD` is believed before any other name.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Form = Literal["text", "json", "integer", "real", "boolean", "texts", "seconds"]
"""How a field's value stands in an attribute. `json`: JSON text. `texts`: a list of one text.
`seconds`: a field in milliseconds as seconds."""

OWN: Final = "everyturn."
"""Prefix of attributes that are ours."""
RECORD: Final = "everyturn.record"
"""Which log a span's row is of; `access_events` where a request came to no turn."""
MADE: Final = "everyturn.made"
"""Fields that the row did not have and its span must have: ids, an error's type."""
ACCESS: Final = "everyturn.access."
"""Prefix of the fields of the access event that came to the turn of the same span."""

KIND: Final = "openinference.span.kind"
OPERATION: Final = "gen_ai.operation.name"
INPUT: Final = "input.value"
INPUT_TYPE: Final = "input.mime_type"
OUTPUT: Final = "output.value"
OUTPUT_TYPE: Final = "output.mime_type"
EVALUATION: Final = "gen_ai.evaluation.result"
"""The event that a review is."""
JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain"


class Name(NamedTuple):
    """One field and the attributes that say it."""

    field: str
    form: Form
    written: tuple[str, ...]
    """Attributes that are written, first of GenAI or HTTP, then of OpenInference."""
    read: tuple[str, ...] = ()
    """Further ones that are read: older names, and names of the other convention."""
    is_exact: bool = True
    """Whether the first written attribute holds the field's own value."""


_TRACE_FIELDS: Final = frozenset({"trace_id", "span_id", "parent_span_id", "timestamp"})
"""Fields that are parts of the span itself."""

NAMES: Final[dict[str, tuple[Name, ...]]] = {
    "turn_audit": (
        Name("chat_id", "text", ("gen_ai.conversation.id", "session.id")),
        Name("plugin", "text", ("gen_ai.workflow.name",), ("gen_ai.agent.name", "agent.name")),
        Name("user_text", "text", (INPUT,)),
        Name("assistant_text", "text", (OUTPUT,)),
        Name("error_code", "text", ("error.type",)),
        Name("prompt_id", "text", ("gen_ai.prompt.name", "prompt.id")),
        Name("prompt_version", "text", ("llm.prompt_template.version",)),
    ),
    "model_calls": (
        Name(
            "provider_id",
            "text",
            ("gen_ai.provider.name", "llm.provider"),
            ("gen_ai.system", "llm.system"),
            is_exact=False,
        ),
        Name(
            "requested_model",
            "text",
            ("gen_ai.request.model", "llm.request.model_name"),
            ("llm.model_name",),
        ),
        Name("served_model_name", "text", ("gen_ai.response.model", "llm.response.model_name")),
        Name("stream", "boolean", ("gen_ai.request.stream",)),
        Name("temperature", "real", ("gen_ai.request.temperature",)),
        Name("max_tokens", "integer", ("gen_ai.request.max_tokens",)),
        Name("prompt_messages_json", "json", (INPUT,)),
        Name("parameters_json", "json", ("llm.invocation_parameters",)),
        Name("response_json", "json", (OUTPUT,)),
        Name(
            "prompt_tokens",
            "integer",
            ("gen_ai.usage.input_tokens", "llm.token_count.prompt"),
            ("gen_ai.usage.prompt_tokens",),
        ),
        Name(
            "completion_tokens",
            "integer",
            ("gen_ai.usage.output_tokens", "llm.token_count.completion"),
            ("gen_ai.usage.completion_tokens",),
        ),
        Name("total_tokens", "integer", ("llm.token_count.total",)),
        Name(
            "reasoning_tokens",
            "integer",
            (
                "gen_ai.usage.reasoning.output_tokens",
                "llm.token_count.completion_details.reasoning",
            ),
        ),
        Name(
            "cache_read_tokens",
            "integer",
            (
                "gen_ai.usage.cache_read.input_tokens",
                "llm.token_count.prompt_details.cache_read",
            ),
        ),
        Name(
            "cache_write_tokens",
            "integer",
            (
                "gen_ai.usage.cache_creation.input_tokens",
                "llm.token_count.prompt_details.cache_write",
            ),
        ),
        Name("cost_estimate", "real", ("llm.cost.total",)),
        Name(
            "time_to_first_token_ms",
            "seconds",
            ("gen_ai.response.time_to_first_chunk",),
            is_exact=False,
        ),
        Name("finish_reason", "texts", ("gen_ai.response.finish_reasons",), ("llm.finish_reason",)),
        Name("upstream_status", "integer", ("http.response.status_code",)),
        Name("error_code", "text", ("error.type",)),
    ),
    "tool_calls": (
        Name("provider_call_id", "text", ("gen_ai.tool.call.id", "tool.id"), ("tool_call.id",)),
        Name("tool_name", "text", ("gen_ai.tool.name", "tool.name")),
        Name("target_service", "text", ("service.peer.name",), ("peer.service",)),
        Name("request_json", "json", ("gen_ai.tool.call.arguments", INPUT)),
        Name("response_json", "json", ("gen_ai.tool.call.result", OUTPUT)),
        Name("error_code", "text", ("error.type",)),
    ),
    "retrieval_events": (
        Name("profile", "text", ("gen_ai.data_source.id",)),
        Name("query_text", "text", ("gen_ai.retrieval.query.text", INPUT)),
        Name("top_k", "integer", ("gen_ai.request.top_k",)),
        Name("sources_json", "json", (OUTPUT,)),
    ),
    "access_events": (
        Name("method", "text", ("http.request.method",)),
        Name("path_template", "text", ("http.route",)),
        Name("status_code", "integer", ("http.response.status_code",)),
        Name("request_size_bytes", "integer", ("http.request.body.size",)),
        Name("response_size_bytes", "integer", ("http.response.body.size",)),
        Name("error_code", "text", ("error.type",)),
    ),
    "quality_reviews": (
        Name("notes", "text", ("gen_ai.evaluation.explanation",)),
        Name("label_primary_issue", "text", ("gen_ai.evaluation.score.label",)),
    ),
}
"""Log → its fields that a convention names, in the contract's order."""

SCORES: Final = ("score_helpfulness", "score_correctness", "score_tool_use", "score_safety")
"""Each is an evaluation of its own: `gen_ai.evaluation.name` is the field without `score_`."""

PARAMETERS: Final = {
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.choice.count": "n",
}
"""Attribute → the member of a chat request that it is; read where no whole body is given."""

OPERATIONS: Final = {
    "turn_audit": ("invoke_workflow", "CHAIN"),
    "model_calls": ("chat", "LLM"),
    "tool_calls": ("execute_tool", "TOOL"),
    "retrieval_events": ("retrieval", "RETRIEVER"),
}
"""Log → its operation in GenAI and its span kind in OpenInference, as written."""

LOG_OF_OPERATION: Final = {
    "chat": "model_calls",
    "generate_content": "model_calls",
    "text_completion": "model_calls",
    "execute_tool": "tool_calls",
    "retrieval": "retrieval_events",
}
"""Operations that are rows. Of others a trace's first span is its turn, and no more."""
LOG_OF_KIND: Final = {
    "LLM": "model_calls",
    "TOOL": "tool_calls",
    "RETRIEVER": "retrieval_events",
}

PROVIDERS: Final = {
    "azure-openai": ("azure.ai.openai", "azure"),
    "gemini-openai": ("gcp.gemini", "google"),
    "mistral": ("mistral_ai", "mistralai"),
    "moonshot": ("moonshot_ai", "moonshot"),
    "ollama-v1": ("ollama", "ollama"),
    "openai-chat": ("openai", "openai"),
    "xai": ("x_ai", "xai"),
}
"""Preset → the provider's name in GenAI and in OpenInference, where that is not the preset's."""

TOOL_TYPES: Final = {
    "adapter": "extension",
    "mcp": "extension",
    "rag": "datastore",
    "internal": "function",
    "external-http": "extension",
}
"""Tool family → `gen_ai.tool.type`."""
FAMILY_OF_TYPE: Final = {
    "extension": "external-http",
    "datastore": "rag",
    "function": "internal",
}
"""`gen_ai.tool.type` → tool family, where nothing says it more exactly."""

DURATION: Final = {
    "turn_audit": "duration_ms",
    "model_calls": "latency_ms",
    "tool_calls": "duration_ms",
    "retrieval_events": "retrieval_latency_ms",
    "access_events": "duration_ms",
}
"""Log → the field that says how long it took: the span's end."""


def is_of_span(field: str) -> bool:
    """Whether a field is a part of the span itself rather than an attribute."""
    return field in _TRACE_FIELDS
