"""`everyturn serve`: run the gateway."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import click

from everyturn.config import Config, load_config
from everyturn.errors import ConfigError, Failure


@click.command("serve")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=Path("everyturn.toml"),
    show_default=True,
    help="The configuration file.",
)
@click.option("--host", help="Listen on this address instead of the configured one.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Listen on this port instead of the configured one; 0 takes a free one.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Keep the record in this folder instead of the configured one.",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    help="Speak TLS with this certificate chain in PEM.",
)
@click.option(
    "--tls-key", type=click.Path(path_type=Path), help="The certificate's private key in PEM."
)
def serve_command(
    config_path: Path,
    host: str | None,
    port: int | None,
    data: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C.

    Log lines go to stderr, one JSON object each. Open turns are given time to end; a second signal
    ends them at once. Exit status 0: stopped as asked; 1: it could not start.
    """
    environment = dict(os.environ)
    given = {
        "HOST": host,
        "PORT": port,
        "DATA": data,
        "TLS_CERT": tls_cert,
        "TLS_KEY": tls_key,
    }
    for name, value in given.items():
        if value is not None:
            environment[f"EVERYTURN_GATEWAY_{name}"] = str(value)
    try:
        config = load_config(config_path, environment)
    except ConfigError as bad:
        click.echo(str(bad), err=True)
        sys.exit(1)
    for warning in config.warnings:
        click.echo(f"warning: {warning}", err=True)
    try:
        _run(config, environment)
    except ConfigError as bad:
        click.echo(str(bad), err=True)
        sys.exit(1)
    except Failure as bad:
        click.echo(f"everyturn: {bad.message}. {bad.hint}", err=True)
        sys.exit(1)
    except OSError as bad:
        where = f"{config.host}:{config.port}"
        click.echo(f"everyturn: cannot listen on {where}: {bad.strerror}.", err=True)
        click.echo("Choose another port with --port, or end what holds it.", err=True)
        sys.exit(1)


def _run(config: Config, environment: dict[str, str]) -> None:
    import uvloop

    from everyturn.gateway.server import serve

    uvloop.run(serve(dataclasses.replace(config), environment))
