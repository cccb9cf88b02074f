"""Where records go and how much may wait: from arguments, else from the environment.

Wrong arguments of `configure` are refused at once. A wrong environment must not stop an
application that only imports us: then records are spilled, and it is counted and logged once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from everyturn.errors import InvalidValue

URL_DEFAULT: Final = "http://127.0.0.1:8080"
QUEUE_BYTES_MAX: Final = 16 * 1024 * 1024
SPILL_BYTES_MAX: Final = 256 * 1024 * 1024
EXIT_SECONDS_MAX: Final = 2.0
TIMEOUT_SECONDS: Final = 10.0

ENVIRONMENT: Final = {
    "url": "EVERYTURN_URL",
    "api_key": "EVERYTURN_API_KEY",
    "spill_folder": "EVERYTURN_SPILL_FOLDER",
    "insecure_http": "EVERYTURN_INSECURE_HTTP",
    "service": "EVERYTURN_SERVICE_NAME",
    "instance": "EVERYTURN_SERVICE_INSTANCE",
    "environment": "EVERYTURN_SERVICE_ENVIRONMENT",
}
"""Setting → the variable that gives it where `configure` does not."""


class Settings:
    """What the sender and the records need to know. Not changed after it was made.

    url: the gateway, without a path or with the prefix it is served under.
    spill_folder: where records rest while the gateway is away; None for a folder of the user's.
    queue_bytes_max, spill_bytes_max: bytes in memory, and in all files of the folder together.
    exit_seconds_max: how long the end of the process may wait for the gateway.
    timeout_seconds: for connecting, and for each read and write.
    insecure_http: allow plain HTTP to a host that is not this one.
    """

    __slots__ = (
        "api_key",
        "environment",
        "exit_seconds_max",
        "host",
        "instance",
        "is_tls",
        "path",
        "port",
        "queue_bytes_max",
        "service",
        "spill_bytes_max",
        "spill_folder",
        "timeout_seconds",
    )

    def __init__(
        self,
        *,
        url: str = URL_DEFAULT,
        api_key: str | None = None,
        spill_folder: str | os.PathLike[str] | None = None,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        spill_bytes_max: int = SPILL_BYTES_MAX,
        exit_seconds_max: float = EXIT_SECONDS_MAX,
        timeout_seconds: float = TIMEOUT_SECONDS,
        insecure_http: bool = False,
        service: str | None = None,
        instance: str | None = None,
        environment: str | None = None,
    ) -> None:
        self.is_tls, self.host, self.port, self.path = _address(url, insecure_http)
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise InvalidValue("`api_key` may hold printable ASCII only", param="api_key")
        self.api_key = api_key or None
        self.spill_folder = os.path.abspath(spill_folder or _default_folder())
        for name, value in (
            ("queue_bytes_max", queue_bytes_max),
            ("spill_bytes_max", spill_bytes_max),
            ("exit_seconds_max", exit_seconds_max),
            ("timeout_seconds", timeout_seconds),
        ):
            if value < 0 or (value == 0 and name == "timeout_seconds"):
                raise InvalidValue(f"`{name}` may not be below zero", param=name)
        self.queue_bytes_max = queue_bytes_max
        self.spill_bytes_max = spill_bytes_max
        self.exit_seconds_max = exit_seconds_max
        self.timeout_seconds = timeout_seconds
        self.service = service
        self.instance = instance
        self.environment = environment


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `Settings` that the environment gives; empty variables give nothing."""
    given: dict[str, Any] = {
        setting: environment[variable]
        for setting, variable in ENVIRONMENT.items()
        if environment.get(variable)
    }
    if "insecure_http" in given:
        given["insecure_http"] = given["insecure_http"].lower() in ("1", "true", "yes")
    return given


def _address(url: str, insecure_http: bool) -> tuple[bool, str, int, str]:
    """(is TLS, host, port, path) of a gateway. Raises InvalidValue; a URL may hold a secret."""
    # Imported here, so that importing the package stays cheap.
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidValue("`url` is not a URL", param="url") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidValue("`url` must begin with http:// or https://", param="url")
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidValue(
            "`url` may hold no user, query or fragment", param="url", hint="Use `api_key`."
        )
    is_tls = parts.scheme == "https"
    if not is_tls and not insecure_http and not _is_loopback(host):
        raise InvalidValue(
            "plain HTTP to another host sends texts and the key in clear",
            param="url",
            hint="Use https, or say `insecure_http=True` where the network is trusted.",
        )
    path = parts.path.rstrip("/").removesuffix("/v1")
    return is_tls, host, port or (443 if is_tls else 80), path


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _default_folder() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "everyturn", "spill")
