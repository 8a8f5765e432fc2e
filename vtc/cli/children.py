"""A VTC that a command starts beside itself, in a session of its own, and that ends with the command.

It has a pipe for its standard input, and ends when that does. So nothing is left of a command that was killed, nor of
its folder; and on Windows, where a program can be asked for nothing by a signal, VTC still ends as it should.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from vtc.proxy import parent

STOP_SECONDS = 10.0
"""Seconds for VTC to end by itself."""
TERMINATING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that end a program, and do not come from keys of its terminal."""


def start_vtc(command: Sequence[str], output: IO[bytes], folder: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a VTC that Ctrl-C does not reach; all that it says goes to `output`.

    It removes the `folder` if this program is killed.
    """
    return subprocess.Popen(
        command,
        env=parent.make_environment(folder),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def stop_vtc(process: subprocess.Popen[bytes]) -> None:
    """End a VTC that was started, by force if it does not end by itself."""
    if process.stdin and not process.stdin.closed:
        with suppress(OSError), process.stdin as pipe:
            pipe.write(parent.ENDED_IN_ORDER)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Have a signal that ends this program end what it started, too."""

    def raise_exit(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, raise_exit) for number in TERMINATING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
