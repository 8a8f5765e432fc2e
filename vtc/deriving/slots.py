"""Placeholders in texts of which patterns are made: single characters that no text of a template contains."""

from __future__ import annotations

from vtc.dialects.syntax.forms import MIN_MARKER_LENGTH

NAME, ID, INDEX, NUMBER, KEY, VALUE, STRING, TYPE, RESULT, BODY = (chr(0xE000 + at) for at in range(10))
_SLOTS = {
    NAME: "name",
    ID: "id",
    INDEX: "index",
    NUMBER: "number",
    KEY: "key",
    VALUE: "value",
    STRING: "string",
    TYPE: "type",
    RESULT: "result",
}


def make_pattern(text: str) -> str:
    """Make a pattern of a text with placeholders."""
    text = escape_pattern(text)
    for character, slot in _SLOTS.items():
        text = text.replace(character, f"{{{slot}}}")
    return text


def escape_pattern(text: str) -> str:
    """Escape a literal text for a pattern."""
    return text.replace("{", "{{").replace("}", "}}")


def has_slot(text: str) -> bool:
    """Return True if a text contains a placeholder."""
    return cut_at_slot(text) != text


def cut_at_slot(text: str) -> str:
    """Return the text before the first placeholder."""
    return next((text[:at] for at, character in enumerate(text) if NAME <= character <= BODY), text)


def is_marker(text: str) -> bool:
    """Return True for text that can mark the beginning of a call: long enough, and neither a word nor JSON."""
    plain = text.strip()
    return len(plain) >= MIN_MARKER_LENGTH and not (plain[0].isalnum() or plain[0] in "{\"'")
