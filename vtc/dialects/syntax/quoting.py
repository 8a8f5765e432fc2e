"""What quotes a call, and what stands beside one and does not: code, elements, lines, punctuation."""

from __future__ import annotations

from vtc.dialects.syntax.parts import Chars, Lit, Maybe, OneOf, Space
from vtc.dialects.syntax.scan import Token

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
