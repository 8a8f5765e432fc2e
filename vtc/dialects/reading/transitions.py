"""The reader as a table: for each state its class, what every token does and which state follows.

`reader.py` turns the crank, and makes the object of a state. An action sets no state: it returns a verdict, and the
data of the next object. What the table does not know in a state is an error of ours. docs/reader.md has a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from vtc.dialects.reading.after_call import NEVER, AfterCall, Invented, Spilled, Undecided
from vtc.dialects.reading.beginning import next_call, next_closed, next_in_line, next_listed
from vtc.dialects.reading.call import InCall, InJson, ends, value_ends
from vtc.dialects.reading.code import InCode, InDoubt, begin_first_line, begin_in_text, begin_line, doubt, open_code
from vtc.dialects.reading.context import Inside, Outcome, Verdict
from vtc.dialects.reading.text import InReasoning, InText
from vtc.dialects.reading.value import InValue
from vtc.dialects.syntax.grammar import DOUBTFUL
from vtc.dialects.syntax.scan import Scan

# The states of the reader. `transitions.py` says what each looks for, and which follows.


class State(Enum):
    __hash__ = object.__hash__  # that of `Enum` is a call in Python, and states are looked up for every token

    START = "start"
    """Nothing but white space yet: what only counts for a whole reply may begin here."""
    PROMPTED = "prompted"
    """The same where the prompt may have opened the reasoning: a reply that begins with a call does not think."""
    TEXT = "text"
    ANSWER = "answer"
    """Between markers that say that all is text."""
    DOUBT = "doubt"
    """Behind markup that is none of the message where a call follows it, or the end of the reply."""
    INFO = "info"
    """After a code block's opening fence, up to the end of its line."""
    FENCE = "fence"
    """In a code block, or in an element that quotes."""
    FENCED = "fenced"
    """In a code block, after the opening tag of a call in the model's special tokens."""
    LINE = "line"
    """In a line of indented code, or in one that quotes."""
    SPAN = "span"
    """After backticks that may open a code span."""
    QUOTED = "quoted"
    """In a code span, after the opening tag of a call."""
    REASONING = "reasoning"
    UNKNOWN = "unknown"
    """In the first text of a whole reply, which may be reasoning that the prompt opened."""
    ARGUMENTS = "arguments"
    """After a call's opening tag: parameters follow."""
    SOLE = "sole"
    """After a call's opening tag: the value of its one parameter, without tags."""
    CLOSED = "closed"
    """The opening tag of a call that closes itself was read."""
    ATTRIBUTES = "attributes"
    """In the opening tag of a call whose parameters are attributes."""
    VALUE = "value"
    GUESS = "guess"
    """In the value of a parameter that may be none."""
    CLOSING = "closing"
    """After a closer in a value: structure follows, or it is content."""
    JSON = "json"
    """In arguments that know their own end."""
    TAIL = "tail"
    """After those: closers follow."""
    AFTER = "after"
    """After a call."""
    INVENTED = "invented"
    """In a result that the model wrote itself, up to the end of the reply."""
    UNDECIDED = "undecided"
    """After a call that is quoted if text follows."""
    WHOLE = "whole"
    """After a section that must be the whole reply."""
    DAMAGED = "damaged"
    """In a call that broke, up to the next call or the end of the reply."""
    SPILL = "spill"
    """In text that was a call until it broke, up to its closer."""


class Step(NamedTuple):
    """An action, and the state after it: `next`, or one of `others` by the verdict of the action."""

    action: Callable[..., Outcome]
    next: State
    others: Mapping[Verdict, State] = {}


class Tokens(dict[str, Step]):
    """Steps by token; a token has a number where several of a kind are looked for."""

    def __missing__(self, token: str) -> Step:
        kind = token.rstrip("0123456789")
        if kind == token:
            raise KeyError(token)
        self[token] = self[kind]
        return self[token]


class StateRow[Of: Inside](NamedTuple):
    """One state."""

    inside: type[Of]
    """The class of its object. It is made when the state begins, but for one of this class that may go on."""
    scan: Callable[[Of], Scan | None]
    """What looks for its tokens; none if it finds its own end."""
    tokens: Tokens
    otherwise: Step | None = None
    """When none of its tokens follows: at once where one must follow, else at the end of the text."""
    text: Step | None = None
    """Handles the text before a token; none where a token must follow at once, white space aside."""
    end: Step | None = None
    """When the text ends here and nothing else is left to do."""
    flows: bool = False
    """Text in which no token begins needs no reading."""
    spoken: bool = False
    """Text is visible as soon as it is read."""


_OF_CALL = {Verdict.JSON: State.JSON, Verdict.ATTRIBUTES: State.ATTRIBUTES, Verdict.CLOSED: State.CLOSED}
_REFUSED = {Verdict.REFUSED: State.TEXT}
_COMPLETE = {**_REFUSED, Verdict.UNDECIDED: State.UNDECIDED, Verdict.INDENTED: State.LINE}
_NO_CALL = {**_COMPLETE, Verdict.SPILLED: State.SPILL}
_TO_CONTENT = {**_REFUSED, Verdict.CONTENT: State.VALUE}
_PROMPTED = {Verdict.PROMPTED: State.PROMPTED}
_REASONS = {Verdict.REASONING: State.REASONING, Verdict.UNKNOWN: State.UNKNOWN}
_DECIDED = {Verdict.ENDS: State.TEXT, Verdict.INDENTED: State.LINE}
_UNBOUNDED = {Verdict.UNBOUNDED: State.SPAN}


def _begin(here: State) -> Step:
    return Step(begin_in_text, State.ARGUMENTS, {**_OF_CALL, Verdict.CONTENT: here, Verdict.INDENTED: State.LINE})


def _reasoning(here: State) -> Tokens:
    return Tokens(
        quoted=Step(InReasoning.quoted, here),
        opened=Step(InReasoning.opened, here),
        unthink=Step(InReasoning.close, State.START, {Verdict.CONTENT: here}),
    )


_DOUBT = Step(doubt, State.DOUBT, {Verdict.INDENTED: State.LINE})
_DOUBT_MORE = Step(InDoubt.more, State.DOUBT, {Verdict.UNBOUNDED: State.TEXT})
_DONE = Step(InCall.done, State.AFTER, _NO_CALL)
_NO_MORE = Step(AfterCall.other, State.TEXT, {Verdict.WHOLE: State.WHOLE})
_END_IN_CALL = Step(ends, State.TEXT, _REFUSED)

TABLE: Mapping[State, StateRow[Any]] = {
    State.START: StateRow(
        InText,
        lambda inside: inside.start,
        Tokens(
            h=_begin(State.START),
            think=Step(InText.think, State.REASONING),
            closed=Step(InText.closed, State.START),
            marker=Step(InText.marker, State.START),  # gpt-oss: <|start|>assistant<|channel|>analysis<|message|>
            answer=Step(InText.answer, State.ANSWER),
            line=Step(begin_first_line, State.TEXT, {Verdict.INDENTED: State.LINE, **_PROMPTED}),
        ),
        otherwise=Step(InText.other, State.TEXT, _PROMPTED),
    ),
    State.PROMPTED: StateRow(
        InText,
        lambda inside: inside.first_call,
        Tokens(h=Step(InText.begins_with_call, State.TEXT)),
        otherwise=Step(InText.thinks, State.TEXT, _REASONS),
    ),
    State.TEXT: StateRow(
        InText,
        lambda inside: inside.scan,
        Tokens(
            h=_begin(State.TEXT),
            marker=Step(InText.marker, State.TEXT),
            answer=Step(InText.answer, State.ANSWER),
            stray=Step(InText.stray, State.TEXT, {Verdict.REASONING: State.START}),
            **dict.fromkeys(DOUBTFUL, _DOUBT),
            fence=Step(open_code, State.INFO),
            tilde=Step(open_code, State.INFO),
            ticks=Step(open_code, State.SPAN),
            quote=Step(open_code, State.FENCE),
            line=Step(begin_line, State.TEXT, {Verdict.INDENTED: State.LINE}),
        ),
        text=Step(InText.say, State.TEXT),
        flows=True,
        spoken=True,
    ),
    State.ANSWER: StateRow(
        InText,
        lambda inside: inside.answer_end,
        Tokens(answered=Step(InText.marker, State.TEXT)),
        text=Step(InText.say, State.ANSWER),
        flows=True,
        spoken=True,
    ),
    State.DOUBT: StateRow(
        InDoubt,
        lambda inside: inside.scan,
        Tokens(
            h=Step(InDoubt.call, State.ARGUMENTS, {**_OF_CALL, Verdict.CONTENT: State.TEXT}),
            **dict.fromkeys(DOUBTFUL, _DOUBT_MORE),
        ),
        otherwise=Step(InDoubt.decided, State.TEXT),
    ),
    State.INFO: StateRow(
        InCode,
        lambda inside: inside.info,
        Tokens(
            newline=Step(InCode.info_end, State.FENCE),
            ticks=Step(InCode.info_ticks, State.SPAN, {Verdict.CONTENT: State.INFO, Verdict.ENDS: State.TEXT}),
        ),
        text=Step(InCode.say, State.INFO),
    ),
    State.FENCE: StateRow(
        InCode,
        lambda inside: inside.block,
        Tokens(
            h=Step(
                InCode.fenced_call,
                State.ARGUMENTS,
                {**_OF_CALL, Verdict.CONTENT: State.FENCE, Verdict.QUOTED: State.FENCED},
            ),
            unfence=Step(InCode.through, State.TEXT, {Verdict.CONTENT: State.FENCE}),
            unfence_end=Step(InCode.through, State.TEXT, {Verdict.CONTENT: State.FENCE}),
        ),
        text=Step(InCode.say, State.FENCE),
        flows=True,
        spoken=True,
    ),
    State.FENCED: StateRow(
        InCode,
        lambda inside: inside.block_end,
        Tokens(
            h=Step(InCode.call, State.ARGUMENTS, {**_OF_CALL, Verdict.CONTENT: State.FENCE}),
            unfence=Step(InCode.through, State.TEXT, {Verdict.CONTENT: State.FENCE}),
            unfence_end=Step(InCode.through, State.TEXT, {Verdict.CONTENT: State.FENCE}),
        ),
        otherwise=Step(InCode.unclosed, State.TEXT),
        text=Step(InCode.hold, State.FENCED, {Verdict.UNBOUNDED: State.FENCE}),
    ),
    State.LINE: StateRow(
        InCode,
        lambda inside: inside.line,
        Tokens(
            h=Step(InCode.call, State.ARGUMENTS, {**_OF_CALL, Verdict.CONTENT: State.LINE}),
            fence=Step(open_code, State.INFO),
            tilde=Step(open_code, State.INFO),
            quote=Step(open_code, State.FENCE),
            marker=Step(InCode.marker, State.LINE),
            answer=Step(InCode.marker, State.ANSWER),
            more=Step(InCode.more, State.LINE),
            line_end=Step(InCode.up_to, State.TEXT),
        ),
        text=Step(InCode.say, State.LINE),
        flows=True,
        spoken=True,
    ),
    State.SPAN: StateRow(
        InCode,
        lambda inside: inside.span,
        Tokens(
            ticks=Step(InCode.span_ticks, State.SPAN, {Verdict.ENDS: State.TEXT}),
            h=Step(
                InCode.quoted_call,
                State.ARGUMENTS,
                {**_OF_CALL, Verdict.CONTENT: State.SPAN, Verdict.QUOTED: State.QUOTED},
            ),
            fence=Step(InCode.up_to, State.TEXT),
            tilde=Step(InCode.up_to, State.TEXT),
            blank=Step(InCode.up_to, State.TEXT),
        ),
        text=Step(InCode.say, State.SPAN),
        flows=True,
        spoken=True,
    ),
    State.QUOTED: StateRow(
        InCode,
        lambda inside: inside.span_end,
        Tokens(
            ticks=Step(InCode.quoted_ticks, State.TEXT, {**_UNBOUNDED, Verdict.CONTENT: State.QUOTED}),
            fence=Step(InCode.unquoted, State.TEXT, _UNBOUNDED),
            tilde=Step(InCode.unquoted, State.TEXT, _UNBOUNDED),
            blank=Step(InCode.unquoted, State.TEXT, _UNBOUNDED),
        ),
        otherwise=Step(InCode.unquoted, State.TEXT, _UNBOUNDED),
        text=Step(InCode.hold, State.QUOTED, _UNBOUNDED),
    ),
    State.REASONING: StateRow(
        InReasoning,
        lambda inside: inside.scan,
        _reasoning(State.REASONING),
        text=Step(InReasoning.say, State.REASONING),
        flows=True,
    ),
    State.UNKNOWN: StateRow(
        InReasoning,
        lambda inside: inside.scan,
        _reasoning(State.UNKNOWN),
        text=Step(InReasoning.pass_over, State.UNKNOWN),
        end=Step(InReasoning.none, State.START),
    ),
    State.ARGUMENTS: StateRow(
        InCall,
        lambda inside: inside.arguments,
        Tokens(
            p=Step(
                InCall.param, State.VALUE, {**_REFUSED, Verdict.GUESS: State.GUESS, Verdict.AROUND: State.ARGUMENTS}
            ),
            tail=Step(InCall.no_params, State.AFTER, _NO_CALL),
            last=Step(InCall.no_closer, State.AFTER, _NO_CALL),
            wrong=Step(InCall.wrong_wrapper, State.AFTER, _NO_CALL),
            m=Step(InCall.cut_by_call, State.AFTER, _NO_CALL),
            closer=Step(InCall.orphan, State.ARGUMENTS, _REFUSED),
            json=Step(InCall.json_arguments, State.JSON, {Verdict.JSON: State.JSON}),
        ),
        otherwise=Step(
            InCall.nothing, State.AFTER, {**_NO_CALL, Verdict.GUESS: State.SOLE, Verdict.CONTENT: State.ARGUMENTS}
        ),
    ),
    State.SOLE: StateRow(
        InCall,
        lambda inside: inside.sole,
        Tokens(
            tail=Step(InCall.sole_end, State.AFTER, _NO_CALL),
            lt=Step(InCall.sole_tag, State.TEXT, {**_REFUSED, Verdict.CONTENT: State.SOLE}),
        ),
        text=Step(InCall.sole_value, State.SOLE, _REFUSED),
        end=_END_IN_CALL,
    ),
    State.CLOSED: StateRow(InCall, lambda _: None, Tokens(), otherwise=Step(InCall.closed, State.AFTER, _NO_CALL)),
    State.ATTRIBUTES: StateRow(
        InCall,
        lambda inside: inside.attributes,
        Tokens(
            end=Step(
                InCall.attributes_end,
                State.AFTER,
                {**_NO_CALL, Verdict.CONTENT: State.ATTRIBUTES, Verdict.CLOSERS: State.TAIL},
            ),
        ),
        text=Step(InCall.hold, State.ATTRIBUTES),
        end=_END_IN_CALL,
    ),
    State.VALUE: StateRow(
        InValue,
        lambda inside: inside.scan,
        Tokens(
            o=Step(InValue.quoted_param, State.VALUE),
            q=Step(InValue.quoted_call, State.VALUE),
            w=Step(InValue.quoted_wrapper, State.VALUE),
            tail=Step(InValue.quoted_tail, State.VALUE, {**_REFUSED, Verdict.DAMAGED: State.DAMAGED}),
            lost=Step(InValue.lost_call, State.VALUE, {**_REFUSED, Verdict.DAMAGED: State.DAMAGED}),
            c=Step(InValue.closer, State.CLOSING, _REFUSED),
        ),
        text=Step(InValue.hold, State.VALUE),
        end=Step(value_ends, State.AFTER, {**_NO_CALL, Verdict.DAMAGED: State.DAMAGED}),
        flows=True,
    ),
    State.GUESS: StateRow(
        InValue,
        lambda inside: inside.guess,
        Tokens(
            c=Step(InValue.closer, State.CLOSING, _REFUSED),
            lt=Step(InValue.no_param, State.TEXT, _REFUSED),
        ),
        text=Step(InValue.hold_guess, State.GUESS, _REFUSED),
        end=_END_IN_CALL,
    ),
    State.CLOSING: StateRow(
        InValue,
        lambda inside: inside.closing,
        Tokens(
            p=Step(InValue.next_param, State.VALUE, {**_TO_CONTENT, Verdict.GUESS: State.GUESS}),
            tail=Step(InValue.call_closer, State.AFTER, {**_TO_CONTENT, **_NO_CALL}),
            c=Step(InValue.closer_again, State.CLOSING, _TO_CONTENT),
            last=Step(InValue.last_tag, State.AFTER, {**_TO_CONTENT, **_NO_CALL}),
            wrong=Step(InValue.wrong_wrapper, State.AFTER, {**_TO_CONTENT, **_NO_CALL}),
            m=Step(InValue.call_follows, State.AFTER, {**_TO_CONTENT, **_NO_CALL}),
            garbled=Step(InValue.garbled_opener, State.VALUE, _TO_CONTENT),
        ),
        otherwise=Step(InValue.content_or_end, State.AFTER, {**_TO_CONTENT, **_NO_CALL}),
    ),
    State.JSON: StateRow(
        InJson,
        lambda _: None,
        Tokens(),
        otherwise=Step(
            InJson.read,
            State.TAIL,
            {**_REFUSED, Verdict.SPILLED: State.SPILL, Verdict.DAMAGED: State.DAMAGED, Verdict.WAIT: State.JSON},
        ),
        end=_END_IN_CALL,
    ),
    State.TAIL: StateRow(
        InCall,
        lambda inside: inside.tail,
        Tokens(
            tail=_DONE,
            extra=Step(InCall.extra, State.AFTER, _NO_CALL),
            wrong=Step(InCall.wrong_closer, State.DAMAGED, _REFUSED),
            m=Step(InCall.next_call, State.AFTER, _NO_CALL),
            another=Step(InCall.another, State.JSON, {**_REFUSED, Verdict.JSON: State.JSON}),
            listed=Step(next_listed, State.JSON, {Verdict.JSON: State.JSON}),
        ),
        otherwise=Step(InCall.no_tail, State.AFTER, {**_NO_CALL, Verdict.DAMAGED: State.DAMAGED}),
    ),
    State.AFTER: StateRow(
        AfterCall,
        lambda inside: inside.scan,
        Tokens(
            o=Step(AfterCall.closer, State.AFTER, {Verdict.WHOLE: State.WHOLE}),
            invented=Step(AfterCall.invented, State.INVENTED),
            next=Step(next_call, State.ARGUMENTS, {Verdict.JSON: State.JSON}),
            empty=Step(next_closed, State.CLOSED, {Verdict.CLOSED: State.CLOSED, Verdict.CONTENT: State.TEXT}),
        ),
        otherwise=_NO_MORE,
    ),
    State.INVENTED: StateRow(Invented, lambda _: NEVER, Tokens(), text=Step(Invented.leave_out, State.INVENTED)),
    State.UNDECIDED: StateRow(
        Undecided,
        lambda inside: inside.scan,
        Tokens(
            o=Step(Undecided.closes, State.UNDECIDED, _DECIDED),
            next=Step(next_call, State.ARGUMENTS, {Verdict.JSON: State.JSON}),
            h=Step(next_in_line, State.ARGUMENTS, {Verdict.JSON: State.JSON, Verdict.CONTENT: State.AFTER}),
            decided=Step(Undecided.decided, State.AFTER),
            mark=Step(Undecided.mark, State.TEXT, _DECIDED),
            skip=Step(Undecided.no_word, State.UNDECIDED, _DECIDED),
        ),
        otherwise=Step(Undecided.goes_on, State.TEXT, _DECIDED),
    ),
    State.WHOLE: StateRow(
        AfterCall,
        lambda inside: inside.end,
        Tokens(end=Step(AfterCall.ends, State.TEXT), ending=Step(AfterCall.turn_end, State.WHOLE)),
        otherwise=Step(AfterCall.not_whole, State.TEXT),
    ),
    State.DAMAGED: StateRow(
        InCall,
        lambda inside: inside.damaged,
        Tokens(
            d=Step(InCall.damage_end, State.AFTER, _COMPLETE),
            cut=Step(InCall.cut_off, State.TEXT, {**_REFUSED, Verdict.CONTENT: State.DAMAGED}),
        ),
        otherwise=Step(InCall.damage_end, State.AFTER, _COMPLETE),
        text=Step(InCall.hold, State.DAMAGED),
        flows=True,
    ),
    State.SPILL: StateRow(
        Spilled,
        lambda inside: inside.scan,
        Tokens(closer=Step(Spilled.through, State.TEXT)),
        text=Step(Spilled.say, State.SPILL),
        flows=True,
    ),
}
