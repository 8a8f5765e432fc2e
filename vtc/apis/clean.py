"""Recognise clean pieces of a reply: they have every field that clients of the API rely on, with values that no client
misreads.

Each API has tables with the kinds of value that a field may have. Servers without a value send null, an empty text or
the word `null`; many clients read these as a name, an id or a role.

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
"""Kinds of an optional text."""

type Table = Mapping[str, Collection[str]]
"""By field, the kinds of value or the exact words that are allowed."""

_ABSENT = object()
BLANK_TEXTS = ("", "null")
"""Texts that servers send instead of null."""


def get_text(value: Any) -> str:
    """Return the text of a field; empty if the value is blank or no text."""
    return value if kind_of(value) == WRITTEN else ""


def kind_of(value: Any) -> str:
    """Return the kind of a value."""
    if isinstance(value, str):
        return BLANK if value.strip() in BLANK_TEXTS else WRITTEN
    if value is _ABSENT or value is None:
        return NULL if value is None else MISSING
    if isinstance(value, Mapping):
        return OBJECT if value else HOLLOW
    return NUMBER if isinstance(value, int) and not isinstance(value, bool) else OTHER


def is_clean(fields: Mapping[str, Any], table: Table) -> bool:
    """Return True if each field of the table has an allowed value."""
    for key, kinds in table.items():
        value = fields.get(key, _ABSENT)
        if kind_of(value) not in kinds and not (isinstance(value, str) and value in kinds):
            return False
    return True
