r"""What counts as a secret: the rules as data, read by `redact`.

Patterns are RE2 syntax and are matched against decoded strings. `{B}` is a left boundary, `{KEY}`
and `{TOKEN}` are names of things that are secret. The group that matched is the secret; without
groups it is the whole match. A rule needs a `hint` where its pattern holds characters that JSON
escapes: the hint has to match the serialised text, at any depth of JSON in JSON, wherever the
pattern matches the decoded one.

Sources of the formats: the vendors' own pages, checked against the MIT rule set of gitleaks
(`config/gitleaks.toml`, 2026-07). Lengths are lower bounds here where vendors changed them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["vendor", "structure", "entropy"]

ENGINE_VERSION: Final = 1
"""Raised when the engine itself changes what it finds; part of the rules' version."""

BOUNDARY: Final = r"(?:^|[^A-Za-z0-9_-]|\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2})"
"""Nothing that continues a word. A secret inside one long run of base64url has no boundary."""

KEY_NAMES: Final = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secrets?|credentials?|authorization|cookies?"
    r"|api[_\-. ]?key"
    r"|(?:access|secret|private|account|shared|encryption|signing|master)[_\-. ]?"
    r"(?:access[_\-. ]?)?key"
    r"|(?:access|refresh|auth|session|api|bearer|security|secret|bot|csrf|xsrf)[_\-. ]?token"
    r"|(?:^|[^a-zA-Z])id[_\-]?token|conn(?:ection)?[_\-. ]?str(?:ing)?"
    r"|пароль)s?[_\-]?[0-9]{0,2}"
)
"""How the name of a member, variable, header or parameter ends when its value is a secret."""

TOKEN_NAMES: Final = r"(?:token|auth|jwt|bearer)[_\-]?[0-9]{0,2}"  # noqa: S105 - a pattern
"""Names whose value is a secret only where it looks like one (`token` is also a piece of text)."""

_GLUE: Final = r"""(?:\\+[nrtf]|\\+u00(?:0[9aAdD]|2[027]|5[dD])|[\\"'\]\s])*"""
"""What may stand in serialised text between a name and its sign of assignment."""
_ASSIGNED: Final = r"""["'\]]{0,2}\s*(?::=|=>|={1,2}|:)\s*"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of secret."""

    name: str
    """Stands in the marker and in the counts: lower case, digits and underscores."""
    kind: Kind
    """`entropy` rules go by looks alone and leave opaque fields (signatures, media) in peace."""
    pattern: str
    hint: str = ""
    """Pattern for the serialised text; the pattern itself when empty."""
    check: str = ""
    """Name of a further test in `redact.CHECKS` that the secret has to pass; none when empty."""


def _vendor(name: str, pattern: str, *, hint: str = "", check: str = "") -> Rule:
    return Rule(name=name, kind="vendor", pattern=pattern, hint=hint, check=check)


_VENDORS: Final = (
    # Model providers.
    _vendor("anthropic_key", r"{B}(sk-ant-[A-Za-z0-9_-]{16,})"),
    _vendor("openrouter_key", r"{B}(sk-or-[A-Za-z0-9_-]{16,})"),
    _vendor("openai_key", r"{B}(sk-(?:proj|svcacct|admin|service)-[A-Za-z0-9_-]{16,})"),
    _vendor("langfuse_key", r"{B}(sk-lf-[0-9a-f-]{36})"),
    _vendor("sk_key", r"{B}(sk-[A-Za-z0-9][A-Za-z0-9_-]{18,})", check="mixed"),
    _vendor("groq_key", r"{B}(gsk_[A-Za-z0-9]{20,})"),
    _vendor("xai_key", r"{B}(xai-[A-Za-z0-9]{20,})"),
    _vendor("cerebras_key", r"{B}(csk-[a-z0-9]{24,})"),
    _vendor("perplexity_key", r"{B}(pplx-[A-Za-z0-9]{32,})"),
    _vendor("nvidia_key", r"{B}(nvapi-[A-Za-z0-9_-]{40,})"),
    _vendor("fireworks_key", r"{B}(fw_[A-Za-z0-9]{22,})", check="mixed"),
    _vendor("replicate_token", r"{B}(r8_[A-Za-z0-9]{36,})"),
    _vendor("huggingface_token", r"{B}((?:hf|api_org)_[A-Za-z0-9]{30,})"),
    _vendor("tavily_key", r"{B}(tvly-[A-Za-z0-9_-]{20,})"),
    _vendor("langsmith_key", r"{B}(lsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10})"),
    # Clouds.
    _vendor(
        "aws_secret_key",
        r"(?:AKIA|ASIA)[A-Z2-7]{16}[^A-Za-z0-9/+=]{1,4}(?:[A-Za-z_ ]{1,30}[^A-Za-z0-9/+=]{1,4})?"
        r"([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|\z)",
        hint=r"(?:AKIA|ASIA)[A-Z2-7]{16}",
    ),
    _vendor("aws_access_key", r"{B}((?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})\b"),
    _vendor("google_api_key", r"{B}(AIza[A-Za-z0-9_-]{35})"),
    _vendor("google_oauth_token", r"{B}(ya29\.[A-Za-z0-9_-]{20,})"),
    _vendor("google_oauth_secret", r"{B}(GOCSPX-[A-Za-z0-9_-]{20,})"),
    _vendor("azure_client_secret", r"{B}([A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34})"),
    _vendor("alibaba_access_key", r"{B}(LTAI[A-Za-z0-9]{20})\b"),
    _vendor("digitalocean_token", r"{B}(do[opr]_v1_[0-9a-f]{64})"),
    _vendor("yandex_token", r"{B}((?:AQVN[A-Za-z0-9_-]{35,}|y[0-3]_[A-Za-z0-9_-]{50,}))"),
    _vendor("databricks_token", r"{B}(dapi[0-9a-f]{32})"),
    _vendor("vault_token", r"{B}(hv[sbr]\.[A-Za-z0-9_-]{24,})"),
    # Code hosting, packages, delivery.
    _vendor("github_token", r"{B}((?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}))"),
    _vendor("gitlab_token", r"{B}(gl(?:pat|dt|ptt|ft|imt|agent|oas|rt|soat|cbt|ffct)-[\w-]{20,})"),
    _vendor("atlassian_token", r"{B}(ATATT3[A-Za-z0-9_=-]{60,})"),
    _vendor("npm_token", r"{B}(npm_[A-Za-z0-9]{36,})"),
    _vendor("pypi_token", r"{B}(pypi-[A-Za-z0-9_-]{50,})"),
    _vendor("docker_token", r"{B}(dckr_pat_[A-Za-z0-9_-]{20,})"),
    _vendor("linear_key", r"{B}(lin_api_[A-Za-z0-9]{40})"),
    _vendor("notion_token", r"{B}(ntn_[A-Za-z0-9]{40,})"),
    _vendor("airtable_token", r"{B}(pat[A-Za-z0-9]{14}\.[0-9a-f]{64})"),
    _vendor("postman_key", r"{B}(PMAK-[0-9a-f]{24}-[0-9a-f]{34})"),
    _vendor("grafana_token", r"{B}(glsa_[A-Za-z0-9]{32}_[0-9a-f]{8})"),
    _vendor("age_key", r"{B}(AGE-SECRET-KEY-1[0-9A-Z]{58})"),
    # Messages and money.
    _vendor("slack_token", r"{B}(xox[abceoprs]-[A-Za-z0-9-]{10,})"),
    _vendor("slack_app_token", r"{B}(xapp-[0-9]-[A-Za-z0-9-]{20,})"),
    _vendor(
        "slack_webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/+-]{20,})",
        hint=r"hooks\.slack\.com[\\/]+(?:services|workflows|triggers)[\\/]",
    ),
    _vendor(
        "discord_webhook",
        r"discord(?:app)?\.com/api/webhooks/([0-9]{17,20}/[A-Za-z0-9_-]{60,})",
        hint=r"discord(?:app)?\.com[\\/]+api[\\/]+webhooks",
    ),
    _vendor("telegram_token", r"([0-9]{8,10}:AA[A-Za-z0-9_-]{32,34})"),
    _vendor("twilio_key", r"{B}(SK[0-9a-f]{32})\b"),
    _vendor("sendgrid_key", r"{B}(SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64})"),
    _vendor("mailgun_key", r"{B}(key-[0-9a-f]{32})\b"),
    _vendor("stripe_key", r"{B}((?:[sr]k_(?:test|live|prod)_[A-Za-z0-9]{10,}))"),
    _vendor("stripe_webhook_secret", r"{B}(whsec_[A-Za-z0-9]{24,})"),
    _vendor("shopify_token", r"{B}(shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32})"),
    _vendor("square_token", r"{B}(sq0[a-z]{3}-[A-Za-z0-9_-]{22,})"),
)

_STRUCTURES: Final = (
    Rule(
        name="private_key",
        kind="structure",
        pattern=r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)",
        hint=r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY",
    ),
    Rule(
        name="jwt",
        kind="structure",
        pattern=r"{B}(eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*){1,3})",
    ),
    Rule(
        name="authorization",
        kind="structure",
        pattern=r"""(?i)authorization["'\]]{0,2}\s*(?::=|=>|={1,2}|:)\s*["'`]?"""
        r"""(?:bearer|basic|digest|token|api-?key|negotiate|aws4-hmac-sha256)\s+([^"'`\r\n<>{}$\s]"""
        r"""[^"'`\r\n\s]{2,})""",
        hint="(?i)authorization" + _GLUE + "[:=]",
        check="value",
    ),
    Rule(
        name="bearer",
        kind="structure",
        pattern=r"(?i){B}bearer\s+([A-Za-z0-9._~+/=-]{16,})",
        hint=r"(?i)bearer(?:\\+[nrtf]|\s)+[A-Za-z0-9._~+/=\\-]{16}",
        check="mixed",
    ),
    Rule(
        name="basic",
        kind="structure",
        pattern=r"(?i){B}basic\s+([A-Za-z0-9+/]{8,}={0,2})",
        hint=r"(?i)basic(?:\\+[nrtf]|\s)+[A-Za-z0-9+/\\]{8}",
        check="basic_credentials",
    ),
    Rule(
        name="cookie",
        kind="structure",
        pattern=r"""(?i)(?:^|[^A-Za-z0-9])(?:set-)?cookie["'\]]{0,2}\s*[:=]\s*["'`]?"""
        r"""([A-Za-z0-9_.$%-]{1,80}=[^\r\n"'`]{4,})""",
        hint="(?i)cookie" + _GLUE + "[:=]",
    ),
    Rule(
        name="url_password",
        kind="structure",
        pattern=r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'<>@:]*:([^\s/?#"'<>@]+)@""",
        hint=r""":[\\/]{2,}[^\s/?#"'<>@:]*:[^\s/?#"'<>@]+@""",
        check="value",
    ),
    Rule(
        name="url_userinfo",
        kind="structure",
        pattern=r"""[A-Za-z][A-Za-z0-9+.-]*://([^\s/?#"'<>@:]{16,}):?@""",
        hint=r""":[\\/]{2,}[^\s/?#"'<>@:]{16,}:?@""",
        check="mixed",
    ),
    Rule(
        name="url_query",
        kind="structure",
        pattern=r"""(?i)(?:[?&;]|&amp;|%26|%3F)[a-z0-9_.-]*(?:api[_-]?key|key|token|secret|sig"""
        r"""|signature|password|passwd|pwd|credential|auth|code)=([^\s&"'#<>\\`]{16,})""",
        hint=r"""(?i)(?:key|token|secret|sig|signature|password|passwd|pwd|credential|auth|code)="""
        r"""[^\s&"'#<>`]{16}""",
        check="mixed",
    ),
    Rule(
        name="connection_string",
        kind="structure",
        pattern=r"""(?i)(?:^|[;"'\s])(?:pwd|password|passwd|accountkey|sharedaccesskey)\s*=\s*"""
        r"""(?:"([^"]+)"|'([^']+)'|([^;"'\s]+))\s*;""",
        hint="(?i)(?:pwd|password|passwd|accountkey|sharedaccesskey)" + _GLUE + "=",
        check="value",
    ),
    Rule(
        name="connection_string_tail",
        kind="structure",
        pattern=r"""(?i);\s*(?:pwd|password|passwd|accountkey|sharedaccesskey)\s*=\s*"""
        r"""(?:"([^"]+)"|'([^']+)'|([^;"'\s]+))""",
        hint="(?i)(?:pwd|password|passwd|accountkey|sharedaccesskey)" + _GLUE + "=",
        check="value",
    ),
    Rule(
        name="curl_user",
        kind="structure",
        pattern=r"""curl[^\r\n]{0,200}?\s(?:-u|--user)[ =]{0,2}["']?([^\s"':]+:[^\s"']+)""",
        hint=r"""(?:\s|\\[nrtf])(?:-u|--user)[ =\\"']{0,6}[^\s"':]+:""",
        check="value",
    ),
    Rule(
        name="command_line",
        kind="structure",
        pattern=r"(?i)\s--[a-z0-9-]*{KEY}[ =]"
        r"""\s?(?:"([^"\s]{4,})"|'([^'\s]{4,})'|([^\s"'`]{6,}))""",
        hint=r"(?i)--[a-z0-9-]*{KEY}",
        check="mixed",
    ),
    Rule(
        name="assigned",
        kind="structure",
        pattern=r"(?i){KEY}" + _ASSIGNED + r"""(?:"([^"\s]{4,})"|'([^'\s]{4,})'|`([^`\s]{4,})`)""",
        hint="(?i){KEY}" + _GLUE + "[:=]",
        check="value",
    ),
    Rule(
        name="assigned_bare",
        kind="structure",
        pattern=r"(?i){KEY}" + _ASSIGNED + r"""([^\s"'`,;&<>(){}\[\]]{6,})""",
        hint="(?i){KEY}" + _GLUE + "[:=]",
        check="mixed",
    ),
    Rule(
        name="assigned_token",
        kind="entropy",
        pattern=r"(?i)[a-z_.-]*{TOKEN}" + _ASSIGNED + r"""["'`]?([A-Za-z0-9_.=+/~-]{20,})""",
        hint="(?i){TOKEN}"
        + _GLUE
        + r"""[:=>]{1,2}(?:\\+[nrtf]|[\\"'`\s])*[A-Za-z0-9_.=+/~\\-]{16}""",
        check="token",
    ),
)

RULES: Final[tuple[Rule, ...]] = _VENDORS + _STRUCTURES
"""Every rule, the most telling first: where two find the same text, the earlier names it."""

KEY_HINT: Final = "(?i){KEY}(?:" + _GLUE + r"""[:=]|\\*"(?:\\+[nrtf]|\s)*[,}])"""
"""Serialised text in which a member's name, or the name it gives another, is a secret's."""

TOKEN_HINT: Final = (
    "(?i){TOKEN}" + _GLUE + r""":(?:\\+[nrtf]|\s)*(?:\\*"|\\+u0022)[A-Za-z0-9_.=+/:~\\-]{16}"""
)
"""Serialised text with a member such as `token` whose value looks like a secret."""

KEY_RULE: Final = "key_name"
"""Names what was removed because of the name of the member it stood under."""

KNOWN_RULE: Final = "known"
"""Names a value that was handed in: a provider key of this gateway, an API key."""

FAILED: Final = "[redacted:scan_failed]"
"""Stands for a value that could not be scanned."""

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
    return spell_out(expand(rule.hint or rule.pattern))


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
        elif "\ud800" <= form <= "\udfff":
            pass  # JSON text holds a lone surrogate as an escape only.
        else:
            found.append(rf"\\*{_quoted(form)}")
    return f"(?:{'|'.join(found)})"


def _quoted(sign: str) -> str:
    return rf"\x{{{ord(sign):x}}}" if ord(sign) < 128 else sign
