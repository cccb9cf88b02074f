"""Tests that a find has to pass beyond its pattern, and what a member's name says of its value.

Pure. A pattern finds candidates; these keep words, placeholders and code apart from secrets.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import Final

from everyturn.audit.rules import KEY_NAMES, TOKEN_NAMES
from everyturn.audit.scan import Check, Pattern

_PLACEHOLDER: Final = Pattern(
    r"(?:\$\{[^}]*\}|\$[A-Z_][A-Z0-9_]*|<[^>]*>|\{\{.*\}\}|\{[a-z_.]*\}|%[A-Z_]+%|%\([a-z_]+\)s"
    r"|[*x.X•_-]{3,}|(?:YOUR|MY)_[A-Z_]*|your-[a-z-]*|%s)"
)
_STRONG_NAME: Final = Pattern(rf"(?i){KEY_NAMES}\z")
_WEAK_NAME: Final = Pattern(rf"(?i){TOKEN_NAMES}\z")
_CURSOR_NAME: Final = Pattern(
    r"(?i)(?:page|next|prev|previous|continuation|continue|sync|cursor|eos|bos|pad|unk|mask|sep"
    r"|cls|start|end|stop|special)[_\-. ]?token"
)
_TOKEN: Final = Pattern(r"[A-Za-z0-9_.=+/:~-]{16,}")
_PATH: Final = Pattern(r"(?:/|~/|[A-Za-z]:\\|\.\.?/).*")
_SAYS_NOTHING: Final = frozenset({"", "true", "false", "null", "none", "nil", "undefined"})
_NAME_LENGTH_MAX: Final = 96
_CARD_LENGTHS: Final = {
    2: (16,),
    3: (14, 15, 16),
    4: (13, 16, 19),
    5: (16,),
    6: (16, 17, 18, 19),
}
_DIGITS: Final = frozenset("0123456789")


def is_placeholder(text: str) -> bool:
    """Whether `text` stands for a secret instead of being one: `${KEY}`, `<token>`, `****`."""
    return _PLACEHOLDER.matches(text)


def is_mixed(text: str) -> bool:
    """Whether `text` has both letters and digits, as made-up secrets have and words have not."""
    return any(sign.isdigit() for sign in text) and any(sign.isalpha() for sign in text)


def looks_secret(text: str) -> bool:
    """Whether `text` alone looks like a token: long, without spaces, letters and digits."""
    return 16 <= len(text) <= 4096 and is_mixed(text) and _TOKEN.matches(text)


def is_secret_by_name(text: str, name: str) -> bool:
    """Whether `text` is a secret, given that it stands under a secret's name."""
    word = text.strip()
    if word.lower() in _SAYS_NOTHING or is_placeholder(word):
        return False
    return not (name.lower().endswith("pwd") and _PATH.matches(word))


@lru_cache(maxsize=8192)
def name_level(name: str) -> int:
    """What a member's name says: 2 its value is secret, 1 it is where it looks so, 0 nothing.

    `max_tokens`, `prompt_tokens` and the like say nothing, nor do cursors such as `page_token`.
    """
    end = name[-_NAME_LENGTH_MAX:]
    if _STRONG_NAME.ends(end):
        return 2
    return 1 if _WEAK_NAME.ends(end) and not _CURSOR_NAME.ends(end) else 0


def _is_value(secret: str, _: str) -> bool:
    return not is_placeholder(secret) and secret.lower() not in _SAYS_NOTHING


def _is_mixed_value(secret: str, _: str) -> bool:
    return is_mixed(secret) and not is_placeholder(secret)


def _is_token(secret: str, whole: str) -> bool:
    name = whole[: len(whole) - len(secret)].rstrip("\"'`]:=> \t\r\n")
    return is_mixed(secret) and not _CURSOR_NAME.ends(name)


def _is_basic(secret: str, _: str) -> bool:
    """Whether the base64 text holds `user:password`."""
    try:
        return b":" in base64.b64decode(secret + "=" * (-len(secret) % 4))
    except (binascii.Error, ValueError):
        return False


def _is_password_word(secret: str, whole: str) -> bool:
    """Whether the word behind `password` is one: after `=`, or where it does not read as prose."""
    is_assigned = whole[: len(whole) - len(secret)].endswith("=")
    return _is_value(secret, whole) and (is_assigned or is_mixed(secret))


def is_card(secret: str, _: str = "") -> bool:
    """Whether digits, with spaces or dashes, are as many as a card has that starts with the first
    of them (ISO/IEC 7812), and pass its check (Luhn)."""
    digits = [int(sign) for sign in secret if sign in _DIGITS]
    if not digits or len(digits) not in _CARD_LENGTHS.get(digits[0], ()) or len(set(digits)) < 2:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(secret: str, _: str = "") -> bool:
    """Whether the text passes the check of account numbers (ISO 13616: modulo 97 is 1)."""
    compact = secret.replace(" ", "")
    if not 15 <= len(compact) <= 34:
        return False
    turned = compact[4:] + compact[:4]
    return int("".join(str(int(sign, 36)) for sign in turned)) % 97 == 1


def _is_phone(secret: str, _: str) -> bool:
    return 8 <= sum(sign in _DIGITS for sign in secret) <= 15


CHECKS: Final[dict[str, Check]] = {
    "value": _is_value,
    "mixed": _is_mixed_value,
    "token": _is_token,
    "basic_credentials": _is_basic,
    "password_word": _is_password_word,
    "card": is_card,
    "iban": is_iban,
    "phone": _is_phone,
}
"""Name in a rule → the test."""
