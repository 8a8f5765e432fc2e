"""The parts that the states of a reader share: the text that is read, events that leave, settings, verdicts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Any, Literal, NamedTuple, Protocol

from msgspec.structs import replace

from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.grammar import Grammar
from vtc.dialects.syntax.scan import INDENT
from vtc.events import Call, CallPiece, Event, Markup, Refusal, Text, Tool, ToolCall

# The text that is read: forward only, with no more of it kept than a token may need.
#
# Everything before `at` is consumed. From there to the end the text is held back, and that is only what the scan
# of the current state says may still become a token.


LOOKBEHIND_CHARACTERS = 48
"""Characters that are kept of what was consumed, for a token that must start its line, and for what quotes a call."""
WHITESPACE = " \t\r\n"

_QUOTED = re.compile(rf"^(?=[ \t>]{{1,{INDENT}}}\Z)[ \t]{{0,3}}>", re.MULTILINE)
_YAML_KEY = re.compile(
    r"(?:\A|\n)(?P<margin>[ ]*+(?:-[ ]++)*+)(?:[\w.$/-][^\n:#{}]{0,40}|\"[^\n\"]{1,40}\"|'[^\n']{1,40}'):[ ]++"
    r"[|>][-+1-9]{0,2}[ \t]*+(?:#[^\n]*+)?\s*\Z"
)
"""The end of a line that opens a block of text in YAML: `reply: |`."""
_BLANK = re.compile(rf"[{WHITESPACE}]*+\Z")  # used with match

type TokenMatch = re.Match[str]


class Cursor:
    """A text and the place in it up to which it was read."""

    __slots__ = ("at", "final", "seek", "text", "was_pushed_back")

    def __init__(self) -> None:
        self.text = ""
        self.was_pushed_back = False
        """Some of the text was put back, and what stands before that is forgotten."""
        self.at = 0
        self.seek = 0
        """Where the search for the next token goes on."""
        self.final = False
        """No more text comes."""

    def consume(self, end: int) -> str:
        """Consume the text up to `end`."""
        text = self.text[self.at : end]
        self.at = self.seek = end
        return text

    def consume_all(self) -> str:
        return self.consume(len(self.text))

    def push_back(self, text: str) -> None:
        """Put text that was consumed before the rest, to be read in another state."""
        self.was_pushed_back |= self.at > 0
        self.text, self.at, self.seek = text + self.text[self.at :], 0, 0

    @property
    def is_quoted(self) -> bool:
        """True if nothing but the `>` of a quotation stands before on the line."""
        return _QUOTED.search(self.text[max(0, self.at - LOOKBEHIND_CHARACTERS) : self.at]) is not None

    def begins_block(self, line: TokenMatch) -> bool:
        """True if a line, by its first blanks, begins the text of a key of YAML: it is indented deeper than the key."""
        key = _YAML_KEY.search(self.text[max(0, line.start() - LOOKBEHIND_CHARACTERS) : line.start()])
        return key is not None and len(line[0]) - 1 > len(key["margin"])

    @property
    def is_at_end(self) -> bool:
        """True if all text that came is consumed."""
        return self.at == len(self.text)

    def is_lone_item(self, at: int) -> bool:
        """True if an item of a list begins before `at`, and no other line so far begins as items or lines of files do.

        Where the beginning of the reply is not kept any more, the line before the item must lead to it.
        """
        before = self.text[max(0, at - LOOKBEHIND_CHARACTERS) : at]
        if self.was_pushed_back or not _ITEM.search(before):
            return False
        if at >= LOOKBEHIND_CHARACTERS:
            if not _LED_TO.search(before):
                return False
            before = before.partition("\n")[2]  # of the first line the beginning may be missing
        return len(_OF_LIST.findall(before)) == 1

    def is_blank_to(self, end: int) -> bool:
        """True if only white space stands before `end`."""
        return not self.text[self.at : end].strip(WHITESPACE)

    def is_blank(self, start: int) -> bool:
        """True if only white space follows `start`."""
        return _BLANK.match(self.text, start) is not None


# The line that a call begins on: what stands there beside it says whether it is quoted.
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
"""Quotation marks and the bar before a cell of a table, and what ends what they begin."""

_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[ ]?[-+]\d\d:?\d\d)?"
_STAMP = rf"[\[(]?(?:{_DATE}(?:[T \t]{{1,4}}{_TIME})?|{_TIME}|\d{{8}}T\d{{4,6}}Z?)[\])]?"
# The end of a date, whatever comes before it, and the time: `Nov 22 10:00:01`, `[22/Nov/2026:10:00:01 +0000]`.
_DATED = rf"\d[ :]{_TIME}(?:[ ]\d{{4}})?\]?[ \t]*+"
_LEVEL = r"[\[(]?[A-Z]{2,9}[\])]?:?[ \t]*+"
"""Stands in a log between the time and the message: `INFO`, `[WARN]`, `UTC`, `AM`."""
_BEGINNING = rf"(?:[-+#|>]++|\d{{1,9}}[ \t]{{0,8}}[:|→]|\d{{1,9}}\t|{_STAMP})[ \t]*+"
_OF_LOG = rf"(?:(?:^|\n)[ \t]*+{_STAMP}[ \t]*+|{_DATED})(?:{_BEGINNING}|{_LEVEL})*\Z"
_ITEM = re.compile(r"(?:\A|\n)[ \t]*+-[ \t]++\Z")
_LED_TO = re.compile(r"[:\uff1a][ \t\r]*\n\s*-[ \t]++\Z")
_OF_LIST = re.compile(rf"^[ \t]*+{_BEGINNING}", re.MULTILINE)
_OF_FILE = re.compile(  # for at most 48 characters
    rf"(?:^|\n)[ \t]*+(?:{_BEGINNING})+\Z|\S:\d{{1,9}}:(?:\d{{1,9}}:)?[ \t]*+\Z|{_OF_LOG}"
)


# These search `LOOKBEHIND_CHARACTERS` at most.
_NO_WORD = re.compile(r"</?[\w:.-]{1,64}\s*>|<[|｜][^<>|｜\s]{1,64}[|｜]>|\[[A-Z_]{4,64}\]")
_WORD = re.compile(r"[^\W_]")
_ITEM_NUMBER = re.compile(r"[ \t]*+(?:\d{1,9}|[A-Za-z])[.)][ \t]*+")  # used with match
_LEADS = re.compile(r"""(?:(?P<sentence>[.!?…。！？．])|[:\uff1a])[\s"'”’»」』)\]*_]*+\Z""")


class Lead(Enum):
    """How the words before a call on its line lead to it."""

    NONE = auto()
    """No word is there: nothing but punctuation, tags, the number of an item, or a call that was made."""
    CLAUSE_OPEN = auto()
    """They end neither a sentence nor a clause."""
    COLON = auto()
    """They end with a colon."""
    SENTENCE = auto()


def classify_lead(before: str) -> Lead:
    """Classify the end of the text before a call."""
    line = _NO_WORD.sub("", before.rpartition("\n")[2])
    if not _WORD.search(line) or _ITEM_NUMBER.fullmatch(line):
        return Lead.NONE
    ends = _LEADS.search(line)
    if ends is None:
        return Lead.CLAUSE_OPEN
    return Lead.SENTENCE if ends["sentence"] else Lead.COLON


type LineFate = Literal["", "made", "quoted"]
"""The fate of all calls of a line: they are made, they are quoted, or it has none."""


class CallPlace(NamedTuple):
    """The place where a call begins."""

    in_line: bool = False
    """Text stands before it, on the same line."""
    lead: Lead = Lead.NONE
    shared_fate: LineFate = ""
    """The fate of the calls before it on its line, which it shares."""
    closing_mark: str = ""
    """What would end the quotation that begins directly before it; empty if none does."""
    is_file_line: bool = False
    """Nothing stands before it on the line but what lines of files, logs and diffs begin with."""
    is_item: bool = False
    """That is `- `, and no other line so far begins so: an item of a list, if nothing follows."""


def locate_call(cursor: Cursor, at: int, *, in_line: bool, shares: LineFate) -> CallPlace:
    """Tell where a call begins, by the text before `at`."""
    before = cursor.text[max(0, at - LOOKBEHIND_CHARACTERS) : at]
    if not in_line:
        return CallPlace()
    bare = before.rstrip(" \t")
    mark = QUOTATION_MARKS.get(CELL_BAR if bare.endswith(CELL_BAR) else before[-1:], "")
    of_file = _OF_FILE.search(before) is not None
    lead = Lead.NONE if shares else classify_lead(before)
    return CallPlace(True, lead, shares, mark, of_file, of_file and cursor.is_lone_item(at))


# What leaves the reader: events in order, and the white space that waits since a call may follow it.


_MAY_BE_TAG = re.compile(r"<\S")
_INDENTED = re.compile(r"\n[ \t\r]*\n(?: {4}| {0,3}\t)[ \t]*\Z")


class Last(Enum):
    """The end of the visible reply so far; white space between a call and the first text is dropped."""

    NOTHING = auto()
    CALL = auto()
    """A call or a reasoning tag, and no text was said before it."""
    TEXT = auto()
    CALL_AFTER_TEXT = auto()


class EventBuffer:
    """Collects events until they are taken."""

    __slots__ = ("_events", "_has_called", "_pieces", "has_example", "last", "line_fate", "may_have_tags", "whitespace")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._has_called = False
        self._pieces: list[str] = []  # of a text, joined once: a reply read at once is cut at each of its tokens
        self.whitespace: list[str] = []
        """White space after the last text."""
        self.last = Last.NOTHING
        self.may_have_tags = False
        """True if something in the text may be a tag."""
        self.line_fate: LineFate = ""
        """The fate of the calls on the line that the text ends with."""
        self.has_example = False
        """True if a call in a code block was an example."""

    @property
    def in_line(self) -> bool:
        """True if text stands before, on the same line."""
        return self.last is Last.TEXT and not any("\n" in text for text in self.whitespace)

    @property
    def in_paragraph(self) -> bool:
        """True if text stands on the line before."""
        return self.last is Last.TEXT and sum(text.count("\n") for text in self.whitespace) == 1

    @property
    def is_after_call(self) -> bool:
        """True if nothing was said since a call."""
        return self._has_called and self.last in (Last.CALL, Last.CALL_AFTER_TEXT)

    @property
    def is_silent(self) -> bool:
        """True if neither text nor a call was said."""
        return not self._has_called and self.last in (Last.NOTHING, Last.CALL)

    @property
    def is_indented_code(self) -> bool:
        """True if what follows is indented like code, after a blank line and text before that."""
        return self.last is Last.TEXT and _INDENTED.search("".join(self.whitespace)) is not None

    def take(self) -> list[Event]:
        """Hand over what was said since the last time."""
        events, pieces = self._events, self._pieces
        if pieces:
            events.append(Text(pieces[0] if len(pieces) == 1 else "".join(pieces)))
            pieces.clear()
        self._events = []
        return events

    def emit(self, event: Event) -> None:
        """Add an event after all that was said."""
        if self._pieces:
            self._events = self.take()
        self._events.append(event)

    def add_text(self, text: str) -> None:
        """Add visible text; white space at its end waits."""
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
        """Do for a text after another what `say` and `take` do, in one call: most of a reply comes this way."""
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
        """Add an event that keeps its place: the white space before it waits no longer."""
        self.flush_whitespace()
        self.emit(event)

    def add_call(self, event: Event) -> None:
        """Add a call, or what is left out like one. White space after it is dropped up to the first text."""
        self.emit(event)
        texted = self.last in (Last.TEXT, Last.CALL_AFTER_TEXT)
        self.last = Last.CALL_AFTER_TEXT if texted else Last.CALL
        if isinstance(event, Call | CallPiece):
            self._has_called, self.line_fate = True, "made"

    def add_refusal(self, refusal: Refusal) -> None:
        """Say why a call is none; its text follows."""
        self.emit(refusal)

    def retract(self) -> tuple[str, list[Call]]:
        """Forget the events that no one has taken yet; return their text, and the calls that it ends with."""
        events, last = self.take(), list[Call]()
        update_last_calls(last, events)
        raw = "".join([*(event.raw for event in events), *self.whitespace])
        self.whitespace.clear()
        self.last, self.may_have_tags, self._has_called, self.line_fate = Last.NOTHING, False, False, ""
        return raw, last

    def keep_whitespace(self) -> None:
        """Note that white space is kept from here on."""
        texted = self.last in (Last.TEXT, Last.CALL_AFTER_TEXT)
        self.last = Last.TEXT if texted else Last.NOTHING

    def take_whitespace(self) -> str:
        space = self.whitespace.pop() if len(self.whitespace) == 1 else "".join(self.whitespace)
        self.whitespace.clear()
        return space

    def flush_whitespace(self, *, as_text: bool = False) -> None:
        """Let go of white space that waits for more: text, unless it stands after a call."""
        if self.whitespace:
            space = self.take_whitespace()
            after_call = self.last in (Last.CALL, Last.CALL_AFTER_TEXT)
            self.emit(Markup(space) if after_call and not as_text else Text(space))


def update_last_calls(last: list[Call], events: Iterable[Event]) -> None:
    """Keep in `last` the calls after which no text came so far: those before a text were examples."""
    for event in events:
        if isinstance(event, Call):
            last.append(event)
        elif isinstance(event, Text) and not event.raw.isspace():
            last.clear()


def extract_from_reasoning(calls: Iterable[Call]) -> list[Call]:
    """Make the calls that reasoning ends with; what they were written with stays in it."""
    return [replace(call, raw="", repairs=(*call.repairs, Repair.CALL_IN_REASONING)) for call in calls]


type ReasoningTarget = Literal["reasoning_content", "keep", "drop"]
type Begins = Literal["text", "reasoning", "unknown", "either"]
"""What a reply begins with: `reasoning` if the prompt opened it. `unknown` until a closing tag shows it, which takes
the whole reply; `either` is read as text until one does that stands in no call and in no code."""
type UnknownTools = Literal["text", "allow", "drop"]


class Verdict(Enum):
    """A finding of an action; the table says which state follows. Without one, its usual state does."""

    __hash__ = object.__hash__  # that of `Enum` is a call in Python

    CONTENT = auto()
    """The token is content and is passed over."""
    QUOTED = auto()
    """A call that a code span may quote."""
    ENDS = auto()
    """The code span ends, or what was in doubt is decided."""
    INDENTED = auto()
    """A line of indented code or a quoted one begins, or goes on."""
    UNBOUNDED = auto()
    """The code span, or the markup in doubt, is too long to be one."""
    ATTRIBUTES = auto()
    """The call's parameters stand in its opening tag."""
    AROUND = auto()
    """An element stands around the parameters."""
    JSON = auto()
    """The call's arguments are JSON, or have another grammar that knows its own end."""
    GUESS = auto()
    """A parameter begins that may be none."""
    SOLE = auto()
    """The value of the tool's one parameter follows, without tags."""
    CLOSED = auto()
    """The call's opening tag closes itself."""
    CLOSERS = auto()
    """The parameters are complete, and the call's closers follow."""
    REFUSED = auto()
    """It is no call; its text is given back."""
    SPILLED = auto()
    """It is no call, and its text goes on."""
    DAMAGED = auto()
    """The strict reading failed; where the call ends must show."""
    WHOLE = auto()
    """The section of calls ends, which must be the whole reply."""
    UNDECIDED = auto()
    """The call is complete, and what follows may show that it is quoted."""
    REASONING = auto()
    """The reply begins inside of the reasoning."""
    UNKNOWN = auto()
    """It may."""
    PROMPTED = auto()
    """It does or may, unless a call follows."""
    WAIT = auto()
    """More text is needed."""


class NotCompared(Exception):
    """To tell whether a call is an echo would take too much."""


class EchoFinder(Protocol):
    """Knows the calls that stand in the results of the request."""

    def find_source(self, written: str, calls: Iterable[ToolCall]) -> str | None:
        """Name the tool in whose result one of these calls stands, which are `written` so; None if they are no echo.

        Raises `NotCompared`.
        """


class ModelFacts(NamedTuple):
    """Facts about the model that writes, and about what it was told, that decide what is a call."""

    tokens: frozenset[str] = frozenset()
    """The names of the dialects of which the special tokens are its own."""
    echoes: EchoFinder | None = None
    steers: bool = False
    """A message stands in the place of an echo."""
    compares_all: bool = False
    """A call that takes too much to compare with the results is none."""
    placeholder: str = ""
    """The text that stands for each value in the example of a call that VTC wrote into the prompt."""


NO_MODEL_FACTS = ModelFacts()


type StepOutcome = tuple[Verdict | None, Any] | Verdict | None
"""The result of an action: its verdict, with the data that the object of the next state is made with."""
type Refused = Literal[Verdict.REFUSED]


class StateHandler(Protocol):
    """The object of a state: its actions and its data. `transitions.py` says which class a state has."""

    def feed_plain(self, text: str) -> list[Event]:
        """Take text in which no token begins."""

    def release(self, reason: str) -> None:
        """Give back the call that is held, if there is one."""


class ReplyBeginning:
    """The beginning of a reply, as far as it shows by now: text or reasoning."""

    __slots__ = ("began_inside", "begins", "calls_in_reasoning", "is_certain", "prompted", "undecided")

    def __init__(self, begins: Begins) -> None:
        self.begins = begins
        """What the text that follows begins with, if nothing was read yet; else `text`."""
        self.began_inside: bool | None = None
        """Whether the reply began inside of the reasoning; None as long as it does not show."""
        self.is_certain = True
        """False if nothing but a tag amid a line showed it, which proves nothing."""
        self.undecided = begins == "either"
        """What was read may prove to be reasoning: none of it has left yet."""
        self.prompted = False
        """That is so as it begins with a call, where the prompt may have opened the reasoning."""
        self.calls_in_reasoning: list[Call] = []
        """The calls that what proved to be reasoning ends with."""

    def record_began_inside(self, began_inside: bool) -> None:
        """Note whether the reply began inside of the reasoning, unless that showed before."""
        if self.began_inside is None:
            self.began_inside = began_inside

    def mark_as_text(self) -> None:
        """Note that text follows, and that nothing of what was read is reasoning."""
        self.begins, self.undecided = "text", False


class Context:
    """One reader's settings, its text, and what it says."""

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
        *,
        lenient: bool,
        unknown_tools: UnknownTools,
        most_held: int,
        think: ReasoningTarget,
        begins: Begins,
        incremental: bool = False,
        own: ModelFacts = NO_MODEL_FACTS,
        client_dialect: str | None = None,
    ) -> None:
        self.facts = own
        self.incremental = incremental
        """Calls leave as they are read, where that is possible."""
        self.client_dialect = client_dialect
        """The name of the dialect in which the client reads calls out of the text; None if it is given them."""
        self.grammar = grammar
        self.tools = tools
        self.lenient = lenient
        self.unknown_tools = unknown_tools
        self.max_held = most_held
        """Bytes of one call; characters of a code span whose end must show."""
        self.think = think
        self.beginning = ReplyBeginning(begins)
        self.complete = True
        """The model ended its reply by itself."""
        self._names: Collection[str] | None = None  # in any case; made when it is needed
        self.cursor = Cursor()
        self.output = EventBuffer()

    def offers(self, written: str) -> bool:
        """Tell whether the tool is offered whose name makes the markup."""
        if self._names is None:
            self._names = tool_names.fold_names(self.tools)
        return tool_names.strip_prefix(written).casefold() in self._names

    def is_own(self, syntax: CallSyntax) -> bool:
        """True if a call is marked by special tokens of the model that writes."""
        return syntax.has_tokens and syntax.dialect.name in self.facts.tokens

    def restrict_to_own_tokens(self) -> None:
        """Read nothing more than whole calls in the model's special tokens: the rest of the reply is quoted."""
        self.grammar, self.complete = self.grammar.with_special_tokens(self.facts.tokens), False

    @property
    def may_repair_end(self) -> bool:
        """True if faults at the end of the text are mended."""
        return self.cursor.final and self.complete and self.lenient


class TextHandler:
    """A state outside of calls and reasoning: its text is visible."""

    __slots__ = ("context",)

    def __init__(self, context: Context) -> None:
        self.context = context

    def feed_plain(self, text: str) -> list[Event]:
        self.context.output.add_text(text)
        return self.context.output.take()

    def release(self, reason: str) -> None:
        """Nothing: no call is held."""

    def emit_text(self, end: int) -> None:
        context = self.context
        context.output.add_text(context.cursor.consume(end))
