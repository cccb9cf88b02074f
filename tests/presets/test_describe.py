"""Facts of presets as people and programs read them."""

from __future__ import annotations

import json
from typing import get_args

from everyturn.presets.check import ERROR_SHAPES, FACTS
from everyturn.presets.describe import (
    KINDS,
    MEANINGS,
    WORDS,
    as_json,
    facts_of,
    kind_text,
    summary_of,
    value_text,
)
from everyturn.presets.load import load_preset, preset_names
from everyturn.wire.preset import (
    CARRIERS,
    History,
    HistoryCarrier,
    StreamOptions,
    TagMode,
    Terminal,
    UsagePlace,
)


def test_every_fact_has_a_meaning() -> None:
    """Each fact that a file may have is explained, in the order of the facts."""
    assert tuple(MEANINGS) == tuple(FACTS)


def test_every_word_has_a_meaning() -> None:
    """Each word of a closed set is explained."""
    sets = {
        "read": CARRIERS,
        "tags": get_args(TagMode),
        "history": get_args(History),
        "history_carrier": get_args(HistoryCarrier),
        "terminal": get_args(Terminal),
        "stream_options": get_args(StreamOptions),
        "usage_places": get_args(UsagePlace),
        "error_shapes": ERROR_SHAPES,
    }

    assert {key: tuple(words) for key, words in WORDS.items()} == sets


def test_every_kind_has_a_word() -> None:
    """Kinds of evidence are told in words."""
    kinds = {
        letter
        for name in preset_names()
        for fact in facts_of(load_preset(name))
        for letter in fact.evidence.kind.split("+")
    }

    assert kinds == set(KINDS)
    assert kind_text("D+R") == "documentation, recording"


def test_facts_are_complete() -> None:
    """Every fact of a preset is there, and what the file does not say is marked as not known."""
    facts = {fact.key: fact for fact in facts_of(load_preset("deepseek"))}

    assert tuple(facts) == tuple(FACTS)
    assert facts["read"].value == ["reasoning_content"]
    assert facts["read"].is_known
    assert not facts["signatures"].is_known


def test_json_can_be_written() -> None:
    """Each preset has a JSON form that says the same."""
    for name in preset_names():
        read = json.loads(json.dumps(as_json(load_preset(name))))

        assert read["name"] == name
        assert read["facts"]["read"]["value"] == list(load_preset(name).read)
        assert read["facts"]["read"]["known"] is True


def test_values_as_text() -> None:
    """Unknown, none, yes and no are four different things, and tables keep their order."""
    assert value_text(None) == "not known"
    assert value_text([]) == "none"
    assert value_text({}) == "none"
    assert value_text(True) == "yes"
    assert value_text(False) == "no"
    assert value_text(["a", "b"]) == "a, b"
    assert value_text([["a", "b"]]) == "a b"
    assert value_text({"none": {"thinking": {"type": "disabled"}}, "high": {"on": True}}) == (
        "none → {thinking: {type: disabled}}; high → {on: true}"
    )


def test_a_summary_says_where_reasoning_goes() -> None:
    """The list says for each preset what it reads and what it does with history."""
    assert summary_of(load_preset("openai-chat"))["reasoning in answers"] == "none"
    assert summary_of(load_preset("perplexity"))["reasoning in answers"] == "tags <think>"
    assert summary_of(load_preset("groq"))["reasoning in history"] == "optional, as reasoning"
    assert summary_of(load_preset("generic-strict"))["base_url"] == "said by each model"
