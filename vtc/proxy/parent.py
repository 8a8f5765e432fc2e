"""End mitmproxy when the program that started it (`vtc launch`, `vtc run --ui`) ends for any reason.

The standard input is a pipe from that program, which writes a byte to it before it ends VTC. If the pipe ends without a
byte, the program was killed, so VTC removes the program's folder in its place.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from mitmproxy import ctx

if TYPE_CHECKING:  # the commands that start VTC load this module, and mitmproxy takes a second to load
    from mitmproxy.master import Master

PARENT_VARIABLE = "VTC_ENDS_WITH_STDIN"
"""Environment variable with the folder of the parent program; `-` if it has none."""
ENDED_IN_ORDER = b"."
"""The byte that the parent program writes before it ends VTC."""


def make_environment(folder: Path | None = None) -> Mapping[str, str]:
    """Return the environment of a VTC that ends with its standard input; `folder` is the parent program's."""
    return {**os.environ, PARENT_VARIABLE: str(folder or "-")}


class Parent:
    """Watches the pipe, if there is one."""

    name = "vtc-parent"

    def running(self) -> None:
        folder = os.environ.pop(PARENT_VARIABLE, "")  # removed, so that reloading the script starts no second watch
        if folder and sys.stdin is not None:
            # A thread, because asyncio on Windows cannot wait for an inherited pipe.
            arguments = sys.stdin.fileno(), None if folder == "-" else Path(folder), ctx.master
            Thread(target=_end_after_pipe, args=arguments, name=self.name, daemon=True).start()


def _end_after_pipe(pipe: int, folder: Path | None, master: Master) -> None:
    """End mitmproxy when the pipe ends; remove the folder of a killed program, because it may hold a key."""
    written = b""
    with suppress(OSError):
        written = os.read(pipe, 1)  # not by `sys.stdin`, because Python needs its lock to exit
    if folder and written != ENDED_IN_ORDER:
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(RuntimeError):  # already shutting down
        master.shutdown()
