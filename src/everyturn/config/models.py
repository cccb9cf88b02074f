"""The `[[models]]` entries: each becomes a Target, with what is wrong with it said at its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from everyturn.config.faults import Faults, nearest, read_table
from everyturn.config.files import read_file
from everyturn.config.table import MODEL, REASONING, REQUIRED_MODEL_KEYS, TIMEOUTS, known_presets
from everyturn.presets.load import REFUSED_HOSTS, PresetError, load_preset, read_preset_file
from everyturn.wire.preset import CONNECTION_HEADERS, HEADER_NAME, Preset, Target

WORKER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""Of workers and of their targets."""

_SENT = frozenset({"accept", "content-type"})
"""Headers of every request to a provider; a second one would make two."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One `[[models]]` entry: the target, and what only the transport needs."""

    target: Target
    api_key: str | None = field(repr=False)
    """The provider's key; None where none is configured or its variable is unset."""
    api_key_env: str | None
    timeouts: dict[str, int]
    """`connect_ms`, `first_byte_ms`, `idle_ms`, `total_ms`."""
    workers: tuple[str, ...]
    """Who may run its calls; empty: the gateway itself."""


def read_models(
    given: Any,
    environment: Mapping[str, str],
    faults: Faults,
    folder: Path,
    *,
    kept: Mapping[str, Any],
) -> tuple[ModelConfig, ...]:
    """All models that are right; what is wrong is in `faults`. kept: the values of [reasoning]."""
    if not isinstance(given, list) or not given:
        faults.add("models", "has no entry.", "Add a [[models]] table with `name` and `preset`.")
        return ()
    models: list[ModelConfig] = []
    names: set[str] = set()
    for index, entry in enumerate(given):
        path = f"models[{index}]"
        if not isinstance(entry, dict):
            faults.add(path, "must be a table.", "Write [[models]] and its keys below.")
            continue
        model = _model(path, entry, environment, faults, folder, kept)
        name = entry.get("name")
        if isinstance(name, str) and name in names:
            faults.add(f"{path}.name", "is the name of an earlier model.", "Give each its own.")
        elif isinstance(name, str):
            names.add(name)
        if model is not None:
            models.append(model)
    return tuple(models)


def _model(
    path: str,
    entry: dict[str, Any],
    environment: Mapping[str, str],
    faults: Faults,
    folder: Path,
    kept: Mapping[str, Any],
) -> ModelConfig | None:
    before = len(faults.found)
    values = read_table(path, entry, MODEL, faults)
    for key in REQUIRED_MODEL_KEYS:
        if not values[key]:
            faults.add(f"{path}.{key}", "is missing.", f"Add `{key}`.")
    reasoning = _reasoning(path, values["reasoning"], faults)
    timeouts = _table(f"{path}.timeouts", values["timeouts"], TIMEOUTS, faults)
    preset = _preset(path, values["preset"], faults, folder) if values["preset"] else None
    if preset is None or len(faults.found) > before:
        return None
    workers = _workers(path, values, faults)
    base_url = _base_url(path, values, preset, faults)
    if values["tags"] and reasoning["tags"] and values["tags"] != reasoning["tags"]:
        faults.add(f"{path}.tags", "differs from `reasoning.tags`.", "Keep one of the two.")
    read = _read(path, reasoning["read"], preset, faults)
    tag = _tag(path, reasoning["tag"], preset, faults)
    forward = _headers(path, values, faults)
    key_env = _key_variable(path, values, preset, base_url, environment, faults)
    if len(faults.found) > before or base_url is None:
        return None
    target = Target(
        name=values["name"],
        preset=preset,
        base_url=base_url,
        upstream_model=values["upstream_model"] or values["name"],
        read=read,
        tags=values["tags"] or reasoning["tags"] or preset.tags,
        tag=tag,
        terminal=values["terminal"] or preset.terminal,
        query=(*preset.query, *values["query"].items()),
        auth_header=values["auth_header"] or preset.auth_header,
        allow=tuple(values["allow"]),
        on_drift=values["on_drift"],
        history_reasoning=values["history_reasoning"],
        history_key=values["history_key"],
        thinking_on=values["thinking"] == "on",
        reasoning=reasoning["enabled"],
        stream=values["stream"],
        show_reasoning=values["show_reasoning"],
        keep_reasoning_days=(
            kept["keep_days"] if (reasoning["store"] or kept["store"]) == "keep" else 0
        ),
        forward_headers=forward,
    )
    return ModelConfig(
        target=target,
        api_key=(environment.get(key_env, "").strip() or None) if key_env else None,
        api_key_env=key_env,
        timeouts=timeouts,
        workers=workers,
    )


def _table(path: str, given: Any, settings: Any, faults: Faults) -> dict[str, Any]:
    if not isinstance(given, dict):
        faults.add(path, "must be a table.", "Known: " + ", ".join(s.key for s in settings) + ".")
        given = {}
    return read_table(path, given, settings, faults)


def _reasoning(path: str, given: Any, faults: Faults) -> dict[str, Any]:
    if isinstance(given, bool):
        return {"read": None, "tags": None, "tag": None, "enabled": given, "store": None}
    return _table(f"{path}.reasoning", given, REASONING, faults)


def _preset(path: str, name: str, faults: Faults, folder: Path) -> Preset | None:
    key = f"{path}.preset"
    try:
        if name.endswith(".toml") or "/" in name:
            file = folder / name
            return read_preset_file(read_file(file), str(file))
        return load_preset(name)
    except PresetError as bad:
        if name.endswith(".toml") or "/" in name:
            for fault in bad.faults:
                where = f"line {fault.line}: " if fault.line else ""
                faults.add(key, f"{name}: {where}`{fault.key}` {fault.what}", fault.hint)
        else:
            faults.add(key, f"`{name}` is not a preset.", nearest(name, known_presets()))
    except (OSError, UnicodeDecodeError) as bad:
        reason = bad.strerror if isinstance(bad, OSError) else "it is not UTF-8"
        faults.add(key, f"the file {name} cannot be read: {reason}.", "Correct the path.")
    return None


def _workers(path: str, values: dict[str, Any], faults: Faults) -> tuple[str, ...]:
    """The workers of a model; empty where the gateway calls by itself."""
    given = values["worker"]
    names = (given,) if isinstance(given, str) else tuple(given or ())
    if values["transport"] == "direct":
        for key in ("worker", "target"):
            if values[key]:
                hint = 'Set `transport = "worker"`, or remove it.'
                faults.add(f"{path}.{key}", "is for models that run on a worker.", hint)
        return ()
    for key in ("base_url", "insecure_http"):
        if values[key]:
            hint = "Remove it: the worker has the address (`--allow TARGET=URL`)."
            faults.add(f"{path}.{key}", "is for models that the gateway calls itself.", hint)
    hint = "Use 1 to 63 small letters, digits and `-`."
    if not names or not all(WORKER_NAME.fullmatch(name) for name in names):
        faults.add(f"{path}.worker", "is missing, or is no name of a worker.", hint)
    if not WORKER_NAME.fullmatch(values["target"] or ""):
        faults.add(f"{path}.target", "is missing, or is no name of a target.", hint)
    return names


def _base_url(path: str, values: dict[str, Any], preset: Preset, faults: Faults) -> str | None:
    if values["transport"] == "worker":
        return f"worker://{values['target']}"
    key = f"{path}.base_url"
    url = values["base_url"] or preset.base_url
    if url is None:
        hint = "Add the URL as you would give it to an OpenAI SDK."
        faults.add(key, f"is missing, and preset `{preset.name}` has none of its own.", hint)
        return None
    problem = _wrong_url(url)
    if problem is not None:
        faults.add(key, *problem)
        return None
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if host in REFUSED_HOSTS:
        hint = "Use the provider's own interface, or another provider."
        faults.add(key, f"must not be {host}: {REFUSED_HOSTS[host]}", hint)
    if parts.scheme == "http" and not _is_loopback(host) and not values["insecure_http"]:
        faults.add(
            key,
            f"sends prompts and keys to {host} without encryption.",
            "Use https, or set `insecure_http = true` for this model.",
        )
    return str(url).rstrip("/")


def _wrong_url(url: str) -> tuple[str, str] | None:
    if any(character <= " " or character > "~" for character in url):
        return "has characters that no URL has.", "Percent-encode them."
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not a URL.", "Write https://HOST/PATH."
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return "must begin with https:// or http:// and a host.", "Write https://HOST/PATH."
    if parts.username is not None or parts.password is not None:
        return "holds credentials.", "Put the key into the variable that `api_key_env` names."
    if parts.fragment:
        return "has a fragment.", "Remove the part after `#`."
    if parts.path.rstrip("/").endswith("/chat/completions"):
        return "names an endpoint.", "Remove `/chat/completions`: the gateway appends it."
    return None


def _headers(path: str, values: dict[str, Any], faults: Faults) -> tuple[str, ...]:
    """The client headers that are forwarded, each once and in lower case."""
    forward = tuple(dict.fromkeys(name.lower() for name in values["forward_headers"]))
    auth = () if values["auth_header"] is None else (values["auth_header"].lower(),)
    for key, names in (("auth_header", auth), ("forward_headers", forward)):
        for name in names:
            if not HEADER_NAME.fullmatch(name):
                faults.add(f"{path}.{key}", "has a name that no header has.", 'Like "x-tenant".')
            elif name in CONNECTION_HEADERS or name in _SENT:
                hint = "Remove it: the gateway sends its own."
                faults.add(f"{path}.{key}", f"must not have `{name}`.", hint)
    return forward


def _read(path: str, given: Any, preset: Preset, faults: Faults) -> tuple[Any, ...]:
    if given is None:
        return preset.read
    extra = [carrier for carrier in given if carrier not in preset.read]
    if extra:
        faults.add(
            f"{path}.reasoning.read",
            f"has `{extra[0]}`, which preset `{preset.name}` does not evidence.",
            "A model can only narrow its preset: use `generic-strict` or a preset file.",
        )
    return tuple(given)


def _tag(path: str, given: Any, preset: Preset, faults: Faults) -> tuple[str, str]:
    if given is None:
        return preset.tag
    if len(given) != 2 or not all(given):
        hint = 'Write ["<think>", "</think>"].'
        faults.add(f"{path}.reasoning.tag", "must have an opening and a closing tag.", hint)
        return preset.tag
    return given[0], given[1]


def _key_variable(
    path: str,
    values: dict[str, Any],
    preset: Preset,
    base_url: str | None,
    environment: Mapping[str, str],
    faults: Faults,
) -> str | None:
    """The variable with the provider's key.

    The preset's own is used only while the base URL has the preset's origin: a key must not go to
    a host it was not made for.
    """
    name: str | None = values["api_key_env"]
    if name is None:
        is_own = base_url is not None and preset.base_url is not None
        if not is_own or _origin(base_url or "") != _origin(preset.base_url or ""):
            return None
        name = preset.api_key_env
    if name is None:
        return None
    if name not in environment:
        faults.warn(f"{path}.api_key_env", f"the environment variable {name} is not set.")
    elif not environment[name].strip():
        faults.warn(f"{path}.api_key_env", f"the environment variable {name} is empty.")
    elif not environment[name].isascii() or any(c in environment[name].strip() for c in "\r\n\0"):
        hint = f"Set {name} again, without line ends."
        faults.add(f"{path}.api_key_env", f"{name} holds characters no header can carry.", hint)
    return name


def _origin(url: str) -> tuple[str, str, int | None]:
    parts: SplitResult = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), port


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
