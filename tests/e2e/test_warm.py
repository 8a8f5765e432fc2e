"""Patterns for a first reply are compiled before it arrives, because compiling then would block all others."""

from __future__ import annotations

import gc
import re
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import pytest

from tests.apis import chat
from tests.e2e.conftest import Start
from tests.e2e.upstream import SSE, Reply
from tests.exchanges import PROFILES, feed_stream, open_session
from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.dialects.syntax import scan
from vtc.dialects.writing.history import render_sample_call
from vtc.events import Tool

MOST = 2_500
"""Maximum length of the expressions that are compiled during a reply: those of the tokens in it."""
FIELDS = {"filePath": {"type": "string"}, "content": {"type": "string"}}
TOOL = Tool("create_file", "", {"type": "object", "properties": FIELDS})
OFFERED: Any = [TOOL.as_openai()]

type Compiled = Mapping[int, int]
"""Characters of the expressions that each thread has compiled."""


@pytest.fixture
def frames(dialect: str) -> list[bytes]:
    """Return words and a call, in small pieces."""
    call = render_sample_call(PROFILES.dialects[dialect], TOOL, {"filePath": "/a", "content": "x < y\n"})
    text = f"I write `it`:\n\n{call}"
    return chat.make_stream(*(text[at : at + 4] for at in range(0, len(text), 4)))


@pytest.fixture
def compiled(frames: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """Empty the caches of compiled patterns, and count the characters that are compiled from now on."""
    lengths: dict[int, int] = defaultdict(int)
    compile_ = re._compiler.compile  # type: ignore[attr-defined]

    def counting(pattern: str, flags: int = 0) -> re.Pattern[str]:
        lengths[threading.get_ident()] += len(pattern)
        return compile_(pattern, flags)  # type: ignore[no-any-return]

    re.purge()
    monkeypatch.setattr(COMPILED_PATTERNS, "_entries", OrderedDict())
    monkeypatch.setattr(COMPILED_PATTERNS, "size", 0)
    monkeypatch.setattr(scan, "_patterns", WeakValueDictionary())  # grammars of other tests share them
    monkeypatch.setattr("re._compiler.compile", counting)
    return lengths


@pytest.mark.parametrize("dialect", sorted(PROFILES.dialects))
def test_a_first_reply_compiles_little(dialect: str, frames: list[bytes], compiled: Compiled) -> None:
    exchange = open_session(tools=OFFERED, settings={"dialect": dialect})
    exchange.encode_request()
    exchange.warm()
    here = threading.get_ident()
    before = compiled[here]
    feed_stream(exchange.stream(), *frames)
    assert compiled[here] - before < MOST


@pytest.mark.parametrize("dialect", ["qwen3-coder"])
def test_compiled_objects_are_cheap_for_the_collector(dialect: str, compiled: Compiled) -> None:
    """All streams wait while Python's garbage collector visits the objects."""
    exchange = open_session(tools=OFFERED, settings={"dialect": dialect})
    gc.collect()
    before = len(gc.get_objects())
    exchange.warm()
    for _ in range(3):  # each removes one level of tuples
        gc.collect()
    assert len(gc.get_objects()) - before < 5_000


@pytest.mark.parametrize("dialect", ["qwen3-coder"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_compilation_runs_next_to_the_event_loop(
    stream: bool, dialect: str, frames: list[bytes], compiled: Compiled, start: Start
) -> None:
    lab = await start(Reply(frames, SSE), vtc_dialect=dialect)
    answer = await lab.post(chat.request(tools=OFFERED, stream=stream))
    assert [name for name, _ in answer.message.calls] == [TOOL.name]
    assert compiled[threading.get_ident()] < MOST
    assert len(compiled) > 1
