"""How mitmproxy's programs are started with the addon."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from mitmproxy.options import CONF_BASENAME, CONF_DIR
from mitmproxy.version import VERSION as MITMPROXY

from vtc.proxy import script

__all__ = ["MITMPROXY", "PORT", "certificate", "command"]

PORT = 8088
"""Where clients connect: 8080, mitmproxy's own, is also llama.cpp's."""

COLUMNS = ("comment", "method", "status", "size", "time")
"""Those of mitmweb's flow list: beside a path, which is nearly always the same, the comment would be too narrow."""

REVERSE = ("--set", "connection_strategy=lazy")
"""So that a client of a server that is down gets a 502 that says so, and the flow is listed."""


def command(
    program: Literal["mitmdump", "mitmweb", "mitmproxy"], upstream: str, host: str, port: int, more: Sequence[str] = ()
) -> list[str]:
    """The command line: a reverse proxy for `upstream`, or with none an ordinary proxy; `more` has the last word."""
    arguments = ["-s", str(script.path()), "--listen-host", host, "--listen-port", str(port)]
    if upstream:
        arguments += ["--mode", f"reverse:{upstream}", *REVERSE]
    if program == "mitmweb":
        # Replies that pass untouched are streamed, too: without this nothing of them could be looked at.
        arguments += ["--set", "store_streamed_bodies=true"]
        arguments += [part for column in COLUMNS for part in ("--set", f"web_columns={column}")]
    return [_path(program), *arguments, *more]


def certificate() -> Path:
    """What clients of an HTTPS proxy must trust; mitmproxy makes it when it starts first."""
    return Path(CONF_DIR).expanduser() / f"{CONF_BASENAME}-ca-cert.pem"


def _path(program: str) -> str:
    """The program beside this Python, which has the addon's packages, or else the one that the shell would find."""
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.exists() else shutil.which(program) or program
