"""Personal data that is told by its form alone: on where the operator asks for it.

A mark of these has no tag: equal addresses are not to be told by. Cards and account numbers have to
pass their check digits; telephone numbers need a `+`, or the signs that people group digits with.
"""

from __future__ import annotations

from typing import Final

from everyturn.audit.rules import Rule

PERSONAL: Final[tuple[Rule, ...]] = (
    Rule(
        name="email",
        kind="personal",
        pattern=r"(?:[A-Za-z0-9.!#$%&*+/=?^_{|}~-]|\pL){1,64}@"
        r"(?:(?:[A-Za-z0-9]|\pL)(?:[A-Za-z0-9-]|\pL){0,62}\.){1,8}(?:[A-Za-z]|\pL){2,24}",
        hint=r"@|\\+u0040",
    ),
    Rule(
        name="iban",
        kind="personal",
        pattern=r"(?:^|[^A-Za-z0-9])([A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30})\b",
        hint=r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11}",
        check="iban",
    ),
    Rule(
        name="card",
        kind="personal",
        pattern=r"(?:^|[^A-Za-z0-9.-])([2-6][0-9]{3}(?:[ -]?[0-9]{2,6}){2,4}[0-9]?)\b",
        hint=r"[2-6][0-9]{3}(?:[ -]?[0-9]{2,6}){2}",
        check="card",
    ),
    Rule(
        name="phone",
        kind="personal",
        pattern=r"(?:^|[^A-Za-z0-9+])"
        r"(\+[1-9][0-9]{0,2}(?:[ .\x{2010}\x{2011}-]{0,2}\(?[0-9]{1,5}\)?){2,6}"
        r"|(?:[78][ -]?)?\([0-9]{3,5}\)[ -]?[0-9]{2,4}(?:[ -]?[0-9]{2,4}){1,3}"
        r"|[0-9]{3}[-.][0-9]{3}[-.][0-9]{4}"
        r"|8[ -][0-9]{3}[ -][0-9]{3}[ -][0-9]{2}[ -][0-9]{2})\b",
        hint=r"\+[1-9]|\\+u002[bB]|\([0-9]{3,5}\)|[0-9]{3}[-.][0-9]{3}[-.][0-9]{4}"
        r"|8[ -][0-9]{3}[ -][0-9]{3}[ -]",
        check="phone",
    ),
)
"""In this order: an account number could also read as a card."""

NAMES: Final = tuple(rule.name for rule in PERSONAL)
"""What the setting `personal_data` may list."""
