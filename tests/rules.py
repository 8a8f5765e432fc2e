"""Texts on which the rules of the reader depend, for all strategies that draw replies.

They contain quotation marks of all kinds, quoting tags, long runs without words, and lengths around each limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from vtc.dialects.reading.after_call import MAX_WORDLESS_CHARACTERS
from vtc.dialects.reading.call_pieces import MAX_HELD_CHARACTERS
from vtc.dialects.reading.context import LOOKBEHIND_CHARACTERS, QUOTATION_MARKS
from vtc.dialects.reading.text import MAX_DOUBTFUL_CHARACTERS as MOST_IN_DOUBT
from vtc.dialects.reading.value import MAX_GUESS_CHARACTERS
from vtc.dialects.syntax.pattern import MAX_SPACE
from vtc.dialects.syntax.tokens import QUOTING_ELEMENTS, REASONING_ELEMENTS, TURN_ENDS, WRAPPERS
from vtc.dialects.syntax.tool_names import PREFIXES

__all__ = [
    "MAX_WORDLESS_CHARACTERS",
    "MOST_IN_DOUBT",
    "PREFIXES",
    "QUOTATION_MARKS",
    "QUOTING_ELEMENTS",
    "TURN_ENDS",
    "WRAPPERS",
    "draw_pieces",
    "rules",
]

QUOTES = [*dict.fromkeys((*QUOTATION_MARKS, *QUOTATION_MARKS.values())), "`", "``", "```", "~~~\n", "```\n"]
TAGS = [
    *(f"</{name}>" for name in QUOTING_ELEMENTS),
    *(f"<{name}>" for name in REASONING_ELEMENTS),
    "<code>",
    "<pre>",
    "<!--",
    "-->",
]
WORDS = [" now.", " and ", "word", "1. ", "> ", "\n> ", "\n    ", "| a | ", "docs/a.md:12: ", "[12:00:01] INFO "]
"""Text before or after a call on the same line."""
BLOCKS = ["> ```\n> x\n> ```\n", "> ~~~\n>x\n", "\n>", "> > ```\n", "\n```\nx\n```\n", "\n  ```\n> x\n  ```\n"]
"""Quoted lines and fences, complete and open."""


def repeat_around(bound: int, text: str) -> list[str]:
    """Return repetitions of a text with a length just below, at and just above a limit."""
    return [(text * bound)[:length] for length in (bound - 1, bound, bound + 1)]


RUNS = [
    *repeat_around(MAX_WORDLESS_CHARACTERS, "."),
    *repeat_around(MAX_WORDLESS_CHARACTERS, "?!…"),
    *repeat_around(LOOKBEHIND_CHARACTERS, "x"),
    *repeat_around(LOOKBEHIND_CHARACTERS, "- "),
    *repeat_around(MAX_SPACE, " "),
    *repeat_around(MAX_SPACE, "\n"),
    *repeat_around(16, "</"),
    *repeat_around(64, "`"),
]
LONG = [
    *repeat_around(MAX_GUESS_CHARACTERS, "x"),
    *repeat_around(MAX_HELD_CHARACTERS, "x "),
    *repeat_around(MOST_IN_DOUBT, "</parameter>\n"),
]
"""Long texts, of which a reply needs at most one."""
RULES = [*QUOTES, *TAGS, *WORDS, *BLOCKS, *RUNS]
rules = st.one_of(*map(st.sampled_from, (QUOTES, TAGS, WORDS, BLOCKS, RUNS)))


def draw_pieces(pieces: Sequence[str], calls: Sequence[str], most: int) -> st.SearchStrategy[list[str]]:
    """Draw pieces of a reply, calls inside of possible quotations, and the texts on which the reader's rules depend."""
    # Mostly a quotation mark before a call and no word after it: most rules decide on that.
    before, after = st.sampled_from(QUOTES) | rules, st.sampled_from([*TAGS, *RUNS]) | rules
    quoted = st.tuples(before, st.sampled_from(calls), after).map("".join)
    one = st.sampled_from(pieces) | rules | quoted
    return st.lists(one, max_size=most) | st.tuples(one, st.sampled_from(LONG), one).map(list)
