"""A cache stays below its limit in bytes, and so do the patterns that all exchanges share."""

from __future__ import annotations

import gc
import re
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tests.dialects.material import AGENT, DIALECTS
from vtc.dialects import Description, Reader, compile_grammar
from vtc.dialects.bounded_cache import COMPILED_PATTERNS, ENTRY_OVERHEAD_BYTES, BoundedCache
from vtc.dialects.reading import repairs
from vtc.dialects.syntax import scan
from vtc.dialects.syntax.pattern import Lit
from vtc.dialects.syntax.scan import TRIE_BUDGET
from vtc.events import Event, Tool

PLACE = 1024
"""Bytes of a place in a trie, with the steps to it; tries have a separate limit."""
SLACK = 96 << 10
"""Bytes that pytest and Python allocate meanwhile and keep."""


class Making:
    """A function that counts the texts it makes."""

    def __init__(self, cache: BoundedCache) -> None:
        self.cache = cache
        self.count = 0

    def __call__(self, text: str) -> str:
        def make() -> str:
            self.count += 1
            return text

        return self.cache.get_or_make(text, make, len)


def test_a_value_is_made_once() -> None:
    made = Making(BoundedCache(ENTRY_OVERHEAD_BYTES * 4))
    assert [made("a"), made("b"), made("a")] == ["a", "b", "a"]
    assert (made.count, made.cache.size) == (2, 2 * ENTRY_OVERHEAD_BYTES + 2)


def test_a_full_cache_evicts_the_value_not_asked_for_longest() -> None:
    made = Making(BoundedCache(2 * ENTRY_OVERHEAD_BYTES + 10))
    for text in ("aaaa", "bbbb", "aaaa", "cccc"):
        made(text)
    assert (made.count, made.cache.size) == (3, 2 * ENTRY_OVERHEAD_BYTES + 8)
    made("aaaa")
    assert made.count == 3
    made("bbbb")
    assert made.count == 4


def test_a_value_larger_than_the_cache_is_made_each_time_and_evicts_nothing() -> None:
    made = Making(BoundedCache(ENTRY_OVERHEAD_BYTES + 10))
    made("a")
    assert [made("b" * 11), made("b" * 11)] == ["b" * 11] * 2
    made("a")
    assert (made.count, made.cache.size) == (3, ENTRY_OVERHEAD_BYTES + 1)


def test_eviction_is_reported_to_the_owner() -> None:
    evictions: list[int] = []
    made = Making(BoundedCache(ENTRY_OVERHEAD_BYTES + 10, on_evict=lambda: evictions.append(made.cache.size)))
    made("a")
    assert evictions == []
    made("b")
    made("c" * 11)  # too large to be stored
    made.cache.clear()
    assert evictions == [ENTRY_OVERHEAD_BYTES + 1, ENTRY_OVERHEAD_BYTES + 1, 0]


def test_permanent_entry_is_not_evicted() -> None:
    cache = BoundedCache(1 << 20)
    for key, lasting in (("said", False), ("fixed", True)):
        cache.get_or_make(key, lambda: "value", len, lasting=lasting)
    cache.evict_temporary()
    assert (cache.get("said"), cache.get("fixed"), cache.size) == (None, "value", len("value") + ENTRY_OVERHEAD_BYTES)


# Compiled patterns


@pytest.fixture
def few() -> Iterator[int]:
    """Reduce the space for patterns, and clear the cache."""
    most, COMPILED_PATTERNS.max_bytes = COMPILED_PATTERNS.max_bytes, 256 << 10
    COMPILED_PATTERNS.clear()
    yield COMPILED_PATTERNS.max_bytes
    COMPILED_PATTERNS.max_bytes = most


def read(dialects: tuple[Description, ...], number: int) -> list[Event]:
    """Read calls of new tools in several dialects."""
    names = [f"tool_{number}_{i}" for i in range(10)]
    tools = {name: Tool(name, "", AGENT["bash"].parameters) for name in names}
    reader = Reader(compile_grammar(dialects), tools)
    events: list[Event] = []
    for name in names[:2]:
        events += reader.feed(
            f"Run `it`:\n<tool_call>\n<function={name}>\n<parameter=p{number}>\nx\n</parameter>\n</function>\n"
        )
        events += reader.feed(
            f'</tool_call>\n<{name}>\n<command>ls</command>\n</{name}>\n[TOOL_CALLS]{name}{{"command": "ls"}}\n'
        )
    return [*events, *reader.finish()]


@pytest.mark.rest
def test_patterns_for_any_number_of_tools_take_no_more_memory_than_they_may(few: int) -> None:
    dialects = tuple(DIALECTS[name] for name in ("hermes", "qwen3-coder", "tag"))
    read(dialects, 0)  # patterns without names are compiled once for all
    COMPILED_PATTERNS.clear()
    TRIE_BUDGET.drop_all()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(1, 5):
        read(dialects, number)
        assert COMPILED_PATTERNS.size <= few
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert COMPILED_PATTERNS.size > few // 2
    assert after - before < few + TRIE_BUDGET.entries * PLACE + SLACK


def test_tries_are_rebuilt_when_they_reach_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_TRIE_ENTRIES", 100)
    TRIE_BUDGET.drop_all()
    before = [read((DIALECTS["hermes"], DIALECTS["tag"]), number) for number in range(3)]
    assert TRIE_BUDGET.entries <= 100
    monkeypatch.undo()
    assert [read((DIALECTS["hermes"], DIALECTS["tag"]), number) for number in range(3)] == before


def test_a_place_at_which_any_of_many_characters_may_begin_something_is_counted_for_each() -> None:
    dialect = DIALECTS["qwen3-coder"]
    TRIE_BUDGET.drop_all()
    for start in range(0x4E00, 0x4E00 + 500):
        Reader(compile_grammar((dialect,)), {}).read_whole(
            f"<function=bash>\n<parameter={chr(start)}>\nx\n</parameter>\n</function>"
        )
    assert TRIE_BUDGET.entries >= 500


def test_scans_that_are_not_used_any_more_keep_no_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_TRIE_ENTRIES", 100)
    scans = [scan.make_search_scan([scan.Token("word", (Lit(f"<{number:020}"),))]) for number in range(200)]
    for number, one in enumerate(scans):
        assert one.search(f"<{number:020}")  # this creates its steps
    TRIE_BUDGET.drop_all()
    gc.collect()
    tracemalloc.start()
    for number, one in enumerate(scans):
        assert one.search(f"<{number:020}")
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100 * PLACE + SLACK


@pytest.mark.parametrize("name", ["tag", "cline", "hermes", "bare-json", "qwen3-coder"])
def test_a_pattern_is_not_counted_as_less_than_it_takes(name: str, few: int) -> None:
    COMPILED_PATTERNS.max_bytes = 1 << 30
    dialect = DIALECTS[name]

    def look() -> None:
        grammar = compile_grammar((dialect,))
        for head in grammar.heads.values():
            grammar.scan_tail(head.syntax, "tool")
            grammar.scan_closer(head.syntax, "tool")

    look()  # compiles the patterns that all grammars with this dialect share
    COMPILED_PATTERNS.clear()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    look()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < COMPILED_PATTERNS.size * 1.1


def test_garbled_closers_of_any_number_of_tools_are_bounded_too(few: int) -> None:
    for number in range(12):
        repairs.strip_corrupt_closers("text</tool", [f"</{'w' * 40}{number}>"])
        assert COMPILED_PATTERNS.size <= few


def test_a_pattern_that_is_cleared_is_in_no_cache_of_python_either(few: int) -> None:
    read((DIALECTS["tag"],), 77)
    assert any("tool_77_" in key[1] for key in re._cache)  # type: ignore[attr-defined]
    COMPILED_PATTERNS.clear()
    assert not re._cache  # type: ignore[attr-defined]


def test_threads_that_share_a_cache_count_equally() -> None:
    """If two threads make the same value, one of them is stored, and its bytes count once."""
    cache = BoundedCache(1 << 16)
    both = Barrier(2)

    def make_together(key: int) -> int:
        both.wait(timeout=30)

        def make() -> int:
            both.wait(timeout=30)
            return key

        return cache.get_or_make(key, make, lambda _: 100)

    with ThreadPoolExecutor(2) as threads:
        for key in range(20):
            assert {*threads.map(make_together, (key, key))} == {key}
    assert cache.size == 20 * (100 + ENTRY_OVERHEAD_BYTES)
