"""Repair JSON with missing structure: find the only interpretation that is a whole call.

    {"path": "a.py" "content": "print("x")\n"}  ->  {"path": "a.py", "content": "print(\"x\")\n"}

This is a search over positions in the text and states of the grammar. Each step consumes one token, or assumes one
missing comma, colon or quote. Strings, numbers and keys are only ever cut out of the text, so a repair changes
structure and never a value.

The search runs twice. At first each quote ends its string, as in JSON. Only if this finds no interpretation, strings
may contain quotes: a string then ends at a quote that is followed by the structure of a whole call. The tool's schema
provides the known keys and the required ones. The search fails if two interpretations have different values, or if it
takes too long.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import accumulate, islice
from typing import Any, NamedTuple

from vtc import json_schema
from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import (
    JSON_NUMBER,
    LITERALS,
    MAX_JSON_DEPTH,
    JsonBody,
    dump_json,
    escape_surrogates,
)
from vtc.dialects.repair import Repair
from vtc.json_schema import ObjectSchema, Schema

_NEXT_QUOTE = re.compile(r"""(?:[^"'\\]++|\\.)*+(?:(["'])|\\?\Z)""", re.DOTALL)
"""Matches up to the next quote that is not escaped, or to the end."""
QUOTE_OR_ESCAPE = re.compile(r"[\"'\\](?:(?<=\\).)?", re.DOTALL)
"""Finds quotes and escapes. It begins with a character class, because `re` searches for one fast."""
_KEY_IN_STRING = re.compile(r"""["',]\s{0,99}+([\w.$-]{1,128}+)["']?\s{0,99}+:""")
"""Finds keys inside a string that contains quotes."""
_PLAIN_TEXT = re.compile(r"[^\"'\\\x00-\x1f]*+")
_DIFFERENT_ESCAPES = frozenset("/01234567avN\n")
"""Escapes that mean something else in Python than in JSON."""
_PYTHON_ESCAPES = frozenset("xU")
"""Escapes that only Python has."""


_NEXT_STRING = re.compile(r"'\s*,\s*'")


class CutString(NamedTuple):
    """A string cut out of broken JSON, without its quotes."""

    start: int
    end: int
    quote: str
    """The quote; empty if there is none."""
    known: frozenset[str] = frozenset()
    """Keys that end the string if they follow a quote inside it."""
    listed: bool = False
    """True inside a list, in which any string may follow."""


def escape_quotes(text: str, quote: str) -> str:
    """Escape each quote of a kind in the text of a string."""
    return QUOTE_OR_ESCAPE.sub(lambda match: f"\\{quote}" if match[0] == quote else match[0], text)


def count_quotes(text: str, quote: str) -> int:
    """Count the quotes of a kind in a text that are not escaped."""
    return sum(match[1] == quote for match in _NEXT_QUOTE.finditer(text)) if quote in text else 0


def has_structure(text: str, cut: CutString) -> bool | None:
    """Return True if a string with inner quotes must have ended earlier, None if it may have.

    Text that looks like a key is content only between balanced braces and quotes.
    """
    quotes = count_quotes(text, cut.quote) if cut.quote else 0
    if not quotes:
        return False
    if cut.quote == "'" and _NEXT_STRING.search(text):
        return None  # several strings, as Python writes them
    # A known key outside braces shows that the string has ended before it.
    depth = lowest = place = 0
    strange = cut.listed
    for match in _KEY_IN_STRING.finditer(text):
        depth += text.count("{", place, match.start()) - text.count("}", place, match.start())
        place = match.start()
        if depth <= 0 and match[1] in cut.known:
            return True
        strange = True
    # Other keys are content if quotes and braces are balanced.
    if strange and quotes % 2 == 0:
        depth = 0
        for brace in re.findall("[{}]", text):
            depth += 1 if brace == "{" else -1
            lowest = min(lowest, depth)
    return None if strange and (quotes % 2 or depth or lowest) else False


def encode_string(text: str, quote: str, *, python: bool) -> tuple[str, list[str]] | None:
    """Encode a string as JSON, and return the repairs; None if it is ambiguous.

    With `python`, the object has strings in single quotes, so escapes are Python's.
    """
    if _PLAIN_TEXT.fullmatch(text):
        return f'"{text}"', []
    held = bool(quote) and count_quotes(text, quote) > 0
    escapes = {match[0][1] for match in QUOTE_OR_ESCAPE.finditer(text) if len(match[0]) > 1}
    if python and escapes & _DIFFERENT_ESCAPES:
        return None
    if python and not held:
        with contextlib.suppress(ValueError):
            return dump_json(values.parse_python_literal(f"{quote}{text}{quote}")), []
    if python and escapes & _PYTHON_ESCAPES:
        return None
    body = JsonBody()
    escaped = escape_quotes(text, '"')
    body.feed(f'["{escaped}"]', 0, final=True)
    repairs = [*([Repair.JSON_INNER_QUOTES] if held else []), *body.repairs]
    return (body.text()[1:-1], repairs) if body.done else None


MAX_JSON_MARKS = 100_000
"""Maximum number of quotes, braces, backslashes and line breaks in a text; longer ones are not searched."""
MAX_INNER_QUOTES = 10_000
"""Maximum number of quotes in a text for a search in which strings may contain quotes."""
MIN_SEARCH_STEPS, MAX_SEARCH_STEPS = 48, 20_000
"""Bounds of the steps of one search; between them, there is one step per four characters."""

_GAP = r"(?:\s|//[^\n\"]{0,400}+\n|\#[^\n\"]{0,400}+\n|/\*(?:[^*\"]|\*(?!/)){0,400}+\*/)*+"
_SPACE = re.compile(_GAP)
_WORD = re.compile(r"[-+.\w]{1,400}")
_BARE_KEY = re.compile(rf"""(["']?)([^\s"'{{}}\[\],:=\\]{{1,128}}+)(["']?){_GAP}([:=])""")  # used with match
_BARE_VALUE = re.compile(  # used with match
    r"""(?P<text>[^\s"'{}\[\],:\\](?:[^"'{}\[\],:\\\n]{0,1000}[^\s"'{}\[\],:\\])?+)(?=[ \t]{0,99}[,}])"""
)
_LAST_QUOTE = re.compile(  # used with match
    r"""(?P<text>[^\s"'{}\[\],:\\][^"'{}\[\],:\\\n]{0,1000}+)"(?=\s{0,99}[,}])"""
)
"""Finds a value whose first quote is missing."""
_IDENTIFIER = re.compile(r"[\w.$-]{1,128}\Z")
_VALUE_STARTS = frozenset("\"'{[-0123456789tfnTFN")
_AFTER_STRING = re.compile(
    rf"""{_GAP}(?P<closers>(?:[}}\]]{_GAP})*+)(?P<comma>,?){_GAP}"""
    rf"""(?:(?P<open>["']?)(?P<key>[^\s"'{{}}\[\],:=\\]{{1,128}}+)(?P<close>["']?){_GAP}(?P<colon>:?){_GAP}(?P<value>.?)|(?P<end>\Z)|)"""
)
"""Finds the next key after a string, with only closers before it."""


class ExpectedObject(NamedTuple):
    """The object that is expected; for a whole call, with the keys of the name and the arguments, and the tools."""

    schema: Schema
    names: frozenset[str] = frozenset()
    """Keys of the tool's name."""
    arguments: frozenset[str] = frozenset()
    """Keys of the tool's arguments."""
    tool: Callable[[str], Schema | None] = lambda _: None
    """Returns the schema of a tool by its written name; for an empty name, the known parameters of all tools."""


class Interpretation(NamedTuple):
    """Strict JSON, with the repairs that were needed."""

    text: str
    repairs: list[str]


class _OpenContainer(NamedTuple):
    """An object or an array that is not closed yet."""

    mark: str
    schema: Schema
    around: _OpenContainer | None = None
    depth: int = 1
    declared: Mapping[str, Schema] = {}
    required: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    """Keys that are declared in this object or an enclosing one."""
    keys: frozenset[str] = frozenset()
    key: str = ""
    """The key of the current value."""
    tool: Schema | None = None
    is_call: bool = False


type _WrittenChain = tuple[_WrittenChain, str | CutString] | None
"""The tokens so far, the last one first."""


class _ParseState(NamedTuple):
    """A node of the search: the position in the text, the state of the grammar, and the path to it."""

    at: int
    state: str
    open: _OpenContainer | None
    written: _WrittenChain = None
    repairs: tuple[str, ...] = ()
    no_comma: bool = False
    """A comma is missing before this value, so nothing else may be missing."""
    bare: bool = False
    """The last value has no quotes, so nothing else may be missing."""
    doubt: bool = False
    """The text is ambiguous here: if this path leads to an interpretation, the search fails."""

    def take_token(self, token: str | CutString, at: int, state: str, *repairs: str, **changes: Any) -> _ParseState:
        """Return the node after a token."""
        return self._replace(
            at=at, state=state, written=(self.written, token), repairs=self.repairs + repairs, **changes
        )


def read(text: str, expected: ExpectedObject, *, closed: bool, listed: bool = False) -> Interpretation | None:
    """Read an object or an array; None if that is ambiguous. Final braces may be missing only if it is `closed`.

    With `listed`, the text may also be the rest of a list. This is tried before strings with inner quotes, which could
    swallow the next object.
    """
    if sum(map(text.count, "\"'{}\\\n\r\t")) > MAX_JSON_MARKS:
        return None
    texts = [text, f"[{text}]"] if listed else [text]
    searches = [_JsonSearch(tried, expected, closed=closed) for tried in texts]
    for allows_quotes in (False, True):
        if allows_quotes and text.count('"') + text.count("'") > MAX_INNER_QUOTES:
            return None
        for search in [*searches]:
            reading = search.find_interpretation(allows_quotes=allows_quotes)
            if reading is None:
                searches.remove(search)
            elif reading is not _NONE_FOUND:
                return reading
    return None


def read_value(text: str, schema: Schema) -> str | None:
    """Read a broken object or array that stands alone, as strict JSON; None if that is ambiguous.

    Final braces may be missing or surplus, because its end is known otherwise.
    """
    if not text.startswith(("{", "[")):
        return None
    body = JsonBody()
    rest = text[body.feed(text, 0, final=True) :].strip()
    ends = not rest.strip("}]") if body.done else not (rest or body.error or body.in_string) and body.close()
    if ends:
        return body.text()
    reading = read(text, ExpectedObject(schema), closed=True)
    return reading.text if reading else None


_NONE_FOUND = Interpretation("", [])
"""The result if no interpretation was found, whereas None means that the text is ambiguous."""


class _JsonSearch:
    """Depth-first searches for the interpretations of one text."""

    def __init__(self, text: str, expected: ExpectedObject, *, closed: bool) -> None:
        self.text = text
        self.expected = expected
        self.closed = closed
        self.allows_quotes = False
        """True if strings may contain quotes."""
        self.steps = 0
        """The steps that are left."""

    @cached_property
    def _quotes(self) -> dict[str, list[int]]:
        """Positions of the quotes that are not escaped, by kind."""
        quotes: dict[str, list[int]] = {'"': [], "'": []}
        for match in _NEXT_QUOTE.finditer(self.text):
            if quote := match[1]:
                quotes[quote].append(match.start(1))
        return quotes

    @cached_property
    def _braces(self) -> tuple[list[int], list[int]]:
        """Positions of braces, and the depth after each."""
        places = [match.start() for match in re.finditer(r"[{}]", self.text)]
        return places, list(accumulate(1 if self.text[at] == "{" else -1 for at in places))

    def _depth(self, start: int, end: int) -> int:
        """Return the number of opened minus closed braces in a part of the text."""
        places, depths = self._braces
        first, last = bisect_left(places, start), bisect_left(places, end)
        return (depths[last - 1] if last else 0) - (depths[first - 1] if first else 0)

    def find_interpretation(self, *, allows_quotes: bool) -> Interpretation | None:
        """Return the only reading, `_NONE_FOUND`, or None if the text is ambiguous."""
        self.allows_quotes = allows_quotes
        self.steps = min(MAX_SEARCH_STEPS, MIN_SEARCH_STEPS + len(self.text) // 4)
        first: Interpretation | None = None
        nodes = [_ParseState(0, "value", None)]
        while nodes:
            self.steps -= 1
            if self.steps < 0:
                return None
            node = nodes.pop()
            if node.state == "done":
                if _SPACE.fullmatch(self.text, node.at):
                    reading = self._render_interpretation(node)
                    if reading is _NONE_FOUND:
                        continue
                    if reading is None or node.doubt or (first and first.text != reading.text):
                        return None
                    first = first or reading
            else:
                gap = _SPACE.match(self.text, node.at)
                assert gap is not None
                if gap[0].strip():
                    node = node._replace(repairs=(*node.repairs, Repair.JSON_COMMENT))
                nodes += _STATES[node.state](self, node, gap.end())
        return None if self.steps < 0 else first or _NONE_FOUND

    def _try_value(self, node: _ParseState, at: int) -> Iterator[_ParseState]:
        char = self.text[at : at + 1]
        if char and char in "{[":
            inner = self._open_container(char, node.open)
            if inner.depth <= MAX_JSON_DEPTH:
                yield node.take_token(char, at + 1, f"first {char}", open=inner, no_comma=False)
        elif char == "]" and node.state != "value" and node.open and node.open.mark == "[" and not node.no_comma:
            trailing = (Repair.JSON_TRAILING_COMMA,) if node.state == "next [" else ()
            yield from self._close_container(node, at, *trailing)
        elif char and char in "\"'":
            for end in self._find_ends(node.open, at + 1, char):
                opened = self._record_tool_name(node.open, at + 1, end)
                known, listed = (opened.known, opened.mark == "[") if opened else (frozenset[str](), False)
                span = CutString(at + 1, end, char, known, listed)
                yield node.take_token(span, end + 1, "after", open=opened, no_comma=False)
        elif (word := _WORD.match(self.text, at)) and (JSON_NUMBER.match(word[0]) or word[0] in LITERALS):
            python = (Repair.JSON_PYTHON_LITERAL,) if LITERALS.get(word[0], word[0]) != word[0] else ()
            yield node.take_token(LITERALS.get(word[0], word[0]), word.end(), "after", *python, no_comma=False)
        else:
            yield from self._match_unquoted(node, _BARE_VALUE, at)
        yield from self._match_unquoted(node, _LAST_QUOTE, at)

    def _match_unquoted(self, node: _ParseState, pattern: re.Pattern[str], at: int) -> Iterator[_ParseState]:
        """Consume a text value without quotes that matches a pattern."""
        if not self.allows_quotes and self._takes_text(node.open) and (match := pattern.match(self.text, at)):
            opened = self._record_tool_name(node.open, *match.span("text"))
            token = CutString(*match.span("text"), "")
            yield node.take_token(token, match.end(), "after", Repair.JSON_MISSING_QUOTE, open=opened, bare=True)

    def _try_key(self, node: _ParseState, at: int) -> Iterator[_ParseState]:
        opened = node.open
        assert opened is not None
        char = self.text[at : at + 1]
        if char == "}" and not node.no_comma:
            yield from self._close_container(
                node, at, *((Repair.JSON_TRAILING_COMMA,) if node.state == "next {" else ())
            )
            return
        if char and char in "\"'" and (end := self._next_quote(at + 1, char)) >= 0:
            key = self.text[at + 1 : end]
            gap = _SPACE.match(self.text, end + 1)
            assert gap is not None
            span = CutString(at + 1, end, char)
            if self.text.startswith(":", gap.end()):
                yield from self._take_key(node, key, span, gap.end() + 1, damaged=node.no_comma)
            elif self.text[gap.end() : gap.end() + 1] in _VALUE_STARTS and not (node.no_comma or node.bare):
                yield from self._take_key(node, key, span, gap.end(), Repair.JSON_MISSING_COLON, damaged=True)
        bare = _BARE_KEY.match(self.text, at)
        if bare and not (node.no_comma or node.bare) and not (bare[1] and bare[3]):
            missing_end = bare[1] and self.text.startswith(bare[1], bare.end())
            if bare[4] == ":" or missing_end:
                span = CutString(*bare.span(2), bare[1] or bare[3])
                yield from self._take_key(node, bare[2], span, bare.end(), Repair.JSON_MISSING_QUOTE, damaged=True)

    def _take_key(
        self, node: _ParseState, key: str, span: CutString, at: int, *repairs: str, damaged: bool
    ) -> Iterator[_ParseState]:
        opened = node.open
        assert opened is not None
        if key in opened.keys:
            return
        stranger = key not in opened.declared and bool(opened.declared or not _IDENTIFIER.match(key))
        doubt = node.doubt or (stranger and (damaged or self.allows_quotes))
        opened = opened._replace(key=key, keys=opened.keys | {key})
        keyed = node.take_token(span, at, "value", *repairs, open=opened, no_comma=False, bare=False, doubt=doubt)
        yield keyed._replace(written=(keyed.written, ":"))

    def _try_after_value(self, node: _ParseState, at: int) -> Iterator[_ParseState]:
        opened = node.open
        if opened is None:
            yield node._replace(state="done")
            return
        char = self.text[at : at + 1]
        closer = "}" if opened.mark == "{" else "]"
        assert node.written is not None
        after_string = isinstance(node.written[1], CutString) and not self.allows_quotes
        if after_string and char and char in "+\"'":  # a string concatenation?
            yield node._replace(at=at + (char == "+"), state="value", doubt=True)
        if char == ",":
            yield node.take_token(",", at + 1, f"next {opened.mark}")
        elif char == closer:
            yield from self._close_container(node, at)
        elif char and char in "}]" and not self.allows_quotes:
            yield from self._fix_brace_count(node, at)
        elif not char:
            if self.closed and not node.bare:
                yield from self._close_container(node, at, Repair.JSON_CUT)
        elif char in _VALUE_STARTS and not node.bare:
            # In a list, a quote directly before a value may also be part of a string.
            doubt = node.doubt or (opened.mark == "[" and at == node.at)
            yield node.take_token(",", at, f"next {opened.mark}", Repair.JSON_MISSING_COMMA, no_comma=True, doubt=doubt)

    def _fix_brace_count(self, node: _ParseState, at: int) -> Iterator[_ParseState]:
        """Skip a surplus brace in the outermost list, or insert a missing one before the end of a list."""
        opened = node.open
        assert opened is not None
        if opened.mark == "[" and opened.around is None:
            yield node._replace(at=at + 1, repairs=(*node.repairs, Repair.EXTRA_BRACE))
        elif opened.mark == "{" and opened.around and opened.keys >= opened.required:
            yield node.take_token("}", at, "after", Repair.JSON_CUT, open=opened.around, no_comma=False, bare=False)

    def _close_container(self, node: _ParseState, at: int, *repairs: str) -> Iterator[_ParseState]:
        """Close the innermost object or array, unless a required key is missing."""
        opened = node.open
        assert opened is not None
        if opened.mark == "[" or opened.keys >= opened.required:
            closer = "}" if opened.mark == "{" else "]"
            end = min(at + 1, len(self.text))
            if Repair.JSON_TRAILING_COMMA in repairs and node.written:
                node = node._replace(written=node.written[0])
            yield node.take_token(closer, end, "after", *repairs, open=opened.around, no_comma=False, bare=False)

    def _open_container(self, mark: str, around: _OpenContainer | None) -> _OpenContainer:
        if around is None:
            return self._describe_container(mark, self.expected.schema, None)
        if around.mark == "[":
            entry = around.schema.get("items") if around.around else around.schema
        elif around.is_call and around.key in self.expected.arguments:
            entry = around.tool if around.tool is not None else self.expected.tool("")
        else:
            entry = around.declared.get(around.key)
        schema: Schema = entry if isinstance(entry, Mapping) else {}
        within = {name: around.schema[name] for name in ("$defs", "definitions") if name in around.schema}
        return self._describe_container(mark, {**within, **schema} if within else schema, around)

    def _describe_container(self, mark: str, schema: Schema, around: _OpenContainer | None) -> _OpenContainer:
        takes = ObjectSchema(schema if mark == "{" else {})
        declared = takes.properties
        known = frozenset(declared) | (around.known if around else frozenset())
        depth = around.depth + 1 if around else 1
        is_call = mark == "{" and bool(self.expected.names) and schema is self.expected.schema
        needed = schema if mark == "[" or declared else {}
        required = frozenset(takes.required if declared else ())
        return _OpenContainer(mark, needed, around, depth, declared, required, known, is_call=is_call)

    def _record_tool_name(self, opened: _OpenContainer | None, start: int, end: int) -> _OpenContainer | None:
        """Record the tool of the call if this string is its name."""
        if opened is None or not (opened.is_call and opened.key in self.expected.names):
            return opened
        return opened._replace(tool=self.expected.tool(self.text[start:end]))

    def _takes_text(self, opened: _OpenContainer | None) -> bool:
        if opened is None or opened.mark == "[":
            return False
        entry = opened.declared.get(opened.key)
        return entry is not None and json_schema.is_text(entry, opened.schema, or_null=True)

    def _next_quote(self, at: int, quote: str) -> int:
        places = self._quotes[quote]
        index = bisect_left(places, at)
        return places[index] if index < len(places) else -1

    def _find_ends(self, opened: _OpenContainer | None, start: int, quote: str) -> Iterator[int]:
        """Find the positions at which a string may end."""
        places = self._quotes[quote]
        first = bisect_left(places, start)
        if not self.allows_quotes:
            yield from places[first : first + 1]
            return
        for count, end in enumerate(islice(places, first, None)):
            self.steps -= 1
            if self.steps < 0:
                return
            match = _AFTER_STRING.match(self.text, end + 1)
            assert match is not None
            # A quote can end the string only before structure.
            char = self.text[match.end("closers") : match.end("closers") + 1]
            if not (match["closers"] or match["comma"] or match["end"] is not None or char in "\"'"):
                continue
            depth = self._depth(start, end)
            # A known key that is still missing leaves no doubt.
            if match["key"] and self._is_key(match):
                known = opened is not None and match["key"] in opened.known
                again = known and not match["closers"] and opened is not None and match["key"] in opened.keys
                if known and not again and depth <= 0:
                    yield end
                    return
                if depth > 0 and count % 2 and not known:
                    continue  # a key between balanced braces and quotes inside the string
            yield end
            if match["comma"] and char and count % 2 == 0 and depth <= 0 and not match["closers"]:
                following = _SPACE.match(self.text, match.end("comma"))
                if following and self.text.startswith(quote, following.end()):
                    return  # it must end here: the next quote would open a string

    def _is_key(self, match: re.Match[str]) -> bool:
        """Return True if a key follows with at most one mark missing."""
        missing = (not (match["comma"] or match["closers"])) + (not (match["open"] and match["close"]))
        missing += not match["colon"]
        return missing <= 1 and (match["value"] in _VALUE_STARTS or bool(match["colon"]))

    def _render_interpretation(self, node: _ParseState) -> Interpretation | None:
        """Render a reading as strict JSON.

        Return `_NO_READING` if one of its strings must have ended elsewhere, None if that is uncertain.
        """
        # Step 1: Collect the tokens of the path, the last one first.
        tokens: list[str | CutString] = []
        written = node.written
        while written:
            written, token = written
            tokens.append(token)
        spans = [token for token in tokens if isinstance(token, CutString)]
        python = any(span.quote == "'" for span in spans)
        if python and Repair.JSON_COMMENT in node.repairs:
            return None  # the quote may be in the comment
        repairs = dict.fromkeys((*node.repairs, *([Repair.PYTHON_LITERAL] if python else [])))
        # Step 2: Reject strings that may contain structure.
        if self.allows_quotes:
            last = spans[0]
            if Repair.JSON_CUT in repairs and count_quotes(self.text[last.start : last.end], last.quote):
                return None  # the last quote may be part of the string
            swallowed = [has_structure(self.text[span.start : span.end], span) for span in spans]
            if None in swallowed or True in swallowed:
                return _NONE_FOUND if True in swallowed else None
        # Step 3: Render the tokens as JSON.
        pieces: list[str] = []
        for token in reversed(tokens):
            if isinstance(token, str):
                pieces.append(token)
            elif string := encode_string(self.text[token.start : token.end], token.quote, python=python):
                pieces.append(string[0])
                repairs |= dict.fromkeys(string[1])
            else:
                return None
        return Interpretation(escape_surrogates("".join(pieces)), [*repairs])


_STATES: Mapping[str, Callable[[_JsonSearch, _ParseState, int], Iterator[_ParseState]]] = {
    "value": _JsonSearch._try_value,
    "first [": _JsonSearch._try_value,
    "next [": _JsonSearch._try_value,
    "first {": _JsonSearch._try_key,
    "next {": _JsonSearch._try_key,
    "after": _JsonSearch._try_after_value,
}
