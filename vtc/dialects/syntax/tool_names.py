"""Find the offered tool for a written name, without guessing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import islice

from vtc.events import flatten_name

PREFIXES = ("functions.", "default_api.", "tools.", "tool:", "antml:", "antml:tool:")
"""Prefixes of tool names that models and their chat templates write."""

_CALLABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""Tool names that all APIs accept, except those that begin with a dash, as in lists and diffs."""
MAX_LISTED_TOOLS = 5
"""Maximum number of offered tools that a reason lists."""
_WITHOUT_NUMBER = re.compile(r"(?:functions?|call)[._](?P<name>.+?)[._:]\d+")  # used with match
"""Call ids in the format of Kimi K2, and variants of it: `functions.read:0`, `functions_read_0`."""


_SEPARATOR = re.compile(r"__|[.:/]")
"""Separates the name of a tool from those of its server and its client."""
_BARE_ID = re.compile(r"(?:functions?[._])?(?:\d{1,9}|(?:call|toolu|chatcmpl-tool)[_-]?[\w-]{0,64})")
"""A call id that contains no name."""


def is_bare_id(written: str) -> bool:
    """Return True if a call id was written in place of a name."""
    return _BARE_ID.fullmatch(strip_name(written)) is not None


def strip_name(written: str) -> str:
    """Return a name without surrounding white space and without a known prefix."""
    return strip_prefix(written.strip())


def strip_prefix(written: str) -> str:
    """Return a name without a known prefix."""
    return next((written[len(prefix) :] for prefix in PREFIXES if written.startswith(prefix)), written)


def fold_names(offered: Iterable[str]) -> frozenset[str]:
    """Return the spellings of names that serve as markup: case-folded; as in Python, with underscores for dashes."""
    names = [name.casefold() for name in offered]
    return frozenset((*names, *(name.replace("-", "_") for name in names)))


def resolve(written: str, offered: Collection[str]) -> str | None:
    """Return the offered name that `written` refers to, or None.

    In order: the exact name; without a known prefix or namespace; the only one that differs just in its namespace
    separator; without the additions of ids and headers; with dashes for underscores; in any case.
    """
    written = written.strip()
    for name in (written, *(written[len(prefix) :] for prefix in PREFIXES if written.startswith(prefix))):
        if name in offered:
            return name
    bare = written.rpartition(":")[2].rpartition(".")[2]
    if bare in offered:
        return bare
    same = [tool for tool in offered if "." in tool and flatten_name(tool) == flatten_name(written)]
    if len(same) == 1:
        return same[0]
    stem = _WITHOUT_NUMBER.fullmatch(written)
    for name in (stem["name"] if stem else "", bare.removesuffix("json"), written.removesuffix(".call")):
        if name in offered:
            return name
    dashed = [tool for tool in offered if "-" in tool and tool.replace("-", "_") == bare]
    if len(dashed) == 1:
        return dashed[0]
    for name in (written, bare):
        same = [tool for tool in offered if tool.casefold() == name.casefold()]
        if len(same) == 1:
            return same[0]
    return None


def find_with_server(written: str, offered: Iterable[str]) -> str | None:
    """Return the only offered name that ends in `written`, or None: `navigate` denotes `mcp__browser__navigate`.

    The written name may include the server, with another separator: `browser:navigate`.
    """
    parts = _SEPARATOR.split(strip_name(written))
    fits = [tool for tool in offered if tool.endswith(parts[-1]) and _SEPARATOR.split(tool)[-len(parts) :] == parts]
    return fits[0] if len(fits) == 1 else None


def resolve_unoffered(written: str) -> str | None:
    """Return the name of a call to a tool that is not offered, or None if no tool can have it."""
    stem = _WITHOUT_NUMBER.fullmatch(written)
    name = stem["name"] if stem else strip_name(written)
    return name if _CALLABLE.fullmatch(name) else None


def explain_unknown_tool(written: str, offered: Iterable[str]) -> str:
    """Return a reason: no tool of this name is offered, and these are."""
    first = [*islice(offered, MAX_LISTED_TOOLS + 1)]
    names = [name[:64] for name in first[:MAX_LISTED_TOOLS]] + ["…"] * (len(first) > MAX_LISTED_TOOLS)
    return f"no tool {written!r} is offered" + (f"; offered: {', '.join(names)}" if names else "")
