"""`[plugins.NAME]`: what a plugin declares, and each fault of a declaration."""

from __future__ import annotations

import pytest

from everyturn.audit.plugins import Attribute, Plugins
from everyturn.config import read_config
from everyturn.errors import ConfigError, InvalidValue, UnknownParameter

MODEL = '[[models]]\nname = "m"\npreset = "openai-chat"\n'
FAQ = """
[plugins.faq]
fields = { topic = "str", mode = ["short", "long"], tags = "list" }
labels = ["wrong_tone", "no.source"]
[plugins.1c]
"""


def test_a_plugin_declares_fields_and_labels() -> None:
    """Types, closed sets and labels are read; a declaration stands in a shipped one's place."""
    declared = read_config(MODEL + FAQ, "t.toml", {}).plugins

    assert declared["faq"].fields == {
        "topic": Attribute("str"),
        "mode": Attribute("enum", ("short", "long")),
        "tags": Attribute("list"),
    }
    assert declared["faq"].labels == {"wrong_tone", "no.source"}
    plugins = Plugins(declared)
    plugins.check("faq", {"mode": "long"})
    plugins.check_label("no.source")
    with pytest.raises(UnknownParameter):
        plugins.check("1c", {"base_id": "b"})


def test_without_declarations_the_shipped_one_stands() -> None:
    """The set for 1C needs no configuration, and other labels than failure types do."""
    plugins = Plugins(read_config(MODEL, "t.toml", {}).plugins)

    plugins.check("1c", {"base_id": "b", "state_mode": "saved"})
    plugins.check_label("hallucination")
    with pytest.raises(InvalidValue):
        plugins.check_label("wrong_tone")


@pytest.mark.parametrize(
    "text, key",
    [
        ("plugins = 3\n", "plugins"),
        ("plugins = { faq = 3 }\n", "plugins.faq"),
        ('[plugins."a b"]\n', "plugins"),
        ("[plugins.faq]\ncolour = 1\n", "plugins.faq.colour"),
        ("[plugins.faq]\nfields = 3\n", "plugins.faq.fields"),
        ('[plugins.faq]\nfields = { a = "number" }\n', "plugins.faq.fields.a"),
        ("[plugins.faq]\nfields = { a = [] }\n", "plugins.faq.fields.a"),
        ("[plugins.faq]\nfields = { a = [1] }\n", "plugins.faq.fields.a"),
        ('[plugins.faq]\nfields = { a = ["x", "x"] }\n', "plugins.faq.fields.a"),
        ('[plugins.faq]\nfields = { "a.b" = "str" }\n', "plugins.faq.fields"),
        ("[plugins.faq]\nlabels = 3\n", "plugins.faq.labels"),
        ('[plugins.faq]\nlabels = ["Wrong Tone"]\n', "plugins.faq.labels"),
        ('[plugins.faq]\nlabels = ["rag_miss"]\n', "plugins.faq.labels"),
    ],
)
def test_each_fault_of_a_declaration_is_named(text: str, key: str) -> None:
    """What cannot be used is a fault with its path and line."""
    whole = text + MODEL if text.startswith("plugins") else MODEL + text
    with pytest.raises(ConfigError) as failure:
        read_config(whole, "t.toml", {})

    ((line, path, _, hint),) = failure.value.faults
    assert path == key
    assert line > 0 or key == "plugins"
    assert hint
