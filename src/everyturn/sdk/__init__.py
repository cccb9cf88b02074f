"""What an application uses to record its turns. Standard library only; importing it does no I/O.

Everything here is also a member of `everyturn` itself. Middleware, MCP and the logging filter are
in modules of their own: `sdk.asgi`, `sdk.wsgi`, `sdk.mcp`, `sdk.logs`.
"""

from everyturn.sdk.clients import with_headers
from everyturn.sdk.process import configure, counters, flush
from everyturn.sdk.retrievals import retrieval
from everyturn.sdk.reviews import review
from everyturn.sdk.spans import capture, current
from everyturn.sdk.tools import tool
from everyturn.sdk.turns import join, turn

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
