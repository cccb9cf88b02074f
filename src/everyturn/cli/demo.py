"""The main job, shown: a gateway between an official client and a scripted provider.

Run it with `make demo`. No key, account or network is needed; it ends by itself and leaves the data
where it says.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from everyturn.cli.demo_bench import add_scripts, bench_demo, models
from everyturn.config import read_config
from everyturn.gateway.log import Log
from everyturn.gateway.server import Gateway, start
from everyturn.mock.server import MockProvider

QUESTION = [{"role": "user", "content": "Seven people share 84 pears. How many does each get?"}]


@dataclass(frozen=True, slots=True)
class Scene:
    """One turn of the demonstration."""

    title: str
    model: str
    scenario: str
    preset: str
    is_streamed: bool


SCENES = (
    Scene("Streamed reasoning, then the answer", "thinker", "deepseek", "deepseek", True),
    Scene("Two parallel tool calls", "caller", "tools", "deepseek", True),
    Scene("A refusal", "refuser", "refusal", "openai-chat", False),
    Scene("A stream that the provider cuts short", "cutter", "cut-abort", "deepseek", True),
    Scene("An error of the provider", "failer", "error-429", "openai-chat", False),
)


class Stage:
    """A scripted provider and a gateway, in a thread of their own."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="demo", daemon=True)
        self._mock = MockProvider()
        self._gateway: Gateway | None = None

    def open(self) -> str:
        """Start both; the gateway's base URL."""
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(timeout=30)

    async def _open(self) -> str:
        await self._mock.start()
        add_scripts(self._mock)
        config = read_config(_config(self._mock.url, self._data), "demo.toml", {})
        self._gateway = await start(config, {}, Log(is_on=False))
        return f"http://127.0.0.1:{self._gateway.port}/v1"

    def close(self) -> None:
        """Stop both: every record is complete then."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    async def _close(self) -> None:
        if self._gateway is not None:
            await self._gateway.stop()
        await self._mock.stop()


def _config(mock_url: str, data: Path) -> str:
    played = "".join(
        f'[[models]]\nname = "{scene.model}"\npreset = "{scene.preset}"\n'
        f'base_url = "{mock_url}"\nupstream_model = "{scene.scenario}"\n'
        for scene in SCENES
    )
    return f'[gateway]\nport = 0\ndata = "{data}"\n{played}{models(mock_url)}'


def play(client: Any, scene: Scene, say: Callable[[str], None]) -> str | None:
    """Send one turn and tell what the client sees; the turn id, None if no answer came at all."""
    import openai

    turn_id: str | None = None
    try:
        if scene.is_streamed:
            raw = client.chat.completions.with_raw_response.create(
                model=scene.model, messages=QUESTION, stream=True
            )
            turn_id = raw.headers.get("x-everyturn-turn-id")
            _tell_stream(raw.parse(), say)
        else:
            raw = client.chat.completions.with_raw_response.create(
                model=scene.model, messages=QUESTION
            )
            turn_id = raw.headers.get("x-everyturn-turn-id")
            _tell_message(raw.parse().choices[0].message.to_dict(), say)
    except openai.APIStatusError as failure:
        turn_id = failure.response.headers.get("x-everyturn-turn-id")
        say(f"error {failure.status_code}: {failure.message}")
    except openai.APIError as failure:
        say(f"error in the stream: {failure.message}")
    return turn_id


def _tell_stream(stream: Any, say: Callable[[str], None]) -> None:
    message: dict[str, Any] = {}
    try:
        for chunk in stream:
            for choice in chunk.choices:
                _grow(message, choice.delta.to_dict())
    finally:
        _tell_message(message, say)


def _grow(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key in ("reasoning_content", "content", "refusal"):
        if delta.get(key):
            message[key] = message.get(key, "") + delta[key]
    for call in delta.get("tool_calls") or ():
        calls = message.setdefault("tool_calls", {})
        known = calls.setdefault(call["index"], {"name": "", "arguments": ""})
        function = call.get("function") or {}
        known["name"] += function.get("name") or ""
        known["arguments"] += function.get("arguments") or ""


def _tell_message(message: dict[str, Any], say: Callable[[str], None]) -> None:
    for key, label in (
        ("reasoning_content", "reasoning"),
        ("content", "content"),
        ("refusal", "refusal"),
    ):
        if message.get(key):
            say(f"{label}: {message[key]}")
    calls = message.get("tool_calls") or {}
    for call in calls.values() if isinstance(calls, dict) else calls:
        say(f"tool call: {call['name']}({call['arguments']})")


def tell_record(turn: dict[str, Any], say: Callable[[str], None]) -> None:
    """What the record holds of a turn, in a few lines."""
    audit = turn["turn"]
    say(f"outcome: {audit['outcome']}, failure: {audit['failure_type']}")
    for call in turn["model_calls"]:
        known = call["prompt_tokens"] is not None
        tokens = f"{call['prompt_tokens']} tokens in, {call['completion_tokens']} out"
        say(f"call: {call['stream_state']}, {tokens if known else 'no usage reported'}")
        if call["reasoning_chars"]:
            say(f"reasoning: {call['reasoning_chars']} characters counted, none kept")
        if call["error_code"]:
            say(f"error code: {call['error_code']}")


def _recorded(client: Any, turn_id: str) -> dict[str, Any]:
    """The turn as `GET /v1/turns/{turn_id}` gives it."""
    turn: dict[str, Any] = client.get(f"/turns/{turn_id}", cast_to=object)
    return turn


@click.command("demo")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Leave the record in this folder; a new one under the temporary folder by default.",
)
def demo(data: Path | None) -> None:
    """Send turns through a gateway, show what was seen and recorded, and run a small benchmark."""
    import openai

    from everyturn.cli.show import show_turn

    folder = data if data is not None else Path(tempfile.mkdtemp(prefix="everyturn-demo-"))
    stage = Stage(folder)
    url = stage.open()
    turn_ids: list[str] = []
    try:
        client = openai.OpenAI(base_url=url, api_key="sk-test-unused", max_retries=0)
        for number, scene in enumerate(SCENES, start=1):
            click.secho(f"\n{number}. {scene.title}", bold=True)
            click.echo("   the client sees")
            turn_id = play(client, scene, lambda line: click.echo(f"     {line}"))
            if turn_id is None:
                click.echo("everyturn: a turn got no turn id; this is a defect.", err=True)
                sys.exit(1)
            turn_ids.append(turn_id)
            turn = _recorded(client, turn_id)
            click.echo("   the record holds")
            tell_record(turn, lambda line: click.echo(f"     {line}"))
        client.close()
        click.secho(f"\n$ everyturn show {turn_ids[1]} --data {folder}", bold=True)
        show_turn(folder, turn_ids[1], as_json=False)
        click.secho(f"\n{len(SCENES) + 1}. A benchmark: two models, two ways to ask", bold=True)
        bench_demo(url, folder / "bench", lambda line: click.echo(f"     {line}"))
    finally:
        stage.close()
    click.echo(f"\nThe record is in {folder}. To read on:\n")
    click.echo(f"{_command()} turns --data {folder}")
    click.echo(f'{_command()} find "share 84 pears" --data {folder}')


def _command() -> str:
    """How this shell reaches `everyturn`: its place, as seen from the current folder.

    `make demo` installs it into a folder that is on nobody's PATH.
    """
    place = Path(sys.executable).with_name("everyturn")
    return str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place)


if __name__ == "__main__":
    demo()
