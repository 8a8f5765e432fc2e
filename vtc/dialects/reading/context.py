"""The settings and the text that the states of a reader share, and the verdicts that their actions return."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Any, Literal, NamedTuple, Protocol

from vtc.dialects.reading.cursor import Cursor, Found
from vtc.dialects.reading.speech import Speech
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.grammar import Grammar
from vtc.dialects.syntax.scan import OFFERED, Scan
from vtc.events import Call, Event, Tool, ToolCall

type Thoughts = Literal["reasoning_content", "keep", "drop"]
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

    def of(self, written: str, calls: Iterable[ToolCall]) -> str | None:
        """Name the tool in whose result one of these calls stands, which are `written` so; None if they are no echo.

        Raises `NotCompared`.
        """


class ModelFacts(NamedTuple):
    """What is known of the model that writes, and of what it was told, as far as it decides what is a call."""

    tokens: frozenset[str] = frozenset()
    """The names of the dialects of which the special tokens are its own."""
    echoes: EchoFinder | None = None
    steers: bool = False
    """A message stands in the place of an echo."""
    compares_all: bool = False
    """A call that takes too much to compare with the results is none."""
    blank: str = ""
    """The text that stands for each value in the example of a call that VTC wrote into the prompt."""


KNOWN_NOTHING = ModelFacts()


type Outcome = tuple[Verdict | None, Any] | Verdict | None
"""The result of an action: its verdict, with the data that the object of the next state is made with."""
type Refused = Literal[Verdict.REFUSED]


class Inside(Protocol):
    """The object of a state: its actions and its data. `transitions.py` says which class a state has."""

    def plain(self, text: str) -> list[Event]:
        """Take text in which no token begins."""

    def release(self, reason: str) -> None:
        """Give back the call that is held, if there is one."""


class Context:
    """One reader's settings, its text, and what it says."""

    __slots__ = (
        "_names",
        "began_inside",
        "begins",
        "client_dialect",
        "complete",
        "cursor",
        "grammar",
        "incremental",
        "lenient",
        "most_held",
        "own",
        "prompted",
        "shows_beginning",
        "speech",
        "think",
        "thought",
        "tools",
        "undecided",
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
        think: Thoughts,
        begins: Begins,
        incremental: bool = False,
        own: ModelFacts = KNOWN_NOTHING,
        client_dialect: str | None = None,
    ) -> None:
        self.own = own
        self.incremental = incremental
        """Calls leave as they are read, where that is possible."""
        self.client_dialect = client_dialect
        """The name of the dialect in which the client reads calls out of the text; None if it is given them."""
        self.grammar = grammar
        self.tools = tools
        self.lenient = lenient
        self.unknown_tools = unknown_tools
        self.most_held = most_held
        """Bytes of one call; characters of a code span whose end must show."""
        self.think = think
        self.begins = begins
        self.began_inside: bool | None = None
        """Whether the reply began inside of the reasoning; None as long as it does not show."""
        self.shows_beginning = True
        """False if nothing but a tag amid a line showed it, which proves nothing."""
        self.undecided = begins == "either"
        """What was read may prove to be reasoning: none of it has left yet."""
        self.prompted = False
        """That is so as it begins with a call, where the prompt may have opened the reasoning."""
        self.thought: list[Call] = []
        """The calls that what proved to be reasoning ends with."""
        self.complete = True
        """The model ended its reply by itself."""
        self._names: Collection[str] | None = None  # in any case; made when it is needed
        self.cursor = Cursor()
        self.speech = Speech()

    def find(self, scan: Scan, *, searching: bool) -> Found | None:
        """Find the next token, or the one that stands here; one with a tool's name is none if that is not offered."""
        text, final = self.cursor.text, self.cursor.final
        finder = scan.at_end if final else scan.while_open
        found = (finder.search if searching else finder.match)(text, self.cursor.seek)
        while found and (name := f"{OFFERED}_{found.lastgroup}") in found.re.groupindex:
            if self._offers(found[name]):
                break
            assert scan.unnamed is not None
            start = found.start()
            found = (scan.unnamed.at_end if final else scan.unnamed.while_open).match(text, start)
            if not found and searching:
                found = finder.search(text, start + 1)
        return found

    def _offers(self, written: str) -> bool:
        """Tell whether the tool is offered whose name makes the markup."""
        if self._names is None:
            self._names = tool_names.folded(self.tools)
        return tool_names.unprefixed(written).casefold() in self._names

    def is_own(self, syntax: CallSyntax) -> bool:
        """True if a call is marked by special tokens of the model that writes."""
        return syntax.has_tokens and syntax.dialect.name in self.own.tokens

    def keep_own(self) -> None:
        """Read nothing more than whole calls in the model's special tokens: the rest of the reply is quoted."""
        self.grammar, self.complete = self.grammar.of_tokens(self.own.tokens), False

    @property
    def may_mend(self) -> bool:
        """True if faults at the end of the text are mended."""
        return self.cursor.final and self.complete and self.lenient


class SaysText:
    """A state outside of calls and reasoning: its text is visible."""

    __slots__ = ("context",)

    def __init__(self, context: Context) -> None:
        self.context = context

    def plain(self, text: str) -> list[Event]:
        self.context.speech.say(text)
        return self.context.speech.take()

    def release(self, reason: str) -> None:
        """Nothing: no call is held."""

    def say(self, end: int) -> None:
        context = self.context
        context.speech.say(context.cursor.take(end))
