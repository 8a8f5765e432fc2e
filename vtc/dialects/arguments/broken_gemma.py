"""Read arguments in Gemma's format in which tokens around strings, or commas, are missing.

    {query:weather in Tokyo<|"|>}             {filePath:<|"|>a.md<|"|>,content:
    {refs:['a','b'],mode:fast}                # Title, with: commas
                                              }

The tool's schema tells the keys, and which values are text. A string without its token ends before `,KEY:` with a
declared key, or at the end of the object. If there are two interpretations, none is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from vtc import json_schema
from vtc.dialects.arguments.gemma import GemmaBody
from vtc.dialects.arguments.json_object import dump_json, escape_surrogates, render_members, split_members
from vtc.json_schema import ObjectSchema, Schema

MAX_KEYS = 100
"""Maximum number of places at which a declared key may begin an argument."""
MAX_STEPS = 10_000
"""Maximum number of values tried in one call; a text costs one more for each `CHARACTERS_PER_STEP`."""
CHARACTERS_PER_STEP = 25
"""Characters of an object or a value per step."""
_KEY = re.compile(r"""(?:(?P<comma>,)\s{0,64}+)?(?<![\w.$@-])(?P<key>[^\s{}\[\]:,<>|"']{1,128}+)\s{0,16}+:""")
_KEY_IN_TEXT = re.compile(r",(?:[\w.$@-]{1,128}+:|\s{1,64}+[\w.$@-]{1,128}+:(?=\S))")
"""Finds text that may be another argument; prose has blanks on both sides: `It has a, and: b`."""


def read_first(texts: Iterable[str], takes: ObjectSchema, quote: str) -> tuple[int, str] | None:
    """Read the first of some texts that is an object, as strict JSON; return also its place. None if there is none.

    An ambiguous object is none. All texts have one budget.
    """
    search = _GemmaSearch(quote, takes.root)
    for place, text in enumerate(texts):
        search.is_ambiguous = False
        reading = search.read_object(text.strip(), takes)
        if search.steps < 0:
            return None
        if reading and not search.is_ambiguous:
            return place, escape_surrogates(reading)
    return None


class _GemmaSearch:
    """A search for all interpretations of an object, whose strings are delimited by `quote`."""

    def __init__(self, quote: str, root: Schema) -> None:
        self.quote = quote
        self.root = root
        self.steps = MAX_STEPS
        """The steps that are left; negative if the search failed."""
        self.is_ambiguous = False
        """True if a part of the object has two interpretations."""
        token = re.escape(quote)
        own = rf"{token}(?:(?!{token}).)*+{token}"
        self._string = re.compile(rf"\s*+{own}\s*+", re.DOTALL)  # used with match
        self._items = re.compile(rf"""(?:{own}|'[^'\\]*+'|"[^"\\]*+"|[^,'"\n])++""", re.DOTALL)
        # One blank on either side of a bare text belongs to the format; more may belong to the text.
        self._text = re.compile(  # used with match
            rf"""\s*+{token}(?P<opened>.*+)|\s*+'(?P<python>[^'\\]*+)'\s*+"""
            rf"""|[ ]?(?P<bare>(?![ \t"'\[{{]).*?)(?:{token}\s*+|(?<![ \t])[ ]?)\Z""",
            re.DOTALL,
        )

    def read_object(self, text: str, takes: ObjectSchema) -> str | None:
        """Read an object; None unless there is exactly one interpretation."""
        self.steps -= len(text) // CHARACTERS_PER_STEP
        if self.steps < 0:
            return None
        body = text[1:-1]
        keys = [match for match in _KEY.finditer(body) if match["key"] in takes.properties]
        is_object = (
            keys and text[0] + text[-1] == "{}" and not body[: keys[0].start()].strip() + (keys[0]["comma"] or "")
        )
        if not is_object or len(keys) > MAX_KEYS:
            return None
        found = {render_members(members) for members in self._find_members(body, keys, takes, {})}
        self.is_ambiguous |= len(found) > 1
        return found.pop() if found else None

    def _find_members(
        self, text: str, keys: Sequence[re.Match[str]], takes: ObjectSchema, before: Mapping[str, str]
    ) -> Iterator[Mapping[str, str]]:
        """Find all interpretations of the members from the first key on; later keys may be content of its value."""
        key, start = keys[0]["key"], keys[0].end()
        ends = [*(other.start() for other in keys[1:]), len(text)]
        string = self._string.match(text, start)
        for count, end in enumerate(ends, start=1):
            if key in before or (string and string.end() in ends and string.end() != end):
                continue  # a string with both tokens ends at the second one
            raw = text[start:end]
            self.steps -= 1 + len(raw) // CHARACTERS_PER_STEP
            value = self._read_value(raw, takes.properties[key]) if self.steps >= 0 else None
            if value is None:
                continue
            members = {**before, key: value}
            if count == len(keys):
                yield members
            elif keys[count]["comma"] or raw.rstrip().endswith((self.quote, "]", "}", "'", '"')):
                yield from self._find_members(text, keys[count:], takes, members)

    def _read_value(self, raw: str, declared: Schema) -> str | None:
        """Read a value by its schema, as JSON."""
        value, schema = raw.strip(), json_schema.resolve_schema(declared, self.root)
        is_text = json_schema.is_text(schema, self.root, or_null=True) or value in json_schema.as_list(
            schema.get("enum")
        )
        is_bare = is_text and value != "null" and not value.startswith((self.quote, '"', "{", "["))
        whole = None if is_bare else self._read_strictly(value)
        if is_text or whole is not None:
            return whole or self._read_text(raw)
        items = schema.get("items")
        if value.startswith("[") and isinstance(items, Mapping) and json_schema.is_text(items, self.root):
            written = self._items.findall(value[1:-1])
            entries = [entry for item in written if (entry := self._read_value(item, items)) is not None]
            is_list = len(entries) == len(written) and f"[{','.join(written)}]" == value
            return f"[{', '.join(entries)}]" if is_list else None
        return self.read_object(value, ObjectSchema({**self.root, **schema})) if "properties" in schema else None

    def _read_strictly(self, value: str) -> str | None:
        """Read a value without faults."""
        text = f"{{value:{value}}}"
        body = GemmaBody(self.quote)
        end = body.feed(text, 0, final=True)
        members = split_members(body.text()) if body.done and end == len(text) else {}
        return members["value"] if len(members) == 1 else None

    def _read_text(self, raw: str) -> str | None:
        """Read a string with Python's quotes, or in which a token is missing; None if it may hold another argument."""
        match = self._text.fullmatch(raw)
        if match is None:
            return None
        text = match[match.lastgroup or 0]
        depths = [0, *accumulate(1 if brace == "{" else -1 for brace in text if brace in "{}")]
        unsure = self.quote in text or min(depths) < 0 or depths[-1] or _KEY_IN_TEXT.search(text)
        return None if unsure and match.lastgroup != "python" else dump_json(text)
