"""The reader's table: every token has a step, every step a token, and docs/reader.md contains the table."""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tests.dialects.material import DIALECTS
from vtc.dialects import Grammar
from vtc.dialects.reading.context import Verdict
from vtc.dialects.reading.transitions import TABLE, State, StateRow, Step
from vtc.dialects.syntax.grammar import ATTRIBUTES_END, SPAN_END
from vtc.dialects.syntax.scan import ExpressionScan, FollowingScan, Scan, TokenScan, get_token_kind
from vtc.dialects.syntax.tokens import INFO_STRING, NO_TOKENS, TokenKind

PAGE = Path(__file__).parents[3] / "docs" / "reader.md"

OWN = [*DIALECTS.values()]


def grammars() -> Iterator[Grammar]:
    """Yield a grammar for every dialect, including its variant with calls in code."""
    answer = (("<|final|>",), ("<|done|>",))
    for dialect in OWN:
        in_code = msgspec.structs.replace(dialect, in_code="call")
        yield Grammar([dialect, in_code], (("<think>", "</think>"),), ["<|end|>"], answer)


def scans(grammar: Grammar) -> Iterator[tuple[State, Scan]]:
    """Yield every expression that searches for tokens, with the state that uses it."""
    yield State.START, grammar.start
    yield State.TEXT, grammar.text
    yield State.ANSWER, grammar.answer
    yield State.PROMPTED, grammar.first_call
    yield State.DOUBT, grammar.doubtful
    yield State.INFO, INFO_STRING
    own = frozenset(DIALECTS)
    yield State.FENCE, grammar.scan_quotation_end("```", own)
    yield State.FENCED, grammar.scan_quotation_end("```", None)
    for run in ("", ">", "    "):
        yield State.LINE, grammar.scan_line(run, own)
    yield State.SPAN, grammar.span
    yield State.QUOTED, SPAN_END
    for scan in (grammar.reasoning.opened, grammar.reasoning.prefilled):
        yield State.REASONING, scan
    yield State.UNKNOWN, grammar.reasoning.prefilled
    yield State.WHOLE, grammar.whole_end
    yield State.ATTRIBUTES, ATTRIBUTES_END
    # Calls in code have no separate states.
    for syntax in {syntax for head in grammar.heads.values() if (syntax := head.syntax).dialect in OWN}:
        yield State.TAIL, grammar.scan_tail(syntax, "f")
        for is_unread in (False, True):
            yield State.AFTER, grammar.scan_after_call(syntax, is_unread)
        yield State.UNDECIDED, grammar.scan_undecided(syntax)
        yield State.DAMAGED, grammar.scan_damaged(syntax, "f")
        yield State.SPILL, grammar.scan_closer(syntax, "f")
        if syntax.body == "params":
            yield State.ARGUMENTS, grammar.scan_arguments(syntax, "f")
            yield State.SOLE, grammar.scan_sole_value(syntax, "f")
            for index in range(len(syntax.dialect.params)):
                yield State.VALUE, grammar.scan_value(syntax, "f", index, "key")
                yield State.GUESS, grammar.scan_guessed_value(syntax, index, "key")
                yield State.CLOSING, grammar.scan_after_value(syntax, "f", index, "key")


def kinds(scan: Scan) -> set[str]:
    """Return the kinds of the tokens."""
    match scan:
        case TokenScan():
            return {get_token_kind(token.name) for token in scan.tokens} | ({scan.end} if scan.end else set())
        case FollowingScan():
            return (kinds(scan.scan) & {*scan.kinds}) | kinds(scan.others)
        case ExpressionScan():
            groups = re.findall(r"\(\?P<(\w+)>", scan.while_open + scan.at_end)
            own = {get_token_kind(name) for name in groups if name != "hold"}
            return own | (kinds(scan.otherwise) if scan.otherwise else set())
    raise TypeError(scan)


def list_verdicts(hint: Any) -> Iterator[tuple[Verdict | None, Any]]:
    """Yield the verdicts of a type hint, each with the type of its data, if any."""
    match get_origin(hint):
        case _ if isinstance(hint, TypeAliasType):
            yield from list_verdicts(hint.__value__)
        case origin if origin in (Union, UnionType):
            for one in get_args(hint):
                yield from list_verdicts(one)
        case origin if origin is Literal:
            yield from ((verdict, None) for verdict in get_args(hint))
        case origin if origin is tuple:
            of_verdict, data = get_args(hint)
            yield from ((verdict, data) for verdict, _ in list_verdicts(of_verdict))
        case _:
            assert hint in (None, NoneType)
            yield None, None


def outcomes(action: Callable[..., Any]) -> list[tuple[Verdict | None, Any]]:
    """Return the outcomes of an action from its annotation, which mypy checks."""
    return [*list_verdicts(get_type_hints(action)["return"])]


def steps(row: StateRow[Any]) -> Iterator[tuple[str, Step]]:
    """Yield the steps out of a state with their names in the diagram."""
    yield from ((token, step) for token, step in row.steps.items() if isinstance(token, TokenKind))


def edges() -> dict[tuple[State, State], list[str]]:
    """Return the steps from one state to another."""
    found: dict[tuple[State, State], list[str]] = {}
    for state, row in TABLE.items():
        for name, step in steps(row):
            found.setdefault((state, step.next), []).append(name)
            for verdict, following in step.by_verdict.items():
                if following is not step.next:
                    found.setdefault((state, following), []).append(f"{name} ({verdict.name.lower()})")
    return found


def draw_diagram() -> str:
    lines = ["stateDiagram-v2", "    [*] --> start"]
    for (state, following), names in edges().items():
        if (kept := [name for name in dict.fromkeys(names) if name != "text"]) or state is not following:
            lines.append(f"    {state.value} --> {following.value}: {', '.join(kept)}")
    return "\n".join(lines) + "\n"


def classes() -> str:
    """Return a table of the classes, their states, and the first sentences of their docstrings."""
    of: dict[type[Any], list[str]] = {}
    for state, row in TABLE.items():
        of.setdefault(row.handler, []).append(state.value)
    lines = ["| class | states | place |", "|---|---|---|"]
    for one, names in of.items():
        place = (one.__doc__ or "").partition("\n\n")[0].replace("\n    ", " ")
        lines.append(f"| `{one.__name__}` | {', '.join(names)} | {place} |")
    return "\n".join(lines) + "\n"


def list_table() -> str:
    lines = ["| state | token | action | next | or |", "|---|---|---|---|---|"]
    for state, row in TABLE.items():
        for name, step in steps(row):
            others = ", ".join(f"{verdict.name.lower()}: {other.value}" for verdict, other in step.by_verdict.items())
            lines.append(f"| {state.value} | {name} | `{step.action.__qualname__}` | {step.next.value} | {others} |")
    return "\n".join(lines) + "\n"


def members(enum: type[Enum]) -> dict[str, str]:
    """Return the docstrings of an enum's members."""
    tree = ast.parse(inspect.getsource(enum))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef))
    found = {}
    for node, after in itertools.pairwise([*body, ast.Pass()]):
        match node, after:
            case ast.Assign(targets=[ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
                found[name] = " ".join(text.split())
            case ast.Assign(targets=[ast.Name(name)]), _:
                found[name] = ""
    return found


def key(enum: type[Enum]) -> str:
    """Return a table of an enum's members with their docstrings."""
    meanings = members(enum)
    lines = [f"| {enum.__name__} | |", "|---|---|"]
    lines += [f"| {one.name.lower()} | {meanings[one.name]} |" for one in enum]
    return "\n".join(lines) + "\n"


@pytest.mark.rest
def test_every_token_of_every_state_has_a_step_and_every_step_a_token() -> None:
    found = {(state, token) for grammar in grammars() for state, scan in scans(grammar) for token in kinds(scan)}
    written = {(state, token) for state, row in TABLE.items() for token, _ in steps(row) if token not in NO_TOKENS}
    assert found == written


def test_every_state_has_a_row_and_is_reached() -> None:
    reached = {following for (state, following) in edges() if state is not following}
    assert {*TABLE} == {*State} == reached | {State.START}


def test_every_verdict_is_in_the_table() -> None:
    used = {verdict for row in TABLE.values() for _, step in steps(row) for verdict in step.by_verdict}
    assert used == {*Verdict}


EACH_STEP = pytest.mark.parametrize(
    ("state", "step"),
    [
        pytest.param(state, step, id=f"{state.value}-{name}")
        for state, row in TABLE.items()
        for name, step in steps(row)
    ],
)


@EACH_STEP
def test_every_verdict_that_an_action_returns_has_a_state_and_no_other_has(state: State, step: Step) -> None:
    verdicts = {verdict for verdict, _ in outcomes(step.action)}
    assert verdicts - {None} == {*step.by_verdict}
    assert None in verdicts or step.next in step.by_verdict.values()


@EACH_STEP
def test_an_action_hands_over_the_data_that_the_object_of_the_next_state_needs(state: State, step: Step) -> None:
    for verdict, data in outcomes(step.action):
        following = TABLE[step.next if verdict is None else step.by_verdict[verdict]].handler
        _, *needed = inspect.signature(following).parameters.values()
        if data is not None:
            assert data == get_type_hints(following.__init__)[needed[0].name]
        elif not issubclass(TABLE[state].handler, following):  # a new object without arguments
            assert all(parameter.default is not parameter.empty for parameter in needed)


@EACH_STEP
def test_an_action_is_one_of_the_class_of_its_state(state: State, step: Step) -> None:
    name, *of_class = step.action.__qualname__.split(".")[::-1]
    if of_class:
        assert inspect.getattr_static(TABLE[state].handler, name) is step.action
    else:
        first = next(iter(get_type_hints(step.action).values()))
        assert issubclass(TABLE[state].handler, get_args(first) or first)


def test_rows_that_require_a_token_define_its_absence() -> None:
    assert [state for state, row in TABLE.items() if row.text is None and row.otherwise is None] == []


def test_a_token_with_a_number_has_the_step_of_its_kind() -> None:
    steps = TABLE[State.CLOSING].steps
    assert steps[f"{TokenKind.PARAMETER_OPENER}7"] is steps[TokenKind.PARAMETER_OPENER]


def test_a_token_without_a_step_is_an_error_of_ours() -> None:
    with pytest.raises(KeyError, match="unheard"):
        TABLE[State.TEXT].steps["unheard"]


def test_calls_in_code_are_searched_only_if_the_dialect_allows_them() -> None:
    plain = [dialect for dialect in DIALECTS.values() if dialect.in_code == "text"]
    assert plain
    assert TokenKind.CALL_OPENER not in kinds(Grammar(plain).scan_quotation_end("```", None))


def test_the_page_shows_the_table() -> None:
    """Renew it by running this test with VTC_RENEW_DOCS=1."""
    page = PAGE.read_text("utf-8")
    renewed = re.sub(r"(?s)(```mermaid\n).*?(```\n)", lambda found: found[1] + draw_diagram() + found[2], page)
    written = {
        "classes": classes(),
        "table": list_table(),
        "tokens": key(TokenKind),
        "states": key(State),
        "verdicts": key(Verdict),
    }
    for name, text in written.items():
        before, mark, rest = renewed.partition(f"<!-- {name} -->\n")
        renewed = before + mark + text + rest[rest.index("<!-- end -->") :]
    if os.environ.get("VTC_RENEW_DOCS"):
        PAGE.write_text(renewed, "utf-8")
    assert page == renewed or os.environ.get("VTC_RENEW_DOCS")
