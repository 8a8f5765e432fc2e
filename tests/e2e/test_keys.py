"""A server's key from the environment (`key_env`): permitted clients, its destination, and that it is not stored."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mitmproxy import http
from mitmproxy.addons.save import Save
from mitmproxy.addons.view import View
from mitmproxy.io import FlowWriter

from tests.apis import chat, pairs
from tests.apis.shapes import SHAPES, make_request_body
from tests.e2e.conftest import PATH, Lab, Replies, Start, by_turn
from tests.e2e.policies import write_policy
from tests.e2e.upstream import JSON, Reply, Seen

KEY = "canary-lent-4f5a6b7c"
VARIABLE = "LAB_SERVER_KEY"
HEADERS = {
    "openai-chat": ("authorization", f"Bearer {KEY}"),
    "openai-responses": ("authorization", f"Bearer {KEY}"),
    "ollama-chat": ("authorization", f"Bearer {KEY}"),
    "anthropic-messages": ("x-api-key", KEY),
    "gemini-generate": ("x-goog-api-key", KEY),
}


@pytest.fixture(autouse=True)
def in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)


def profile(directory: Path, **keys: Any) -> list[str]:
    """Write a profile of a server with a key, and return it as the option `vtc_profiles` takes it."""
    file = directory / "keyed.yaml"
    of = {"kind": "server", "name": "keyed", "match": {"host": "127.0.0.1"}, "key_env": VARIABLE, **keys}
    file.write_text(json.dumps(of))
    return [str(file)]


def keys(seen: Seen) -> dict[str, str]:
    """Return the headers of a received request that can contain a key."""
    names = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
    return {name: seen.headers[name] for name in names if name in seen.headers}


async def list_sent_keys(lab: Lab, client: str = "openai-chat", **headers: str) -> dict[str, str]:
    """Send a request as a client, and return the keys that reach the server."""
    await lab.post(make_request_body(client, stream=False), path=SHAPES[client].path, headers=headers)
    return keys(lab.upstream.seen[-1])


@pytest.mark.parametrize("server", HEADERS)
@pytest.mark.parametrize("client", ["ollama-chat", "anthropic-messages", "gemini-generate"])
async def test_a_client_without_a_key_is_lent_that_of_its_server(
    client: str, server: str, start: Start, tmp_path: Path
) -> None:
    """The key is sent in the header of the server's API, and in no other."""
    reply = Reply([pairs.make_whole_reply(server, "Hi")], JSON, framing="length")
    lab = await start(reply, vtc_profiles=profile(tmp_path), vtc_upstream_api=server)
    assert await list_sent_keys(lab, client) == dict([HEADERS[server]])


async def test_the_key_of_the_upstream_may_be_named_by_an_option(start: Start) -> None:
    """This holds for any profile of the server; a client's key is kept."""
    lab = await start(chat.make_stream("Hi"), vtc_key_env=VARIABLE, vtc_server="groq")
    assert await list_sent_keys(lab) == {"authorization": f"Bearer {KEY}"}
    assert await list_sent_keys(lab, authorization="Bearer own") == {"authorization": "Bearer own"}


async def test_a_server_may_look_for_it_in_a_header_of_its_own(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path, key_header="api-key"))
    assert await list_sent_keys(lab) == {"api-key": KEY}


@pytest.mark.parametrize(
    "own",
    [{"authorization": "Bearer of-the-client"}, {"authorization": "Bearer x"}, {"x-api-key": "of-the-client"}],
    ids=str,
)
async def test_a_clients_own_key_stays(own: dict[str, str], start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path))
    assert await list_sent_keys(lab, **own) == own


async def test_a_key_in_the_query_is_the_clients_own(start: Start, tmp_path: Path) -> None:
    lab = await start(Reply([pairs.make_whole_reply("gemini-generate", "Hi")], JSON), vtc_profiles=profile(tmp_path))
    await lab.post(make_request_body("gemini-generate"), path=f"{SHAPES['gemini-generate'].path}?key=of-the-client")
    assert keys(lab.upstream.seen[-1]) == {}


async def test_a_header_without_a_key_is_none(start: Start, tmp_path: Path) -> None:
    """SDKs that were given an empty key send such a header."""
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path))
    assert await list_sent_keys(lab, authorization="Bearer") == dict([HEADERS["openai-chat"]])


@pytest.mark.parametrize("path", ["/v1/models", "/v1/embeddings"])
async def test_side_requests_to_the_server_use_the_key(path: str, start: Start, tmp_path: Path) -> None:
    lab = await start(Reply([b"{}"], JSON, framing="length"), vtc_profiles=profile(tmp_path))
    await lab.client.get(path)
    assert keys(lab.upstream.seen[-1]) == dict([HEADERS["openai-chat"]])


@pytest.mark.parametrize(
    "settings",
    [
        {"match": {"host": "api.example.com"}},
        {"match": {"host": ["*.example.com", "127.0.0.1:1"]}},
    ],
    ids=str,
)
async def test_no_other_host_is_sent_it_even_if_it_is_named_for_all(
    settings: dict[str, Any], start: Start, tmp_path: Path
) -> None:
    """A different name for the host makes no difference."""
    lab = await start(
        chat.make_stream("Hi"), vtc_profiles=profile(tmp_path, **settings), vtc_server="keyed", keep_host_header=True
    )
    assert await list_sent_keys(lab, host="api.example.com") == {}
    assert "127.0.0.1 does not match server profile keyed" in json.dumps(await lab.report())


@pytest.mark.parametrize(
    "of_page",
    [
        {"origin": "https://example.com"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://[evil]/"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=str,
)
async def test_a_page_of_the_web_is_lent_none(of_page: dict[str, str], start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path))
    assert await list_sent_keys(lab, **of_page) == {}


@pytest.mark.parametrize("own", [{"origin": "http://localhost:3000"}, {"origin": "vscode-webview://1"}], ids=str)
async def test_a_program_of_this_machine_is(own: dict[str, str], start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path))
    assert await list_sent_keys(lab, **own) == dict([HEADERS["openai-chat"]])


class FromAfar:
    """A mitmproxy addon that makes the client appear to be on another machine."""

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        flow.client_conn.peername = ("192.0.2.7", 1)


@pytest.mark.parametrize("shared", ["off", "on"])
async def test_key_is_lent_to_other_machines_only_on_request(shared: str, start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path), vtc_share_keys=shared)
    lab.proxy.master.addons.add(FromAfar())
    assert await list_sent_keys(lab) == (dict([HEADERS["openai-chat"]]) if shared == "on" else {})


async def test_key_is_not_added_if_no_request_may_be_changed(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path), vtc_mode="observe")
    assert await list_sent_keys(lab) == {}


async def test_key_is_not_stored_and_the_report_names_its_owner(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server can repeat the key in its error, and the flow can be saved."""
    caplog.set_level(logging.DEBUG)
    error = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error"}}
    reply = Reply([chat.encode_json(error)], JSON, 401, framing="length")
    lab = await start(reply, vtc_profiles=profile(tmp_path), vtc_upstream_api="anthropic-messages")
    assert await list_sent_keys(lab) == dict([HEADERS["anthropic-messages"]])
    flow = await lab.flow()
    report = json.dumps(flow.metadata["vtc"])
    assert f"that of {VARIABLE} is sent" in report
    assert "Incorrect API key provided" in report
    with (tmp_path / "flow").open("wb") as file:
        saved = flow.copy()
        saved.response = None
        FlowWriter(file).add(saved)
    for text in (report, flow.comment, caplog.text, (tmp_path / "flow").read_bytes().decode(errors="replace")):
        assert KEY not in text


async def test_a_flow_that_is_sent_again_has_it_again(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path))
    await list_sent_keys(lab)
    lab.proxy.master.commands.call("replay.client", [await lab.flow()])
    await lab.flow()
    assert [keys(one) for one in lab.upstream.seen] == 2 * [dict([HEADERS["openai-chat"]])]


REFUSED = Reply([b'{"error": {"message": "Unsupported parameter: \'temperature\'"}}'], JSON, 400, framing="length")
BROKEN = '<tool_call>\n{"name": "read", "arguments": {{{\n</tool_call>'


def silent(seen: Seen) -> Reply:
    """Return a reply without text, streamed or whole as the request asks."""
    if seen.json.get("stream"):
        return Reply([pairs.make_stream("openai-chat", [])])
    return Reply([pairs.make_whole_reply("openai-chat", "")], JSON, framing="length")


async def never() -> AsyncIterator[bytes]:
    """Yield a body that does not begin."""
    await asyncio.Event().wait()
    yield b""


BROKEN_CALL = Reply([pairs.make_whole_reply("openai-chat", BROKEN)], JSON)
FOLLOW_UPS: dict[str, tuple[dict[str, Any], dict[str, Any], list[Replies]]] = {
    "after a refusal": ({"temperature": 1}, {}, [REFUSED, Reply([pairs.make_whole_reply("openai-chat", "Hi")], JSON)]),
    "after a refused stream": ({"temperature": 1, "stream": True}, {}, [REFUSED, chat.make_stream("Hi")]),
    "about a broken call": ({}, {"on": ["malformed"]}, 2 * [BROKEN_CALL]),
    "in a turn without a word": ({}, {"on": ["empty"]}, 2 * [silent]),
    "in a stream without a word": ({"stream": True}, {"on": ["empty"]}, 2 * [silent]),
    "that gets no answer": ({}, {"on": ["malformed"]}, [BROKEN_CALL, Reply(cut="reset")]),
    "that is too late": ({}, {"on": ["malformed"], "seconds": 0.2}, [BROKEN_CALL, Reply(never())]),
}


def saving(lab: Lab, file: Path) -> None:
    """Save flows as `-w` does, after the addon, which is the order with `-s`."""
    addons = lab.proxy.master.addons
    addons.remove(addons.get("save"))
    addons.add(Save())
    lab.set(save_stream_file=str(file))


@pytest.mark.every
@pytest.mark.parametrize("question", FOLLOW_UPS)
async def test_no_flow_of_a_further_question_keeps_a_key(question: str, start: Start, tmp_path: Path) -> None:
    """Neither the file of `-w` nor the list of flows contains a key."""
    fields, retry, replies = FOLLOW_UPS[question]
    files = [*profile(tmp_path), *(write_policy(tmp_path, retry=retry) if retry else [])]
    lab = await start(by_turn(*replies), vtc_profiles=files)
    view = View()
    lab.proxy.master.addons.add(view)
    saving(lab, tmp_path / "flows")
    await lab.post(chat.request(**fields))
    lab.set(save_stream_file=None)
    assert [keys(one) for one in lab.upstream.seen] == 2 * [dict([HEADERS["openai-chat"]])]
    assert len(view) == 2
    assert KEY not in str([flow.get_state() for flow in view])
    assert KEY.encode() not in (tmp_path / "flows").read_bytes()


async def test_a_question_for_another_path_keeps_none(start: Start, tmp_path: Path) -> None:
    """For example, the request for the server's models or for a token count."""
    lab = await start(Reply([b'{"data": []}'], JSON), vtc_profiles=profile(tmp_path), vtc_upstream_api="openai-chat")
    await lab.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
    flow = await lab.flow()
    assert keys(lab.upstream.seen[-1]) == dict([HEADERS["openai-chat"]])
    assert KEY not in str(flow.get_state())


class Edited:
    """A mitmproxy addon that edits a request, so that mitmproxy keeps the original."""

    def request(self, flow: http.HTTPFlow) -> None:
        flow.backup()
        flow.request.headers["x-mine"] = "edited"


async def test_the_copy_before_an_edit_keeps_none(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path))
    lab.proxy.master.addons.add(Edited())
    assert await list_sent_keys(lab) == dict([HEADERS["openai-chat"]])
    flow = await lab.flow()
    assert KEY not in str(flow.get_state())
    flow.revert()
    assert KEY not in str(flow.get_state())


class Elsewhere:
    """A mitmproxy addon that redirects a request to another host and records the headers that would reach it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        flow.request.host = "192.0.2.7"

    def request(self, flow: http.HTTPFlow) -> None:
        self.seen.append({name.lower(): value for name, value in flow.request.headers.items()})
        flow.response = http.Response.make(204)


async def test_key_is_not_sent_unencrypted_if_a_client_names_the_server(start: Start, tmp_path: Path) -> None:
    lab = await start([], vtc_profiles=profile(tmp_path, match={"host": "192.0.2.7"}), mode=["regular"])
    elsewhere = Elsewhere()
    lab.proxy.master.addons.add(elsewhere)
    async with httpx.AsyncClient(proxy=lab.proxy.url, trust_env=False, verify=False) as client:
        await client.post(f"http://192.0.2.7{PATH}", content=make_request_body("openai-chat"))
    assert "authorization" not in elsewhere.seen[0]
    assert "is not encrypted" in json.dumps(await lab.report())


async def test_missing_variable_is_reported(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=profile(tmp_path))
    assert await list_sent_keys(lab)
    await lab.report()
    monkeypatch.delenv(VARIABLE)
    assert await list_sent_keys(lab) == {}
    assert f"the environment has no variable {VARIABLE}" in json.dumps(await lab.report())
