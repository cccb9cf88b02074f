"""Presets from TOML: the packaged ones by name, and an operator's own file, checked the same way.

A file has `name`, `title` and one table a fact; each fact has `value`, `source`, `date` and `kind`
and may have a `note`. Values come from closed sets: an unknown key, carrier or word is refused with
what to do about it. A fact that is left out has the default of `wire.preset.Preset`, and its
evidence says so.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

from everyturn.presets import check
from everyturn.presets.check import FACTS, REQUIRED, Bad, close_to
from everyturn.wire.preset import Controls, Evidence, Preset

REFUSED_HOSTS: Final[Mapping[str, str]] = {
    "api.anthropic.com": (
        "Anthropic's OpenAI-compatible endpoint returns no thinking and silently ignores controls, "
        "so what is missing there could not be told from what was never said."
    ),
}
"""Hosts that no model may have as its upstream, each with the reason.

Source: platform.claude.com/docs/en/api/openai-sdk, 2026.
"""

UNKNOWN_SOURCE: Final = "rule of this product: nothing is known, so the strict default holds"

_PARTS: Final = ("value", "source", "date", "kind", "note")
_GROUPS: Final = frozenset(key.partition(".")[0] for key in FACTS if "." in key)
_TOML_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")


class PresetFault(NamedTuple):
    """One thing that is wrong in a preset file."""

    line: int
    """1-based; 0 when unknown."""
    key: str
    what: str
    hint: str


class PresetError(ValueError):
    """A preset that cannot be used; `faults` lists all that is wrong with it."""

    def __init__(self, origin: str, faults: list[PresetFault]) -> None:
        self.origin = origin
        self.faults = faults
        super().__init__("\n".join(_fault_line(origin, fault) for fault in faults))


def _fault_line(origin: str, fault: PresetFault) -> str:
    place = f"{origin}:{fault.line}" if fault.line else origin
    key = f" `{fault.key}`" if fault.key else ""
    return f"{place}:{key} {fault.what} {fault.hint}"


def preset_names() -> tuple[str, ...]:
    """The names of the packaged presets, sorted."""
    return tuple(sorted(_packaged()))


@cache
def load_preset(name: str) -> Preset:
    """The packaged preset of that name, read once a process.

    Raises PresetError for an unknown name, with the nearest known one in its hint.
    """
    texts = _packaged()
    if name not in texts:
        what = "is not the name of a preset."
        raise PresetError("presets", [PresetFault(0, name, what, close_to(name, texts))])
    preset = _read(texts[name], f"{name}.toml")
    if preset.name != name:
        what = "differs from the name of its file."
        raise PresetError(f"{name}.toml", [PresetFault(1, "name", what, "Make them the same.")])
    return preset


def read_preset_file(text: str, origin: str) -> Preset:
    """The preset in an operator's own TOML text.

    origin: what messages call the file, usually its path.
    Raises PresetError with every fault found.
    """
    preset = _read(text, origin)
    if preset.name in _packaged():
        what = "is the name of a packaged preset, and records could not tell the two apart."
        line = _line_of(text, "name")
        raise PresetError(origin, [PresetFault(line, "name", what, "Choose another name.")])
    return preset


@cache
def _packaged() -> dict[str, str]:
    """The text of each packaged preset by its name."""
    return {
        entry.name.removesuffix(".toml"): entry.read_text("utf-8")
        for entry in resources.files(__package__).iterdir()
        if entry.name.endswith(".toml")
    }


def _read(text: str, origin: str) -> Preset:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as bad:
        raise PresetError(origin, [_syntax_fault(str(bad))]) from None
    faults: list[PresetFault] = []

    def fault(key: str, what: str, hint: str) -> None:
        faults.append(PresetFault(_line_of(text, key), key, what, hint))

    head: dict[str, str] = {}
    for key, of in (("name", check.name), ("title", check.text)):
        if key not in tree:
            fault(key, "is missing.", "Add it at the top of the file.")
            continue
        try:
            head[key] = of(tree[key])
        except Bad as bad:
            fault(key, bad.what, bad.hint)
    values: dict[str, Any] = {}
    evidence: dict[str, Evidence] = {}
    for key, fact in _facts(tree, fault):
        try:
            values[key], evidence[key] = _fact(key, fact)
        except Bad as bad:
            fault(key, bad.what, bad.hint)
    for key in REQUIRED:
        if key not in values and not any(key == found.key for found in faults):
            fault(key, "is missing.", "Each preset has to say it, with its source.")
    for key, what, hint in check.together(values):
        fault(key, what, hint)
    if faults:
        raise PresetError(origin, faults)
    return _preset(head, values, evidence)


def _facts(tree: dict[str, Any], fault: Any) -> list[tuple[str, Any]]:
    """Each fact of the file under its dotted key; unknown keys become faults."""
    found: list[tuple[str, Any]] = []
    for key, item in tree.items():
        if key in ("name", "title"):
            continue
        if key in _GROUPS and isinstance(item, dict):
            found.extend((f"{key}.{inner}", fact) for inner, fact in item.items())
        else:
            found.append((key, item))
    for key, _ in found:
        if key not in FACTS:
            fault(key, "is not a fact that a preset has.", close_to(key, FACTS))
    return [(key, fact) for key, fact in found if key in FACTS]


def _fact(key: str, fact: Any) -> tuple[Any, Evidence]:
    """The value of one fact and where it is known from. Raises Bad."""
    if not isinstance(fact, dict):
        raise Bad(
            "has to be a table with `value`, `source`, `date` and `kind`.",
            f"Write `[{key}]` and these four keys below it.",
        )
    for part in fact:
        if part not in _PARTS:
            raise Bad(f"has an unknown key `{part}`.", close_to(part, _PARTS))
    missing = [part for part in _PARTS[:4] if part not in fact]
    if missing:
        raise Bad(
            f"lacks {' and '.join(f'`{part}`' for part in missing)}.",
            "Every fact says its value, where it is known from, when that was read, and its kind.",
        )
    for part, of in (("source", check.text), ("date", check.date), ("kind", check.kind)):
        try:
            of(fact[part])
        except Bad as bad:
            raise Bad(f"has a `{part}` that {bad.what}", bad.hint) from None
    if "note" in fact:
        check.text(fact["note"])
    evidence = Evidence(
        source=fact["source"], date=fact["date"], kind=fact["kind"], note=fact.get("note", "")
    )
    return FACTS[key](fact["value"]), evidence


def _preset(head: dict[str, str], values: dict[str, Any], evidence: dict[str, Evidence]) -> Preset:
    controls = {
        key.partition(".")[2]: value for key, value in values.items() if key.startswith("controls.")
    }
    plain = {key: value for key, value in values.items() if "." not in key}
    unknown = Evidence(source=UNKNOWN_SOURCE, date="", kind="P")
    return Preset(
        name=head["name"],
        title=head["title"],
        **plain,
        controls=Controls(**controls),
        evidence={key: evidence.get(key, unknown) for key in FACTS},
    )


def _syntax_fault(message: str) -> PresetFault:
    found = _TOML_LINE.search(message)
    line = int(found.group(1)) if found else 0
    # The decoder's words may quote the text; its first words never do.
    return PresetFault(line, "", "is not TOML.", "Correct the line; `name` and `title` come first.")


def _line_of(text: str, key: str) -> int:
    """The line of a fact's table or of a plain key; 0 when it is written in a way we do not see."""
    wanted = {f"[{key}]", f"[{key}.value]"}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split("#", 1)[0].strip()
        if bare in wanted or bare.split("=", 1)[0].strip() == key:
            return number
    return 0
