"""A set of dialects, compiled for reading.

Several dialects are armed at once and may share an opener: `<tool_call>` begins hermes, qwen3-coder and
others. All their heads (everything up to a call's arguments) go into one expression, so
the text that follows an opener decides which dialect it is, in one pass. Each state of the reader has one such
expression of what leaves it; `reader.py` says what happens then.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from vtc.dialects.bounded_cache import COMPILED
from vtc.dialects.syntax.description import SYNONYMS, Description
from vtc.dialects.syntax.forms import (
    CODE_BLOCK,
    CallSyntax,
    call_syntaxes,
    closers,
    closing_itself,
    variants,
)
from vtc.dialects.syntax.markup import (
    ENCODED_TWICE,
    QUOTES,
    by_spelling,
    literal,
    loosened,
    marker,
    opening_of_json,
    trimmed,
)
from vtc.dialects.syntax.pattern import SPACE, AnyOf, Chars, Group, Lit, Maybe, OneOf, Part, Space, body, whole
from vtc.dialects.syntax.prefilter import ExpectedTokens, FollowingTokens, Prefilter
from vtc.dialects.syntax.scan import OFFERED, OrElse, Scan, Token, expecting, searching

# Patterns of the text that may follow arguments which no closing tag ends.


END_OF_LINE = Scan(
    r"(?P<hold>(?:[ \t\r]{0,256}|\}\s{0,256})\Z)|(?P<tail>[ \t\r]{0,256}(?=\n))",
    r"(?P<tail>[ \t\r]{0,256}(?:(?=\n)|\Z))|(?P<extra0>\}(?=\s{0,256}\Z))",
)
"""The end of the line; with a brace too many, the end of the reply: elsewhere it may stand in a string of the JSON."""
NOTHING = Scan("(?P<tail>)", "(?P<tail>)")
"""Anything: what ends there shows its own end."""
_GOES_ON = (
    r"(?:[ \t]{0,256}[\"']|\}\s{0,256}[^\s\]},<]|[^\n\r{<\[\"']{1,400}+[\"'][ \t]{0,256}[},\]]|\[(?![A-Z/])"
    r"|`(?![\s.,;:)]|\Z)|(?!functions\.|\w{1,128}\[|call:|to=|commentary)[\w$\\/:.\#+=@&*!?~^%{(-]|[^\x00-\x7f✿])"
)
_HELD = r"(?P<hold>(?:[^\n\r{<\[\"']{0,400}\[?|[^\n\r{<\[\"']{1,400}[\"'][ \t]{0,256}|\}\s{0,256})\Z)"
NO_QUOTE = Scan(rf"{_HELD}|(?P<tail>)(?!{_GOES_ON})", rf"(?P<tail>)(?!{_GOES_ON})")
"""Anything but what may belong to a string of the JSON that has a quote which is not escaped."""


# Markup that is none of the message where a call follows it, or the end of the reply: tags and ends of turns.
#
# `InDoubt` (`reading/code.py`) decides about it.


TURN_ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end_of_text|>"),
    *("<end_of_turn>", "<eos>", "</s>"),
)
"""How the templates of many families end a turn. Servers that keep special tokens show them."""


def section_openers(dialects: Iterable[Description]) -> list[str]:
    """List the tags that open a section of calls, or stand before each."""
    openers = {section.partition("{calls}")[0].strip() for dialect in dialects for section in dialect.sections}
    openers |= {marker for dialect in dialects for marker in dialect.optional}
    openers |= {found[0] for dialect in dialects for call in dialect.calls if (found := _FIRST_MARK.match(call))}
    return sorted({*WRAPPERS, *(one for one in openers if one[:1] in ("<", "[") and one[:2] != "</" and len(one) > 4)})


_FIRST_MARK = re.compile(r"<[|｜][^<>{}]*[|｜]>|\[[A-Z_]{4,64}\]|<[\w:.-]+>(?=\s*<)")
"""Finds the marker that a call begins with, or the tag around it."""
SPECIAL = re.compile(r"(?:<[|｜][^<>]*[|｜]>|\[[A-Z_]{4,64}\]|\s+)+")
"""Finds nothing but special tokens, which no one writes by accident."""
_SPECIAL = (Lit("<|"), Lit("<｜"))
"""What special tokens begin with."""
WRAPPERS = ("<tool_calls>", "<function_calls>")
"""Tags around calls that models of any family write, though their dialect has none."""


def doubtful(orphans: Iterable[tuple[Part, ...]], wrappers: Iterable[str]) -> list[Token]:
    """The tokens of markup that is none of the message where a call follows it, or the end of the reply.

    A closing tag is such markup only at the beginning of a line, unless it is a special token: elsewhere a sentence may
    speak of it.
    """
    tags = [Token(f"orphan{i}", parts, line_start=parts[0] not in _SPECIAL) for i, parts in enumerate(orphans)]
    return [
        *(Token(f"ending{i}", (Lit(end),)) for i, end in enumerate(TURN_ENDS)),
        *(tag for tag in tags if tag.first == "<"),
        *(
            Token(f"{'bare' if SPECIAL.fullmatch(opener) else 'wrapper'}{i}", (Lit(opener),))
            for i, opener in enumerate(wrappers)
        ),
    ]


def orphans(dialects: Iterable[Description]) -> list[tuple[Part, ...]]:
    """List the closing tags of some dialects: those that begin alike as one, as there are many."""
    found = [parts for dialect in dialects for one in call_syntaxes(dialect) for parts in one.closing_markup()]
    found += [(Lit(wrapper.replace("<", "</")),) for wrapper in WRAPPERS]
    alike: dict[str, dict[tuple[Part, ...], None]] = {}
    for first, *rest in found:
        assert isinstance(first, Lit)
        begins, more = first.text[:2], first.text[2:]
        alike.setdefault(begins, {})[(*([Lit(more)] if more else []), *rest)] = None
    return [(Lit(begins), AnyOf(tuple(choices))) for begins, choices in sorted(alike.items())]


# The heads of calls, all that stands before their arguments: how a call may begin, the first one and the next.


type Opening = Literal["body", "attributes", "closed"]
"""What follows a head: a body, parameters as attributes, or nothing, as its tag closes itself."""


@lru_cache(maxsize=1024)
def openings(dialect: Description) -> list[tuple[CallSyntax, tuple[Part, ...], Opening]]:
    """The ways a call of a dialect may begin."""
    found: list[tuple[CallSyntax, tuple[Part, ...], Opening]] = []
    for syntax in call_syntaxes(dialect):
        heads = variants(syntax)
        if syntax.body == "params":  # a name may hold a slash, too
            found += [(syntax, closed, "closed") for parts in heads if (closed := closing_itself(parts))]
        found += [(syntax, parts, "body") for parts in heads]
        if tag := syntax.attribute_head():
            found.append((syntax, tag, "attributes"))
    # A head that ends in the name is the beginning of others: <tool_call>bash, <tool_call>bash>{
    return sorted(found, key=lambda one: one[0].body == "params" and isinstance(one[1][-1], Chars | Group))


def heads_after_unclosed(syntax: CallSyntax, name: str) -> list[tuple[Part, ...]]:
    """List how a call begins that follows one without its closing tags: with its section and its marker, or without."""
    dialect = syntax.dialect
    if dialect.names == "declared":
        return syntax.quoted_heads(name)
    calls = [call for call in dialect.calls if body(call) == "params"]
    each = [CallSyntax(dialect, call, section) for call in calls for section in ("", *dialect.sections)]
    heads = [head for one in each for head in variants(one) if isinstance(head[0], Lit)]
    return after_unslashed(syntax, name, heads)


def begins_call(syntax: CallSyntax, text: str, offered: Callable[[str], object]) -> bool:
    """Tell if the text after a call begins with another, of an `offered` tool where the name is all that marks it."""
    for parts in (*(parts for _, parts, _ in openings(syntax.dialect)), *next_heads(syntax)):
        if found := re.match(whole(parts, "head"), text.lstrip()):
            name = found.groupdict().get(f"{OFFERED}_head")
            return name is None or offered(name) is not None
    return False


def unslashed(syntax: CallSyntax, name: str) -> str:
    """The call's only closing tag, as models write it that forget the slash: `<tool_call>`; empty if it has others."""
    tags = syntax.closing_tags(name)
    return tags[0].replace("</", "<", 1) if len(tags) == 1 and tags[0].startswith("</") else ""


def closers_written(syntax: CallSyntax, name: str) -> list[str]:
    """The call's closing tags; where it has none, that of the tag it opens with, which models write all the same."""
    tag = _OPENING_TAG.match(syntax.call)
    return syntax.closing_tags(name) or ([f"</{tag[1]}>"] if tag else [])


_OPENING_TAG = re.compile(r"<([A-Za-z][\w:.-]*)>")


def after_unslashed(syntax: CallSyntax, name: str, heads: Iterable[tuple[Part, ...]]) -> list[tuple[Part, ...]]:
    """List some heads of the next call, and the same after a closing tag without its slash: as `next`."""
    heads, closer = list(heads), unslashed(syntax, name)
    ends = trimmed(literal(closer, syntax.dialect)) if closer else ()
    return [*heads, *((*ends, Space(), Group(head, "next")) for head in heads if ends)]


def next_heads(syntax: CallSyntax) -> list[tuple[Part, ...]]:
    """List how the next call begins, in a section or where calls follow one another."""
    each = heads = variants(CallSyntax(syntax.dialect, syntax.call))
    comma = syntax.dialect.separator.strip()
    if comma:
        heads = [(Lit(comma), Space(), *parts) for parts in heads] + heads
    if syntax.lists_calls:  # each in a list of its own
        heads = heads + [(Lit("]"), Space(), Lit("["), Space(), *parts) for parts in each]
    return [parts for parts in heads if isinstance(parts[0], Lit) or not comma]


# What quotes a call, and what stands beside one and does not: code, elements, lines, punctuation.


FENCES = (
    Token("fence", (Lit("```"), Maybe((Chars("`", 61),))), line_start=True),
    Token("tilde", (Lit("~~~"), Maybe((Chars("~", 61),))), line_start=True),
)
RESULTS = ("tool_response", "function_results", "tool_result", "observation")
THOUGHTS = ("reasoning", "analysis", "scratchpad", "reflection", "think", "thinking", "thought")
ELEMENTS = (*RESULTS, *THOUGHTS, "example", "examples", "pre", "code", "samp", "blockquote", "details")
"""Elements in which a call is quoted: what a tool answered, an example, thoughts in tags of no family."""
COMMENT = "<!--"
"""What opens a comment of HTML, which quotes as well."""
_ATTRIBUTES = Maybe((Chars(" \\t", 1), Chars("^<>\\n", 256)))
_QUOTING = [(Lit(COMMENT),), *((Lit(f"<{name}"), _ATTRIBUTES, Lit(">")) for name in ELEMENTS)]
QUOTING = [Token(f"quote{i}", parts, line_start=True) for i, parts in enumerate(_QUOTING)]
_QUOTED = (Maybe((Lit(">"),)), Chars("^>", 1))
"""The rest of `>` or `>>` that quotes, with the character after it: Functionary writes `>>>` before a call."""
INDENTED = tuple((Lit(f"\n{blanks}"),) for blanks in ("    ", *(" " * count + "\t" for count in range(4))))
LINES = [
    Token(f"line{i}", parts)
    for i, parts in enumerate((*INDENTED, *((Lit(f"\n{' ' * count}>"), *_QUOTED) for count in range(4))))
]
"""How a line of code begins, or one that quotes."""
FIRST_LINE = Token("line", (Lit(">"), *_QUOTED))
"""How the first line of a reply begins that quotes. Indentation says nothing there: it is no code."""
TICKS = Token("ticks", (Lit("`"), Maybe((Chars("`", 63),))))
IN_LINE = r"[ \t\r]{0,256}+"
BLANK_LINE = Token("blank", (Lit("\n"), Maybe((Chars(" \\t\\r", 64),)), Lit("\n")))

NO_WORDS = (
    Token("mark", (OneOf(('"', "'", "”", "’", "»", "“", "」", "』", "|")),)),
    Token("skip0", (Lit("</"), Chars(r"\w:.\-", 64), Space(), Lit(">"))),
    Token("skip1", (Lit("<|"), Chars("^<>|\\s", 64), Lit("|>"))),
    Token("skip2", (Lit("<｜"), Chars("^<>｜\\s", 64), Lit("｜>"))),
    Token("skip3", (OneOf((".", ",", ";", ":", "!", "?", "…", "。", "，", "、", "；", "：", "！", "？")),)),
)
"""What may follow a call on its line and is no word."""


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
        self.start = ExpectedTokens([*think, *closed, *whole, *dropped, *prompted, FIRST_LINE])
        armed = {head.syntax.dialect for head in anywhere}
        self._orphans = orphans(armed)
        in_doubt = doubtful(self._orphans, section_openers(armed))
        self.text = Prefilter([*tokens, *dropped, *in_doubt, *stray, *QUOTING, *LINES, *FENCES, TICKS])
        again = [Token(token.name, token.parts) for token in in_doubt]
        self.first_call = FollowingTokens(self.text, ("h",), ())
        self.doubtful = FollowingTokens(self.text, ("h", *DOUBTFUL), again)
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
        return FollowingTokens(self.text, ("h",), tokens, IN_LINE if line_end else SPACE)

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
