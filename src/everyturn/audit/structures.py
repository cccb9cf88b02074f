"""Secrets that are told by what stands around them, as data.

Headers, cookies, URLs, connection strings, key blocks, command lines and assignments. Each rule
whose pattern holds characters that JSON escapes has a hint (see `rules`).
"""

from __future__ import annotations

from typing import Final

from everyturn.audit.rules import GLUE, KEY_HINT, SPACE, TOKEN_HINT, Rule

_ASSIGNED: Final = r"""["'\]]{0,2}\s*(?::=|=>|={1,2}|:)\s*"""


_CONNECTION_HINT: Final = "(?i)(?:pwd|password|passwd|accountkey|sharedaccesskey)" + GLUE + "="

STRUCTURES: Final = (
    Rule(
        name="private_key",
        kind="structure",
        pattern=r"----[- ]BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?[- ]----(?s:.*?)"
        r"(?:----[- ]END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?[- ]----|\z)",
        hint=r"----[- ]BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY",
    ),
    Rule(
        name="putty_key",
        kind="structure",
        pattern=r"Private-Lines: ?[0-9]{1,4}(?:\r?\n[A-Za-z0-9+/=]{8,76})+",
        hint=r"Private-Lines: ?[0-9]",
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
        hint="(?i)authorization" + GLUE + "[:=]",
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
        hint="(?i)cookie" + GLUE + "[:=]",
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
        pattern=r"""(?i)(?:[?&;#]|&amp;|%26|%3F)[a-z0-9_.-]*(?:api[_-]?key|key|token|secret|sig"""
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
        hint=_CONNECTION_HINT,
        check="value",
    ),
    Rule(
        name="connection_string_tail",
        kind="structure",
        pattern=r"""(?i);\s*(?:pwd|password|passwd|accountkey|sharedaccesskey)\s*=\s*"""
        r"""(?:"([^"]+)"|'([^']+)'|([^;"'\s]+))""",
        hint=_CONNECTION_HINT,
        check="value",
    ),
    Rule(
        name="dsn_password",
        kind="structure",
        pattern=r"""{B}[A-Za-z0-9_.-]{1,64}:([^\s:@/"'`]{4,})@(?:tcp|tcp6|udp|unix)\(""",
        hint=r"@(?:tcp|tcp6|udp|unix)\(",
        check="value",
    ),
    Rule(
        name="oracle_password",
        kind="structure",
        pattern=r"""jdbc:oracle:[a-z]{2,8}:[A-Za-z0-9_.$#-]{1,64}/([^\s@"'`]{3,})@""",
        hint=r"jdbc:oracle:",
        check="value",
    ),
    Rule(
        name="dsn_words",
        kind="structure",
        pattern=r"(?i){B}(?:host|hostaddr|dbname|server|port|user|sslmode|database|login)"
        r"""(?:=|\s+)[^\s"'`]{1,200}\s+(?:password|pwd)(?:=|\s+)([^\s"'`;,]{4,})""",
        hint=r"(?i)(?:\\[nrtf]|\s)(?:password|pwd)(?:=|\\+[nrtf]|\s)",
        check="password_word",
    ),
    Rule(
        name="xml_element",
        kind="structure",
        pattern=r"(?i)<[a-z0-9_:.-]{0,64}{KEY}>\s*([^<>\s][^<>]{2,}?)\s*</",
        hint=KEY_HINT,
        check="value",
    ),
    Rule(
        name="header_pair",
        kind="structure",
        pattern=r"""(?i)["'][a-z0-9_-]{0,40}{KEY}["']\s*,\s*[a-z]{0,2}["']([^"'\r\n]{8,})["']""",
        hint=KEY_HINT,
        check="mixed",
    ),
    Rule(
        name="named_value",
        kind="structure",
        pattern=r"""(?i)["'](?:name|key|header)["']\s*:\s*["'][^"'\r\n]{0,64}{KEY}["']\s*,\s*"""
        r"""["']value["']\s*:\s*["']([^"'\r\n]{4,})["']""",
        hint=KEY_HINT,
        check="value",
    ),
    Rule(
        name="password_option",
        kind="structure",
        pattern=r"(?:mysql|mysqldump|mysqladmin|mariadb|sshpass|(?:docker|podman)\s+login)\s"
        r"""(?:[^\r\n|;]{0,200}?\s)?-p\s?["']?([^\s"'`-][^\s"'`]{5,})""",
        hint="(?:mysql|mysqldump|mysqladmin|mariadb|sshpass|(?:docker|podman)"
        + SPACE
        + "+login)"
        + SPACE,
        check="mixed",
    ),
    Rule(
        name="password_hash",
        kind="structure",
        pattern=r"(\$(?:2[abxy]\$[0-9]{2}\$[A-Za-z0-9./]{53}"
        r"|[156y]\$(?:rounds=[0-9]{1,9}\$)?[A-Za-z0-9./$]{1,40}\$[A-Za-z0-9./]{22,86}"
        r"|argon2(?:id?|d)\$v=[0-9]+\$[a-z0-9=,]{5,40}\$[A-Za-z0-9+/]{8,}\$[A-Za-z0-9+/]{16,}))",
        hint=r"(?:\$|\\+u0024)(?:2[abxy]|[156y]|argon2(?:id?|d))(?:\$|\\+u0024)",
    ),
    Rule(
        name="curl_user",
        kind="structure",
        pattern=r"""curl[^\r\n]{0,200}?\s(?:-u|--user)[ =]{0,2}["']?([^\s"':]+:[^\s"']+)""",
        hint=r"""(?:\s|\\[nrtf])(?:-u|--user)[ =\\"']*[^\s"':]+:""",
        check="value",
    ),
    Rule(
        name="command_line",
        kind="structure",
        pattern=r"(?i)\s--(?:[a-z][a-z0-9-]*)?{KEY}[ =]"
        r"""\s?(?:"([^"\s]{4,})"|'([^'\s]{4,})'|([^\s"'`]{6,}))""",
        hint=r"(?:\s|\\[nrtf])--[a-zA-Z]",
        check="mixed",
    ),
    Rule(
        name="command_line_token",
        kind="entropy",
        pattern=r"""(?i)\s--(?:[a-z][a-z0-9-]*)?{TOKEN}[ =]["']?([A-Za-z0-9_.=+/:~-]{20,})""",
        hint=r"(?:\s|\\[nrtf])--[a-zA-Z]",
        check="token",
    ),
    Rule(
        name="configure_set",
        kind="structure",
        pattern=r"""(?i)configure\s+set\s+[a-z0-9_.-]{0,80}{KEY}\s+["']?([^\s"'`]{6,})""",
        hint="(?i)configure" + SPACE + "+set" + SPACE,
        check="mixed",
    ),
    Rule(
        name="server_password",
        kind="structure",
        pattern=r"""(?:requirepass|masterauth)\s+["']?([^\s"'`]{6,})""",
        hint="(?:requirepass|masterauth)" + SPACE,
        check="mixed",
    ),
    Rule(
        name="sql_password",
        kind="structure",
        pattern=r"(?i)(?:identified\s+(?:with\s+[a-z0-9_]{1,60}\s+)?by"
        r"|(?:create|alter)\s+(?:user|role)\s[^\r\n;'\"]{1,120}?\spassword)\s+'([^'\r\n]{4,})'",
        hint="(?i)(?:by|password)" + SPACE + r"+(?:'|\\+u0027)",
        check="value",
    ),
    Rule(
        name="secure_string",
        kind="structure",
        pattern=r"""(?i)convertto-securestring\s+(?:-string\s+)?["']([^"'\r\n]{4,})["']""",
        hint="(?i)convertto-securestring" + SPACE,
        check="value",
    ),
    Rule(
        name="auth_pair",
        kind="structure",
        pattern=r"""(?i)auth\s*=\s*\(\s*["'][^"'\r\n]{0,80}["']\s*,\s*["']([^"'\r\n]{4,})["']""",
        hint="(?i)auth" + SPACE + "*=" + SPACE + r"*\(",
        check="value",
    ),
    Rule(
        name="named_attribute",
        kind="structure",
        pattern=r"""(?i)(?:name|key|id)\s*=\s*["'][a-z0-9_.:-]{0,64}{KEY}["']"""
        r"""(?:\s+[a-z][a-z:_-]{0,40}\s*=\s*["'][^"'<>\r\n]{0,80}["']){0,2}"""
        r"""\s+value\s*=\s*["']([^"'<>\r\n]{4,})["']""",
        hint=r"(?i){KEY}(?:\\*[\"']|\\+u002[27])" + SPACE + "+[a-z]",
        check="value",
    ),
    Rule(
        name="assigned",
        kind="structure",
        pattern=r"(?i){KEY}" + _ASSIGNED + r"""(?:"([^"\s]{4,})"|'([^'\s]{4,})'|`([^`\s]{4,})`)""",
        hint=KEY_HINT,
        check="value",
    ),
    Rule(
        name="assigned_bare",
        kind="structure",
        pattern=r"(?i){KEY}" + _ASSIGNED + r"""([^\s"'`,;&<>(){}\[\]]{6,})""",
        hint=KEY_HINT,
        check="mixed",
    ),
    Rule(
        name="assigned_token",
        kind="entropy",
        pattern=r"(?i)[a-z_.-]*{TOKEN}" + _ASSIGNED + r"""["'`]?([A-Za-z0-9_.=+/~-]{20,})""",
        hint=TOKEN_HINT,
        check="token",
    ),
)
"""Every structural rule; where two find the same text, the earlier names it."""
