"""The prompt of one turn, without its last message, is a prefix of the next one, byte by byte.

Ten turns as agents send them: Claude Code with a billing line that differs in each request, marks for the cache and
reminders that move, tools that are loaded later; Codex with developer messages inside the conversation; OpenCode;
Cline's text. Each in every mode in which VTC renders a part of the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fuzz import targets
from tests.apis import chat, messages, pairs, responses
from tests.apis.conversations import BY_NAME, decode_reply, get_history_key, make_answer_entries, make_question
from tests.apis.pairs import PAIRS
from tests.exchange.remembering.talks import Talk, one_id
from vtc.exchange import Session
from vtc.profiles import Facts, Memory, Planner, Settings, builtin_directory, load_profiles
from vtc.reporting import describe_broken_prefix

MARK = {"cache_control": {"type": "ephemeral"}}
WROTE = '<tool_call>\n{"arguments": {"filePath":"/a"},  "name": "read"}\n</tool_call>'
LOCAL = Facts(host="127.0.0.1")


def run_generator[T](steps: Generator[None, None, T]) -> T:
    """Return the result of a generator that yields no requests."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def reply(server: str, turn: int, *, in_text: bool) -> bytes:
    """Return a call after reasoning, or an answer in some turns."""
    thought = f"Thought {turn}."
    if turn % 4 == 3:
        return pairs.make_stream(server, [f"Answer {turn}."], reasoning=thought)
    if in_text:
        return pairs.make_stream(server, [f"I look {turn}.\n\n", WROTE], reasoning=thought)
    return one_id(server, pairs.make_stream(server, [f"I look {turn}."], pairs.READ, reasoning=thought), turn)


class ClaudeCode(Talk):
    """A conversation of Claude Code: only the last message has a mark and a reminder; a loaded tool stays declared."""

    def turn(self, number: int) -> dict[str, Any]:
        head = messages.text(f"x-anthropic-billing-header: cc_version=2.1.5; cch={number}abc;")
        kept = self.entries
        if kept[-1]["role"] == "user":
            reminder = {**messages.text(f"<system-reminder>Reminder {number}</system-reminder>"), **MARK}
            self.entries = [*kept[:-1], {**kept[-1], "content": [*kept[-1]["content"], reminder]}]
        later = [declare_deferred("never", "Never call it."), *map(declare_deferred, self.list_loaded_tools())]
        body = self.ask(system=[head, messages.text("Be brief.")], tools=[*later, *messages.TOOLS])
        self.entries = kept
        return body

    def load(self, number: int) -> None:
        """Load a tool by the last result."""
        for block in self.entries[-1]["content"]:
            if block["type"] == "tool_result":
                block["content"] = [{"type": "tool_reference", "tool_name": f"late{number}"}]

    def list_loaded_tools(self) -> list[str]:
        blocks = [block for one in self.entries for block in one["content"]]
        results = [block["content"][0] for block in blocks if block["type"] == "tool_result"]
        return [part["tool_name"] for part in results]


def declare_deferred(name: str, description: str = "It came late.") -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": {"type": "object"}, "defer_loading": True}


def went_on(client: str, talk: Talk, number: int) -> None:
    """Return the messages that the agent adds between two turns."""
    if number % 4 == 3:
        talk.entries = [*talk.entries, *make_question(client, f"Go on {number}")]
    elif client == "openai-responses" and number % 3 == 1:
        talk.entries = [*talk.entries, responses.make_input_message("developer", f"Note {number}")]
    elif client == "openai-chat" and number % 3 == 1:
        talk.entries = [*talk.entries, {"role": "system", "content": f"Note {number}"}]


def send_ten_turns(client: str, server: str, **settings: Any) -> Iterator[dict[str, Any]]:
    """Return the bodies of ten turns."""
    talk = Talk(client, server, facts=LOCAL, **settings)
    talk.entries = make_question(client, "Read it")
    for number in range(10):
        yield talk.ask()
        assert describe_broken_prefix(talk.exchange.report.prefix) == ""
        talk.reply(reply(server, number, in_text="tools" in settings), f"found {number}")
        went_on(client, talk, number)


def check(bodies: list[dict[str, Any]], server: str) -> None:
    assert len(bodies) == 10
    for before, after in pairwise(bodies):
        kept = before[get_history_key(server)][:-1]
        assert json.dumps(after[get_history_key(server)][: len(kept)]) == json.dumps(kept)
        for name in ("tools", "system", "instructions"):
            assert json.dumps(after.get(name)) == json.dumps(before.get(name)), name


@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
@pytest.mark.parametrize("dialect", ["", "hermes"], ids=["native", "prompt"])
def test_ten_turns_of_every_pair(client: str, server: str, dialect: str) -> None:
    settings = {"tools": "prompt", "dialect": dialect} if dialect else {}
    check([*send_ten_turns(client, server, **settings)], server)


@pytest.mark.parametrize("server", ["anthropic-messages", "openai-chat", "openai-responses", "ollama-chat"])
@pytest.mark.parametrize(
    "dialect", ["", "hermes", "qwen3-coder"], ids=["native", "hermes prompt", "qwen3-coder prompt"]
)
def test_ten_turns_of_claude_code(server: str, dialect: str) -> None:
    """In its own API no byte changes, including the client's billing line; the declared tools grow."""
    settings = {"tools": "prompt", "dialect": dialect} if dialect else {}
    talk = ClaudeCode("anthropic-messages", server, facts=LOCAL, **settings)
    talk.entries = [messages.user([messages.text("<system-reminder>CLAUDE.md</system-reminder>"), messages.text("Do")])]
    bodies = []
    for number in range(10):
        bodies.append(talk.turn(number))
        talk.reply(reply(server, number, in_text=bool(dialect)), f"found {number}")
        talk.load(number)
        went_on("anthropic-messages", talk, number)
    if not dialect:
        for body in bodies:
            for name in ("tools", "system") if server == "anthropic-messages" else ("tools",):
                del body[name]
    else:
        text = json.dumps(bodies[-1])
        assert "Never call it" not in text
        assert "tool_reference" not in text
        assert "billing" not in text
        assert text.count("It came late.") == 7
    for body in bodies:
        body[get_history_key(server)] = [_remove_marks(one) for one in body[get_history_key(server)]]
    check(bodies, server)


def _remove_marks(value: Any) -> Any:
    """Remove cache marks, which the client moves and no model reads."""
    if isinstance(value, list):
        return [_remove_marks(one) for one in value]
    if isinstance(value, dict):
        return {name: _remove_marks(one) for name, one in value.items() if name != "cache_control"}
    return value


CLINE = Facts(user_agent="Cline/3.82.0", host="127.0.0.1")
READ_FILE = '<tool_call>\n{"name": "read_file", "arguments": {"path": "/a"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("settings", "wrote"),
    [
        ({}, "<read_file>\n<path>/a</path>\n</read_file>"),
        ({"tools": "prompt", "dialect": "hermes"}, READ_FILE),
        ({"tools": "native"}, READ_FILE),
    ],
    ids=["as it is", "translated", "promoted"],
)
def test_ten_turns_of_cline(settings: dict[str, Any], wrote: str) -> None:
    """Calls and results are text; the details of the environment change in each turn."""
    talk = Talk("openai-chat", facts=CLINE, **settings)
    talk.entries = [
        {"role": "system", "content": targets.PROMPT},
        *make_question("openai-chat", "<task>\nLook.\n</task>"),
    ]
    bodies = []
    for number in range(10):
        bodies.append(talk.ask(tools=None))
        assert describe_broken_prefix(talk.exchange.report.prefix) == ""
        talk.reply(b"".join(chat.make_stream(f"I look {number}.\n\n", wrote)))
        result = [
            f"[read_file for '/a'] Result:\nfound {number}",
            f"<environment_details>{number}</environment_details>",
        ]
        talk.entries = [*talk.entries, {"role": "user", "content": [{"type": "text", "text": one} for one in result]}]
    check(bodies, "openai-chat")


def test_a_question_that_vtc_asked_is_no_part_of_the_next_turns(tmp_path: Path) -> None:
    """The client never saw it, so only the client's conversation is compared."""
    profile = "kind: model\nname: mine\nmatch: {model: made-up-model}\nretry: {max: 1}\n"
    (tmp_path / "mine.yaml").write_text(profile)
    plans = Planner(load_profiles([builtin_directory(), tmp_path]), Settings())
    memory, entries, bodies = Memory(), make_question("openai-chat", "Read it"), []
    for number in range(10):
        body = chat.encode_json(chat.request(messages=entries, model="made-up-model", stream=True))
        exchange = Session.open(BY_NAME["openai-chat"], body, LOCAL, plans, f"seed {number}", memory)
        bodies.append(json.loads(exchange.encode_request()))
        assert describe_broken_prefix(exchange.report.prefix) == ""
        good = chat.encode_json(chat.completion(WROTE))
        bad = chat.encode_json(
            chat.completion('<tool_call>\n{"name": "read", "arguments": {"filePath": /a}}\n</tool_call>')
        )

        def ask(_: bytes, good: bytes = good) -> Generator[None, None, bytes]:
            yield
            return good

        out = run_generator(exchange.whole.rewrite_with_retry(bad if number % 2 else good, ask))
        entries = [*entries, *make_answer_entries("openai-chat", decode_reply("openai-chat", out), f"found {number}")]
    check(bodies, "openai-chat")
