"""The reference page of the presets, made from their files.

`python -m everyturn.presets.page > docs/reference/presets.md` writes it anew; a test compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from everyturn.presets.describe import (
    KINDS,
    MEANINGS,
    WORDS,
    Fact,
    facts_of,
    kind_text,
    summary_of,
    value_text,
)
from everyturn.presets.load import REFUSED_HOSTS, load_preset, preset_names
from everyturn.wire.preset import Preset

_HEAD = """\
# Presets

What is known of how each provider speaks, with source and date. This page is made from the files in
`src/everyturn/presets`, by `python -m everyturn.presets.page > docs/reference/presets.md`.
`everyturn presets NAME` prints the same for one provider, with `--json` for programs. A preset of
your own is a file in the same form: [how to write one](../guide/own-preset.md).
"""


def page() -> str:
    """The whole page as Markdown."""
    presets = [load_preset(name) for name in preset_names()]
    parts = [_HEAD, *_meanings(), *_refused(), *_summary(presets)]
    for preset in presets:
        parts += _section(preset)
    return "\n".join(parts)


def _meanings() -> Iterable[str]:
    yield "## What a preset says\n"
    yield "Kinds of evidence: " + ", ".join(f"{key} {word}" for key, word in KINDS.items()) + ".\n"
    yield "| fact | meaning |"
    yield "|---|---|"
    yield from (f"| `{key}` | {_cell(text)} |" for key, text in MEANINGS.items())
    yield "\nWords of closed sets:\n"
    yield "| fact | word | meaning |"
    yield "|---|---|---|"
    for key, words in WORDS.items():
        yield from (f"| `{key}` | `{word}` | {_cell(text)} |" for word, text in words.items())
    yield ""


def _refused() -> Iterable[str]:
    yield "## Hosts that are refused\n"
    yield from (f"`{host}`: {reason}\n" for host, reason in REFUSED_HOSTS.items())


def _summary(presets: list[Preset]) -> Iterable[str]:
    yield "## The presets\n"
    rows = [summary_of(preset) for preset in presets]
    yield f"| {' | '.join(rows[0])} |"
    yield "|" + "---|" * len(rows[0])
    for row in rows:
        name = row["name"]
        cells = [f"[`{name}`](#{name})", *(_cell(text) for text in list(row.values())[1:])]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _section(preset: Preset) -> Iterable[str]:
    known = [fact for fact in facts_of(preset) if fact.is_known]
    yield f"## {preset.name}\n"
    yield f"{preset.title}. Facts that are not listed are not known and have the strict default.\n"
    yield "| fact | value | known from |"
    yield "|---|---|---|"
    for fact in known:
        yield f"| `{fact.key}` | {_value(fact)} | {_origin(fact)} |"
    yield ""


def _value(fact: Fact) -> str:
    text = _cell(value_text(fact.value), is_code=True)
    note = fact.evidence.note
    return f"`{text}`<br>{_cell(note)}" if note else f"`{text}`"


def _origin(fact: Fact) -> str:
    evidence = fact.evidence
    sources = "<br>".join(f"`{_cell(part, is_code=True)}`" for part in evidence.source.split("; "))
    return f"{kind_text(evidence.kind)}, {evidence.date}<br>{sources}"


def _cell(text: str, *, is_code: bool = False) -> str:
    """Text as it may stand in a table: code needs only its bars escaped."""
    text = text.replace("|", "\\|")
    return text if is_code else text.replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(page())
