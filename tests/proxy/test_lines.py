"""The log for people: short lines, and what is the same in each turn of an agent once."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.proxy.captures import CALL, captured
from vtc.proxy.lines import LogLines

type Log = Callable[[str, str, list[str]], list[str]]
"""Writes the lines of an exchange of a client and a model whose request was changed so; returns them."""


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    lines, flow = LogLines(), captured(CALL)
    caplog.set_level(logging.INFO)

    def written(client: str, model: str, changes: list[str]) -> list[str]:
        caplog.clear()
        lines.write(flow, {"client": client, "asked": model, "request": changes}, "vtc: the line", "rewritten")
        return caplog.messages

    return written


LINE = "vtc: the line - m at address/v1/chat/completions"
TURN = [
    "the billing line left out",
    "2 messages joined to the one before",
    "2 lists of text parts joined into one text",
]


def test_changes_are_written_once_for_a_client_and_a_model(log: Log) -> None:
    written = "vtc: changes of requests of c to m, from now on counted: "
    assert log("c", "m", TURN) == [written + "; ".join(TURN), LINE]
    assert log("c", "m", [TURN[0], "14 messages joined to the one before", TURN[2]]) == [LINE]  # a longer conversation
    assert log("c", "m", [*TURN, "no grammar"]) == [f"{written}no grammar", LINE]
    assert len(log("another", "m", TURN)) == len(log("c", "another", TURN)) == 2


def test_a_change_that_the_line_names_is_not_written_twice(log: Log) -> None:
    assert log("c", "m", ["3 tools -> tag prompt"]) == [LINE]
    assert log("c", "m", []) == [LINE]


def test_the_line_of_a_translated_exchange_is_short_and_names_the_servers_own_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    body = {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "read", "arguments": '{"filePath": "/a"}'},
                        }
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    }
    flow = captured("", api="anthropic-messages", body=body, vtc_upstream_api="openai-chat")
    assert flow.comment.endswith(": read, anthropic-messages -> openai-chat")
    assert caplog.messages[-1].startswith("vtc: read, anthropic-messages -> openai-chat - ")
    report = flow.metadata["vtc"]
    assert [(call["name"], call["dialect"]) for call in report["calls"]] == [("read", "tool_calls")]
    assert (report["api"], report["server_api"], report["outcome"]) == (
        "anthropic-messages",
        "openai-chat",
        "rewritten",
    )
