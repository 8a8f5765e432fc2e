"""The tokens that the reader looks for: their kinds, and the tokens that are the same in every grammar.

A grammar (`grammar.py`) selects the tokens of each state; the reader's table (`reading/transitions.py`) defines the
effect of each token in a state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum, auto
from functools import lru_cache

from vtc.dialects.syntax.description import ARGUMENT_KEYS, Description
from vtc.dialects.syntax.forms import list_call_syntaxes
from vtc.dialects.syntax.pattern import AnyOf, Chars, Lit, Maybe, OneOf, Part, Space, make_expression
from vtc.dialects.syntax.scan import ExpressionScan, Token, get_token_kind, make_search_scan


class TokenKind(StrEnum):
    """Kind of a token. The name of a token is its kind, with a number if a state has more than one of that kind."""

    CALL_OPENER = auto()
    """The beginning of a call, up to its arguments."""
    NEXT_CALL = auto()
    """The beginning of the next call: in a section, or after a call without closing tags."""
    NEXT_EMPTY_CALL = auto()
    """A self-closing opening tag of the next call in a section."""
    NEXT_IN_LIST = auto()
    """A comma at the end of a line of JSON, followed by the next call."""
    NEXT_OBJECT = auto()
    """Another object before the closing tags of a call."""
    CALL_CLOSER = auto()
    """The closing tags of a call."""
    CLOSER_AND_CALL = auto()
    """The closing tag of a call, directly followed by the opening tag of another."""
    OUTER_CLOSER = auto()
    """A closing tag after the first one of a call: its wrapper's or its section's."""
    WRONG_CLOSER = auto()
    """A closing tag of another kind in place of the call's own."""
    EXTRA_BRACE = auto()
    """A surplus brace, followed by the closing tags of a call or the end of its line."""
    EXTRA_FENCE = auto()
    """The fence of a code block, followed by the closing tags of a call."""
    LATE_CLOSER = auto()
    """A closing tag after a call: its section's, or an unpaired one."""
    PARAMETER_OPENER = auto()
    PARAMETER_CLOSER = auto()
    GARBLED_OPENER = auto()
    """The beginning of a parameter's opening tag, with an unexpected continuation."""
    ELEMENT_OPENER = auto()
    """The opening tag of an element inside a value; it pairs with the closing tag of the call."""
    JSON_OPENER = auto()
    """The beginning of an object in place of parameters."""
    TAG = auto()
    """The beginning of any tag, inside a value that may not contain one."""
    TAG_END = auto()
    """The end of an opening tag with attributes."""

    REASONING_OPENER = auto()
    REASONING_CLOSER = auto()
    QUOTED_REASONING_TAG = auto()
    """A tag of reasoning in backticks."""
    ANSWER_OPENER = auto()
    """A marker that begins the answer: everything after it is text."""
    ANSWER_CLOSER = auto()
    MARKER = auto()
    """A marker of the model that is not part of its message."""

    TURN_END = auto()
    """A special token that ends the turn."""
    ORPHAN_CLOSER = auto()
    """A closing tag of a call that was not opened."""
    WRAPPER_OPENER = auto()
    """The opening tag of a wrapper around calls, without a call."""
    SPECIAL_OPENER = auto()
    """A special token that opens a call or a section, without a call."""
    RESULT_OPENER = auto()
    """The beginning of a tool's result, which only the client may write."""

    FENCE = auto()
    """The fence of a code block."""
    QUOTING_ELEMENT = auto()
    """The opening tag of an element that quotes its content, for example an example or a comment."""
    CODE_END = auto()
    """The end of a code block, or of an element that quotes."""
    BACKTICKS = auto()
    QUOTING_LINE = auto()
    """The beginning of a line of indented code, or of a quotation (`>`)."""
    CODE_LINE = auto()
    """The beginning of one more line of indented code."""
    LINE_END = auto()
    """The end of a line, or its equivalent: a marker or a closing tag of reasoning."""
    BLANK_LINE = auto()
    QUOTATION_MARK = auto()
    NO_WORD = auto()
    """Punctuation, a closing tag or a special token after a call."""
    NOTHING_MORE = auto()
    """The end of the reply, if nothing else may follow."""

    # Steps of the reader's table that no token triggers.
    OTHERWISE = auto()
    """No token of the state follows: at once if one must follow, otherwise at the end of the text."""
    TEXT = auto()
    """The text before the next token, if the token need not follow at once."""
    REPLY_END = auto()
    """The end of the reply, when no work remains."""


NO_TOKENS = (TokenKind.OTHERWISE, TokenKind.TEXT, TokenKind.REPLY_END)


def get_token_number(name: str | None) -> int:
    """Return the number in the name of a token."""
    return int(name[len(get_token_kind(name)) :]) if name else 0


def make_tokens(
    kind: TokenKind,
    sequences: Iterable[tuple[Part, ...]],
    *,
    line_start: bool = False,
    at_end: bool = False,
    after: int = 0,
) -> list[Token]:
    """Make tokens of one kind in order of precedence, numbered from `after`."""
    return [Token(f"{kind}{i}", parts, line_start, at_end) for i, parts in enumerate(sequences, after)]


PUNCTUATION = (".", ",", ";", ":", "!", "?", "…", "。", "，", "、", "；", "：", "！", "？")
"""Characters that may follow a call and are not words."""
SENTENCE_ENDS = (".", "!", "。", "！")
"""Ends of sentences that no special token follows. A special token after a question may be its answer."""
_STOP = rf"[{''.join(PUNCTUATION)}](?:\s|\Z)"


_CLOSER = TokenKind.CALL_CLOSER
_BLANKS_OF_LINE = r"[ \t\r]{0,256}"


def make_line_end_expressions(stop: str = "") -> tuple[str, str]:
    """Make two expressions for the end of a line, with at most a `stop` before it: for a partial and a complete reply.

    In a complete reply a surplus brace is allowed, too; elsewhere it may be in a string of the JSON.
    """
    ends = f"(?:{stop}{_BLANKS_OF_LINE})?" if stop else ""
    return (
        rf"(?P<hold>(?:{_BLANKS_OF_LINE}{ends}|\}}\s{{0,256}})\Z)|(?P<{_CLOSER}>{_BLANKS_OF_LINE})(?={ends}\n)",
        rf"(?P<{_CLOSER}>{_BLANKS_OF_LINE})(?={ends}(?:\n|\Z))|(?P<{TokenKind.EXTRA_BRACE}>\}}(?=\s{{0,256}}\Z))",
    )


END_OF_LINE = make_line_end_expressions()
END_OF_SENTENCE = make_line_end_expressions(f"[{''.join(SENTENCE_ENDS)}]")
"""The end of a line, also after a full stop or an exclamation mark."""
IMMEDIATE_END = ExpressionScan(f"(?P<{_CLOSER}>)", f"(?P<{_CLOSER}>)")
"""Matches anywhere, as the closer of a call whose body shows its own end."""
_STRING_CONTINUES = (
    r"(?:[ \t]{0,256}[\"']|\}\s{0,256}[^\s\]},<]|[^\n\r{<\[\"']{1,400}+[\"'][ \t]{0,256}[},\]]|\[(?![A-Z/])"
    r"|`(?![\s.,;:)]|\Z)|(?!functions\.|\w{1,128}\[|call:|to=|commentary)"
    rf"(?!{_STOP})[\w$\\/:.\#+=@&*!?~^%{{(-]|(?!{_STOP})[^\x00-\x7f✿])"
)
_UNDECIDED_END = r"(?P<hold>(?:[^\n\r{<\[\"']{0,400}\[?|[^\n\r{<\[\"']{1,400}[\"'][ \t]{0,256}|\}\s{0,256})\Z)"
END_OF_JSON = (rf"{_UNDECIDED_END}|(?P<{_CLOSER}>)(?!{_STRING_CONTINUES})", rf"(?P<{_CLOSER}>)(?!{_STRING_CONTINUES})")
"""Matches after JSON, unless the text continues like a string that contains an unescaped quote: then the JSON is not
complete."""
ARGUMENTS_CLOSER = (Lit("</"), OneOf(ARGUMENT_KEYS), Lit(">"), Space())
"""The closing tag of an element around all parameters."""


DOUBTFUL_KINDS = (TokenKind.TURN_END, TokenKind.ORPHAN_CLOSER, TokenKind.WRAPPER_OPENER, TokenKind.SPECIAL_OPENER)
"""Kinds of markup that is no part of the message if a call or the end of the reply follows (`reading.text.InDoubt`)."""
TURN_ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end_of_text|>"),
    *("<end_of_turn>", "<eos>", "</s>", "<｜end▁of▁sentence｜>"),
)
"""Ends of a turn in the templates of many model families. Servers that keep special tokens emit them."""
SPECIAL_TOKENS = re.compile(r"(?:<[|｜][^<>]*[|｜]>|\[[A-Z_]{4,64}\]|\s+)+")
"""Matches special tokens, which nobody writes by accident, and white space between them."""
WRAPPERS = ("<tool_calls>", "<function_calls>")
"""Tags around calls that models of any family write, even if their dialect has none."""
_CLOSING_TAG = re.compile(r"</[\w:.-]+>")
_SPECIAL_TOKEN_STARTS = (Lit("<|"), Lit("<｜"))
"""Prefixes of special tokens."""
_FIRST_MARK = re.compile(r"<[|｜][^<>{}]*[|｜]>|\[[A-Z_]{4,64}\]|<[\w:.-]+>(?=\s*<)")
"""Finds the marker at the start of a call, or the tag around it."""


def list_section_openers(dialects: Iterable[Description]) -> list[str]:
    """List the tags that open a section of calls or precede each call."""
    openers = {opener for dialect in dialects for opener in _list_openers(dialect)}
    return sorted({*WRAPPERS, *openers})


@lru_cache(maxsize=1024)
def _list_openers(dialect: Description) -> list[str]:
    openers = [section.partition("{calls}")[0].strip() for section in dialect.sections]
    openers += dialect.optional
    openers += [mark[0] for call in dialect.calls if (mark := _FIRST_MARK.match(call))]
    return [tag for tag in openers if tag[:1] in ("<", "[") and tag[:2] != "</" and len(tag) > 4]


def is_opener_closed(dialects: Iterable[Description], opener: str, closer: str) -> bool:
    """Return True if one of the dialects begins calls or a section with `opener` and ends them with `closer`."""
    return any(
        opener in _list_openers(dialect)
        and any(re.fullmatch(make_expression(parts), closer) for parts in _list_closing_markup(dialect))
        for dialect in dialects
    )


def list_orphan_closers(dialects: Iterable[Description]) -> list[tuple[Part, ...]]:
    """List the closing tags of some dialects, merged by their first two characters, because they are many."""
    closers = [parts for dialect in dialects for parts in _list_closing_markup(dialect)]
    closers += [(Lit(wrapper.replace("<", "</")),) for wrapper in WRAPPERS]
    by_prefix: dict[str, dict[tuple[Part, ...], None]] = {}
    for first, *rest in closers:
        assert isinstance(first, Lit)
        begins, more = first.text[:2], first.text[2:]
        by_prefix.setdefault(begins, {})[(*([Lit(more)] if more else []), *rest)] = None
    return [(Lit(begins), AnyOf(tuple(choices))) for begins, choices in sorted(by_prefix.items())]


@lru_cache(maxsize=1024)
def _list_closing_markup(dialect: Description) -> list[tuple[Part, ...]]:
    return [parts for syntax in list_call_syntaxes(dialect) for parts in syntax.closers.list_markup()]


def split_markers(markers: Iterable[str]) -> tuple[list[str], list[str]]:
    """Separate the markers of a model from closing tags without an opening marker, which it may emit as well."""
    known = [*markers]
    tags = [text for text in known if _CLOSING_TAG.fullmatch(text) and text.replace("/", "") not in known]
    return [text for text in known if text not in tags], tags


def make_doubtful_tokens(
    orphans: Iterable[tuple[Part, ...]], openers: Iterable[str], closing_tags: Iterable[str] = ()
) -> list[Token]:
    """Make the tokens of `DOUBTFUL_KINDS`.

    A closing tag counts only at the beginning of a line, because a sentence may mention it elsewhere. Exceptions are
    special tokens and the tags with which the model ends its turn (`closing_tags`).
    """
    openers = [*openers]
    anywhere = [(Lit(tag),) for tag in closing_tags]
    closers = [
        Token(
            f"{TokenKind.ORPHAN_CLOSER}{i}",
            parts,
            line_start=parts[0] not in _SPECIAL_TOKEN_STARTS and parts not in anywhere,
        )
        for i, parts in enumerate([*anywhere, *orphans])
    ]
    special = [opener for opener in openers if SPECIAL_TOKENS.fullmatch(opener)]
    return [
        *make_tokens(TokenKind.TURN_END, ((Lit(end),) for end in TURN_ENDS)),
        *(closer for closer in closers if closer.first == "<"),
        *make_tokens(TokenKind.SPECIAL_OPENER, ((Lit(opener),) for opener in special)),
        *make_tokens(TokenKind.WRAPPER_OPENER, ((Lit(opener),) for opener in openers if opener not in special)),
    ]


RESULT_ELEMENTS = ("tool_response", "function_results", "tool_result", "observation")
REASONING_ELEMENTS = ("reasoning", "analysis", "scratchpad", "reflection", "think", "thinking", "thought")
DOCUMENT_ELEMENTS = ("documentation", "docs", "sample", "quote")
QUOTING_ELEMENTS = (
    *RESULT_ELEMENTS,
    *REASONING_ELEMENTS,
    "example",
    "examples",
    "pre",
    "code",
    "samp",
    "blockquote",
    "details",
    *DOCUMENT_ELEMENTS,
)
"""Elements that quote calls: results of tools, examples, documents, and reasoning in tags of no known family."""
COMMENT_OPENER = "<!--"
"""Opener of an HTML comment, which quotes as well."""
_ATTRIBUTES = Maybe((Chars(" \\t", 1), Chars("^<>\\n", 256)))
_QUOTATION_REST = (Maybe((Lit(">"),)), Chars("^>", 1))
"""The rest of a quotation mark `>` or `>>`, with the next character: Functionary writes `>>>` before a call."""
CODE_INDENTS = tuple((Lit(f"\n{blanks}"),) for blanks in ("    ", *(" " * count + "\t" for count in range(4))))

FENCES = make_tokens(
    TokenKind.FENCE,
    [(Lit(mark * 3), Maybe((Chars(mark, 61),))) for mark in "`~"],
    line_start=True,
)
ELEMENT_TOKENS = make_tokens(
    TokenKind.QUOTING_ELEMENT,
    [(Lit(COMMENT_OPENER),), *((Lit(f"<{name}"), _ATTRIBUTES, Lit(">")) for name in QUOTING_ELEMENTS)],
    line_start=True,
)
_BLANKS = Maybe((Chars(" \\t", 64),))
QUOTING_LINES = make_tokens(
    TokenKind.QUOTING_LINE,
    [
        *((Lit(f"\n{' ' * count}>"), *_QUOTATION_REST) for count in range(4)),
        *((Lit(f"\n{blanks}"), _BLANKS) for blanks in ("  ", "\t", " \t")),
    ],
)
"""Beginnings of a line of indented code, of a YAML block or of a quotation, as far as the line alone can show it."""
FIRST_LINE = Token(TokenKind.QUOTING_LINE, (Lit(">"), *_QUOTATION_REST))
"""The beginning of a reply with a quotation. Indentation does not count in the first line: it is not code."""
TICKS = Token(TokenKind.BACKTICKS, (Lit("`"), Maybe((Chars("`", 63),))))
BLANK_LINE = Token(TokenKind.BLANK_LINE, (Lit("\n"), Maybe((Chars(" \\t\\r", 64),)), Lit("\n")))
INFO_STRING = make_search_scan([TICKS, Token(TokenKind.LINE_END, (Lit("\n"),))])
"""The info string of a fence, up to the end of its line."""
NO_WORDS = (
    Token(TokenKind.QUOTATION_MARK, (OneOf(('"', "'", "”", "’", "»", "“", "」", "』", "|")),)),
    *make_tokens(
        TokenKind.NO_WORD,
        (
            (Lit("</"), Chars(r"\w:.\-", 64), Space(), Lit(">")),
            (Lit("<|"), Chars("^<>|\\s", 64), Lit("|>")),
            (Lit("<｜"), Chars("^<>｜\\s", 64), Lit("｜>")),
            (OneOf(PUNCTUATION),),
        ),
    ),
)
"""Tokens after a call on its line that are not words, so that the call may still be no quotation."""
