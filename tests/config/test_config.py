"""Configurations: what is right, and each fault with its line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from everyturn.cli.main import main
from everyturn.config import Config, load_config, read_config
from everyturn.config.lines import key_lines, line_of
from everyturn.errors import ConfigError

GOOD = """\
[gateway]
port = 9000

[[models]]
name = "m"
preset = "deepseek"
"""


def config(text: str, environment: dict[str, str] | None = None) -> Config:
    """The configuration in a text."""
    return read_config(text, "t.toml", environment or {"DEEPSEEK_API_KEY": "sk-test"})


def faults(text: str, environment: dict[str, str] | None = None) -> list[tuple[int, str]]:
    """Line and key of each fault of a text."""
    with pytest.raises(ConfigError) as failure:
        config(text, environment)
    for _, _, what, hint in failure.value.faults:
        assert what
        assert hint
    return [(line, key) for line, key, _, _ in failure.value.faults]


def test_a_model_takes_what_it_does_not_say_from_its_preset() -> None:
    """Base URL, carriers, tags, key variable and upstream name have the preset's defaults."""
    (model,) = config(GOOD).models

    assert model.target.base_url == "https://api.deepseek.com"
    assert model.target.upstream_model == "m"
    assert model.target.read == ("reasoning_content",)
    assert model.api_key == "sk-test"
    assert "sk-test" not in repr(model)


def test_a_key_goes_only_to_the_host_it_was_made_for() -> None:
    """The preset's own key variable is not read when the base URL is another host."""
    (model,) = config(GOOD + 'base_url = "https://other.example/v1"\n').models

    assert model.api_key is None


def test_a_missing_key_is_a_warning() -> None:
    """A key variable that is unset is told, with its line, and does not stop the gateway."""
    loaded = config(GOOD, {"OTHER": "x"})

    assert "DEEPSEEK_API_KEY is not set" in loaded.warnings[0]
    assert loaded.warnings[0].startswith("t.toml:4:")


@pytest.mark.parametrize("key", ["", "  ", "\n"])
def test_an_empty_key_is_no_key(key: str) -> None:
    """A key variable without a key in it is told, and no empty credential is sent."""
    loaded = config(GOOD, {"DEEPSEEK_API_KEY": key})

    assert "DEEPSEEK_API_KEY is empty" in loaded.warnings[0]
    assert loaded.models[0].api_key is None


def test_the_environment_outweighs_the_file() -> None:
    """`EVERYTURN_GATEWAY_PORT` and its kin win; a value that is wrong is a fault that names it."""
    assert config(GOOD, {"EVERYTURN_GATEWAY_PORT": "7"}).port == 7
    assert config(GOOD, {"EVERYTURN_AUDIT_ENABLED": "false"}).records is False
    assert faults(GOOD, {"EVERYTURN_GATEWAY_PORT": "x"}) == [(0, "EVERYTURN_GATEWAY_PORT")]


def test_all_ways_to_narrow_a_model() -> None:
    """Every key of a model entry reaches its target."""
    text = (
        GOOD.replace('name = "m"', 'name = "n"')
        + """\
upstream_model = "deepseek-chat"
api_key_env = "MINE"
allow = ["top_k"]
on_drift = "carry"
history_reasoning = "strip"
history_key = "reasoning"
thinking = "on"
reasoning = { read = [], tags = "split", tag = ["<t>", "</t>"], enabled = true }
terminal = "done"
stream = "always"
show_reasoning = false
query = { v = "1" }
auth_header = "api-key"
forward_headers = ["X-Team", "x-team"]
timeouts = { idle_ms = 5 }
"""
    )
    (model,) = config(text, {"MINE": "sk-test-mine"}).models
    target = model.target

    assert (target.upstream_model, model.api_key) == ("deepseek-chat", "sk-test-mine")
    assert (target.allow, target.on_drift) == (("top_k",), "carry")
    assert (target.history_reasoning, target.history_key) == ("strip", "reasoning")
    assert (target.thinking_on, target.reasoning, target.read) == (True, True, ())
    assert (target.tags, target.tag, target.terminal) == ("split", ("<t>", "</t>"), "done")
    assert (target.stream, target.show_reasoning) == ("always", False)
    assert (target.query, target.auth_header) == ((("v", "1"),), "api-key")
    assert target.forward_headers == ("x-team",)
    assert model.timeouts["idle_ms"] == 5
    assert model.timeouts["connect_ms"] == 10_000


WORKER = (
    GOOD
    + """transport = "worker"
worker = ["a", "b"]
target = "llama"
"""
)


def test_a_model_on_workers() -> None:
    """One worker or several, a target, and no address of its own."""
    (model,) = config(WORKER, {}).models
    (other,) = config(WORKER.replace('["a", "b"]', '"a"'), {}).models
    (direct,) = config(GOOD, {}).models

    assert (model.workers, other.workers, direct.workers) == (("a", "b"), ("a",), ())
    assert model.target.base_url == "worker://llama"
    assert model.api_key_env is None


FAULTS: list[tuple[str, list[tuple[int, str]]]] = [
    (GOOD + 'worker = "a"\n', [(7, "models[0].worker")]),
    (GOOD + 'target = "a"\n', [(7, "models[0].target")]),
    (WORKER.replace('["a", "b"]', "[]"), [(8, "models[0].worker")]),
    (WORKER.replace('["a", "b"]', '["a b"]'), [(8, "models[0].worker")]),
    (WORKER.replace('["a", "b"]', "3"), [(8, "models[0].worker")]),
    (WORKER.replace('"llama"', '"a/b"'), [(9, "models[0].target")]),
    (WORKER + 'base_url = "http://127.0.0.1:1"\n', [(10, "models[0].base_url")]),
    (GOOD.replace("port = 9000", 'tls_cert = "a.pem"'), [(2, "gateway.tls_cert")]),
    ("[gateway\n", [(1, "file")]),
    ("", [(0, "models")]),
    ("models = 3\n", [(1, "models")]),
    ("models = [3]\n", [(1, "models[0]")]),
    ("[colour]\n" + GOOD, [(1, "colour")]),
    ("gateway = 3\n" + GOOD.replace("[gateway]\nport = 9000\n", ""), [(1, "gateway")]),
    (GOOD.replace("port = 9000", "port = 70000"), [(2, "gateway.port")]),
    (GOOD.replace("port = 9000", 'port = "x"'), [(2, "gateway.port")]),
    (GOOD.replace("port = 9000", "prot = 9000"), [(2, "gateway.prot")]),
    (GOOD.replace("port = 9000", 'host = "0.0.0.0"'), [(2, "gateway.host")]),
    (GOOD.replace("port = 9000", 'host = "example.org"'), [(2, "gateway.host")]),
    (GOOD.replace("port = 9000", 'log = "loud"'), [(2, "gateway.log")]),
    (GOOD + GOOD[GOOD.index("[[") :], [(8, "models[1].name")]),
    ('[[models]]\nname = "m"\n', [(1, "models[0].preset")]),
    ('[[models]]\npreset = "deepseek"\n', [(1, "models[0].name")]),
    (GOOD.replace('"deepseek"', '"deepsek"'), [(6, "models[0].preset")]),
    (GOOD.replace('"deepseek"', '"./nothing.toml"'), [(6, "models[0].preset")]),
    (GOOD + "colour = 1\n", [(7, "models[0].colour")]),
    (GOOD + "allow = [1]\n", [(7, "models[0].allow")]),
    (GOOD + "insecure_http = 1\n", [(7, "models[0].insecure_http")]),
    (GOOD + "query = { a = 1 }\n", [(7, "models[0].query")]),
    (GOOD + "timeouts = 3\n", [(7, "models[0].timeouts")]),
    (GOOD + "timeouts = { idle_ms = 0 }\n", [(7, "models[0].timeouts.idle_ms")]),
    (GOOD + "reasoning = { read = ['reasoning'] }\n", [(7, "models[0].reasoning.read")]),
    (GOOD + "reasoning = { read = ['colour'] }\n", [(7, "models[0].reasoning.read")]),
    (GOOD + "reasoning = { tag = ['a'] }\n", [(7, "models[0].reasoning.tag")]),
    (GOOD + "tags = 'off'\nreasoning = { tags = 'split' }\n", [(7, "models[0].tags")]),
    (GOOD + "base_url = 'http://example.org'\n", [(7, "models[0].base_url")]),
    (GOOD + "base_url = 'ftp://example.org'\n", [(7, "models[0].base_url")]),
    (GOOD + "base_url = 'https://a:b@example.org'\n", [(7, "models[0].base_url")]),
    (GOOD + "base_url = 'https://example.org/#a'\n", [(7, "models[0].base_url")]),
    (GOOD + "base_url = 'https://example.org:x'\n", [(7, "models[0].base_url")]),
    (GOOD + "base_url = 'https://exa mple.org'\n", [(7, "models[0].base_url")]),
    (GOOD + "base_url = 'https://h/v1/chat/completions'\n", [(7, "models[0].base_url")]),
    (GOOD + "base_url = 'https://api.anthropic.com/v1'\n", [(7, "models[0].base_url")]),
    (GOOD.replace("deepseek", "generic-strict"), [(4, "models[0].base_url")]),
    (GOOD + "auth_header = 'a b'\n", [(7, "models[0].auth_header")]),
    (GOOD + "auth_header = 'Host'\n", [(7, "models[0].auth_header")]),
    (
        GOOD + "forward_headers = ['a\\u000db']\n".replace("'", '"'),
        [(7, "models[0].forward_headers")],
    ),
    (GOOD + "forward_headers = ['x-a', 'Content-Length']\n", [(7, "models[0].forward_headers")]),
    (GOOD + "forward_headers = ['content-type']\n", [(7, "models[0].forward_headers")]),
]


@pytest.mark.parametrize(("text", "found"), FAULTS)
def test_each_fault_is_named_with_its_line(text: str, found: list[tuple[int, str]]) -> None:
    """A fault names its key and line, and says what to do."""
    assert faults(text) == found


def test_all_faults_are_told_at_once() -> None:
    """One run tells everything that is wrong."""
    text = "[gateway]\nport = 'x'\n[[models]]\nname = 'm'\npreset = 'nobody'\n"

    assert [key for _, key in faults(text)] == ["gateway.port", "models[0].preset"]


def test_a_key_that_no_header_can_carry() -> None:
    """A key with a line end in it is a fault that does not show the key."""
    with pytest.raises(ConfigError) as failure:
        config(GOOD, {"DEEPSEEK_API_KEY": "sk-test\nx"})

    assert "sk-test" not in str(failure.value)
    assert "DEEPSEEK_API_KEY" in str(failure.value)


def test_plain_http_to_another_machine_by_the_operators_word() -> None:
    """`insecure_http = true` allows it, and loopback needs no word."""
    other = GOOD + "base_url = 'http://example.org'\ninsecure_http = true\n"
    own = GOOD + "base_url = 'http://127.0.0.1:9100/v1/'\n"

    assert config(other).models[0].target.base_url == "http://example.org"
    assert config(own).models[0].target.base_url == "http://127.0.0.1:9100/v1"


def test_a_preset_file_of_the_operator(tmp_path: Path) -> None:
    """`preset` may name a TOML file beside the configuration; its faults are told."""
    known = {
        "read": '["reasoning"]',
        "history": '"optional"',
        "stream_options": '"unknown"',
        "tags": '"off"',
        "terminal": '"finish"',
    }
    facts = "".join(
        f'[{key}]\nvalue = {value}\nsource = "my server"\ndate = "2026-11"\nkind = "P"\n'
        for key, value in known.items()
    )
    (tmp_path / "mine.toml").write_text(f'name = "mine"\ntitle = "Mine"\n{facts}')
    (tmp_path / "bad.toml").write_text('name = "mine"\ntitle = "Mine"\n[colour]\nvalue = 1\n')
    path = tmp_path / "everyturn.toml"
    base = "base_url = 'http://127.0.0.1:1/v1'\n"
    path.write_text(GOOD.replace('"deepseek"', '"./mine.toml"') + base)

    assert load_config(path, {}).models[0].target.read == ("reasoning",)
    path.write_text(GOOD.replace('"deepseek"', '"./bad.toml"') + base)
    with pytest.raises(ConfigError, match="colour"):
        load_config(path, {})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and one that is not UTF-8 are faults of the file."""
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    for name in ("missing.toml", "bad.toml"):
        with pytest.raises(ConfigError) as failure:
            load_config(tmp_path / name, {})
        assert failure.value.faults[0][1] == "file"


def test_lines_of_keys() -> None:
    """Keys are found in tables, arrays of tables and below them; else what holds them."""
    lines = key_lines('a = 1\n[b]\n"c" = 2 # x\n[[d]]\ne.f = 3\n[d.g]\nh = 4\n[[d]]\ne = 5\n')

    assert lines["a"] == 1
    assert lines["b.c"] == 3
    assert lines["d[0].e.f"] == 5
    assert lines["d[0].g.h"] == 7
    assert lines["d[1].e"] == 9
    assert line_of(lines, "d[1].nothing.here") == 8
    assert line_of(lines, "nothing") == 0


def test_check_tells_what_is_right_and_wrong(tmp_path: Path) -> None:
    """`everyturn check` lists the models and ends with 0, or each fault and ends with 1."""
    path = tmp_path / "everyturn.toml"
    path.write_text(GOOD)
    right = CliRunner().invoke(main, ["check", str(path)], env={"DEEPSEEK_API_KEY": "sk-test"})
    path.write_text(GOOD + "colour = 1\n")
    wrong = CliRunner().invoke(main, ["check", str(path)])

    assert right.exit_code == 0, right.output
    assert "1 model" in right.stdout
    assert wrong.exit_code == 1
    assert f"{path}:7:" in wrong.stderr
    assert wrong.stdout == ""
