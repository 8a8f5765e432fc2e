"""Parse the literal text of patterns into parts for reading: white space is loose, spellings are alternatives."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import CALL_LIST_KEYS, WRAPPER_KEYS, Description
from vtc.dialects.syntax.pattern import AnyOf, Chars, Group, Lit, Maybe, OneOf, Part, Slot, Space
from vtc.dialects.syntax.scan import OFFERED_GROUP
from vtc.dialects.syntax.tool_names import PREFIXES

QUOTES = ('"', "'", '\\"', "\\'")
"""Quotes around an attribute, including those that are escaped once too often."""
TYPOGRAPHIC = ("“", "”", "„")
"""Typographic quotes that models write in place of JSON's."""
OPTIONAL_QUOTE = Maybe((OneOf(QUOTES),))
"""An optional quote, since models omit it: `<invoke name=bash>`."""
_ATTRIBUTE = re.compile(r"<?[\w:.-]+=")  # used with match
_MARKER = r"<\|[\w/:]+\|>"
"""A marker like `<|tool_call|>`: it does not occur in prose, so any white space around it is accepted."""


def parse_markup(
    parts: Sequence[str | Slot], dialect: Description, slots: dict[str, tuple[Part, ...]]
) -> tuple[Part, ...]:
    """Parse pattern text for reading, with `slots` filled in."""
    read: list[Part] = []
    for i, part in enumerate(parts):
        if isinstance(part, Slot):
            if len(read) > 1 and isinstance(read[-1], Space) and _ends_in_word(read[-2]):
                read[-1] = Chars(r"\s", 64)  # `<function f>` is not `<functionf>`
            read += slots[part.name]
            continue
        for piece in _split_markers(part, dialect.optional):
            if piece in dialect.optional:
                # White space belongs to the marker, so that none is consumed if the marker is missing.
                marker = trim_parts(parse_literal(piece, dialect))
                if read and isinstance(read[-1], Space):
                    read[-1:] = [Maybe((Space(), *marker))]
                else:
                    read.append(Maybe((*marker, Space())))
            else:
                # A quote directly next to a slot delimits an attribute, so either kind is accepted.
                read += parse_literal(piece, dialect, quoted=(i > 0, i < len(parts) - 1))
    return tuple(read)


def trim_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Remove white space at both ends, because the states skip it themselves."""
    while parts and isinstance(parts[0], Space):
        parts = parts[1:]
    while parts and isinstance(parts[-1], Space):
        parts = parts[:-1]
    if parts and isinstance(last := parts[-1], Maybe) and isinstance(last.parts[-1], Space):
        return (*parts[:-1], Maybe(last.parts[:-1]))
    return tuple(parts)


def loosen_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Allow stray white space inside the tags of a call: `< parameter = x >`."""
    loose: list[Part] = []
    for part in parts:
        pieces: list[Part] = [part]
        if isinstance(part, Lit):
            pieces = [Lit(text) for text in re.split(r"(?<=[<=])|(?<=</)|(?=[=>])", part.text) if text]
        for piece in pieces:
            is_after_sign = bool(loose) and _is_last_in(loose[-1], "<=/")
            if is_after_sign or (isinstance(piece, Lit) and piece.text[0] in "=>"):
                loose.append(Space())
            loose.append(piece)
    return tuple(loose)


def space_attributes(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Allow white space in the attributes of an opening tag, `<invoke name = "bash" >`, and around a key of JSON."""
    read: list[Part] = []
    for i, part in enumerate(parts):
        after = parts[i + 1] if i + 1 < len(parts) else None
        if isinstance(part, Lit) and after and _ATTRIBUTE.fullmatch(part.text):
            read += [Lit(part.text[:-1]), Space(), Lit("="), Space()]
        elif (read and read[-1] == OPTIONAL_QUOTE and isinstance(part, Lit) and part.text[0] in ">:") or (
            part == OPTIONAL_QUOTE and read and isinstance(last := read[-1], Lit) and last.text[-1] == "{"
        ):
            read += [Space(), part]
        elif not (isinstance(part, Space) and read and isinstance(read[-1], Space)):
            read.append(part)
    return tuple(read)


def allow_attributes(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Allow more attributes in an opening tag that has one: `<parameter name="path" string="true">`."""
    if len(parts) < 3 or parts[-3] not in (OPTIONAL_QUOTE, OneOf(QUOTES)) or parts[-1] != Lit(">"):
        return parts
    others = Maybe((Chars(r"\s", 16), Chars("\\w", 64), Lit("="), Chars("^<>", 128)))
    return (*parts[:-2], others, Space(), Lit(">"))


def split_spellings(parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
    """Return a sequence once for each spelling of its initial literal text."""
    if parts and isinstance(first := parts[0], OneOf):
        return [(Lit(word), *parts[1:]) for word in first.words]
    return [parts]


def parse_literal(text: str, dialect: Description, quoted: tuple[bool, bool] = (False, False)) -> list[Part]:
    """Parse literal text; `quoted` marks the sides next to a slot, at which either kind of quote is accepted."""
    read: list[Part] = []
    spelled = {words[0]: words for words in dialect.spellings}
    known = "".join(f"{re.escape(word)}|" for word in sorted(spelled, key=len, reverse=True))
    for piece in re.split(rf"({known}{_MARKER}|\s+|</?(?=[A-Za-z])|[\"'])", text):
        if not piece:
            continue
        if piece not in spelled and re.fullmatch(_MARKER, piece):
            inner = [text for text in re.split(f"({known.rstrip('|')})" if known else r"(?!)", piece) if text]
            words = [OneOf(spelled[text]) if text in spelled else Lit(text) for text in inner]
            read += [*_add_space(read), *words, Space()]
            continue
        if piece in spelled:
            spellings = OneOf(spelled[piece])
            # A closing tag is recognised without the mark of its family: </｜DSML｜invoke>, </invoke>.
            unmarked = not piece[0].isalnum() and bool(read) and read[-1] == Lit("</")
            read.append(Maybe((spellings,)) if unmarked else spellings)
        elif piece.isspace():
            read += _add_space(read)
        elif piece in ("<", "</") and dialect.namespaces:
            read += [Lit(piece), Maybe((OneOf(dialect.namespaces),))]
        elif piece in QUOTES and ((quoted[1] and text.endswith(piece)) or (quoted[0] and text.startswith(piece))):
            # With entities for quotes in the key, only the closing quote shows its end, so it is required.
            read.append(OneOf(QUOTES) if dialect.entities else OPTIONAL_QUOTE)
        elif read and isinstance(last := read[-1], Lit):
            read[-1] = Lit(last.text + piece)
        else:
            read.append(Lit(piece))
    return read


def _add_space(parts: Sequence[Part]) -> list[Part]:
    """Return loose white space, unless the sequence already ends with it."""
    return [] if parts and isinstance(parts[-1], Space) else [Space()]


def _split_markers(text: str, markers: Sequence[str]) -> list[str]:
    if not markers:
        return [text]
    return [piece for piece in re.split(f"({'|'.join(map(re.escape, markers))})", text) if piece]


def _ends_in_word(part: Part) -> bool:
    return isinstance(part, Lit) and part.text[-1:].isalnum()


def _is_last_in(part: Part, characters: str) -> bool:
    return isinstance(part, Lit) and part.text[-1] in characters


ENCODED_TWICE = (Lit('"'), Space(), Lit("{"), Space(), OneOf(('\\"', '}"')))
"""Start of arguments that are encoded as a JSON string."""
ID_KEYS = ("id", "call_id", "tool_call_id")
"""Keys of an id before the name, in any dialect."""
NAME_CHARACTERS = r"\w.:\-/"
MAX_NAME_LENGTH = 128
"""Maximum length of a tool name; text with a longer name is not a call."""


def make_json_opener(*others: Part) -> tuple[Part, ...]:
    """Make the opening of an object: a brace, and a quotation mark or one of `others`."""
    words = (*QUOTES, *TYPOGRAPHIC, *(part.text for part in others if isinstance(part, Lit)))
    return (Lit("{"), Space(), OneOf(words))


def list_envelope_openers(dialect: Description) -> list[tuple[Part, ...]]:
    """List the openings of a JSON object that distinguish a call of an offered tool from other JSON."""
    keys = dialect.json

    def opening(*parts: Part) -> tuple[Part, ...]:
        return (Lit("{"), Space(), OneOf(QUOTES), *parts)

    quote = OneOf(QUOTES)
    colon = (quote, Space(), Lit(":"), Space())
    named = (Space(), quote, Space(), make_tool_name(dialect), Space(), quote)
    colon_named = (quote, OneOf(keys.name), *colon, *named)
    return [
        opening(OneOf(keys.name), quote, Space(), Maybe((Lit(":"),)), *named),
        opening(OneOf(keys.name), Space(), Lit(":"), *named),
        (Lit("{"), Space(), OneOf(keys.name), Maybe((quote,)), Space(), Lit(":"), *named),
        opening(OneOf((*keys.arguments, *WRAPPER_KEYS)), *colon, Lit("{")),
        opening(
            *(OneOf(ID_KEYS), *colon, quote, Chars(r"\w:.\-", MAX_NAME_LENGTH), quote, Space(), Lit(","), Space()),
            AnyOf((colon_named, (quote, OneOf(keys.arguments), *colon, Lit("{")))),
        ),
        (Lit("{"), *opening(OneOf(keys.name), *colon, *named)),
        opening(Lit("type"), *colon, quote, OneOf(("function", "tool_use", "tool_call")), quote),
        opening(OneOf(CALL_LIST_KEYS), *colon, Lit("[")),
        # A call of any name, so that the report can mention an unknown tool.
        opening(
            *(OneOf(keys.name), *colon, quote, Chars(NAME_CHARACTERS, 128), quote, Space(), Lit(","), Space()),
            *(quote, OneOf(keys.arguments), *colon, Lit("{")),
        ),
        *([opening(Lit(keys.id), *colon, Lit('"'))] if keys.id else []),
    ]


def parse_marker(text: str) -> tuple[Part, ...]:
    """Parse the marker of a model, in which `{name}` is the name of any tool. Raises `PatternError`."""
    parts = pattern.parse(text, "markers")
    if not (parts and isinstance(parts[0], str)):
        message = f"{text!r} must begin with literal text, so that it can be found in a reply"
        raise pattern.PatternError("markers", message)
    return tuple(Chars(NAME_CHARACTERS, MAX_NAME_LENGTH) if isinstance(part, Slot) else Lit(part) for part in parts)


_NAME_ENDS = frozenset("\"'>[")
"""Markup at which a name with spaces ends."""


def make_spaced_name(dialect: Description, name: str, before: Sequence[str | Slot]) -> tuple[Part, ...]:
    """Return a name with the white space that models write around it; there is none before it in `<{name}`.

    Markup directly after the name allows spaces in it.
    """
    at = before.index(Slot("name")) if Slot("name") in before else 0
    in_tag = dialect.names == "declared" and at > 0 and str(before[at - 1]).endswith("<")
    tool = make_tool_name(dialect, name)
    if dialect.names == "any" and any(str(after)[:1] in _NAME_ENDS for after in before[at + 1 : at + 2]):
        more = Chars(f"{NAME_CHARACTERS} ", MAX_NAME_LENGTH - 1)
        tool = Group((Chars(NAME_CHARACTERS, 1), Maybe((more,))), "name")
    return (*([] if in_tag else [Space()]), tool, Space())


def make_tool_name(dialect: Description, name: str = "") -> Part:
    """Return the name of any tool, or if names are markup, of this one; the reader checks that it is offered."""
    if dialect.names == "any":
        return Chars(NAME_CHARACTERS, MAX_NAME_LENGTH, "name")
    if name:
        return Group((Maybe((OneOf(PREFIXES),)), OneOf((name,), any_case=True)), "name")
    return Group(
        (Group((Chars(r"\w", 1), Maybe((Chars(NAME_CHARACTERS, MAX_NAME_LENGTH - 1),))), OFFERED_GROUP),), "name"
    )
