"""Every setting, once: its place, type, default and meaning. Loading and help read this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from everyturn.audit.personal import NAMES as PERSONAL_DATA
from everyturn.presets.load import preset_names
from everyturn.wire.preset import CARRIERS


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of one table.

    kind: `str`, `int`, `bool`, `strings` (list of strings), `names` (a string or such a list),
    `table` (string → string), `timeouts`, `reasoning`, `rules`, `fields`. choices: the closed set
    of a `str` or of each of `strings`. minimum and maximum: inclusive, of an `int`.
    """

    key: str
    kind: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 2**62


SECTIONS: Final[dict[str, tuple[Setting, ...]]] = {
    "gateway": (
        Setting(
            "host",
            "str",
            "127.0.0.1",
            "Where to listen; any but loopback needs `[[keys]]`.",
        ),
        Setting("port", "int", 8080, "The port; 0 takes a free one.", maximum=65535),
        Setting("tls_cert", "str", "", "A certificate chain in PEM: the gateway then speaks TLS."),
        Setting("tls_key", "str", "", "The certificate's private key in PEM."),
        Setting("data", "str", "everyturn-data", "The folder of the record; made when missing."),
        Setting(
            "shutdown_grace_ms",
            "int",
            30_000,
            "How long open turns may go on after SIGTERM, in milliseconds.",
            maximum=3_600_000,
        ),
        Setting("log", "str", "json", "One JSON line an event on stderr.", ("json", "off")),
    ),
    "service": (
        Setting("service", "str", "everyturn", "The name that records carry as `service`."),
        Setting("instance", "str", "", "The name of this process in records."),
        Setting("environment", "str", "", "`production`, `staging` … in records."),
    ),
    "audit": (
        Setting(
            "durability",
            "str",
            "process",
            "`process`: a record survives the death of the process, and the disk is synced once a "
            "second. `disk`: each commit is synced before it counts.",
            ("process", "disk"),
        ),
        Setting(
            "on_failure",
            "str",
            "refuse",
            "When the store cannot be written: `refuse` new calls, or `serve` them unrecorded.",
            ("refuse", "serve"),
        ),
        Setting(
            "queue_bytes_max",
            "int",
            64 * 1024 * 1024,
            "Bytes of records that may wait for the store.",
            minimum=1024 * 1024,
        ),
        Setting("enabled", "bool", True, "Whether turns are recorded at all."),
    ),
    "reasoning": (
        Setting(
            "store",
            "str",
            "count",
            "`count`: records say how long reasoning was, its text rests nowhere. `keep`: the text "
            "rests in a table of its own, which only the permission `reasoning` opens.",
            ("count", "keep"),
        ),
        Setting(
            "keep_days",
            "int",
            7,
            "Days until a kept text is deleted.",
            minimum=1,
            maximum=3650,
        ),
    ),
    "media": (
        Setting(
            "store",
            "str",
            "hash",
            "`hash`: of files and media records say type, length and a keyed hash. `keep`: they "
            "rest in a table of their own, each once, text after secrets were removed.",
            ("hash", "keep"),
        ),
        Setting(
            "bytes_max",
            "int",
            10 * 1024 * 1024,
            "Of one medium that is kept; a larger one stays a hash.",
            minimum=1,
        ),
    ),
    "redaction": (
        Setting(
            "rules",
            "rules",
            [],
            "Patterns of your own, one table each; what they find is removed before it is stored.",
        ),
        Setting(
            "known_env",
            "strings",
            [],
            "Environment variables whose values are removed wherever they stand.",
        ),
        Setting(
            "personal_data",
            "strings",
            [],
            "Personal data to remove beside secrets.",
            PERSONAL_DATA,
        ),
    ),
    "export": (
        Setting(
            "daily",
            "bool",
            False,
            "Whether `serve` writes each day to files once it is over in UTC, missed days too.",
        ),
        Setting("folder", "str", "reports/observability", "Where; made when missing."),
    ),
    "limits": (
        Setting(
            "request_bytes_max",
            "int",
            32 * 1024 * 1024,
            "A request's body, in bytes.",
            minimum=1024,
        ),
        Setting("frame_bytes_max", "int", 32 * 1024 * 1024, "One event of a stream.", minimum=1024),
        Setting("body_bytes_max", "int", 64 * 1024 * 1024, "A provider's body.", minimum=1024),
        Setting("stream_bytes_max", "int", 512 * 1024 * 1024, "A provider's stream.", minimum=1024),
        Setting(
            "text_bytes_max",
            "int",
            16 * 1024 * 1024,
            "Content, reasoning or tool arguments of one choice.",
            minimum=1024,
        ),
        Setting("open_turns_max", "int", 2000, "Turns under way at once.", minimum=1),
    ),
}
"""Every table but `[[models]]`."""

TIMEOUTS: Final = (
    Setting("connect_ms", "int", 10_000, "Name look-up, TCP and TLS.", minimum=1),
    Setting("first_byte_ms", "int", 120_000, "Until the head of the answer.", minimum=1),
    Setting("idle_ms", "int", 60_000, "Between two reads of the answer.", minimum=1),
    Setting("total_ms", "int", 600_000, "The whole call.", minimum=1),
)
"""The keys of a model's `timeouts`, in milliseconds."""

REDACTION_RULE: Final = (
    Setting("name", "str", None, "Stands in place of what is found: small letters, digits, `_`."),
    Setting("pattern", "str", None, "RE2 syntax; the last group is what goes, else all of it."),
    Setting(
        "keyword",
        "str",
        None,
        "A word that every text with a find has; without it, a pattern with spaces, quotes, `.` or "
        "classes that are turned round is sought in every text.",
    ),
    Setting(
        "check",
        "str",
        None,
        "`mixed`: only what has letters and digits. `value`: no placeholders such as `${KEY}`.",
        ("mixed", "value"),
    ),
)
"""The keys of a `[[redaction.rules]]` entry."""

REASONING: Final = (
    Setting("read", "strings", None, "The carriers to read, fewer than the preset's.", CARRIERS),
    Setting("tags", "str", None, "Inline tags in content.", ("off", "split", "marked")),
    Setting("tag", "strings", None, "The opening and the closing tag."),
    Setting("enabled", "bool", False, "As `reasoning = true`."),
    Setting("store", "str", None, "As in `[reasoning]`, for this model.", ("count", "keep")),
)
"""The keys of a model's `reasoning` where it is a table."""

MODEL: Final = (
    Setting("name", "str", None, "What a client asks for."),
    Setting("preset", "str", None, "A packaged preset, or the path of a preset file."),
    Setting("base_url", "str", None, "As one gives it to an OpenAI SDK; the preset's by default."),
    Setting("upstream_model", "str", None, "The provider's name of the model; `name` by default."),
    Setting(
        "api_key_env",
        "str",
        None,
        "The environment variable with the provider's key; the preset's own by default, while "
        "`base_url` has the preset's origin.",
    ),
    Setting("allow", "strings", [], "Further request parameters that pass verbatim."),
    Setting(
        "on_drift",
        "str",
        "fail",
        "Reasoning on a carrier that is not evidenced: `fail`, or `carry` it as it is.",
        ("fail", "carry"),
    ),
    Setting(
        "history_reasoning",
        "str",
        "preset",
        "Reasoning in a request's history: by the `preset`, `reject` it, or `strip` it.",
        ("preset", "reject", "strip"),
    ),
    Setting("history_key", "str", "reasoning_content", "Its key, where the preset leaves it open."),
    Setting(
        "thinking",
        "str",
        "unknown",
        "`on`: the model thinks unless told not to.",
        ("on", "unknown"),
    ),
    Setting("reasoning", "reasoning", False, "`true`, or a table that narrows what is read."),
    Setting("terminal", "str", None, "What ends a good stream.", ("finish", "done")),
    Setting("tags", "str", None, "As `reasoning.tags`.", ("off", "split", "marked")),
    Setting(
        "stream",
        "str",
        "as_asked",
        "`never` asks the provider for whole answers only, `always` for streams only.",
        ("as_asked", "never", "always"),
    ),
    Setting("show_reasoning", "bool", True, "`false` withholds reasoning from clients."),
    Setting("query", "table", {}, "Query parameters of the provider's URL."),
    Setting("auth_header", "str", None, "The header of the key; `authorization` by default."),
    Setting("forward_headers", "strings", [], "Client headers that go to the provider."),
    Setting("timeouts", "timeouts", {}, "Time limits in milliseconds."),
    Setting("insecure_http", "bool", False, "`true` allows plain http to another machine."),
    Setting(
        "transport",
        "str",
        "direct",
        "`worker`: calls are run by a worker beside the model server.",
        ("direct", "worker"),
    ),
    Setting("worker", "names", None, "The worker, or a list: any connected one takes the call."),
    Setting("target", "str", None, "What the worker calls the model server: `--allow TARGET=URL`."),
)
"""The keys of a `[[models]]` entry."""

PERMISSIONS: Final = ("call", "record", "read", "review", "reasoning", "admin")
"""What an API key may allow: calls, sending records, reading turns, reviewing, reading reasoning,
metrics."""

KEY: Final = (
    Setting("name", "str", None, "Who holds the key: small letters, digits and `-`."),
    Setting("sha256", "str", None, "The hash that `everyturn key new` printed; never the key."),
    Setting("permissions", "strings", None, "What the key allows.", PERMISSIONS),
)
"""The keys of a `[[keys]]` entry."""

PLUGIN: Final = (
    Setting(
        "fields",
        "fields",
        {},
        "Attribute → its type: `str`, `int`, `float`, `bool`, `list`, or a list of the words it "
        "may be.",
    ),
    Setting("labels", "strings", [], "Labels that reviews may have beside the failure types."),
)
"""The keys of a `[plugins.NAME]` table."""

REQUIRED_MODEL_KEYS: Final = ("name", "preset")


def known_presets() -> tuple[str, ...]:
    """Names a model's `preset` may have, beside paths."""
    return preset_names()
