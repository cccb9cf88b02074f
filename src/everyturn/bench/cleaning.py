"""What may rest in a run folder: texts without secrets, by the rules that the gateway stores with.

Known values are removed wherever they stand: the gateway's key, and each provider key that this
process can see in its environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from everyturn.audit.redact import Redactor


def known_keys(environment: Mapping[str, str], api_key: str | None) -> list[str]:
    """The keys that must stand in no file of a run."""
    names = ("_API_KEY", "_APIKEY", "_TOKEN", "_SECRET", "_SECRET_KEY", "_ACCESS_KEY")
    found = {value for name, value in environment.items() if name.upper().endswith(names)}
    return sorted({*found, *([api_key] if api_key else [])} - {""})


class Cleaner:
    """Takes secrets out of texts.

    key: of the tags that stand in their place; drawn for each process, so tags of two runs differ.
    """

    def __init__(self, known: Iterable[str], key: bytes) -> None:
        self._redactor = Redactor(key, known=known)

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self._redactor.redact_text(text).value

    def maybe(self, text: str | None) -> str | None:
        """The same, where there may be none."""
        return None if text is None else self.text(text)
