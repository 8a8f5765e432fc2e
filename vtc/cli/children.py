"""Programs that a command starts beside itself, in a session of their own, and ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO

LEAVE = 10.0
"""Seconds for a program to end by itself."""
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that end a program, and do not come from keys of its terminal."""


def started(command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program that Ctrl-C does not reach; it reads nothing, and all that it says goes to `output`."""
    group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) if os.name == "nt" else 0
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, creationflags=group
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program, by force if it does not end by itself."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(LEAVE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have a signal that ends this program end what it started, too."""

    def ended(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, ended) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
