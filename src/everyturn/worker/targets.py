"""Which addresses a worker calls: its own list, on loopback only."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from everyturn.errors import InvalidValue
from everyturn.worker.dial import is_loopback

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def parse_targets(given: tuple[str, ...]) -> dict[str, str]:
    """`NAME=URL`, each once, as name → base URL. Raises InvalidValue."""
    targets: dict[str, str] = {}
    for text in given:
        name, equals, url = text.partition("=")
        if not equals or not NAME.fullmatch(name):
            raise InvalidValue(
                "a target is not of the form NAME=URL",
                param="allow",
                hint="Write --allow llama=http://127.0.0.1:8081/v1; names are small letters, "
                "digits and `-`.",
            )
        if name in targets:
            raise InvalidValue(f"the target {name} is allowed twice", param="allow")
        targets[name] = _base_url(name, url)
    return targets


def _base_url(name: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not parts.hostname or parts.username is not None or parts.query:
        raise InvalidValue(
            f"the address of the target {name} is no URL of a model server",
            param="allow",
            hint="Write it as you would give it to an OpenAI SDK: http://127.0.0.1:8081/v1.",
        )
    if not is_loopback(parts.hostname):
        raise InvalidValue(
            f"the address of the target {name} is not on this machine",
            param="allow",
            hint="A worker calls loopback only: run it beside the model server.",
        )
    return url.rstrip("/")
