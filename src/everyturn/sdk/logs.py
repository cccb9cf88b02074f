"""A filter for `logging` that puts both ids on each record, for any formatter to show.

handler.addFilter(IdFilter())
handler.setFormatter(logging.Formatter("%(turn_id)s %(trace_id)s %(message)s"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from everyturn.sdk.spans import CURRENT

if TYPE_CHECKING:
    from logging import LogRecord

ABSENT: Final = "-"
"""Stands for both ids outside of a turn."""


class IdFilter:
    """Lets every record pass, with `turn_id` and `trace_id` of the context it was made in.

    Put it on a handler; on a logger it would not see the records of loggers below. No subclass of
    `logging.Filter`, so that logging is not imported for it.
    """

    def filter(self, record: LogRecord) -> bool:
        """Set the attributes. Records that have them already (from another process) keep them."""
        span = CURRENT.get()
        if not hasattr(record, "turn_id"):
            record.turn_id = ABSENT if span is None else span.id or ABSENT
        if not hasattr(record, "trace_id"):
            record.trace_id = ABSENT if span is None else span.trace_id
        return True
