"""The states outside calls: visible text, reasoning, code, and doubtful markup that may not belong to the message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from vtc.dialects.reading.call_end import MAX_EXCERPT_CHARACTERS
from vtc.dialects.reading.call_opener import CallBeginning, begin_call
from vtc.dialects.reading.context import (
    LOOKBEHIND_CHARACTERS,
    QUOTATION_MARKS,
    WHITESPACE,
    Context,
    Last,
    TextHandler,
    TokenMatch,
    Verdict,
)
from vtc.dialects.syntax.grammar import SPAN_END
from vtc.dialects.syntax.scan import Scan, get_token_kind
from vtc.dialects.syntax.tokens import INFO_STRING, SENTENCE_ENDS, SPECIAL_TOKENS, TokenKind
from vtc.events import Event, Markup, Reasoning, Text, UnreadCall

REASONING_EVENTS: dict[str, type[Reasoning | Text | Markup]] = {
    "reasoning_content": Reasoning,
    "opened": Text,
    "keep": Text,
    "drop": Markup,
}
"""Events of reasoning by its target, for reasoning without an opening tag."""


def choose_reasoning_event(context: Context, *, opened: bool) -> type[Reasoning | Text | Markup]:
    """Return the kind of event for reasoning; `opened` is True if the reply begins with its opening tag."""
    return REASONING_EVENTS["reasoning_content" if opened and context.think == "opened" else context.think]


class InText(TextHandler):
    """Visible text outside of code, and the beginning of a reply, before any text."""

    __slots__ = ()

    def scan_start(self) -> Scan:
        return self.context.grammar.start

    def scan(self) -> Scan:
        return self.context.grammar.text

    def scan_answer(self) -> Scan:
        return self.context.grammar.answer

    def drop_marker(self, token: TokenMatch) -> None:
        """Drop a marker of the model that is not part of its message."""
        self.emit_text(token.start())
        self.context.output.emit_in_place(Markup(self.context.cursor.consume(token.end())))

    def open_answer(self, token: TokenMatch) -> None:
        """Begin an answer between markers: everything up to its closing marker is text."""
        self.context.beginning.mark_as_text()
        self.drop_marker(token)

    def open_reasoning(
        self, token: TokenMatch
    ) -> tuple[None, bool] | Literal[Verdict.ENDS, Verdict.PROMPTED, Verdict.UNKNOWN]:
        """Begin reasoning whose opening tag is in the reply.

        Without its marker the tag may be text, so a stream is buffered until a closing tag or the end decides.
        """
        context = self.context
        if token[0].strip() not in context.grammar.reasoning.closing_tags:
            is_open = context.beginning.began_inside is None and not context.beginning.undecided
            return self.begin_text() or (Verdict.UNKNOWN if is_open else Verdict.ENDS)
        # The closing tag is the proof if the model is not known to reason, unless earlier replies began inside.
        if context.think != "opened" or context.beginning.begins == "reasoning":
            context.beginning.record_began_inside(began_inside=False)
        context.beginning.mark_as_text()
        consume_tag(context, token, opened=True)
        return None, True

    def close_empty_reasoning(self, token: TokenMatch) -> None:
        """End empty reasoning, whose opening tag is in the prompt."""
        self.context.beginning.record_began_inside(began_inside=True)
        self.context.beginning.mark_as_text()
        consume_tag(self.context, token)

    def handle_stray_closer(self, token: TokenMatch) -> Literal[Verdict.REASONING] | None:
        """Handle a closing tag without an opener: the reply began inside the reasoning, unknown to the reader.

        Text that was sent stays text. Buffered text becomes reasoning, and a call at its end is accepted only if
        nothing else follows. A tag after words on its line may be a mention, so it proves nothing for other replies.
        """
        context, beginning = self.context, self.context.beginning
        # Step 1: Record that the reply began inside the reasoning.
        self.emit_text(token.start())
        if beginning.began_inside is None:
            beginning.began_inside, beginning.is_certain = True, not context.output.in_line
        # Step 2: Keep text that was already sent.
        if not beginning.undecided:
            self.emit_text(token.end())
            return None
        # Step 3: Take back the buffered text, and emit it as reasoning.
        beginning.undecided = False
        thoughts, beginning.calls_in_reasoning = context.output.retract()
        before, opener, inside = _split_at_opener(thoughts, token[0], context.grammar.reasoning.closing_tags)
        if opener:  # the reply opened the reasoning itself, in the middle of text: the text before it stays text
            beginning.began_inside = False
            context.output.add_text(before)
            if context.output.whitespace:
                context.output.emit(Text(context.output.take_whitespace()))
            emit_tag(context, opener)
        if inside:
            context.output.emit(REASONING_EVENTS[context.think](inside))
        consume_tag(context, token)
        return Verdict.REASONING

    def begin_text(self) -> Literal[Verdict.PROMPTED] | None:
        """Continue as text, unless the reply may begin inside the reasoning."""
        context, beginning = self.context, self.context.beginning
        context.cursor.seek = context.cursor.at
        if beginning.begins in ("reasoning", "unknown"):
            return Verdict.PROMPTED
        beginning.begins = "text"
        return None

    def scan_first_call(self) -> Scan:
        return self.context.grammar.first_call

    def begin_with_call(self, _: TokenMatch) -> None:
        """Parse a reply that begins with a call as text, because an argument may contain a closing reasoning tag.

        The reply is buffered until it ends, or until a closing tag follows outside of calls.
        """
        context, beginning = self.context, self.context.beginning
        beginning.begins, beginning.undecided, beginning.begins_with_call = "text", True, True
        context.cursor.seek = context.cursor.at

    def begin_prompted(self) -> Literal[Verdict.REASONING, Verdict.UNKNOWN] | None:
        """Begin inside the reasoning or in doubt about it, unless reasoning arrived in another field by now."""
        beginning = self.context.beginning
        begins, beginning.begins = beginning.begins, "text"
        if begins == "text":
            return None
        return Verdict.REASONING if begins == "reasoning" else Verdict.UNKNOWN


class InReasoning:
    """Text between reasoning tags; `opened` is True if the opening tag is in the reply, False if in the prompt."""

    __slots__ = ("_kind", "_opened", "_quoted_end", "context")

    def __init__(self, context: Context, opened: bool = False) -> None:
        self.context = context
        self._opened = opened
        self._quoted_end = ""
        """The closing tag of an opening tag inside the reasoning; the next closer does not end the reasoning then."""
        self._kind = choose_reasoning_event(context, opened=opened)

    def scan(self) -> Scan:
        reasoning = self.context.grammar.reasoning
        return reasoning.opened if self._opened else reasoning.prefilled

    def feed_plain(self, text: str) -> list[Event]:
        return [self._kind(text)] if text else []

    def release(self, reason: str) -> None:
        """No-op: no call is buffered."""

    def emit_reasoning(self, end: int) -> None:
        if text := self.context.cursor.consume(end):
            self.context.output.emit(self._kind(text))

    def skip_quoted_closer(self, token: TokenMatch) -> None:
        """Skip a closing tag in backticks."""
        self.context.cursor.seek = token.end()

    def pass_over(self, end: int) -> None:
        """Buffer possible reasoning until its end is found."""
        self.context.cursor.seek = end

    def skip_nested_opener(self, token: TokenMatch) -> None:
        """Skip an opening tag: its closing tag, if it is the next one, does not end the reasoning."""
        self._quoted_end = self.context.grammar.reasoning.closing_tags[token[0]]
        self.context.cursor.seek = token.end()

    def end_undecided(self) -> None:
        """Parse everything as text, since no closing tag followed. A reply that was cut off stays reasoning."""
        if self.context.complete:
            self.context.beginning.began_inside = False
            self.context.cursor.seek = self.context.cursor.at
            self.context.cursor.final = False  # parsed like a stream, whose end is not known before it arrives
        else:
            self.emit_reasoning(len(self.context.cursor.text))

    def close(self, token: TokenMatch) -> Literal[Verdict.CONTENT] | None:
        """End the reasoning; the answer begins."""
        quoted_end, self._quoted_end = self._quoted_end, ""
        if token[0] == quoted_end:
            self.context.cursor.seek = token.end()
            return Verdict.CONTENT
        self.context.beginning.record_began_inside(began_inside=not self._opened)
        self.emit_reasoning(token.start())
        consume_tag(self.context, token, opened=self._opened)
        return None


def _split_at_opener(text: str, closing_tag: str, closing_tags: Mapping[str, str]) -> tuple[str, str, str]:
    """Split a text at the opening tag that pairs with a closing tag: the text before it, the tag, the text after it.

    Without such a tag, all of the text is after it. An opener may be a token and a name (Gemma: `<|channel>thought`),
    and is also found without the name.
    """
    openers = [opener for opener, closer in closing_tags.items() if closer == closing_tag]
    tokens = [opener[: opener.find(">") + 1] for opener in openers]
    opener = next((opener for opener in (*openers, *tokens) if opener and opener in text), "")
    return text.partition(opener) if opener else ("", "", text)


def consume_tag(context: Context, token: TokenMatch, *, opened: bool = False) -> None:
    """Consume a reasoning tag with the text before it, and emit it as `emit_tag` does."""
    emit_tag(context, context.cursor.consume(token.end()), opened=opened)


def emit_tag(context: Context, text: str, *, opened: bool = False) -> None:
    """Emit a reasoning tag: as text if reasoning is kept in the text, otherwise as markup, like a call."""
    if choose_reasoning_event(context, opened=opened) is Text:
        context.output.emit(Text(text))
        context.output.keep_whitespace()
    else:
        context.output.add_call(Markup(text))


MAX_FENCE_INDENT = 3
"""Columns by which a closing fence may be indented deeper than its opening fence."""
_ELEMENT = re.compile(r"<\w+")


class BlockOpener(NamedTuple):
    """The markup that opened quoted text; empty for the rest of a line after a quoted call."""

    run: str = ""
    """The backticks or tildes of a code block or span; `<name` of a quoting element; four spaces for indented code; `>`
    for a quotation; for a YAML block scalar, the line break and the blanks with which each of its lines begins."""
    margin: str = ""
    """The text before `run` on its line."""


INDENTED_CODE = BlockOpener("    ")
"""The opener of indented code."""
QUOTATION = BlockOpener(">")
type QuotedLine = tuple[Literal[Verdict.INDENTED], BlockOpener]


class InCode(TextHandler):
    """Text that quotes: a code block, a code span, an element or a comment, or a line of code or of a quotation.

    A call in such text is an example. The rules of CommonMark apply as far as they matter here: a fence is alone on its
    line, a fence that is indented deeper or quoted does not end the block, and a code span ends with as many backticks
    as it began with, at the latest at the end of its paragraph.
    """

    __slots__ = ("_margin", "_run")

    def __init__(self, context: Context, opener: BlockOpener = BlockOpener()) -> None:  # noqa: B008 - it cannot change
        super().__init__(context)
        self._run, self._margin = opener

    def scan_info(self) -> Scan:
        return INFO_STRING

    def scan_line(self) -> Scan:
        return self.context.grammar.scan_line(self._run, self.context.facts.tokens)

    def scan_block(self) -> Scan:
        return self.context.grammar.scan_quotation_end(self._run, self.context.facts.tokens)

    def scan_block_end(self) -> Scan:
        return self.context.grammar.scan_quotation_end(self._run, None)

    def scan_span(self) -> Scan:
        return self.context.grammar.span

    def scan_span_end(self) -> Scan:
        return SPAN_END

    def emit_text(self, end: int) -> None:
        """Emit text; tags inside code are not markup. The fast path forwards most code, so it cannot count them."""
        speech = self.context.output
        tagged = speech.may_have_tags
        speech.add_text(self.context.cursor.consume(end))
        speech.may_have_tags = tagged

    def begin_block(self, token: TokenMatch) -> None:
        """Begin the block, after the line of its fence."""
        self.emit_text(token.end())

    def handle_info_backticks(self, token: TokenMatch) -> Literal[Verdict.CONTENT, Verdict.ENDS] | None:
        """Handle a backtick on the line of an opening fence.

        If the fence consists of backticks, it was the beginning of a code span. After tildes, a backtick is allowed.
        """
        if self._run[0] == "~":
            self.context.cursor.seek = token.start() + 1
            return Verdict.CONTENT
        return self.handle_backticks(token)

    def end_block(self, token: TokenMatch) -> Literal[Verdict.CONTENT] | None:
        """End the block with its closer, unless the closer belongs to a nested block."""
        inner = self._run[0] != "<" and _is_inside(_get_margin(token), self._margin)
        self.emit_text(token.end())
        return Verdict.CONTENT if inner else None

    def end_before(self, token: TokenMatch) -> None:
        """End the span or the line before the token, which is parsed as text."""
        self.emit_text(token.start())

    def handle_backticks(self, token: TokenMatch) -> Literal[Verdict.ENDS] | None:
        """End the code span at as many backticks as it began with."""
        self.emit_text(token.end())
        return Verdict.ENDS if token[0] == self._run else None

    def open_call(self, token: TokenMatch) -> CallBeginning:
        """Begin a call of a dialect that is accepted in code; indented code also accepts the model's special tokens."""
        assert token.lastgroup is not None
        in_code = self.context.grammar.heads[token.lastgroup].syntax.dialect.in_code
        return begin_call(self, token, indented=self._run.isspace() and in_code != "call")

    def reread_unclosed(self) -> None:
        """Parse a block without a closing fence again, at the end of the reply.

        Only complete calls in the model's special tokens are accepted; everything else is quoted.
        """
        cursor = self.context.cursor
        if not self.context.complete:
            self.emit_text(len(cursor.text))
            return
        cursor.seek = cursor.at
        self.context.restrict_to_own_tokens()

    def drop_marker(self, token: TokenMatch) -> None:
        """Drop a marker of the model that is not part of its message."""
        self.emit_text(token.start())
        self.context.output.emit_in_place(Markup(self.context.cursor.consume(token.end())))

    def continue_code(self, token: TokenMatch) -> None:
        """Continue with the next line of indented code."""
        self.emit_text(token.end())

    def buffer_quoted_call(self, token: TokenMatch) -> CallBeginning | Literal[Verdict.QUOTED]:
        """Buffer a possible call until its code span or block ends, which shows if the call is quoted."""
        assert token.lastgroup is not None
        if self.context.grammar.heads[token.lastgroup].syntax.dialect.in_code == "call":
            return begin_call(self, token)
        self.emit_text(token.start())
        self.context.cursor.seek = token.end()
        return Verdict.QUOTED

    def buffer_text(self, end: int) -> Literal[Verdict.UNBOUNDED] | None:
        """Buffer text of a span that may quote a call."""
        self.context.cursor.seek = end
        return self._give_up_span(end)

    def handle_quoted_backticks(self, token: TokenMatch) -> Literal[Verdict.UNBOUNDED, Verdict.CONTENT] | None:
        """End the code span, which quotes the buffered call, at as many backticks as it began with."""
        if verdict := self._give_up_span(token.start()):
            return verdict
        if token[0] != self._run:
            self.context.cursor.seek = token.end()
            return Verdict.CONTENT
        self.emit_text(token.end())
        return None

    def reread_as_text(self, token: TokenMatch | None = None) -> Literal[Verdict.UNBOUNDED] | None:
        """Parse the buffer again as text, which may contain a call, because the code span was never closed."""
        cursor = self.context.cursor
        if verdict := self._give_up_span(token.start() if token else len(cursor.text)):
            return verdict
        cursor.seek = cursor.at
        return None

    def _give_up_span(self, end: int) -> Literal[Verdict.UNBOUNDED] | None:
        """Give up on a code span that exceeds the buffer before `end`: emit the buffered text."""
        limit = self.context.cursor.at + self.context.max_held
        if end <= limit:
            return None
        self.emit_text(limit)
        return Verdict.UNBOUNDED


def begin_in_text(handler: InText, token: TokenMatch) -> CallBeginning | QuotedLine:
    """Begin a call, unless its line is code or a quotation."""
    assert token.lastgroup is not None
    context = handler.context
    syntax = context.grammar.heads[token.lastgroup].syntax
    quotable, own = syntax.dialect.may_be_quoted, context.has_own_tokens(syntax)
    if quotable and (verdict := detect_quoted_line(handler, token.start(), own=own)):
        return verdict
    return begin_call(handler, token, indented=quotable and own and context.output.is_indented_code)


def begin_line(handler: InText, token: TokenMatch) -> QuotedLine | None:
    """Begin a line that looks like a quotation, indented code or a YAML block; otherwise continue as text."""
    marks = token[0].rfind(">") + 1
    if not marks and handler.context.cursor.is_in_yaml_block(token):
        handler.emit_text(token.end())
        return Verdict.INDENTED, BlockOpener(token[0])
    return detect_quoted_line(handler, token.start() + (marks or len(token[0])))


def begin_first_line(handler: InText, token: TokenMatch) -> Literal[Verdict.PROMPTED] | QuotedLine | None:
    """Begin a reply that looks like a quotation, unless it may begin inside the reasoning."""
    return handler.begin_text() or begin_line(handler, token)


def detect_quoted_line(handler: InText, end: int, *, own: bool = False) -> QuotedLine | None:
    """Emit the text up to `end`; return the verdict INDENTED if `end` is on a line of indented code or of a quotation.

    Calls on such a line are examples. With `own`, a call in the model's special tokens follows: indentation alone does
    not quote it.
    """
    context = handler.context
    handler.emit_text(end)
    if context.cursor.is_quoted:
        return Verdict.INDENTED, QUOTATION
    return (Verdict.INDENTED, INDENTED_CODE) if context.output.is_indented_code and not own else None


def open_code(handler: InText | InCode, token: TokenMatch) -> tuple[None, BlockOpener]:
    """Begin a code block, a quoting element or comment, or a possible code span."""
    element = _ELEMENT.match(token[0])
    margin = _get_margin(token)
    handler.emit_text(token.end())
    return None, BlockOpener(element[0] if element else token[0], margin)


def _get_margin(token: TokenMatch) -> str:
    """Return the text before a fence on its line: blanks, and the `>` of a quotation."""
    return token.string[token.string.rfind("\n", 0, token.start()) + 1 : token.start()]


def _is_inside(margin: str, opened: str) -> bool:
    """Return whether a fence with `margin` is nested in the block whose fence has the margin `opened`."""
    return margin.count(">") > opened.count(">") or _count_columns(margin) > _count_columns(opened) + MAX_FENCE_INDENT


def _count_columns(margin: str) -> int:
    return len(margin.rpartition(">")[2].expandtabs(4))


def begin_doubt(handler: InText, token: TokenMatch) -> tuple[None, TokenMatch] | QuotedLine:
    """Buffer doubtful markup until the text after it decides."""
    context = handler.context
    if verdict := detect_quoted_line(handler, token.start()):
        return verdict
    context.cursor.seek = token.end()
    return None, token


MAX_DOUBTFUL_CHARACTERS = 4096
"""Maximum characters of doubtful markup that are buffered. Longer markup is text."""


class InDoubt(TextHandler):
    """Markup that is buffered, because it is no part of the message if a call or the end of the reply follows it.

    <tool_calls>        a wrapper that the call's dialect does not have
    </parameter>        a closing tag on a separate line that closes nothing
    <|im_end|>          the end of the turn, if a server shows special tokens
    """

    __slots__ = ("_closer", "_has_closer", "_has_wrapper_opener", "_special_openers")

    def __init__(self, context: Context, token: TokenMatch) -> None:
        super().__init__(context)
        self._has_wrapper_opener = self._has_closer = False
        self._special_openers = set[str]()
        self._closer = ""
        """The closing tag at the end of the markup; empty if something else ends it."""
        self._record_kind(token)

    def scan(self) -> Scan:
        return self.context.grammar.doubtful

    def _record_kind(self, token: TokenMatch) -> None:
        """Record the kind of one more token of the buffered markup."""
        kind = get_token_kind(token.lastgroup)
        self._has_wrapper_opener |= kind == TokenKind.WRAPPER_OPENER
        if kind == TokenKind.SPECIAL_OPENER:
            self._special_openers.add(token[0])
        self._closer = token[0].strip() if kind == TokenKind.ORPHAN_CLOSER else ""
        self._has_closer |= bool(self._closer)

    def add_markup(self, token: TokenMatch) -> Literal[Verdict.UNBOUNDED] | None:
        """Buffer more markup, up to the limit."""
        self._record_kind(token)
        self.context.cursor.seek = token.end()
        if token.end() - self.context.cursor.at <= MAX_DOUBTFUL_CHARACTERS:
            return None
        self.emit_text(token.end())
        return Verdict.UNBOUNDED

    def open_call(self, token: TokenMatch) -> CallBeginning:
        """Begin a call; the markup becomes part of its text."""
        self.context.output.whitespace.append(self.context.cursor.consume(token.start()))
        return begin_call(self, token)

    def _is_alone(self) -> bool:
        """True if the text neither mentions nor quotes the markup.

        Special tokens in quotation marks are quoted. After a blank on their line they are mentioned, unless they end
        the reply after a complete sentence.
        """
        context, cursor = self.context, self.context.cursor
        if not SPECIAL_TOKENS.fullmatch(cursor.text, cursor.at, cursor.seek):
            return not context.output.in_line
        before = cursor.text[max(0, cursor.at - LOOKBEHIND_CHARACTERS) : cursor.at]
        mark = QUOTATION_MARKS.get(before[-1:], "")
        quoted = bool(mark) and cursor.text.startswith(mark, cursor.seek)
        ends = cursor.is_blank(cursor.seek) and before.rstrip(WHITESPACE).endswith(SENTENCE_ENDS)
        return not context.output.in_line or not (quoted or (context.output.whitespace and not ends))

    def _is_mentioned(self) -> bool:
        """True if the text may mention the closing tag: words and a blank precede it on its line."""
        cursor, speech = self.context.cursor, self.context.output
        if SPECIAL_TOKENS.fullmatch(cursor.text, cursor.at, cursor.seek):
            return not self._is_alone()
        return speech.in_line and bool(speech.whitespace)

    def _is_empty(self) -> bool:
        """True if the markup opens a call or a section without any content, and should be dropped.

        A wrapper's tag is dropped if it follows a call and ends the reply. A special token is dropped at the end of the
        reply or before its own closer, unless the text mentions it.
        """
        context, cursor = self.context, self.context.cursor
        if self._has_wrapper_opener and not context.output.is_after_call:
            return False
        ends = context.may_repair_end and cursor.is_blank(cursor.seek)
        return ends if self._has_wrapper_opener else (ends or self._is_closed()) and self._is_alone()

    def _is_closed(self) -> bool:
        """True if the markup ends with the closing tag of one of its openers."""
        is_closed = self.context.grammar.is_opener_closed
        return bool(self._closer) and any(is_closed(opener, self._closer) for opener in self._special_openers)

    def settle(self) -> None:
        """Decide about the markup when no call follows it: drop it at the end of the reply, emit it before text."""
        context, cursor = self.context, self.context.cursor
        # Step 1: Drop an opener without content.
        if (self._special_openers or self._has_wrapper_opener) and self._is_empty():
            excerpt = cursor.text[cursor.at : cursor.seek][:MAX_EXCERPT_CHARACTERS]
            context.output.add_unread_call(
                UnreadCall("no call follows it", "", "", excerpt, malformed=False, left_out=True)
            )
            context.output.emit_in_place(Markup(cursor.consume(cursor.seek)))
            return
        # Step 2: Emit the markup unless it ends the reply. Openers, and closing tags that may belong to the text, are
        # emitted in any case.
        opens = self._has_wrapper_opener or bool(self._special_openers)
        may_close_text = self._has_closer and (
            context.output.may_have_tags or context.output.last is Last.NOTHING or self._is_mentioned()
        )
        ends_reply = context.may_repair_end and cursor.is_blank(cursor.seek)
        if opens or may_close_text or not ends_reply:
            self.emit_text(cursor.seek)
            return
        # Step 3: Drop the markup at the end of the reply.
        if self._has_closer:
            excerpt = cursor.text[cursor.at :][:MAX_EXCERPT_CHARACTERS]
            context.output.add_unread_call(
                UnreadCall("it closes nothing", "", "", excerpt, malformed=False, left_out=True)
            )
        context.output.emit_in_place(Markup(cursor.consume_all()))
