"""The position of a call and its interpretation: the cases of `tests/cases/lines.yaml`, whole and in several cuts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import product
from typing import Any

import msgspec
import pytest

from tests.apis import chat
from tests.dialects.material import CASES, plain
from tests.exchanges import feed_stream, open_session
from vtc.exchange import Session

pytestmark = pytest.mark.every

FILE = plain((CASES / "lines.yaml").read_text("utf-8"))
TOOLS = [chat.tool("bash", command="string"), chat.tool("read_file", path="string"), chat.tool("now", ())]
SIZES = (1, 3, 7, 40)
"""Characters of text in each frame of a stream."""


class Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One reply, and the commands that are executed."""

    text: str
    calls: list[str]
    model: str = "some-model"
    refusal: str = ""
    content: str | None = None
    settings: dict[str, str] = {}

    @property
    def written(self) -> str:
        return fill_calls(self.text)


class Echo(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A reply after a result, and the commands that are executed."""

    result: str
    text: str
    calls: list[str]
    user: str = "Go on."
    before: list[str] = []
    comment: str = ""
    after: list[str] = []
    model: str = "some-model"
    refusal: str = ""
    content: str | None = None
    settings: dict[str, str] = {}

    @property
    def messages(self) -> list[Any]:
        """The conversation."""

        def make_call(name: str, id_: str, **arguments: str) -> Any:
            function = {"name": name, "arguments": json.dumps(arguments)}
            return {"id": id_, "type": "function", "function": function}

        def commands(of: list[str], id_: str) -> list[Any]:
            entries = [make_call("bash", f"{id_}{place}", command=command) for place, command in enumerate(of)]
            results = [{"role": "tool", "tool_call_id": entry["id"], "content": "done"} for entry in entries]
            return [{"role": "assistant", "content": None, "tool_calls": entries}, *results] if of else []

        return [
            {"role": "user", "content": fill_calls(self.user)},
            *commands(self.before, "b"),
            {
                "role": "assistant",
                "content": fill_calls(self.comment),
                "tool_calls": [make_call("read_file", "r", path="a")],
            },
            {"role": "tool", "tool_call_id": "r", "content": fill_calls(self.result)},
            *commands(self.after, "a"),
        ]


def fill_calls(text: str) -> str:
    """Return a text with calls in place of `{FORM command}`."""
    return re.sub(r"\{(\w) ([^{}]+)\}", lambda found: FILE["forms"][found[1]].replace("%s", found[2]), text)


def summarize_reply(exchange: Session, body: bytes) -> tuple[str, list[str], list[str]]:
    """Return a client's view: the text, its commands, and why others are none."""
    read = chat.read(body)
    commands = [arguments.get("command", name) for name, arguments in read.calls]
    return read.content, commands, [one["reason"] for one in exchange.report.refusals]


def read_whole(text: str, **fields: Any) -> tuple[str, list[str], list[str]]:
    exchange = open_session(tools=TOOLS, **fields)
    return summarize_reply(exchange, exchange.whole.rewrite(chat.encode_json(chat.completion(text))))


def read_stream(pieces: Iterable[str], **fields: Any) -> tuple[str, list[str], list[str]]:
    exchange = open_session(tools=TOOLS, **fields)
    return summarize_reply(exchange, feed_stream(exchange.stream(), *chat.make_stream(*pieces)))


CHOSEN = [
    pytest.param(case, id=json.dumps([case.model, case.text])[:90])
    for case in msgspec.convert(FILE["cases"], list[Case])
]


@pytest.mark.halved
@pytest.mark.parametrize("case", CHOSEN)
def test_position_decides_whether_a_call_is_made_or_an_example(case: Case, some: Any) -> None:
    text = case.written
    fields: dict[str, Any] = {"model": case.model, "settings": case.settings}
    content, commands, refusals = found = read_whole(text, **fields)
    assert commands == case.calls, refusals
    assert case.content is None or content == case.content
    assert case.calls or content.strip() == text.strip()  # an example stays unchanged
    assert case.refusal in " ".join(refusals)
    for _, size in some(product([text], SIZES), 4):
        cut = (text[at : at + size] for at in range(0, len(text), size))
        assert read_stream(cut, **fields) == found, size


ECHOES = [
    pytest.param(case, id=json.dumps([case.model, case.result, case.text])[:90])
    for case in msgspec.convert(FILE["echoes"], list[Echo])
]


@pytest.mark.parametrize("case", ECHOES)
def test_call_in_a_result_is_no_call(case: Echo) -> None:
    text = fill_calls(case.text)
    fields: dict[str, Any] = {"model": case.model, "messages": case.messages, "settings": case.settings}
    content, commands, refusals = found = read_whole(text, **fields)
    assert commands == case.calls, refusals
    assert case.content is None or content == fill_calls(case.content)
    assert case.refusal in " ".join(refusals)
    assert read_stream(text, **fields) == found
    assert read_stream([text], **fields) == found
