"""A scripted provider: an HTTP server that answers like a model provider would, to the byte.

For demos, for tests of this product and for tests of applications. It knows no model: the last
part of the model's name chooses a scenario, and a scenario is a script of bytes, pauses and
endings. Nothing here is part of the gateway, and the gateway does not know of it.
"""

from everyturn.mock.script import ABORT, CLOSE, HANG, Pause, Repeat, Script, Step
from everyturn.mock.server import MockProvider
from everyturn.mock.thread import MockThread
from everyturn.mock.traffic import ClientAbort, SeenRequest, Stats

__all__ = [
    "ABORT",
    "CLOSE",
    "HANG",
    "ClientAbort",
    "MockProvider",
    "MockThread",
    "Pause",
    "Repeat",
    "Script",
    "SeenRequest",
    "Stats",
    "Step",
]
