"""The part of the last prompt that a request preserves, and where it breaks, in conversations of real agents."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, messages
from tests.apis.conversations import make_question
from tests.apis.shapes import SHAPES
from tests.exchange.remembering.talks import Talk
from vtc.exchange.remembering.last_prompts import first_difference
from vtc.profiles import Facts
from vtc.reporting import describe_broken_prefix

APIS = pytest.mark.parametrize("client", [*SHAPES])
SYSTEM = "You are an agent. cch=65abc; Be brief, and do as you are told."


def result(number: int) -> list[Any]:
    """Return a call and its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"found {number}"},
    ]


def begin_talk(turns: int = 3, **options: Any) -> Talk:
    """Return a conversation of some turns, all of them sent."""
    talk = Talk("openai-chat", **options)
    talk.ask({"role": "system", "content": SYSTEM}, *make_question("openai-chat", "Read it"))
    for turn in range(turns):
        talk.ask(*result(turn))
    return talk


def broken_part(talk: Talk) -> str:
    return describe_broken_prefix(talk.exchange.report.prefix)


@APIS
def test_continued_conversation_keeps_its_prefix(client: str) -> None:
    talk = Talk(client)
    talk.ask(*make_question(client, "Read it"))
    assert talk.exchange.report.prefix == {}
    for turn in range(3):
        talk.reply(b"".join(SHAPES[client].streamed(f"Done {turn}.")))
        talk.ask(*make_question(client, "Go on"))
        prefix = talk.exchange.report.prefix
        assert broken_part(talk) == ""
        assert prefix["chars"] == prefix["chars_of"] > 0


def test_place_and_cause_of_a_break_are_reported() -> None:
    talk = begin_talk()
    talk.entries[0] = {"role": "system", "content": SYSTEM.replace("65abc", "12def")}
    talk.ask(*result(9))
    assert broken_part(talk) == "prompt cache usable to message 0 of 10: system changed at 22"
    prefix = talk.exchange.report.prefix
    assert "cch=65abc" in prefix["before"]
    assert "cch=12def" in prefix["now"]
    assert prefix["chars"] < prefix["chars_of"]
    assert "prompt cache usable to message 0 of 10" in talk.exchange.report.summarize()
    talk.ask(*result(10))
    assert broken_part(talk) == ""


def test_changed_or_inserted_message_is_reported() -> None:
    talk = begin_talk()
    talk.entries[3] = {**talk.entries[3], "content": "[old result cleared]"}
    talk.ask(*result(9))
    assert broken_part(talk) == "prompt cache usable to message 3 of 10: tool changed at 0"
    talk.entries.insert(5, {"role": "user", "content": "A note"})
    talk.ask(*result(10))
    assert broken_part(talk) == "prompt cache usable to message 5 of 13: user in the place of tool"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda tools: tools[::-1], "tool write in the place of tool read"),
        (lambda tools: [*tools, chat.tool("more")], "tool more is new"),
        (lambda tools: tools[:-1], "tool write is gone"),
        (lambda tools: [*tools[:-1], chat.tool("write", path="number")], "tool write changed at"),
    ],
    ids=["order", "added", "gone", "changed"],
)
def test_tools_stand_before_all_messages(change: Any, expected: str) -> None:
    talk = begin_talk()
    talk.ask(*result(9), tools=change(chat.TOOLS))
    assert broken_part(talk).startswith(f"prompt cache usable to message 0 of 10: {expected}")


def test_last_message_may_be_temporary() -> None:
    """Examples are a reminder after the last message, a replaced message, and a repeated turn."""
    talk = begin_talk()
    note = {"role": "user", "content": "<system-reminder>Be quick.</system-reminder>"}
    talk.ask(note)
    talk.entries.remove(note)
    talk.ask(*result(9), note)
    assert broken_part(talk) == ""
    talk.entries = [*talk.entries[:4], {"role": "user", "content": "Rather do this"}]
    talk.ask()
    assert broken_part(talk) == ""


def title(talk: Talk) -> None:
    """Request a title, with a different prompt and no tools, that quotes the first message."""
    entries = [{"role": "system", "content": "You write titles."}, *make_question("openai-chat", "Write one for:")]
    talk.entries = [*entries, *make_question("openai-chat", "Read it")]
    talk.ask(tools=None)


def title_of_all(talk: Talk) -> None:
    """Request a title at the end of the conversation itself."""
    talk.ask(*make_question("openai-chat", "Write a title"))


def memory_pass(talk: Talk) -> None:
    """Send the whole conversation again, with other tools and another prompt."""
    talk.entries[0] = {"role": "system", "content": "You remember things."}
    talk.ask(tools=[chat.tool("save_memory", fact="string")])


def compact_talk(talk: Talk) -> None:
    """Compact the conversation as Codex does: the user's messages, and a summary."""
    talk.entries = [talk.entries[0], talk.entries[1], *make_question("openai-chat", "Summary: all was read.")]
    talk.ask()


def another(talk: Talk) -> None:
    talk.entries = [talk.entries[0], *make_question("openai-chat", "Something else")]
    talk.ask()


def same_again(talk: Talk) -> None:
    talk.entries = talk.entries[:2]
    talk.ask()


def sub_agent(talk: Talk) -> None:
    talk.entries = [{"role": "system", "content": "You search."}, *make_question("openai-chat", "Search it")]
    talk.ask(tools=chat.TOOLS[:2])
    talk.ask(*result(77), tools=chat.TOOLS[:2])


@pytest.mark.parametrize("aside", [title, title_of_all, memory_pass, compact_talk, another, same_again, sub_agent])
@pytest.mark.parametrize("turns", [0, 1, 4])
def test_no_other_request_is_taken_for_a_break_of_a_conversation(turns: int, aside: Any) -> None:
    """Neither the side request nor the next turn is reported."""
    talk = begin_talk(turns)
    entries = copy.deepcopy(talk.entries)
    aside(talk)
    assert broken_part(talk) == ""
    talk.entries = entries
    talk.ask(*result(9))
    assert broken_part(talk) == ""
    assert talk.exchange.report.prefix["kept"] >= len(entries) - 1


def test_conversations_of_others_are_never_compared() -> None:
    talk = begin_talk(facts=Facts(host="one", headers={"x-api-key": "mine"}))
    for facts in (Facts(host="one", headers={"x-api-key": "yours"}), Facts(host="two", headers={"x-api-key": "mine"})):
        other = Talk("openai-chat", memory=talk.memory, facts=facts)
        other.entries = [{"role": "system", "content": "Other"}, *talk.entries[1:]]
        other.ask()
        assert other.exchange.report.prefix == {}


def test_marks_for_the_cache_and_other_forms_of_the_same_text_break_nothing() -> None:
    """Claude Code moves the mark in each turn, and sends its prompt as a list first and as a string then."""
    marked = {"cache_control": {"type": "ephemeral"}}
    talk = Talk("anthropic-messages")
    talk.ask(messages.user([{**messages.text("Read it"), **marked}]), system=[{**messages.text("Be brief."), **marked}])
    talk.entries = [messages.user("Read it"), messages.assistant(messages.call("read", "t1"))]
    talk.ask(messages.user([messages.result("x", "t1")]), system="Be brief.")
    assert broken_part(talk) == ""


@pytest.mark.parametrize(("host", "breaks"), [("127.0.0.1", True), ("api.anthropic.com", False)])
def test_the_billing_line_breaks_the_prompt_of_all_servers_but_its_own(host: str, breaks: bool) -> None:
    talk = Talk("anthropic-messages", facts=Facts(host=host))
    for turn, number in enumerate("ab"):
        head = messages.text(f"x-anthropic-billing-header: cc_version=2.1.5; cch=65{number};")
        ask = messages.user(f"ask {turn}") if not turn else messages.assistant(messages.text("Done."))
        talk.ask(ask, *([messages.user("go on")] if turn else []), system=[head, messages.text("Be brief.")])
    assert bool(broken_part(talk)) is breaks


def test_an_excerpt_holds_no_secret() -> None:
    talk = begin_talk(facts=Facts(host="one", headers={"authorization": "Bearer opensesame-1234567"}))
    secret = f"{'sk-' + 'a' * 30}"
    for text in (f"key {secret} 1", f"key {secret} 2 opensesame-1234567", "key sk-bbbbbbbbbbbbbbbb 3"):
        talk.entries[0] = {"role": "system", "content": text}
        talk.ask(*result(9))
        quoted = str(talk.exchange.report.as_dict())
        assert "aaaa" not in quoted
        assert "bbbb" not in quoted
        assert "sesame" not in quoted
        assert broken_part(talk)


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_first_difference_of_two_texts(same: str, one: str, other: str) -> None:
    one, other = same + one, same + other
    at = first_difference(one, other)
    assert one[:at] == other[:at]
    assert at in (len(one), len(other)) or one[at] != other[at]
