"""Python modules of the tree, parsed once for all checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

type Tree = Mapping[str, str]
"""Sources by path."""


@lru_cache(maxsize=2048)
def parse_module(source: str) -> ast.Module:
    return ast.parse(source)


@lru_cache(maxsize=2048)
def _group_nodes(module: ast.Module) -> Mapping[type[ast.AST], list[Any]]:
    nodes: dict[type[ast.AST], list[Any]] = {}
    for node in ast.walk(module):
        nodes.setdefault(type(node), []).append(node)
    return nodes


def find_nodes[N: ast.AST](module: ast.Module, *classes: type[N]) -> Iterator[N]:
    """Yield all nodes of a module of these classes, unordered."""
    return (node for name in classes for node in _group_nodes(module).get(name, ()))
