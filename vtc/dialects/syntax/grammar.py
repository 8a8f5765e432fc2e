"""A set of dialects, compiled for reading.

Several dialects are armed at once and may share an opener: `<tool_call>` begins hermes, qwen3-coder and
others. All their heads (everything up to a call's arguments) go into one expression, so
the text that follows an opener decides which dialect it is, in one pass. Each state of the reader has one such
expression of what leaves it; `reader.py` says what happens then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import msgspec

from vtc.dialects.bounded_cache import COMPILED
from vtc.dialects.syntax.description import SYNONYMS, Description
from vtc.dialects.syntax.doubtful import TURN_ENDS, doubtful, orphans, section_openers
from vtc.dialects.syntax.ends import END_OF_LINE, NO_QUOTE, NOTHING
from vtc.dialects.syntax.forms import (
    CODE_BLOCK,
    CallSyntax,
    closers,
    closing_itself,
)
from vtc.dialects.syntax.heads import after_unslashed, heads_after_unclosed, next_heads, openings
from vtc.dialects.syntax.markup import QUOTES, by_spelling, literal, loosened, trimmed
from vtc.dialects.syntax.openings import ENCODED_TWICE, marker, opening_of_json
from vtc.dialects.syntax.parts import SPACE, Chars, Group, Lit, Maybe, OneOf, Part, Space
from vtc.dialects.syntax.prefilter import Expected, Following, Prefilter
from vtc.dialects.syntax.quoting import (
    BLANK_LINE,
    COMMENT,
    ELEMENTS,
    FENCES,
    FIRST_LINE,
    IN_LINE,
    INDENTED,
    LINES,
    NO_WORDS,
    QUOTING,
    TICKS,
)
from vtc.dialects.syntax.scan import OrElse, Scan, Token, expecting, searching

PER_HEAD = 512
"""Bytes that a grammar takes for each way in which a call may begin."""
DOUBTFUL = ("ending", "orphan", "wrapper", "bare")
"""The tokens of markup that is none of the message where a call follows it."""
AROUND_END = (Lit("</"), OneOf(SYNONYMS), Lit(">"), Space())
"""The end of an element around all parameters."""
type Answer = tuple[tuple[str, ...], tuple[str, ...]]
"""The markers that open an answer, and those that end it: what stands between them is text, whatever it looks like."""
NO_ANSWER: Answer = ((), ())
type Tags = tuple[tuple[str, str], ...]
"""Pairs of an opening and a closing tag of reasoning; a prompt that ends inside of it opened the first."""

_numbers = itertools.count()


class Head(msgspec.Struct, frozen=True, gc=False):
    """How a call may begin; `token` is its name in the expressions that look for it."""

    syntax: CallSyntax
    token: Token
    attributes: bool = False
    """The parameters follow as attributes, `<read_file path="a.py"/>`: a malformation of tag-per-tool dialects."""
    closed: bool = False
    """It closes itself: the call has no parameters."""


class Grammar:
    """The expressions of every state for one set of dialects; they hold no names of tools."""

    quoting = frozenset(ELEMENTS)
    """The names of elements that quote."""

    def __init__(
        self,
        dialects: Sequence[Description],
        reasoning: Tags = (),
        markers: Iterable[str] = (),
        answer: Answer = NO_ANSWER,
    ) -> None:
        self._number = next(_numbers)
        self.heads: dict[str, Head] = {}
        # Those whose tags are the names of tools come last: a tool may be named like another dialect's tag.
        for dialect in sorted(dialects, key=lambda one: one.names == "declared"):
            for syntax, parts, kind in openings(dialect):
                token = Token(f"h{len(self.heads)}", parts, line_start=syntax.whole_line and kind != "attributes")
                self.heads[token.name] = Head(syntax, token, kind == "attributes", kind == "closed")
        prompted = self._prompted()
        first = {token.name for token in prompted}
        anywhere = [head for head in self.heads.values() if not (head.syntax.whole_reply or head.token.name in first)]
        tokens = [head.token for head in anywhere]
        in_code = [head.token for head in anywhere if head.syntax.dialect.in_code == "call"]
        think = [Token(f"think{i}", (Lit(tag),)) for i, (tag, _) in enumerate(reasoning)]
        stray = [Token("stray", (Lit(tag),)) for _, tag in reasoning[:1]]
        self._speech_ends = [token.parts for token in stray]
        dropped = [Token(f"marker{i}", marker(text)) for i, text in enumerate(markers)]
        opens, ends = answer
        self.answer = searching([Token(f"answered{i}", marker(text)) for i, text in enumerate(ends)])
        begun = {one.prompted for one in dialects if one.prompted}
        begins = [marker(text.removeprefix(one)) for text in markers for one in begun if text.startswith(one)]
        prompted += [Token(f"marker{len(dropped) + i}", parts) for i, parts in enumerate(begins)]
        dropped += [Token(f"answer{i}", marker(text)) for i, text in enumerate(opens)]
        whole = [head.token for head in self.heads.values() if head.syntax.whole_reply]
        closed = [Token(f"closed{i}", (Lit(tag),)) for i, (_, tag) in enumerate(reasoning)]
        self.start = Expected([*think, *closed, *whole, *dropped, *prompted, FIRST_LINE])
        armed = {head.syntax.dialect for head in anywhere}
        self._orphans = orphans(armed)
        in_doubt = doubtful(self._orphans, section_openers(armed))
        self.text = Prefilter([*tokens, *dropped, *in_doubt, *stray, *QUOTING, *LINES, *FENCES, TICKS])
        again = [Token(token.name, token.parts) for token in in_doubt]
        self.first_call = Following(self.text, ("h",), ())
        self.doubtful = Following(self.text, ("h", *DOUBTFUL), again)
        # In backticks a tag is quoted. Models mix them up: <think>…</thinking>.
        closing = list(dict.fromkeys(tag for _, tag in reasoning))
        closers = [Token(f"quoted{i}", (Lit(f"`{tag}`"),)) for i, tag in enumerate(closing)]
        closers += [Token(f"unthink{i}", (Lit(tag),)) for i, tag in enumerate(closing)]
        self.reasoning = searching(closers)
        self.closing_tags = dict(reasoning)
        opened = [Token(f"quoted{len(closing) + i}", (Lit(f"`{tag}`"),)) for i, tag in enumerate(self.closing_tags)]
        opened += [Token(f"opened{i}", (Lit(tag),)) for i, tag in enumerate(self.closing_tags)]
        self.begun_reasoning = searching([*opened, *closers])
        self.span = Prefilter([*tokens, *FENCES, TICKS, BLANK_LINE])
        self.span_end = searching([*FENCES, TICKS, BLANK_LINE])
        self._anywhere = anywhere
        self._in_code = in_code
        self._in_line = [head.token for head in anywhere if not head.syntax.dialect.may_be_quoted]
        results = sorted({opening for one in armed if (opening := one.result_opening)})
        self._results = [Token(f"invented{i}", (Lit(opening),)) for i, opening in enumerate(results)]
        self._markers = dropped
        endings = [marker(one) for one in dict.fromkeys((*TURN_ENDS, *markers, *ends))]
        self.whole_end = expecting([Token(f"ending{i}", one) for i, one in enumerate(endings)], r"\s*+", end="end")
        # Bounded, as names and keys are what a model writes.
        kept = self._kept
        self.closing_fence = kept(self._closing_fence)
        self.line = kept(self._line)
        self.arguments = kept(self._arguments)
        self.value = kept(self._value)
        self.sole = kept(self._sole)
        self.guess = kept(self._guess)
        self.closing = kept(self._closing)
        self.tail = kept(self._tail)
        self.after = kept(self._after)
        self.undecided = kept(self._undecided)
        self.damaged = kept(self._damaged)
        self.closer = kept(self._closer)

    def _prompted(self) -> list[Token]:
        """Add the heads with which a reply begins where the prompt ends with the beginning of a call."""
        found = []
        for head in [*self.heads.values()]:
            text, first = head.syntax.dialect.prompted, head.token.parts[0]
            if not (text and isinstance(first, Lit) and first.text.startswith(text)):
                continue
            rest = [Lit(more)] if (more := first.text[len(text) :]) else []
            token = Token(f"h{len(self.heads)}", trimmed((*rest, *head.token.parts[1:])))
            self.heads[token.name] = Head(head.syntax, token)
            found.append(token)
        return found

    def size(self) -> int:
        """Measure the grammar without the scans that are made when they are needed, in bytes."""
        fixed = sum(scan.size() for scan in (self.start, self.reasoning, self.span_end))
        return fixed + PER_HEAD * len(self.heads)

    def _kept[*Of](self, make: Callable[[*Of], Scan]) -> Callable[[*Of], Scan]:
        """Keep the scans that `make` makes with those of all other grammars."""
        name = make.__name__

        def kept(*of: *Of) -> Scan:
            return COMPILED.get_or_make((self._number, name, of), lambda: make(*of), lambda scan: scan.size())

        return kept

    def _own(self, own: frozenset[str] | None) -> list[Token]:
        """The heads of calls that special tokens mark, of some dialects, wherever they stand.

        Those of a code block that is the whole reply are none: its opening fence is the closing one of another block.
        """
        found = self._anywhere if own else ()
        return [head.token for head in found if head.syntax.has_tokens and head.syntax.dialect.name in (own or ())]

    def of_tokens(self, own: frozenset[str]) -> Grammar:
        """The same for those of these dialects alone that special tokens mark."""
        marked = [head.syntax.dialect for head in self.heads.values() if head.syntax.has_tokens]
        return compiled(tuple(dict.fromkeys(dialect for dialect in marked if dialect.name in own)))

    def _line(self, run: str, own: frozenset[str]) -> Scan:
        """The rest of a line of code, which `run` opened, or of one that quotes.

        Indented code may go on with the next line, and quotes no calls in these dialects' special tokens.
        """
        tokens = [*self._in_line, *QUOTING, *FENCES]
        if run.isspace():
            tokens += [*self._own(own), *(Token(f"more{i}", parts) for i, parts in enumerate(INDENTED))]
        elif not run:  # amid a line of speech, which may end otherwise
            tokens += self._markers
            tokens += [Token(f"line_end{i}", parts) for i, parts in enumerate(self._speech_ends)]
        return Prefilter([*tokens, Token("line_end", (Lit("\n"),))])

    def _closing_fence(self, run: str, own: frozenset[str] | None) -> Scan:
        """The end of what `run` opened: an element, a comment, or a code block, which as many of the same or more end,
        alone on a line. A block that has none quotes no calls in the special tokens of these dialects.
        """
        if run[0] == "<":
            end = "-->" if run == COMMENT else f"</{run[1:]}>"
            return searching([*self._in_code, Token("unfence", (Lit(end),))])
        more = Maybe((Chars(run[0], 64),))
        blank = Maybe((Chars(" \\t\\r", 64),))
        tokens = [
            *self._in_code,
            *self._own(own),
            Token("unfence", (Lit(run), more, blank, Lit("\n")), line_start=True),
        ]
        return searching(tokens, [Token("unfence_end", (Lit(run), more), line_start=True)])

    def _arguments(self, syntax: CallSyntax, name: str) -> Scan:
        """Right behind a head with {params}: a parameter, the end of a call without any, or a JSON object."""
        tail, loose = syntax.written_tail(name), syntax.tail(name)
        own, elements = _param_tokens(syntax)
        tokens = [Token("tail0", tail), *own]
        if syntax.closers_alike:
            tokens += [Token(f"closer{i}", syntax.param_tail(i, "")) for i in range(len(own))]
        unquoted = (Lit("{"), Space(), Chars(r"\w", 64), Space(), Lit(":"))
        for i, opening in enumerate((opening_of_json(Lit("}")), unquoted, ENCODED_TWICE)):
            tokens.append(Token(f"json{i}", (CODE_BLOCK, *opening)))
        tokens += [Token(f"last{i}", parts) for i, parts in enumerate(syntax.last_tags(name))]
        following = [] if syntax.dialect.names == "declared" else self._heads_of(syntax.dialect, "m")
        return expecting([*tokens, *elements, *self._wrong_tail(syntax, name), *following, *_missing_tail(tail, loose)])

    def _value(self, syntax: CallSyntax, name: str, index: int, key: str) -> Scan:
        """In a parameter's value: its closer, and what is counted to tell whether that closer is quoted."""
        close, tail, heads = syntax.param_tail(index, key), syntax.written_tail(name), syntax.quoted_heads(name)
        openers = [*syntax.quoted_params(index, key), *syntax.quoted_elements(index, key)]
        following = syntax.following_heads(name) if syntax.closers_alike else heads
        return searching(
            [
                *(Token(f"o{i}", parts) for i, parts in enumerate(openers)),
                Token("c", close),
                *(Token(f"q{i}", head) for i, head in enumerate(heads)),
                *(Token(f"w{i}", tag) for i, tag in enumerate(syntax.quoted_wrappers(name))),
                *(Token(f"lost{i}", (*tail, Space(), Group(head, "head"))) for i, head in enumerate(following)),
                Token("tail", tail),
            ]
        )

    def _sole(self, syntax: CallSyntax, name: str) -> Scan:
        """In the value of a call's one parameter without tags: it holds none at all."""
        tags = [(Lit("<"),)] if syntax.names_the_tag else [*syntax.quoted_heads(name), *syntax.param_heads()]
        return searching(
            [Token("tail", syntax.written_tail(name)), *(Token(f"lt{i}", tag) for i, tag in enumerate(tags))]
        )

    def _guess(self, syntax: CallSyntax, index: int, key: str) -> Scan:
        """In the value of a parameter that may be none, as no declared one was read yet: it holds no tags."""
        return searching([Token("c", syntax.param_tail(index, key)), Token("lt", (Lit("<"),))])

    def _closing(self, syntax: CallSyntax, name: str, index: int, key: str) -> Scan:
        """After a parameter's closer: structure, which makes it one, or anything else, which makes it content."""
        close, tail = syntax.param_tail(index, key), syntax.written_tail(name)
        comma = syntax.dialect.param_separator.strip()
        between = (Maybe((Lit(comma), Space())),) if comma else ()
        own, elements = _param_tokens(syntax, between)
        return expecting(
            [
                Token("tail0", tail),
                Token("tail2", (*AROUND_END, *tail)),
                Token("c", close),
                *(Token(f"last{i}", parts) for i, parts in enumerate(syntax.last_tags(name))),
                # Of any name, so that it may look like a closer.
                *own,
                *(Token(f"m{i}", head) for i, head in enumerate(heads_after_unclosed(syntax, name))),
                *(Token(f"garbled{i}", parts) for i, parts in enumerate(syntax.param_openers())),
                *elements,
                *self._wrong_tail(syntax, name),
            ]
        )

    def _wrong_tail(self, syntax: CallSyntax, name: str) -> list[Token]:
        """The closing tag of a call, and a sibling's where that of its wrapper should follow."""
        first, *more = syntax.closing_tags(name) or [""]
        if not more or syntax.section:
            return []
        parts = trimmed(loosened(literal(first, syntax.dialect)))
        return [Token(f"wrong{i}", (*parts, Space(), *orphan)) for i, orphan in enumerate(self._orphans)]

    def _tail(self, syntax: CallSyntax, name: str) -> Scan:
        """Behind a JSON body: the call's closers, also with a brace too many or the fence of a code block before them;
        a closing tag of another kind; the next call; another object; or the end of the line.
        """
        if parts := syntax.tail(name):
            around = Token("tail1", (*AROUND_END, *parts))
            brace, fence = Token("extra0", (Lit("}"), Space(), *parts)), Token("extra1", (Lit("```"), Space(), *parts))
            wrong = Token("wrong", (Lit("</"), Chars(r"\w:.\-", 64), Lit(">")))
            heads = after_unslashed(syntax, name, (head.parts for head in self._heads_of(syntax.dialect, "m")))
            following = [Token(f"m{i}", head) for i, head in enumerate(heads) if parts == syntax.written_tail(name)]
            tokens = [Token("tail0", parts), around, brace, fence, wrong, *following]
            if syntax.body == "json":
                comma = Maybe((OneOf((",", ";")), Space()))
                tokens.append(Token("another", (comma, Group((Lit("{"),), "json"))))
            return expecting(tokens)
        whole = syntax.whole_reply and not syntax.whole_line
        if syntax.body == "kwargs" or whole or not (syntax.whole_line or syntax.dialect.may_be_quoted):
            return NOTHING
        if not syntax.whole_line:
            return NO_QUOTE
        between = (OneOf((",", ";")), Maybe((Chars(" \\t\\r", 16),)), Lit("\n"), Space())
        listed = [Token(f"listed{i}", (*between, *parts)) for i, parts in enumerate(next_heads(syntax))]
        return OrElse(END_OF_LINE, expecting(listed, r"[ \t\r]{0,256}"))

    def _after(self, syntax: CallSyntax) -> Scan:
        """Behind a call: closers that may still come, and in a section its next call."""
        tokens = [*self._closers(syntax), *([] if syntax.whole_reply else self._results)]
        if syntax.dialect.section_required or syntax.whole_reply:  # elsewhere it begins like any call
            heads = next_heads(syntax)
            closed = map(closing_itself, heads) if syntax.body == "params" else ()
            tokens += [Token(f"empty{i}", parts) for i, parts in enumerate(closed) if parts]
            tokens += [Token(f"next{i}", parts) for i, parts in enumerate(heads)]
        return expecting(tokens)

    def _closers(self, syntax: CallSyntax) -> list[Token]:
        """Closers that may come after a call: its own, then any, as none is open there, and the end of the turn."""
        spelled = [parts for closer in closers(syntax) for parts in by_spelling(closer)]
        own = [Token(f"o{i}", parts) for i, parts in enumerate(spelled)]
        others = [*self._orphans, *((Lit(end),) for end in TURN_ENDS)]
        return [*own, *(Token(f"o{len(own) + i}", parts) for i, parts in enumerate(others))]

    def _undecided(self, syntax: CallSyntax) -> Scan:
        """Behind a call that may be quoted: closers that may still come, and what shows that it is not."""
        line_end = [] if syntax.ends_reply else [Token("decided", (OneOf(("\n", "\\n")),))]
        shown = [*self._markers, *self._results]
        decided = [Token(f"decided{i}", token.parts) for i, token in enumerate(shown)]
        closers, following, tail = self._closers(syntax), next_heads(syntax), syntax.section_tail()
        if tail:  # what belongs to the section may stand on other lines
            closers.append(Token(f"o{len(closers)}", (Space(), *tail)))
            following += [(Space(), *parts) for parts in following]
        heads = [Token(f"next{i}", parts) for i, parts in enumerate(following)]
        tokens = [*closers, *heads, *line_end, *decided, *NO_WORDS]
        return Following(self.text, ("h",), tokens, IN_LINE if line_end else SPACE)

    def _damaged(self, syntax: CallSyntax, name: str) -> Scan:
        """In a call whose JSON broke: another call, right after its closer or where it broke off."""
        closers = [parts for parts in (syntax.tail(name), syntax.section_tail()) if parts]
        heads = self._heads_of(syntax.dialect, "cut")
        pairs = itertools.product(closers, heads)
        tokens = [
            Token(f"d{i}", (*closer, Space(), Group(head.parts, "next"))) for i, (closer, head) in enumerate(pairs)
        ]
        return searching([*tokens, *heads])

    def _heads_of(self, dialect: Description, name: str) -> list[Token]:
        """The heads of a dialect that count anywhere, as tokens of this name."""
        heads = [head for head in self.heads.values() if head.syntax.dialect is dialect]
        anywhere = [head for head in heads if not (head.syntax.whole_reply or head.syntax.whole_line)]
        return [Token(f"{name}{i}", head.token.parts) for i, head in enumerate(anywhere)]

    def _closer(self, syntax: CallSyntax, name: str) -> Scan:
        """The end of a call that is no call any more, or else of its section, wherever it stands."""
        tail = syntax.tail(name) or syntax.section_tail()
        return searching([Token("closer", tail)] if tail else [])


def _missing_tail(written: tuple[Part, ...], loose: tuple[Part, ...]) -> list[Token]:
    """The closers of a call where all may be missing. They match anywhere, so they come after all other tokens."""
    return [Token("tail1", loose)] if loose != written else []


def _param_tokens(syntax: CallSyntax, between: tuple[Part, ...] = ()) -> tuple[list[Token], list[Token]]:
    """The openers of parameters of the dialect's own, those with more markup first, and of elements."""
    tokens = [Token(f"p{i}", (*between, *parts)) for i, parts in enumerate(syntax.param_heads())]
    own = len(syntax.dialect.params)
    return sorted(tokens[:own], key=lambda token: -len(token.parts)), tokens[own:]


ATTRIBUTES_END = searching(
    [Token(f"end{i}", (Lit(quote), Space(), Maybe((Lit("/"),)), Lit(">"))) for i, quote in enumerate(QUOTES)]
)
"""The end of a tag with attributes, if it is not inside a value."""


def compiled(
    dialects: tuple[Description, ...],
    reasoning: Tags = (),
    markers: tuple[str, ...] = (),
    answer: Answer = NO_ANSWER,
) -> Grammar:
    """The grammar for these dialects; most exchanges share a few.

    `reasoning` are pairs of tags that open and close it, `markers` are taken out of visible text, as are those of an
    `answer`.
    """

    def make() -> Grammar:
        return Grammar(dialects, reasoning, markers, answer)

    return COMPILED.get_or_make((dialects, reasoning, markers, answer), make, Grammar.size, lasting=True)
