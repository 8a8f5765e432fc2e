"""The reader's states, and what every token does in each: the whole machine as data.

The expressions that find the tokens are a grammar's (`grammar.py`), the moves are methods of the reader
(`reader.py`) by name.
"""

from __future__ import annotations

from typing import Literal

from vtc.dialects.syntax.pattern import Scan

type State = Literal[
    "start",  # nothing but white space yet: what only counts for a whole reply may begin here
    "text",
    "info",  # behind a code block's opening fence, up to the end of its line
    "fence",  # in a code block
    "span",  # behind backticks that may open a code span
    "quoted",  # in such a span, behind the head of a call
    "reasoning",
    "arguments",  # behind a head: parameters follow
    "value",
    "guess",  # in the value of a parameter that may be none: a dialect of bare tags, and no declared one was read yet
    "closing",  # after a closer in a value: structure follows, or it is content
    "attributes",  # in the opening tag of a call whose parameters are attributes
    "json",
    "tail",  # behind a JSON body: closers follow
    "after",  # behind a call
    "whole",  # behind a section that must be the whole reply
    "damaged",  # in a call whose JSON broke, up to the next call or the end of the reply
    "spill",  # in what was a call until its JSON broke, up to its closer
]
ANCHORED = frozenset({"start", "arguments", "closing", "tail", "after", "whole"})
"""States in which, white space aside, a token must follow at once."""


MOVES: dict[tuple[State, str], str] = {
    ("start", "h"): "head",
    ("start", "think"): "think_open",
    ("text", "h"): "head",
    ("text", "marker"): "marker",
    ("text", "fence"): "fence",
    ("text", "tilde"): "fence",
    ("text", "ticks"): "ticks",
    ("info", "newline"): "info_end",
    ("info", "ticks"): "info_ticks",
    ("fence", "h"): "head",
    ("fence", "unfence"): "through",
    ("fence", "unfence_end"): "through",
    ("span", "ticks"): "span_ticks",
    ("span", "h"): "span_head",
    ("span", "fence"): "up_to",
    ("span", "tilde"): "up_to",
    ("span", "blank"): "up_to",
    ("quoted", "ticks"): "quoted_ticks",
    ("quoted", "fence"): "unquoted",
    ("quoted", "tilde"): "unquoted",
    ("quoted", "blank"): "unquoted",
    ("reasoning", "unthink"): "think_close",
    ("arguments", "p"): "param",
    ("arguments", "tail"): "bare_tail",
    ("arguments", "json"): "json_arguments",
    ("attributes", "end"): "attributes_end",
    ("value", "o"): "quoted_param",
    ("value", "c"): "closer_in_value",
    ("value", "q"): "quoted_call",
    ("value", "lost"): "lost_call",
    ("value", "tail"): "quoted_tail",
    ("guess", "c"): "closer_in_value",
    ("guess", "lt"): "guessed_wrong",
    ("closing", "p"): "next_param",
    ("closing", "stray"): "content",
    ("closing", "tail"): "value_tail",
    ("closing", "c"): "closer_again",
    ("closing", "last"): "last_tag",
    ("closing", "m"): "call_follows",
    ("tail", "tail"): "done",
    ("tail", "extra"): "extra_tail",
    ("tail", "wrong"): "wrong_tail",
    ("tail", "m"): "missing_tail",
    ("damaged", "d"): "damage_end",
    ("after", "o"): "closer",
    ("after", "next"): "head",
    ("whole", "end"): "whole_end",
    ("spill", "closer"): "through",
}
"""State and token -> the reader's move. A missing entry is an error of ours."""

OTHERWISE: dict[State, str] = {
    "start": "to_text",
    "quoted": "unquoted",
    "arguments": "no_arguments",
    "closing": "content_or_end",
    "tail": "no_tail",
    "after": "after_other",
    "whole": "not_whole",
    "damaged": "damage_end",
}
"""State -> the reader's move when none of its tokens follows."""

INFO = Scan(
    r"(?P<hold>`{1,63}\Z)|(?P<ticks>`{1,64})|(?P<newline>\n)",
    r"(?P<ticks>`{1,64})|(?P<newline>\n)",
)
WHOLE = Scan(r"\s*(?P<hold>\Z)", r"\s*(?P<end>\Z)")
