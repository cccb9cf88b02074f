"""The Preset type: what is known about how one provider speaks, and the Target made from it.

Data only. `presets/` fills Presets from TOML; the configuration narrows one into a Target. The
closed sets below are the vocabulary of both; a value outside them is refused where it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Carrier = Literal[
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "content_list",
    "thinking",
    "thinking_blocks",
    "thought_signature",
    "body.reasoning_content",
]
CARRIERS: Final[tuple[Carrier, ...]] = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "content_list",
    "thinking",
    "thinking_blocks",
    "thought_signature",
    "body.reasoning_content",
)
"""Where a provider may put reasoning. `content_list` is thinking items inside a content list;
`thought_signature` is opaque and carried; `body.reasoning_content` stands beside `choices`."""

TEXT_CARRIERS: Final[tuple[Carrier, ...]] = ("reasoning_content", "reasoning", "thinking")
"""Carriers that hold one string in a message or delta; several in one `read` list are mirrors."""

HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A token, as RFC 9110 section 5.1 has it."""
CONNECTION_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to the connection; the transport alone decides about them."""

TagMode = Literal["off", "split", "marked"]
History = Literal["forbidden", "ignored", "optional", "required_tools", "required", "as_tags"]
HistoryCarrier = Literal[
    "reasoning_content", "reasoning", "reasoning_details", "content_list", "tags"
]
Terminal = Literal["finish", "done"]
StreamOptions = Literal["evidenced", "refused", "unknown"]
Drift = Literal["fail", "carry"]
UsagePlace = Literal["usage", "choice.usage", "x_groq.usage"]

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The canonical values of `reasoning_effort`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where a fact is known from."""

    source: str
    """A page, a repository path, an issue, or `rule of this product` for a choice of ours."""
    date: str
    """When it was read: `YYYY-MM` or `YYYY-MM-DD`."""
    kind: str
    """D documentation · R recording · C source code · I issue · P policy of this product;
    several are joined by `+`."""
    note: str = ""
    """What a reader should know beside the value: a limit, a doubt, a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """How reasoning is asked for at a provider.

    Members sent are small JSON objects merged into the body (`{"thinking": {"type": "disabled"}}`).
    """

    native: tuple[str, ...] = ()
    """Top-level keys that are this provider's own controls and pass verbatim."""
    effort: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Canonical effort → members to send. An effort that is absent cannot be expressed."""
    clamps: dict[str, str] = field(default_factory=dict)
    """Canonical effort → the one it becomes, where the vendor documents that; told in a note."""
    enabled: dict[str, dict[str, Any]] = field(default_factory=dict)
    """`"true"` and `"false"` → members to send for `reasoning.enabled`."""
    budget: str | None = None
    """Dotted path for `reasoning.max_tokens` (`thinking.budget_tokens`); None: not expressible."""
    exclude: dict[str, dict[str, Any]] = field(default_factory=dict)
    """`"true"` and `"false"` → members to send for `reasoning.exclude`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What is known of one provider. Every field has its Evidence under the same name."""

    name: str
    title: str
    base_url: str | None = None
    """As one gives it to an OpenAI SDK; None where the operator must say it."""
    api_key_env: str | None = None
    auth_header: str = "authorization"
    """`authorization` sends `Bearer KEY`; any other header gets the bare key."""
    query: tuple[tuple[str, str], ...] = ()
    read: tuple[Carrier, ...] = ()
    tags: TagMode = "off"
    tag: tuple[str, str] = ("<think>", "</think>")
    carry: tuple[str, ...] = ()
    """Reasoning-like names that are evidenced and are not reasoning text: carried as they are."""
    history: History = "optional"
    history_carrier: HistoryCarrier = "reasoning_content"
    history_exact: bool = False
    """Whether order and bytes of what is sent back must be kept."""
    history_omit: tuple[str, ...] = ()
    """Output-only message keys that this provider refuses in a request."""
    terminal: Terminal = "finish"
    """`finish`: a finish for each choice is needed; `done`: `[DONE]` alone is a good ending."""
    finish_failures: tuple[str, ...] = ()
    """Finish values that mean the call failed."""
    stream_options: StreamOptions = "unknown"
    usage_places: tuple[UsagePlace, ...] = ("usage",)
    usage_incremental: bool = False
    """Whether usage objects of a stream add up instead of replacing each other."""
    cached_in_prompt: bool | None = None
    """Whether cached tokens are part of `prompt_tokens`; None: not known."""
    reasoning_in_completion: bool | None = None
    """Whether reasoning tokens are part of `completion_tokens`; None: not known."""
    request_keys: tuple[str, ...] = ()
    """Top-level request keys beyond Chat Completions that this provider takes."""
    controls: Controls = Controls()
    adds: dict[str, Any] = field(default_factory=dict)
    """Members added where the request asks for reasoning or the model is marked `reasoning`."""
    adds_unless: tuple[str, ...] = ()
    """Request keys that exclude `adds`: nothing is added where the request has one of them."""
    error_shapes: tuple[str, ...] = ("object",)
    """Informative: `object`, `string`, `top_level`, `array`; all of them are read everywhere."""
    signatures: tuple[str, ...] = ()
    """Informative: where opaque signatures travel."""
    price_provider: str | None = None
    """The provider id in the price data; None: prices unknown."""
    evidence: dict[str, Evidence] = field(default_factory=dict)


HistoryReasoning = Literal["preset", "reject", "strip"]
StreamMode = Literal["as_asked", "never", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One configured model: a preset as the operator narrowed it. Holds no secret."""

    name: str
    """What a client asks for."""
    preset: Preset
    base_url: str
    upstream_model: str
    read: tuple[Carrier, ...]
    tags: TagMode
    tag: tuple[str, str]
    terminal: Terminal
    query: tuple[tuple[str, str], ...] = ()
    auth_header: str = "authorization"
    allow: tuple[str, ...] = ()
    """Further top-level request keys that the operator lets through verbatim."""
    on_drift: Drift = "fail"
    history_reasoning: HistoryReasoning = "preset"
    history_key: str = "reasoning_content"
    """The carrier in history for presets that leave it to the operator (`generic-strict`)."""
    thinking_on: bool = False
    """The operator says that this model thinks unless told otherwise."""
    reasoning: bool = False
    """The operator marked the model as reasoning: the preset's `adds` apply to each request."""
    stream: StreamMode = "as_asked"
    show_reasoning: bool = True
    keep_reasoning_days: int = 0
    """Days for which the record keeps reasoning texts, apart; 0: they are counted, not kept."""
    forward_headers: tuple[str, ...] = ()
    """Client headers that go upstream, in lower case."""
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What `wire` worked out from this target alone, each part under a name of its own, so that it
    is worked out once. No part of what the target says: a changed copy begins without it."""


def target_of(preset: Preset, *, name: str, base_url: str | None = None) -> Target:
    """The plain Target of a preset without narrowing; for tests and for models with no overrides.

    Raises ValueError if neither the preset nor the caller has a base URL.
    """
    url = base_url or preset.base_url
    if url is None:
        raise ValueError(f"preset {preset.name} has no base_url of its own")
    return Target(
        name=name,
        preset=preset,
        base_url=url,
        upstream_model=name,
        read=preset.read,
        tags=preset.tags,
        tag=preset.tag,
        terminal=preset.terminal,
        query=preset.query,
        auth_header=preset.auth_header,
    )
