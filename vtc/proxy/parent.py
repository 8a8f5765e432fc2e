"""End mitmproxy with the program that started it beside itself (`vtc launch`, `vtc run --ui`), however that ends.

The standard input is then a pipe whose other end that program holds. It writes a byte there before it ends VTC. Where
the pipe ends without one, the program was killed: then VTC does what that could not, and removes its folder.
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
"""Names the folder of the program that started VTC; `-` where it has none."""
ENDED_IN_ORDER = b"."
"""The byte that this program writes before it ends VTC."""


def make_environment(folder: Path | None = None) -> Mapping[str, str]:
    """Return the environment of a VTC that ends when its standard input does, for a program with that folder."""
    return {**os.environ, PARENT_VARIABLE: str(folder or "-")}


class Parent:
    """Watches the pipe, where there is one."""

    name = "vtc-parent"

    def running(self) -> None:
        folder = os.environ.pop(PARENT_VARIABLE, "")  # not again where the script is loaded anew
        if folder and sys.stdin is not None:
            # A thread: asyncio on Windows waits for no pipe that was there before it.
            arguments = sys.stdin.fileno(), None if folder == "-" else Path(folder), ctx.master
            Thread(target=_end_with, args=arguments, name=self.name, daemon=True).start()


def _end_with(pipe: int, folder: Path | None, master: Master) -> None:
    """End mitmproxy when a pipe does; remove the folder of a program that was killed, which may hold a key."""
    written = b""
    with suppress(OSError):
        written = os.read(pipe, 1)  # not by `sys.stdin`, whose lock Python wants when it ends
    if folder and written != ENDED_IN_ORDER:
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(RuntimeError):  # it ends already
        master.shutdown()
