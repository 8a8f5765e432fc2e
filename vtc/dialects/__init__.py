"""Dialects: text formats of tool calls. A YAML file describes each, and is compiled to a reader and a writer.

Description                a dialect, from its YAML
load_dialect(name)         a built-in dialect
compile_grammar(dialects)  the grammar of the dialects that a reply may use
ReplySyntax                the syntax of a model's replies: the part of its profile that reading needs
Reader(grammar, tools)     text -> events, incrementally
writing                    calls, results and histories -> text
text_client                clients that parse calls from the text
constrain                  grammars that constrain a server's decoding
"""

from vtc.dialects.builtin import load_dialect
from vtc.dialects.reading.context import ReasoningSyntax, ReplySyntax
from vtc.dialects.reading.reader import ModelFacts, Reader, ReaderOptions
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import Grammar, compile_grammar
from vtc.dialects.syntax.pattern import PatternError

__all__ = [
    "Description",
    "Grammar",
    "ModelFacts",
    "PatternError",
    "Reader",
    "ReaderOptions",
    "ReasoningSyntax",
    "Repair",
    "ReplySyntax",
    "compile_grammar",
    "load_dialect",
]
