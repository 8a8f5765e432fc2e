"""A call that is being parsed: its buffered text, its arguments and its repairs."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from vtc.dialects.arguments import envelope, parameter
from vtc.dialects.arguments.broken_json import ExpectedObject
from vtc.dialects.arguments.envelope import NotACall
from vtc.dialects.arguments.gemma import GemmaBody
from vtc.dialects.arguments.json_object import JsonBody, split_items
from vtc.dialects.arguments.python import PythonBody
from vtc.dialects.reading import repairs
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
from vtc.dialects.reading.repairs import list_json_closers
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import Envelope
from vtc.dialects.syntax.forms import CallSyntax, list_written_closers
from vtc.dialects.syntax.grammar import is_call_start
from vtc.events import Call, CallPiece, Tool, ToolCall


def check_repaired(event: Call, tools: Mapping[str, Tool], body: str, fault: str) -> None:
    """Raise `NotACall` if repaired JSON may have lost an argument; `fault` describes the error in its `body`."""
    tool = tools.get(event.call.name)
    arguments = json.loads(event.call.arguments)
    if not isinstance(arguments, dict):
        raise NotACall(f"{fault}, and its arguments are not an object")
    keys = arguments.keys()
    if not keys and Repair.JSON_CUT in event.repairs and "{}" not in "".join(body.split()):
        raise NotACall(f"{fault}, and its arguments are missing")
    if tool and (lost := tool.schema.list_missing(keys)):
        raise NotACall(f"{fault}, and {min(lost)!r} is missing")


def find_placeholder(events: Iterable[Call], placeholder: str) -> str:
    """Find an argument whose value is the placeholder of the prompt's example; return its key, empty if none."""
    for event in events:
        if json.dumps(placeholder) not in event.call.arguments:
            continue
        for key, value in json.loads(event.call.arguments).items():
            if value == placeholder:
                return str(key)
    return ""


def check_required(arguments: Collection[str], tool: Tool) -> None:
    """Raise `NotACall` if an object lacks a required argument, because it may be an answer in JSON."""
    if lost := tool.schema.list_missing(arguments):
        raise NotACall(f"{min(lost)!r} is missing")


def _find_tool_by_arguments(named: NamedTool, body: str) -> envelope.EnvelopeContent | None:
    """Find the tool of a call that has an id in place of its name, if the arguments fit exactly one offered tool."""
    read = envelope.read_arguments(named.written, body, None)
    fits = [tool for tool in named.tools.values() if parameter.is_complete(tool, read.arguments)]
    if not read.arguments or len({tool.name for tool in fits}) != 1:
        return None
    return read._replace(name=fits[0].name, tool=fits[0], repairs=(*read.repairs, Repair.TOOL_BY_ARGUMENTS))


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


class PossibleEnds:
    """Offsets in the body of a call at which it may have ended, if its end is doubtful; 0 means there is none."""

    __slots__ = ("_text", "before_words", "has_no_value", "next_call", "swallowed", "wrong_closer")

    def __init__(self, text: HeldText) -> None:
        self._text = text
        self.wrong_closer = 0
        """After a closing tag of another kind: the end, unless the call's own closing tag follows later."""
        self.next_call = 0
        """Between a closing tag and another call, both of which the value may have swallowed."""
        self.swallowed = 0
        """After the swallowed call."""
        self.has_no_value = False
        """True if the parameter before the swallowed call has no value."""
        self.before_words: int | None = None
        """The end of the call if openers in its last value were words of a text. None if no offset was recorded; 0 if
        the value lays out a call and quotes it."""

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


class EarlierCalls:
    """Earlier calls that are accepted or abandoned together with this one: in its section, on its line, in its list."""

    __slots__ = ("calls", "fault", "in_list", "sure")

    def __init__(self, calls: list[Call | str] | None = None) -> None:
        self.calls = [] if calls is None else calls
        """The calls and the text between them."""
        self.in_list = False
        """True if commas separate the calls: all of them are accepted, or none."""
        self.fault = ""
        """The reason why an earlier call of the list is not a call; empty if all are calls."""
        self.sure = False
        """True if their layout or their markers distinguish them from a quotation."""


class OpenCall:
    """One call while it is parsed, from its head to its end: its text, its arguments and its repairs."""

    __slots__ = (
        "_earlier_objects",
        "_id",
        "_lenient",
        "breaks_off",
        "earlier",
        "ends",
        "fault",
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
        self.json: JsonBody | PythonBody | GemmaBody | None = None
        """Parser of the arguments, unless they are between tags."""
        self._earlier_objects: list[JsonBody | PythonBody | GemmaBody] = []
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
        self._id = template.replace("{name}", written).replace("{index}", index) if template and index else id_
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
        syntax, tool = self.syntax, self.named.tool
        if not can_be_sent_in_pieces(syntax, self.written):
            return
        if isinstance(self.json, JsonBody):
            keys = syntax.dialect.json if syntax.body == "json" else None
            self.pieces = JsonPieces(syntax, self.written, tool, self._id, keys=keys, offered=self.named.find_tool)
        elif self.json is None and tool:
            self.pieces = self.parameters.pieces = TaggedPieces(syntax, self.written, tool, self._id)

    def next_object(self, body: JsonBody | PythonBody | GemmaBody) -> None:
        """Begin another object after the current one."""
        assert self.json is not None
        if not self.text.spilled:
            self._earlier_objects.append(self.json)
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
        self._earlier_objects.clear()

    @property
    def may_be_empty(self) -> bool:
        """True if a call without parameters is valid."""
        return self.syntax.dialect.names == "any" or self.needs_nothing

    @property
    def needs_nothing(self) -> bool:
        """True if its tool is offered and requires no parameter."""
        return self.named.tool is not None and not self.named.schema.required

    @property
    def takes_nothing(self) -> bool:
        """True if its tool is offered and declares no parameter."""
        return self.named.tool is not None and not self.named.declared

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

    def complete(self, unknown_tools: str) -> list[Call]:
        """Return the calls of a complete text: one, or several if it holds several objects.

        Raises `envelope.NotACall`.
        """
        # Step 1: Parameters between tags are one call.
        if self.json is None:
            self.parameters.complete(self.text.body)
            return self._make_calls(self._read_tagged(), unknown_tools)
        # Step 2: Collect the objects; a list in place of an object holds several.
        bodies: list[str] = []
        for body in (*self._earlier_objects, self.json):
            self.repairs |= body.repairs
            text = body.text()
            if self.syntax.body == "json" and text.startswith("{"):
                text = envelope.extract_call_list(text) or text
            if text.startswith("["):
                self.repairs[Repair.ARRAY_OF_CALLS] = None
            bodies += split_items(text) if text.startswith("[") else [text]
        # Step 3: Make a call from each object. Several objects are a repair, which must not lose an argument.
        if not self._earlier_objects:
            return self._make_calls(self._read_objects(bodies), unknown_tools)
        self.repairs[Repair.SEVERAL_OBJECTS] = None
        return self._check_events(
            self._make_calls(self._read_objects(bodies), unknown_tools), "it contains several objects"
        )

    def repair(self, unknown_tools: str) -> tuple[list[Call], str]:
        """Repair a call that the strict parse failed on, and return its calls and the text after it.

        The list is empty if the call is ambiguous; then `fault` may give a better reason than before.
        """
        body, closers = self.text.body, list_written_closers(self.syntax, self.written)
        try:
            if self.json is None:
                events, rest = self._repair_tags(body, closers, unknown_tools)
            elif end := self.ends.wrong_closer:
                # If the right closer follows later, after other text, the wrong one may be content.
                after, opening = body[end:].lstrip(), self.syntax.opening
                ends_here = after.startswith(tuple(closers)) or (opening and opening.match(after))
                if not ends_here and any(closer in after for closer in closers):
                    return [], ""
                self.text.replace_body(body[:end])
                self.repairs[Repair.WRONG_CLOSER] = None
                events, rest = self.complete(unknown_tools), body[end:]
            else:
                events, rest = self._repair_json(body, closers, unknown_tools)
        except envelope.NotACall as error:
            self.text.replace_body(body)
            self.fault = str(error)
            return [], ""
        return events, rest

    def _repair_tags(self, body: str, closers: Sequence[str], unknown_tools: str) -> tuple[list[Call], str]:
        """Repair a call with parameters between tags. Raises `envelope.NotACall`."""
        # Step 1: Find its end: before a call that the value may have swallowed, or before words after it.
        ends, end = self.ends, len(body)
        if ends.next_call:
            end, rest = ends.next_call, body[ends.next_call :]
            is_closed = ends.swallowed or rest.rstrip().endswith(tuple(closers))
            if not (is_closed and self.syntax.parameters.is_balanced(rest)):
                return [], ""  # the value may contain the other call
            if ends.has_no_value:
                ends.swallowed, self.fault = end, "a parameter has no value"
                return [], ""
        elif ends.before_words and self._is_end(body[ends.before_words :], closers):
            end = ends.before_words
        elif self.parameters.quotes_calls:
            return [], ""  # a value that contains a call is ambiguous
        # Step 2: Parse the parameters up to there.
        body, rest = body[:end], body[end:]
        repair = Repair.UNPAIRED_OPENER if end == ends.before_words else Repair.MISSING_CLOSER
        split = self.parameters.split(body, repair)
        if not split or (ends.next_call and Repair.MISSING_PARAMETER_CLOSER in self.repairs):
            return [], ""  # a value without a closer may contain the other call
        self.text.replace_body(body)
        return self._make_calls(self._read_tagged(), unknown_tools), rest

    def _repair_json(self, body: str, closers: Sequence[str], unknown_tools: str) -> tuple[list[Call], str]:
        """Repair a call with self-delimiting arguments. Raises `envelope.NotACall`."""
        repaired: repairs.RepairedBody | None
        if self.syntax.body == "kwargs":
            repaired = repairs.repair_kwargs(body, closers)
        elif isinstance(self.json, GemmaBody) and not _JSON_OBJECT.match(body):
            repaired = repairs.repair_gemma(body, closers, self.json.quote)
        else:
            keys = self.syntax.dialect.json if self.syntax.body == "json" else None
            expected = (
                envelope.describe_expected_call(keys, self.named.tools, self.named.find_tool)
                if keys
                else ExpectedObject(self.named.schema.root)
            )
            ends = list_json_closers(body, closers)
            repaired = None if ends is None else repairs.repair_json(body, ends, expected)
        if repaired is None:
            return [], ""
        self.repairs |= dict.fromkeys(repaired.repairs)
        self.text.replace_body(body[: repaired.end])
        events = self._make_calls(self._read_objects(repaired.values), unknown_tools)
        return self._check_events(events, self.fault), body[repaired.end :]

    def _is_end(self, rest: str, closers: Sequence[str]) -> bool:
        """Return whether a call can end before `rest`: only closers or the next call follow."""
        while closer := next((closer for closer in closers if rest.lstrip().startswith(closer)), ""):
            rest = rest.lstrip().removeprefix(closer)
        return not rest.strip() or is_call_start(self.syntax, rest, self.named.find_tool)

    def _check_events(self, events: list[Call], fault: str) -> list[Call]:
        """Return repaired calls. Raises `envelope.NotACall` if one may have lost an argument."""
        for event in events:
            check_repaired(event, self.named.tools, self.text.body, fault)
        return events

    def _make_calls(self, contents: Iterable[envelope.EnvelopeContent], unknown_tools: str) -> list[Call]:
        """Create a call from each content; the first one carries the whole text. Raises `envelope.NotACall`."""
        dialect = self.syntax.dialect
        events: list[Call] = []
        for read in contents:
            text, notes = read.text, (*map(str, self.repairs), *map(str, read.repairs))
            name = read.tool.name if read.tool else self._resolve_unoffered(read.name, notes)
            if name is None or (read.tool is None and unknown_tools == "text"):
                raise envelope.NotACall(tool_names.explain_unknown_tool(read.name, self.named.tools))
            if read.tool is None:
                notes = (*notes, Repair.UNKNOWN_TOOL) if self.named.tools else notes
            elif self.json or read.repairs:
                text, fitted = parameter.fit_object(text, read.arguments, read.tool.schema, lenient=self._lenient)
                notes = (*notes, *fitted)
            if dialect.names == "declared" and self.syntax.whole_reply:
                check_required(read.arguments, self.named.tools[name])
            raw = "" if events else self.text.raw
            events.append(Call(raw, ToolCall(name, text, read.id or self._id), dialect.name, notes))
        if not events:
            raise envelope.NotACall("it is empty")
        return events

    def _resolve_unoffered(self, written: str, notes: Collection[str]) -> str | None:
        """Return the name of an unoffered tool; None if it is not a call. Without tools every name is accepted."""
        if self.named.tools:
            return self.syntax.resolve_unoffered(written, notes, in_json=self.json is not None)
        return written if self.syntax.dialect.names == "any" else None

    def _read_tagged(self) -> list[envelope.EnvelopeContent]:
        """Parse the parameters between tags. Raises `envelope.NotACall`."""
        named = self.named
        self.parameters.check_values()
        content = envelope.read_parameters(self.written, self.parameters.given, named.tool, named.declared)
        if content.repairs:
            self.repairs.pop(Repair.UNDECLARED.of(next(iter(self.parameters.given))), None)
        return [content]

    def _read_objects(self, bodies: Sequence[str]) -> list[envelope.EnvelopeContent]:
        """Parse objects: whole calls, or the arguments of the tool named in the head. Raises `envelope.NotACall`."""
        syntax, named = self.syntax, self.named
        if syntax.body == "json":
            keys, bare = syntax.dialect.json, syntax.dialect.names == "declared"
            return [envelope.read(body, keys, needs_arguments=bare, offered=named.find_tool) for body in bodies]
        if len(bodies) > 1:
            raise envelope.NotACall("its arguments are several objects")
        if named.tool is None and tool_names.is_bare_id(named.written):
            # Kimi writes an id in the head, and sometimes a whole call with its name in place of the arguments.
            with contextlib.suppress(envelope.NotACall):
                return [
                    envelope.read(body, Envelope(), needs_arguments=True, offered=named.find_tool) for body in bodies
                ]
            if self._lenient and (content := _find_tool_by_arguments(named, bodies[0])):
                return [content]
        return [envelope.read_arguments(named.written, body, named.tool) for body in bodies]


_JSON_OBJECT = re.compile(r'\s*\{\s*"')  # used with match
_FENCE_LINE = re.compile(r"\A\s*(?:```|~~~)[^\n]*\n")
