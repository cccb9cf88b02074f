"""`everyturn worker`: run calls beside a model server, and say who may."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from everyturn.cli.folder import data_option
from everyturn.cli.lazy import ToldGroup
from everyturn.errors import Failure
from everyturn.gateway.worker_registry import CODE_SECONDS, Paired, Registry
from everyturn.store.document import rfc3339

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FOLDER: Final = Path("everyturn-worker")


@click.group("worker", cls=ToldGroup)
def worker_command() -> None:
    """Run calls on a model server in another network: a worker beside it dials out to the gateway.

    On the gateway's machine: `invite`, `list`, `revoke`, `rotate`. Beside the model server: `pair`,
    then `run`.
    """


def _folder_option(command: F) -> F:
    return click.option(
        "--folder",
        type=click.Path(path_type=Path),
        default=DEFAULT_FOLDER,
        show_default=True,
        help="Where this worker keeps its credential.",
    )(command)


def _told(failure: Failure) -> None:
    """Say what went wrong and end with status 1."""
    click.echo(f"everyturn: {failure.message}. {failure.hint}", err=True)
    sys.exit(1)


# ------------------------------------------------------------------------- on the gateway's machine


@worker_command.command("invite")
@click.argument("name")
@data_option
def invite_command(name: str, data: Path) -> None:
    """Print a code that pairs one worker as NAME: once, within ten minutes.

    Exit status 0: the code is on stdout; 1: it could not be made.
    """
    try:
        code = Registry(data).invite(name, int(time.time()))
    except Failure as failure:
        _told(failure)
        return
    click.echo(code)
    click.echo(
        f"Good for {CODE_SECONDS // 60} minutes and one use. Beside the model server run:\n\n"
        f"everyturn worker pair --gateway wss://HOST:PORT --code {code}",
        err=True,
    )


@worker_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a worker.")
@data_option
def list_command(as_json: bool, data: Path) -> None:
    """List the workers that are paired, and which of them are connected."""
    try:
        workers = Registry(data).read().workers
    except Failure as failure:
        _told(failure)
        return
    for name, worker in sorted(workers.items()):
        click.echo(_as_json(name, worker) if as_json else _as_line(name, worker))
    if not workers:
        click.echo("No worker is paired. `everyturn worker invite NAME` gives a code.", err=True)


@worker_command.command("revoke")
@click.argument("name")
@data_option
def revoke_command(name: str, data: Path) -> None:
    """Take away the credential of NAME; a link that lives is ended within seconds.

    Exit status 0: revoked; 1: no such worker.
    """
    try:
        was_known = Registry(data).revoke(name)
    except Failure as failure:
        _told(failure)
        return
    _answer(name, was_known, "Revoked.")


@worker_command.command("rotate")
@click.argument("name")
@data_option
def rotate_command(name: str, data: Path) -> None:
    """Give NAME a new credential over its link, now or when it connects next.

    The old one is void once the worker has stored the new one; `worker list` tells when. Exit
    status 0: asked for; 1: no such worker.
    """
    try:
        was_known = Registry(data).want_rotation(name)
    except Failure as failure:
        _told(failure)
        return
    _answer(name, was_known, "The credential is changed as soon as the worker is connected.")


def _answer(name: str, was_known: bool, words: str) -> None:
    if not was_known:
        click.echo(f"everyturn: no worker is named {name}; `everyturn worker list`.", err=True)
        sys.exit(1)
    click.echo(words, err=True)


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else rfc3339(seconds * 1_000_000)


def _as_json(name: str, worker: Paired) -> str:
    return json.dumps(
        {
            "name": name,
            "paired_at": _time(worker.paired_at),
            "rotated_at": _time(worker.rotated_at),
            "wants_rotation": worker.wants_rotation,
            "connected_at": _time(worker.connected_at),
            "seen_at": _time(worker.seen_at),
        }
    )


def _as_line(name: str, worker: Paired) -> str:
    if worker.connected_at is not None:
        state = f"connected since {_time(worker.connected_at)}"
    elif worker.seen_at is not None:
        state = f"gone since {_time(worker.seen_at)}"
    else:
        state = "never connected"
    rotation = ", rotation asked for" if worker.wants_rotation else ""
    return f"{name}: {state}{rotation}"


# ----------------------------------------------------------------------------- beside the server


@worker_command.command("pair")
@click.option("--gateway", required=True, help="wss://HOST:PORT; ws:// on this machine only.")
@click.option("--code", required=True, help="What `everyturn worker invite` printed.")
@_folder_option
def pair_command(gateway: str, code: str, folder: Path) -> None:
    """Take a code to the gateway and keep the credential that it gives.

    Exit status 0: paired; 1: not.
    """
    from everyturn.worker import credential
    from everyturn.worker.pair import pair

    try:
        credential.check_folder(folder)
        paired = asyncio.run(pair(gateway, code, os.environ))
        credential.store(folder, paired)
    except Failure as failure:
        _told(failure)
        return
    except OSError as bad:
        click.echo(
            f"everyturn: the credential cannot be kept in {folder}: {bad.strerror}. "
            "Revoke this worker at the gateway, and pair again into another folder.",
            err=True,
        )
        sys.exit(1)
    click.echo(
        f"Paired as {paired.name}. Now run, with the address of the model server:\n\n"
        "everyturn worker run --allow NAME=http://127.0.0.1:PORT/v1",
        err=True,
    )


@worker_command.command("run")
@click.option(
    "--allow",
    multiple=True,
    required=True,
    metavar="NAME=URL",
    help="A model server on this machine, and what the gateway calls it; may be given again.",
)
@click.option(
    "--grace-ms",
    type=click.IntRange(0, 3_600_000),
    default=30_000,
    show_default=True,
    help="How long calls may go on after SIGTERM.",
)
@click.option(
    "--calls-max",
    type=click.IntRange(1, 100_000),
    default=256,
    show_default=True,
    help="Calls at once; more wait at the gateway, or go to another worker.",
)
@_folder_option
def run_command(allow: tuple[str, ...], grace_ms: int, calls_max: int, folder: Path) -> None:
    """Connect to the gateway and run its calls until SIGTERM or Ctrl-C.

    Log lines go to stderr, one JSON object each. Exit status 0: stopped as asked; 1: it could not
    start; 3: the credential is not valid any more; 4: no common version of the protocol; 5: another
    process connected with the same credential.
    """
    import uvloop

    from everyturn.worker.main import run
    from everyturn.worker.targets import parse_targets

    try:
        targets = parse_targets(allow)
        status = uvloop.run(
            run(folder, targets, _tell, grace_s=grace_ms / 1000, calls_max=calls_max)
        )
    except Failure as failure:
        _told(failure)
        return
    sys.exit(status)


def _tell(event: str, **facts: Any) -> None:
    """One log line: ids, counts and reasons of our own, never content."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    click.echo(json.dumps({"timestamp": now, "event": event, **facts}), err=True)
