"""Where the script lies that mitmproxy loads (`mitmdump -s …`)."""

from __future__ import annotations

from pathlib import Path


def path() -> Path:
    """`addons/addon.py`: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "addons" / "addon.py"
    return installed if installed.is_file() else package.parent / "addons" / "addon.py"
