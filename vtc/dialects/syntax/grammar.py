"""A set of dialects, compiled for reading: one scan for each state of the reader.

Several dialects are read at once and may share an opener: `<tool_call>` begins calls of hermes, qwen3-coder and others.
Their heads (everything before the arguments of a call) are matched together, in one pass (`scan.py`), so the text after
the opener selects the dialect. `reading/transitions.py` defines the effect of each token.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import (
    CODE_BLOCK,
    MIN_MARKER_LENGTH,
    CallSyntax,
    list_call_syntaxes,
    list_head_variants,
    list_late_closers,
    make_result_head,
    make_self_closing,
)
from vtc.dialects.syntax.markup import (
    ENCODED_TWICE,
    QUOTES,
    loosen_parts,
    make_json_opener,
    parse_literal,
    parse_marker,
    split_spellings,
    trim_parts,
)
from vtc.dialects.syntax.pattern import (
    LOOSE_SPACE,
    Chars,
    Group,
    Lit,
    Maybe,
    OneOf,
    Part,
    Space,
    find_body_slot,
    make_expression,
)
from vtc.dialects.syntax.scan import (
    OFFERED_GROUP,
    ExpressionScan,
    FollowingScan,
    Scan,
    Token,
    make_expecting_scan,
    make_plain_rule,
    make_search_scan,
)
from vtc.dialects.syntax.tokens import (
    ARGUMENTS_CLOSER,
    BLANK_LINE,
    CODE_INDENTS,
    COMMENT_OPENER,
    DOUBTFUL_KINDS,
    ELEMENT_TOKENS,
    END_OF_JSON,
    END_OF_LINE,
    END_OF_SENTENCE,
    FENCES,
    FIRST_LINE,
    IMMEDIATE_END,
    NO_WORDS,
    QUOTING_ELEMENTS,
    QUOTING_LINES,
    TICKS,
    TURN_ENDS,
    TokenKind,
    is_opener_closed,
    list_orphan_closers,
    list_section_openers,
    make_doubtful_tokens,
    make_tokens,
    split_markers,
)

type OpeningEnd = Literal["body", "attributes", "closed"]
"""The text after a head: a body, parameters as attributes, or nothing because the tag is self-closing."""


@lru_cache(maxsize=1024)
def list_openings(dialect: Description) -> list[tuple[CallSyntax, tuple[Part, ...], OpeningEnd]]:
    """Return the ways in which a call of a dialect may begin."""
    ways: list[tuple[CallSyntax, tuple[Part, ...], OpeningEnd]] = []
    for syntax in list_call_syntaxes(dialect):
        heads = list_head_variants(syntax)
        if syntax.body == "params":  # a name may contain a slash, too
            ways += [(syntax, closed, "closed") for parts in heads if (closed := make_self_closing(parts))]
        ways += [(syntax, parts, "body") for parts in heads]
        if tag := syntax.make_attribute_head():
            ways.append((syntax, tag, "attributes"))
    # A stray word is part of the head, so that it is buffered like the head, and is text if no call is read.
    ways += [
        (syntax, (Lit(word), Maybe((Chars(r" \t\r", 64),)), Lit("\n"), *parts), kind)
        for word in dialect.stray_words
        for syntax, parts, kind in ways
        if isinstance(parts[0], Lit)
    ]
    # Heads that end in the name come last, because they are prefixes of others: <tool_call>bash, <tool_call>bash>{
    return sorted(ways, key=lambda opening: opening[0].body == "params" and isinstance(opening[1][-1], Chars | Group))


def list_heads_after_unclosed(syntax: CallSyntax, name: str) -> list[tuple[Part, ...]]:
    """List the heads of a call that may follow one without closing tags: with section and marker, or without."""
    dialect = syntax.dialect
    if dialect.names == "declared":
        return syntax.list_quoted_heads(name)
    calls = [call for call in dialect.calls if find_body_slot(call) == "params"]
    each = [CallSyntax(dialect, call, section) for call in calls for section in ("", *dialect.sections)]
    heads = [head for syntax_of in each for head in list_head_variants(syntax_of) if isinstance(head[0], Lit)]
    return list_heads_after_unslashed(syntax, name, heads)


def is_call_start(syntax: CallSyntax, text: str, offered: Callable[[str], object]) -> bool:
    """Return True if text after a call begins another; the tool must be `offered` if only its name marks a call."""
    for parts in (*(parts for _, parts, _ in list_openings(syntax.dialect)), *list_next_heads(syntax)):
        if head := re.match(make_expression(parts, "head"), text.lstrip()):
            name = head.groupdict().get(f"{OFFERED_GROUP}_head")
            return name is None or offered(name) is not None
    return False


def list_heads_after_unslashed(
    syntax: CallSyntax, name: str, heads: Collection[tuple[Part, ...]]
) -> list[tuple[Part, ...]]:
    """Return `heads` of the next call, and each of them (group `next`) after a closing tag without its slash."""
    closer = syntax.closers.unslash(name)
    return [*heads, *_put_after_tags([trim_parts(parse_literal(closer, syntax.dialect))] if closer else [], heads)]


def _put_after_tags(tags: Iterable[tuple[Part, ...]], heads: Iterable[tuple[Part, ...]]) -> list[tuple[Part, ...]]:
    """List the heads of the next call, as group `next`, after any of these closing tags."""
    return [(*tag, Space(), Group(head, "next")) for tag, head in itertools.product(tags, heads)]


def list_next_heads(syntax: CallSyntax) -> list[tuple[Part, ...]]:
    """List the heads of the next call in a section, or directly after another call."""
    each = heads = list_head_variants(CallSyntax(syntax.dialect, syntax.call))
    comma = syntax.dialect.separator.strip()
    if comma:
        heads = [(Lit(comma), Space(), *parts) for parts in heads] + heads
    if syntax.lists_calls:  # each call in a list of its own
        heads = heads + [(Lit("]"), Space(), Lit("["), Space(), *parts) for parts in each]
    return [parts for parts in heads if isinstance(parts[0], Lit) or not comma]


IN_LINE = r"[ \t\r]{0,256}+"
IN_PARAGRAPH = rf"{IN_LINE}(?:\n(?![ \t\r]{{0,256}}\n){IN_LINE})?"
"""White space with at most one line break, which no empty line follows."""

BYTES_PER_GRAMMAR = 1 << 14
BYTES_PER_HEAD = 1 << 8
"""Estimated size of a grammar, in bytes per head; the heads themselves are shared by all grammars."""
type AnswerMarks = tuple[tuple[str, ...], tuple[str, ...]]
"""Markers that open an answer, and markers that end it; everything between them is text."""
NO_ANSWER: AnswerMarks = ((), ())
type TagPairs = tuple[tuple[str, str], ...]
"""Opening and closing tags of reasoning. If the prompt ends inside reasoning, it opened the first pair."""

_numbers = itertools.count()
"""Numbers of grammars and of call openers; unique within the process."""


SPAN_END = make_search_scan([*FENCES, TICKS, BLANK_LINE])
"""The end of a code span, or of the paragraph around it."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """A form in which a call may begin; scans refer to it by the name of its `token`."""

    syntax: CallSyntax
    token: Token
    has_attributes: bool = False
    """Parameters follow as attributes, `<read_file path="a.py"/>`, a malformation in dialects with a tag per tool."""
    is_self_closing: bool = False
    """The tag is self-closing: the call has no parameters."""


def _must_begin_line(syntax: CallSyntax) -> bool:
    """Return True if a call, or its section if it has one, counts only at the beginning of a line."""
    return syntax.whole_line or (syntax.dialect.anchor == "line" and not syntax.whole_reply)


@lru_cache(maxsize=1024)
def make_heads(dialect: Description) -> tuple[Sequence[Head], Sequence[Head]]:
    """Make the heads of a dialect's calls; all grammars with this dialect share them.

    The second list is for replies whose first call begins in the prompt.
    """
    heads, prompted, text = list[Head](), list[Head](), dialect.prompted
    for syntax, parts, kind in list_openings(dialect):
        name = f"{TokenKind.CALL_OPENER}{next(_numbers)}"
        is_stray = isinstance(first := parts[0], Lit) and first.text in dialect.stray_words
        token = Token(name, parts, line_start=is_stray or (_must_begin_line(syntax) and kind != "attributes"))
        heads.append(Head(syntax, token, kind == "attributes", kind == "closed"))
        if text and isinstance(first := parts[0], Lit) and first.text.startswith(text):
            rest = [Lit(more)] if (more := first.text[len(text) :]) else []
            name = f"{TokenKind.CALL_OPENER}{next(_numbers)}"
            prompted.append(Head(syntax, Token(name, trim_parts((*rest, *parts[1:])))))
    return heads, prompted


def _cache_scans[*Of](make: Callable[[Grammar, *Of], Scan]) -> Callable[[Grammar, *Of], Scan]:
    """Cache the scans of a method in the bounded cache of all grammars, because names and keys come from models."""

    def get_cached(grammar: Grammar, *of: *Of) -> Scan:
        return COMPILED_PATTERNS.get_or_make(
            (grammar.number, make, of), lambda: make(grammar, *of), lambda scan: scan.size()
        )

    return get_cached


class ReasoningScans:
    """The tags of reasoning, and the scans for its end."""

    def __init__(self, tags: TagPairs) -> None:
        self.closing_tags: dict[str, str] = {}
        """Closing tag by opening tag; the first pair wins."""
        for opener, closer in tags:
            self.closing_tags.setdefault(opener, closer)
        self.openers = make_tokens(TokenKind.REASONING_OPENER, ((Lit(tag),) for tag in self.closing_tags))
        names = [name for tag in self.closing_tags if (name := tag.partition(">")[2]).isalpha()]
        self.names = make_tokens(
            TokenKind.REASONING_OPENER, ((Lit(f"{name}\n"),) for name in names), after=len(self.openers)
        )
        """Names after the marker of an opening tag, in case the server removed the marker: `thought` (Gemma)."""
        self.closers = make_tokens(TokenKind.REASONING_CLOSER, ((Lit(tag),) for tag in self.closing_tags.values()))
        self.stray = self.closers[:1]
        """The closing tag that may appear in text without an opening one."""
        # A tag in backticks is quoted. Opening and closing tags need not match, since models mix them up:
        # <think>…</thinking>.
        closing = list(dict.fromkeys(tag for _, tag in tags))
        both = (*closing, *self.closing_tags)
        quoted = make_tokens(TokenKind.QUOTED_REASONING_TAG, ((Lit(f"`{tag}`"),) for tag in both))
        ends = [*quoted[: len(closing)], *make_tokens(TokenKind.REASONING_CLOSER, ((Lit(tag),) for tag in closing))]
        opens = make_tokens(TokenKind.REASONING_OPENER, ((Lit(tag),) for tag in self.closing_tags))
        self.opened = make_search_scan(ends)
        """For reasoning whose opening tag was read."""
        self.prefilled = make_search_scan([*quoted[len(closing) :], *opens, *ends])
        """For reasoning that begins in the prompt: an opening tag in it is only mentioned."""


class Grammar:
    """The scans of all states for one set of dialects; they contain no names of tools."""

    quoting = frozenset(QUOTING_ELEMENTS)
    """Names of elements that quote."""

    def __init__(
        self,
        dialects: Sequence[Description],
        reasoning: TagPairs = (),
        markers: Iterable[str] = (),
        answer: AnswerMarks = NO_ANSWER,
    ) -> None:
        self.number = next(_numbers)
        # Dialects whose tags are tool names come last, because a tool may be named like another dialect's tag.
        each = [make_heads(dialect) for dialect in sorted(dialects, key=lambda dialect: dialect.names == "declared")]
        heads = [head for heads, _ in each for head in heads]
        of_prompt = [head for _, heads in each for head in heads]
        self.heads = {head.token.name: head for head in (*heads, *of_prompt)}
        """Heads by the name of their token."""
        of_whole_reply = [head.token for head in heads if head.syntax.whole_reply]
        self._anywhere = [head for head in heads if not head.syntax.whole_reply]
        prompted = [head.token for head in of_prompt]
        tokens = [head.token for head in self._anywhere]
        armed = {head.syntax.dialect for head in self._anywhere}
        self.reasoning = ReasoningScans(reasoning)
        markers, closing_tags = split_markers(markers)
        opens, ends = answer
        begun = {dialect.prompted for dialect in dialects if dialect.prompted}
        begins = [text.removeprefix(start) for text in markers for start in begun if text.startswith(start)]
        dropped = make_tokens(TokenKind.MARKER, map(parse_marker, [*markers, *begins]))
        # Markers of an answer come first: they are literal, but may also match a hole of another marker.
        self._markers = [*make_tokens(TokenKind.ANSWER_OPENER, map(parse_marker, opens)), *dropped[: len(markers)]]
        self.answer = make_search_scan(make_tokens(TokenKind.ANSWER_CLOSER, map(parse_marker, ends)))
        first = [*of_whole_reply, *self._markers, *prompted, *dropped[len(markers) :], FIRST_LINE]
        self.start = make_expecting_scan(
            [*self.reasoning.openers, *self.reasoning.names, *self.reasoning.closers, *first]
        )
        self._orphans = list_orphan_closers(armed)
        in_doubt = make_doubtful_tokens(self._orphans, list_section_openers(armed), closing_tags)
        spoken = [*tokens, *self._markers, *in_doubt, *self.reasoning.stray]
        self.text = make_search_scan([*spoken, *ELEMENT_TOKENS, *QUOTING_LINES, *FENCES, TICKS])
        again = [Token(token.name, token.parts) for token in in_doubt]
        self.first_call = FollowingScan(self.text, (TokenKind.CALL_OPENER,), ())
        self.doubtful = FollowingScan(self.text, (TokenKind.CALL_OPENER, *DOUBTFUL_KINDS), again)
        self.span = make_search_scan([*tokens, *FENCES, TICKS, BLANK_LINE])
        # Delimiters of a code span are text, but change which markup counts after them.
        self.text.plain = make_plain_rule(self.text.tokens, later=[TICKS])
        self.span.plain = make_plain_rule([*self.text.tokens, BLANK_LINE], later=[TICKS])
        results = sorted({opening for dialect in armed if (opening := dialect.result_opening)})
        self._results = make_tokens(TokenKind.RESULT_OPENER, ((Lit(opening),) for opening in results))
        endings = [*map(parse_marker, dict.fromkeys((*TURN_ENDS, *markers, *closing_tags, *ends))), *self._orphans]
        self.whole_end = make_expecting_scan(
            make_tokens(TokenKind.TURN_END, endings), r"\s*+", end=TokenKind.NOTHING_MORE
        )

    def is_opener_closed(self, opener: str, closer: str) -> bool:
        """Return True if a dialect begins calls or a section with `opener` and ends them with `closer`."""
        return is_opener_closed({head.syntax.dialect for head in self._anywhere}, opener, closer)

    def size(self) -> int:
        """Return the estimated size in bytes, without parts that are built on demand."""
        return BYTES_PER_GRAMMAR + BYTES_PER_HEAD * len(self.heads)

    def _list_special_heads(self, own: frozenset[str] | None) -> list[Token]:
        """List the openers of calls with special tokens of the dialects `own`; they count even in code.

        A code block that is the whole reply is excluded, because its opening fence could be another block's closing
        one.
        """
        heads = self._anywhere if own else ()
        return [head.token for head in heads if head.syntax.has_tokens and head.syntax.dialect.name in (own or ())]

    def with_special_tokens(self, own: frozenset[str]) -> Grammar:
        """Return a grammar of the dialects `own`, without those that have no special tokens."""
        marked = [head.syntax.dialect for head in self.heads.values() if head.syntax.has_tokens]
        return compile_grammar(tuple(dict.fromkeys(dialect for dialect in marked if dialect.name in own)))

    @_cache_scans
    def scan_line(self, run: str, own: frozenset[str]) -> Scan:
        """Scan the rest of a quoted line, which `run` opened (`BlockOpener`).

        Indented code and YAML blocks may continue on the next line. Indented code does not quote calls in the special
        tokens of the dialects `own`. Without `run`, a call on the line was quoted: further calls are parsed, because
        they may end on another line, and are then quoted as well.
        """
        in_line = [head.token for head in self._anywhere if not (run and head.syntax.dialect.may_be_quoted)]
        if run[:1] == "\n":  # a YAML block continues with lines of the same depth, and with empty ones
            more = ((Lit(run),), (Lit("\n"), Maybe((Chars(r" \t\r\n", 64),)), Lit(run)))
            return make_search_scan(
                [*in_line, *make_tokens(TokenKind.CODE_LINE, more), Token(TokenKind.LINE_END, (Lit("\n"),))]
            )
        tokens = [*in_line, *ELEMENT_TOKENS, *FENCES]
        if run.isspace():
            tokens += [*self._list_special_heads(own), *make_tokens(TokenKind.CODE_LINE, CODE_INDENTS)]
        elif not run:  # a line of the model's answer, which may also end at a marker
            closers = make_tokens(TokenKind.LINE_END, (token.parts for token in self.reasoning.stray))
            tokens += [*self._markers, *closers]
        return make_search_scan([*tokens, Token(TokenKind.LINE_END, (Lit("\n"),))])

    @_cache_scans
    def scan_quotation_end(self, run: str, own: frozenset[str] | None) -> Scan:
        """Scan for the end of the element, comment or code block that `run` opened.

        A code block ends with at least as many fence characters, alone on a line. An unclosed block does not quote
        calls in the special tokens of the dialects `own`.
        """
        in_code = [head.token for head in self._anywhere if head.syntax.dialect.in_code == "call"]
        if run[0] == "<":
            end = "-->" if run == COMMENT_OPENER else f"</{run[1:]}>"
            return make_search_scan([*in_code, Token(TokenKind.CODE_END, (Lit(end),))])
        more = Maybe((Chars(run[0], 64),))
        blank = Maybe((Chars(" \\t\\r", 64),))
        tokens = [
            *in_code,
            *self._list_special_heads(own),
            Token(f"{TokenKind.CODE_END}0", (Lit(run), more, blank, Lit("\n")), line_start=True),
        ]
        return make_search_scan(
            [*tokens, Token(f"{TokenKind.CODE_END}1", (Lit(run), more), line_start=True, at_end=True)]
        )

    @_cache_scans
    def scan_arguments(self, syntax: CallSyntax, name: str) -> Scan:
        """Scan after a head with {params}: a parameter, the end of a call without any, or a JSON object."""
        tail, loose = syntax.closers.make_required_tail(name), syntax.closers.make_tail(name)
        own, elements = _make_parameter_tokens(syntax)
        closers = (
            [syntax.parameters.make_tail(i, "") for i in range(len(own))] if syntax.parameters.shares_closer else []
        )
        unquoted = (Lit("{"), Space(), Chars(r"\w", 64), Space(), Lit(":"))
        objects = (make_json_opener(Lit("}")), unquoted, ENCODED_TWICE)
        calls = () if syntax.dialect.names == "declared" else self._list_heads(syntax.dialect)
        first = [trim_parts(parse_literal(tag, syntax.dialect)) for tag in syntax.closers.list_tags(name)[:1]]
        return make_expecting_scan(
            [
                Token(f"{TokenKind.CALL_CLOSER}0", tail),
                *own,
                *make_tokens(TokenKind.PARAMETER_CLOSER, closers),
                *make_tokens(TokenKind.JSON_OPENER, ((CODE_BLOCK, *opening) for opening in objects)),
                *make_tokens(TokenKind.OUTER_CLOSER, [*syntax.closers.list_last_tags(name), *first]),
                *elements,
                *self._make_wrong_closers(syntax, name),
                *make_tokens(TokenKind.NEXT_CALL, calls),
                # Closers that may be missing entirely match anywhere, so they come last.
                *([Token(f"{TokenKind.CALL_CLOSER}1", loose)] if loose != tail else []),
            ]
        )

    @_cache_scans
    def scan_value(self, syntax: CallSyntax, name: str, index: int, key: str) -> Scan:
        """Scan a parameter's value: its closer, and the tags that are counted to decide if that closer is quoted."""
        close, tail, heads = (
            syntax.parameters.make_tail(index, key),
            syntax.closers.make_required_tail(name),
            syntax.list_quoted_heads(name),
        )
        openers = [
            *syntax.parameters.list_quoted_openers(index, key),
            *syntax.parameters.list_quoted_elements(index, key),
        ]
        following = syntax.list_following_heads(name) if syntax.parameters.shares_closer else heads
        return make_search_scan(
            [
                *make_tokens(TokenKind.PARAMETER_OPENER, openers),
                Token(TokenKind.PARAMETER_CLOSER, close),
                *make_tokens(TokenKind.CALL_OPENER, heads),
                *make_tokens(TokenKind.ELEMENT_OPENER, syntax.list_quoted_wrappers(name)),
                *make_tokens(TokenKind.CLOSER_AND_CALL, ((*tail, Space(), Group(head, "next")) for head in following)),
                Token(TokenKind.CALL_CLOSER, tail),
            ]
        )

    @_cache_scans
    def scan_sole_value(self, syntax: CallSyntax, name: str) -> Scan:
        """Scan the value of a call's only parameter, written without tags: the value has no tags, either."""
        tags = (
            [(Lit("<"),)]
            if syntax.names_the_tag
            else [*syntax.list_quoted_heads(name), *syntax.parameters.list_heads()]
        )
        return make_search_scan(
            [Token(TokenKind.CALL_CLOSER, syntax.closers.make_required_tail(name)), *make_tokens(TokenKind.TAG, tags)]
        )

    @_cache_scans
    def scan_guessed_value(self, syntax: CallSyntax, index: int, key: str) -> Scan:
        """Scan the value of a possible parameter, before any declared one was parsed: it must not contain tags."""
        closer = syntax.parameters.make_tail(index, key)
        return make_search_scan([Token(TokenKind.PARAMETER_CLOSER, closer), Token(TokenKind.TAG, (Lit("<"),))])

    @_cache_scans
    def scan_after_value(self, syntax: CallSyntax, name: str, index: int, key: str) -> Scan:
        """Scan the text after a parameter's closer: structure confirms the closer, anything else makes it content.

        The first token that matches wins.
        """
        close, tail = syntax.parameters.make_tail(index, key), syntax.closers.make_required_tail(name)
        comma = syntax.dialect.param_separator.strip()
        between = (Maybe((Lit(comma), Space())),) if comma else ()
        own, elements = _make_parameter_tokens(syntax, between)
        heads, outer = list_heads_after_unclosed(syntax, name), syntax.closers.list_last_tags(name)
        following = make_tokens(TokenKind.NEXT_CALL, [*heads, *_put_after_tags(outer, heads)])
        return make_expecting_scan(
            [
                # Closers first, because they are literal: one may look like an opener with any name (Kimi K3).
                *make_tokens(TokenKind.CALL_CLOSER, (tail, (*ARGUMENTS_CLOSER, *tail))),
                Token(TokenKind.PARAMETER_CLOSER, close),
                # Before another call, the wrapper may be closed although the call is not.
                *following[len(heads) :],
                *make_tokens(TokenKind.OUTER_CLOSER, outer),
                # If any tag may be a parameter's, so may the tag of another call (Cline).
                *own,
                # Another call may begin with text that looks like an element or a garbled opener (GLM).
                *following[: len(heads)],
                # The beginning of a parameter's opener, if no whole opener matches.
                *make_tokens(TokenKind.GARBLED_OPENER, syntax.parameters.list_tag_names()),
                *elements,
                # These start like the call's closer, which is longer if its wrapper is closed, too.
                *self._make_wrong_closers(syntax, name),
            ]
        )

    def _make_wrong_closers(self, syntax: CallSyntax, name: str) -> list[Token]:
        """Make the tokens of a call's closing tag followed by another dialect's in place of its wrapper's."""
        first, *more = syntax.closers.list_tags(name) or [""]
        if not more or syntax.section:
            return []
        parts = trim_parts(loosen_parts(parse_literal(first, syntax.dialect)))
        return make_tokens(TokenKind.WRONG_CLOSER, ((*parts, Space(), *orphan) for orphan in self._orphans))

    @_cache_scans
    def scan_tail(self, syntax: CallSyntax, name: str) -> Scan:
        """Scan the text after a JSON body.

        This finds the closers of the call, also after a surplus brace or the fence of a code block; a closing tag of
        another kind; the next call; another object; or the end of the line.
        """
        if parts := syntax.closers.make_tail(name):
            heads = list_heads_after_unslashed(syntax, name, self._list_heads(syntax.dialect))
            tokens = [
                *make_tokens(TokenKind.CALL_CLOSER, (parts, (*ARGUMENTS_CLOSER, *parts))),
                Token(TokenKind.EXTRA_BRACE, (Lit("}"), Space(), *parts)),
                Token(TokenKind.EXTRA_FENCE, (Lit("```"), Space(), *parts)),
                Token(TokenKind.WRONG_CLOSER, (Lit("</"), Chars(r"\w:.\-", 64), Lit(">"))),
                *make_tokens(TokenKind.NEXT_CALL, heads if parts == syntax.closers.make_required_tail(name) else ()),
            ]
            if syntax.body == "json":
                comma = Maybe((OneOf((",", ";")), Space()))
                tokens.append(Token(TokenKind.NEXT_OBJECT, (comma, Group((Lit("{"),), "json"))))
            return make_expecting_scan(tokens)
        is_whole = syntax.whole_reply and not syntax.whole_line
        shows_its_end = syntax.body == "kwargs" or not syntax.dialect.writes_json
        if shows_its_end or is_whole or not (syntax.whole_line or syntax.dialect.may_be_quoted):
            return IMMEDIATE_END
        if not syntax.whole_line:
            too_many = _put_after_tags([(Lit("}"),)], self._list_heads(syntax.dialect))
            return ExpressionScan(*END_OF_JSON, make_expecting_scan(make_tokens(TokenKind.EXTRA_BRACE, too_many)))
        between = (OneOf((",", ";")), Maybe((Chars(" \\t\\r", 16),)), Lit("\n"), Space())
        listed = make_tokens(TokenKind.NEXT_IN_LIST, ((*between, *parts) for parts in list_next_heads(syntax)))
        # After an introducing line, a full stop shows that the sentence includes the call.
        ends = END_OF_LINE if syntax.in_paragraph else END_OF_SENTENCE
        turn_ends = make_tokens(TokenKind.CALL_CLOSER, ((Lit(end),) for end in TURN_ENDS))
        return ExpressionScan(*ends, make_expecting_scan([*listed, *turn_ends], r"[ \t\r]{0,256}"))

    @_cache_scans
    def scan_after_call(self, syntax: CallSyntax, is_unread: bool) -> Scan:
        """Scan the text after a call: late closers, and in a section its next call.

        After an entry of a list that was not read, only its next call counts.
        """
        if is_unread:
            return make_expecting_scan(make_tokens(TokenKind.NEXT_CALL, list_next_heads(syntax)))
        late = self._list_late_closers(syntax)
        tokens = [
            *make_tokens(TokenKind.LATE_CLOSER, late),
            *([] if syntax.whole_reply else self._make_result_tokens(syntax)),
            *make_tokens(TokenKind.LATE_CLOSER, _list_cut_results(syntax), at_end=True, after=len(late)),
        ]
        if syntax.dialect.section_required or syntax.whole_reply:  # elsewhere it begins like any call
            heads = list_next_heads(syntax)
            closed = map(make_self_closing, heads) if syntax.body == "params" else ()
            tokens += make_tokens(TokenKind.NEXT_EMPTY_CALL, filter(None, closed))
            tokens += make_tokens(TokenKind.NEXT_CALL, heads)
        return make_expecting_scan(tokens)

    def _make_result_tokens(self, syntax: CallSyntax) -> list[Token]:
        """Make the tokens for the start of an invented result: a tag, or the words of its dialect."""
        head = make_result_head(syntax.dialect)
        own = make_tokens(TokenKind.RESULT_OPENER, [head] if head else [], after=len(self._results))
        return [*self._results, *own]

    def _list_late_closers(self, syntax: CallSyntax) -> list[tuple[Part, ...]]:
        own = [parts for closer in list_late_closers(syntax) for parts in split_spellings(closer)]
        return [*own, *self._orphans, *((Lit(end),) for end in TURN_ENDS)]

    @_cache_scans
    def scan_undecided(self, syntax: CallSyntax) -> Scan:
        """Scan the text after a call that may be quoted: late closers, and evidence that it is not quoted.

        The evidence is the end of its line, of its paragraph, or of the reply.
        """
        ends_line: list[tuple[Part, ...]] = [] if syntax.ends_reply else [(OneOf(("\n", "\\n")),)]
        if syntax.in_paragraph:
            ends_line += [token.parts for token in FENCES]
        decided = [*ends_line, *(token.parts for token in (*self._markers, *self._make_result_tokens(syntax)))]
        late, following = self._list_late_closers(syntax), list_next_heads(syntax)
        tail = syntax.closers.make_section_tail()
        if tail:  # closers and calls of the section may be on other lines
            late.append((Space(), *tail))
            following += [(Space(), *parts) for parts in following]
        tokens = [
            *make_tokens(TokenKind.LATE_CLOSER, late),
            *make_tokens(TokenKind.NEXT_CALL, following),
            *make_tokens(TokenKind.LINE_END, decided),
            *make_tokens(TokenKind.LATE_CLOSER, _list_cut_results(syntax), at_end=True, after=len(late)),
            *NO_WORDS,
        ]
        space = LOOSE_SPACE if syntax.ends_reply else IN_PARAGRAPH if syntax.in_paragraph else IN_LINE
        return FollowingScan(self.text, (TokenKind.CALL_OPENER,), tokens, space)

    @_cache_scans
    def scan_damaged(self, syntax: CallSyntax, name: str) -> Scan:
        """Scan a broken call for the next one: directly after a closer, or anywhere."""
        closers = [parts for parts in (syntax.closers.make_tail(name), syntax.closers.make_section_tail()) if parts]
        heads = self._list_heads(syntax.dialect)
        pairs = ((*closer, Space(), Group(head, "next")) for closer, head in itertools.product(closers, heads))
        return make_search_scan(
            [*make_tokens(TokenKind.CLOSER_AND_CALL, pairs), *make_tokens(TokenKind.CALL_OPENER, heads)]
        )

    def _list_heads(self, dialect: Description) -> list[tuple[Part, ...]]:
        """List the heads of a dialect that count anywhere."""
        heads = [head for head in self.heads.values() if head.syntax.dialect is dialect]
        return [head.token.parts for head in heads if not (head.syntax.whole_reply or head.syntax.whole_line)]

    @_cache_scans
    def scan_closer(self, syntax: CallSyntax, name: str) -> Scan:
        """Scan for the closer of a call that was returned as text, or of its section."""
        tail = syntax.closers.make_tail(name) or syntax.closers.make_section_tail()
        return make_search_scan([Token(TokenKind.CALL_CLOSER, tail)] if tail else [])


def _list_cut_results(syntax: CallSyntax) -> Iterable[tuple[Part, ...]]:
    """List the prefixes of a result's first word, because a server that stops at that word may emit a part of it."""
    head = () if syntax.whole_reply else make_result_head(syntax.dialect)
    if len(head) != 1 or not isinstance(word := head[0], Lit):
        return []
    return [(Lit(word.text[:end]),) for end in range(len(word.text) - 1, MIN_MARKER_LENGTH - 1, -1)]


def _make_parameter_tokens(syntax: CallSyntax, between: tuple[Part, ...] = ()) -> tuple[list[Token], list[Token]]:
    """Make two lists of tokens: the dialect's parameter openers, those with more markup first, and elements."""
    tokens = make_tokens(TokenKind.PARAMETER_OPENER, ((*between, *parts) for parts in syntax.parameters.list_heads()))
    own = len(syntax.dialect.params)
    return sorted(tokens[:own], key=lambda token: -len(token.parts)), tokens[own:]


ATTRIBUTES_END = make_search_scan(
    make_tokens(TokenKind.TAG_END, ((Lit(quote), Space(), Maybe((Lit("/"),)), Lit(">")) for quote in QUOTES))
)
"""The end of a tag with attributes, if it is not inside a value."""


def compile_grammar(
    dialects: tuple[Description, ...],
    reasoning: TagPairs = (),
    markers: tuple[str, ...] = (),
    answer: AnswerMarks = NO_ANSWER,
) -> Grammar:
    """Return the grammar of these dialects; most exchanges share a few grammars.

    `reasoning` has the pairs of tags around reasoning. `markers` and those of an `answer` are removed from visible
    text.
    """

    def make() -> Grammar:
        return Grammar(dialects, reasoning, markers, answer)

    return COMPILED_PATTERNS.get_or_make((dialects, reasoning, markers, answer), make, Grammar.size, lasting=True)
