"""everyturn keeps every turn of an LLM application whole: a gateway, a record, a quality loop.

The names below are what an application records its turns with (`everyturn.sdk`); they are imported
when they are first used.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "capture",
    "configure",
    "counters",
    "current",
    "flush",
    "join",
    "retrieval",
    "review",
    "tool",
    "turn",
    "with_headers",
]

if TYPE_CHECKING:
    from everyturn.sdk import (
        capture,
        configure,
        counters,
        current,
        flush,
        join,
        retrieval,
        review,
        tool,
        turn,
        with_headers,
    )


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module("everyturn.sdk"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
