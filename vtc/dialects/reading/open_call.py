"""A call that is being read: what it was written with so far, and what that says."""

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

# Doubts about a call that was read: each raises `envelope.NotACall`.


def check_repaired(event: Call, tools: Mapping[str, Tool], body: str, fault: str) -> None:
    """Refuse mended JSON that may have lost an argument; `fault` is what was wrong with its `body`."""
    tool = tools.get(event.call.name)
    arguments = json.loads(event.call.arguments)
    if not isinstance(arguments, dict):
        raise NotACall(f"{fault}, and its arguments are no object")
    keys = arguments.keys()
    if not keys and Repair.JSON_CUT in event.repairs and "{}" not in "".join(body.split()):
        raise NotACall(f"{fault}, and its arguments are missing")
    if tool and (lost := tool.schema.list_missing(keys)):
        raise NotACall(f"{fault}, and {min(lost)!r} is missing")


def find_placeholder(events: Iterable[Call], blank: str) -> str:
    """Find an argument that is still the `blank` of the example that the model was shown; empty if there is none."""
    given = (
        json.loads(event.call.arguments) for event in events if blank and json.dumps(blank) in event.call.arguments
    )
    return next((key for arguments in given for key, value in arguments.items() if value == blank), "")


def check_required(arguments: Collection[str], tool: Tool) -> None:
    """Refuse an object that is as well an answer, since the tool takes other arguments."""
    if lost := tool.schema.list_missing(arguments):
        raise NotACall(f"{min(lost)!r} is missing")


def _find_tool_by_arguments(named: NamedTool, body: str) -> envelope.EnvelopeContent | None:
    """Read a call with a bare id for a name, if its arguments fit only one of the offered tools."""
    read = envelope.read_arguments(named.written, body, None)
    fits = [tool for tool in named.tools.values() if parameter.is_complete(tool, read.arguments)]
    if not read.arguments or len({tool.name for tool in fits}) != 1:
        return None
    return read._replace(name=fits[0].name, tool=fits[0], repairs=(*read.repairs, Repair.TOOL_BY_ARGUMENTS))


class HeldText:
    """The characters of a call while it is read, in pieces: a head, and the body after it.

    It is given back as this text if it does not complete.
    """

    __slots__ = ("_body", "_pieces", "_sent", "leading", "sent", "size", "spilled")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._body = 0  # of these, the first of the body
        self._sent = 0  # of these, how many have left
        self.leading = 0
        """Characters of white space, and of markup that shares its fate, before the call."""
        self.size = 0
        """In bytes."""
        self.spilled = False
        """True if it is too long to hold: the call is read to its end, but as text."""
        self.sent = 0
        """Characters that have left, of a call that leaves in pieces."""

    @property
    def raw(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    @property
    def body(self) -> str:
        return "".join(self._pieces[self._body :])

    @property
    def unsent(self) -> str:
        """Return the text that has not left."""
        return self.raw[self.sent :]

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def ends_with(self, text: str) -> bool:
        """Tell if it ends with a text, white space aside."""
        end = ""
        for piece in reversed(self._pieces):
            end = (piece + end).rstrip()
            if len(end) >= len(text):
                break
        return end.endswith(text)

    def begin_body(self) -> None:
        """Begin the body: the text so far is the head."""
        self._body = len(self._pieces)

    def strip_head(self, text: str) -> None:
        """Take a text off the end of the head, which is all so far."""
        self._pieces[:] = [self.raw.removesuffix(text)]

    def replace_body(self, body: str) -> None:
        self._pieces[self._body :] = [body]

    def take_unsent(self, but: str = "") -> str:
        """Return the text since the last time, which leaves now, `but` for this at its end."""
        until = len(self._pieces)
        if but and (last := self._pieces[-1]).endswith(but):
            self._pieces[-1:] = [last.removesuffix(but), but]
        text = "".join(self._pieces[self._sent : until])
        self._sent = until
        self.sent += len(text)
        return text

    def spill(self) -> None:
        """Keep none of it, and none of what follows: it is given back."""
        self.spilled = True
        self._pieces.clear()


class PossibleEnds:
    """Places in its body where a call whose own end is in doubt may end; 0 where there is none."""

    __slots__ = ("_text", "among_words", "has_no_value", "next_call", "swallowed", "wrong_closer")

    def __init__(self, text: HeldText) -> None:
        self._text = text
        self.wrong_closer = 0
        """After a closing tag of another kind: it ends there, unless its own closing tag comes later."""
        self.next_call = 0
        """Before another call after a closing tag, which its value may have swallowed."""
        self.swallowed = 0
        """After that other call."""
        self.has_no_value = False
        """The parameter before that other call has no value."""
        self.among_words: int | None = None
        """If what its last value opens are words of a text; None as long as no place is known."""

    def offset_after(self, more: int = 0) -> int:
        """Return the place after some `more` characters than are held."""
        return len(self._text.body) + more

    def cut_swallowed(self) -> str:
        """Take the text after the call that was swallowed off; return it."""
        body = self._text.body
        if not self.swallowed or self._text.spilled:
            return ""
        self._text.replace_body(body[: self.swallowed])
        return body[self.swallowed :]


class EarlierCalls:
    """The calls before one that share its fate: in a section that must be the whole reply, on its line, in its list."""

    __slots__ = ("calls", "fault", "in_list", "sure")

    def __init__(self, calls: list[Call | str] | None = None) -> None:
        self.calls = [] if calls is None else calls
        """With what stands between them."""
        self.in_list = False
        """A comma stands between them and it: all of them are calls, or none."""
        self.fault = ""
        """Why one of a list is none, if so."""
        self.sure = False
        """Their layout or their markers tell them from a quotation in a line."""


class OpenCall:
    """One call from its head to its end.

    `raw` is kept whole, so that a call that does not complete can be given back as the text it was.
    """

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
        """Reads the arguments, where they are not between tags."""
        self._earlier_objects: list[JsonBody | PythonBody | GemmaBody] = []
        """Those of the objects before them, where several stand in one call's tags."""
        self.repairs: dict[str, None] = {}
        self.fault = ""
        """Why the strict reading failed."""
        self.place = CallPlace()
        self.earlier = EarlierCalls()
        self.breaks_off = False
        """True if a bracket and a line break stand where its JSON broke: another call may begin there."""
        self.text = HeldText()
        self.ends = PossibleEnds(self.text)
        self.pieces: CallPieces | None = None
        """What of it leaves as it is read; None if it is delivered whole."""
        self._lenient = lenient
        template = syntax.dialect.id
        # The head amounts to an id in dialects that have one.
        self._id = template.replace("{name}", written).replace("{index}", index) if template and index else id_
        self._set_name(written, tools)

    def _set_name(self, written: str, tools: Mapping[str, Tool]) -> None:
        self.named = NamedTool(written, tools)
        self.parameters = Parameters(self.syntax, self.named, self.repairs, lenient=self._lenient)

    @property
    def name_in_markup(self) -> str:
        """Return the name as it was written, where markup after the head may say it, too; empty where it cannot.

        Expressions are made for each name that a model writes, which takes milliseconds.
        """
        return self.written if self.syntax.repeats_name else ""

    @property
    def written(self) -> str:
        """Return the name as the model wrote it; empty as long as it is inside JSON."""
        return self.named.written

    def split_name(self) -> str:
        """Take the name of a parameter off that of the tool, if they stand together; return it, empty if they do not.

        GLM leaves the key's opening tag out: `<tool_call>bashcommand</arg_key><arg_value>ls`.
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
        """Begin the body after the head, which is held; it may leave in these `pieces`."""
        self.text.begin_body()
        if '\\"' in self.text.raw and self._lenient and self.json is None:
            self.parameters.escaped = True
            self.repairs[Repair.ESCAPED_TEXT] = None
        elif pieces == "text":
            self.pieces = self.parameters.pieces = TextPieces.create(self.syntax, self.written, self.named.tool)
        elif pieces == "arguments":
            self._begin_pieces()

    def _begin_pieces(self) -> None:
        """Let its arguments leave as they come, if they can."""
        syntax, tool = self.syntax, self.named.tool
        if not can_be_sent_in_pieces(syntax, self.written):
            return
        if isinstance(self.json, JsonBody):
            keys = syntax.dialect.json if syntax.body == "json" else None
            self.pieces = JsonPieces(syntax, self.written, tool, self._id, keys=keys, offered=self.named.find_tool)
        elif self.json is None and tool:
            self.pieces = self.parameters.pieces = TaggedPieces(syntax, self.written, tool, self._id)

    def next_object(self, body: JsonBody | PythonBody | GemmaBody) -> None:
        """Begin another object after the one that is read."""
        assert self.json is not None
        if not self.text.spilled:
            self._earlier_objects.append(self.json)
        self.json = body
        self.stop_pieces()

    def take_piece(self) -> CallPiece | None:
        """Take what may leave of it now."""
        pieces = self.pieces
        if pieces is None or self.text.spilled:
            return None
        if isinstance(pieces, JsonPieces):
            assert isinstance(self.json, JsonBody)
            pieces.feed(self.json.take())
        if (piece := pieces.take_piece(first=not self.text.sent)) is None:
            return None
        raw = self.text.take_unsent(but=pieces.held)
        return replace(piece, raw=raw) if raw or not pieces.as_text else None

    def stop_pieces(self) -> None:
        """Let no more of it leave before it is complete: what its value holds may be its end."""
        if self.pieces:
            self.pieces.stop()

    def spill(self) -> None:
        """Keep none of its text, and none of what follows: it is given back."""
        self.text.spill()
        self.parameters.spill()
        self._earlier_objects.clear()

    @property
    def may_be_empty(self) -> bool:
        """Tell whether a call without any parameter is one."""
        return self.syntax.dialect.names == "any" or self.needs_nothing

    @property
    def needs_nothing(self) -> bool:
        """Tell whether it is whole without any parameter: its tool is offered, and requires none."""
        return self.named.tool is not None and not self.named.schema.required

    @property
    def takes_nothing(self) -> bool:
        """Tell whether it can have no parameter: its tool is offered, and declares none."""
        return self.named.tool is not None and not self.named.declared

    @property
    def sole_parameter(self) -> str | None:
        """Return the parameter that may stand without tags: required text, where the call is no word of a sentence."""
        is_word = self.place.in_line or self.syntax.ends_reply
        if self.named.tool is None or self.syntax.dialect.names == "any" or is_word:
            return None
        return self.named.schema.sole_required_text

    @property
    def only_parameter(self) -> str | None:
        """Return the one parameter of its tool, which a single value is, whatever its name; else None."""
        sure = self._lenient and self.named.tool and not (self.syntax.dialect.ends_reply or self.place.in_line)
        return self.named.schema.only_parameter if sure and not self.parameters.given else None

    def end_parameter(self, *, doubled: bool = False) -> None:
        """Take the value of the parameter, which is complete; `doubled` if it has several closers."""
        if self.text.spilled:
            self.parameters.pass_over()
        else:
            self.parameters.end(doubled=doubled)

    # What it says

    @property
    def bare(self) -> str:
        """Its text without what can stand around it: a fence, the markers of its section, and what ends another."""
        raw = self.text.raw[self.text.leading :]
        if self.syntax.opening and (opening := self.syntax.opening.search(raw)):
            return raw[opening.start() :]
        return _FENCE.sub("", raw)

    @property
    def is_whole(self) -> bool:
        """True if its end is the one that it was written with."""
        return not self.fault and Repair.MISSING_CLOSER not in self.repairs

    def note_possible_end(self, more: int) -> None:
        """Note that the call ends after some `more` characters if the openers in its value are words of a text.

        The first such place counts; none does where the value lays a call out, as it quotes that.
        """
        if self.ends.among_words is None:
            quotes = self.syntax.has_quoted_call(self.written, self.parameters.value)
            self.ends.among_words = 0 if quotes else self.ends.offset_after(more)

    def complete(self, unknown_tools: str) -> list[Call]:
        """Return the events for what was read; raises `envelope.NotACall`."""
        if self.json is None:
            self.parameters.complete(self.text.body)
            return self._make_calls(self._read_tagged(), unknown_tools)
        bodies: list[str] = []
        for body in (*self._earlier_objects, self.json):
            self.repairs |= body.repairs
            text = body.text()
            if self.syntax.body == "json" and text.startswith("{"):
                text = envelope.extract_call_list(text) or text
            if text.startswith("["):
                self.repairs[Repair.ARRAY_OF_CALLS] = None
            bodies += split_items(text) if text.startswith("[") else [text]
        if not self._earlier_objects:
            return self._make_calls(self._read_objects(bodies), unknown_tools)
        self.repairs[Repair.SEVERAL_OBJECTS] = None
        return self._check_events(
            self._make_calls(self._read_objects(bodies), unknown_tools), "several objects stand in it"
        )

    def repair(self, unknown_tools: str) -> tuple[list[Call], str]:
        """Return the events for what the strict reading failed on, and the text after it; none if it cannot be told."""
        body, closers = self.text.body, list_written_closers(self.syntax, self.written)
        try:
            if self.json is None:
                events, rest = self._repair_tags(body, closers, unknown_tools)
            elif end := self.ends.wrong_closer:
                after, opening = body[end:].lstrip(), self.syntax.opening
                at_once = after.startswith(tuple(closers)) or (opening and opening.match(after))
                if not at_once and any(closer in after for closer in closers):
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
        ends, end = self.ends, len(body)
        if ends.next_call:
            end, rest = ends.next_call, body[ends.next_call :]
            ended = ends.swallowed or rest.rstrip().endswith(tuple(closers))
            if not (ended and self.syntax.parameters.is_balanced(rest)):
                return [], ""  # it ends there, and the value quotes
            if ends.has_no_value:
                ends.swallowed, self.fault = end, "a parameter has no value"
                return [], ""
        elif ends.among_words and self._is_end(body[ends.among_words :], closers):
            end = ends.among_words
        elif self.parameters.quotes_calls:
            return [], ""  # with a call in it, it could be read in two ways
        body, rest = body[:end], body[end:]
        repair = Repair.UNPAIRED_OPENER if end == ends.among_words else Repair.MISSING_CLOSER
        split = self.parameters.split(body, repair)
        if not split or (ends.next_call and Repair.MISSING_PARAMETER_CLOSER in self.repairs):
            return [], ""  # a value without any closer may hold the other call
        self.text.replace_body(body)
        return self._make_calls(self._read_tagged(), unknown_tools), rest

    def _repair_json(self, body: str, closers: Sequence[str], unknown_tools: str) -> tuple[list[Call], str]:
        repaired: repairs.RepairedBody | None
        if self.syntax.body == "kwargs":
            repaired = repairs.repair_kwargs(body, closers)
        elif isinstance(self.json, GemmaBody) and not _JSON.match(body):
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
        """Tell if a call may end before the `rest`: no more than closers follows, or the next call."""
        while closer := next((closer for closer in closers if rest.lstrip().startswith(closer)), ""):
            rest = rest.lstrip().removeprefix(closer)
        return not rest.strip() or is_call_start(self.syntax, rest, self.named.find_tool)

    def _check_events(self, events: list[Call], fault: str) -> list[Call]:
        for event in events:
            check_repaired(event, self.named.tools, self.text.body, fault)
        return events

    def _make_calls(self, contents: Iterable[envelope.EnvelopeContent], unknown_tools: str) -> list[Call]:
        """Make a call of each content; the first stands for all the characters."""
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
            events.append(
                Call(self.text.raw * (not events), ToolCall(name, text, read.id or self._id), dialect.name, notes)
            )
        if not events:
            raise envelope.NotACall("it is empty")
        return events

    def _resolve_unoffered(self, written: str, notes: Collection[str]) -> str | None:
        """Return the name of a tool that is not offered; None if this is no call of one. Without tools each name is."""
        if self.named.tools:
            return self.syntax.resolve_unoffered(written, notes, in_json=self.json is not None)
        return written if self.syntax.dialect.names == "any" else None

    def _read_tagged(self) -> list[envelope.EnvelopeContent]:
        """Read the parameters between tags. Raises `envelope.NotACall`."""
        named = self.named
        self.parameters.check_values()
        content = envelope.read_parameters(self.written, self.parameters.given, named.tool, named.declared)
        if content.repairs:
            self.repairs.pop(Repair.UNDECLARED.of(next(iter(self.parameters.given))), None)
        return [content]

    def _read_objects(self, bodies: Sequence[str]) -> list[envelope.EnvelopeContent]:
        """Read JSON: whole calls, or the arguments of the tool that the head names. Raises `envelope.NotACall`."""
        syntax, named = self.syntax, self.named
        if syntax.body == "json":
            keys, bare = syntax.dialect.json, syntax.dialect.names == "declared"
            return [envelope.read(body, keys, needs_arguments=bare, offered=named.find_tool) for body in bodies]
        if len(bodies) > 1:
            raise envelope.NotACall("its arguments are several objects")
        if named.tool is None and tool_names.is_bare_id(named.written):
            with contextlib.suppress(envelope.NotACall):  # Kimi: an id stands for the name, which the arguments hold
                return [
                    envelope.read(body, Envelope(), needs_arguments=True, offered=named.find_tool) for body in bodies
                ]
            if self._lenient and (content := _find_tool_by_arguments(named, bodies[0])):
                return [content]
        return [envelope.read_arguments(named.written, body, named.tool) for body in bodies]


_JSON = re.compile(r'\s*\{\s*"')  # used with match
_FENCE = re.compile(r"\A\s*(?:```|~~~)[^\n]*\n")
