"""The budget of each package of `vtc/`, in tokens of code, because lines can be packed.

Comments, docstrings and imports do not count. A commit that needs more raises the number of its package and says why;
data that is moved out of the code is no saving. `python -m tests.budgets` prints the sizes.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from tests.source_tree import find_nodes, parse_module

BUDGETS: Mapping[str, int] = {
    "vtc": 10_600,
    "vtc/apis": 94_550,
    "vtc/cli": 45_600,
    "vtc/demo": 2_250,
    "vtc/deriving": 12_150,
    "vtc/dialects": 99_600,
    "vtc/exchange": 79_050,
    "vtc/guards": 12_600,
    "vtc/library": 2_850,
    "vtc/profiles": 20_150,
    "vtc/proxy": 37_700,
    "vtc/reporting": 10_450,
    "vtc/wire": 3_450,
}
"""Maximum number of tokens; `vtc` stands for the modules that are in no package of it."""
SLACK = 0.03
"""Part of a budget that may be unused before the budget should be lowered."""
MIN_SLACK_TOKENS = 100

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def measure_packages(tree: Mapping[str, str]) -> Counter[str]:
    """Count the tokens of code in each package of `vtc/`."""
    sizes: Counter[str] = Counter()
    for path, source in tree.items():
        parts = PurePosixPath(path).parts
        if path.endswith(".py") and parts[0] == "vtc":
            sizes["/".join(parts[:2]) if len(parts) > 2 else "vtc"] += count_tokens(source)
    return sizes


@lru_cache(maxsize=1024)
def count_tokens(source: str) -> int:
    """Count the tokens of a module, without comments, docstrings and imports."""
    skipped: set[int] = set()
    for node in find_nodes(parse_module(source), ast.Import, ast.ImportFrom, ast.Expr):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in _NO_CODE and token.start[0] not in skipped for token in tokens)


def check_budgets(tree: Mapping[str, str]) -> list[str]:
    """Check that no package exceeds its budget."""
    return [
        f"{package}:1: has {size} tokens of code, over its budget of {BUDGETS.get(package, 0)}; make it smaller, or "
        "raise the number in tests/budgets.py in the same commit and say why"
        for package, size in measure_packages(tree).items()
        if size > BUDGETS.get(package, 0)
    ]


def list_loose_budgets(tree: Mapping[str, str]) -> list[str]:
    """List the budgets that should be lowered."""
    sizes = measure_packages(tree)
    return [
        f"{package} has {sizes[package]} tokens of code, far below its budget of {budget}; lower the number"
        for package, budget in BUDGETS.items()
        if budget - sizes[package] > max(MIN_SLACK_TOKENS, SLACK * budget)
    ]


def main() -> None:
    """Print the size and the budget of each package."""
    root = Path(__file__).parent.parent
    tree = {str(path.relative_to(root)): path.read_text("utf-8") for path in (root / "vtc").rglob("*.py")}
    sizes = measure_packages(tree)
    for package, size in sorted(sizes.items()):
        print(f"{package:16}{size:8}{BUDGETS.get(package, 0):8}")
    print(f"{'all':16}{sizes.total():8}{sum(BUDGETS.values()):8}")


if __name__ == "__main__":
    main()
