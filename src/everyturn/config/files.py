"""Files that a person wrote, read whole: within a bound, for a path may lead to what has no end."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 16 << 20
"""More than 10,000 models take less than a tenth of it."""


def read_file(path: Path) -> str:
    """The text of a file. Raises OSError, also for a longer one, and UnicodeDecodeError."""
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
