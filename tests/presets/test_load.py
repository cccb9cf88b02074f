"""Presets from files: the packaged ones, and an operator's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from everyturn.presets.check import FACTS, REQUIRED
from everyturn.presets.load import (
    REFUSED_HOSTS,
    PresetError,
    load_preset,
    preset_names,
    read_preset_file,
)
from everyturn.wire.preset import TEXT_CARRIERS, Preset
from everyturn.wire.request import CHAT_PARAMETERS

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "azure-openai",
    "cerebras",
    "dashscope",
    "deepseek",
    "gemini-openai",
    "generic-strict",
    "groq",
    "llamacpp",
    "mistral",
    "moonshot",
    "ollama-v1",
    "openai-chat",
    "openrouter",
    "perplexity",
    "sglang",
    "vllm",
    "xai",
    "zai",
)


def a_file() -> str:
    """The file that the guide shows."""
    guide = (ROOT / "docs/guide/own-preset.md").read_text("utf-8")
    return guide.partition("```toml\n")[2].partition("```")[0]


def a_fact(key: str, value: str) -> str:
    """One well-formed fact."""
    return f'[{key}]\nvalue = {value}\nsource = "s"\ndate = "2026-11"\nkind = "P"\n'


def sent_keys(preset: Preset) -> set[str]:
    """Top-level keys that the preset itself may put into a request."""
    controls = preset.controls
    keys = set(preset.adds)
    for table in (controls.effort, controls.enabled, controls.exclude):
        for members in table.values():
            keys |= members.keys()
    if controls.budget:
        keys.add(controls.budget.partition(".")[0])
    return keys


def test_there_are_eighteen() -> None:
    """The packaged presets are the eighteen of the contract, sorted."""
    assert preset_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_has_evidence(name: str) -> None:
    """Each fact of a packaged preset says where it is from, and the deciding ones are stated."""
    preset = load_preset(name)

    assert preset.evidence.keys() == FACTS.keys()
    assert all(evidence.source and evidence.kind for evidence in preset.evidence.values())
    assert all(preset.evidence[key].date for key in REQUIRED)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_preset_sends_it_also_takes(name: str) -> None:
    """Controls and additions use only keys of Chat Completions or of the preset's own list."""
    preset = load_preset(name)
    known = CHAT_PARAMETERS | set(preset.request_keys)

    assert sent_keys(preset) <= known
    assert set(preset.controls.native) <= known
    assert set(preset.adds_unless) <= known


@pytest.mark.parametrize("name", NAMES)
def test_history_goes_where_the_provider_looks(name: str) -> None:
    """Reasoning that is sent back stands in a carrier of the answers, or its documented one."""
    preset = load_preset(name)

    if preset.history in ("forbidden", "ignored", "as_tags"):
        return
    assert preset.history_carrier in preset.read


@pytest.mark.parametrize(
    "name, read, history, carrier",
    [
        ("openai-chat", (), "forbidden", "reasoning_content"),
        ("azure-openai", ("reasoning_content",), "optional", "reasoning_content"),
        ("deepseek", ("reasoning_content",), "required_tools", "reasoning_content"),
        ("zai", ("reasoning_content",), "required_tools", "reasoning_content"),
        ("moonshot", ("reasoning_content",), "required_tools", "reasoning_content"),
        (
            "openrouter",
            ("reasoning_details", "reasoning", "reasoning_content"),
            "required",
            "reasoning_details",
        ),
        (
            "dashscope",
            ("reasoning_content", "body.reasoning_content"),
            "ignored",
            "reasoning_content",
        ),
        ("mistral", ("content_list",), "optional", "content_list"),
        ("groq", ("reasoning",), "optional", "reasoning"),
        ("cerebras", ("reasoning",), "optional", "reasoning"),
        ("ollama-v1", ("reasoning",), "optional", "reasoning"),
        ("vllm", ("reasoning", "reasoning_content"), "optional", "reasoning"),
        ("sglang", ("reasoning_content",), "optional", "reasoning_content"),
        ("llamacpp", ("reasoning_content",), "optional", "reasoning_content"),
        ("xai", ("reasoning_content",), "optional", "reasoning_content"),
        ("perplexity", (), "ignored", "reasoning_content"),
        ("gemini-openai", ("thought_signature",), "as_tags", "tags"),
        (
            "generic-strict",
            ("reasoning_content", "reasoning", "reasoning_details"),
            "optional",
            "reasoning_content",
        ),
    ],
)
def test_reasoning_policy(name: str, read: tuple[str, ...], history: str, carrier: str) -> None:
    """Each preset reads the carriers of its provider and sends reasoning back in its form."""
    preset = load_preset(name)

    assert (preset.read, preset.history, preset.history_carrier) == (read, history, carrier)


def test_tags_are_touched_at_two_providers_only() -> None:
    """Content is split at Perplexity, read by its mark at Gemini, and left alone elsewhere."""
    tags = {name: load_preset(name).tags for name in NAMES if load_preset(name).tags != "off"}

    assert tags == {"perplexity": "split", "gemini-openai": "marked"}
    assert load_preset("perplexity").tag == ("<think>", "</think>")
    assert load_preset("gemini-openai").tag == ("<thought>", "</thought>")


def test_done_alone_ends_a_stream_nowhere() -> None:
    """No packaged preset takes `[DONE]` without a finish for a good ending."""
    assert {load_preset(name).terminal for name in NAMES} == {"finish"}


def test_servers_on_the_own_machine_need_no_key() -> None:
    """Local servers have no key variable; every other preset but the generic one has its own."""
    without = {name for name in NAMES if load_preset(name).api_key_env is None}

    assert without == {"generic-strict", "llamacpp", "ollama-v1", "sglang", "vllm"}


def test_several_text_carriers_are_mirrors() -> None:
    """Where several text carriers are read, they are the ones that hold one string."""
    several = [name for name in NAMES if len(set(load_preset(name).read) & set(TEXT_CARRIERS)) > 1]

    assert several == ["generic-strict", "openrouter", "vllm"]


def test_a_preset_is_read_once() -> None:
    """The same preset is the same object."""
    assert load_preset("groq") is load_preset("groq")


def test_an_unknown_name_gets_the_nearest_one() -> None:
    """An unknown preset name is refused with the nearest known one."""
    with pytest.raises(PresetError, match="Did you mean `deepseek`"):
        load_preset("depseek")


def test_the_guide_shows_a_file_that_works() -> None:
    """The example of the guide is a good file; what it leaves out has the strict default."""
    preset = read_preset_file(a_file(), "own.toml")

    assert preset.name == "house-server"
    assert preset.read == ("reasoning",)
    assert preset.controls.effort["none"] == {"chat_template_kwargs": {"enable_thinking": False}}
    assert preset.price_provider is None
    assert preset.cached_in_prompt is None
    assert preset.evidence["read"].kind == "R"
    assert preset.evidence["carry"].source.startswith("rule of this product")


def test_the_fault_in_the_guide_is_the_one_reported() -> None:
    """The message that the guide quotes is what its file gives with that fault."""
    text = a_file().replace('value = ["reasoning"]', 'value = ["reasonning"]')
    guide = (ROOT / "docs/guide/own-preset.md").read_text("utf-8")

    with pytest.raises(PresetError) as failure:
        read_preset_file(text, "house-server.toml")
    assert f"```\n{failure.value}\n```" in guide


@pytest.mark.parametrize(
    "old, new, key, words",
    [
        ('name = "house-server"\n', "", "name", "is missing"),
        ('name = "house-server"', 'name = "House Server"', "name", "lower-case"),
        ('name = "house-server"', 'name = "groq"', "name", "packaged preset"),
        ('title = "Our inference cluster"', 'title = ""', "title", "not empty"),
        ("[read]", "[reed]", "reed", "Did you mean `read`"),
        ("[controls.effort]", "[controls.efort]", "controls.efort", "controls.effort"),
        ('value = ["reasoning"]', 'value = ["thoughts"]', "read", "not known here"),
        ('value = ["reasoning"]', 'value = "reasoning"', "read", "has to be a list"),
        ('value = ["reasoning"]', 'value = ["reasoning", "reasoning"]', "read", "twice"),
        ('value = ["reasoning"]', "value = [1]", "read", "word of a closed set"),
        ('value = "off"', 'value = "of"', "tags", "Did you mean `off`"),
        ('value = "off"', "value = false", "tags", "word of a closed set"),
        ('value = "optional"', 'value = "as_tags"', "history_carrier", "need each other"),
        ('value = "http://127.0.0.1:9000/v1"', 'value = "ftp://a"', "base_url", "http or https"),
        ('value = "http://127.0.0.1:9000/v1"', 'value = "http://a?k=v"', "base_url", "query"),
        ('value = "http://127.0.0.1:9000/v1"', 'value = "http://u:p@a"', "base_url", "user"),
        ('value = "http://127.0.0.1:9000/v1"', 'value = "http://a:x"', "base_url", "not a URL"),
        ('value = "http://127.0.0.1:9000/v1"', "value = 1", "base_url", "has to be a URL"),
        ('"top_k"]', '"top k"]', "request_keys", "names of JSON members"),
        ("none = { chat", "off = { chat", "controls.effort", "not known here"),
        (
            "high = { chat_template_kwargs = { enable_thinking = true } }",
            "high = true",
            *("controls.effort", "table of members"),
        ),
        ("enable_thinking = true", "enable_thinking = 2026-01-01", "controls.effort", "JSON"),
        ("enable_thinking = true", "enable_thinking = inf", "controls.effort", "JSON"),
    ],
)
def test_a_fault_is_named(old: str, new: str, key: str, words: str) -> None:
    """A fault in a file is refused by its key, with what is wrong or what to do."""
    text = a_file()
    assert old in text

    with pytest.raises(PresetError) as failure:
        read_preset_file(text.replace(old, new, 1), "own.toml")
    [fault] = [fault for fault in failure.value.faults if fault.key == key]
    assert words in f"{fault.what} {fault.hint}"


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("api_key_env", '"my key"', "environment variable"),
        ("auth_header", '"X-Key"', "lower case"),
        ("query", '"a=b"', "table of strings"),
        ("tag", '["<a>"]', "two different tags"),
        ("history_exact", '"yes"', "true or false"),
        ("finish_failures", '"error"', "has to be a list"),
        ("usage_places", "[]", "is empty"),
        ("controls.clamps", '{ xhigh = "high" }', ""),
        ("controls.clamps", '{ none = "high" }', "sends itself"),
        ("controls.clamps", '{ xhigh = "low" }', "sends itself"),
        ("controls.clamps", '"high"', "table of efforts"),
        ("controls.enabled", '"on"', "has to be a table"),
        ("controls.budget", '"a..b"', "dotted path"),
        ("adds", "[1]", "table of members"),
        ("price_provider", "1", "string"),
    ],
)
def test_further_facts_are_checked(key: str, value: str, words: str) -> None:
    """A fact of a wrong form is refused; a good one is taken."""
    text = a_file() + a_fact(key, value)

    if not words:
        assert read_preset_file(text, "own.toml").evidence[key].source == "s"
        return
    with pytest.raises(PresetError) as failure:
        read_preset_file(text, "own.toml")
    assert [fault.key for fault in failure.value.faults] == [key]
    assert words in str(failure.value)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('source = "deployment notes of the platform team"\n', "", "lacks `source`"),
        ('date = "2026-11-30"\n', "", "lacks `date`"),
        ('kind = "P"\n', "", "lacks `kind`"),
        ('date = "2026-11-30"', 'date = "30.11.2026"', "a `date` that"),
        ('kind = "P"', 'kind = "X"', "a `kind` that"),
        ('source = "deployment notes of the platform team"', 'source = " "', "a `source` that"),
        ('kind = "P"\n', 'kind = "P"\nsorce = "x"\n', "Did you mean `source`"),
        ('kind = "P"\n', 'kind = "P"\nnote = 1\n', "not empty"),
    ],
)
def test_evidence_is_not_optional(old: str, new: str, words: str) -> None:
    """A fact without its source, date and kind is refused."""
    with pytest.raises(PresetError) as failure:
        read_preset_file(a_file().replace(old, new, 1), "own.toml")
    [fault] = failure.value.faults
    assert fault.key == "base_url"
    assert words in f"{fault.what} {fault.hint}"


def test_a_bare_value_is_not_a_fact() -> None:
    """A value without its table is refused with how to write it."""
    text = a_file().replace("[base_url]", 'auth_header = "x-key"\n[base_url]', 1)

    with pytest.raises(PresetError, match=re.escape("Write `[auth_header]`")):
        read_preset_file(text, "own.toml")


def test_all_faults_are_named_at_once() -> None:
    """Every fault of a file is reported, each with its line."""
    text = (
        a_file()
        .replace('"off"', '"of"')
        .replace('["reasoning"]', "[]")
        .replace("[terminal]", "[end]")
    )

    with pytest.raises(PresetError) as failure:
        read_preset_file(text, "own.toml")
    faults = {fault.key: fault.line for fault in failure.value.faults}
    assert faults == {
        "tags": text[: text.index("[tags]")].count("\n") + 1,
        "end": text[: text.index("[end]")].count("\n") + 1,
        "terminal": 0,
    }


def test_what_decides_about_loss_has_to_be_said() -> None:
    """A file that leaves a deciding fact out is refused for each of them."""
    with pytest.raises(PresetError) as failure:
        read_preset_file('name = "bare"\ntitle = "Bare"\n', "own.toml")
    assert tuple(fault.key for fault in failure.value.faults) == REQUIRED


def test_broken_toml_is_named_by_its_line() -> None:
    """A file that is not TOML is refused with the line, and without quoting it."""
    with pytest.raises(PresetError) as failure:
        read_preset_file('name = "own"\ntitle = secret\n', "own.toml")
    assert str(failure.value).startswith("own.toml:2: is not TOML.")
    assert "secret" not in str(failure.value)


def test_messages_do_not_hold_values() -> None:
    """What stands in a file is not repeated in the message about it."""
    text = a_file().replace('"http://127.0.0.1:9000/v1"', '"http://user:sk-test-FAKE@host/v1"')

    with pytest.raises(PresetError) as failure:
        read_preset_file(text, "own.toml")
    assert "FAKE" not in str(failure.value)


def test_a_trailing_slash_is_taken_off() -> None:
    """A base URL is held without its trailing slash."""
    text = a_file().replace(":9000/v1", ":9000/v1/")

    assert read_preset_file(text, "own.toml").base_url == "http://127.0.0.1:9000/v1"


def test_query_keeps_its_order() -> None:
    """Query parameters are pairs in the order of the file."""
    text = a_file() + a_fact("query", '{ b = "1", a = "2" }')

    assert read_preset_file(text, "own.toml").query == (("b", "1"), ("a", "2"))


def test_a_refused_host_says_why() -> None:
    """The endpoint that cannot show what it leaves out is refused with the reason."""
    reasons: dict[str, Any] = dict(REFUSED_HOSTS)

    assert "thinking" in reasons["api.anthropic.com"]
