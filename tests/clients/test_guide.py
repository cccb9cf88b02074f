"""The guide to clients says what is so: its examples run, and print what stands below them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everyturn.mock.server import MockProvider
from tests.support.gateway import running_gateway

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "clients.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```(python|js)\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
GATEWAY, PROVIDER = "http://127.0.0.1:8080/v1", "http://127.0.0.1:9100/v1"
WAIT_S = 60


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """The base URL of a gateway with the models of the guide."""
    (settings,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    async with MockProvider() as mock:
        models = [
            {**model, "base_url": mock.url}
            for model in tomllib.loads(settings)["models"]
            if model["base_url"] == PROVIDER
        ]
        async with running_gateway(models, tmp_path / "data") as running:
            yield running.url


def test_every_example_is_run() -> None:
    """Each example of the page has what it prints below it."""
    assert len(EXAMPLES) == len(re.findall(r"```(?:python|js)\n", TEXT))


async def shown(command: list[str], code: str, folder: Path) -> str:
    """What a program prints. Fails with what it wrote to stderr."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            out, complaint = await process.communicate(code.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaint.decode()
    return out.decode()


@pytest.mark.parametrize(
    ("code", "printed"), [(code, out) for kind, code, out in EXAMPLES if kind == "python"]
)
async def test_python(address: str, tmp_path: Path, code: str, printed: str) -> None:
    """An example in Python prints what the guide says."""
    command = [sys.executable, "-"]
    assert (await shown(command, code.replace(GATEWAY, address), tmp_path)).rstrip(
        "\n"
    ) == printed.rstrip("\n")


@pytest.mark.parametrize(
    ("code", "printed"), [(code, out) for kind, code, out in EXAMPLES if kind == "js"]
)
async def test_node(node_folder: Path, address: str, code: str, printed: str) -> None:
    """An example for Node prints what the guide says."""
    command = ["node", "--input-type=module", "-"]
    assert (await shown(command, code.replace(GATEWAY, address), node_folder)).rstrip(
        "\n"
    ) == printed.rstrip("\n")
