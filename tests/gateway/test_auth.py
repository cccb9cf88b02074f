"""API keys: who may do what."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from everyturn.cli.main import main
from everyturn.config import read_config
from everyturn.errors import ConfigError, NotPermitted, Unauthorized
from everyturn.gateway.auth import ANYONE, Key, Keys, hash_secret, new_key
from tests.support.gateway import HELLO, gateway_and_mock

MODEL = '[[models]]\nname = "m"\npreset = "openai-chat"\n'


def entry(name: str, sha256: str, *permissions: str) -> str:
    """A `[[keys]]` table."""
    listed = ", ".join(f'"{permission}"' for permission in permissions)
    return f'[[keys]]\nname = "{name}"\nsha256 = "{sha256}"\npermissions = [{listed}]'


def test_without_keys_anyone_may() -> None:
    """A gateway without keys asks for none."""
    assert Keys([]).principal(None) is ANYONE
    assert not Keys([]).are_needed


def test_a_key_names_its_principal() -> None:
    """The key of a configured hash gives its name and permissions, and no others."""
    key, sha256 = new_key("app")
    keys = Keys([Key(name="app", secret_sha256=sha256, permissions=frozenset({"call"}))])

    principal = keys.principal(f"Bearer {key}")

    assert keys.are_needed
    assert principal.name == "app"
    principal.require("call")
    with pytest.raises(NotPermitted, match="read"):
        principal.require("read")


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer x", "Basic KEY", "Bearer et_other_SECRET", "Bearer et_app_WRONG"],
)
def test_anything_else_is_refused(header: str | None) -> None:
    """No key, another scheme, an unknown name and a wrong secret are all the same 401."""
    _, sha256 = new_key("app")
    keys = Keys([Key(name="app", secret_sha256=sha256, permissions=frozenset({"call"}))])
    if header is not None:
        header = header.replace("SECRET", "A" * 43).replace("WRONG", "B" * 43)

    with pytest.raises(Unauthorized):
        keys.principal(header)


def test_the_command_makes_a_key_and_its_table() -> None:
    """The key goes to stdout alone; all of stderr may be put into the configuration as it is."""
    made = CliRunner().invoke(main, ["key", "new", "shop-1", "--permissions", "call, read,call"])

    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    assert key.startswith("et_shop-1_")
    secret = key.removeprefix("et_shop-1_")
    assert secret not in made.stderr
    (configured,) = read_config(MODEL + made.stderr, "t.toml", {}).keys
    assert configured.sha256 == hash_secret(secret)
    assert configured.permissions == {"call", "read"}


@pytest.mark.parametrize(
    "arguments", [["No Name"], ["app", "--permissions", "fly"], ["app", "--permissions", ","]]
)
def test_a_key_that_cannot_be_made(arguments: list[str]) -> None:
    """A name or permission that cannot be used is bad use, and no key is printed."""
    refused = CliRunner().invoke(main, ["key", "new", *arguments])

    assert refused.exit_code == 2
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("keys = 3\n", ["keys"]),
        ("keys = [3]\n", ["keys[0]"]),
        ("[[keys]]\n", ["keys[0].name", "keys[0].permissions", "keys[0].sha256"]),
        (entry("A", "0" * 64, "call"), ["keys[0].name"]),
        (entry("a", "x", "call"), ["keys[0].sha256"]),
        (entry("a", "0" * 64), ["keys[0].permissions"]),
        (entry("a", "0" * 64, "fly"), ["keys[0].permissions", "keys[0].permissions"]),
        (entry("a", "0" * 64, "call") + "\n" + entry("a", "1" * 64, "call"), ["keys[1].name"]),
    ],
)
def test_each_fault_of_a_key_is_named(text: str, keys: list[str]) -> None:
    """A `[[keys]]` entry that cannot be used is a fault with its path."""
    whole = text + MODEL if text.startswith("keys") else MODEL + text
    with pytest.raises(ConfigError) as failure:
        read_config(whole, "t.toml", {})

    assert [key for _, key, _, _ in failure.value.faults] == keys


def test_with_keys_any_host_may_be_served() -> None:
    """The loopback rule is for gateways without keys."""
    text = '[gateway]\nhost = "0.0.0.0"\n' + MODEL

    with pytest.raises(ConfigError):
        read_config(text, "t.toml", {})
    assert read_config(text + entry("a", "0" * 64, "call"), "t.toml", {}).host == "0.0.0.0"


async def test_keys_on_the_wire(tmp_path: Path) -> None:
    """401 without a key, 403 without the permission; the principal is in the record."""
    caller, caller_hash = new_key("caller")
    reader, reader_hash = new_key("reader")
    extra = entry("caller", caller_hash, "call") + "\n" + entry("reader", reader_hash, "read")
    async with gateway_and_mock(tmp_path / "data", extra=extra, upstream_model="plain") as (
        running,
        _,
    ):

        async def ask(key: str | None, turn_id: str | None = None) -> tuple[int, str, str]:
            headers = {"host": "gateway.example"}
            if key is not None:
                headers["authorization"] = f"Bearer {key}"
            if turn_id is not None:
                headers["x-everyturn-turn-id"] = turn_id
            body = {"model": "m", "messages": HELLO}
            answer = await running.client.post("/chat/completions", json=body, headers=headers)
            code = answer.json().get("error", {}).get("code", "")
            return answer.status_code, code, answer.headers["x-everyturn-turn-id"]

        nobody = await ask(None)
        wrong = await ask("et_caller_" + "A" * 43)
        unable = await ask(reader)
        served = await ask(caller)
        read = await running.client.get(
            f"/turns/{served[2]}", headers={"authorization": f"Bearer {reader}"}
        )
        unread = await running.client.get(
            f"/turns/{served[2]}", headers={"authorization": f"Bearer {caller}"}
        )
        root = str(running.client.base_url).removesuffix("/v1/")
        alive = await running.client.get(f"{root}/healthz")

    assert nobody[:2] == wrong[:2] == (401, "unauthorized")
    assert unable[:2] == (403, "not_permitted")
    assert served[0] == 200
    assert read.json()["turn"]["principal"] == "caller"
    assert unread.json()["error"]["code"] == "not_permitted"
    assert alive.status_code == 200


async def test_a_turn_belongs_to_the_key_that_opened_it(tmp_path: Path) -> None:
    """Another key may not join a turn."""
    one, one_hash = new_key("one")
    two, two_hash = new_key("two")
    extra = entry("one", one_hash, "call") + "\n" + entry("two", two_hash, "call")
    async with gateway_and_mock(tmp_path / "data", extra=extra, upstream_model="plain") as (
        running,
        _,
    ):
        body = {"model": "m", "messages": HELLO}
        opened = await running.client.post(
            "/chat/completions", json=body, headers={"authorization": f"Bearer {one}"}
        )
        turn_id = opened.headers["x-everyturn-turn-id"]
        answers = [
            await running.client.post(
                "/chat/completions",
                json=body,
                headers={"authorization": f"Bearer {key}", "x-everyturn-turn-id": turn_id},
            )
            for key in (one, two)
        ]

    assert [answer.status_code for answer in answers] == [200, 403]
