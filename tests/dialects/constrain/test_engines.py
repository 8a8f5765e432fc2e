"""Structural tags, decoded by xgrammar: the engine of vLLM, SGLang and TensorRT-LLM.

It also reads our GBNF directly, which compares the language of the checker with another engine. It imports torch only
for its masks on graphics cards, so stubs replace that.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from functools import cache
from typing import Any

import pytest

from tests.dialects.constrain.material import EXPRESSIBLE, TOOLS, call, text_of
from tests.dialects.material import DIALECTS
from vtc.dialects.constrain import Demand, Inexpressible, render_constraint

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]
FULL = {"path": "a.py", "content": "if x < 3:\n    y", "mode": "new", "lines": 5, "force": True, "about": {"who": "me"}}
END = 256


@cache
def engine() -> Any:
    """Import the module, with stubs for packages that are not installed."""
    import tvm_ffi  # noqa: F401  # before the stubs: it looks for the real ones

    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            stub = types.ModuleType(name)
            stub.__dict__["__getattr__"] = lambda one: type(one, (), {"__init__": lambda self, *_, **__: None})
            sys.modules[name] = stub
    import xgrammar

    return xgrammar


@cache
def compile_tag(name: str, demanded: bool, thoughts: bool = False) -> Any:
    """Compile the tag of a dialect, for a vocabulary of single bytes."""
    made = engine()
    vocabulary = [*(bytes([one]) for one in range(256)), b"<end>"]
    info = made.TokenizerInfo(vocabulary, vocab_type=made.VocabType.RAW, vocab_size=257, stop_token_ids=[END])
    demand = Demand(calls_only=demanded, reasoning_tags=(("<think>", "</think>"),) if thoughts else ())
    tag = render_constraint("structural_tag", DIALECTS[name], [*TOOLS.values()], demand)
    compiler = made.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    return compiler.compile_structural_tag(json.dumps({"type": "structural_tag", "format": tag}))


def accepts(grammar: Any, text: str) -> bool:
    matcher = engine().GrammarMatcher(grammar)
    return all(matcher.accept_token(one) for one in [*text.encode(), END])


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_rendered_calls_are_accepted_and_malformed_ones_rejected(name: str) -> None:
    grammar, good = compile_tag(name, True), text_of(name, call("write_file", FULL))
    assert accepts(grammar, good)
    for wrong in ({**FULL, "mode": "x"}, {**FULL, "lines": "five"}, {**FULL, "colour": "red"}, {"path": "a"}):
        assert not accepts(grammar, text_of(name, call("write_file", wrong)))
    assert not accepts(grammar, f"I look.\n{good}")
    assert not any(accepts(grammar, good[:at]) for at in range(0, len(good), 5))


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_calls_may_stand_in_free_text(name: str) -> None:
    try:
        grammar = compile_tag(name, False, True)
    except Inexpressible as error:
        assert "whole reply" in str(error)  # noqa: PT017
        return
    good = text_of(name, call("write_file", FULL))
    for text in ("No call: 3 < 5.", f"I look.\n{good}", f"{good}\nDone.", f"<think>A call:\n</think>\n{good}"):
        assert accepts(grammar, text), text
    assert not accepts(grammar, f"I look.\n{good[: len(good) - 4]}")


def test_a_long_value_takes_no_long_time() -> None:
    """There is one right-recursive rule for each character: an engine that keeps them all would take minutes."""
    content = "if a < b: return '</x>'\n" * 4000
    assert accepts(
        compile_tag("qwen3-coder", True), text_of("qwen3-coder", call("write_file", {**FULL, "content": content}))
    )
