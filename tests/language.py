"""Check the language of the code and the documents: names of functions, types and constants, and habits of prose.

Each check takes the tree as `{path: source}` and returns one line for each violation, as in `test_structure.py`. The
limits are shares of a whole, because a word is no fault and a habit is. They may only fall.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.source_tree import Tree, find_nodes, parse_module

MAX_PARTICIPLE_SHARE = 0.01
"""Share of all functions of a folder whose whole name is a participle: `told()` does not say what the function does."""
MAX_SHARED_CONSTANT_NAMES = 10
"""Names of public module constants that are defined in more than one module."""
SAME_IN_EACH_API = ("Decoder", "Encoder", "Request", "Reply")
"""Types that each API's folder may define under the same name, in the same file."""

IRREGULAR_PARTICIPLES = frozenset(
    (
        *(
            "said",
            "told",
            "found",
            "known",
            "held",
            "kept",
            "left",
            "sent",
            "taken",
            "given",
            "made",
            "taught",
            "asked",
        ),
        *("written", "shown", "begun", "drawn", "come", "gone", "put", "cut", "met", "seen", "heard", "done", "lent"),
        *("lost", "bound", "built", "chosen", "thought", "spoken"),
    )
)
NO_PARTICIPLES = frozenset(("need", "feed", "speed", "embed", "proceed"))
HOOKS = frozenset(("done",))
"""Functions whose names mitmproxy chooses."""
VALUE_DECORATORS = frozenset(("property", "cached_property", "pytest.fixture", "pytest_asyncio.fixture"))
"""Decorators of functions whose names denote values."""


@dataclass(frozen=True)
class Habit:
    """A group of words and how often it may occur per 1,000 words of prose."""

    words: str
    limit: float

    def count(self, prose: str) -> int:
        return len(re.findall(rf"\b(?:{self.words})\b", prose))


HABITS = (
    Habit("what", 1.5),
    Habit("where", 1.5),
    Habit("told|said|leaves?|left|came|besides?", 0.7),
    Habit("amid|anew|alike|whatever", 0.3),
    Habit("that which|one that|those that|such as", 2.0),
)
TESTS = "tests"
"""All modules below `tests/`, together."""
TOOLS = "benchmarks/ and fuzz/"
"""All modules of both folders and `benchmarks/README.md`, together."""
TOOL_FACTOR = 2.0
"""The tools may use each group this many times as often as the code."""
DOCUMENTS = "documents"
DOCUMENT_FACTOR = 1.5
"""The documents may use each group this many times as often as the code."""
FRONT_DOCUMENTS = ("README.md", "SECURITY.md", "CONTRIBUTING.md")
"""Documents outside `docs/`."""


def _list_modules(tree: Tree, folder: str = "vtc") -> Iterator[tuple[str, ast.Module]]:
    for path, source in tree.items():
        if path.startswith(f"{folder}/") and path.endswith(".py"):
            yield path, parse_module(source)


def is_participle(name: str) -> bool:
    """Return True if the whole name is a past participle, which names a result and no action."""
    word = name.strip("_")
    return word in IRREGULAR_PARTICIPLES or bool(re.fullmatch(r"[a-z]+ed", word) and word not in NO_PARTICIPLES)


def _names_value(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if the function's name denotes a value: a property, or a fixture that tests receive."""
    names = {ast.unparse(node.func if isinstance(node, ast.Call) else node) for node in function.decorator_list}
    return not names.isdisjoint(VALUE_DECORATORS)


def check_function_names(tree: Tree) -> list[str]:
    """Check that functions in `vtc/` and `tests/` are named by verb phrases; a property or fixture is a value."""
    problems: list[str] = []
    for folder in ("vtc", TESTS):
        count, found = 0, []
        for path, module in _list_modules(tree, folder):
            for node in find_nodes(module, ast.FunctionDef, ast.AsyncFunctionDef):
                if not _names_value(node):
                    count += 1
                    if is_participle(node.name) and node.name not in HOOKS:
                        found.append(
                            f"{path}:{node.lineno}: {node.name} is a participle; name the function by a verb phrase"
                        )
        problems += found if len(found) > count * MAX_PARTICIPLE_SHARE else []
    return problems


def check_type_names(tree: Tree) -> list[str]:
    """Check that each class and `type` alias has a name of its own, except one name and file per API folder."""
    places: dict[str, list[str]] = {}
    for path, module in _list_modules(tree):
        for node in find_nodes(module, ast.ClassDef, ast.TypeAlias):
            name = node.name if isinstance(node, ast.ClassDef) else node.name.id
            if not (name in SAME_IN_EACH_API and path.startswith("vtc/apis/")):
                places.setdefault(name.lstrip("_"), []).append(f"{path}:{node.lineno}")
    return [
        f"{place}: the type {name} is also defined at {first}; name what distinguishes them"
        for name, (first, *others) in places.items()
        for place in others
    ]


def check_constant_names(tree: Tree) -> list[str]:
    """Check that public module constants say of what: few names are defined in two modules."""
    places: dict[str, list[str]] = {}
    for path, module in _list_modules(tree):
        for node in module.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_"):
                    places.setdefault(target.id, []).append(f"{path}:{node.lineno}")
    shared = {name: found for name, found in places.items() if len({place.split(":")[0] for place in found}) > 1}
    if len(shared) <= MAX_SHARED_CONSTANT_NAMES:
        return []
    return [
        f"{found[0]}: {name} is also defined at {', '.join(found[1:])}; say of what it is"
        for name, found in shared.items()
    ]


def _read_prose(source: str) -> str:
    """Return the docstrings and comments of a module in lower case."""
    texts = [
        node.value.value
        for node in find_nodes(parse_module(source), ast.Expr)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return " ".join([*texts, *(token.string for token in tokens if token.type == tokenize.COMMENT)]).lower()


def _read_document(source: str) -> str:
    """Return the prose of a Markdown file in lower case, without code."""
    return re.sub(r"^```.*?^```|`[^`\n]*`", " ", source, flags=re.MULTILINE | re.DOTALL).lower()


def _check_habits(group: str, prose: str, factor: float) -> Iterator[str]:
    words = len(re.findall(r"[a-z']+", prose))
    for habit in HABITS:
        rate, limit = 1000 * habit.count(prose) / max(words, 1), habit.limit * factor
        if rate > limit:
            yield f"{group}: {rate:.1f} of `{habit.words}` per 1,000 words, over {limit:.1f}; see docs/glossary.md"


def check_prose(tree: Tree) -> list[str]:
    """Check each package, and the tests, tools and documents as groups, for words that are used as a habit."""
    packages: dict[str, list[str]] = {}
    for path, source in tree.items():
        if path.startswith("vtc/") and path.endswith(".py"):
            parts = PurePosixPath(path).parts
            packages.setdefault("/".join(parts[:2]) if len(parts) > 2 else "vtc", []).append(_read_prose(source))
        elif path.startswith(f"{TESTS}/") and path.endswith(".py"):
            packages.setdefault(TESTS, []).append(_read_prose(source))
    tools = [
        _read_prose(source) if path.endswith(".py") else _read_document(source)
        for path, source in tree.items()
        if path.startswith(("benchmarks/", "fuzz/")) and path.endswith((".py", ".md"))
    ]
    documents = [
        _read_document(source)
        for path, source in tree.items()
        if path in FRONT_DOCUMENTS or (path.startswith("docs/") and path.endswith(".md"))
    ]
    return [
        *(line for package, texts in packages.items() for line in _check_habits(package, " ".join(texts), 1.0)),
        *_check_habits(TOOLS, " ".join(tools), TOOL_FACTOR),
        *_check_habits(DOCUMENTS, " ".join(documents), DOCUMENT_FACTOR),
    ]


CHECKS = (check_function_names, check_type_names, check_constant_names, check_prose)
