"""A server of the Responses API that sends only the end of items, or of the reply: none is lost or repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.apis import pairs, responses
from tests.apis.pairs import READ, make_content
from tests.apis.shapes import THINKING, make_request_body
from tests.exchange.crossings import BY_NAME, IN_TEXT, open_bridge, read_client_reply
from tests.exchanges import agent, feed_stream
from vtc.exchange import Session
from vtc.profiles import Planner, Settings, builtin_directory, load_profiles

CLIENTS = pytest.mark.parametrize("client", pairs.NAMES)
OTHERS = pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "openai-responses"])
CALLED = responses.call("read", "fc_1", "call_1", filePath="/a")
TEXT = responses.message("Hi")
REFUSED = {**TEXT, "content": [{"type": "refusal", "refusal": "No."}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


def stream_ends(*ended: Any, output: Any) -> bytes:
    """Return a reply with only the end events of some items, and the output in the last event."""
    response = responses.response(*output)
    begun = {**response, "output": [], "status": "in_progress", "usage": None}
    events: list[Any] = [{"type": "response.created", "response": begun}]
    events += [{"type": "response.output_item.done", "item": item} for item in ended]
    events += [{"type": "response.completed", "response": response}]
    made = ({**event, "sequence_number": number} for number, event in enumerate(events))
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in made)


def open_client(client: str) -> Any:
    fields = THINKING.get(client, {})
    return open_bridge(client, "openai-responses", stream=True, **fields)


@CLIENTS
@pytest.mark.parametrize("ended", [0, 1, 2, 3])
def test_each_item_is_sent_once(client: str, ended: int) -> None:
    items = [responses.reasoning("Hm."), TEXT, CALLED]
    body = stream_ends(*items[:ended], output=items)
    assert read_client_reply(open_client(client), client, body, stream=True) == make_content(
        "Hi", READ, reasoning="Hm."
    )
    assert read_client_reply(open_client(client), client, body, stream=True, cuts=7) == make_content(
        "Hi", READ, reasoning="Hm."
    )


@CLIENTS
def test_item_that_continues_under_another_id_is_sent_once(client: str) -> None:
    """Copilot changes ids in this way."""
    frames = responses.make_stream(responses.text_events("Hi"), responses.call_events("read", '{"filePath": "/a"}'))
    out: list[bytes] = []
    for number, frame in enumerate(frames):
        event = json.loads(frame.partition(b"data: ")[2])
        event.pop("output_index", None)
        for of in (event, event.get("item", {})):
            of.update({key: f"id_{number}" for key in ("id", "item_id") if key in of})
        out.append(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    assert read_client_reply(open_client(client), client, b"".join(out), stream=True) == make_content("Hi", READ)


@OTHERS
def test_refusal_is_sent_and_calls_of_the_server_are_named(client: str) -> None:
    exchange = open_client(client)
    out = feed_stream(exchange.stream(), stream_ends(output=[SEARCH, REFUSED]))
    assert b"No." in out
    assert any("API has no such field: web_search_call" in line for line in exchange.report.notes)


@OTHERS
def test_a_custom_tool_and_one_of_the_server_are_calls(client: str) -> None:
    raw = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "patch", "input": 'a"b'}
    shell = {"type": "local_shell_call", "id": "l", "call_id": "call_3", "action": {"command": ["ls"]}}
    found = read_client_reply(open_client(client), client, stream_ends(raw, output=[raw, shell]), stream=True)
    assert [name for name, _ in found.calls] == ["patch", "local_shell"]
    assert [json.loads(one) for _, one in found.calls] == [{"input": 'a"b'}, {"command": ["ls"]}]


@pytest.mark.parametrize("client", pairs.NAMES)
@pytest.mark.parametrize("ended", [0, 2])
def test_policy_checks_such_a_call_before_it_is_sent(client: str, ended: int, tmp_path: Path) -> None:
    policy = "kind: policy\nname: mine\nmatch: {}\nguards: {denied_tools: [read]}\n"
    (tmp_path / "mine.yaml").write_text(policy)
    strict = Planner(load_profiles([builtin_directory(), tmp_path]), Settings(upstream_api=("openai-responses",)))
    exchange = Session.open(
        BY_NAME[client], make_request_body(client, stream=True), agent(client, stream=True), strict, "seed"
    )
    exchange.encode_request()
    items = [TEXT, CALLED]
    found = read_client_reply(exchange, client, stream_ends(*items[:ended], output=items), stream=True)
    assert (found.text[:2], found.calls) == ("Hi", ())


@pytest.mark.parametrize("text", ["Hi", IN_TEXT])
def test_text_that_is_only_in_the_last_event_is_read(text: str) -> None:
    exchange = open_bridge("openai-chat", "openai-responses", stream=True)
    body = stream_ends(output=[responses.message(text)])
    assert read_client_reply(exchange, "openai-chat", body, stream=True) == (
        make_content(text) if text == "Hi" else make_content("", READ)
    )
