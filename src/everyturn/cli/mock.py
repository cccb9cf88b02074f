"""`everyturn mock`: the scripted provider as a command."""

from __future__ import annotations

import asyncio
import signal

import click


@click.command("mock")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=9100,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--quiet", is_flag=True, help="Print the URL only, not the list of scenarios.")
def mock_command(host: str, port: int, quiet: bool) -> None:
    """Run a scripted provider for demos and tests.

    The base URL goes to stdout, everything else to stderr. The last part of the model's name
    chooses what it answers: `mock-plain`, `mock-tools` and so on. It ends with Ctrl-C or SIGTERM.
    """
    try:
        asyncio.run(_run(host, port, is_quiet=quiet))
    except KeyboardInterrupt:
        # Where signals cannot be handled in the loop (Windows), Ctrl-C arrives like this.
        return
    except OSError as failure:
        raise click.ClickException(
            f"Cannot listen on {host} port {port}: {failure.strerror}. "
            "Choose another with `--port`; `--port 0` takes a free one."
        ) from failure


async def _run(host: str, port: int, *, is_quiet: bool) -> None:
    # Imported here so that the other commands start without it.
    from everyturn.mock import MockProvider

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stopping.set)
        except NotImplementedError:
            break
    provider = MockProvider()
    await provider.start(host, port)
    click.echo(provider.url)
    if not is_quiet:
        click.echo(_listing(), err=True)
    if host not in ("127.0.0.1", "::1", "localhost"):
        click.echo(
            "Anyone who reaches this port can read the requests it got, keys included.", err=True
        )
    await stopping.wait()
    await provider.stop()


def _listing() -> str:
    """The scenarios by group, and how to use them."""
    from everyturn.mock.scenarios import GROUPS, SCENARIOS

    width = max(len(_label(name)) for name in SCENARIOS)
    lines = ["Scripted provider. Ask for the model `mock-NAME`, whole or streamed:"]
    for group, scenarios in GROUPS.items():
        lines += ["", group]
        lines += [f"  {_label(each.name):{width}}  {each.title}" for each in scenarios]
    lines += ["", "`GET /__last?n=K` shows the last requests it got. Ctrl-C ends it."]
    return "\n".join(lines)


def _label(name: str) -> str:
    """A scenario as the list shows it: families with the number they take."""
    from everyturn.mock.scenarios import SCENARIOS

    return f"{name}[-N]" if SCENARIOS[name].number else name
