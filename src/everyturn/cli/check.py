"""`everyturn check`: is this configuration right, and if not, what is wrong where."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from everyturn.cli.terminal import counted
from everyturn.config import load_config
from everyturn.errors import ConfigError


@click.command("check")
@click.argument("config", type=click.Path(path_type=Path))
def check_command(config: Path) -> None:
    """Check the configuration file CONFIG without starting anything.

    Names each fault with its line and what to do about it. Exit status 0: the gateway would start;
    1: it would not.
    """
    try:
        loaded = load_config(config, os.environ)
    except ConfigError as bad:
        click.echo(str(bad), err=True)
        count = len(bad.faults)
        click.echo(f"{counted(count, 'fault')} in {config}", err=True)
        sys.exit(1)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    count = len(loaded.models)
    click.echo(f"{config} is right: {counted(count, 'model')}")
    for model in loaded.models:
        target = model.target
        click.echo(f"  {target.name}  {target.preset.name}  {target.base_url}")
