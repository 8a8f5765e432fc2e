"""Objects shared by the states of a reader: the text and its cursor, the buffer of events, settings, verdicts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.grammar import NO_ANSWER, AnswerMarks, Grammar, TagPairs, compile_grammar
from vtc.dialects.syntax.scan import INDENT
from vtc.events import Call, CallPiece, Event, Markup, Text, Tool, ToolCall, UnreadCall

LOOKBEHIND_CHARACTERS = 48
"""Consumed characters that are retained: some tokens must start a line, and the text before a call can quote it."""
WHITESPACE = " \t\r\n"

_QUOTATION_PREFIX = re.compile(rf"^(?=[ \t>]{{1,{INDENT}}}\Z)[ \t]{{0,3}}>", re.MULTILINE)
_YAML_KEY = re.compile(
    r"(?:\A|\n)(?P<margin>[ ]*+(?:-[ ]++)*+)(?:[\w.$/-][^\n:#{}]{0,40}|\"[^\n\"]{1,40}\"|'[^\n']{1,40}'):[ ]++"
    r"[|>][-+1-9]{0,2}[ \t]*+(?:#[^\n]*+)?\s*\Z"
)
"""The end of a line that opens a block scalar in YAML: `reply: |`."""
_BLANK = re.compile(rf"[{WHITESPACE}]*+\Z")  # used with match

type TokenMatch = re.Match[str]


class Cursor:
    """The text that is still needed, and the position up to which it was consumed.

    The text after `at` is buffered, because it may still become a token. Of the text before it, only
    `LOOKBEHIND_CHARACTERS` are retained. Except for `push_back`, the position only moves forward.
    """

    __slots__ = ("at", "final", "seek", "text", "was_pushed_back")

    def __init__(self) -> None:
        self.text = ""
        self.was_pushed_back = False
        """True if text was pushed back, so that the consumed text before it is lost."""
        self.at = 0
        """Position up to which the text was consumed."""
        self.seek = 0
        """Position from which the next token is searched; the text from `at` to `seek` is buffered."""
        self.final = False
        """True if no more text follows."""

    def consume(self, end: int) -> str:
        """Consume the text up to `end`."""
        text = self.text[self.at : end]
        self.at = self.seek = end
        return text

    def consume_all(self) -> str:
        return self.consume(len(self.text))

    def push_back(self, text: str) -> None:
        """Put consumed text back before the rest, to be parsed in another state."""
        self.was_pushed_back |= self.at > 0
        self.text, self.at, self.seek = text + self.text[self.at :], 0, 0

    @property
    def is_quoted(self) -> bool:
        """True if the line so far contains only the `>` of a quotation."""
        return _QUOTATION_PREFIX.search(self.text[max(0, self.at - LOOKBEHIND_CHARACTERS) : self.at]) is not None

    def is_in_yaml_block(self, line: TokenMatch) -> bool:
        """True if the line is in a YAML block scalar: it is indented deeper than the key on the line before it."""
        key = _YAML_KEY.search(self.text[max(0, line.start() - LOOKBEHIND_CHARACTERS) : line.start()])
        return key is not None and len(line[0]) - 1 > len(key["margin"])

    @property
    def is_at_end(self) -> bool:
        """True if all received text is consumed."""
        return self.at == len(self.text)

    def is_lone_item(self, at: int) -> bool:
        """True if only the `- ` of a list item precedes `at` on its line, and the item is the only one of its list.

        No other retained line may begin like an item or a line of a file. If the beginning of the reply is no longer
        retained, the line before the item must end in a colon.
        """
        before = self.text[max(0, at - LOOKBEHIND_CHARACTERS) : at]
        if self.was_pushed_back or not _ITEM.search(before):
            return False
        if at >= LOOKBEHIND_CHARACTERS:
            if not _INTRODUCED_ITEM.search(before):
                return False
            before = before.partition("\n")[2]  # the beginning of the first line may be missing
        return len(_LIST_LINE.findall(before)) == 1

    def is_blank_to(self, end: int) -> bool:
        """True if the text up to `end` is white space."""
        return not self.text[self.at : end].strip(WHITESPACE)

    def is_blank(self, start: int) -> bool:
        """True if the text from `start` on is white space."""
        return _BLANK.match(self.text, start) is not None


# The text around a call on its line shows if the call is quoted:
#
# I run <tool_call>…</tool_call> now.      words of one sentence on both sides: an example
# I look. <tool_call>…</tool_call> Then …  a sentence on either side: a call
# "<tool_call>…</tool_call>"               quotation marks directly around it
# | a | <tool_call>…</tool_call> |         a cell of a table
# docs/a.md:12: <tool_call>…</tool_call>   a line of a file


CELL_BAR = "|"
QUOTATION_MARKS = {
    '"': '"',
    "'": "'",
    "“": "”",
    "‘": "’",
    "«": "»",
    "„": "“",
    "「": "」",
    "『": "』",
    CELL_BAR: CELL_BAR,
}
"""Quotation marks, and the bar before a cell of a table, with the character that closes each."""

_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[ ]?[-+]\d\d:?\d\d)?"
_STAMP = rf"[\[(]?(?:{_DATE}(?:[T \t]{{1,4}}{_TIME})?|{_TIME}|\d{{8}}T\d{{4,6}}Z?)[\])]?"
# The end of a date in any format, and the time: `Nov 22 10:00:01`, `[22/Nov/2026:10:00:01 +0000]`.
_DATE_END = rf"\d[ :]{_TIME}(?:[ ]\d{{4}})?\]?[ \t]*+"
_LEVEL = r"[\[(]?[A-Z]{2,9}[\])]?:?[ \t]*+"
"""A word of a log line between the time and the message: `INFO`, `[WARN]`, `UTC`, `AM`."""
_LINE_PREFIX = rf"(?:[-+#|>]++|\d{{1,9}}[ \t]{{0,8}}[:|→]|\d{{1,9}}\t|{_STAMP})[ \t]*+"
_LOG_LINE = rf"(?:(?:^|\n)[ \t]*+{_STAMP}[ \t]*+|{_DATE_END})(?:{_LINE_PREFIX}|{_LEVEL})*\Z"
_ITEM = re.compile(r"(?:\A|\n)[ \t]*+-[ \t]++\Z")
_INTRODUCED_ITEM = re.compile(r"[:\uff1a][ \t\r]*\n\s*-[ \t]++\Z")
_LIST_LINE = re.compile(rf"^[ \t]*+{_LINE_PREFIX}", re.MULTILINE)
_FILE_LINE = re.compile(  # for at most 48 characters
    rf"(?:^|\n)[ \t]*+(?:{_LINE_PREFIX})+\Z|\S:\d{{1,9}}:(?:\d{{1,9}}:)?[ \t]*+\Z|{_LOG_LINE}"
)


# These search `LOOKBEHIND_CHARACTERS` at most, the text before a call.
_NO_WORD = re.compile(r"</?[\w:.-]{1,64}\s*>|<[|｜][^<>|｜\s]{1,64}[|｜]>|\[[A-Z_]{4,64}\]")
_WORD = re.compile(r"[^\W_]")
_ITEM_NUMBER = re.compile(r"[ \t]*+(?:\d{1,9}|[A-Za-z])[.)][ \t]*+")  # used with match
_CLAUSE_END = re.compile(r"""(?:(?P<sentence>[.!?…。！？．])|[:\uff1a])[\s"'”’»」』)\]*_]*+\Z""")


class Lead(Enum):
    """The way in which the words before a call end, on its line."""

    NONE = auto()
    """There are no words: only punctuation, tags, the number of an item, or an accepted call."""
    CLAUSE_OPEN = auto()
    """Inside a sentence or a clause."""
    COLON = auto()
    """With a colon."""
    SENTENCE = auto()
    """With the end of a sentence."""


def classify_lead(before: str) -> Lead:
    """Classify the end of the text before a call."""
    line = _NO_WORD.sub("", before.rpartition("\n")[2])
    if not _WORD.search(line) or _ITEM_NUMBER.fullmatch(line):
        return Lead.NONE
    ends = _CLAUSE_END.search(line)
    if ends is None:
        return Lead.CLAUSE_OPEN
    return Lead.SENTENCE if ends["sentence"] else Lead.COLON


type LineFate = Literal["", "accepted", "quoted"]
"""The decision that applies to all calls on a line; empty as long as none was made."""


class CallPlace(NamedTuple):
    """The text before a call, as far as it shows if the call is quoted."""

    in_line: bool = False
    """Text precedes it on the same line."""
    lead: Lead = Lead.NONE
    shared_fate: LineFate = ""
    """The decision about earlier calls on its line, which applies to it, too."""
    closing_mark: str = ""
    """The character that would close a quotation opened directly before it; empty if there is none."""
    is_file_line: bool = False
    """Only a prefix of lines in files, logs or diffs precedes it on its line."""
    is_item: bool = False
    """Only `- ` precedes it on its line, and no other line is an item: if nothing follows the call, it is the item of a
    list, not a line of a diff."""


def locate_call(cursor: Cursor, at: int, *, in_line: bool, shares: LineFate) -> CallPlace:
    """Describe the context of a call by the text before `at`."""
    before = cursor.text[max(0, at - LOOKBEHIND_CHARACTERS) : at]
    if not in_line:
        return CallPlace()
    bare = before.rstrip(" \t")
    mark = QUOTATION_MARKS.get(CELL_BAR if bare.endswith(CELL_BAR) else before[-1:], "")
    of_file = _FILE_LINE.search(before) is not None
    lead = Lead.NONE if shares else classify_lead(before)
    return CallPlace(True, lead, shares, mark, of_file, of_file and cursor.is_lone_item(at))


_MAY_BE_TAG = re.compile(r"<\S")
_INDENTED_LINE = re.compile(r"\n[ \t\r]*\n(?: {4}| {0,3}\t)[ \t]*\Z")


class Last(Enum):
    """The last visible item of the reply; white space between a call and the first text is dropped."""

    NOTHING = auto()
    CALL = auto()
    """A call or a reasoning tag, without text before it."""
    TEXT = auto()
    CALL_AFTER_TEXT = auto()


class EventBuffer:
    """The output of the reader: events until they are taken, and white space until the next event decides about it.

    White space before a call becomes part of the call. After a call it is emitted as markup if it ends the reply or
    precedes the first text, otherwise as text.
    """

    __slots__ = ("_events", "_has_called", "_pieces", "has_example", "last", "line_fate", "may_have_tags", "whitespace")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._has_called = False
        self._pieces: list[str] = []  # joined once, because a reply in one chunk is split at each token
        self.whitespace: list[str] = []
        """White space after the last text or call, in pieces."""
        self.last = Last.NOTHING
        self.may_have_tags = False
        """True if the text contains a possible tag."""
        self.line_fate: LineFate = ""
        """The decision for the calls on the last line of the text."""
        self.has_example = False
        """True if a call in a code block was classified as an example."""

    @property
    def in_line(self) -> bool:
        """True if text precedes on the same line."""
        return self.last is Last.TEXT and not any("\n" in text for text in self.whitespace)

    @property
    def in_paragraph(self) -> bool:
        """True if the previous line has text."""
        return self.last is Last.TEXT and sum(text.count("\n") for text in self.whitespace) == 1

    @property
    def is_after_call(self) -> bool:
        """True if no text follows the last call."""
        return self._has_called and self.last in (Last.CALL, Last.CALL_AFTER_TEXT)

    @property
    def is_silent(self) -> bool:
        """True if neither text nor a call was emitted."""
        return not self._has_called and self.last in (Last.NOTHING, Last.CALL)

    @property
    def is_indented_code(self) -> bool:
        """True if the current line is indented like code, after text and a blank line."""
        return self.last is Last.TEXT and _INDENTED_LINE.search("".join(self.whitespace)) is not None

    def take(self) -> list[Event]:
        """Return and clear the collected events."""
        events, pieces = self._events, self._pieces
        if pieces:
            events.append(Text(pieces[0] if len(pieces) == 1 else "".join(pieces)))
            pieces.clear()
        self._events = []
        return events

    def emit(self, event: Event) -> None:
        """Append an event."""
        if self._pieces:
            self._events = self.take()
        self._events.append(event)

    def add_text(self, text: str) -> None:
        """Append visible text; trailing white space is buffered."""
        if self.line_fate and "\n" in text:
            self.line_fate = ""
        body = text.rstrip(WHITESPACE)
        if not body:
            if text:
                self.whitespace.append(text)
            return
        self.may_have_tags = self.may_have_tags or _MAY_BE_TAG.search(body) is not None
        if self.whitespace:
            before = self.take_whitespace()
            if self.last is Last.CALL:
                self.emit(Markup(before))
            else:
                self._pieces.append(before)
        if self.last is Last.CALL and (rest := body.lstrip(WHITESPACE)) != body:
            self.emit(Markup(body[: -len(rest)]))
            self._pieces.append(rest)
        else:
            self._pieces.append(body)
        self.last = Last.TEXT
        if len(body) < len(text):
            self.whitespace.append(text[len(body) :])

    def pass_through(self, text: str) -> list[Event]:
        """Combine `add_text` and `take` for text that follows text; most of a reply takes this path."""
        body = text.rstrip(WHITESPACE)
        space = self.whitespace
        if not body:
            if text:
                space.append(text)
            return []
        passed = body
        if space:
            passed = "".join(space) + body
            space.clear()
        if len(body) < len(text):
            space.append(text[len(body) :])
        return [Text(passed)]

    def emit_in_place(self, event: Event) -> None:
        """Append an event after the buffered white space, which is emitted first."""
        self.flush_whitespace()
        self.emit(event)

    def add_call(self, event: Event) -> None:
        """Append a call, or markup or a denial in place of one."""
        self.emit(event)
        texted = self.last in (Last.TEXT, Last.CALL_AFTER_TEXT)
        self.last = Last.CALL_AFTER_TEXT if texted else Last.CALL
        if isinstance(event, Call | CallPiece):
            self._has_called, self.line_fate = True, "accepted"

    def add_unread_call(self, call: UnreadCall) -> None:
        """Append the report of an unread call. Its text is a separate event after it."""
        self.emit(call)

    def retract(self) -> tuple[str, list[Call]]:
        """Discard the collected events; return their text and its final calls."""
        events, last = self.take(), list[Call]()
        update_last_calls(last, events)
        raw = "".join([*(event.raw for event in events), *self.whitespace])
        self.whitespace.clear()
        self.last, self.may_have_tags, self._has_called, self.line_fate = Last.NOTHING, False, False, ""
        return raw, last

    def keep_whitespace(self) -> None:
        """Treat the last event as visible: white space after it is emitted as text."""
        texted = self.last in (Last.TEXT, Last.CALL_AFTER_TEXT)
        self.last = Last.TEXT if texted else Last.NOTHING

    def take_whitespace(self) -> str:
        """Return and clear the buffered white space."""
        space = self.whitespace.pop() if len(self.whitespace) == 1 else "".join(self.whitespace)
        self.whitespace.clear()
        return space

    def flush_whitespace(self, *, as_text: bool = False) -> None:
        """Emit buffered white space: as text, or as markup after a call."""
        if self.whitespace:
            space = self.take_whitespace()
            after_call = self.last in (Last.CALL, Last.CALL_AFTER_TEXT)
            self.emit(Markup(space) if after_call and not as_text else Text(space))


def update_last_calls(last: list[Call], events: Iterable[Event]) -> None:
    """Add the calls of `events` to `last`, and drop those that text follows: only final calls are no examples."""
    for event in events:
        if isinstance(event, Call):
            last.append(event)
        elif isinstance(event, Text) and not event.raw.isspace():
            last.clear()


def extract_from_reasoning(calls: Iterable[Call]) -> list[Call]:
    """Copy the final calls of the reasoning as real calls; their text stays in the reasoning."""
    return [
        replace(call, raw="", repairs=(*call.repairs, Repair.CALL_IN_REASONING), read_from=call.evidence)
        for call in calls
    ]


type ReasoningTarget = Literal["reasoning_content", "opened", "keep", "drop"]
"""The destination of reasoning: the reasoning field of the client's API, the text (with its tags), or nothing.

`opened`: the field if the reply begins with an opening tag, as that of an unknown model may; otherwise the text."""
type Begins = Literal["text", "reasoning", "unknown", "either"]
"""The state in which a reply begins.

`text`: outside the reasoning. `reasoning`: inside it, because the prompt opened it. `unknown`: the reply is buffered
until a closing tag, or its end, decides. `either`: the reply is parsed as text, and buffered until a closing tag
outside of calls and code decides that the text so far was reasoning.
"""
type UnknownTools = Literal["text", "allow", "drop"]
"""The treatment of calls of tools that are not offered: text, calls, or nothing."""


class Verdict(Enum):
    """The result of an action, which the table maps to the next state; None in its place means the usual next state."""

    __hash__ = object.__hash__  # `Enum.__hash__` is a Python call, and each step looks up a verdict

    CONTENT = auto()
    """The token is content and is skipped."""
    QUOTED = auto()
    """A code span may quote the call."""
    ENDS = auto()
    """The code span ends, or a doubt is decided."""
    INDENTED = auto()
    """A line of indented code or a quoted line begins or continues."""
    UNBOUNDED = auto()
    """The code span or the doubtful markup exceeds its limit."""
    ATTRIBUTES = auto()
    """The call's parameters are attributes of its opening tag."""
    WRAPPED = auto()
    """An element opens that wraps the parameters."""
    JSON = auto()
    """The call's arguments are JSON, or have another self-delimiting grammar."""
    GUESS = auto()
    """A possible parameter begins; its name is not declared."""
    SOLE = auto()
    """The value of the tool's only parameter follows without tags."""
    CLOSED = auto()
    """The call's opening tag is self-closing."""
    CLOSERS = auto()
    """The parameters are complete, and the call's closers follow."""
    UNREAD = auto()
    """The text is not a call, and is returned as text."""
    SPILLED = auto()
    """The text is not a call, and no call begins in the rest of it, up to its closer."""
    DAMAGED = auto()
    """The strict parse failed; the end of the call is still to be found."""
    WHOLE = auto()
    """A section of calls ends that must be the whole reply."""
    UNDECIDED = auto()
    """The call is complete, but the text after it may show that it is quoted."""
    REASONING = auto()
    """The reply begins inside the reasoning."""
    UNKNOWN = auto()
    """The reply may begin inside the reasoning."""
    PROMPTED = auto()
    """The reply begins or may begin inside the reasoning, unless a call follows."""
    WAIT = auto()
    """More text is needed."""


class NotCompared(Exception):
    """Deciding whether a call is an echo would be too expensive."""


class EchoFinder(Protocol):
    """Finds the calls that appear in the request's tool results."""

    def find_source(self, written: str, calls: Iterable[ToolCall]) -> str | None:
        """Return the tool whose result contains one of the calls, `written` in the reply; None if there is no echo.

        Raises `NotCompared`.
        """


class ModelFacts(NamedTuple):
    """Facts about the model and its prompt that decide which text is a call."""

    tokens: frozenset[str] = frozenset()
    """Names of the dialects whose special tokens belong to the model."""
    echoes: EchoFinder | None = None
    steers: bool = False
    """Replace an echo with a message to the model."""
    compares_all: bool = False
    """Abandon a call if its comparison with the results is too expensive."""
    placeholder: str = ""
    """The placeholder of each value in the example call that VTC adds to the prompt."""


class ReaderOptions(NamedTuple):
    """The settings of a reader."""

    lenient: bool = True
    """Malformed calls are repaired."""
    unknown_tools: UnknownTools = "text"
    """The treatment of a call of a tool that was not offered."""
    max_call_bytes: int = 1 << 20
    think: ReasoningTarget = "reasoning_content"
    """The destination of text between reasoning tags, if the grammar has such tags."""
    begins: Begins = "text"
    """The kind of text that the reply begins with."""
    incremental: bool = False
    """Calls are sent in pieces while they are parsed, if possible: `CallPiece`s, then a `Call` with the `rest`."""
    client_dialect: str | None = None
    """The dialect in which the client parses calls from the text; only such calls are then sent in pieces, as their
    original text. None if it receives native tool calls."""


class ReasoningSyntax(msgspec.Struct, frozen=True):
    """The tags of reasoning in a reply, and the destination of the reasoning."""

    tags: TagPairs = ()
    to: ReasoningTarget = "reasoning_content"
    may_begin_inside: bool = False
    """The prompt may have opened the first of the tags."""
    begins_inside: bool = False
    """A stream is assumed to begin inside; a whole reply shows whether it does."""
    may_show: bool = False
    """A whole reply with an unopened closing tag began inside."""
    never: bool = False
    """The model is known not to reason, or was asked not to."""

    def begins(self, *, whole: bool) -> Begins:
        """Return the initial state for the reader; a `whole` reply shows it."""
        if whole and self.may_begin_inside:
            return "unknown"
        if whole and self.may_show:
            return "either"
        return "reasoning" if self.begins_inside else "text"


class ReplySyntax(msgspec.Struct, frozen=True, kw_only=True):
    """The syntax of a model's replies."""

    dialects: tuple[Description, ...] = ()
    """The dialects to search for calls, the expected ones first; empty if no text is read."""
    own: frozenset[str] = frozenset()
    """Names of the dialects whose special tokens are the model's own."""
    thinking: ReasoningSyntax = ReasoningSyntax()
    """The tags of its reasoning."""
    markers: tuple[str, ...] = ()
    """Texts that are removed, because they are no part of the message."""
    answer: AnswerMarks = NO_ANSWER
    """The markers that begin an answer, in which nothing is a call, and those that end it."""

    @property
    def grammar(self) -> Grammar:
        """The compiled grammar of these replies."""
        return compile_grammar(self.dialects, self.thinking.tags, self.markers, self.answer)


NO_MODEL_FACTS = ModelFacts()


type StepOutcome = tuple[Verdict | None, Any] | Verdict | None
"""The result of an action: its verdict, and the data from which the next state's handler is created."""
type Unread = Literal[Verdict.UNREAD]


class StateHandler(Protocol):
    """The handler of a state: its actions and its data. `transitions.py` maps states to handler classes."""

    def feed_plain(self, text: str) -> list[Event]:
        """Handle text in which no token begins."""

    def release(self, reason: str) -> None:
        """Return the buffered call as text, if there is one."""


class ReplyBeginning:
    """Knowledge about the beginning of the reply: text or reasoning."""

    __slots__ = ("began_inside", "begins", "begins_with_call", "calls_in_reasoning", "is_certain", "undecided")

    def __init__(self, begins: Begins) -> None:
        self.begins = begins
        """The state in which the next text begins if nothing was parsed yet; otherwise `text`."""
        self.began_inside: bool | None = None
        """True if the reply began inside the reasoning; None while unknown."""
        self.is_certain = True
        """False if the only evidence is a tag within a line, which may be a mention."""
        self.undecided = begins == "either"
        """The text so far may prove to be reasoning, so all of it is buffered."""
        self.begins_with_call = False
        """The reason is that it begins with a call although the prompt may have opened the reasoning."""
        self.calls_in_reasoning: list[Call] = []
        """The final calls of text that proved to be reasoning."""

    def record_began_inside(self, began_inside: bool) -> None:
        """Record whether the reply began inside the reasoning, unless that is known already."""
        if self.began_inside is None:
            self.began_inside = began_inside

    def mark_as_text(self) -> None:
        """Record that text follows, and that the text so far is no reasoning."""
        self.begins, self.undecided = "text", False


class Context:
    """The settings, the text and the output of one reader."""

    __slots__ = (
        "_names",
        "beginning",
        "client_dialect",
        "complete",
        "cursor",
        "facts",
        "grammar",
        "incremental",
        "lenient",
        "max_held",
        "output",
        "think",
        "tools",
        "unknown_tools",
    )

    def __init__(
        self,
        grammar: Grammar,
        tools: Mapping[str, Tool],
        options: ReaderOptions,
        facts: ModelFacts,
    ) -> None:
        self.facts = facts
        self.incremental = options.incremental
        self.client_dialect = options.client_dialect
        self.grammar = grammar
        self.tools = tools
        self.lenient = options.lenient
        self.unknown_tools = options.unknown_tools
        self.max_held = options.max_call_bytes
        """Maximum size of the buffer: bytes of a call, characters of a code span."""
        self.think = options.think
        self.beginning = ReplyBeginning(options.begins)
        self.complete = True
        """True if the model ended its reply itself."""
        self._names: Collection[str] | None = None  # case-folded; created when needed
        self.cursor = Cursor()
        self.output = EventBuffer()

    def offers(self, written: str) -> bool:
        """Return whether the tool named in the markup is offered."""
        if self._names is None:
            self._names = tool_names.fold_names(self.tools)
        return tool_names.strip_prefix(written).casefold() in self._names

    def has_own_tokens(self, syntax: CallSyntax) -> bool:
        """True if a call is marked by the model's own special tokens."""
        return syntax.has_tokens and syntax.dialect.name in self.facts.tokens

    def restrict_to_own_tokens(self) -> None:
        """From here on, accept only complete calls in the model's special tokens: the rest of the reply is quoted."""
        self.grammar, self.complete = self.grammar.with_special_tokens(self.facts.tokens), False

    @property
    def may_repair_end(self) -> bool:
        """True if faults at the end of the text may be repaired."""
        return self.cursor.final and self.complete and self.lenient


class TextHandler:
    """A state outside calls and reasoning: its text is visible."""

    __slots__ = ("context",)

    def __init__(self, context: Context) -> None:
        self.context = context

    def feed_plain(self, text: str) -> list[Event]:
        self.context.output.add_text(text)
        return self.context.output.take()

    def release(self, reason: str) -> None:
        """No-op: no call is buffered."""

    def emit_text(self, end: int) -> None:
        context = self.context
        context.output.add_text(context.cursor.consume(end))
