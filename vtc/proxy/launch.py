"""Start mitmproxy's programs with the addon."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from mitmproxy.version import VERSION as MITMPROXY

__all__ = [
    "MITMPROXY",
    "PORT",
    "build_command",
    "choose_confdir",
    "format_install_command",
    "format_sets",
    "get_certificate_path",
    "list_settings",
]


def find_script() -> Path:
    """Find the script that mitmproxy loads (`mitmdump -s …`): inside the package when installed, else next to it."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "addons" / "addon.py"
    return installed if installed.is_file() else package.parent / "addons" / "addon.py"


PORT = 8088
"""The port that clients connect to: 8080, mitmproxy's own, is also llama.cpp's."""

WEB_COLUMNS = ("comment", "method", "status", "size", "time")
"""Columns of mitmweb's flow list. The path is omitted: it rarely varies, and the comment needs the width."""

LAZY_CONNECTION = "connection_strategy=lazy"
"""Connect lazily, so that the client of an unavailable server gets a 502 with the reason, and the flow is listed."""
REVERSE_OPTIONS = (LAZY_CONNECTION, "vtc_discover=on")


def build_command(
    program: Literal["mitmdump", "mitmweb", "mitmproxy"],
    upstream: str,
    host: str,
    port: int,
    more: Sequence[str] = (),
    quiet: bool = False,
) -> list[str]:
    """Build the command line of a reverse proxy for `upstream`, or of an ordinary proxy if that is empty.

    `more` are further arguments, which override the others. `quiet` suppresses mitmproxy's lines for each connection
    and request.
    """
    arguments = ["-s", str(find_script()), "--listen-host", host, "--listen-port", str(port)]
    defaults, columns = list[str](), list[str]()
    if upstream:
        arguments += ["--mode", f"reverse:{upstream}"]
        defaults += REVERSE_OPTIONS
    if program == "mitmweb":
        # Store streamed replies, because otherwise unchanged ones could not be inspected.
        defaults += ["store_streamed_bodies=true"]
        columns = [f"web_columns={column}" for column in WEB_COLUMNS]
    if quiet:
        defaults += ["flow_detail=0"]
    # Drop the defaults that `more` overrides, because mitmproxy exits if an option of one value is set twice.
    names = {_get_name(setting) for setting in list_settings(more)}
    defaults = [setting for setting in defaults if _get_name(setting) not in names]
    return [_find_program(program), *arguments, *format_sets([*defaults, *columns]), *more]


def format_sets(options: Iterable[str]) -> list[str]:
    """Format each `NAME=VALUE` as a `--set` argument."""
    return [part for option in options for part in ("--set", option)]


def list_settings(arguments: Sequence[str]) -> list[str]:
    """Find the `NAME=VALUE`s of `--set` among mitmproxy's arguments, in order."""
    parser = argparse.ArgumentParser(prog="mitmproxy", usage="--set NAME=VALUE", add_help=False, allow_abbrev=False)
    parser.add_argument("--set", action="append", default=[])
    values: list[str] = parser.parse_known_args(arguments)[0].set
    return values


def _get_name(setting: str) -> str:
    return setting.partition("=")[0]


def get_certificate_path() -> Path:
    """Return the path of the certificate for clients of an HTTPS proxy; mitmproxy creates it at its first start."""
    from mitmproxy.options import CONF_BASENAME, CONF_DIR  # that loads much of mitmproxy

    return Path(CONF_DIR).expanduser() / f"{CONF_BASENAME}-ca-cert.pem"


def choose_confdir(settings: Iterable[str]) -> str:
    """Return the folder of certificates that these `NAME=VALUE`s select; the last one wins."""
    from mitmproxy.options import CONF_DIR  # that loads much of mitmproxy

    given = dict(setting.partition("=")[::2] for setting in settings)
    return given.get("confdir") or CONF_DIR


def format_install_command(package: str) -> str:
    """Format the command that installs a package into VTC's environment; tools installed by uv have no pip."""
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.executable}"
    return f"{pip} {package}"


def _find_program(program: str) -> str:
    """Find the program next to this Python, which has the addon's packages, or else the one on the PATH."""
    neighbour = Path(sys.executable).with_name(program)
    return str(neighbour) if neighbour.exists() else shutil.which(program) or program
