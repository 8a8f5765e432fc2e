"""VTC as a child process of a command: it runs in a separate session and ends with the command.

Its standard input is a pipe, and it ends when the pipe is closed. Therefore it also ends, and removes the command's
folder, when the command is killed. On Windows, where no signal asks a program to end, it still shuts down in order.
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
"""Seconds that VTC has to end before it is killed."""
TERMINATING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that end a program and are not sent by a key of its terminal."""


def start_vtc(command: Sequence[str], output: IO[bytes], folder: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a VTC that Ctrl-C does not reach, and write its output to `output`.

    VTC removes `folder` if this program is killed.
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
    """Stop a VTC that `start_vtc` started; kill it if it does not end within `STOP_SECONDS`."""
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
    """Raise `SystemExit` on a terminating signal inside the block, so that child processes are stopped too."""

    def raise_exit(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, raise_exit) for number in TERMINATING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
