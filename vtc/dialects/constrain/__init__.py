"""Constraints for a server's decoding, made of a dialect's patterns and some tools: a tree, and its writers.

constraint.py       patterns and tools -> the tree of a reply -> the form that a server accepts
schema.py           JSON Schema -> the trees of values
tree.py             the tree, and text between markup, which ends at the same place as in the reader
gbnf.py             the tree -> GBNF (llama.cpp and others)
"""

from vtc.dialects.constrain.constraint import Demand, Inexpressible, Kind, find_reserved_opener, render_constraint

__all__ = ["Demand", "Inexpressible", "Kind", "find_reserved_opener", "render_constraint"]
