"""Find the offered tool that a written name means; never by guessing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import islice

PREFIXES = ("functions.", "default_api.", "tools.", "tool:", "antml:", "antml:tool:")
"""What models and their chat templates put before a tool's name."""

_CALLABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""The names that all APIs take for a tool's, but none that begins with a dash: that is one of a list or a diff."""
MAX_LISTED_TOOLS = 5
"""Names of offered tools that a reason lists."""
_WITHOUT_NUMBER = re.compile(r"(?:functions?|call)[._](?P<name>.+?)[._:]\d+")  # used with match
"""The id of a call as Kimi K2 makes them, and variants of it: `functions.read:0`, `functions_read_0`."""


_BARE_ID = re.compile(r"(?:functions?[._])?(?:\d{1,9}|(?:call|toolu|chatcmpl-tool)[_-]?[\w-]{0,64})")
"""An id of a call that holds no name."""


def is_bare_id(written: str) -> bool:
    """True if nothing but the id of a call stands where its name should."""
    return _BARE_ID.fullmatch(strip_name(written)) is not None


def strip_name(written: str) -> str:
    """A name without white space around it and without a known prefix."""
    return strip_prefix(written.strip())


def strip_prefix(written: str) -> str:
    """A name without a known prefix."""
    return next((written[len(prefix) :] for prefix in PREFIXES if written.startswith(prefix)), written)


def fold_names(offered: Iterable[str]) -> frozenset[str]:
    """Names as they may be written where they make the markup: in any case; in Python a name has no dashes."""
    names = [name.casefold() for name in offered]
    return frozenset((*names, *(name.replace("-", "_") for name in names)))


def resolve(written: str, offered: Collection[str]) -> str | None:
    """The offered name that `written` stands for, or None.

    Exactly, then without a known prefix or a namespace, then the only one that differs just in how its namespace is
    set off; then without what an id or a header has besides, with dashes for underscores, and in any case.
    """
    written = written.strip()
    for name in (written, *(written[len(prefix) :] for prefix in PREFIXES if written.startswith(prefix))):
        if name in offered:
            return name
    bare = written.rpartition(":")[2].rpartition(".")[2]
    if bare in offered:
        return bare
    same = [tool for tool in offered if "." in tool and _flatten_namespace(tool) == _flatten_namespace(written)]
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


def resolve_unoffered(written: str) -> str | None:
    """The name by which a tool that is not offered is called, or None if no tool can have it."""
    stem = _WITHOUT_NUMBER.fullmatch(written)
    name = stem["name"] if stem else strip_name(written)
    return name if _CALLABLE.fullmatch(name) else None


def explain_unknown_tool(written: str, offered: Iterable[str]) -> str:
    """Say that no tool of this name is offered, and which are."""
    first = [*islice(offered, MAX_LISTED_TOOLS + 1)]
    names = [name[:64] for name in first[:MAX_LISTED_TOOLS]] + ["…"] * (len(first) > MAX_LISTED_TOOLS)
    return f"no tool {written!r} is offered" + (f"; offered: {', '.join(names)}" if names else "")


def _flatten_namespace(name: str) -> str:
    """A name as servers that know no namespaces write it."""
    return name.replace(".", "__")
