"""Reasoning that a deployment keeps: taken out of a call, on its way to a table of its own.

Pure. In the record each text is a mark, as without keeping, and the mark's `ref` is the keyed hash
under which the text rests in `reasoning_texts`: after secrets were removed, until it expires.
`ReasoningText` is no `Record`, so nothing that is made for records (logs, search, exports, reports)
can meet one; `store.kept.read` is the only way back.
"""

from __future__ import annotations

from typing import Final

from everyturn.audit.cleaning import Cleaner
from everyturn.audit.facts import CallOpening
from everyturn.audit.records import REDACTIONS_NONE, ReasoningText
from everyturn.audit.redact import Redacted
from everyturn.wire.reader import write_text

WAY: Final = b"kept"
"""What a message with kept reasoning is cleaned to is another text than without (`content`)."""
DAY_US: Final = 86_400_000_000


class Shelf:
    """Takes the reasoning texts of one call."""

    def __init__(self, cleaner: Cleaner, turn_id: str, opening: CallOpening) -> None:
        self._cleaner = cleaner
        # A medium in reasoning is not kept: its marks would rest where no reader of media looks.
        self._plain = cleaner.keeping(None)
        self._turn_id = turn_id
        self._call_id = opening.model_call_id
        self._timestamp = opening.timestamp
        self._days = opening.target.keep_reasoning_days
        self._texts: dict[str, ReasoningText] = {}

    def keep(self, text: str, carrier: str, is_encrypted: bool) -> str:
        """Take a text; what names it (see `reasoning.Keep`)."""
        cleaned = self._plain.text(text)
        clean, counts = cleaned.value, cleaned.counts
        ref = self._cleaner.reasoning_ref(clean)
        self._texts[ref] = ReasoningText(
            reasoning_id=ref,
            turn_id=self._turn_id,
            model_call_id=self._call_id,
            timestamp=self._timestamp,
            expires_at=self._timestamp + self._days * DAY_US,
            carrier=carrier,
            chars=len(text),
            is_encrypted=is_encrypted,
            text=clean,
            redaction_applied=True,
            redaction_rules_version=self._cleaner.version,
            redactions_json=write_text(dict(counts)) if counts else REDACTIONS_NONE,
        )
        return ref

    def sent(self, raw: bytes) -> Redacted[str]:
        """As `Cleaner.sent`, with its reasoning taken."""
        return self._cleaner.sent(raw, self.keep)

    def take(self) -> tuple[ReasoningText, ...]:
        """What came in since the last time; it belongs in the group with its marks."""
        texts = tuple(self._texts.values())
        self._texts.clear()
        return texts
