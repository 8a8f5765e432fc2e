"""Tools, random calls of them, and the dialects for which a grammar can be generated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from tests.dialects.constrain.checker import Checker
from tests.dialects.material import DIALECTS
from vtc.dialects.constrain import Demand, gbnf, render_constraint
from vtc.dialects.constrain.constraint import build_reply_grammar
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall

THOROUGH = settings().max_examples > 1000
"""True for a nightly search: all dialects, instead of one for each family."""
EXPRESSIBLE = [name for name, one in DIALECTS.items() if not one.unconstrained]
FAMILIES = ("bare-json", "glm-4.5", "hermes", "invoke", "kimi-k2", "lfm2", "mistral", "pythonic", "qwen3-coder", "tag")
"""One dialect of each family."""
SEARCHED = EXPRESSIBLE if THOROUGH else FAMILIES
TEXT = {"type": "string"}
TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "write_file",
            "",
            {
                "type": "object",
                "properties": {
                    "path": TEXT,
                    "content": TEXT,
                    "mode": {"enum": ["new", "append"]},
                    "lines": {"type": "integer"},
                    "tags": {"type": "array", "items": TEXT},
                    "force": {"type": "boolean"},
                    "rate": {"type": ["number", "null"]},
                    "about": {
                        "type": "object",
                        "properties": {"who": TEXT, "sure": {"type": "boolean"}},
                        "required": ["who"],
                    },
                },
                "required": ["path", "content"],
            },
        ),
        Tool("now", "", {"type": "object", "properties": {}}),
    )
}
PIECES = st.sampled_from([*"ab é😀\n\t<>/\"'\\{}[]=|", "plain text ", "</x>", "x < 3", "\n\n", "null", "1"])
STRINGS = st.lists(PIECES, max_size=6).map("".join)
INTEGERS = st.integers(-(10**19), 10**19)
FLOATS = st.floats(-1e250, 1e250, allow_nan=False, allow_infinity=False)
ABOUT = st.fixed_dictionaries({"who": STRINGS}, optional={"sure": st.booleans()})
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "mode": st.sampled_from(["new", "append"]),
    "lines": INTEGERS,
    "tags": st.lists(STRINGS, max_size=3),
    "force": st.booleans(),
    "rate": st.none() | FLOATS,
    "about": ABOUT,
}


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    """Draw a call with valid arguments in any order."""
    if draw(st.integers(0, 5)) == 0:
        return ToolCall("now", "{}", "call12345")
    arguments = draw(st.fixed_dictionaries({"path": STRINGS, "content": STRINGS}, optional=dict(VALUES)))
    keys = draw(st.permutations([*arguments]))
    free = {"path", "content", *[key for key in VALUES if key in ("mode", "lines")]}
    order = sorted((key for key in keys if key not in free), key=[*VALUES].index)  # the order of these keys is fixed
    arranged = iter(order)
    return call("write_file", {key: arguments[key] for key in (k if k in free else next(arranged) for k in keys)})


def call(name: str, arguments: Mapping[str, Any]) -> ToolCall:
    return ToolCall(name, json.dumps(arguments), "call12345")


def text_of(name: str, *made: ToolCall) -> str:
    """Return calls as the dialect's writer renders them for a model."""
    return write_calls(made, DIALECTS[name], TOOLS).lstrip()


@cache
def required_grammar(name: str) -> Checker:
    """Return the grammar of a reply that must be calls."""
    good = text_of(name, call("write_file", {"path": "a", "content": "b\nc", "mode": "new", "force": True}))
    words = [one for one in re.split(r"(?<=>)|(?=<)|\s", good) if len(one) > 1]
    if "</{key}>" in (DIALECTS[name].params or ("",))[0]:  # the reader decides later about a call in such a value
        words = [one for one in words if "write_file" not in one]
    return Checker(render_constraint("gbnf", DIALECTS[name], [*TOOLS.values()], Demand(calls_only=True)), words)


@cache
def free(name: str) -> Checker:
    """Return the grammar of free text with calls in it."""
    return Checker(gbnf.write_grammar(build_reply_grammar(DIALECTS[name], [*TOOLS.values()], Demand(calls_only=False))))
