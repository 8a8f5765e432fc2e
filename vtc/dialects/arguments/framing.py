"""The line breaks that only set a value off from its tags."""

from __future__ import annotations


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
