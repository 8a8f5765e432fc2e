"""The tokens that the reader looks for: their kinds, and those that are the same in every grammar.

A grammar (`grammar.py`) says which of them are looked for in which state, the reader's table
(`reading/transitions.py`) what each does there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum, auto
from functools import lru_cache

from vtc.dialects.syntax.description import ARGUMENT_KEYS, Description
from vtc.dialects.syntax.forms import list_call_syntaxes
from vtc.dialects.syntax.pattern import AnyOf, Chars, Lit, Maybe, OneOf, Part, Space
from vtc.dialects.syntax.scan import ExpressionScan, Token, kind_of, make_search_scan


class TokenKind(StrEnum):
    """The kind of a token. The name of a token is that of its kind, with a number where a state looks for several."""

    CALL_OPENER = auto()
    """How a call begins, up to its arguments."""
    NEXT_CALL = auto()
    """The same of the next call: in a section, or after one that lacks its closing tags."""
    NEXT_EMPTY_CALL = auto()
    """The opening tag of the next call of a section, if it closes itself."""
    NEXT_IN_LIST = auto()
    """A comma at the end of a line of JSON, and the next call."""
    NEXT_OBJECT = auto()
    """Another object before a call's closing tags."""
    CALL_CLOSER = auto()
    """All that closes a call."""
    CLOSER_AND_CALL = auto()
    """A call's closing tag, and the opening tag of a call directly after it."""
    OUTER_CLOSER = auto()
    """A closing tag that follows the call's first one: that of its wrapper or its section."""
    WRONG_CLOSER = auto()
    """A closing tag of another kind where a call's own should stand."""
    EXTRA_BRACE = auto()
    """A brace too many, and a call's closing tags or the end of its line."""
    EXTRA_FENCE = auto()
    """The fence of a code block, and a call's closing tags."""
    LATE_CLOSER = auto()
    """A closing tag after a call: of its section, or one that nothing opened."""
    PARAMETER_OPENER = auto()
    PARAMETER_CLOSER = auto()
    GARBLED_OPENER = auto()
    """The beginning of a parameter's opening tag that goes on otherwise."""
    ELEMENT_OPENER = auto()
    """The opening tag of an element in a value that the call's closing tag pairs with."""
    JSON_OPENER = auto()
    """The beginning of an object where parameters should stand."""
    TAG = auto()
    """The beginning of any tag, where a value holds none."""
    TAG_END = auto()
    """The end of an opening tag that holds attributes."""

    REASONING_OPENER = auto()
    REASONING_CLOSER = auto()
    QUOTED_REASONING_TAG = auto()
    """A tag of reasoning in backticks."""
    ANSWER_OPENER = auto()
    """A marker after which all is text, whatever it looks like."""
    ANSWER_CLOSER = auto()
    MARKER = auto()
    """A marker of the model's that is no part of its message."""

    TURN_END = auto()
    """A special token that ends the turn."""
    ORPHAN_CLOSER = auto()
    """A closing tag of a call that nothing opened."""
    WRAPPER_OPENER = auto()
    """The opening tag of a wrapper around calls, without one."""
    SPECIAL_OPENER = auto()
    """The same of a special token."""
    RESULT_OPENER = auto()
    """The beginning of a tool's result, which a model has no business to write."""

    FENCE = auto()
    """The fence of a code block."""
    QUOTING_ELEMENT = auto()
    """The opening tag of an element that quotes: an example, a comment."""
    CODE_END = auto()
    """The end of a code block, or of an element that quotes."""
    BACKTICKS = auto()
    QUOTING_LINE = auto()
    """The beginning of a line of indented code, or of one that quotes with `>`."""
    CODE_LINE = auto()
    """The beginning of one more line of indented code."""
    LINE_END = auto()
    """The end of a line, or what ends it as well: a marker, a closing tag of reasoning."""
    BLANK_LINE = auto()
    QUOTATION_MARK = auto()
    NO_WORD = auto()
    """Punctuation, a closing tag or a special token after a call."""
    NOTHING_MORE = auto()
    """The end of the reply, where nothing else may follow."""

    # What is no token has a step, too.
    OTHERWISE = auto()
    """None of the state's tokens follows: at once where one must, else at the end of the text."""
    TEXT = auto()
    """The text before the next token, where it need not follow at once."""
    REPLY_END = auto()
    """The reply ends here, and nothing else is left to do."""


NO_TOKENS = (TokenKind.OTHERWISE, TokenKind.TEXT, TokenKind.REPLY_END)


def number_of(name: str | None) -> int:
    """Return the number in the name of a token."""
    return int(name[len(kind_of(name)) :]) if name else 0


def make_tokens(
    kind: TokenKind,
    sequences: Iterable[tuple[Part, ...]],
    *,
    line_start: bool = False,
    at_end: bool = False,
    after: int = 0,
) -> list[Token]:
    """Make tokens of one kind, in the order in which they are tried, `after` as many others."""
    return [Token(f"{kind}{i}", parts, line_start, at_end) for i, parts in enumerate(sequences, after)]


PUNCTUATION = (".", ",", ";", ":", "!", "?", "…", "。", "，", "、", "；", "：", "！", "？")
"""What may follow a call and is no word."""
SENTENCE_ENDS = (".", "!", "。", "！")
"""End a sentence that no special token belongs to; one after a question may be its answer."""
_STOPS = rf"[{''.join(PUNCTUATION)}](?:\s|\Z)"

# Text that may follow arguments which no closing tag ends.

_CLOSER = TokenKind.CALL_CLOSER
_BLANKS_OF_LINE = r"[ \t\r]{0,256}"


def express_line_end(stop: str = "") -> tuple[str, str]:
    """Write the end of the line, with a `stop` before it at most; while more may come, and at the end of the reply.

    There a brace too many may stand, too: elsewhere it may stand in a string of the JSON.
    """
    ends = f"(?:{stop}{_BLANKS_OF_LINE})?" if stop else ""
    return (
        rf"(?P<hold>(?:{_BLANKS_OF_LINE}{ends}|\}}\s{{0,256}})\Z)|(?P<{_CLOSER}>{_BLANKS_OF_LINE})(?={ends}\n)",
        rf"(?P<{_CLOSER}>{_BLANKS_OF_LINE})(?={ends}(?:\n|\Z))|(?P<{TokenKind.EXTRA_BRACE}>\}}(?=\s{{0,256}}\Z))",
    )


END_OF_LINE = express_line_end()
END_OF_SENTENCE = express_line_end(f"[{''.join(SENTENCE_ENDS)}]")
"""The same, also after a full stop."""
IMMEDIATE_END = ExpressionScan(f"(?P<{_CLOSER}>)", f"(?P<{_CLOSER}>)")
"""Anything: what ends there shows its own end."""
_GOES_ON = (
    r"(?:[ \t]{0,256}[\"']|\}\s{0,256}[^\s\]},<]|[^\n\r{<\[\"']{1,400}+[\"'][ \t]{0,256}[},\]]|\[(?![A-Z/])"
    r"|`(?![\s.,;:)]|\Z)|(?!functions\.|\w{1,128}\[|call:|to=|commentary)"
    rf"(?!{_STOPS})[\w$\\/:.\#+=@&*!?~^%{{(-]|(?!{_STOPS})[^\x00-\x7f✿])"
)
_HELD = r"(?P<hold>(?:[^\n\r{<\[\"']{0,400}\[?|[^\n\r{<\[\"']{1,400}[\"'][ \t]{0,256}|\}\s{0,256})\Z)"
NO_QUOTE = (rf"{_HELD}|(?P<{_CLOSER}>)(?!{_GOES_ON})", rf"(?P<{_CLOSER}>)(?!{_GOES_ON})")
"""Anything but what may belong to a string of the JSON that has a quote which is not escaped."""
ARGUMENTS_CLOSER = (Lit("</"), OneOf(ARGUMENT_KEYS), Lit(">"), Space())
"""The end of an element around all parameters."""


# Markup that is none of the message where a call follows it, or the end of the reply: tags and ends of turns.
#
# `InDoubt` (`reading/text.py`) decides about it.

DOUBTFUL_KINDS = (TokenKind.TURN_END, TokenKind.ORPHAN_CLOSER, TokenKind.WRAPPER_OPENER, TokenKind.SPECIAL_OPENER)
TURN_ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end_of_text|>"),
    *("<end_of_turn>", "<eos>", "</s>", "<｜end▁of▁sentence｜>"),
)
"""How the templates of many families end a turn. Servers that keep special tokens show them."""
SPECIAL_TOKENS = re.compile(r"(?:<[|｜][^<>]*[|｜]>|\[[A-Z_]{4,64}\]|\s+)+")
"""Finds nothing but special tokens, which no one writes by accident."""
WRAPPERS = ("<tool_calls>", "<function_calls>")
"""Tags around calls that models of any family write, though their dialect has none."""
_CLOSING_TAG = re.compile(r"</[\w:.-]+>")
_SPECIAL = (Lit("<|"), Lit("<｜"))
"""What special tokens begin with."""
_FIRST_MARK = re.compile(r"<[|｜][^<>{}]*[|｜]>|\[[A-Z_]{4,64}\]|<[\w:.-]+>(?=\s*<)")
"""Finds the marker that a call begins with, or the tag around it."""


def list_section_openers(dialects: Iterable[Description]) -> list[str]:
    """List the tags that open a section of calls, or stand before each."""
    openers = {section.partition("{calls}")[0].strip() for dialect in dialects for section in dialect.sections}
    openers |= {marker for dialect in dialects for marker in dialect.optional}
    openers |= {mark[0] for dialect in dialects for call in dialect.calls if (mark := _FIRST_MARK.match(call))}
    return sorted({*WRAPPERS, *(tag for tag in openers if tag[:1] in ("<", "[") and tag[:2] != "</" and len(tag) > 4)})


def list_orphan_closers(dialects: Iterable[Description]) -> list[tuple[Part, ...]]:
    """List the closing tags of some dialects: those that begin alike as one, as there are many."""
    closers = [parts for dialect in dialects for parts in _closing_markup(dialect)]
    closers += [(Lit(wrapper.replace("<", "</")),) for wrapper in WRAPPERS]
    alike: dict[str, dict[tuple[Part, ...], None]] = {}
    for first, *rest in closers:
        assert isinstance(first, Lit)
        begins, more = first.text[:2], first.text[2:]
        alike.setdefault(begins, {})[(*([Lit(more)] if more else []), *rest)] = None
    return [(Lit(begins), AnyOf(tuple(choices))) for begins, choices in sorted(alike.items())]


@lru_cache(maxsize=1024)
def _closing_markup(dialect: Description) -> list[tuple[Part, ...]]:
    return [parts for syntax in list_call_syntaxes(dialect) for parts in syntax.closing_markup()]


def split_markers(markers: Iterable[str]) -> tuple[list[str], list[str]]:
    """Part the markers of a model from closing tags that none of them opens, which it may show as well."""
    known = [*markers]
    tags = [text for text in known if _CLOSING_TAG.fullmatch(text) and text.replace("/", "") not in known]
    return [text for text in known if text not in tags], tags


def make_doubtful_tokens(
    orphans: Iterable[tuple[Part, ...]], openers: Iterable[str], closing_tags: Iterable[str] = ()
) -> list[Token]:
    """List the tokens of markup that is none of the message where a call follows it, or the end of the reply.

    A closing tag is such markup only at the beginning of a line, unless it is a special token or one with which the
    model ends its turn (`closing_tags`): elsewhere a sentence may speak of it.
    """
    openers = [*openers]
    anywhere = [(Lit(tag),) for tag in closing_tags]
    closers = [
        Token(f"{TokenKind.ORPHAN_CLOSER}{i}", parts, line_start=parts[0] not in _SPECIAL and parts not in anywhere)
        for i, parts in enumerate([*anywhere, *orphans])
    ]
    special = [opener for opener in openers if SPECIAL_TOKENS.fullmatch(opener)]
    return [
        *make_tokens(TokenKind.TURN_END, ((Lit(end),) for end in TURN_ENDS)),
        *(closer for closer in closers if closer.first == "<"),
        *make_tokens(TokenKind.SPECIAL_OPENER, ((Lit(opener),) for opener in special)),
        *make_tokens(TokenKind.WRAPPER_OPENER, ((Lit(opener),) for opener in openers if opener not in special)),
    ]


# What quotes a call, and what stands beside one and does not: code, elements, lines, punctuation.

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
"""Elements in which a call is quoted: what a tool answered, an example, a document, thoughts in tags of no family."""
COMMENT_OPENER = "<!--"
"""What opens a comment of HTML, which quotes as well."""
_ATTRIBUTES = Maybe((Chars(" \\t", 1), Chars("^<>\\n", 256)))
_QUOTED = (Maybe((Lit(">"),)), Chars("^>", 1))
"""The rest of `>` or `>>` that quotes, with the character after it: Functionary writes `>>>` before a call."""
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
        *((Lit(f"\n{' ' * count}>"), *_QUOTED) for count in range(4)),
        *((Lit(f"\n{blanks}"), _BLANKS) for blanks in ("  ", "\t", " \t")),
    ],
)
"""How a line of indented code, of a block of YAML or of a quotation begins, as far as the line alone can tell."""
FIRST_LINE = Token(TokenKind.QUOTING_LINE, (Lit(">"), *_QUOTED))
"""How the first line of a reply begins that quotes. Indentation says nothing there: it is no code."""
TICKS = Token(TokenKind.BACKTICKS, (Lit("`"), Maybe((Chars("`", 63),))))
BLANK_LINE = Token(TokenKind.BLANK_LINE, (Lit("\n"), Maybe((Chars(" \\t\\r", 64),)), Lit("\n")))
INFO = make_search_scan([TICKS, Token(TokenKind.LINE_END, (Lit("\n"),))])
"""The rest of the line that a fence opens."""
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
"""What may follow a call on its line and is no word."""
