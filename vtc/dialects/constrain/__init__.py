"""A dialect's patterns and some tools -> what a server decodes by: a tree, and its writers.

constraint.py       patterns and tools -> the tree of a reply -> the form that a server takes
schema.py           JSON Schema -> the trees of values
tree.py             the tree, and text between markup: it ends where our reader ends it
gbnf.py             the tree -> GBNF (llama.cpp and others)
"""

from vtc.dialects.constrain.constraint import Demand, Inexpressible, Kind, find_reserved_opener, render_constraint

__all__ = ["Demand", "Inexpressible", "Kind", "find_reserved_opener", "render_constraint"]
