"""An unknown model reveals its reasoning tags and answer markers in its replies; later ones are read with them."""

from __future__ import annotations

import pytest

from tests.apis import pairs
from tests.apis.conversations import BY_NAME, decode_reply, make_question
from tests.exchange.remembering.talks import Talk
from vtc.events import Message

CALL = (
    '<|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"filePath": "/a"}<|call|>'
)
THOUGHT = "<|channel|>analysis<|message|>I look first.<|end|>"
END = (
    "<|channel|>analysis<|message|>That is all.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>It says hello.<|return|>"
)
TAGGED = "<think>\nI look first.\n</think>\n\n"

CLIENT = pytest.mark.parametrize("client", [*BY_NAME])


def reply_in_pieces(talk: Talk, text: str, cut: int = 7) -> Message:
    pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
    return decode_reply(talk.client, talk.reply(pairs.make_stream(talk.server, pieces)))


@CLIENT
@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("before", [THOUGHT, ""], ids=["thought", "call alone"])
def test_the_marks_of_a_reply_are_read_once_a_call_or_a_reply_bore_them(
    client: str, forgets: bool, before: str
) -> None:
    """The call is stored, if anything is; the client sends the shown part of a reply back with the next turn."""
    talk = Talk(client)
    talk.forgets = forgets
    talk.ask(*make_question(client, "Read it"))
    assert [call.name for call in reply_in_pieces(talk, before + CALL).calls] == ["read"]
    talk.ask()
    end = reply_in_pieces(talk, END)
    if forgets and not before:
        assert "<|channel|>" in end.text
        talk.ask(*make_question(client, "And?"))
        end = reply_in_pieces(talk, END)
    assert end.text == "It says hello."
    assert talk.exchange.report.parties.model == "unknown"
    assert any("are those of gpt-oss" in line for line in talk.exchange.report.why)
    if client == "openai-chat":
        assert end.reasoning == "That is all."


@CLIENT
def test_text_between_tags_at_the_beginning_is_reasoning_from_the_first_reply_on(client: str) -> None:
    talk = Talk(client)
    talk.ask(*make_question(client, "Hello"))
    assert reply_in_pieces(talk, f"{TAGGED}Hello.").text == "Hello."
    talk.ask(*make_question(client, "And?"))
    end = reply_in_pieces(talk, f"{TAGGED}That is all.")
    assert end.text == "That is all."
    if client == "openai-chat":
        assert end.reasoning == "\nI look first.\n"


@CLIENT
@pytest.mark.parametrize(
    "text",
    [
        "<|channel|> begins a channel.",
        "It writes <|channel|>analysis<|message|>, then <|end|>.",
        "A reply begins with `<think>` and ends that with `</think>`.",
        "`<think>` a </think>",
        "<think> is a tag.",
    ],
)
def test_a_reply_that_speaks_of_marks_shows_nothing(client: str, text: str) -> None:
    talk = Talk(client)
    for question in ("Hello", "Again"):
        talk.ask(*make_question(client, question))
        assert reply_in_pieces(talk, text).text == text


@CLIENT
def test_another_conversation_is_read_as_the_calls_before_showed(client: str) -> None:
    first = Talk(client)
    first.ask(*make_question(client, "Read it"))
    reply_in_pieces(first, CALL)
    second = Talk(client, memory=first.memory)
    second.ask(*make_question(client, "Hello"))
    assert reply_in_pieces(second, END).text == "It says hello."
    second.model = "another-model"
    second.entries = []
    second.ask(*make_question(client, "Hello"))
    assert "<|channel|>" in reply_in_pieces(second, END).text
