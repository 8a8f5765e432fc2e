"""Assemble native tool calls from the pieces in which a reply sends them.

Pieces of several calls may be interleaved, some servers number no call or give all calls the same number, and one piece
may be a whole call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vtc.apis.contract import TextChain, join_chain
from vtc.apis.fields import part_of
from vtc.events import CallDelta, Tool, ToolCall
from vtc.json_text import decode_json

_STRING_OR_ESCAPE = re.compile(r'\\.|"(?:[^"\\]++|\\.)*+"|(")(?:[^"\\]++|\\.)*+(\\?\Z)', re.DOTALL)
"""Matches an escape, a complete string, or one that is open at the end: its quote, and a backslash that ends it."""


def format_arguments(arguments: Any) -> str:
    """Format arguments as JSON text, because some servers send objects; empty if there are none."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False) if arguments else ""


def parse_raw_input(arguments: str) -> str:
    """Parse the raw input of a custom tool from `{"input": …}`, empty for `{}`; any other text is the input itself."""
    try:
        decoded = json.loads(arguments)
    except ValueError:
        so_far, begun = RawInput().feed(arguments)
        return begun if so_far.begun and is_cut(arguments) else arguments
    text = decoded.get("input", None if decoded else "") if isinstance(decoded, dict) else None
    return text if isinstance(text, str) else arguments


def parse_object(arguments: str) -> dict[str, Any] | None:
    """Parse the arguments of a call; None if they are not a JSON object."""
    try:
        value = decode_json(arguments.encode(errors="surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_whole(arguments: str) -> bool:
    """Return True if arguments are complete: a non-empty object, or one encoded as a string.

    An empty object counts as incomplete, because some servers send one before the arguments.
    """
    try:
        value = decode_json(arguments.encode(errors="surrogatepass"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict | str) and bool(value)


def is_cut(arguments: str) -> bool:
    """Return True if arguments lack their end: an unclosed JSON value, or nothing at all."""
    return not arguments.strip() or JsonNesting().advance(arguments).is_cut


def render_as_text(call: ToolCall) -> str | None:
    """Render a call as text for an API whose calls need an object, if its arguments are no object; else None."""
    return f"{call.name} {call.arguments}".strip() if parse_object(call.arguments) is None else None


def lacks_arguments(call: Any) -> bool:
    """Return True if a call in any API's form has null or empty text as its arguments."""
    fields = part_of(call, "function") or part_of(call, "functionCall") or call
    if not isinstance(fields, dict):
        return False
    values = [fields[key] for key in ("arguments", "input", "args") if key in fields]
    return any(value is None or (isinstance(value, str) and not value.strip()) for value in values)


class JsonNesting(msgspec.Struct, frozen=True, gc=False):
    """The nesting at the current end of a call's arguments; pieces may be cut anywhere."""

    depth: int = 0
    in_string: bool = False
    escaped: bool = False
    """True if the next character continues an escape."""
    begun: bool = False

    @property
    def is_whole(self) -> bool:
        """True after the brace that closes the arguments."""
        return self.begun and not self.depth and not self.in_string

    @property
    def is_cut(self) -> bool:
        """True inside the arguments: if nothing follows, they are cut off."""
        return self.depth > 0 or self.in_string

    def advance(self, piece: str) -> JsonNesting:
        """Advance over another piece."""
        if not piece or (self.in_string and not self.escaped and '"' not in piece and "\\" not in piece):
            return self
        prefix = '"' if self.in_string else ""
        if self.escaped:
            prefix += "\\"
        rest = _STRING_OR_ESCAPE.sub(r"\1\2", prefix + piece)
        structure, quote, _ = rest.partition('"')
        depth = self.depth + structure.count("{") + structure.count("[") - structure.count("}") - structure.count("]")
        return JsonNesting(depth, bool(quote), rest.endswith("\\"), self.begun or not piece.isspace())


MAX_OPEN_CALLS = 16
"""Maximum number of incomplete calls of one message that are tracked; the oldest are dropped."""


class OpenCalls(msgspec.Struct, frozen=True, gc=False):
    """The incomplete calls of one message, in the order in which they began."""

    nestings: tuple[tuple[int, JsonNesting], ...] = ()
    """The number of each call, and the nesting of its arguments."""

    @property
    def last(self) -> int | None:
        """Return the number of the latest incomplete call; None if all are complete."""
        return self.nestings[-1][0] if self.nestings else None

    def advance(self, piece: CallDelta) -> OpenCalls:
        """Advance over a piece of a numbered call. A piece with a name begins a call."""
        assert piece.index is not None
        numbers = [number for number, _ in self.nestings]
        if piece.index in numbers:
            place = numbers.index(piece.index)
            nesting = self.nestings[place][1]
        elif piece.name:
            place, nesting = len(numbers), JsonNesting()
        else:
            return self
        nesting = nesting.advance(piece.arguments)
        current = () if nesting.is_whole else ((piece.index, nesting),)
        return OpenCalls((*self.nestings[:place], *current, *self.nestings[place + 1 :])[-MAX_OPEN_CALLS:])


class _CallBuffer:
    """The pieces of one call so far.

    Arguments are joined only at the end, because a long call has thousands of pieces.
    """

    __slots__ = ("arguments", "complete", "ended", "id", "name", "nesting", "scanned", "source")

    def __init__(self) -> None:
        self.id: str | None = None
        self.name = ""
        self.arguments: list[str] = []
        self.source: dict[str, Any] = {}
        self.ended = False
        self.complete: bool | None = None
        self.scanned = 0
        self.nesting = JsonNesting()

    def is_whole(self) -> bool:
        """True if the arguments end with their closing brace; each piece is scanned once."""
        for piece in self.arguments[self.scanned :]:
            self.nesting = self.nesting.advance(piece)
        self.scanned = len(self.arguments)
        return self.nesting.is_whole


def _differ(id_: str | None, known: str | None) -> bool:
    """True if both pieces have ids and these differ."""
    return bool(id_ and known and id_ != known)


def _is_another(known: _CallBuffer, piece: CallDelta) -> bool:
    """True if a piece begins another call: it has a name, and the arguments of the known call are complete.

    Some servers change the id within a call. If the arguments are incomplete, another name begins another call only if
    the id differs, too, or if calls are not numbered.
    """
    differs = _differ(piece.id, known.id)
    if not piece.name or not (known.name or differs) or (piece.id and piece.id == known.id):
        return False
    return known.is_whole() or (piece.name != known.name and (differs or piece.index is None))


class ToolCallAccumulator:
    """Assembles the calls of one message."""

    def __init__(self, pieces: Iterable[CallDelta] = ()) -> None:
        self._calls: dict[int, _CallBuffer] = {}
        self._places: dict[int, int] = {}  # the place of each call by the server's number
        self._last = -1
        self.clean = True
        """False if clients could misread the pieces, for example because calls share a number or a name is repeated."""
        for piece in pieces:
            self.add(piece)

    def add(self, piece: CallDelta) -> None:
        """Add a piece to the call that it belongs to."""
        place = self._find_place(piece)
        call = self._calls.get(place)
        if call is None:
            call = self._calls[place] = _CallBuffer()
            self._last = max(self._last, place)
            self.clean = self.clean and piece.clean and bool(piece.name)
        elif piece.name or not piece.clean or _differ(piece.id, call.id):
            self.clean = False
        if isinstance(piece.source, Mapping):
            call.source.update(piece.source)
        call.id = call.id or piece.id
        if piece.name != call.name:  # some servers repeat the name with every piece
            call.name += piece.name
        call.arguments.append(piece.arguments)
        call.ended = call.ended or piece.last
        call.complete = call.complete if piece.complete is None else piece.complete

    def _find_place(self, piece: CallDelta) -> int:
        """Find the call of a piece by its number, unless the piece begins another call with the same number."""
        last = self._last
        if piece.index is None:
            place = max(last, 0)
        else:
            if piece.index not in self._places:
                self._places[piece.index] = self._place_new_number(piece, piece.index)
            place = self._places[piece.index]
            if place not in self._calls:
                return place
        known = self._calls.get(place)
        if known is None or not ((piece.index is None and known.ended) or _is_another(known, piece)):
            return place
        if piece.index is not None:
            self.clean = False
            self._places[piece.index] = last + 1
        return last + 1

    def _place_new_number(self, piece: CallDelta, number: int) -> int:
        """Return the place of a new number: the number itself, or the last call for a nameless piece with its id."""
        known = self._calls.get(self._last)
        if not (known and not piece.name and piece.id and piece.id == known.id):
            return number
        self.clean = False
        return self._last

    def calls(self, *, complete: bool = True) -> list[ToolCall]:
        """Return the calls in the order of their numbers; a complete call without arguments gets `{}`, a cut one none.

        `complete` is the default for calls whose completeness the server did not state: True if it ended the message
        well.
        """
        return [self._build_call(call, complete=complete) for _, call in sorted(self._calls.items())]

    def _build_call(self, call: _CallBuffer, *, complete: bool) -> ToolCall:
        text = "".join(call.arguments)
        is_whole = complete if call.complete is None else call.complete
        if "custom" in call.source:  # chat completions send raw input: cut its JSON if the call is cut
            text = format_arguments({"input": text})[: None if is_whole else -len('"}')]
        elif not text.strip() and not is_whole:
            text = ""
        elif not text:
            text = "{}"
            # In APIs with arguments as JSON text, clients expect some.
            self.clean = self.clean and "function" not in call.source
        return ToolCall(call.name, text, call.id, call.source)


_RAW_INPUT_START = re.compile(r'\s*\{\s*"input"\s*:\s*"')  # used with match
_WHOLE_CHARACTERS = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4})*+'
)
"""Whole characters of a JSON string: no escape and no surrogate pair is cut."""
_decode_string = json.JSONDecoder(strict=False).decode


RAW_INPUT_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""Parameters of a custom tool: raw text."""


def make_custom_tool(name: str, description: str, grammar: object) -> Tool:
    """Declare a custom tool as a function with one text; its description contains the `grammar` of the text, if any."""
    about = f"{description}\n\nThe input follows this grammar:\n{grammar}".lstrip() if grammar else description
    return Tool(name, about, RAW_INPUT_SCHEMA)


class RawInput(msgspec.Struct, frozen=True, gc=False):
    """The raw input of a custom tool so far, parsed from the JSON of its arguments `{"input": "*** Begin…"}` as they
    arrive.

    Servers without custom tools get a function with one text parameter instead, so they write JSON; the client gets the
    text.
    """

    arguments: TextChain = None
    """Pieces of the arguments as received."""
    sent: TextChain = None
    """Input that was sent to the client."""
    tail: str = ""
    """The end of the arguments that is not decoded yet."""
    begun: bool = False

    def feed(self, arguments: str) -> tuple[RawInput, str]:
        """Feed a piece of the arguments; return also the input that it adds."""
        chain, text, begun = (self.arguments, arguments), self.tail + arguments, self.begun
        if not begun:
            if (match := _RAW_INPUT_START.match(text)) is None:
                return RawInput(chain, self.sent, text), ""
            text, begun = text[match.end() :], True
        match = _WHOLE_CHARACTERS.match(text)
        assert match is not None
        piece = str(_decode_string(f'"{match[0]}"'))
        return RawInput(chain, (self.sent, piece) if piece else self.sent, text[match.end() :], begun), piece

    @property
    def rest(self) -> str:
        """Return the rest of the input; arguments of another form are themselves the input."""
        sent, whole = join_chain(self.sent), parse_raw_input(join_chain(self.arguments) or "{}")
        return whole[len(sent) :] if whole.startswith(sent) else ""
