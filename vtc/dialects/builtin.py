"""The built-in dialects, for programs that need no other profiles."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import yaml

from vtc.dialects.syntax.description import Description


def builtin_directory() -> Path:
    """Find the profiles that come with the package: inside it if installed, next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "builtin_profiles"
    return installed if installed.is_dir() else package.parent / "profiles"


@cache
def load_dialect(name: str) -> Description:
    """Load a built-in dialect. Its file is not checked again, because the tests check all of them."""
    text = (builtin_directory() / "dialects" / f"{name}.yaml").read_bytes()
    return msgspec.convert(yaml.safe_load(text), Description)
