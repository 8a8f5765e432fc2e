"""Text added to a file, all of it or nothing: on a full disk half a line would spoil the next one, too."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def append(path: Path, text: str) -> None:
    """Add text to the end of a file, which is made if it is not there; raises OSError, and then nothing was added."""
    data = text.encode()
    with path.open("ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            with suppress(OSError):  # a device or a pipe cannot take anything back
                file.truncate(before)
            raise
