"""One connection to the gateway and `POST /v1/records` over it.

Blocking, for the sender's thread alone. Proxies of the environment are not used and redirects not
followed: records go to the gateway that was named, or nowhere.
"""

from __future__ import annotations

import codecs
import http.client
import json
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from everyturn import __version__
from everyturn.sdk.settings import Settings

# Looking up a host imports this codec; here, so that a fork never meets it half imported.
codecs.lookup("idna")

ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
RETRY_AFTER_SECONDS_MAX: Final = 300.0


class Delivered(NamedTuple):
    """The gateway answered for each record: on disk, or refused."""

    accepted: int
    refused: list[tuple[str, str]]
    """(code, param) of each record that was refused; names only, never values."""


class Away(NamedTuple):
    """Nobody answered, or who did cannot take records now. The same request may be sent again."""

    retry_after_seconds: float | None
    reason: str
    """For a log line: a status or the kind of failure."""


class Rejected(NamedTuple):
    """The gateway refused the whole request; sending it again unchanged is refused again."""

    status: int
    code: str

    @property
    def may_be_one_record(self) -> bool:
        """Whether a single record may have spoiled the request for all others."""
        return self.status in (400, 413, 422)


Answer = Delivered | Away | Rejected


class Channel:
    """A connection that is opened when needed and kept."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._connection: http.client.HTTPConnection | None = None
        self._headers = {
            "content-type": "application/json",
            "user-agent": f"everyturn-python/{__version__}",
        }
        if settings.api_key is not None:
            self._headers["authorization"] = f"Bearer {settings.api_key}"

    def send(self, records: Sequence[bytes]) -> Answer:
        """Send records (JSON objects, at most 1,000) and say what came of it. Raises nothing."""
        if not self.settings.host:
            return Away(None, "the settings of the environment cannot be used")
        body = b'{"records":[' + b",".join(records) + b"]}"
        was_kept = self._connection is not None
        try:
            return self._exchange(body, len(records))
        except (OSError, http.client.HTTPException) as failure:
            self.close()
            if not was_kept:
                return Away(None, type(failure).__name__)
        # A connection that was kept may have been closed meanwhile; that says nothing about the
        # gateway, and the same records twice do no harm.
        try:
            return self._exchange(body, len(records))
        except (OSError, http.client.HTTPException) as failure:
            self.close()
            return Away(None, type(failure).__name__)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, body: bytes, count: int) -> Answer:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
        connection.request(
            "POST", f"{self.settings.path}/v1/records", body=body, headers=self._headers
        )
        response = connection.getresponse()
        raw = response.read(ANSWER_BYTES_MAX + 1)
        if response.will_close or len(raw) > ANSWER_BYTES_MAX:
            self.close()
        if response.status == 200:
            return _delivered(raw, count)
        if 400 <= response.status < 500 and response.status not in (408, 425, 429):
            return Rejected(response.status, _error_code(raw))
        return Away(_retry_after(response.getheader("retry-after")), f"status {response.status}")

    def _connect(self) -> http.client.HTTPConnection:
        settings = self.settings
        kind = http.client.HTTPSConnection if settings.is_tls else http.client.HTTPConnection
        return kind(settings.host, settings.port, timeout=settings.timeout_seconds)


def _delivered(raw: bytes, count: int) -> Answer:
    """The answer to `count` records. What is not that answer did not come from a gateway."""
    try:
        answer = json.loads(raw)
        accepted, refused = answer["accepted"], answer["refused"]
        reasons = [(str(item["code"]), str(item.get("param") or "")) for item in refused]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Away(None, "an answer that is not a gateway's")
    if accepted.__class__ is not int or accepted + len(reasons) != count:
        return Away(None, "an answer that does not fit what was sent")
    return Delivered(accepted, reasons)


def _error_code(raw: bytes) -> str:
    try:
        code: Any = json.loads(raw)["error"]["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "unknown"
    return code if isinstance(code, str) and code.isidentifier() else "unknown"


def _retry_after(value: str | None) -> float | None:
    """Seconds of a `retry-after` header, a number or a date; None when it says nothing usable."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    if not seconds >= 0:
        return 0.0 if seconds < 0 else None
    return min(seconds, RETRY_AFTER_SECONDS_MAX)
