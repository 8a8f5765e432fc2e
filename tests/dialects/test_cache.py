"""The cache of conversations gives the values that would be made again, and takes no more bytes than it may."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.dialects.material import AGENT, DIALECTS
from vtc.dialects.bounded_cache import COMPILED, ENTRY
from vtc.dialects.cache import ConversationCache, ScopedCache, size_of
from vtc.dialects.syntax.description import Description
from vtc.dialects.text_client import conversation, documented_tools
from vtc.dialects.writing import history
from vtc.events import Call, Markup, Message, Text, Tool, ToolCall

MOST = 1 << 40
SLACK = 96 << 10
"""Bytes that others allocate meanwhile and keep: pytest, Python."""


class Making:
    """Counts what is made."""

    def __init__(self, cache: ConversationCache) -> None:
        self.cache = cache
        self.count = 0

    def __call__(self, *of: str | bytes) -> str:
        def make() -> str:
            self.count += 1
            return "-".join(map(str, of))

        return self.cache.get_or_make(of, make)


def test_a_value_is_made_once() -> None:
    made = Making(ConversationCache())
    assert [made("a", "b"), made("a", "b"), made("ab"), made("a", "b", "")] == ["a-b", "a-b", "ab", "a-b-"]
    assert made.count == 3


def test_bytes_are_parts_like_texts() -> None:
    made = Making(ConversationCache())
    assert [made("a", b"b\xff"), made("a", b"b\xff"), made("ab", b"\xff")] == [
        r"a-b'b\xff'",
        r"a-b'b\xff'",
        r"ab-b'\xff'",
    ]
    assert made.count == 2


def test_a_value_that_no_exchange_asks_for_is_evicted() -> None:
    made = Making(ConversationCache(most_exchanges=2))
    made("a")
    size = made.cache.size
    made("b")
    for _ in range(2):
        made.cache.next_exchange()
        made("a")
    made.cache.next_exchange()
    assert made.cache.size == size
    made("a")
    assert made.count == 2


def test_of_a_key_only_a_digest_is_kept() -> None:
    cache = ConversationCache()
    cache.get_or_make(("a secret",), lambda: "made")
    assert "secret" not in repr([vars(cache), vars(cache._cache)])
    assert "made" in repr(vars(cache._cache))


def calls(count: int) -> tuple[ToolCall, ...]:
    return tuple(ToolCall("bash", json.dumps({"command": f"ls\n</parameter>{i}"}), f"c{i}") for i in range(count))


@pytest.mark.parametrize("name", DIALECTS)
def test_a_history_is_the_same_with_and_without(name: str) -> None:
    cache, dialect = ConversationCache(), DIALECTS[name]
    messages = [Message("assistant", ("I look.",), calls(count)) for count in (1, 2)]
    for part in (messages[:1], messages, messages):
        assert history.to_text(part, dialect, AGENT, cache) == history.to_text(part, dialect, AGENT)
    results = [replace(message, calls=()) for message in history.to_text(messages, dialect, AGENT)]
    for _ in range(2):
        read = conversation.structured(results, dialect, AGENT, cache)
        assert read == conversation.structured(results, dialect, AGENT)


NAN, ENDLESS = float("nan"), float("inf")
TAG = DIALECTS["tag"]
BASH = AGENT["bash"]


@pytest.mark.parametrize(
    "others",
    [
        (TAG, [Tool("bash", "", {"properties": {"command": {"type": "integer"}}})]),
        (TAG, [Tool("bash", "Another.", BASH.parameters)]),
        (TAG, [BASH, BASH]),
        (TAG, []),
        (replace(TAG, in_code="call"), [BASH]),
        (DIALECTS["hermes"], [BASH]),
    ],
)
def test_other_tools_and_other_dialects_give_other_values(others: tuple[Description, Sequence[Tool]]) -> None:
    cache = ConversationCache()
    assert ScopedCache(cache, TAG, [BASH]).get_or_make(("text",), lambda: 1) == 1
    assert ScopedCache(cache, *others).get_or_make(("text",), lambda: 2) == 2


@pytest.mark.parametrize("default", [NAN, ENDLESS, 1.0, True, "null", [], {}])
def test_tools_that_differ_in_a_value_that_json_lacks_are_two(default: object) -> None:
    cache = ConversationCache()
    for number, one in enumerate([None, default, 1]):
        tools = [Tool("a", "", {"default": one})]
        assert ScopedCache(cache, TAG, tools).get_or_make(("text",), lambda number=number: number) == number


def test_of_two_tools_of_one_name_both_count() -> None:
    """The prompt shows both, so it must not be found again by the last alone."""
    cache, last = ConversationCache(), Tool("a", "The last.")
    prompts = [
        history.with_tools([], DIALECTS["hermes"], [Tool("a", first), last], "auto", cache)[0].text
        for first in ("One.", "Two.")
    ]
    assert ["One." in prompt for prompt in prompts] == [True, False]


def test_tools_that_no_digest_can_be_made_of_are_not_kept() -> None:
    tools = [Tool("a", "", {"title": "\ud83d"})]
    cache = ConversationCache()
    assert ScopedCache(cache, TAG, tools).get_or_make(("text",), lambda: 1) == 1
    assert cache.size == 0


def test_without_a_cache_a_value_is_made_once_for_a_scope() -> None:
    scope = ScopedCache(None, TAG, [BASH])
    assert [scope.get_or_make(("text",), lambda number=number: number) for number in range(2)] == [0, 0]
    assert ScopedCache(None, TAG, [BASH]).get_or_make(("text",), lambda: 2) == 2


def test_half_a_surrogate_pair_is_a_text_like_any_other() -> None:
    assert ConversationCache().get_or_make(("\ud83d",), lambda: 1) == 1


def test_a_prompt_is_kept_under_the_sections_that_were_left_out() -> None:
    cache, prompt = ConversationCache(), "# Rules\n\n<a>\n\n# Tools\n\n<a>\n"
    for sections in (("Tools",), ("Rules",), ("Tools",)):
        assert documented_tools.read(prompt, sections, cache) == documented_tools.read(prompt, sections)
    assert documented_tools.read(prompt, ("Rules",), cache) is documented_tools.read(prompt, ("Rules",), cache)


# Sizes


@pytest.mark.parametrize(
    "thing",
    [
        "a" * 1000,
        ["a" * 500, {"key": "b" * 500}],
        Text("a" * 1000),
        [Text("a" * 500), Markup("b" * 500)],
        Call("a" * 400, ToolCall("bash", "b" * 600), "tag"),
        Message("assistant", ("a" * 1000,)),
        documented_tools.Documentation((Tool("a", "b" * 400, {"c": "d" * 400}),), "e" * 200),
    ],
)
def test_a_value_is_measured_with_all_that_it_holds(thing: object) -> None:
    assert 1000 < size_of(thing, MOST) < 3000


def test_a_text_held_twice_is_measured_once() -> None:
    text = "a" * 1000
    assert size_of([text, [text]], MOST) < 1500


def test_measuring_ends_where_it_is_too_much_and_at_any_depth() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert 1000 < size_of(deep, 1000) < 1200
    assert size_of(deep, MOST) > 100_000 * 8


@pytest.mark.parametrize(
    "text",
    [
        "Let me look at `a` and then at the rest of it. " * 40,
        "<read>\n<filePath>a</filePath>\n</read>\n" * 30,  # many small things of a short text
        "`<a>` " * 200,
        "é\N{WOMAN}" * 500,
    ],
)
def test_texts_of_any_number_of_conversations_take_no_more_memory_than_they_may(text: str) -> None:
    most = 256 << 10
    cache, tools = ConversationCache(most), {"read": Tool("read", "", {"properties": {"filePath": {}}})}

    def converse(number: int) -> None:
        cache.next_exchange()
        messages = [Message("assistant", (f"{text}{number}",))]
        assert conversation.structured(messages, TAG, tools, cache)
        with_calls = [Message("assistant", (), (ToolCall("read", json.dumps({"filePath": f"{text}{number}"})),))]
        assert history.to_text(with_calls, TAG, tools, cache)
        assert documented_tools.read(f"{text}{number}", cache=cache)
        assert cache.size <= most

    COMPILED.clear()  # a table of thousands of other tests' patterns may grow meanwhile
    converse(-1)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(120):
        converse(number)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cache.size > most // 2
    assert after - before < most + SLACK


def test_prompts_made_of_many_tools_count_as_long_as_they_are() -> None:
    cache = ConversationCache()
    tools = [Tool(f"tool_{i}", "Does much. " * 100) for i in range(20)]
    (message,) = history.with_tools([], DIALECTS["hermes"], tools, "auto", cache)
    assert len(message.text) < cache.size < len(message.text) * 2 + ENTRY
