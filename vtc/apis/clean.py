"""Tell clean pieces of a reply: they hold all that clients of its API rely on, and nothing that they take for more.

Each API has its tables, which say of a field the kinds of value that it may have. Servers write null, an empty text or
the word `null` where they have nothing to say; many clients read that as a name, an id or a role.

    {"index": 0, "id": null, "function": {"name": "", "arguments": "\\"a"}}      a later piece of chat completions
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

MISSING, NULL, BLANK, WRITTEN, NUMBER, OBJECT, HOLLOW, OTHER = (
    *("missing", "null", "an empty text", "text", "a number", "an object", "an empty object", "something else"),
)
"""Kinds of value."""
OPTIONAL = (MISSING, NULL, BLANK, WRITTEN)
"""A text that may lack."""

type Table = Mapping[str, Collection[str]]
"""By field, the kinds of value that it may have, or the very words."""

_ABSENT = object()
BLANK_TEXTS = ("", "null")
"""Texts that say nothing."""


def get_text(value: Any) -> str:
    """Return the text that a field says; empty for what stands there for nothing."""
    return value if kind_of(value) == WRITTEN else ""


def kind_of(value: Any) -> str:
    """Tell the kind of a value."""
    if isinstance(value, str):
        return BLANK if value.strip() in BLANK_TEXTS else WRITTEN
    if value is _ABSENT or value is None:
        return NULL if value is None else MISSING
    if isinstance(value, Mapping):
        return OBJECT if value else HOLLOW
    return NUMBER if isinstance(value, int) and not isinstance(value, bool) else OTHER


def is_clean(fields: Mapping[str, Any], table: Table) -> bool:
    """True if each field of the table has a value that it may have."""
    for key, kinds in table.items():
        value = fields.get(key, _ABSENT)
        if kind_of(value) not in kinds and not (isinstance(value, str) and value in kinds):
            return False
    return True
