"""Read a configuration: TOML and environment in, a Config or all its faults out.

Environment variables named `EVERYTURN_SECTION_KEY` (`EVERYTURN_GATEWAY_PORT`) outweigh the file for
every setting but models. Nothing is guessed: an unknown key is a fault.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from everyturn.audit.plugins import Plugin
from everyturn.config.faults import Faults, nearest, read_table, wrong
from everyturn.config.files import read_file
from everyturn.config.keys import KeyConfig, read_keys
from everyturn.config.models import ModelConfig, read_models
from everyturn.config.plugins import read_plugins
from everyturn.config.redaction import RedactionConfig, read_redaction
from everyturn.config.table import SECTIONS, Setting
from everyturn.errors import ConfigError
from everyturn.wire.limits import Limits

LISTS: Final = ("models", "keys", "plugins")
"""Tables of which there may be several."""

_TOML_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole configuration, checked."""

    path: str
    host: str
    port: int
    data: Path
    shutdown_grace_ms: int
    log: str
    service: str
    instance: str
    environment: str
    durability: Literal["process", "disk"]
    on_failure: Literal["refuse", "serve"]
    queue_bytes_max: int
    records: bool
    """Whether turns are recorded."""
    request_bytes_max: int
    open_turns_max: int
    limits: Limits
    models: tuple[ModelConfig, ...]
    redaction: RedactionConfig
    media_bytes_max: int = 0
    """Of a file or medium that is kept; 0: none is."""
    tls: tuple[Path, Path] | None = None
    """Certificate chain and private key, in PEM; None: plain HTTP."""
    export_folder: Path | None = None
    """Where each day is written once it is over; None: nowhere."""
    keys: tuple[KeyConfig, ...] = ()
    """API keys; without any, the gateway serves loopback only and asks for none."""
    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    """What plugins declare, beside those that ship."""
    warnings: tuple[str, ...] = ()
    """What can be served but will likely disappoint, such as a key variable that is unset."""


def load_config(path: Path, environment: Mapping[str, str]) -> Config:
    """The configuration in the file `path`. Raises ConfigError with every fault found."""
    try:
        text = read_file(path)
    except OSError as bad:
        hint = "Name a file that can be read with --config."
        raise ConfigError(
            str(path), [(0, "file", f"cannot be read: {bad.strerror}.", hint)]
        ) from bad
    except UnicodeDecodeError as bad:
        fault = (0, "file", f"is not UTF-8 (byte {bad.start}).", "Save it as UTF-8.")
        raise ConfigError(str(path), [fault]) from None
    return read_config(text, str(path), environment, folder=path.parent)


def read_config(
    text: str, path: str, environment: Mapping[str, str], *, folder: Path = Path()
) -> Config:
    """The configuration in a TOML text.

    path: what messages call it. folder: where relative preset files are looked for.
    Raises ConfigError with every fault found.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as bad:
        place = _TOML_LINE.search(str(bad))
        what = _TOML_LINE.sub("", str(bad))
        line = int(place[1]) if place else 0
        fault = (line, "file", f"is not TOML: {what}.", "Correct the line.")
        raise ConfigError(path, [fault]) from None
    faults = Faults(path, text)
    for name in tree:
        if name not in SECTIONS and name not in LISTS:
            hint = nearest(name, [*SECTIONS, *LISTS])
            faults.add(name, "is not a table of this configuration.", hint)
    values = {
        section: _section(section, tree.get(section, {}), environment, faults)
        for section in SECTIONS
    }
    models = read_models(tree.get("models"), environment, faults, folder, kept=values["reasoning"])
    keys = read_keys(tree.get("keys"), faults)
    redaction = read_redaction(values["redaction"], environment, faults)
    plugins = read_plugins(tree.get("plugins"), faults)
    if not keys:
        _check_host(values["gateway"]["host"], faults)
    if bool(values["gateway"]["tls_cert"]) != bool(values["gateway"]["tls_key"]):
        faults.add("gateway.tls_cert", "and `tls_key` belong together.", "Give both or neither.")
    if faults.found:
        raise ConfigError(path, sorted(faults.found))
    config = _config(path, values, models, keys, redaction)
    return replace(config, plugins=plugins, warnings=tuple(faults.warnings))


def _config(
    path: str,
    values: dict[str, dict[str, Any]],
    models: tuple[ModelConfig, ...],
    keys: tuple[KeyConfig, ...],
    redaction: RedactionConfig,
) -> Config:
    gateway, service, audit, media, export, limits = (
        values[name] for name in ("gateway", "service", "audit", "media", "export", "limits")
    )
    return Config(
        path=path,
        host=gateway["host"],
        port=gateway["port"],
        data=Path(gateway["data"]),
        shutdown_grace_ms=gateway["shutdown_grace_ms"],
        log=gateway["log"],
        service=service["service"],
        instance=service["instance"],
        environment=service["environment"],
        durability=audit["durability"],
        on_failure=audit["on_failure"],
        queue_bytes_max=audit["queue_bytes_max"],
        records=audit["enabled"],
        request_bytes_max=limits["request_bytes_max"],
        open_turns_max=limits["open_turns_max"],
        limits=Limits(
            frame_bytes_max=limits["frame_bytes_max"],
            body_bytes_max=limits["body_bytes_max"],
            stream_bytes_max=limits["stream_bytes_max"],
            text_bytes_max=limits["text_bytes_max"],
        ),
        models=models,
        keys=keys,
        redaction=redaction,
        media_bytes_max=media["bytes_max"] if media["store"] == "keep" else 0,
        tls=_tls(gateway["tls_cert"], gateway["tls_key"]),
        export_folder=Path(export["folder"]) if export["daily"] else None,
    )


def _tls(certificate: str, key: str) -> tuple[Path, Path] | None:
    return (Path(certificate), Path(key)) if certificate and key else None


def _section(
    section: str, given: Any, environment: Mapping[str, str], faults: Faults
) -> dict[str, Any]:
    if not isinstance(given, dict):
        faults.add(section, "must be a table.", f"Write [{section}] and its keys below.")
        given = {}
    values = read_table(section, given, SECTIONS[section], faults)
    for setting in SECTIONS[section]:
        name = f"EVERYTURN_{section}_{setting.key}".upper()
        if name in environment:
            values[setting.key] = _from_environment(setting, name, environment[name], faults)
    return values


def _from_environment(setting: Setting, name: str, text: str, faults: Faults) -> Any:
    value: Any = text
    if setting.kind == "int":
        value = int(text) if re.fullmatch(r"\d{1,18}", text) else text
    elif setting.kind == "bool":
        value = {"true": True, "false": False}.get(text.lower(), text)
    elif setting.kind == "strings":
        value = [part.strip() for part in text.split(",") if part.strip()]
    problem = wrong(setting, value)
    if problem is not None:
        faults.add(name, problem, f"Correct or unset the environment variable. {setting.help}")
        return setting.default
    return value


def _check_host(host: str, faults: Faults) -> None:
    name = host.strip("[]").lower()
    if name not in ("localhost", "::1") and not re.fullmatch(r"127(\.\d{1,3}){3}", name):
        faults.add(
            "gateway.host",
            "is not a loopback address, and without API keys anyone who reaches the port could "
            "use your provider keys.",
            'Use "127.0.0.1", or add [[keys]]: `everyturn key new` makes one.',
        )
