"""A set of dialects, compiled for reading.

Several dialects are armed at once and may share an opener: `<tool_call>` begins hermes, qwen3-coder and
others. All their heads (everything up to a call's arguments) are looked for at once, so the text that follows an
opener decides which dialect it is, in one pass (`scan.py`). Each state of the reader has one such scan for what leaves
it; `reader.py` says what happens then.
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
    expression_of,
    find_body_slot,
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
    END_OF_LINE,
    END_OF_SENTENCE,
    FENCES,
    FIRST_LINE,
    IMMEDIATE_END,
    NO_QUOTE,
    NO_WORDS,
    QUOTING_ELEMENTS,
    QUOTING_LINES,
    TICKS,
    TURN_ENDS,
    TokenKind,
    list_orphan_closers,
    list_section_openers,
    make_doubtful_tokens,
    make_tokens,
    split_markers,
)

# The heads of calls, all that stands before their arguments: how a call may begin, the first one and the next.


type OpeningEnd = Literal["body", "attributes", "closed"]
"""What follows a head: a body, parameters as attributes, or nothing, as its tag closes itself."""


@lru_cache(maxsize=1024)
def list_openings(dialect: Description) -> list[tuple[CallSyntax, tuple[Part, ...], OpeningEnd]]:
    """Return the ways a call of a dialect may begin."""
    ways: list[tuple[CallSyntax, tuple[Part, ...], OpeningEnd]] = []
    for syntax in list_call_syntaxes(dialect):
        heads = list_head_variants(syntax)
        if syntax.body == "params":  # a name may hold a slash, too
            ways += [(syntax, closed, "closed") for parts in heads if (closed := make_self_closing(parts))]
        ways += [(syntax, parts, "body") for parts in heads]
        if tag := syntax.attribute_head():
            ways.append((syntax, tag, "attributes"))
    # A head that ends in the name is the beginning of others: <tool_call>bash, <tool_call>bash>{
    return sorted(ways, key=lambda opening: opening[0].body == "params" and isinstance(opening[1][-1], Chars | Group))


def list_heads_after_unclosed(syntax: CallSyntax, name: str) -> list[tuple[Part, ...]]:
    """List how a call begins that follows one without its closing tags: with its section and its marker, or without."""
    dialect = syntax.dialect
    if dialect.names == "declared":
        return syntax.quoted_heads(name)
    calls = [call for call in dialect.calls if find_body_slot(call) == "params"]
    each = [CallSyntax(dialect, call, section) for call in calls for section in ("", *dialect.sections)]
    heads = [head for syntax_of in each for head in list_head_variants(syntax_of) if isinstance(head[0], Lit)]
    return list_heads_after_unslashed(syntax, name, heads)


def is_call_start(syntax: CallSyntax, text: str, offered: Callable[[str], object]) -> bool:
    """Tell if the text after a call begins with another, of an `offered` tool where the name is all that marks it."""
    for parts in (*(parts for _, parts, _ in list_openings(syntax.dialect)), *list_next_heads(syntax)):
        if head := re.match(expression_of(parts, "head"), text.lstrip()):
            name = head.groupdict().get(f"{OFFERED_GROUP}_head")
            return name is None or offered(name) is not None
    return False


def unslash_closer(syntax: CallSyntax, name: str) -> str:
    """Return the only closing tag of a call without its slash, which models forget; empty if it has others."""
    tags = syntax.closing_tags(name)
    return tags[0].replace("</", "<", 1) if len(tags) == 1 and tags[0].startswith("</") else ""


def list_heads_after_unslashed(
    syntax: CallSyntax, name: str, heads: Collection[tuple[Part, ...]]
) -> list[tuple[Part, ...]]:
    """List some heads of the next call, and the same after a closing tag without its slash: as `next`."""
    closer = unslash_closer(syntax, name)
    return [*heads, *_put_after_tags([trim_parts(parse_literal(closer, syntax.dialect))] if closer else [], heads)]


def _put_after_tags(tags: Iterable[tuple[Part, ...]], heads: Iterable[tuple[Part, ...]]) -> list[tuple[Part, ...]]:
    """List the heads of the next call, as `next`, after one of some closing tags."""
    return [(*tag, Space(), Group(head, "next")) for tag, head in itertools.product(tags, heads)]


def list_next_heads(syntax: CallSyntax) -> list[tuple[Part, ...]]:
    """List how the next call begins, in a section or where calls follow one another."""
    each = heads = list_head_variants(CallSyntax(syntax.dialect, syntax.call))
    comma = syntax.dialect.separator.strip()
    if comma:
        heads = [(Lit(comma), Space(), *parts) for parts in heads] + heads
    if syntax.lists_calls:  # each in a list of its own
        heads = heads + [(Lit("]"), Space(), Lit("["), Space(), *parts) for parts in each]
    return [parts for parts in heads if isinstance(parts[0], Lit) or not comma]


IN_LINE = r"[ \t\r]{0,256}+"
IN_PARAGRAPH = rf"{IN_LINE}(?:\n(?![ \t\r]{{0,256}}\n){IN_LINE})?"
"""White space with one line break in it, but for that before an empty line."""

BYTES_PER_GRAMMAR = 1 << 14
BYTES_PER_HEAD = 1 << 8
"""Bytes that a grammar takes for each way in which a call may begin: the way itself all grammars share."""
type AnswerMarks = tuple[tuple[str, ...], tuple[str, ...]]
"""The markers that open an answer, and those that end it: what stands between them is text, whatever it looks like."""
NO_ANSWER: AnswerMarks = ((), ())
type TagPairs = tuple[tuple[str, str], ...]
"""Pairs of an opening and a closing tag of reasoning; a prompt that ends inside of it opened the first."""

_numbers = itertools.count()


SPAN_END = make_search_scan([*FENCES, TICKS, BLANK_LINE])
"""The end of a code span, or of the paragraph that it stands in."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """A form in which a call may begin; `token` is the name by which scans look for it."""

    syntax: CallSyntax
    token: Token
    attributes: bool = False
    """The parameters follow as attributes, `<read_file path="a.py"/>`: a malformation of tag-per-tool dialects."""
    closed: bool = False
    """It closes itself: the call has no parameters."""


def _begins_line(syntax: CallSyntax) -> bool:
    """True if a call counts only where a line begins, with its section if it has one."""
    return syntax.whole_line or (syntax.dialect.anchor == "line" and not syntax.whole_reply)


@lru_cache(maxsize=1024)
def make_heads(dialect: Description) -> tuple[Sequence[Head], Sequence[Head]]:
    """Make the heads of a dialect's calls, which all grammars with this dialect share.

    The second are those with which a reply begins where the prompt ends with the beginning of a call.
    """
    heads, prompted, text = list[Head](), list[Head](), dialect.prompted
    for syntax, parts, kind in list_openings(dialect):
        name = f"{TokenKind.CALL_OPENER}{next(_numbers)}"
        token = Token(name, parts, line_start=_begins_line(syntax) and kind != "attributes")
        heads.append(Head(syntax, token, kind == "attributes", kind == "closed"))
        if text and isinstance(first := parts[0], Lit) and first.text.startswith(text):
            rest = [Lit(more)] if (more := first.text[len(text) :]) else []
            name = f"{TokenKind.CALL_OPENER}{next(_numbers)}"
            prompted.append(Head(syntax, Token(name, trim_parts((*rest, *parts[1:])))))
    return heads, prompted


def _cache_scans[*Of](make: Callable[[Grammar, *Of], Scan]) -> Callable[[Grammar, *Of], Scan]:
    """Keep the scans that a method makes with those of all grammars: bounded, as names and keys are a model's."""

    def get_cached(grammar: Grammar, *of: *Of) -> Scan:
        return COMPILED_PATTERNS.get_or_make(
            (grammar.number, make, of), lambda: make(grammar, *of), lambda scan: scan.size()
        )

    return get_cached


class ReasoningScans:
    """The tags of reasoning, and the scans for what ends it."""

    def __init__(self, tags: TagPairs) -> None:
        self.closing_tags: dict[str, str] = {}
        """By the tags that open it; of several the first."""
        for opener, closer in tags:
            self.closing_tags.setdefault(opener, closer)
        self.openers = make_tokens(TokenKind.REASONING_OPENER, ((Lit(tag),) for tag in self.closing_tags))
        self.closers = make_tokens(TokenKind.REASONING_CLOSER, ((Lit(tag),) for tag in self.closing_tags.values()))
        self.stray = self.closers[:1]
        """The closing tag that may stand in text which nothing opened."""
        # In backticks a tag is quoted. Models mix them up: <think>…</thinking>.
        closing = list(dict.fromkeys(tag for _, tag in tags))
        both = (*closing, *self.closing_tags)
        quoted = make_tokens(TokenKind.QUOTED_REASONING_TAG, ((Lit(f"`{tag}`"),) for tag in both))
        ends = [*quoted[: len(closing)], *make_tokens(TokenKind.REASONING_CLOSER, ((Lit(tag),) for tag in closing))]
        opens = make_tokens(TokenKind.REASONING_OPENER, ((Lit(tag),) for tag in self.closing_tags))
        self.opened = make_search_scan(ends)
        """For reasoning whose opening tag was read."""
        self.begun = make_search_scan([*quoted[len(closing) :], *opens, *ends])
        """For reasoning that begins in the prompt: an opening tag in it is one that it speaks of."""


class Grammar:
    """The scans of every state for one set of dialects; they hold no names of tools."""

    quoting = frozenset(QUOTING_ELEMENTS)
    """The names of elements that quote."""

    def __init__(
        self,
        dialects: Sequence[Description],
        reasoning: TagPairs = (),
        markers: Iterable[str] = (),
        answer: AnswerMarks = NO_ANSWER,
    ) -> None:
        self.number = next(_numbers)
        # Those whose tags are the names of tools come last: a tool may be named like another dialect's tag.
        each = [make_heads(dialect) for dialect in sorted(dialects, key=lambda dialect: dialect.names == "declared")]
        heads = [head for heads, _ in each for head in heads]
        of_prompt = [head for _, heads in each for head in heads]
        self.heads = {head.token.name: head for head in (*heads, *of_prompt)}
        """By the names of their tokens."""
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
        # An answer's markers are literal; one of the others may have a hole that they fit, too.
        self._markers = [*make_tokens(TokenKind.ANSWER_OPENER, map(parse_marker, opens)), *dropped[: len(markers)]]
        self.answer = make_search_scan(make_tokens(TokenKind.ANSWER_CLOSER, map(parse_marker, ends)))
        first = [*of_whole_reply, *self._markers, *prompted, *dropped[len(markers) :], FIRST_LINE]
        self.start = make_expecting_scan([*self.reasoning.openers, *self.reasoning.closers, *first])
        self._orphans = list_orphan_closers(armed)
        in_doubt = make_doubtful_tokens(self._orphans, list_section_openers(armed), closing_tags)
        spoken = [*tokens, *self._markers, *in_doubt, *self.reasoning.stray]
        self.text = make_search_scan([*spoken, *ELEMENT_TOKENS, *QUOTING_LINES, *FENCES, TICKS])
        again = [Token(token.name, token.parts) for token in in_doubt]
        self.first_call = FollowingScan(self.text, (TokenKind.CALL_OPENER,), ())
        self.doubtful = FollowingScan(self.text, (TokenKind.CALL_OPENER, *DOUBTFUL_KINDS), again)
        self.span = make_search_scan([*tokens, *FENCES, TICKS, BLANK_LINE])
        # What begins and ends a code span is text all the same. After it what counts in the other state may follow.
        self.text.plain = make_plain_rule(self.text.tokens, later=[TICKS])
        self.span.plain = make_plain_rule([*self.text.tokens, BLANK_LINE], later=[TICKS])
        results = sorted({opening for dialect in armed if (opening := dialect.result_opening)})
        self._results = make_tokens(TokenKind.RESULT_OPENER, ((Lit(opening),) for opening in results))
        endings = make_tokens(
            TokenKind.TURN_END, map(parse_marker, dict.fromkeys((*TURN_ENDS, *markers, *closing_tags, *ends)))
        )
        self.whole_end = make_expecting_scan(endings, r"\s*+", end=TokenKind.NOTHING_MORE)

    def size(self) -> int:
        """Measure the grammar without what is made when it is needed, in bytes."""
        return BYTES_PER_GRAMMAR + BYTES_PER_HEAD * len(self.heads)

    def _special_heads(self, own: frozenset[str] | None) -> list[Token]:
        """Return the heads of calls that special tokens mark, of some dialects, wherever they stand.

        Those of a code block that is the whole reply are none: its opening fence is the closing one of another block.
        """
        heads = self._anywhere if own else ()
        return [head.token for head in heads if head.syntax.has_tokens and head.syntax.dialect.name in (own or ())]

    def with_special_tokens(self, own: frozenset[str]) -> Grammar:
        """Return the same for those of these dialects alone that special tokens mark."""
        marked = [head.syntax.dialect for head in self.heads.values() if head.syntax.has_tokens]
        return compile_grammar(tuple(dict.fromkeys(dialect for dialect in marked if dialect.name in own)))

    @_cache_scans
    def scan_line(self, run: str, own: frozenset[str]) -> Scan:
        """Return the rest of a line of code, which `run` opened, or of one that quotes.

        Indented code may go on with the next line, and quotes no calls in these dialects' special tokens. In a line of
        speech, which no `run` opened, all calls are found: one may end on another line.
        """
        in_line = [head.token for head in self._anywhere if not (run and head.syntax.dialect.may_be_quoted)]
        if run[:1] == "\n":  # a block of YAML goes on with lines as deep, and those that are empty
            more = ((Lit(run),), (Lit("\n"), Maybe((Chars(r" \t\r\n", 64),)), Lit(run)))
            return make_search_scan(
                [*in_line, *make_tokens(TokenKind.CODE_LINE, more), Token(TokenKind.LINE_END, (Lit("\n"),))]
            )
        tokens = [*in_line, *ELEMENT_TOKENS, *FENCES]
        if run.isspace():
            tokens += [*self._special_heads(own), *make_tokens(TokenKind.CODE_LINE, CODE_INDENTS)]
        elif not run:  # amid a line of speech, which may end otherwise
            closers = make_tokens(TokenKind.LINE_END, (token.parts for token in self.reasoning.stray))
            tokens += [*self._markers, *closers]
        return make_search_scan([*tokens, Token(TokenKind.LINE_END, (Lit("\n"),))])

    @_cache_scans
    def scan_quotation_end(self, run: str, own: frozenset[str] | None) -> Scan:
        """Find the end of what `run` opened: an element, a comment, or a code block, which as many of the same or more
        end, alone on a line. A block that has none quotes no calls in the special tokens of these dialects.
        """
        in_code = [head.token for head in self._anywhere if head.syntax.dialect.in_code == "call"]
        if run[0] == "<":
            end = "-->" if run == COMMENT_OPENER else f"</{run[1:]}>"
            return make_search_scan([*in_code, Token(TokenKind.CODE_END, (Lit(end),))])
        more = Maybe((Chars(run[0], 64),))
        blank = Maybe((Chars(" \\t\\r", 64),))
        tokens = [
            *in_code,
            *self._special_heads(own),
            Token(f"{TokenKind.CODE_END}0", (Lit(run), more, blank, Lit("\n")), line_start=True),
        ]
        return make_search_scan(
            [*tokens, Token(f"{TokenKind.CODE_END}1", (Lit(run), more), line_start=True, at_end=True)]
        )

    @_cache_scans
    def scan_arguments(self, syntax: CallSyntax, name: str) -> Scan:
        """Right after a head with {params}: a parameter, the end of a call without any, or a JSON object."""
        tail, loose = syntax.written_tail(name), syntax.tail(name)
        own, elements = _param_tokens(syntax)
        closers = [syntax.parameters.tail(i, "") for i in range(len(own))] if syntax.parameters.shares_closer else []
        unquoted = (Lit("{"), Space(), Chars(r"\w", 64), Space(), Lit(":"))
        objects = (make_json_opener(Lit("}")), unquoted, ENCODED_TWICE)
        calls = () if syntax.dialect.names == "declared" else self._heads_of(syntax.dialect)
        first = [trim_parts(parse_literal(tag, syntax.dialect)) for tag in syntax.closing_tags(name)[:1]]
        return make_expecting_scan(
            [
                Token(f"{TokenKind.CALL_CLOSER}0", tail),
                *own,
                *make_tokens(TokenKind.PARAMETER_CLOSER, closers),
                *make_tokens(TokenKind.JSON_OPENER, ((CODE_BLOCK, *opening) for opening in objects)),
                *make_tokens(TokenKind.OUTER_CLOSER, [*syntax.last_tags(name), *first]),
                *elements,
                *self._wrong_closers(syntax, name),
                *make_tokens(TokenKind.NEXT_CALL, calls),
                # Where all may be missing, the closers match anywhere.
                *([Token(f"{TokenKind.CALL_CLOSER}1", loose)] if loose != tail else []),
            ]
        )

    @_cache_scans
    def scan_value(self, syntax: CallSyntax, name: str, index: int, key: str) -> Scan:
        """In a parameter's value: its closer, and what is counted to tell whether that closer is quoted."""
        close, tail, heads = syntax.parameters.tail(index, key), syntax.written_tail(name), syntax.quoted_heads(name)
        openers = [*syntax.parameters.quoted_openers(index, key), *syntax.parameters.quoted_elements(index, key)]
        following = syntax.following_heads(name) if syntax.parameters.shares_closer else heads
        return make_search_scan(
            [
                *make_tokens(TokenKind.PARAMETER_OPENER, openers),
                Token(TokenKind.PARAMETER_CLOSER, close),
                *make_tokens(TokenKind.CALL_OPENER, heads),
                *make_tokens(TokenKind.ELEMENT_OPENER, syntax.quoted_wrappers(name)),
                *make_tokens(TokenKind.CLOSER_AND_CALL, ((*tail, Space(), Group(head, "next")) for head in following)),
                Token(TokenKind.CALL_CLOSER, tail),
            ]
        )

    @_cache_scans
    def scan_sole_value(self, syntax: CallSyntax, name: str) -> Scan:
        """In the value of a call's one parameter without tags: it holds none at all."""
        tags = [(Lit("<"),)] if syntax.names_the_tag else [*syntax.quoted_heads(name), *syntax.parameters.heads()]
        return make_search_scan(
            [Token(TokenKind.CALL_CLOSER, syntax.written_tail(name)), *make_tokens(TokenKind.TAG, tags)]
        )

    @_cache_scans
    def scan_guessed_value(self, syntax: CallSyntax, index: int, key: str) -> Scan:
        """In the value of a parameter that may be none, as no declared one was read yet: it holds no tags."""
        closer = syntax.parameters.tail(index, key)
        return make_search_scan([Token(TokenKind.PARAMETER_CLOSER, closer), Token(TokenKind.TAG, (Lit("<"),))])

    @_cache_scans
    def scan_after_value(self, syntax: CallSyntax, name: str, index: int, key: str) -> Scan:
        """After a parameter's closer: structure, which makes it one, or anything else, which makes it content.

        Of several tokens that fit at one place the first counts.
        """
        close, tail = syntax.parameters.tail(index, key), syntax.written_tail(name)
        comma = syntax.dialect.param_separator.strip()
        between = (Maybe((Lit(comma), Space())),) if comma else ()
        own, elements = _param_tokens(syntax, between)
        heads, outer = list_heads_after_unclosed(syntax, name), syntax.last_tags(name)
        following = make_tokens(TokenKind.NEXT_CALL, [*heads, *_put_after_tags(outer, heads)])
        return make_expecting_scan(
            [
                # Closers first, as they are written out: one may have the form of an opener of any name (Kimi K3).
                *make_tokens(TokenKind.CALL_CLOSER, (tail, (*ARGUMENTS_CLOSER, *tail))),
                Token(TokenKind.PARAMETER_CLOSER, close),
                # Its wrapper may be closed and not the call itself, where another follows.
                *following[len(heads) :],
                *make_tokens(TokenKind.OUTER_CLOSER, outer),
                # Where any tag may be a parameter's, that of another call is one, too (Cline).
                *own,
                # Another call begins with what may look like an element, or like a garbled opener (GLM).
                *following[: len(heads)],
                # The beginning of a parameter's opener, where none of the whole ones fits.
                *make_tokens(TokenKind.GARBLED_OPENER, syntax.parameters.tag_names()),
                *elements,
                # It begins as the call's closer does, which is the longer one where its wrapper is closed, too.
                *self._wrong_closers(syntax, name),
            ]
        )

    def _wrong_closers(self, syntax: CallSyntax, name: str) -> list[Token]:
        """Return the closing tag of a call, and a sibling's where that of its wrapper should follow."""
        first, *more = syntax.closing_tags(name) or [""]
        if not more or syntax.section:
            return []
        parts = trim_parts(loosen_parts(parse_literal(first, syntax.dialect)))
        return make_tokens(TokenKind.WRONG_CLOSER, ((*parts, Space(), *orphan) for orphan in self._orphans))

    @_cache_scans
    def scan_tail(self, syntax: CallSyntax, name: str) -> Scan:
        """After a JSON body: the call's closers, also with a brace too many or the fence of a code block before them;
        a closing tag of another kind; the next call; another object; or the end of the line.
        """
        if parts := syntax.tail(name):
            heads = list_heads_after_unslashed(syntax, name, self._heads_of(syntax.dialect))
            tokens = [
                *make_tokens(TokenKind.CALL_CLOSER, (parts, (*ARGUMENTS_CLOSER, *parts))),
                Token(TokenKind.EXTRA_BRACE, (Lit("}"), Space(), *parts)),
                Token(TokenKind.EXTRA_FENCE, (Lit("```"), Space(), *parts)),
                Token(TokenKind.WRONG_CLOSER, (Lit("</"), Chars(r"\w:.\-", 64), Lit(">"))),
                *make_tokens(TokenKind.NEXT_CALL, heads if parts == syntax.written_tail(name) else ()),
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
            too_many = _put_after_tags([(Lit("}"),)], self._heads_of(syntax.dialect))
            return ExpressionScan(*NO_QUOTE, make_expecting_scan(make_tokens(TokenKind.EXTRA_BRACE, too_many)))
        between = (OneOf((",", ";")), Maybe((Chars(" \\t\\r", 16),)), Lit("\n"), Space())
        listed = make_tokens(TokenKind.NEXT_IN_LIST, ((*between, *parts) for parts in list_next_heads(syntax)))
        # After a line that leads to it a full stop shows that the sentence goes on to there.
        ends = END_OF_LINE if syntax.in_paragraph else END_OF_SENTENCE
        turn_ends = make_tokens(TokenKind.CALL_CLOSER, ((Lit(end),) for end in TURN_ENDS))
        return ExpressionScan(*ends, make_expecting_scan([*listed, *turn_ends], r"[ \t\r]{0,256}"))

    @_cache_scans
    def scan_after_call(self, syntax: CallSyntax) -> Scan:
        """After a call: closers that may still come, and in a section its next call."""
        late = self._late_closers(syntax)
        tokens = [
            *make_tokens(TokenKind.LATE_CLOSER, late),
            *([] if syntax.whole_reply else self._results_after(syntax)),
            *make_tokens(TokenKind.LATE_CLOSER, _cut_results(syntax), at_end=True, after=len(late)),
        ]
        if syntax.dialect.section_required or syntax.whole_reply:  # elsewhere it begins like any call
            heads = list_next_heads(syntax)
            closed = map(make_self_closing, heads) if syntax.body == "params" else ()
            tokens += make_tokens(TokenKind.NEXT_EMPTY_CALL, filter(None, closed))
            tokens += make_tokens(TokenKind.NEXT_CALL, heads)
        return make_expecting_scan(tokens)

    def _results_after(self, syntax: CallSyntax) -> list[Token]:
        """List how a result may begin that the model makes up: with a tag, or with the words of its dialect."""
        head = make_result_head(syntax.dialect)
        own = make_tokens(TokenKind.RESULT_OPENER, [head] if head else [], after=len(self._results))
        return [*self._results, *own]

    def _late_closers(self, syntax: CallSyntax) -> list[tuple[Part, ...]]:
        own = [parts for closer in list_late_closers(syntax) for parts in split_spellings(closer)]
        return [*own, *self._orphans, *((Lit(end),) for end in TURN_ENDS)]

    @_cache_scans
    def scan_undecided(self, syntax: CallSyntax) -> Scan:
        """After a call that may be quoted: closers that may still come, and what shows that it is not.

        That is the end of its line, of its paragraph, or of the reply.
        """
        ends_line: list[tuple[Part, ...]] = [] if syntax.ends_reply else [(OneOf(("\n", "\\n")),)]
        if syntax.in_paragraph:
            ends_line += [token.parts for token in FENCES]
        decided = [*ends_line, *(token.parts for token in (*self._markers, *self._results_after(syntax)))]
        late, following, tail = self._late_closers(syntax), list_next_heads(syntax), syntax.section_tail()
        if tail:  # what belongs to the section may stand on other lines
            late.append((Space(), *tail))
            following += [(Space(), *parts) for parts in following]
        tokens = [
            *make_tokens(TokenKind.LATE_CLOSER, late),
            *make_tokens(TokenKind.NEXT_CALL, following),
            *make_tokens(TokenKind.LINE_END, decided),
            *make_tokens(TokenKind.LATE_CLOSER, _cut_results(syntax), at_end=True, after=len(late)),
            *NO_WORDS,
        ]
        space = LOOSE_SPACE if syntax.ends_reply else IN_PARAGRAPH if syntax.in_paragraph else IN_LINE
        return FollowingScan(self.text, (TokenKind.CALL_OPENER,), tokens, space)

    @_cache_scans
    def scan_damaged(self, syntax: CallSyntax, name: str) -> Scan:
        """In a call whose JSON broke: another call, right after its closer or where it broke off."""
        closers = [parts for parts in (syntax.tail(name), syntax.section_tail()) if parts]
        heads = self._heads_of(syntax.dialect)
        pairs = ((*closer, Space(), Group(head, "next")) for closer, head in itertools.product(closers, heads))
        return make_search_scan(
            [*make_tokens(TokenKind.CLOSER_AND_CALL, pairs), *make_tokens(TokenKind.CALL_OPENER, heads)]
        )

    def _heads_of(self, dialect: Description) -> list[tuple[Part, ...]]:
        """List the heads of a dialect that count anywhere."""
        heads = [head for head in self.heads.values() if head.syntax.dialect is dialect]
        return [head.token.parts for head in heads if not (head.syntax.whole_reply or head.syntax.whole_line)]

    @_cache_scans
    def scan_closer(self, syntax: CallSyntax, name: str) -> Scan:
        """Return the end of a call that is no call any more, or else of its section, wherever it stands."""
        tail = syntax.tail(name) or syntax.section_tail()
        return make_search_scan([Token(TokenKind.CALL_CLOSER, tail)] if tail else [])


def _cut_results(syntax: CallSyntax) -> Iterable[tuple[Part, ...]]:
    """List the beginnings of the word that results begin with: a server that stops at that word may leave a part."""
    head = () if syntax.whole_reply else make_result_head(syntax.dialect)
    if len(head) != 1 or not isinstance(word := head[0], Lit):
        return []
    return [(Lit(word.text[:end]),) for end in range(len(word.text) - 1, MIN_MARKER_LENGTH - 1, -1)]


def _param_tokens(syntax: CallSyntax, between: tuple[Part, ...] = ()) -> tuple[list[Token], list[Token]]:
    """Return the openers of parameters of the dialect's own, those with more markup first, and of elements."""
    tokens = make_tokens(TokenKind.PARAMETER_OPENER, ((*between, *parts) for parts in syntax.parameters.heads()))
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
    """Return the grammar for these dialects; most exchanges share a few.

    `reasoning` are pairs of tags that open and close it, `markers` are taken out of visible text, as are those of an
    `answer`.
    """

    def make() -> Grammar:
        return Grammar(dialects, reasoning, markers, answer)

    return COMPILED_PATTERNS.get_or_make((dialects, reasoning, markers, answer), make, Grammar.size, lasting=True)
