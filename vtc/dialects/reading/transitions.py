"""The reader's transition table: for each state its handler class, the action of each token and the next state.

`reader.py` runs the table and creates the handlers. An action sets no state: it returns a verdict and the data of the
next handler. A token without an entry is a bug in VTC. docs/reader.md has a diagram.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from vtc.dialects.reading.after_call import AfterCall, Invented, Spilled, Undecided
from vtc.dialects.reading.after_opener import AfterOpener, InAttributes, InSoleValue
from vtc.dialects.reading.after_value import AfterValue
from vtc.dialects.reading.call import NEVER, AfterArguments, InDamagedCall, InJson
from vtc.dialects.reading.call_opener import open_call_in_line, open_listed_call, open_next_call, open_next_closed
from vtc.dialects.reading.context import StateHandler, StepOutcome, Verdict
from vtc.dialects.reading.text import (
    InCode,
    InDoubt,
    InReasoning,
    InText,
    begin_doubt,
    begin_first_line,
    begin_in_text,
    begin_line,
    open_code,
)
from vtc.dialects.reading.value import InGuess, InValue
from vtc.dialects.syntax.scan import Scan, get_token_kind
from vtc.dialects.syntax.tokens import NO_TOKENS, TokenKind


class State(Enum):
    __hash__ = object.__hash__  # `Enum.__hash__` is a Python call, and each token looks up a state

    START = "start"
    """Only white space so far: a call that must be the whole reply can begin here."""
    PROMPTED = "prompted"
    """Like `start` if the prompt may have opened the reasoning: a reply that begins with a call has none."""
    TEXT = "text"
    """In the visible text of a reply."""
    ANSWER = "answer"
    """Between markers that declare everything to be text."""
    DOUBT = "doubt"
    """After markup, for example a stray closing tag, that is dropped if a call or the end of the reply follows."""
    INFO = "info"
    """After a code block's opening fence, up to the end of its line."""
    FENCE = "fence"
    """In a code block or in a quoting element."""
    FENCED = "fenced"
    """In a code block, after the opening tag of a call in the model's special tokens."""
    LINE = "line"
    """In a line of indented code or of a quotation."""
    SPAN = "span"
    """After backticks that may open a code span."""
    QUOTED = "quoted"
    """In a code span, after the opening tag of a call."""
    REASONING = "reasoning"
    """Between reasoning tags."""
    UNKNOWN = "unknown"
    """In the first text of a reply that may begin inside reasoning that the prompt opened."""
    ARGUMENTS = "arguments"
    """After a call's opening tag: parameters follow."""
    SOLE = "sole"
    """After a call's opening tag: the value of its only parameter, without tags."""
    CLOSED = "closed"
    """After the self-closing tag of a call."""
    ATTRIBUTES = "attributes"
    """In the opening tag of a call whose parameters are attributes."""
    VALUE = "value"
    """In the value of a parameter."""
    GUESS = "guess"
    """In the value of a possible parameter, whose name is not declared."""
    CLOSING = "closing"
    """After a closer of the parameter: it is content of the value, unless structure follows."""
    JSON = "json"
    """In self-delimiting arguments."""
    TAIL = "tail"
    """After self-delimiting arguments or attributes: closers follow."""
    AFTER = "after"
    """After a call."""
    INVENTED = "invented"
    """In a result that the model invented, up to the end of the reply."""
    UNDECIDED = "undecided"
    """After a call that is quoted if text follows."""
    WHOLE = "whole"
    """After a section of calls that counts only if it is the whole reply."""
    DAMAGED = "damaged"
    """In a broken call that is repaired once its end is found: at the next call or the end of the reply."""
    SPILL = "spill"
    """In a broken call that is already given up: its text is emitted, and no call begins before its closer."""


class Step(NamedTuple):
    """One entry of the table: the action for a token in a state, and the states that can follow it."""

    token: TokenKind
    action: Callable[..., StepOutcome]
    next: State
    """The next state if the action returns no verdict."""
    by_verdict: Mapping[Verdict, State] = {}
    """The next state for each verdict that the action may return."""


class Steps(dict[str, Step]):
    """The steps of a state by token name; numbered tokens share the step of their kind."""

    def __missing__(self, name: str) -> Step:
        kind = get_token_kind(name)
        if kind == name:
            raise KeyError(name)
        self[name] = self[kind]
        return self[name]


class StateRow[Of: StateHandler](NamedTuple):
    """The row of one state: its handler, the tokens that it looks for, and its steps."""

    handler: type[Of]
    """The class of the state's handler. If the previous state's handler has this class, it is reused."""
    scan: Callable[[Of], Scan | None]
    """Returns the scan for the state's tokens, given its handler; None if the arguments show their own end."""
    skips_plain: bool = False
    """True if text in which no token begins can take the fast path of `Reader.feed`."""
    is_visible: bool = False
    """True if text is emitted as soon as no token can begin in it."""
    steps: Steps = Steps()
    otherwise: Step | None = None
    """The step if no token of the state follows: taken at once without a `text` step, otherwise at the end of the
    text."""
    text: Step | None = None
    """The step for text before a token; None if a token must follow at once, after white space at most."""
    end: Step | None = None
    """The step at the end of the reply, when no other step is left."""


def _scan_nothing(_: StateHandler) -> None:
    """Return no scan, because self-delimiting arguments show their own end."""


def _scan_never(_: StateHandler) -> Scan:
    return NEVER


STATES: Mapping[State, StateRow[Any]] = {
    State.START: StateRow(InText, InText.scan_start),
    State.PROMPTED: StateRow(InText, InText.scan_first_call),
    State.TEXT: StateRow(InText, InText.scan, skips_plain=True, is_visible=True),
    State.ANSWER: StateRow(InText, InText.scan_answer, skips_plain=True, is_visible=True),
    State.DOUBT: StateRow(InDoubt, InDoubt.scan),
    State.INFO: StateRow(InCode, InCode.scan_info),
    State.FENCE: StateRow(InCode, InCode.scan_block, skips_plain=True, is_visible=True),
    State.FENCED: StateRow(InCode, InCode.scan_block_end),
    State.LINE: StateRow(InCode, InCode.scan_line, skips_plain=True, is_visible=True),
    State.SPAN: StateRow(InCode, InCode.scan_span, skips_plain=True, is_visible=True),
    State.QUOTED: StateRow(InCode, InCode.scan_span_end),
    State.REASONING: StateRow(InReasoning, InReasoning.scan, skips_plain=True),
    State.UNKNOWN: StateRow(InReasoning, InReasoning.scan),
    State.ARGUMENTS: StateRow(AfterOpener, AfterOpener.scan),
    State.SOLE: StateRow(InSoleValue, InSoleValue.scan),
    State.CLOSED: StateRow(AfterOpener, _scan_nothing),
    State.ATTRIBUTES: StateRow(InAttributes, InAttributes.scan),
    State.VALUE: StateRow(InValue, InValue.scan, skips_plain=True),
    State.GUESS: StateRow(InGuess, InGuess.scan),
    State.CLOSING: StateRow(AfterValue, AfterValue.scan),
    State.JSON: StateRow(InJson, _scan_nothing),
    State.TAIL: StateRow(AfterArguments, AfterArguments.scan),
    State.AFTER: StateRow(AfterCall, AfterCall.scan),
    State.INVENTED: StateRow(Invented, _scan_never),
    State.UNDECIDED: StateRow(Undecided, Undecided.scan),
    State.WHOLE: StateRow(AfterCall, AfterCall.scan_end),
    State.DAMAGED: StateRow(InDamagedCall, InDamagedCall.scan, skips_plain=True),
    State.SPILL: StateRow(Spilled, Spilled.scan, skips_plain=True),
}
"""The states without their steps."""

_NEXT_STATES = {
    Verdict.WRAPPED: State.ARGUMENTS,
    Verdict.ATTRIBUTES: State.ATTRIBUTES,
    Verdict.CLOSED: State.CLOSED,
    Verdict.CLOSERS: State.TAIL,
    Verdict.DAMAGED: State.DAMAGED,
    Verdict.ENDS: State.TEXT,
    Verdict.GUESS: State.GUESS,
    Verdict.INDENTED: State.LINE,
    Verdict.JSON: State.JSON,
    Verdict.PROMPTED: State.PROMPTED,
    Verdict.REASONING: State.REASONING,
    Verdict.UNREAD: State.TEXT,
    Verdict.SOLE: State.SOLE,
    Verdict.SPILLED: State.SPILL,
    Verdict.UNDECIDED: State.UNDECIDED,
    Verdict.UNKNOWN: State.UNKNOWN,
    Verdict.WAIT: State.JSON,
    Verdict.WHOLE: State.WHOLE,
}
"""The next state of each verdict, unless a row of the table names another. All other verdicts keep the state."""

# The verdicts with which an action leaves its usual path, for the rows below.
_BEGINS = (Verdict.JSON, Verdict.ATTRIBUTES, Verdict.CLOSED)
_BEGINS_OR_NOT = (*_BEGINS, Verdict.CONTENT)
_BROKEN = (Verdict.UNREAD, Verdict.SPILLED, Verdict.DAMAGED)
_ENDED = (Verdict.UNREAD, Verdict.UNDECIDED, Verdict.INDENTED)
_ENDED_OR_SPILLED = (*_ENDED, Verdict.SPILLED)
_NO_PARAMETER = (Verdict.UNREAD, Verdict.GUESS)
_DECIDED = (Verdict.ENDS, Verdict.INDENTED)
_TO_AFTER = (Verdict.CONTENT, State.AFTER)
_TO_FENCE = (Verdict.CONTENT, State.FENCE)
_TO_SPAN = (Verdict.UNBOUNDED, State.SPAN)
_TO_TEXT = (Verdict.CONTENT, State.TEXT)
_TO_VALUE = (Verdict.CONTENT, State.VALUE)

type Row = tuple[State, TokenKind, Callable[..., StepOutcome], State, *tuple[Verdict | tuple[Verdict, State], ...]]
"""A state, a token, its action, the next state, and the other verdicts of the action: with the state that follows, or
alone if `_NEXT_STATES` has it."""

ROWS: tuple[Row, ...] = (
    (State.START, TokenKind.CALL_OPENER, begin_in_text, State.ARGUMENTS, *_BEGINS_OR_NOT, Verdict.INDENTED),
    (
        State.START,
        TokenKind.REASONING_OPENER,
        InText.open_reasoning,
        State.REASONING,
        Verdict.ENDS,
        Verdict.PROMPTED,
        Verdict.UNKNOWN,
    ),
    (State.START, TokenKind.REASONING_CLOSER, InText.close_empty_reasoning, State.START),
    (State.START, TokenKind.MARKER, InText.drop_marker, State.START),
    (State.START, TokenKind.ANSWER_OPENER, InText.open_answer, State.ANSWER),
    (State.START, TokenKind.QUOTING_LINE, begin_first_line, State.TEXT, Verdict.INDENTED, Verdict.PROMPTED),
    (State.START, TokenKind.OTHERWISE, InText.begin_text, State.TEXT, Verdict.PROMPTED),
    (State.PROMPTED, TokenKind.CALL_OPENER, InText.begin_with_call, State.TEXT),
    (State.PROMPTED, TokenKind.OTHERWISE, InText.begin_prompted, State.TEXT, Verdict.REASONING, Verdict.UNKNOWN),
    (State.TEXT, TokenKind.CALL_OPENER, begin_in_text, State.ARGUMENTS, *_BEGINS_OR_NOT, Verdict.INDENTED),
    (State.TEXT, TokenKind.MARKER, InText.drop_marker, State.TEXT),
    (State.TEXT, TokenKind.ANSWER_OPENER, InText.open_answer, State.ANSWER),
    (State.TEXT, TokenKind.REASONING_CLOSER, InText.handle_stray_closer, State.TEXT, (Verdict.REASONING, State.START)),
    (State.TEXT, TokenKind.TURN_END, begin_doubt, State.DOUBT, Verdict.INDENTED),
    (State.TEXT, TokenKind.ORPHAN_CLOSER, begin_doubt, State.DOUBT, Verdict.INDENTED),
    (State.TEXT, TokenKind.WRAPPER_OPENER, begin_doubt, State.DOUBT, Verdict.INDENTED),
    (State.TEXT, TokenKind.SPECIAL_OPENER, begin_doubt, State.DOUBT, Verdict.INDENTED),
    (State.TEXT, TokenKind.FENCE, open_code, State.INFO),
    (State.TEXT, TokenKind.BACKTICKS, open_code, State.SPAN),
    (State.TEXT, TokenKind.QUOTING_ELEMENT, open_code, State.FENCE),
    (State.TEXT, TokenKind.QUOTING_LINE, begin_line, State.TEXT, Verdict.INDENTED),
    (State.TEXT, TokenKind.TEXT, InText.emit_text, State.TEXT),
    (State.ANSWER, TokenKind.ANSWER_CLOSER, InText.drop_marker, State.TEXT),
    (State.ANSWER, TokenKind.TEXT, InText.emit_text, State.ANSWER),
    (State.DOUBT, TokenKind.CALL_OPENER, InDoubt.open_call, State.ARGUMENTS, *_BEGINS, _TO_TEXT),
    (State.DOUBT, TokenKind.TURN_END, InDoubt.add_markup, State.DOUBT, (Verdict.UNBOUNDED, State.TEXT)),
    (State.DOUBT, TokenKind.ORPHAN_CLOSER, InDoubt.add_markup, State.DOUBT, (Verdict.UNBOUNDED, State.TEXT)),
    (State.DOUBT, TokenKind.WRAPPER_OPENER, InDoubt.add_markup, State.DOUBT, (Verdict.UNBOUNDED, State.TEXT)),
    (State.DOUBT, TokenKind.SPECIAL_OPENER, InDoubt.add_markup, State.DOUBT, (Verdict.UNBOUNDED, State.TEXT)),
    (State.DOUBT, TokenKind.OTHERWISE, InDoubt.settle, State.TEXT),
    (State.INFO, TokenKind.LINE_END, InCode.begin_block, State.FENCE),
    (State.INFO, TokenKind.BACKTICKS, InCode.handle_info_backticks, State.SPAN, Verdict.CONTENT, Verdict.ENDS),
    (State.INFO, TokenKind.TEXT, InCode.emit_text, State.INFO),
    (
        State.FENCE,
        TokenKind.CALL_OPENER,
        InCode.buffer_quoted_call,
        State.ARGUMENTS,
        *_BEGINS_OR_NOT,
        (Verdict.QUOTED, State.FENCED),
    ),
    (State.FENCE, TokenKind.CODE_END, InCode.end_block, State.TEXT, Verdict.CONTENT),
    (State.FENCE, TokenKind.TEXT, InCode.emit_text, State.FENCE),
    (State.FENCED, TokenKind.CALL_OPENER, InCode.open_call, State.ARGUMENTS, *_BEGINS, _TO_FENCE),
    (State.FENCED, TokenKind.CODE_END, InCode.end_block, State.TEXT, _TO_FENCE),
    (State.FENCED, TokenKind.OTHERWISE, InCode.reread_unclosed, State.TEXT),
    (State.FENCED, TokenKind.TEXT, InCode.buffer_text, State.FENCED, (Verdict.UNBOUNDED, State.FENCE)),
    (State.LINE, TokenKind.CALL_OPENER, InCode.open_call, State.ARGUMENTS, *_BEGINS_OR_NOT),
    (State.LINE, TokenKind.FENCE, open_code, State.INFO),
    (State.LINE, TokenKind.QUOTING_ELEMENT, open_code, State.FENCE),
    (State.LINE, TokenKind.MARKER, InCode.drop_marker, State.LINE),
    (State.LINE, TokenKind.ANSWER_OPENER, InCode.drop_marker, State.ANSWER),
    (State.LINE, TokenKind.CODE_LINE, InCode.continue_code, State.LINE),
    (State.LINE, TokenKind.LINE_END, InCode.end_before, State.TEXT),
    (State.LINE, TokenKind.TEXT, InCode.emit_text, State.LINE),
    (State.SPAN, TokenKind.BACKTICKS, InCode.handle_backticks, State.SPAN, Verdict.ENDS),
    (
        State.SPAN,
        TokenKind.CALL_OPENER,
        InCode.buffer_quoted_call,
        State.ARGUMENTS,
        *_BEGINS_OR_NOT,
        (Verdict.QUOTED, State.QUOTED),
    ),
    (State.SPAN, TokenKind.FENCE, InCode.end_before, State.TEXT),
    (State.SPAN, TokenKind.BLANK_LINE, InCode.end_before, State.TEXT),
    (State.SPAN, TokenKind.TEXT, InCode.emit_text, State.SPAN),
    (State.QUOTED, TokenKind.BACKTICKS, InCode.handle_quoted_backticks, State.TEXT, _TO_SPAN, Verdict.CONTENT),
    (State.QUOTED, TokenKind.FENCE, InCode.reread_as_text, State.TEXT, _TO_SPAN),
    (State.QUOTED, TokenKind.BLANK_LINE, InCode.reread_as_text, State.TEXT, _TO_SPAN),
    (State.QUOTED, TokenKind.OTHERWISE, InCode.reread_as_text, State.TEXT, _TO_SPAN),
    (State.QUOTED, TokenKind.TEXT, InCode.buffer_text, State.QUOTED, _TO_SPAN),
    (State.REASONING, TokenKind.QUOTED_REASONING_TAG, InReasoning.skip_quoted_closer, State.REASONING),
    (State.REASONING, TokenKind.REASONING_OPENER, InReasoning.skip_nested_opener, State.REASONING),
    (State.REASONING, TokenKind.REASONING_CLOSER, InReasoning.close, State.START, Verdict.CONTENT),
    (State.REASONING, TokenKind.TEXT, InReasoning.emit_reasoning, State.REASONING),
    (State.UNKNOWN, TokenKind.QUOTED_REASONING_TAG, InReasoning.skip_quoted_closer, State.UNKNOWN),
    (State.UNKNOWN, TokenKind.REASONING_OPENER, InReasoning.skip_nested_opener, State.UNKNOWN),
    (State.UNKNOWN, TokenKind.REASONING_CLOSER, InReasoning.close, State.START, Verdict.CONTENT),
    (State.UNKNOWN, TokenKind.TEXT, InReasoning.pass_over, State.UNKNOWN),
    (State.UNKNOWN, TokenKind.REPLY_END, InReasoning.end_undecided, State.START),
    (
        State.ARGUMENTS,
        TokenKind.PARAMETER_OPENER,
        AfterOpener.open_parameter,
        State.VALUE,
        *_NO_PARAMETER,
        Verdict.WRAPPED,
    ),
    (State.ARGUMENTS, TokenKind.CALL_CLOSER, AfterOpener.end_empty_call, State.AFTER, *_ENDED_OR_SPILLED),
    (State.ARGUMENTS, TokenKind.OUTER_CLOSER, AfterOpener.end_at_outer_closer, State.AFTER, *_ENDED_OR_SPILLED),
    (State.ARGUMENTS, TokenKind.WRONG_CLOSER, AfterOpener.end_at_wrong_closer, State.AFTER, *_ENDED_OR_SPILLED),
    (State.ARGUMENTS, TokenKind.NEXT_CALL, AfterOpener.end_at_next_call, State.AFTER, *_ENDED_OR_SPILLED),
    (State.ARGUMENTS, TokenKind.PARAMETER_CLOSER, AfterOpener.skip_orphan_closer, State.ARGUMENTS, Verdict.UNREAD),
    (State.ARGUMENTS, TokenKind.JSON_OPENER, AfterOpener.open_json_arguments, State.JSON, Verdict.JSON, Verdict.UNREAD),
    (
        State.ARGUMENTS,
        TokenKind.OTHERWISE,
        AfterOpener.handle_missing_parameters,
        State.AFTER,
        *_ENDED_OR_SPILLED,
        Verdict.SOLE,
        Verdict.CONTENT,
    ),
    (State.SOLE, TokenKind.CALL_CLOSER, InSoleValue.end_value, State.AFTER, *_ENDED_OR_SPILLED),
    (State.SOLE, TokenKind.TAG, InSoleValue.handle_tag, State.TEXT, Verdict.UNREAD, Verdict.CONTENT),
    (State.SOLE, TokenKind.TEXT, InSoleValue.buffer_value, State.SOLE, Verdict.UNREAD),
    (State.SOLE, TokenKind.REPLY_END, InSoleValue.abandon_unfinished, State.TEXT, Verdict.UNREAD),
    (State.CLOSED, TokenKind.OTHERWISE, AfterOpener.end_self_closing, State.AFTER, *_ENDED_OR_SPILLED),
    (
        State.ATTRIBUTES,
        TokenKind.TAG_END,
        InAttributes.end_tag,
        State.AFTER,
        *_ENDED_OR_SPILLED,
        Verdict.CONTENT,
        Verdict.CLOSERS,
    ),
    (State.ATTRIBUTES, TokenKind.TEXT, InAttributes.buffer_text, State.ATTRIBUTES),
    (State.ATTRIBUTES, TokenKind.REPLY_END, InAttributes.abandon_unfinished, State.TEXT, Verdict.UNREAD),
    (State.VALUE, TokenKind.PARAMETER_OPENER, InValue.skip_quoted_parameter, State.VALUE),
    (State.VALUE, TokenKind.CALL_OPENER, InValue.skip_quoted_call, State.VALUE),
    (State.VALUE, TokenKind.ELEMENT_OPENER, InValue.skip_quoted_element, State.VALUE),
    (State.VALUE, TokenKind.CALL_CLOSER, InValue.handle_call_closer, State.VALUE, Verdict.UNREAD, Verdict.DAMAGED),
    (
        State.VALUE,
        TokenKind.CLOSER_AND_CALL,
        InValue.handle_closer_and_call,
        State.VALUE,
        Verdict.UNREAD,
        Verdict.DAMAGED,
    ),
    (State.VALUE, TokenKind.PARAMETER_CLOSER, InValue.begin_closing, State.CLOSING),
    (State.VALUE, TokenKind.TEXT, InValue.buffer_text, State.VALUE),
    (State.VALUE, TokenKind.REPLY_END, InValue.end_reply, State.AFTER, *_ENDED_OR_SPILLED, Verdict.DAMAGED),
    (State.GUESS, TokenKind.PARAMETER_CLOSER, InGuess.begin_closing_guess, State.CLOSING, Verdict.UNREAD),
    (State.GUESS, TokenKind.TAG, InGuess.abandon_guess, State.TEXT, Verdict.UNREAD),
    (State.GUESS, TokenKind.TEXT, InGuess.buffer_guess, State.GUESS, Verdict.UNREAD),
    (State.GUESS, TokenKind.REPLY_END, InGuess.abandon_unfinished, State.TEXT, Verdict.UNREAD),
    (State.CLOSING, TokenKind.PARAMETER_OPENER, AfterValue.open_next_parameter, State.VALUE, *_NO_PARAMETER, _TO_VALUE),
    (State.CLOSING, TokenKind.CALL_CLOSER, AfterValue.close_call, State.AFTER, *_ENDED_OR_SPILLED, _TO_VALUE),
    (State.CLOSING, TokenKind.PARAMETER_CLOSER, AfterValue.count_closer, State.CLOSING, Verdict.UNREAD, _TO_VALUE),
    (
        State.CLOSING,
        TokenKind.OUTER_CLOSER,
        AfterValue.end_call_at_last_tag,
        State.AFTER,
        *_ENDED_OR_SPILLED,
        _TO_VALUE,
    ),
    (
        State.CLOSING,
        TokenKind.WRONG_CLOSER,
        AfterValue.end_call_at_wrong_closer,
        State.AFTER,
        *_ENDED_OR_SPILLED,
        _TO_VALUE,
    ),
    (State.CLOSING, TokenKind.NEXT_CALL, AfterValue.handle_next_call, State.AFTER, *_ENDED_OR_SPILLED, _TO_VALUE),
    (State.CLOSING, TokenKind.GARBLED_OPENER, AfterValue.handle_garbled_opener, State.VALUE, Verdict.UNREAD, _TO_VALUE),
    (State.CLOSING, TokenKind.OTHERWISE, AfterValue.handle_text_or_end, State.AFTER, *_ENDED_OR_SPILLED, _TO_VALUE),
    (State.JSON, TokenKind.OTHERWISE, InJson.read_body, State.TAIL, *_BROKEN, Verdict.WAIT),
    (State.JSON, TokenKind.REPLY_END, InJson.abandon_unfinished, State.TEXT, Verdict.UNREAD),
    (State.TAIL, TokenKind.CALL_CLOSER, AfterArguments.end_call, State.AFTER, *_ENDED_OR_SPILLED),
    (State.TAIL, TokenKind.EXTRA_BRACE, AfterArguments.end_after_extra, State.AFTER, *_ENDED_OR_SPILLED),
    (State.TAIL, TokenKind.EXTRA_FENCE, AfterArguments.end_after_extra, State.AFTER, *_ENDED_OR_SPILLED),
    (State.TAIL, TokenKind.WRONG_CLOSER, AfterArguments.note_wrong_closer, State.DAMAGED, Verdict.UNREAD),
    (State.TAIL, TokenKind.NEXT_CALL, AfterArguments.end_before_next_call, State.AFTER, *_ENDED_OR_SPILLED),
    (State.TAIL, TokenKind.NEXT_OBJECT, AfterArguments.open_next_object, State.JSON, Verdict.UNREAD, Verdict.JSON),
    (State.TAIL, TokenKind.NEXT_IN_LIST, open_listed_call, State.JSON, Verdict.JSON),
    (
        State.TAIL,
        TokenKind.OTHERWISE,
        AfterArguments.handle_missing_closer,
        State.AFTER,
        *_ENDED_OR_SPILLED,
        Verdict.DAMAGED,
    ),
    (State.AFTER, TokenKind.LATE_CLOSER, AfterCall.take_closer, State.AFTER, Verdict.WHOLE),
    (State.AFTER, TokenKind.RESULT_OPENER, AfterCall.skip_invented_result, State.INVENTED),
    (State.AFTER, TokenKind.NEXT_CALL, open_next_call, State.ARGUMENTS, Verdict.JSON),
    (State.AFTER, TokenKind.NEXT_EMPTY_CALL, open_next_closed, State.CLOSED, Verdict.CLOSED, _TO_TEXT),
    (State.AFTER, TokenKind.OTHERWISE, AfterCall.resume_text, State.TEXT, Verdict.WHOLE),
    (State.INVENTED, TokenKind.TEXT, Invented.drop_text, State.INVENTED),
    (State.UNDECIDED, TokenKind.LATE_CLOSER, Undecided.take_late_closer, State.UNDECIDED, *_DECIDED),
    (State.UNDECIDED, TokenKind.NEXT_CALL, open_next_call, State.ARGUMENTS, Verdict.JSON),
    (State.UNDECIDED, TokenKind.CALL_OPENER, open_call_in_line, State.ARGUMENTS, Verdict.JSON, _TO_AFTER),
    (State.UNDECIDED, TokenKind.LINE_END, Undecided.deliver_at_line_end, State.AFTER),
    (State.UNDECIDED, TokenKind.QUOTATION_MARK, Undecided.handle_quotation_mark, State.UNDECIDED, *_DECIDED),
    (State.UNDECIDED, TokenKind.NO_WORD, Undecided.skip_wordless, State.UNDECIDED, *_DECIDED),
    (State.UNDECIDED, TokenKind.OTHERWISE, Undecided.handle_words_or_end, State.UNDECIDED, *_DECIDED),
    (State.WHOLE, TokenKind.NOTHING_MORE, AfterCall.end_reply, State.TEXT),
    (State.WHOLE, TokenKind.TURN_END, AfterCall.take_turn_end, State.WHOLE),
    (State.WHOLE, TokenKind.OTHERWISE, AfterCall.abandon_pending, State.TEXT),
    (State.DAMAGED, TokenKind.CLOSER_AND_CALL, InDamagedCall.repair, State.AFTER, *_ENDED),
    (
        State.DAMAGED,
        TokenKind.CALL_OPENER,
        InDamagedCall.handle_next_opener,
        State.TEXT,
        Verdict.UNREAD,
        Verdict.CONTENT,
    ),
    (State.DAMAGED, TokenKind.OTHERWISE, InDamagedCall.repair, State.AFTER, *_ENDED),
    (State.DAMAGED, TokenKind.TEXT, InDamagedCall.buffer_text, State.DAMAGED),
    (State.SPILL, TokenKind.CALL_CLOSER, Spilled.resume_text, State.TEXT),
    (State.SPILL, TokenKind.TEXT, Spilled.emit_text, State.SPILL),
)


def _with_steps(state: State, row: StateRow[Any]) -> StateRow[Any]:
    """Add the steps of a state to its row."""
    steps = Steps()
    for row_state, token, action, next_state, *verdicts in ROWS:
        if row_state is not state:
            continue
        by_verdict: dict[Verdict, State] = {}
        for entry in verdicts:
            if isinstance(entry, tuple):
                verdict, other_state = entry
                by_verdict[verdict] = other_state
            else:
                by_verdict[entry] = _NEXT_STATES.get(entry, state)
        steps[token] = Step(token, action, next_state, by_verdict)
    otherwise, text, end = map(steps.get, NO_TOKENS)
    return row._replace(steps=steps, otherwise=otherwise, text=text, end=end)


TABLE: Mapping[State, StateRow[Any]] = {state: _with_steps(state, row) for state, row in STATES.items()}
