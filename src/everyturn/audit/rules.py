r"""What counts as a secret: the rules as data, read by `redact`.

Patterns are RE2 syntax and are matched against decoded strings. `{B}` is a left boundary, `{KEY}`
and `{TOKEN}` are names of things that are secret. The group that matched is the secret; without
groups it is the whole match. A rule needs a `hint` where its pattern holds characters that JSON
escapes: the hint has to match the serialised text, at any depth of JSON in JSON, wherever the
pattern matches the decoded one.

The rules themselves are in `vendors`, `structures` and `personal`; `ruleset` puts them together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["operator", "vendor", "structure", "entropy", "personal"]

ENGINE_VERSION: Final = 2
"""Raised when the engine itself changes what it finds; part of the rules' version."""

BOUNDARY: Final = r"(?:^|[^A-Za-z0-9_-]|\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2})"
"""Nothing that continues a word. A secret inside one long run of base64url has no boundary."""

KEY_NAMES: Final = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secrets?|credentials?|authorization|cookies?"
    r"|api[_\-. ]?key"
    r"|(?:access|secret|private|account|shared|encryption|signing|master|subscription|functions)"
    r"[_\-. ]?(?:access[_\-. ]?)?key|secret[_\-]?key[_\-]?base|client[_\-]?key[_\-]?data"
    r"|(?:db|database|redis|smtp|imap|mail|ftp|ldap|mysql|postgres|mongo|rabbitmq|admin|root"
    r"|proxy)[_\-]?pass"
    r"|(?:access|refresh|auth|session|api|bearer|security|secret|bot|csrf|xsrf)[_\-. ]?token"
    r"|(?:^|[^a-zA-Z]|\\[nrtbf]|\\u[0-9a-fA-F]{4})id[_\-]?token|conn(?:ection)?[_\-. ]?str(?:ing)?"
    r"|пароль)s?[_\-]?[0-9]{0,2}"
)
"""How the name of a member, variable, header or parameter ends when its value is a secret."""

TOKEN_NAMES: Final = r"(?:token|auth|jwt|bearer)[_\-]?[0-9]{0,2}"  # noqa: S105 - a pattern
"""Names whose value is a secret only where it looks like one (`token` is also a piece of text)."""

GLUE: Final = r"""(?:\\+[nrtf]|\\+u00(?:0[9aAdD]|2[027]|5[dD])|[\\"'\]\s])*"""
"""What may stand in serialised text between a name and its sign of assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of secret."""

    name: str
    """Stands in the marker and in the counts: lower case, digits and underscores."""
    kind: Kind
    """`entropy` rules go by looks alone and leave opaque fields (signatures, media) in peace;
    marks of `personal` rules have no tag."""
    pattern: str
    hint: str = ""
    """Pattern for the serialised text; the pattern itself when empty."""
    check: str = ""
    """Name of a further test in `checks.CHECKS` that the secret has to pass; none when empty."""


SPACE: Final = r"(?:\\+[nrtf]|\\+u00(?:0[9a-dA-D]|20)|\s)"
"""White space in serialised text."""

KEY_HINT: Final = "(?i){KEY}(?:" + GLUE + r"[:=,}>]|\\+u003[eE])"
"""Serialised text in which something is assigned to a secret's name, in whatever notation, or in
which a member's name, or the name it gives another, is a secret's."""

TOKEN_HINT: Final = (
    "(?i){TOKEN}" + GLUE + r"""[:=>]{1,2}(?:\\+[nrtf]|\\+u00(?:0[9aAdD]|2[027])|[\\"'`\s])*"""
    r"""[A-Za-z0-9_.=+/:~\\-]{16}"""
)
"""Serialised text with a name such as `token` whose value looks like a secret."""

KEY_RULE: Final = "key_name"
"""Names what was removed because of the name of the member it stood under."""

KNOWN_RULE: Final = "known"
"""Names a value that was handed in: a provider key of this gateway, an API key."""

FAILED: Final = "[redacted:scan_failed]"
"""Stands for a value that could not be scanned."""

TOO_MANY_RULE: Final = "too_many"
"""Names a string that was removed whole, for the number of secrets in it."""

OWN_RULE_NAMES_TAKEN: Final = frozenset({KEY_RULE, KNOWN_RULE, TOO_MANY_RULE, "scan_failed"})
"""Names in marks beside those of rules."""

EVERY_TEXT: Final = "(?s:.)"
"""The hint of a rule for which every text has to be opened."""

OPAQUE_KEYS: Final = frozenset(
    {
        "signature",
        "thought_signature",
        "thoughtSignature",
        "data",
        "encrypted_content",
        "redactedContent",
        "encrypted_reasoning",
        "file_data",
        "b64_json",
        "embedding",
    }
)
"""Members whose value is meant to look random: only rules of the kind `entropy` pass them by."""

VALUE_KEYS: Final = frozenset(
    {"value", "default", "current", "new", "old", "const", "raw", "plain", "text"}
)
"""Members that hold the value of the object's own key (`"password": {"value": …}`)."""

NAME_KEYS: Final = frozenset({"name", "key", "header"})
"""Members that name the `value` beside them (`{"name": "API_KEY", "value": …}`)."""


ESCAPED_ASCII: Final = (
    r"\\u(?:00(?:2[bdefBDEF]|3[0-9aAdD]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
    r"|017[fF]|212[aA])"
)
"""An escape that hides a character a secret could be made of, in JSON in JSON.

The last two are the long s and the Kelvin sign, which are an `s` and a `k` where case is ignored.
"""

_COUNT: Final = re.compile(r"(?<!\\x)\{(\d+)(,?)(\d*)\}")
_COUNT_MAX: Final = 8
_NOT_ASCII: Final = re.compile("[^\x00-\x7f]+")  # Over patterns of ours, never over content.
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_CONTROL: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


def expand(pattern: str) -> str:
    """A pattern with its macros replaced."""
    return (
        pattern.replace("{B}", BOUNDARY).replace("{KEY}", KEY_NAMES).replace("{TOKEN}", TOKEN_NAMES)
    )


def expand_hint(rule: Rule) -> str:
    """The pattern that finds a rule's secrets in serialised text."""
    return spell_out(expand(rule.hint or _widened(rule.pattern)))


def _widened(pattern: str) -> str:
    """A pattern that matches wherever `pattern` does, and is small.

    The automaton of all rules holds each repetition as often as it is counted, and grows with each
    new text: boundaries go, and long counts become "at least eight", which says nearly as much.
    """

    def widen(count: re.Match[str]) -> str:
        least, has_more, most = int(count[1]), count[2], count[3]
        if not (most if has_more else least) or int(most or least) > _COUNT_MAX:
            return f"{{{min(least, _COUNT_MAX)},}}"
        return count[0]

    return _COUNT.sub(widen, pattern.removeprefix("{B}"))


def spell_out(pattern: str) -> str:
    """A pattern whose words beyond ASCII also match as JSON escapes them."""
    return _NOT_ASCII.sub(lambda word: literal_hint(word[0], fold=True), pattern)


def literal_hint(text: str, *, fold: bool = False) -> str:
    """A pattern for `text` as it may stand in JSON at any depth: plain or escaped.

    fold: both cases of each letter.
    """
    return "".join(_character(sign, fold) for sign in text)


def _character(sign: str, fold: bool) -> str:
    if sign in _PLAIN:
        return sign
    forms = {sign, sign.upper(), sign.lower()} if fold else {sign}
    found: list[str] = []
    for form in sorted(forms):
        units = form.encode("utf-16-be", "surrogatepass")
        escapes = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
        found.append("".join(rf"\\+u(?i:{unit})" for unit in escapes))
        if form in _CONTROL:
            found += [rf"\\+{_CONTROL[form]}", _quoted(form)]
        elif form == "\\":
            found.append(r"\\+")
        elif 0xD800 <= ord(form) <= 0xDFFF:
            pass  # JSON text holds a lone surrogate as an escape only.
        else:
            found.append(rf"\\*{_quoted(form)}")
    return f"(?:{'|'.join(found)})"


def _quoted(sign: str) -> str:
    return rf"\x{{{ord(sign):x}}}" if ord(sign) < 128 else sign
