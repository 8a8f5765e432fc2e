"""Processes of the proxy benchmarks, and their protocol: one JSON object per line over their pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ADDON = ROOT / "addons" / "addon.py"
IDENTITY = HERE / "identity.py"
METER = HERE / "meter.py"


class Process:
    """A process that answers each line with a line of JSON. Its other output is read and discarded.

    A thread reads its output, because a process blocks once 64 KB of its log lines fill the pipe.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._answers: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        for line in _pipe(self.process.stdout):
            if line.startswith("{"):
                self._answers.put(line)
        self._answers.put("")

    def read(self) -> dict[str, Any]:
        """Return the next answer; raise `RuntimeError` if the process ended instead."""
        line = self._answers.get()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended: {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: object = None) -> dict[str, Any]:
        """Send a command as a line of JSON and return the answer."""
        pipe = _pipe(self.process.stdin)
        pipe.write(json.dumps(command) + "\n")
        pipe.flush()
        return self.read()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def choose_cpus() -> tuple[Collection[int], Collection[int]]:
    """Return a CPU for the compared processes, and the CPUs for all others.

    The compared processes share a CPU, because no two CPUs of a virtual machine are equally fast at the same time. Both
    sets are empty if there is only one CPU or if the system offers no choice.
    """
    usable = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    return (usable[:1], usable[1:]) if len(usable) > 1 else ((), ())


@contextmanager
def run_process(
    command: Sequence[str], cpus: Collection[int] = (), root: Path = ROOT, folder: Path = ROOT
) -> Iterator[Process]:
    """Run a process in a folder, on the given CPUs or any; `root` contains the `vtc` that it imports."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=folder, bufsize=1, env=environment, **pipes) as process:
        if cpus and sys.platform == "linux":
            os.sched_setaffinity(process.pid, cpus)
        try:
            yield Process(process)
        finally:
            process.terminate()


def make_module_command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.proxy.{name}", *arguments]


def make_mitmdump_command(script: Path, upstream: str, confdir: Path, *settings: str) -> list[str]:
    """Return the command of a mitmdump as a reverse proxy with a script; it prints its port when it is ready."""
    settings = ("flow_detail=0", f"confdir={confdir}", "listen_host=127.0.0.1", "listen_port=0", *settings)
    sets = [word for setting in settings for word in ("--set", setting)]
    command = [str(Path(sys.executable).with_name("mitmdump")), "-q", *sets, "--mode", f"reverse:{upstream}"]
    return [*command, "-s", str(script), "-s", str(METER)]
