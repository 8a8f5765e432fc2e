"""Silent replies, after which the model is reminded."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat
from tests.apis.conversations import BY_NAME
from tests.dialects.material import plain
from tests.exchanges import AGENT, planner
from vtc.exchange import NoAnswer, Session

CASES = plain((Path(__file__).parents[2] / "cases" / "silence.yaml").read_text())


def is_asked(text: str, **fields: Any) -> bool:
    """Return True if the model is reminded after a whole reply with this text."""
    body = chat.encode_json(chat.request())
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(retry="on"), "seed")
    exchange.encode_request()
    asked = []

    def ask(question: bytes) -> Generator[None, None, bytes]:
        asked.append(question)
        yield
        raise NoAnswer("not now")

    reply = chat.encode_json(chat.completion(text, **fields))
    list(exchange.whole.rewrite_with_retry(reply, ask))
    return bool(asked)


@pytest.mark.every
@pytest.mark.parametrize("text", CASES["announced"])
def test_announced_action_is_recognized(text: str) -> None:
    assert is_asked(text)


@pytest.mark.every
@pytest.mark.parametrize("text", CASES["not"])
def test_nothing_is_announced(text: str) -> None:
    assert not is_asked(text)


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_reply_without_a_word_is_asked_about_if_it_was_not_cut_off(text: str) -> None:
    assert is_asked(text)
    assert not is_asked(text, finish_reason="length")
