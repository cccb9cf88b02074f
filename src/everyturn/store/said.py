"""What is said in a turn, as the search index takes it: SQL from stored rows to three texts.

`user`: what the user said. `assistant`: what the models answered. `tools`: calls of tools that
models asked for, what was sent to tools and what they gave back. SQLite does it all in one
statement a turn; texts do not come to Python.

A turn is found by what is new in it: its last user message and what came after it, its answers, its
tool runs. Of the history before that only what no turn said before (`said`), so a conversation that
resends its history is not found once for each of its turns. Texts are taken from known places of a
message only; those of reasoning are not among them.
"""

from __future__ import annotations

import re
from typing import Final

from everyturn.audit import schema
from everyturn.audit.columns import ESCAPE

FIELDS: Final = ("user", "assistant", "tools")
"""The columns of the index, and what `find --in` takes."""

_WITHOUT_SPACES: Final = "⺀-鿿가-힯豈-﫿𠀀-𯿿"
"""Han, kana, bopomofo and hangul: scripts whose words are not, or not only, marked by spaces."""
_APART: Final = re.compile(f"([{_WITHOUT_SPACES}])")
_ESCAPED: Final = re.compile(f"{ESCAPE}[0-9A-F]{{4}}")
"""What stands for a character that a text column cannot hold; it parts words, as a NUL does."""

_TURN_CALLS: Final = f"model_calls_rows r WHERE {schema.turn_range_sql('?1')} AND r.turn_key = ?1"
_ROLE: Final = (
    "CASE WHEN c.part_key IS NOT NULL THEN 'assistant'"
    " WHEN json_valid(c.text) THEN json_extract(c.text, '$.role') END"
)


def spaced(text: str) -> str:
    """`text` with spaces around each character of a script that puts none between its words.

    The index cuts words at spaces and punctuation; so each such character is a word there, and a
    word of several is sought as a phrase: found wherever it stands.
    """
    return _APART.sub(r" \1 ", _ESCAPED.sub(" ", text))


def version_sql(key: str) -> str:
    """SQL that grows with every change of what a turn says; `key` is an SQL expression."""
    parts = [f"coalesce((SELECT a.revision FROM turn_audit_rows a WHERE a.turn_key = {key}), 0)"]
    for log in ("model_calls", "tool_calls"):
        parts.append(
            f"coalesce((SELECT sum(r.revision) FROM {log}_rows r"
            f" WHERE {schema.turn_range_sql(key)}), 0)"
        )
    return f"({' + '.join(parts)})"


_NEW_NODES: Final = (
    "WITH RECURSIVE walk (node, parent, content_key) AS ("
    " SELECT n.node, n.parent, n.content_key FROM prefix_nodes n"
    f" WHERE n.node IN (SELECT r.prompt_messages_node FROM {_TURN_CALLS})"
    " AND n.node NOT IN (SELECT node FROM walked)"
    " UNION SELECT n.node, n.parent, n.content_key FROM walk JOIN prefix_nodes n"
    " ON n.node = walk.parent WHERE n.node NOT IN (SELECT node FROM walked))"
)

NOTE_SAID_SQL: Final = (
    f"INSERT OR IGNORE INTO said (content_key, turn_key) {_NEW_NODES}"
    " SELECT c.content_key, ?1 FROM walk JOIN contents c ON c.content_key = walk.content_key"
    # A message with a part is an answer that was recorded when it was given.
    f" WHERE c.part_key IS NULL AND {_ROLE} IN ('user', 'assistant', 'tool', 'function')"
)
"""Notes which contents turn ?1 brought that no turn had before. Goes before `NOTE_WALKED_SQL`."""

NOTE_WALKED_SQL: Final = f"INSERT OR IGNORE INTO walked {_NEW_NODES} SELECT node FROM walk"
"""Notes which prefixes are known, so that each is walked once however often it comes again."""

_OWN: Final = (
    "WITH RECURSIVE own (node, parent, content_key, role) AS ("
    f" SELECT n.node, n.parent, n.content_key, {_ROLE} FROM prefix_nodes n"
    " JOIN contents c ON c.content_key = n.content_key"
    f" WHERE n.node IN (SELECT r.prompt_messages_node FROM {_TURN_CALLS})"
    f" UNION SELECT n.node, n.parent, n.content_key, {_ROLE} FROM own"
    " JOIN prefix_nodes n ON n.node = own.parent"
    " JOIN contents c ON c.content_key = n.content_key WHERE own.role IS NOT 'user')"
)
"""The messages of a turn's prompts from the last one of the user on."""

_SYSTEM: Final = "('system', 'developer')"


def _message_pieces(message: str, role: str, rest: str) -> str:
    """SQL for the pieces of messages. message: SQL of its JSON text; role: SQL of its role."""
    return (
        "SELECT CASE"
        f" WHEN {role} = 'user' THEN 'user'"
        f" WHEN {role} IN ('tool', 'function') OR j.key IN ('name', 'arguments') THEN 'tools'"
        " ELSE 'assistant' END AS field, j.atom AS text"
        f" FROM {rest}, json_tree(CASE WHEN json_valid({message}) THEN {message} ELSE 'null' END) j"
        " WHERE j.type = 'text' AND (j.key IN ('content', 'text', 'refusal')"
        f" OR {role} = 'assistant' AND j.key IN ('name', 'arguments')"
        " AND (j.path LIKE '%.function' OR j.path LIKE '%.function_call'))"
        " AND j.fullkey NOT LIKE '%reasoning%' AND j.fullkey NOT LIKE '%thinking%'"
    )


_USER_TEXT: Final = (
    f"(SELECT {schema.column_sql('turn_audit', 'user_text')}"
    " FROM turn_audit_rows r WHERE r.turn_key = ?1)"
)
_ASSISTANT_TEXT: Final = (
    f"(SELECT {schema.column_sql('turn_audit', 'assistant_text')}"
    " FROM turn_audit_rows r WHERE r.turn_key = ?1)"
)
_TOOL_PAYLOADS: Final = " UNION ALL ".join(
    f"SELECT 'tools', j.atom FROM tool_calls_rows r, json_tree(CASE WHEN json_valid({payload})"
    f" THEN {payload} ELSE json_quote({payload}) END) j"
    f" WHERE {schema.turn_range_sql('?1')} AND r.turn_key = ?1 AND j.atom IS NOT NULL"
    for payload in (
        "r.tool_name",
        schema.column_sql("tool_calls", "request_json"),
        schema.column_sql("tool_calls", "response_json"),
    )
)

PIECES_SQL: Final = " UNION ALL ".join(
    [
        f"{_OWN} SELECT 'user' AS field, {_USER_TEXT} AS text",
        f"SELECT 'assistant', {_ASSISTANT_TEXT}",
        "SELECT * FROM ("
        + _message_pieces(
            "k.text",
            "k.role",
            f"(SELECT {_ROLE} AS role, {schema.CONTENT_TEXT} AS text FROM contents c"
            " LEFT JOIN contents p ON p.content_key = c.part_key WHERE c.content_key IN"
            " (SELECT content_key FROM own WHERE role IN ('user', 'tool', 'function')"
            " UNION ALL SELECT content_key FROM said WHERE turn_key = ?1)) k",
        )
        # The user's text stands in the turn's own row already.
        + f" AND NOT (k.role = 'user' AND j.atom IS {_USER_TEXT}))",
        "SELECT * FROM ("
        + _message_pieces(
            "k.text",
            "json_extract(k.text, '$.role')",
            "(SELECT e.value AS text FROM model_calls_rows r, json_each(CASE WHEN"
            " json_valid(r.prompt_messages_json) THEN r.prompt_messages_json ELSE '[]' END) e"
            f" WHERE {schema.turn_range_sql('?1')} AND r.turn_key = ?1 AND e.type = 'object') k",
        )
        + f" AND json_extract(k.text, '$.role') NOT IN {_SYSTEM})",
        "SELECT * FROM ("
        + _message_pieces(
            "k.text",
            "'assistant'",
            f"(SELECT {schema.column_sql('model_calls', 'response_json')} AS text"
            f" FROM {_TURN_CALLS}) k",
        )
        + f" AND j.atom IS NOT {_ASSISTANT_TEXT})",
        _TOOL_PAYLOADS,
    ]
)
"""The pieces of turn ?1: field and text, which may be null."""

_WORDS: Final = (
    "CASE WHEN octet_length(text) = length(text) THEN text"
    f" WHEN text GLOB '*[{ESCAPE}{_WITHOUT_SPACES}]*' THEN spaced(text) ELSE text END"
)
"""A text as the index takes it; few have to come to Python."""

INDEX_SQL: Final = (
    f"INSERT OR REPLACE INTO words (rowid, {', '.join(FIELDS)}) SELECT ?1, "
    + ", ".join(
        f"group_concat({_WORDS}, char(10)) FILTER (WHERE field = '{field}')" for field in FIELDS
    )
    + f" FROM ({PIECES_SQL})"
)
"""Puts what turn ?1 says into the index, in place of what it said before."""
