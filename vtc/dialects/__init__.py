"""Ways of writing tool calls in text: a dialect is described in YAML, and read and written by what that compiles to.

Description            a dialect, from its YAML
compiled(dialects)     the grammar of the dialects that a reply may be written in
Reader(grammar, tools) text -> events, in pieces as they arrive
writing                calls, results and histories -> text
text_client            clients that read calls out of the text
constrain              what a server decodes by
"""

from vtc.dialects.reading.reader import ModelFacts, Reader
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import Grammar, compile_grammar
from vtc.dialects.syntax.pattern import PatternError

__all__ = ["Description", "Grammar", "ModelFacts", "PatternError", "Reader", "Repair", "compile_grammar"]
