"""What the body of a call may begin with, and its name: enough of it to tell a call from anything else."""

from __future__ import annotations

from collections.abc import Sequence

from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import AROUND, LISTS, Description
from vtc.dialects.syntax.markup import QUOTES, TYPOGRAPHIC
from vtc.dialects.syntax.parts import Chars, Group, Lit, Maybe, OneOf, Part, Space
from vtc.dialects.syntax.pattern import Slot
from vtc.dialects.syntax.scan import OFFERED
from vtc.dialects.syntax.tool_names import PREFIXES

ENCODED_TWICE = (Lit('"'), Space(), Lit("{"), Space(), OneOf(('\\"', '}"')))
"""How arguments begin that are a JSON string with the object in it."""
IDS = ("id", "call_id", "tool_call_id")
"""Keys of an id before the name, whatever the dialect's own."""
NAME = r"\w.:\-/"
MOST_NAME = 128
"""Characters of a tool's name; no text is a call of one with more."""


def opening_of_json(*others: Part) -> tuple[Part, ...]:
    words = (*QUOTES, *TYPOGRAPHIC, *(part.text for part in others if isinstance(part, Lit)))
    return (Lit("{"), Space(), OneOf(words))


def declared_envelopes(dialect: Description) -> list[tuple[Part, ...]]:
    """Beginnings of a JSON object that can be a call of an offered tool, and hardly anything else."""
    keys = dialect.json

    def opening(*parts: Part) -> tuple[Part, ...]:
        return (Lit("{"), Space(), OneOf(QUOTES), *parts)

    quote = OneOf(QUOTES)
    colon = (quote, Space(), Lit(":"), Space())
    named = (Space(), quote, Space(), tool_name(dialect), Space(), quote)
    colon_named = (quote, OneOf(keys.name), *colon, *named)
    return [
        opening(OneOf(keys.name), quote, Space(), Maybe((Lit(":"),)), *named),
        opening(OneOf(keys.name), Space(), Lit(":"), *named),
        (Lit("{"), Space(), OneOf(keys.name), Maybe((quote,)), Space(), Lit(":"), *named),
        opening(OneOf((*keys.arguments, *AROUND)), *colon, Lit("{")),
        opening(
            OneOf(IDS), *colon, quote, Chars(r"\w:.\-", MOST_NAME), quote, Space(), Lit(","), Space(), *colon_named
        ),
        (Lit("{"), *opening(OneOf(keys.name), *colon, *named)),
        opening(Lit("type"), *colon, OneOf(('"function"', '"tool_use"', '"tool_call"'))),
        opening(OneOf(LISTS), *colon, Lit("[")),
        # Of another name, for the report to say so.
        opening(
            *(OneOf(keys.name), *colon, quote, Chars(NAME, 128), quote, Space(), Lit(","), Space()),
            *(quote, OneOf(keys.arguments), *colon, Lit("{")),
        ),
        *([opening(Lit(keys.id), *colon, Lit('"'))] if keys.id else []),
    ]


def marker(text: str) -> tuple[Part, ...]:
    """The markup of a model's marker, in which `{name}` is the name of any tool; raises `PatternError`."""
    parts = pattern.parse(text, "markers")
    if not (parts and isinstance(parts[0], str)):
        message = f"{text!r} must begin with literal text, so that it can be found in a reply"
        raise pattern.PatternError("markers", message)
    return tuple(Chars(NAME, MOST_NAME) if isinstance(part, Slot) else Lit(part) for part in parts)


def spaced_name(dialect: Description, name: str, before: Sequence[str | Slot]) -> tuple[Part, ...]:
    """A name with the white space that models write around it; a tag that is a tool's name begins with that."""
    at = before.index(Slot("name")) if Slot("name") in before else 0
    in_tag = dialect.names == "declared" and at > 0 and str(before[at - 1]).endswith("<")
    return (*([] if in_tag else [Space()]), tool_name(dialect, name), Space())


def tool_name(dialect: Description, name: str = "") -> Part:
    """The name of any tool, or where it is the markup this one; the reader looks whether such a name is offered."""
    if dialect.names == "any":
        return Chars(NAME, MOST_NAME, "name")
    if name:
        return Group((Maybe((OneOf(PREFIXES),)), OneOf((name,), any_case=True)), "name")
    return Group((Group((Chars(r"\w", 1), Maybe((Chars(NAME, MOST_NAME - 1),))), OFFERED),), "name")
