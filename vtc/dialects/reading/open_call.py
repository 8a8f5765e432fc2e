"""A call that is being parsed: its buffered text, its arguments and its repairs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from vtc.dialects.arguments.gemma import GemmaBody
from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.arguments.python import PythonBody
from vtc.dialects.reading.call_pieces import (
    CallPieces,
    JsonPieces,
    PieceKind,
    TaggedPieces,
    TextPieces,
    can_be_sent_in_pieces,
)
from vtc.dialects.reading.context import CallPlace
from vtc.dialects.reading.parameters import NamedTool, Parameters
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.forms import CallSyntax
from vtc.events import Call, CallPiece, Tool

type CallBody = JsonBody | PythonBody | GemmaBody
"""A parser of self-delimiting arguments."""


class HeldText:
    """The text of a call, a head and a body, which is returned as text if the call is abandoned. Stored in pieces."""

    __slots__ = ("_body", "_pieces", "_sent", "leading", "sent", "size", "spilled")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._body = 0  # index of the first piece of the body
        self._sent = 0  # number of pieces that were sent
        self.leading = 0
        """Number of characters before the call itself: white space, and doubtful markup that precedes a call."""
        self.size = 0
        """Size in bytes."""
        self.spilled = False
        """True if the text exceeded the buffer and was returned as text; the call is still parsed, to find its end."""
        self.sent = 0
        """Number of characters that were sent, if the call is sent in pieces."""

    @property
    def raw(self) -> str:
        """The whole text."""
        return "".join(self._pieces)

    @property
    def body(self) -> str:
        return "".join(self._pieces[self._body :])

    @property
    def unsent(self) -> str:
        """Return the text that was not sent."""
        return self.raw[self.sent :]

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def ends_with(self, text: str) -> bool:
        """Return whether it ends with `text`, ignoring white space."""
        end = ""
        for piece in reversed(self._pieces):
            end = (piece + end).rstrip()
            if len(end) >= len(text):
                break
        return end.endswith(text)

    def begin_body(self) -> None:
        """Mark the text so far as the head."""
        self._body = len(self._pieces)

    def strip_head(self, text: str) -> None:
        """Remove `text` from the end of the head, before the body begins."""
        self._pieces[:] = [self.raw.removesuffix(text)]

    def replace_body(self, body: str) -> None:
        self._pieces[self._body :] = [body]

    def take_unsent(self, held_suffix: str = "") -> str:
        """Mark the unsent text as sent and return it, except a suffix that must still be buffered."""
        until = len(self._pieces)
        if held_suffix and (last := self._pieces[-1]).endswith(held_suffix):
            self._pieces[-1:] = [last.removesuffix(held_suffix), held_suffix]
        text = "".join(self._pieces[self._sent : until])
        self._sent = until
        self.sent += len(text)
        return text

    def spill(self) -> None:
        """Discard the text, which was returned as text; further text is not buffered."""
        self.spilled = True
        self._pieces.clear()


@dataclass(slots=True)
class PossibleEnds:
    """Offsets in the body of a call at which it may have ended, if its end is doubtful; 0 means there is none."""

    _text: HeldText
    wrong_closer: int = 0
    """After a closing tag of another kind: the end, unless the call's own closing tag follows later."""
    next_call: int = 0
    """Between a closing tag and another call, both of which the value may have swallowed."""
    swallowed: int = 0
    """After the swallowed call."""
    has_no_value: bool = False
    """True if the parameter before the swallowed call has no value."""
    before_words: int | None = None
    """The end of the call if openers in its last value were words of a text. None if no offset was recorded; 0 if the
    value lays out a call and quotes it."""

    def offset_after(self, more: int = 0) -> int:
        """Return the offset `more` characters after the buffered text."""
        return len(self._text.body) + more

    def cut_swallowed(self) -> str:
        """Remove the text after the swallowed call, and return it."""
        body = self._text.body
        if not self.swallowed or self._text.spilled:
            return ""
        self._text.replace_body(body[: self.swallowed])
        return body[self.swallowed :]


@dataclass(slots=True)
class EarlierCalls:
    """Earlier calls that are accepted or abandoned together with this one: in its section, on its line, in its list."""

    calls: list[Call | str] = field(default_factory=list)
    """The calls and the text between them."""
    in_list: bool = False
    """True if commas separate the calls: all of them are accepted, or none."""
    fault: str = ""
    """The reason why an earlier call of the list is not a call; empty if all are calls."""
    sure: bool = False
    """True if their layout or their markers distinguish them from a quotation."""


class OpenCall:
    """One call while it is parsed, from its head to its end: its text, its arguments and its repairs."""

    __slots__ = (
        "_lenient",
        "breaks_off",
        "earlier",
        "earlier_objects",
        "ends",
        "fault",
        "id",
        "json",
        "named",
        "parameters",
        "pieces",
        "place",
        "repairs",
        "syntax",
        "text",
    )

    def __init__(
        self,
        syntax: CallSyntax,
        written: str,
        id_: str | None,
        tools: Mapping[str, Tool],
        *,
        lenient: bool,
        index: str = "",
    ) -> None:
        self.syntax = syntax
        self.json: CallBody | None = None
        """Parser of the arguments, unless they are between tags."""
        self.earlier_objects: list[CallBody] = []
        """Parsers of earlier objects, if one call's tags contain several."""
        self.repairs: dict[str, None] = {}
        self.fault = ""
        """The reason why the strict parse failed."""
        self.place = CallPlace()
        self.earlier = EarlierCalls()
        self.breaks_off = False
        """True if the JSON broke after a bracket and a line break: another call may begin there."""
        self.text = HeldText()
        self.ends = PossibleEnds(self.text)
        self.pieces: CallPieces | None = None
        """The pieces that are sent while the call is parsed; None if it is delivered whole."""
        self._lenient = lenient
        template = syntax.dialect.id
        # In some dialects the id consists of the name and the index in the head.
        self.id = template.replace("{name}", written).replace("{index}", index) if template and index else id_
        self._set_name(written, tools)

    def _set_name(self, written: str, tools: Mapping[str, Tool]) -> None:
        """Set the name of the tool, and begin with no parameters."""
        self.named = NamedTool(written, tools)
        self.parameters = Parameters(self.syntax, self.named, self.repairs, lenient=self._lenient)

    @property
    def name_in_markup(self) -> str:
        """Return the name as written if markup after the head may repeat it; otherwise an empty string.

        Patterns are compiled for each name that a model writes, which takes milliseconds.
        """
        return self.written if self.syntax.repeats_name else ""

    @property
    def written(self) -> str:
        """Return the name as the model wrote it; empty while it is inside JSON."""
        return self.named.written

    def split_name(self) -> str:
        """Split a parameter's name from the end of the tool's name and return it; empty if there is none.

        GLM omits the key's opening tag: `<tool_call>bashcommand</arg_key><arg_value>ls`.
        """
        if not any(text.startswith("{key}") for text in self.syntax.dialect.params):
            return ""
        names = self.named.split_key()
        if names is None or not self.text.raw.endswith(self.written):
            return ""
        name, key = names
        self.text.strip_head(key)
        self._set_name(name, self.named.tools)
        return key

    def begin_body(self, pieces: PieceKind | None = None) -> None:
        """Begin the body after the buffered head; `pieces` is the kind of pieces to send, if any."""
        self.text.begin_body()
        if '\\"' in self.text.raw and self._lenient and self.json is None:
            self.parameters.escaped = True
            self.repairs[Repair.ESCAPED_TEXT] = None
        elif pieces == "text":
            self.pieces = self.parameters.pieces = TextPieces.create(self.syntax, self.written, self.named.tool)
        elif pieces == "arguments":
            self._begin_pieces()

    def _begin_pieces(self) -> None:
        """Prepare the call for being sent in pieces, if the dialect and the tool allow it."""
        syntax, named, tool = self.syntax, self.named, self.named.tool
        # The arguments decide whether a tool is meant that is named without its server.
        if not can_be_sent_in_pieces(syntax, self.written) or tool is not named.find_named_tool(self.written):
            return
        if isinstance(self.json, JsonBody):
            keys = syntax.dialect.json if syntax.body == "json" else None
            self.pieces = JsonPieces(syntax, self.written, tool, self.id, keys=keys, offered=named.find_named_tool)
        elif self.json is None and tool:
            self.pieces = self.parameters.pieces = TaggedPieces(syntax, self.written, tool, self.id)

    def next_object(self, body: CallBody) -> None:
        """Begin another object after the current one."""
        assert self.json is not None
        if not self.text.spilled:
            self.earlier_objects.append(self.json)
        self.json = body
        self.stop_pieces()

    def take_piece(self) -> CallPiece | None:
        """Take the piece that can be sent now."""
        pieces = self.pieces
        if pieces is None or self.text.spilled:
            return None
        if isinstance(pieces, JsonPieces):
            assert isinstance(self.json, JsonBody)
            pieces.feed(self.json.take())
        if (piece := pieces.take_piece(first=not self.text.sent)) is None:
            return None
        raw = self.text.take_unsent(held_suffix=pieces.held)
        return replace(piece, raw=raw) if raw or not pieces.as_text else None

    def stop_pieces(self) -> None:
        """Send no more pieces before the call is complete, because its value may contain its end."""
        if self.pieces:
            self.pieces.stop()

    def spill(self) -> None:
        """Discard its text, which was returned as text; further text is not buffered."""
        self.text.spill()
        self.parameters.spill()
        self.earlier_objects.clear()

    @property
    def may_be_empty(self) -> bool:
        """True if a call without parameters is valid."""
        return self.syntax.dialect.names == "any" or self.named.needs_nothing

    @property
    def sole_parameter(self) -> str | None:
        """Return the parameter whose value may be written without tags: the only required one, if it is text.

        None if there is no such parameter, or if the call could be a word of a sentence.
        """
        is_word = self.place.in_line or self.syntax.ends_reply
        if self.named.tool is None or self.syntax.dialect.names == "any" or is_word:
            return None
        return self.named.schema.sole_required_text

    @property
    def only_parameter(self) -> str | None:
        """Return the tool's only parameter, to which a value belongs even under another name.

        None if the tool has several, if one was given already, or if the text may be no call.
        """
        sure = self._lenient and self.named.tool and not (self.syntax.dialect.ends_reply or self.place.in_line)
        return self.named.schema.only_parameter if sure and not self.parameters.given else None

    def end_parameter(self, *, doubled: bool = False) -> None:
        """Record the parameter's complete value; `doubled` if it has several closers."""
        if self.text.spilled:
            self.parameters.pass_over()
        else:
            self.parameters.end(doubled=doubled)

    @property
    def text_without_surroundings(self) -> str:
        """Return the text without its surroundings: a fence, markers of a section, or the end of another call."""
        raw = self.text.raw[self.text.leading :]
        if self.syntax.opening and (opening := self.syntax.opening.search(raw)):
            return raw[opening.start() :]
        return _FENCE_LINE.sub("", raw)

    @property
    def is_whole(self) -> bool:
        """True if the model wrote the call's end, so that nothing of it is missing."""
        return not self.fault and Repair.MISSING_CLOSER not in self.repairs

    def note_possible_end(self, more: int) -> None:
        """Record that the call ends after `more` characters if the openers in its value are words of a text.

        The first such offset counts. None does if the value lays out a call, because the value quotes that call.
        """
        if self.ends.before_words is None:
            quotes = self.syntax.has_quoted_call(self.written, self.parameters.value)
            self.ends.before_words = 0 if quotes else self.ends.offset_after(more)


_FENCE_LINE = re.compile(r"\A\s*(?:```|~~~)[^\n]*\n")
