"""The reader as a table: in each state, what every token does and which state follows.

`reader.py` turns the crank. A token that the table does not know in a state is an error of ours. A picture of it is in
docs/reader.md, drawn from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from vtc.dialects.reading.after_call import NEVER, AfterCall, Invented, Spilled, Undecided
from vtc.dialects.reading.beginning import next_call
from vtc.dialects.reading.call import InCall, InJson, ends, value_ends
from vtc.dialects.reading.code import InCode, begin_first_line, begin_in_text, begin_line, open_code
from vtc.dialects.reading.context import Verdict
from vtc.dialects.reading.doubt import InDoubt, doubt
from vtc.dialects.reading.text import InReasoning, InText
from vtc.dialects.reading.value import InValue
from vtc.dialects.syntax.pattern import Scan


class State(Enum):
    __hash__ = object.__hash__  # that of `Enum` is a call in Python, and states are looked up for every token

    START = "start"
    """Nothing but white space yet: what only counts for a whole reply may begin here."""
    TEXT = "text"
    DOUBT = "doubt"
    """Behind markup that is none of the message where a call follows it, or the end of the reply."""
    INFO = "info"
    """After a code block's opening fence, up to the end of its line."""
    FENCE = "fence"
    """In a code block, or in an element that quotes."""
    LINE = "line"
    """In a line of indented code, or in one that quotes."""
    SPAN = "span"
    """After backticks that may open a code span."""
    QUOTED = "quoted"
    """In a code span, after the opening tag of a call."""
    REASONING = "reasoning"
    UNKNOWN = "unknown"
    """At the beginning of a whole reply, which may be reasoning that the prompt opened."""
    ARGUMENTS = "arguments"
    """After a call's opening tag: parameters follow."""
    SOLE = "sole"
    """After a call's opening tag: the value of its one parameter, without tags."""
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
    """What happens, and the state after that: `next`, or one of `others` by the verdict of the action."""

    action: Callable[..., Verdict | None]
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


class Row(NamedTuple):
    """One state."""

    scan: Callable[[Any], Scan | None]
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


_OF_CALL = {Verdict.JSON: State.JSON, Verdict.ATTRIBUTES: State.ATTRIBUTES}
_COMPLETE = {Verdict.UNDECIDED: State.UNDECIDED, Verdict.REFUSED: State.TEXT}
_NO_CALL = {**_COMPLETE, Verdict.SPILLED: State.SPILL}
_TO_CONTENT = {Verdict.CONTENT: State.VALUE, Verdict.REFUSED: State.TEXT}
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
_END_IN_CALL = Step(ends, State.TEXT, {Verdict.REFUSED: State.TEXT})

TABLE: Mapping[State, Row] = {
    State.START: Row(
        lambda inside: inside.start,
        Tokens(
            h=_begin(State.START),
            think=Step(InText.think, State.REASONING),
            closed=Step(InText.closed, State.START),
            marker=Step(InText.marker, State.START),  # gpt-oss: <|start|>assistant<|channel|>analysis<|message|>
            line=Step(
                begin_first_line,
                State.TEXT,
                {Verdict.INDENTED: State.LINE, Verdict.REASONING: State.REASONING, Verdict.UNKNOWN: State.UNKNOWN},
            ),
        ),
        otherwise=Step(InText.other, State.TEXT, {Verdict.REASONING: State.REASONING, Verdict.UNKNOWN: State.UNKNOWN}),
    ),
    State.TEXT: Row(
        lambda inside: inside.scan,
        Tokens(
            h=_begin(State.TEXT),
            marker=Step(InText.marker, State.TEXT),
            stray=Step(InText.stray, State.TEXT, {Verdict.REASONING: State.START}),
            ending=_DOUBT,
            orphan=_DOUBT,
            wrapper=_DOUBT,
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
    State.DOUBT: Row(
        lambda inside: inside.scan,
        Tokens(
            h=Step(InDoubt.call, State.ARGUMENTS, {**_OF_CALL, Verdict.CONTENT: State.TEXT}),
            ending=_DOUBT_MORE,
            orphan=_DOUBT_MORE,
            wrapper=_DOUBT_MORE,
        ),
        otherwise=Step(InDoubt.decided, State.TEXT),
    ),
    State.INFO: Row(
        lambda inside: inside.info,
        Tokens(
            newline=Step(InCode.info_end, State.FENCE),
            ticks=Step(InCode.info_ticks, State.SPAN, {Verdict.CONTENT: State.INFO, Verdict.ENDS: State.TEXT}),
        ),
        text=Step(InCode.say, State.INFO),
    ),
    State.FENCE: Row(
        lambda inside: inside.block,
        Tokens(
            h=Step(InCode.call, State.ARGUMENTS, {**_OF_CALL, Verdict.CONTENT: State.FENCE}),
            unfence=Step(InCode.through, State.TEXT, {Verdict.CONTENT: State.FENCE}),
            unfence_end=Step(InCode.through, State.TEXT, {Verdict.CONTENT: State.FENCE}),
        ),
        text=Step(InCode.say, State.FENCE),
        flows=True,
        spoken=True,
    ),
    State.LINE: Row(
        lambda inside: inside.line,
        Tokens(
            h=Step(InCode.call, State.ARGUMENTS, {**_OF_CALL, Verdict.CONTENT: State.LINE}),
            fence=Step(open_code, State.INFO),
            tilde=Step(open_code, State.INFO),
            quote=Step(open_code, State.FENCE),
            line_end=Step(InCode.up_to, State.TEXT),
        ),
        text=Step(InCode.say, State.LINE),
        flows=True,
        spoken=True,
    ),
    State.SPAN: Row(
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
    State.QUOTED: Row(
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
    State.REASONING: Row(
        lambda inside: inside.scan,
        _reasoning(State.REASONING),
        text=Step(InReasoning.say, State.REASONING),
        flows=True,
    ),
    State.UNKNOWN: Row(
        lambda inside: inside.scan,
        _reasoning(State.UNKNOWN),
        text=Step(InReasoning.pass_over, State.UNKNOWN),
        end=Step(InReasoning.none, State.START),
    ),
    State.ARGUMENTS: Row(
        lambda inside: inside.arguments,
        Tokens(
            p=Step(
                InCall.param,
                State.VALUE,
                {Verdict.GUESS: State.GUESS, Verdict.AROUND: State.ARGUMENTS, Verdict.REFUSED: State.TEXT},
            ),
            tail=Step(InCall.no_params, State.AFTER, _NO_CALL),
            closer=Step(InCall.orphan, State.ARGUMENTS, {Verdict.REFUSED: State.TEXT}),
            json=Step(InCall.json_arguments, State.JSON, {Verdict.JSON: State.JSON}),
        ),
        otherwise=Step(
            InCall.nothing,
            State.AFTER,
            {**_NO_CALL, Verdict.GUESS: State.SOLE, Verdict.CONTENT: State.ARGUMENTS},
        ),
    ),
    State.SOLE: Row(
        lambda inside: inside.sole,
        Tokens(
            tail=Step(InCall.sole_end, State.AFTER, _NO_CALL),
            lt=Step(InCall.sole_tag, State.TEXT, {Verdict.REFUSED: State.TEXT}),
        ),
        text=Step(InCall.sole_value, State.SOLE, {Verdict.REFUSED: State.TEXT}),
        end=_END_IN_CALL,
    ),
    State.ATTRIBUTES: Row(
        lambda inside: inside.attributes,
        Tokens(
            end=Step(
                InCall.attributes_end,
                State.TAIL,
                {**_NO_CALL, Verdict.CONTENT: State.ATTRIBUTES, Verdict.DONE: State.AFTER},
            ),
        ),
        text=Step(InCall.hold, State.ATTRIBUTES),
        end=_END_IN_CALL,
    ),
    State.VALUE: Row(
        lambda inside: inside.scan,
        Tokens(
            o=Step(InValue.quoted_param, State.VALUE),
            q=Step(InValue.quoted_call, State.VALUE),
            tail=Step(InValue.quoted_tail, State.VALUE, {Verdict.REFUSED: State.TEXT}),
            lost=Step(InValue.lost_call, State.VALUE, {Verdict.REFUSED: State.TEXT}),
            c=Step(InValue.closer, State.CLOSING, {Verdict.REFUSED: State.TEXT}),
        ),
        text=Step(InValue.hold, State.VALUE),
        end=Step(value_ends, State.TEXT, {Verdict.DAMAGED: State.DAMAGED, Verdict.REFUSED: State.TEXT}),
        flows=True,
    ),
    State.GUESS: Row(
        lambda inside: inside.guess,
        Tokens(
            c=Step(InValue.closer, State.CLOSING, {Verdict.REFUSED: State.TEXT}),
            lt=Step(InValue.no_param, State.TEXT, {Verdict.REFUSED: State.TEXT}),
        ),
        text=Step(InValue.hold_guess, State.GUESS, {Verdict.REFUSED: State.TEXT}),
        end=_END_IN_CALL,
    ),
    State.CLOSING: Row(
        lambda inside: inside.closing,
        Tokens(
            p=Step(InValue.next_param, State.VALUE, {**_TO_CONTENT, Verdict.GUESS: State.GUESS}),
            tail=Step(InValue.call_closer, State.AFTER, {**_TO_CONTENT, **_NO_CALL}),
            c=Step(InValue.closer_again, State.CLOSING, _TO_CONTENT),
            last=Step(InValue.last_tag, State.AFTER, {**_TO_CONTENT, **_NO_CALL}),
            m=Step(InValue.call_follows, State.VALUE, _TO_CONTENT),
            garbled=Step(InValue.garbled_opener, State.VALUE, _TO_CONTENT),
        ),
        otherwise=Step(InValue.content_or_end, State.AFTER, {**_TO_CONTENT, **_NO_CALL}),
    ),
    State.JSON: Row(
        lambda _: None,
        Tokens(),
        otherwise=Step(
            InJson.read,
            State.TAIL,
            {**_NO_CALL, Verdict.DAMAGED: State.DAMAGED, Verdict.WAIT: State.JSON},
        ),
        end=_END_IN_CALL,
    ),
    State.TAIL: Row(
        lambda inside: inside.tail,
        Tokens(
            tail=_DONE,
            extra=Step(InCall.extra, State.AFTER, _NO_CALL),
            wrong=Step(InCall.wrong_closer, State.AFTER, _NO_CALL),
            m=Step(InCall.next_call, State.AFTER, _NO_CALL),
        ),
        otherwise=Step(InCall.no_tail, State.AFTER, {**_NO_CALL, Verdict.DAMAGED: State.DAMAGED}),
    ),
    State.AFTER: Row(
        lambda inside: inside.scan,
        Tokens(
            o=Step(AfterCall.closer, State.AFTER, {Verdict.WHOLE: State.WHOLE}),
            invented=Step(AfterCall.invented, State.INVENTED),
            next=Step(next_call, State.ARGUMENTS, {Verdict.JSON: State.JSON}),
        ),
        otherwise=_NO_MORE,
    ),
    State.INVENTED: Row(lambda _: NEVER, Tokens(), text=Step(Invented.leave_out, State.INVENTED)),
    State.UNDECIDED: Row(
        lambda inside: inside.scan,
        Tokens(
            o=Step(Undecided.closer, State.UNDECIDED),
            next=Step(next_call, State.ARGUMENTS, {Verdict.JSON: State.JSON}),
            decided=Step(Undecided.decided, State.AFTER),
        ),
        otherwise=_NO_MORE,
    ),
    State.WHOLE: Row(
        lambda inside: inside.end,
        Tokens(end=Step(AfterCall.ends, State.TEXT)),
        otherwise=Step(AfterCall.not_whole, State.TEXT),
    ),
    State.DAMAGED: Row(
        lambda inside: inside.damaged,
        Tokens(d=Step(InCall.damage_end, State.AFTER, _COMPLETE)),
        otherwise=Step(InCall.damage_end, State.AFTER, _COMPLETE),
        text=Step(InCall.hold, State.DAMAGED),
        flows=True,
    ),
    State.SPILL: Row(
        lambda inside: inside.scan,
        Tokens(closer=Step(Spilled.through, State.TEXT)),
        text=Step(Spilled.say, State.SPILL),
        flows=True,
    ),
}
