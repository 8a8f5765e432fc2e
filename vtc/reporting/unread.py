"""A possible call that no dialect reads: an offered tool's name next to markup, in a reply in which no call was found.

Only a guess, and only told: it says where to look when an agent "just stopped".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

AROUND = 32
"""Characters that are shown before and after the name."""

_QUOTED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.S)


def possible_call(text: str, tools: Iterable[str]) -> str:
    """Find what looks like a call of one of the tools, and return it with what stands around; empty if nothing does.

    Code is passed over: there a name is an example.
    """
    names = "|".join(re.escape(name) for name in sorted(tools, key=len, reverse=True) if name)
    if not names:
        return ""
    text = _QUOTED.sub(" ", text)
    found = re.search(rf"""[<\[{{(@|="'#:>/✿]\s?(?:{names})["']?\s*[>\](){{}}|:,=@\n]""", text)
    if not found:
        return ""
    start, end = max(0, found.start() - AROUND), found.end() + AROUND
    shown = " ".join(text[start:end].split())
    return f"{'…' * (start > 0)}{shown}{'…' * (end < len(text))}"
