"""All rules in their order: where two find the same text, the earlier names it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from everyturn.audit.personal import PERSONAL
from everyturn.audit.rules import EVERY_TEXT, Rule, expand
from everyturn.audit.scan import check_pattern
from everyturn.audit.structures import STRUCTURES
from everyturn.audit.vendors import VENDORS

_SPEAKS_PLAINLY: Final = re.compile(
    r"(?:\(\?i\))?(?:\{B\})?(?:[A-Za-z0-9_=:+-]|\\[dw.+-]|\[(?:[A-Za-z0-9_=:.+-]|\\[dw.+-])+\]"
    r"|\((?:\?:)?|[)|?*+]|\{\d+(?:,\d*)?\})*"
)
"""A pattern of letters, digits and signs that stand in JSON as they are, or as an escape that is
known. Not a pattern over content."""

RULES: Final[tuple[Rule, ...]] = VENDORS + STRUCTURES
"""The rules that always run."""


def rules_with(own: Iterable[Rule] = (), personal: Iterable[str] = ()) -> tuple[Rule, ...]:
    """An installation's rules: the operator's own, the built-in ones, personal data.

    personal: names of personal-data rules, those of `PERSONAL`.
    """
    wanted = frozenset(personal)
    return (*own, *RULES, *(rule for rule in PERSONAL if rule.name in wanted))


def own_rule(name: str, pattern: str, *, keyword: str = "", check: str = "") -> Rule:
    """A rule that an operator wrote. Raises PatternRefused.

    A pattern that finds only what stands the same in JSON is its own hint, and costs nothing where
    it finds nothing. For any other the keyword is the hint; without one every text is opened.
    """
    check_pattern(expand(pattern))
    if _SPEAKS_PLAINLY.fullmatch(pattern):
        hint = ""
    else:
        hint = f"(?i){keyword}" if keyword else EVERY_TEXT
    return Rule(name=name, kind="operator", pattern=pattern, hint=hint, check=check)
