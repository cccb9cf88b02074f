"""`everyturn import`: OpenTelemetry spans from a file, as records of a running gateway."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from everyturn.audit.otel.records import Account, Plan
from everyturn.cli.terminal import counted, safe_line
from everyturn.errors import InvalidValue
from everyturn.sdk.post import Away, Channel, Delivered, Rejected
from everyturn.sdk.settings import Settings, from_environment
from everyturn.wire.reader import Malformed, read_provider, write

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer line is counted as one that cannot be read."""
BATCH_RECORDS: Final = 200
BATCH_BYTES: Final = 1024 * 1024
TRIES: Final = 5
_WAIT_SECONDS_MAX: Final = 10.0
_NAME_CHARS: Final = 120


class _Stopped(Exception):
    """The gateway takes no more; the message says why and what to do."""


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--gateway",
    help="The gateway that takes the records; EVERYTURN_URL names it too.",
)
@click.option("--dry-run", is_flag=True, help="Read the file and tell, but send nothing.")
def import_command(file: Path, gateway: str | None, dry_run: bool) -> None:
    """Take the OpenTelemetry spans in FILE into the record of a running gateway.

    FILE is OTLP/JSON, one request a line, as `everyturn export --format otlp` and the
    OpenTelemetry Collector's file exporter write it. Spans in the names of the GenAI conventions or
    of OpenInference become turns, model calls, tool runs and retrievals; each trace is a turn. The
    same file again changes nothing. The key is in EVERYTURN_API_KEY.

    How many records of each table there were goes to stdout; what has no place in the record is
    counted and named on stderr. Exit status 0: all that has a place was taken; 1: the file or
    lines of it could not be read, or the gateway refused records or was away; 2: bad use.
    """
    account = Account()
    try:
        sending = _Sending(None if dry_run else _channel(gateway))
        try:
            _import(file, account, sending)
        except _Stopped as stopped:
            click.echo(f"everyturn: {stopped}", err=True)
        finally:
            sending.close()
    except OSError as bad:
        click.echo(
            f"everyturn: {file} cannot be read: {bad.strerror or 'it must be a file'}.", err=True
        )
        sys.exit(1)
    _tell(account, sending)
    if sending.is_stopped or sending.refused or any(what == "line" for what, _ in account.left_out):
        sys.exit(1)


class _Sending:
    """Records on their way to the gateway, in batches; none where nothing is to be sent."""

    def __init__(self, channel: Channel | None) -> None:
        self._channel = channel
        self._batch: list[bytes] = []
        self._bytes = 0
        self.accepted = 0
        self.refused: Counter[tuple[str, str]] = Counter()
        """(code, parameter) → records."""
        self.is_stopped = False

    def add(self, record: dict[str, Any]) -> None:
        """Take a record along. Raises _Stopped."""
        if self._channel is None:
            return
        line = write(record)
        if len(self._batch) == BATCH_RECORDS or (
            self._batch and self._bytes + len(line) > BATCH_BYTES
        ):
            self.flush()
        self._batch.append(line)
        self._bytes += len(line)

    def flush(self) -> None:
        """Send what waits. Raises _Stopped."""
        batch, self._batch, self._bytes = self._batch, [], 0
        if batch:
            self._send(batch)

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()

    def _send(self, batch: list[bytes]) -> None:
        assert self._channel is not None
        away = Away(None, "")
        for attempt in range(TRIES):
            match self._channel.send(batch):
                case Delivered(accepted, refused):
                    self.accepted += accepted
                    self.refused.update(refused)
                    return
                case Rejected() as answer:
                    self._rejected(batch, answer)
                    return
                case Away() as away:
                    if attempt + 1 < TRIES:
                        time.sleep(min(away.retry_after_seconds or 0.2, _WAIT_SECONDS_MAX))
        self._stop(
            f"the gateway does not take records ({away.reason}). {self.accepted} are there; import"
            " the file again when it does: what is there stays as it is."
        )

    def _rejected(self, batch: list[bytes], answer: Rejected) -> None:
        """One record may have spoiled the request for the others."""
        if not answer.may_be_one_record:
            self._stop(
                f"the gateway refuses the request: status {answer.status} {answer.code}. The key"
                " in EVERYTURN_API_KEY needs the permission `record`."
            )
        if len(batch) == 1:
            self.refused[answer.code, ""] += 1
            return
        for one in batch:
            self._send([one])

    def _stop(self, why: str) -> None:
        self.is_stopped = True
        raise _Stopped(why)


def _channel(gateway: str | None) -> Channel:
    given = from_environment(os.environ)
    if gateway is not None:
        given["url"] = gateway
    try:
        return Channel(Settings(**given))
    except InvalidValue as bad:
        raise click.UsageError(f"The gateway's address or key: {bad.message}. {bad.hint}") from bad


def _import(file: Path, account: Account, sending: _Sending) -> None:
    """Read the file twice and send its records. Raises OSError, _Stopped."""
    plan = Plan()
    with file.open("rb") as lines:
        for request in _requests(lines, Account()):
            plan.look(request)
        lines.seek(0)
        for request in _requests(lines, account):
            for record in plan.records(request, account):
                sending.add(record)
    sending.flush()


def _requests(lines: BinaryIO, account: Account) -> Iterator[Any]:
    """The requests of a file; lines that are none are counted by their number."""
    number = 0
    while line := lines.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            account.leave("line", f"{number} is longer than {LINE_BYTES_MAX} bytes")
            while line and not line.endswith(b"\n"):
                line = lines.readline(LINE_BYTES_MAX)
            continue
        if not line.strip():
            continue
        try:
            yield read_provider(line.strip()).value
        except Malformed as bad:
            account.leave("line", f"{number}: {bad.reason}")


def _tell(account: Account, sending: _Sending) -> None:
    for log, count in sorted(account.records.items()):
        click.echo(f"{log} {count}")
    total = sum(account.records.values())
    taken = f"{sending.accepted} accepted" if sending.accepted else "none sent"
    click.echo(f"{counted(account.spans, 'span')}, {counted(total, 'record')}, {taken}.", err=True)
    for (code, param), count in sorted(sending.refused.items()):
        what = f"{code} `{param}`" if param else code
        click.echo(f"refused: {what}: {counted(count, 'record')}", err=True)
    if account.reasoning_chars:
        click.echo(f"left out: reasoning: {account.reasoning_chars} characters", err=True)
    for (what, name), count in sorted(account.left_out.items()):
        click.echo(f"left out: {what} {safe_line(name, _NAME_CHARS)}: {count}", err=True)
