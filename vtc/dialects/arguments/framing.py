"""The line breaks that only set a value off from its tags."""

from __future__ import annotations

import re

_LINES = re.compile(r"\n\r?\n\Z")
_INDENTS = re.compile(r"\n[ \t]+\Z")


def unframed(text: str, frame: str, param: str) -> str:
    """A value without the newlines that only set it off from its tags: at most one on either side."""
    before, _, after = param.partition("{value}")
    if frame == "multiline":
        if not text.startswith(("\n", "\r\n")):
            return text
        newline = "\n" if text[0] == "\n" else "\r\n"
        return text.removeprefix(newline).removesuffix(newline)
    if before.endswith("\n"):
        text = text[2:] if text.startswith("\r\n") else text.removeprefix("\n")
    if after.startswith("\n"):
        text = text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
    return text


def unclosed(text: str, frame: str, param: str, more: str = "") -> str | None:
    """A value whose closing tag is missing, up to the tag that follows; its frame is still to be taken off.

    Where the dialect writes that tag on a line of its own, one newline is no part of the value: `more` is the white
    space that it writes after the parameter. None if the value may end in two ways: the missing tag may have had a line
    of its own, of which only the tag is missing, or the tag that follows may be indented.
    """
    after = param.partition("{value}")[2]
    own_line = after.startswith("\n") or (frame == "multiline" and text.startswith(("\n", "\r\n")))
    follows = after.rstrip() + "\n" in after + more
    if not (own_line or follows):
        return text
    if _INDENTS.search(text) or (own_line and follows and _LINES.search(text)):
        return None
    if own_line:
        return text  # that newline is the frame's
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
