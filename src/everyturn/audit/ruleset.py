"""All rules in their order: where two find the same text, the earlier names it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from everyturn.audit.personal import PERSONAL
from everyturn.audit.rules import Rule
from everyturn.audit.structures import STRUCTURES
from everyturn.audit.vendors import VENDORS

RULES: Final[tuple[Rule, ...]] = VENDORS + STRUCTURES
"""The rules that always run."""


def rules_with(own: Iterable[Rule] = (), personal: Iterable[str] = ()) -> tuple[Rule, ...]:
    """An installation's rules: the operator's own, the built-in ones, personal data.

    personal: names of personal-data rules, those of `PERSONAL`.
    """
    wanted = frozenset(personal)
    return (*own, *RULES, *(rule for rule in PERSONAL if rule.name in wanted))
