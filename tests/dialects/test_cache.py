"""What is kept of past turns: what would be made again, as long as it is needed, and no more than fits."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from tests.dialects.material import AGENT, DIALECTS
from vtc.dialects.cache import Memory, Scope
from vtc.dialects.text_client import conversation
from vtc.dialects.writing import history
from vtc.events import Message, Tool, ToolCall


class Making:
    """Counts what is made."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.count = 0

    def __call__(self, *of: str) -> str:
        def make() -> str:
            self.count += 1
            return "-".join(of)

        return self.memory.made(of, make)


def test_a_thing_is_made_once() -> None:
    made = Making(Memory())
    assert [made("a", "b"), made("a", "b"), made("ab"), made("a", "b", "")] == ["a-b", "a-b", "ab", "a-b-"]
    assert made.count == 3


def test_what_was_not_needed_for_long_makes_way() -> None:
    made = Making(Memory(most_bytes=10))
    for text in ("aaaa", "bbbb", "aaaa", "cccc"):
        made(text)
    assert (made.count, made.memory.size) == (3, 8)
    made("aaaa")
    assert made.count == 3
    made("bbbb")
    assert made.count == 4


def test_what_is_too_long_is_not_kept() -> None:
    made = Making(Memory(most_bytes=10))
    assert made("a" * 11) == "a" * 11
    assert made.memory.size == 0


def test_what_no_exchange_asks_for_is_forgotten() -> None:
    made = Making(Memory(most_turns=2))
    made("a")
    made("b")
    for _ in range(2):
        made.memory.turn()
        made("a")
    made.memory.turn()
    assert made.memory.size == 1
    made("a")
    assert made.count == 2


def test_nothing_of_what_a_thing_was_made_of_is_kept_but_its_digest() -> None:
    memory = Memory()
    memory.made(("a secret",), lambda: "made")
    assert "secret" not in repr(vars(memory))


def calls(count: int) -> tuple[ToolCall, ...]:
    return tuple(ToolCall("bash", json.dumps({"command": f"ls\n</parameter>{i}"}), f"c{i}") for i in range(count))


@pytest.mark.parametrize("name", DIALECTS)
def test_a_history_is_the_same_with_and_without(name: str) -> None:
    memory, dialect = Memory(), DIALECTS[name]
    messages = [Message("assistant", ("I look.",), calls(count)) for count in (1, 2)]
    for part in (messages[:1], messages, messages):
        assert history.to_text(part, dialect, AGENT, memory) == history.to_text(part, dialect, AGENT)
    results = [replace(message, calls=()) for message in history.to_text(messages, dialect, AGENT)]
    for _ in range(2):
        read = conversation.structured(results, dialect, AGENT, memory)
        assert read == conversation.structured(results, dialect, AGENT)


def test_other_tools_and_other_dialects_give_other_things() -> None:
    memory, dialect = Memory(), DIALECTS["tag"]
    number = {"bash": Tool("bash", "", {"type": "object", "properties": {"command": {"type": "integer"}}})}
    found = [
        Scope(memory, one, tools).made(("text",), lambda number=number: number)
        for number, (one, tools) in enumerate(
            [(dialect, AGENT), (dialect, number), (replace(dialect, in_code="call"), AGENT)]
        )
    ]
    assert found == [0, 1, 2]


def test_tools_that_no_digest_can_be_made_of_are_not_remembered() -> None:
    tools = {"a": Tool("a", "", {"title": "\ud83d"})}
    memory = Memory()
    assert Scope(memory, DIALECTS["tag"], tools).made(("text",), lambda: 1) == 1
    assert memory.size == 0


def test_half_a_surrogate_pair_is_a_text_like_any_other() -> None:
    assert Memory().made(("\ud83d",), lambda: 1) == 1
