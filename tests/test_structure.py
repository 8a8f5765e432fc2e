"""Rules of the source tree: layers, purity, class names, length of functions, imports of tests, and independence.

Each check takes the tree as `{path: source}` and returns one line `path:line: violation; remedy` for each violation, so
it can be tested with a made-up tree that breaks the rule.
"""

from __future__ import annotations

import ast
import re
import subprocess
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

import pytest

from tests import budgets, language
from tests.source_tree import Tree, find_nodes, parse_module

pytestmark = pytest.mark.every

type Check = Callable[[Tree], list[str]]

ROOT = Path(__file__).parent.parent

# A module imports from its own layer's package and from lower ranks. "vtc" is `vtc/__init__.py`.
RANKS = {
    "json_text": 0,
    "json_schema": 0,
    "scrub": 0,
    "events": 1,
    "proof": 2,
    "wire": 2,
    "apis": 3,
    "dialects": 3,
    "guards": 3,
    "xml_helpers": 4,
    "vtc": 5,
    "profiles": 6,
    "deriving": 7,
    "reporting": 7,
    "exchange": 8,
    "library": 9,
    "proxy": 9,
    "demo": 10,
    "cli": 11,
    "__main__": 12,
}
OUTER = {"library", "proxy", "cli", "demo", "__main__"}
READS_FILES = {"profiles", "vtc/dialects/builtin.py"}
IMPURE = {
    *("time", "random", "secrets", "uuid"),
    *("socket", "asyncio", "threading", "subprocess", "requests", "httpx"),
}
LOCKED = {("vtc/dialects/bounded_cache.py", "threading"), ("vtc/guards/patterns.py", "time")}
"""Imports that are allowed nevertheless: a lock, because large replies are read outside the event loop; a time limit.
"""
CLOCKS = {"now", "utcnow", "today"}
FILE_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}
OF_EACH_API = {"Decoder", "Encoder", "Request", "Reply"}
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
"""Maximum number of parameters of a constructor, and of fields that a record requires."""
TABLES = {"Api"}
"""Records that mirror a table of the project, and have as many required fields as it has columns."""
MAX_ATTRIBUTES = 15
MAX_PUBLIC_METHODS = 20
LARGER = {
    "Encoder": (18, 20),
    "SentEvents": (23, 20),
}
"""Classes that exceed the limits on attributes and public methods until they are split, with their current maximum."""

ROOMS = {"vtc.proxy.addon", "vtc.proxy.launch"}
"""Modules that a user runs: the mitmproxy addon, and the launcher of mitmproxy."""
MOST_INSIDE = 94
"""Maximum number of test files that import inner modules. It may only fall."""

READER_TABLE = "vtc/dialects/reading/transitions.py"
IN_TABLE = re.compile(r"\b([A-Z]\w+)\.([a-z]\w+)\b")
"""Methods that the reader's table names as an action or a scanner. Each is called only from its row of the table, so it
does not count as a public method of its class.
"""

STRICT = re.compile(r"_?(is_|has_)?strict(_policy)?")
MAX_STRICT_FILES = 26
"""Maximum number of modules that ask if something is strict: a policy, or the schema of a tool. It may only fall."""

MOST_FROM_TESTS = 23
"""Maximum number of test files that import from another test file. It may only fall."""

LOCK_FILE = re.compile(
    r"\b(?:(?:uv|poetry|pdm|pixi|Pipfile|Cargo|yarn|bun)\.lock"
    r"|(?:package-lock|npm-shrinkwrap)\.json|pnpm-lock\.ya?ml)\b"
)
CODE = re.compile(r'"""[A-Z]\d{1,2}(?:[,:] |\.?"""| to )|# [A-Z]\d{1,2}: |\([A-Z]\d{1,2}\)(?=.*""")')
URL = re.compile(r"\b(?:https?|file)://[^\s\"'`<>()\[\]]+")
REGISTRY = re.compile(
    r"/simple/?$|//(?:[^/]*[.@])?(?:pypi|pythonhosted|npmjs|registry|artifactory|nexus|devpi)[.:/]", re.I
)


def modules(tree: Tree) -> Iterator[tuple[str, ast.Module]]:
    for path, source in tree.items():
        if path.startswith("vtc/") and path.endswith(".py"):
            yield path, parse_module(source)


def layer(path: str) -> str:
    """Return the layer of a module: `vtc/wire/sse.py` -> `wire`, `vtc/cli_explain.py` -> `cli`."""
    parts = PurePosixPath(path).with_suffix("").parts[1:]
    if parts == ("__init__",):
        return "vtc"
    for name in ("cli", "demo"):
        if re.match(rf"{name}(_|$)", parts[0]):
            return name
    return parts[0]


@lru_cache(maxsize=1024)
def _imports(module: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports that run, which are all but those for type checkers."""
    for_types = {
        inner
        for node in find_nodes(module, ast.If)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in node.body
    }
    return [node for node in find_nodes(module, ast.Import, ast.ImportFrom) if node not in for_types]


@lru_cache(maxsize=256)
def _list_module_paths(paths: tuple[str, ...]) -> frozenset[str]:
    """Return all modules and folders as paths without a suffix."""
    return frozenset(
        name for path in paths for name in (path.removesuffix(".py"), *map(str, PurePosixPath(path).parents))
    )


def imports(path: str, module: ast.Module, tree: Tree) -> Iterator[tuple[int, str]]:
    """Yield the line and absolute name of every module imported; `from package import module` names the module."""
    package, known = PurePosixPath(path).parent.parts, _list_module_paths(tuple(tree))
    for node in _imports(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *(node.module or "").split("."))).strip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield node.lineno, full if full.replace(".", "/") in known else base


def check_layers(tree: Tree) -> list[str]:
    problems = []
    for path, module in modules(tree):
        here = layer(path)
        if here not in RANKS:
            problems.append(f"{path}:1: layer {here!r} has no rank; move the module or add it to RANKS")
            continue
        for line, name in imports(path, module, tree):
            if name.split(".")[0] == "mitmproxy" and here != "proxy":
                problems.append(f"{path}:{line}: imports mitmproxy; only proxy may, others call that")
            if name.split(".")[0] != "vtc":
                continue
            there = layer("/".join(name.split(".")) if "." in name else "vtc/__init__")
            if there != here and RANKS.get(there, len(RANKS)) >= RANKS[here]:
                problems.append(
                    f"{path}:{line}: {here} imports {name}; imports run downwards only: "
                    "move what both need to a lower layer"
                )
    return problems


def check_circles(tree: Tree) -> list[str]:
    """Check that modules, and the parts of a layer (its folders and single modules), import each other in one
    direction.
    """
    imported = [(path, *one) for path, module in modules(tree) for one in imports(path, module, tree)]
    found = [
        (path, line, there) for path, line, name in imported if (there := module_file(name, tree)) not in ("", path)
    ]
    problems: dict[str, str] = {}
    for unit in (str, part):
        arrows: dict[str, set[str]] = {}
        for path, _, there in found:
            if unit(path) != unit(there) and (unit is str or layer(path) == layer(there)):
                arrows.setdefault(unit(path), set()).add(unit(there))
        for path, line, there in found:
            here, other = unit(path), unit(there)
            if other in arrows.get(here, ()) and here in find_reachable(other, arrows):
                problem = f"{path}:{line}: imports {other}, which leads back to {here}; move what both need to a third"
                problems.setdefault(f"{path}:{line}", problem)
    return list(problems.values())


def module_file(name: str, tree: Tree) -> str:
    """Return the file of a module of this project, or an empty string for any other."""
    file = name.replace(".", "/")
    return next((path for path in (f"{file}.py", f"{file}/__init__.py") if path in tree), "")


def part(path: str) -> str:
    """Return the part of its layer that contains a module: `vtc/dialects/syntax/forms.py` -> `vtc/dialects/syntax`."""
    return "/".join(PurePosixPath(path).parts[:3])


def find_reachable(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """Return all nodes that are reachable along the arrows."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def check_purity(tree: Tree) -> list[str]:
    problems = []
    for path, module in modules(tree):
        here = layer(path)
        if here in OUTER:
            continue
        for line, name in imports(path, module, tree):
            if name.split(".")[0] in IMPURE and (path, name) not in LOCKED:
                problems.append(
                    f"{path}:{line}: imports {name}; take times, ids and data as arguments, "
                    "or do this in proxy, cli or demo"
                )
        for node in find_nodes(module, ast.Attribute):
            if node.attr in CLOCKS:
                problems.append(f"{path}:{node.lineno}: calls {ast.unparse(node)}(); take the time as an argument")
        for call in find_nodes(module, ast.Call) if READS_FILES.isdisjoint((here, path)) else ():
            if touches_a_file(call.func):
                problems.append(f"{path}:{call.lineno}: calls {ast.unparse(call.func)}(); take the data as an argument")
    return problems


def touches_a_file(function: ast.expr) -> bool:
    match function:
        case ast.Name(id="open") | ast.Attribute(attr="open"):
            return True
        case ast.Attribute(attr=method):
            return method in FILE_METHODS
    return False


def check_class_names(tree: Tree) -> list[str]:
    """Check that each class has a unique name, except the classes that each API defines."""
    places: dict[str, list[str]] = {}
    for path, module in modules(tree):
        for node in find_nodes(module, ast.ClassDef):
            if node.name not in OF_EACH_API:
                places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    return [
        f"{later}: {name} is a class in {first.partition(':')[0]}, too; name what sets it apart"
        for name, (first, *others) in places.items()
        for later in others
    ]


def check_size(tree: Tree) -> list[str]:
    """Bound functions and classes, not files, because a limit on the lines of a file makes people split it anywhere."""
    problems = []
    actions = {f"{name[1]}.{name[2]}" for name in IN_TABLE.finditer(tree.get(READER_TABLE, ""))}
    for path, module in modules(tree):
        for node in find_nodes(module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
            if not isinstance(node, ast.ClassDef):
                assert node.end_lineno is not None
                if (lines := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES:
                    over = f"over {MAX_FUNCTION_LINES}; part it"
                    problems.append(f"{path}:{node.lineno}: {node.name} has {lines} lines, {over}")
            else:
                have, limits = members(node, actions), LARGER.get(node.name, (MAX_ATTRIBUTES, MAX_PUBLIC_METHODS))
                if mirrors_keys(node):
                    limits = (len(node.body), limits[1])
                for word, count, most in zip(("attributes", "public methods"), have, limits, strict=True):
                    if count > most:
                        problems.append(f"{path}:{node.lineno}: {node.name} has {count} {word}, over {most}; part it")
    return problems


def check_constructors(tree: Tree) -> list[str]:
    """Bound the parameters of constructors, except of records that mirror a file, a frame or a table."""
    return [
        f"{path}:{class_.lineno}: {class_.name} takes {count} parameters, over {MAX_PARAMETERS}; "
        "group those that travel together in a value with a name"
        for path, module in modules(tree)
        for class_ in find_nodes(module, ast.ClassDef)
        if (count := count_parameters(class_)) > MAX_PARAMETERS
        if class_.name not in TABLES and not mirrors_keys(class_)
    ]


def count_parameters(class_: ast.ClassDef) -> int:
    """Count the parameters of a constructor; of a class without one, the fields that a record requires."""
    for node in class_.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            taken = node.args
            given = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, *filter(None, [taken.vararg, taken.kwarg])]
            return len(given) - 1
    fields = [node for node in class_.body if isinstance(node, ast.AnnAssign) and node.value is None]
    heads = [ast.unparse(head) for head in (*class_.bases, *class_.decorator_list)]
    is_record = any(re.search(r"\b(Struct|NamedTuple|dataclass)\b", head) for head in heads)
    return len(fields) if is_record else 0


def check_strictness(tree: Tree) -> list[str]:
    """Bound the modules that ask if something is strict, because `Fate` decides for a reply, once."""
    asking = {
        path
        for path, module in modules(tree)
        for node in find_nodes(module, ast.Attribute, ast.Name)
        if isinstance(node.ctx, ast.Load)
        if STRICT.fullmatch(node.attr if isinstance(node, ast.Attribute) else node.id)
    }
    if len(asking) <= MAX_STRICT_FILES:
        return []
    return [
        f"vtc/: {len(asking)} modules ask if something is strict, at most {MAX_STRICT_FILES} may; ask `Fate`",
        *(f"{path}:1: asks" for path in sorted(asking)),
    ]


def mirrors_keys(class_: ast.ClassDef) -> bool:
    """Return True for a record of a file or a frame, which has as many attributes as that has keys.

    Such a record forbids all other keys.
    """
    return any(
        keyword.arg == "forbid_unknown_fields"
        and isinstance(keyword.value, ast.Constant)
        and keyword.value.value is True
        for keyword in class_.keywords
    )


def members(class_: ast.ClassDef, actions: Collection[str] = ()) -> tuple[int, int]:
    """Count the attributes of a class, declared or set on `self`, and its public methods except the `actions`."""
    attributes, methods = set(), 0
    for node in class_.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            attributes.add(node.target.id)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            methods += f"{class_.name}.{node.name}" not in actions
    for node in ast.walk(class_):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute, ctx=ast.Store()):
                attributes.add(attribute)
    return len(attributes), methods


def check_front_doors(tree: Tree) -> list[str]:
    """Check that tests import from public packages, so that they need no change when inner modules are rewritten.

    Public are a package of `vtc/` with the names in its `__all__` (including each API's folder), a module of the root,
    and a module that a user runs. Only test files count, since the imports of a helper serve all tests.
    """
    entered = {
        path: inside
        for path, source in tree.items()
        if path.startswith("tests/") and PurePosixPath(path).name.startswith("test_") and path.endswith(".py")
        if (inside := [*inner_names(path, parse_module(source), tree)])
    }
    if len(entered) <= MOST_INSIDE:
        return []
    return [
        f"tests/: {len(entered)} test files enter by inner modules, at most {MOST_INSIDE} may; import from a package, "
        "or hold by what a user sees",
        *(f"{path}:{line}: {name}" for path, inside in entered.items() for line, name in inside),
    ]


def check_tests_share_by_helpers(tree: Tree) -> list[str]:
    """Check that test files share code through helper modules, so that each can be removed alone."""
    taken = {
        path: f"{path}:{line}: takes from {name}; move what both use to a helper"
        for path, source in tree.items()
        if path.startswith("tests/") and path.endswith(".py")
        for line, name in imports(path, parse_module(source), tree)
        if name.startswith("tests.") and name.rpartition(".")[2].startswith("test_")
    }
    return [*taken.values()] if len(taken) > MOST_FROM_TESTS else []


def check_test_folders(tree: Tree) -> list[str]:
    """Check that the tests of a package lie in the folders that it has, so that the tests of a module are found."""
    packages = {str(folder) for path in tree if path.startswith("vtc/") for folder in PurePosixPath(path).parents}
    folders = {
        str(PurePosixPath(path).parent.relative_to("tests"))
        for path in tree
        if path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")
    }
    return [
        f"tests/{folder}: there is no vtc/{folder}; move its tests to a folder of vtc/{folder.split('/')[0]}"
        for folder in sorted(folders)
        if f"vtc/{folder.split('/')[0]}" in packages and f"vtc/{folder}" not in packages
    ]


def inner_names(path: str, module: ast.Module, tree: Tree) -> Iterator[tuple[int, str]]:
    """Yield the inner names that a module imports, or patches by a string."""
    for line, name in (*imports(path, module, tree), *_find_patched_names(module, tree)):
        file = module_file(name, tree)
        if re.fullmatch(r"vtc/.+/(?!__init__)[^/]+", file) and name not in ROOMS:
            yield line, name
    for node in _imports(module):
        if isinstance(node, ast.ImportFrom) and (door := module_file(node.module or "", tree)).endswith("/__init__.py"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if not module_file(name, tree) and not is_offered(alias.name, parse_module(tree[door])):
                    yield node.lineno, name


def _find_patched_names(module: ast.Module, tree: Tree) -> Iterator[tuple[int, str]]:
    for node in find_nodes(module, ast.Constant):
        if isinstance(node.value, str) and node.value.startswith("vtc."):
            *names, _ = node.value.split(".")
            while names and not module_file(".".join(names), tree):
                names.pop()
            yield node.lineno, ".".join(names)


def is_offered(name: str, package: ast.Module) -> bool:
    """Return True if the package names this in its `__all__`, or has no `__all__`."""
    for node in package.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return name in ast.literal_eval(node.value)
    return True


def check_standalone(tree: Tree) -> list[str]:
    problems = [f"{path}:1: is a lock file; remove it" for path in tree if LOCK_FILE.search(path)]
    for path, source in tree.items():
        for number, line in enumerate(source.splitlines(), start=1):
            problems += [f"{path}:{number}: names the lock file {m[0]}" for m in LOCK_FILE.finditer(line)]
            problems += [
                f"{path}:{number}: names the registry {m[0]}; leave it to the machine's own configuration"
                for m in URL.finditer(line)
                if REGISTRY.search(m[0].rstrip(".,;"))
            ]
    return problems


def check_packages(tree: Tree) -> list[str]:
    """Check that each folder with modules of `vtc/` is a package, because others are found by no tool for packages."""
    folders = {str(PurePosixPath(path).parent) for path, _ in modules(tree)}
    return [
        f"{folder}:1: has no __init__.py; add one with a docstring"
        for folder in sorted(folders)
        if f"{folder}/__init__.py" not in tree
    ]


def check_codes(tree: Tree) -> list[str]:
    """Check that no docstring cites a list that is not in the repository (`A1, B2: …`)."""
    return [
        f"{path}:{number}: cites a code that no one can look up; say it in words"
        for path, source in tree.items()
        if path.endswith(".py")
        for number, line in enumerate(source.splitlines(), start=1)
        if CODE.search(line)
    ]


CHECKS: tuple[Check, ...] = (
    check_layers,
    check_circles,
    check_purity,
    check_class_names,
    check_size,
    check_constructors,
    check_strictness,
    check_packages,
    check_front_doors,
    check_tests_share_by_helpers,
    check_test_folders,
    check_standalone,
    check_codes,
    budgets.check_budgets,
    *language.CHECKS,
)


@pytest.fixture(scope="module")
def repository() -> Tree:
    """Return every text file that git tracks or would add."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so nothing says which files are the project's")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    files = {path: (ROOT / path).read_bytes() for path in listed.split("\0") if (ROOT / path).is_file()}
    return {path: data.decode(errors="replace") for path, data in files.items() if b"\0" not in data}


@pytest.mark.parametrize("check", CHECKS)
def test_the_repository_keeps_its_rules(check: Check, repository: Tree) -> None:
    assert "vtc/__init__.py" in repository
    if problems := check(repository):
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.mark.filterwarnings("default")
def test_budgets_are_close_to_the_sizes(repository: Tree) -> None:
    """Only report a package that became much smaller, so that its budget is lowered soon."""
    for line in budgets.list_loose_budgets(repository):
        warnings.warn(line, stacklevel=1)


# Tests of the checks: each line of a made-up module breaks one rule.

OTHER_MODULES = dict.fromkeys(
    [
        "vtc/__init__.py",
        "vtc/events.py",
        "vtc/wire/sse.py",
        "vtc/apis/__init__.py",
        "vtc/apis/openai_chat.py",
        "vtc/dialects/reading/reader.py",
        "vtc/guards/loop.py",
        "vtc/profiles/loader.py",
        "vtc/exchange.py",
        "vtc/proxy/addon.py",
        "vtc/cli.py",
    ],
    "",
)


def run(check: Check, path: str, source: str) -> list[str]:
    return check({**OTHER_MODULES, path: source})


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("vtc/events.py", "from vtc.wire import sse"),
        ("vtc/wire/sse.py", "import vtc.apis.openai_chat"),
        ("vtc/apis/openai_chat.py", "from vtc.dialects.reading.reader import Reader"),
        ("vtc/apis/openai_chat.py", "from ..dialects import reader"),
        ("vtc/apis/openai_chat.py", "from .. import dialects"),
        ("vtc/apis/openai_chat.py", "from vtc import guards"),
        ("vtc/apis/__init__.py", "from ..guards import loop"),
        ("vtc/dialects/reading/reader.py", "from vtc.apis import openai_chat"),
        ("vtc/dialects/reading/reader.py", "from vtc.profiles.loader import load"),
        ("vtc/guards/loop.py", "from vtc.dialects import reader"),
        ("vtc/guards/loop.py", "from vtc import __version__"),
        ("vtc/profiles/loader.py", "from vtc.exchange import Exchange"),
        ("vtc/exchange.py", "from vtc.proxy.addon import Addon"),
        ("vtc/exchange.py", "def late():\n    from vtc.unknown import x"),
        ("vtc/exchange.py", "from mitmproxy import http"),
        ("vtc/__init__.py", "import mitmproxy.http"),
        ("vtc/__init__.py", "from vtc.profiles.loader import load"),
        ("vtc/__init__.py", "from vtc.proxy.addon import Addon"),
        ("vtc/proxy/addon.py", "from vtc.cli import main"),
        ("vtc/demo/server.py", "from vtc.cli import main"),
        ("vtc/cli.py", "import mitmproxy"),
        ("vtc/demo/server.py", "from mitmproxy import http"),
        ("vtc/utils.py", ""),
    ],
)
def test_an_import_upwards_or_sideways_is_found(path: str, source: str) -> None:
    (problem,) = run(check_layers, path, source)
    assert problem.startswith(f"{path}:{max(1, len(source.splitlines()))}: ")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("vtc/wire/sse.py", "from vtc.events import Text\nfrom vtc import events"),
        ("vtc/apis/__init__.py", "from .openai_chat import Codec\nfrom . import openai_chat"),
        ("vtc/apis/openai_chat.py", "from vtc.wire import sse\nfrom ..events import Text"),
        ("vtc/profiles/loader.py", "from vtc.dialects.reading.reader import Reader"),
        ("vtc/__init__.py", "from vtc.dialects.reading.reader import Reader"),
        ("vtc/exchange.py", "from vtc.profiles import loader\nfrom vtc import guards, apis"),
        (
            "vtc/proxy/addon.py",
            "from mitmproxy import http\nfrom vtc import __version__\nimport vtc.exchange",
        ),
        ("vtc/cli_explain.py", "from vtc.cli import main\nfrom vtc.proxy.addon import Addon"),
        ("vtc/demo/server.py", "from vtc import exchange\nfrom vtc.proxy import script"),
    ],
)
def test_an_import_downwards_is_fine(path: str, source: str) -> None:
    assert run(check_layers, path, source) == []


@pytest.mark.parametrize(
    ("modules", "circle"),
    [
        (
            {"proxy/a.py": "from vtc.proxy import b", "proxy/b.py": "def f():\n    from vtc.proxy.a import x"},
            ["a", "b"],
        ),
        (
            {"wire/a.py": "import vtc.wire.b", "wire/b.py": "from vtc.wire import c", "wire/c.py": "from . import a"},
            ["a", "b", "c"],
        ),
        (
            {
                "dialects/arguments/a.py": "from vtc.dialects.syntax import b",
                "dialects/syntax/c.py": "from vtc.dialects.arguments.d import x",
                "dialects/arguments/d.py": "",
                "dialects/syntax/b.py": "",
            },
            ["arguments/a", "syntax/c"],
        ),
    ],
)
def test_a_circle_of_imports_is_found(modules: Tree, circle: list[str]) -> None:
    tree = {f"vtc/{path}": source for path, source in modules.items()}
    problems = check_circles(tree)
    assert len(problems) == len(circle)
    assert all(f"{path}.py:" in problem for path, problem in zip(circle, problems, strict=True))


def test_imports_in_one_direction_are_no_circle() -> None:
    two = "from vtc.dialects.syntax import b\nfrom vtc.dialects import cache"
    tree = {
        "vtc/dialects/arguments/a.py": two,
        "vtc/dialects/syntax/b.py": "from vtc.dialects.bounded import x\nfrom vtc.dialects.syntax import c",
        "vtc/dialects/syntax/c.py": "import re",
        "vtc/dialects/cache.py": "from vtc.dialects.syntax import c",
        "vtc/dialects/bounded.py": "",
    }
    assert check_circles(tree) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("vtc/events.py", "import time"),
        ("vtc/wire/sse.py", "from asyncio import Queue"),
        ("vtc/exchange.py", "import uuid as ids"),
        ("vtc/apis/openai_chat.py", "def f():\n    import httpx"),
        ("vtc/profiles/loader.py", "import random"),
        ("vtc/guards/loop.py", "x = open('f')"),
        ("vtc/dialects/reading/reader.py", "x = Path('f').read_text()"),
        ("vtc/dialects/reading/reader.py", "\nPath('f').open()"),
    ],
)
def test_an_effect_is_found(path: str, source: str) -> None:
    (problem,) = run(check_purity, path, source)
    assert problem.startswith(f"{path}:{len(source.splitlines())}: ")


def test_effects_are_for_the_outer_layers_and_files_for_profiles() -> None:
    effects = "import time, httpx\nopen('f')"
    assert run(check_purity, "vtc/proxy/addon.py", effects) == []
    assert run(check_purity, "vtc/cli.py", effects) == []
    assert run(check_purity, "vtc/demo/server.py", effects) == []
    assert run(check_purity, "vtc/profiles/loader.py", "open('f')\npath.read_text()") == []


def test_class_name_with_two_meanings_is_found() -> None:
    tree = {
        "vtc/a.py": "class Names: ...",
        "vtc/b.py": "\nclass Names: ...\nclass Decoder: ...",
        "vtc/c.py": "class Decoder: ...",
    }
    assert check_class_names(tree) == ["vtc/b.py:2: Names is a class in vtc/a.py, too; name what sets it apart"]


def test_a_long_function_is_found() -> None:
    assert run(check_size, "vtc/events.py", "x = 1\n" * 1000 + "def f():\n" + "    x = 1\n" * 59) == []
    assert run(check_size, "vtc/events.py", "\ndef f():\n" + "    x = 1\n" * 60) == [
        "vtc/events.py:2: f has 61 lines, over 60; part it"
    ]


def test_a_large_class_is_found() -> None:
    fields = [f"    field{number}: int\n" for number in range(MAX_ATTRIBUTES)]
    methods = [f"    def method{number}(self): self.last = 1\n" for number in range(MAX_PUBLIC_METHODS)]
    assert run(check_size, "vtc/events.py", "".join(["class Noun:\n", *fields, "    def _x(self): ...\n"])) == []
    assert run(
        check_size, "vtc/events.py", "".join(["class Noun:\n", *fields, *methods, "    def more(self): ...\n"])
    ) == [
        "vtc/events.py:1: Noun has 16 attributes, over 15; part it",
        "vtc/events.py:1: Noun has 21 public methods, over 20; part it",
    ]
    keys = "".join(["class Keys(Struct, forbid_unknown_fields=True):\n", *fields, "    more: int\n"])
    assert run(check_size, "vtc/events.py", keys) == []


def test_a_constructor_with_many_parameters_is_found() -> None:
    names = [f"p{number}" for number in range(MAX_PARAMETERS + 1)]
    fields = "".join(f"    {name}: int\n" for name in names)
    assert run(check_constructors, "vtc/a.py", f"class A:\n    def __init__(self, {', '.join(names[1:])}): ...\n") == []
    for source in (
        f"class A:\n    x = 1\n    def __init__(self, {names[0]}, *, {', '.join(names[1:])}): ...\n",
        f"class A(msgspec.Struct, frozen=True):\n{fields}",
        f"@dataclass(frozen=True)\nclass A:\n{fields}",
    ):
        (problem,) = run(check_constructors, "vtc/a.py", source)
        assert "A takes 9 parameters, over 8; " in problem
    for source in (
        f"class Keys(Struct, forbid_unknown_fields=True):\n{fields}",
        f"class A(Struct):\n{fields.replace('int', 'int = 0')}",
        f"class Shape(Protocol):\n{fields}",
    ):
        assert run(check_constructors, "vtc/a.py", source) == []


def test_a_module_that_asks_for_strictness_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "MAX_STRICT_FILES", 0)
    assert run(check_strictness, "vtc/apis/a.py", "strict = x.unstrict(strict=True)") == []
    for source in ("if strict: pass", "x = plan.is_strict", "x = planner.has_strict_policy(facts)"):
        assert run(check_strictness, "vtc/apis/a.py", source)[1:] == ["vtc/apis/a.py:1: asks"]


def test_a_package_that_exceeds_its_budget_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    quotes = '"' * 3
    source = f"{quotes}Two lines\n\nof prose.{quotes}\n\nimport re\nfrom a import (\n    b,\n)\n\nx = 'a'  # why\n"
    tree = {"vtc/wire/a.py": source, "vtc/wire/b/c.py": "x = 1\n" * 1000, "vtc/a.py": "f(1)\n", "tests/a.py": "x = 1\n"}
    assert budgets.measure_packages(tree) == {"vtc/wire": 3003, "vtc": 4}
    monkeypatch.setattr(budgets, "BUDGETS", {"vtc/wire": 3003, "vtc": 3})
    (problem,) = budgets.check_budgets(tree)
    assert problem.startswith("vtc:1: has 4 tokens of code, over its budget of 3; ")
    assert budgets.list_loose_budgets(tree) == []
    monkeypatch.setattr(budgets, "BUDGETS", {"vtc/wire": 3104})
    assert budgets.list_loose_budgets(tree) == [
        "vtc/wire has 3003 tokens of code, far below its budget of 3104; lower the number"
    ]


def test_a_folder_without_an_init_is_found() -> None:
    tree = {"vtc/__init__.py": "", "vtc/wire/__init__.py": "", "vtc/wire/sse.py": "", "vtc/apis/a.py": ""}
    assert check_packages(tree) == ["vtc/apis:1: has no __init__.py; add one with a docstring"]


def test_a_test_that_takes_from_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "MOST_FROM_TESTS", 0)
    tree = {"tests/a/test_a.py": "", "tests/helper.py": "", "tests/test_b.py": "from tests.helper import x\n"}
    assert check_tests_share_by_helpers(tree) == []
    tree["tests/test_b.py"] += "from tests.a.test_a import y"
    assert [problem.split(":")[:2] for problem in check_tests_share_by_helpers(tree)] == [["tests/test_b.py", "2"]]


def test_a_test_folder_without_a_package_is_found() -> None:
    tree = {"vtc/apis/chat/request.py": "", "tests/apis/chat/test_a.py": "", "tests/apis/test_b.py": ""}
    tree |= {"tests/e2e/test_c.py": "", "tests/test_d.py": ""}
    assert check_test_folders(tree) == []
    problems = check_test_folders({**tree, "tests/apis/ready/test_e.py": ""})
    assert problems == ["tests/apis/ready: there is no vtc/apis/ready; move its tests to a folder of vtc/apis"]


DOORS = {
    "vtc/wire/__init__.py": "from vtc.wire.sse import shown\n__all__ = ['shown']",
    "vtc/wire/sse.py": "",
    "vtc/apis/__init__.py": "",
    "vtc/apis/openai_chat/__init__.py": "",
    "vtc/apis/openai_chat/request.py": "",
    "vtc/events.py": "",
    "vtc/proxy/addon.py": "",
}


@pytest.mark.parametrize(
    "source",
    [
        "from vtc.apis.openai_chat import request",
        "import vtc.wire.sse",
        "def test_it():\n    from vtc.wire import sse",
        "from vtc.wire import hidden",
        "def test_it(patch):\n    patch('vtc.wire.sse.Reader.feed')",
    ],
)
def test_a_test_that_enters_by_an_inner_module_is_found(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setitem(globals(), "MOST_INSIDE", 0)
    problems = check_front_doors({**DOORS, "tests/test_a.py": source})
    assert [problem.split(":")[0] for problem in problems] == ["tests/", "tests/test_a.py"]
    assert check_front_doors({**DOORS, "tests/helper.py": source}) == []


@pytest.mark.parametrize(
    "source",
    [
        "from vtc.events import Text",
        "from vtc.apis import APIS, openai_chat",
        "from vtc.wire import shown",
        "from vtc.proxy.addon import VirtualToolCalling",
        "command = 'vtc.save'",
    ],
)
def test_a_test_that_enters_by_a_front_door_is_fine(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setitem(globals(), "MOST_INSIDE", 0)
    assert check_front_doors({**DOORS, "tests/test_a.py": source}) == []


@pytest.mark.parametrize("code", ["A1, A11: it is", "E4", "B1.", "C1 to C3: it is", "It is (A11)."])
def test_a_code_of_a_list_elsewhere_is_found(code: str) -> None:
    quotes = '"' * 3
    assert len(check_codes({"tests/a.py": f"def f():\n    {quotes}{code}{quotes}"})) == 1
    assert check_codes({"tests/a.py": f"{quotes}V4.1 and K2 write calls as M3 does.{quotes}"}) == []


# Concatenated, so that this file itself contains no name of a lock file or registry.
@pytest.mark.parametrize("name", ["uv" + ".lock", "poetry" + ".lock", "package-lock" + ".json"])
def test_a_lock_file_is_found(name: str) -> None:
    assert check_standalone({f"docs/{name}": ""}) == [f"docs/{name}:1: is a lock file; remove it"]
    assert check_standalone({"a.md": f"first\nsee `{name}`."}) == [f"a.md:2: names the lock file {name}"]


@pytest.mark.parametrize(
    "address",
    ["mirror.example/simple", "mirror.example:8080/a/simple/", "pypi" + ".org", "registry" + ".example/x"],
)
def test_a_registry_address_is_found(address: str) -> None:
    url = f"https://{address}"
    (problem,) = check_standalone({"Makefile": f"all:\n\tpip install -i {url} vtc"})
    assert problem.startswith(f"Makefile:2: names the registry {url};")


@pytest.mark.parametrize(
    "address", ["mitmproxy.org/simple" + "-things", "127.0.0.1:8080/v1", "json.org/registry" + "-of-ideas"]
)
def test_other_addresses_are_fine(address: str) -> None:
    assert check_standalone({"README.md": f"https://{address} http://{address}"}) == []
