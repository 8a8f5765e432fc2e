"""End mitmproxy with the program that started it beside itself (`vtc launch`, `vtc run --ui`), however that ends.

The standard input is then a pipe whose other end that program holds, and never writes to. The system closes it with the
program, which may have been killed without a chance to do anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from mitmproxy import ctx

if TYPE_CHECKING:  # the commands that start VTC load this module, and mitmproxy takes a second to load
    from mitmproxy.master import Master

VARIABLE = "VTC_ENDS_WITH_STDIN"


def environment() -> Mapping[str, str]:
    """Return the environment of a VTC that ends when its standard input does."""
    return {**os.environ, VARIABLE: "on"}


class Parent:
    """Watches the pipe, where there is one."""

    name = "vtc-parent"

    def running(self) -> None:
        if os.environ.pop(VARIABLE, "") and sys.stdin is not None:  # not again where the script is loaded anew
            # A thread: asyncio on Windows waits for no pipe that was there before it.
            Thread(target=_end_with, args=(sys.stdin.fileno(), ctx.master), name=self.name, daemon=True).start()


def _end_with(pipe: int, master: Master) -> None:
    """End mitmproxy when a pipe does."""
    # Not by `sys.stdin`, whose lock Python wants when it ends.
    with suppress(OSError):
        while os.read(pipe, 1):
            pass
    with suppress(RuntimeError):  # it ends already
        master.shutdown()
