"""The log for people: short lines, and facts that stay the same between turns only once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.apis import chat
from tests.proxy.captures import capture_flow
from vtc.proxy.addon import VirtualToolCalling

OWN = chat.completion("")
OWN["choices"][0]["message"] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a"}'}}],
}
QUESTION = {"role": "user", "content": [{"type": "text", "text": "Read"}, {"type": "text", "text": "/a"}]}
ANSWER = {"role": "assistant", "content": "I have read it."}
COUNTED = "vtc: changes of requests from other to {} (later only counted): "


class Session:
    """Clients of the Messages API that use one addon and a chat server."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._addon = VirtualToolCalling()
        self._log = caplog
        caplog.set_level(logging.INFO)

    def lines(self, questions: int, model: str = "m", **fields: Any) -> list[str]:
        """Return the log lines of an exchange, whose comment is a short form of the last line."""
        self._log.clear()
        messages = [message for _ in range(questions) for message in (QUESTION, ANSWER)][:-1]
        fields = {"messages": messages, "model": model, "context_management": {"edits": []}, **fields}
        flow = capture_flow("", api="anthropic-messages", body=OWN, addon=self._addon, **UPSTREAM, **fields)
        assert (
            self._log.messages[-1]
            == f"vtc: {flow.comment.partition(f'{model}: ')[2]} - {model} at address/v1/chat/completions"
        )
        report = flow.metadata["vtc"]
        assert [(call["name"], call["dialect"]) for call in report["calls"]] == [("read", "tool_calls")]
        assert (report["api"], report["server_api"]) == ("anthropic-messages", "openai-chat")
        return self._log.messages


UPSTREAM = {"vtc_upstream_api": "openai-chat"}
LINE = "vtc: read, anthropic-messages -> openai-chat, +{} changes of the request - {} at "


def test_changes_are_written_once_for_a_model_and_later_counted(caplog: pytest.LogCaptureFixture) -> None:
    session = Session(caplog)
    of_model, first, line = session.lines(1)
    assert of_model.startswith("vtc: model m at address:22: the model is not known by name")
    assert of_model.endswith("; its malformed calls are repaired")
    assert line.startswith(LINE.format(2, "m"))
    assert first.startswith(COUNTED.format("m"))
    assert "1 list of text parts joined into one text" in first
    assert "no such field: context_management" in first
    (line,) = session.lines(2)  # the conversation continues: different numbers are no different changes
    assert line.startswith(LINE.format(2, "m"))
    news, line = session.lines(2, container="c1")
    assert (
        news
        == f"{COUNTED.format('m')}left out, because the server's API has no such field: context_management, container"
    )
    assert len(session.lines(1, model="another")) == 3


def test_changes_that_are_named_in_a_line_are_not_written_twice(caplog: pytest.LogCaptureFixture) -> None:
    _, line = Session(caplog).lines(1, context_management=None)
    assert ", 1 list of text parts joined into one text - " in line
