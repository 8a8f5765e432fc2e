"""The processes of a proxy bench, and what they are told and tell: one JSON object a line, over their pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ADDON = ROOT / "addons" / "addon.py"
IDENTITY = HERE / "identity.py"
METER = HERE / "meter.py"


@dataclass(slots=True)
class Process:
    """A process that answers a line with a line."""

    process: subprocess.Popen[str]

    def read(self) -> dict[str, Any]:
        line = _pipe(self.process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended: {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: object = None) -> dict[str, Any]:
        pipe = _pipe(self.process.stdin)
        pipe.write(json.dumps(command) + "\n")
        pipe.flush()
        return self.read()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@contextmanager
def running(command: Sequence[str]) -> Iterator[Process]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1)
    try:
        yield Process(process)
    finally:
        _pipe(process.stdin).close()
        process.terminate()
        process.wait()


def module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.proxy.{name}", *arguments]


def mitmdump(script: Path, upstream: str, confdir: Path) -> list[str]:
    """mitmdump as a reverse proxy with a script; it says where it listens when it is ready."""
    settings = ("flow_detail=0", f"confdir={confdir}", "ssl_insecure=true", "listen_host=127.0.0.1", "listen_port=0")
    sets = [word for setting in settings for word in ("--set", setting)]
    command = [str(Path(sys.executable).with_name("mitmdump")), "-q", *sets, "--mode", f"reverse:{upstream}"]
    return [*command, "-s", str(script), "-s", str(METER)]
