"""What redaction takes out of real exchanges, by rule: each find is a secret or a false alarm.

    python -m benchmarks.false_alarms FOLDER [--personal] [--show]

FOLDER holds recordings, one JSON object a line, with `request` and `sse`, `body` or `text`. Each
request and each answer is one text; events of a stream are texts of their own, and so is what their
content adds up to. `--show` prints where each find is (file, recording, rule), never its text. The
table goes to stdout, one row a file.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from everyturn.audit.personal import NAMES
from everyturn.audit.redact import Redactor
from everyturn.audit.ruleset import rules_with

OPAQUE: Final = frozenset(
    {
        "signature",
        "thought_signature",
        "thoughtSignature",
        "encrypted_content",
        "redactedContent",
        "data",
        "id",
        "tool_call_id",
        "system_fingerprint",
    }
)
"""Members that have to stay whole: signatures, encrypted reasoning, ids."""


def texts(recording: dict[str, Any]) -> Iterator[str]:
    """The texts of one exchange as a record holds them."""
    if recording.get("request") is not None:
        yield json.dumps(recording["request"], ensure_ascii=False)
    if recording.get("body") is not None:
        yield json.dumps(recording["body"], ensure_ascii=False)
    if recording.get("text"):
        yield recording["text"]
    said: list[str] = []
    for line in (recording.get("sse") or "").splitlines():
        name, _, value = line.partition(":")
        payload = value.strip()
        if name != "data" or not payload.startswith("{"):
            continue
        yield payload
        said += _fragments(payload)
    if said:
        yield "".join(said)


def _fragments(payload: str) -> Iterator[str]:
    """What an event adds to the content of an answer."""
    try:
        event = json.loads(payload)
    except ValueError:
        return  # A broken event has no content; its own text was counted as it is.
    for choice in event.get("choices") or ():
        content = (choice.get("delta") or {}).get("content")
        if isinstance(content, str):
            yield content


def opaque_values(tree: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Member and value of everything in a tree that has to stay whole."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from opaque_values(value, key)
    elif isinstance(tree, list):
        for item in tree:
            yield from opaque_values(item, name)
    elif isinstance(tree, str) and name in OPAQUE:
        yield name, tree


class Count:
    """What was found in how much."""

    def __init__(self) -> None:
        self.recordings = 0
        self.texts = 0
        self.bytes = 0
        self.texts_changed = 0
        self.opaque = 0
        self.opaque_changed = 0
        self.by_rule: Counter[str] = Counter()
        self.places: list[str] = []

    def add(self, text: str, redactor: Redactor, place: str) -> None:
        """Redact one text and count what went."""
        found = redactor.redact_json(text)
        self.texts += 1
        self.bytes += len(text.encode())
        self.texts_changed += found.value is not text
        self.by_rule.update(found.counts)
        self.places += [f"{place}: {rule} x{count}" for rule, count in found.counts.items()]
        try:
            before = list(opaque_values(json.loads(text)))
            after = list(opaque_values(json.loads(found.value)))
        except ValueError:
            return  # Text that is no JSON has no members.
        self.opaque += len(before)
        self.opaque_changed += sum(a != b for a, b in zip(before, after, strict=True))


def count(folder: Path, redactor: Redactor) -> Count:
    """Redact every recording of a folder."""
    return total(count_files(folder, redactor).values())


def count_files(folder: Path, redactor: Redactor) -> dict[str, Count]:
    """The same, by file."""
    counted: dict[str, Count] = {}
    for path in sorted(folder.glob("*.jsonl")):
        one = counted[path.stem] = Count()
        for line in path.read_text("utf-8").splitlines():
            recording = json.loads(line)
            one.recordings += 1
            for text in texts(recording):
                one.add(text, redactor, f"{path.name} {recording['id']}")
    return counted


def total(counts: Iterable[Count]) -> Count:
    """All of them together."""
    whole = Count()
    for one in counts:
        whole.recordings += one.recordings
        whole.texts += one.texts
        whole.bytes += one.bytes
        whole.texts_changed += one.texts_changed
        whole.opaque += one.opaque
        whole.opaque_changed += one.opaque_changed
        whole.by_rule.update(one.by_rule)
        whole.places += one.places
    return whole


def table(counted: dict[str, Count]) -> list[str]:
    """One row a file and one for all, in Markdown."""
    rows = [
        "| recordings of | exchanges | texts | KB | opaque values | of these changed | finds |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for name, one in [*counted.items(), ("all", total(counted.values()))]:
        finds = ", ".join(f"`{rule}` {number}" for rule, number in sorted(one.by_rule.items()))
        rows.append(
            f"| {name} | {one.recordings} | {one.texts} | {one.bytes / 1000:.0f} | {one.opaque}"
            f" | {one.opaque_changed} | {finds or 'none'} |"
        )
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--personal", action="store_true", help="personal-data rules as well")
    parser.add_argument("--show", action="store_true", help="where each find is")
    arguments = parser.parse_args()
    redactor = Redactor(b"k" * 32, rules=rules_with((), NAMES if arguments.personal else ()))
    counted = count_files(arguments.folder, redactor)
    print("\n".join(table(counted)))
    if arguments.show:
        print("\n".join(total(counted.values()).places))


if __name__ == "__main__":
    main()
