"""The `[redaction]` table: an operator's own rules, known values, personal data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from everyturn.audit.personal import PERSONAL
from everyturn.audit.redact import KNOWN_LENGTH_MIN
from everyturn.audit.rules import OWN_RULE_NAMES_TAKEN, Rule
from everyturn.audit.ruleset import RULES, own_rule, rules_with
from everyturn.audit.scan import PatternRefused
from everyturn.config.faults import Faults, read_table
from everyturn.config.table import REDACTION_RULE

RULES_MAX: Final = 100
PATTERN_LENGTH_MAX: Final = 1000

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_KEYWORD: Final = re.compile(r"[A-Za-z0-9_-]{3,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_TAKEN: Final = OWN_RULE_NAMES_TAKEN | {rule.name for rule in (*RULES, *PERSONAL)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionConfig:
    """What is removed from records beside what always is."""

    rules: tuple[Rule, ...] = RULES
    """Every rule that runs: the operator's, the built-in ones, personal data."""
    known: tuple[str, ...] = field(default=(), repr=False)
    """Values of the variables that `known_env` names."""


def read_redaction(
    values: Mapping[str, Any], environment: Mapping[str, str], faults: Faults
) -> RedactionConfig:
    """The table's values as rules; what is wrong is in `faults`."""
    own = _own_rules(values["rules"], faults)
    known = _known(values["known_env"], environment, faults)
    return RedactionConfig(rules=rules_with(own, values["personal_data"]), known=known)


def _own_rules(given: Any, faults: Faults) -> tuple[Rule, ...]:
    if not isinstance(given, list):
        hint = 'Write [[redaction.rules]] and below it name = "…" and pattern = "…".'
        faults.add("redaction.rules", "must be a list of tables.", hint)
        return ()
    if len(given) > RULES_MAX:
        faults.add("redaction.rules", f"has more than {RULES_MAX} rules.", "Put some together.")
        return ()
    rules: list[Rule] = []
    for index, entry in enumerate(given):
        path = f"redaction.rules[{index}]"
        rule = _own_rule(path, entry, faults)
        if rule is None:
            continue
        if any(rule.name == other.name for other in rules):
            faults.add(f"{path}.name", "is the name of an earlier rule.", "Choose another.")
        rules.append(rule)
    return tuple(rules)


def _own_rule(path: str, entry: Any, faults: Faults) -> Rule | None:
    if not isinstance(entry, dict):
        faults.add(path, "must be a table.", 'Write {name = "…", pattern = "…"}.')
        return None
    before = len(faults.found)
    values = read_table(path, entry, REDACTION_RULE, faults)
    name, pattern, keyword = (values[key] or "" for key in ("name", "pattern", "keyword"))
    if not _NAME.fullmatch(name):
        hint = "Use small letters, digits and `_`, at most 40; it stands in place of what is found."
        faults.add(f"{path}.name", "is missing or not a name for a rule.", hint)
    elif name in _TAKEN:
        faults.add(f"{path}.name", "is the name of a built-in rule.", "Choose another.")
    if not 0 < len(pattern) <= PATTERN_LENGTH_MAX:
        hint = f"Write a pattern of 1 to {PATTERN_LENGTH_MAX} characters."
        faults.add(f"{path}.pattern", "is missing or too long.", hint)
    if keyword and not _KEYWORD.fullmatch(keyword):
        hint = "Use 3 to 64 letters, digits, `_` and `-`: a word that each find has near it."
        faults.add(f"{path}.keyword", "is not a keyword.", hint)
    if len(faults.found) > before:
        return None
    try:
        return own_rule(name, pattern, keyword=keyword, check=values["check"] or "")
    except PatternRefused as bad:
        hint = (
            "Write it in RE2 syntax (github.com/google/re2/wiki/Syntax): no look-around, no "
            "back-references, repetitions up to 1000."
        )
        faults.add(f"{path}.pattern", f"cannot be used: {bad}.", hint)
        return None


def _known(names: list[str], environment: Mapping[str, str], faults: Faults) -> tuple[str, ...]:
    """The values of environment variables, as they are and line by line."""
    known: list[str] = []
    for name in names:
        if not _VARIABLE.fullmatch(name):
            hint = "Write names of environment variables; a value never stands in this file."
            faults.add("redaction.known_env", "has what is no name of a variable.", hint)
        elif not environment.get(name):
            faults.warn("redaction.known_env", f"{name} is not set: nothing to know.")
        elif len(environment[name]) < KNOWN_LENGTH_MIN:
            faults.warn(
                "redaction.known_env",
                f"{name} has fewer than {KNOWN_LENGTH_MIN} characters and would eat plain words; "
                "it is not removed.",
            )
        else:
            known.append(environment[name])
    return tuple(known)
