"""Markup that is none of the message where a call follows it, or the end of the reply: tags and ends of turns.

`reading/doubt.py` says what becomes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import call_syntaxes
from vtc.dialects.syntax.parts import AnyOf, Lit, Part
from vtc.dialects.syntax.scan import Token

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
