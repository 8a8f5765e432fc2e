"""Connections other than HTTP/1.1 through a reverse proxy: HTTP/2, WebSocket, SOCKS5, transparent.

For each of them, text tool calls are delivered natively and policies apply.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from wsproto.events import BytesMessage, TextMessage

from tests.apis import chat
from tests.apis.shapes import SHAPES
from tests.e2e import socks, upstream, websocket
from tests.e2e.conftest import PATH, PATIENCE, Start, running_proxy
from tests.e2e.policies import BASH, STREAM, make_calls_reply, policies, write_guards
from tests.e2e.upstream import Reply, Seen

ASK = chat.request(stream=True, tools=[BASH, chat.READ])
BOTH = [("bash", {"command": "rm -rf /"}), ("read", {"filePath": "/a"})]
LEAKED = make_calls_reply("text", True, *BOTH)

type Calls = list[tuple[str, Any]]


# HTTP/2


@STREAM
@pytest.mark.parametrize("form", ["text", "native"])
async def test_policy_holds_over_http2(form: str, stream: bool, start_http2: Start, tmp_path: Path) -> None:
    denying = write_guards(tmp_path, denied_tools=["bash"], on_denied="drop")
    lab = await start_http2(make_calls_reply(form, stream, *BOTH), vtc_profiles=denying)
    answer = await lab.post({**ASK, "stream": stream})
    assert (answer.message.calls, b"rm -rf" in answer.body) == (BOTH[1:], False)
    assert await policies(lab) == [("denied_tools", "refused", "bash")]


async def test_streams_of_one_http2_connection_keep_apart(start_http2: Start) -> None:
    """All requests are sent over one connection before the first is answered."""

    def script(seen: Seen) -> Reply:
        number = seen.json["messages"][0]["content"]
        return Reply(chat.make_stream(*f"It is {number}.", chat.DIALECTS["hermes"]("read", {"filePath": number})))

    lab = await start_http2(script)
    numbers = [str(number) for number in range(20)]
    answers = await asyncio.gather(*(lab.post({**ASK, "messages": [{"role": "user", "content": n}]}) for n in numbers))
    assert [answer.message.content for answer in answers] == [f"It is {number}." for number in numbers]
    assert [answer.message.calls for answer in answers] == [[("read", {"filePath": number})] for number in numbers]
    assert len({flow.client_conn.id for flow in [await lab.flow() for _ in numbers]}) == 1


async def test_withheld_stream_ends_alone_over_http2(start_http2: Start, tmp_path: Path) -> None:
    """The client's stream is reset, and the connection is usable for the next exchange."""
    unreadable = Reply([chat.ROLE, b"\x1f\x8b\xff"], {**upstream.SSE, "content-encoding": "gzip"})
    replies = iter([unreadable, LEAKED])
    lab = await start_http2(lambda _: next(replies), vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    with pytest.raises(httpx.RemoteProtocolError):
        await lab.post(ASK)
    assert (await lab.post(ASK)).message.calls == BOTH[1:]
    first, second = await lab.flow(), await lab.flow()
    assert first.client_conn.id == second.client_conn.id


# WebSocket


READ_PATHS = [shape.build_path(stream=stream) for shape in SHAPES.values() for stream in (False, True)]
UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.mark.parametrize("policy", [False, True])
async def test_websocket_of_a_path_that_is_read_is_declined(policy: bool, start: Start, tmp_path: Path) -> None:
    """The client gets an error of its API without a request to the server; its next request is read."""
    profiles = write_guards(tmp_path, denied_tools=["bash"], on_denied="drop") if policy else []
    lab = await start(LEAKED, vtc_profiles=profiles)
    for path in [*READ_PATHS, "/backend-api/codex/responses"]:
        answer = await lab.client.get(path, headers=UPGRADE)
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "HTTP/1.1")
        assert answer.headers["connection"].lower() == "upgrade"
        assert "use HTTP" in str(answer.json()["error"])
        assert "WebSocket" in (await lab.flow()).comment
    assert lab.upstream.seen == []
    assert (await lab.post(ASK)).message.calls == BOTH[policy:]


@pytest.mark.parametrize(
    ("mode", "path"),
    [("rewrite", "/socket"), ("rewrite", "/v1/realtime"), *((mode, "/v1/responses") for mode in ("observe", "off"))],
)
async def test_any_other_websocket_passes_untouched(mode: str, path: str, start: Start, tmp_path: Path) -> None:
    """Its messages are no exchange; if the path resembles one, the comment states that it is not read."""
    content = chat.DIALECTS["hermes"]("bash", {"command": "rm"})
    async with websocket.serving(lambda message: [message, content, b"\x00\xff"]) as url:
        denying = write_guards(tmp_path, denied_tools=["bash"])
        lab = await start([], mode=[f"reverse:{url}"], vtc_tools="prompt", vtc_profiles=denying, vtc_mode=mode)
        async with asyncio.timeout(PATIENCE), websocket.connect(lab.proxy.url, path) as (peer, events):
            for message in (json.dumps(ASK), b"\x01\xfe" * 10_000):
                await peer.say(message)
                received = [await anext(events) for _ in range(3)]
                assert [event.data for event in received if isinstance(event, TextMessage | BytesMessage)] == [
                    message,
                    content,
                    b"\x00\xff",
                ]
    flow = await lab.flow()
    assert flow.websocket is not None
    assert ("not read" in flow.comment) == (path == "/v1/responses")


@pytest.mark.parametrize("upgrade", ["", "h2c", "tunnel"])
async def test_a_server_cannot_switch_protocols_past_a_policy(upgrade: str, start: Start, tmp_path: Path) -> None:
    """Clients that skip a 101 would parse the following bytes as the reply, which mitmproxy does not."""
    reply = b"".join(chat.make_stream(*chat.DIALECTS["hermes"]("bash", {"command": "rm"})))
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(reply) + reply
    switching = Reply([raw], {"upgrade": upgrade or "x", "connection": "upgrade"}, 101, framing="close")
    lab = await start(switching, vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    headers = {"upgrade": upgrade, "connection": "upgrade"} if upgrade else {}
    answer = await lab.client.post("/v1/chat/completions", json=ASK, headers=headers)
    assert (answer.status_code, b"bash" in answer.content) == (502, False)
    assert "upgrade" not in lab.upstream.seen[0].headers


# Other modes of mitmproxy


@pytest.mark.parametrize("policy", [False, True])
async def test_through_socks(policy: bool, confdir: Path, tmp_path: Path) -> None:
    settings = {"vtc_profiles": write_guards(tmp_path, denied_tools=["bash"], on_denied="drop")} if policy else {}
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(upstream.serving(lambda _: LEAKED))
        proxy = await stack.enter_async_context(running_proxy(confdir, mode=["socks5"], **settings))
        port = int(proxy.url.rpartition(":")[2])
        body = chat.encode_json(ASK)
        headers = [("host", "x"), ("content-type", "application/json"), ("content-length", str(len(body)))]
        read = chat.read(await socks.post(model.url + PATH, port, body, headers))
    assert read.calls == BOTH[policy:]


@cache
def no_redirecting() -> str:
    """Return why a separate network namespace cannot redirect connections, or an empty string if it can."""
    if not (shutil.which("unshare") and shutil.which("iptables") and shutil.which("ip")):
        return "needs unshare, ip and iptables (on Debian: apt-get install iptables iproute2)"
    tried = subprocess.run([*NAMESPACE, "iptables -t nat -L"], capture_output=True, text=True, check=False)
    return f"no network namespace here: {tried.stderr.strip()}" if tried.returncode else ""


NAMESPACE = ["unshare", "--user", "--map-root-user", "--net", "sh", "-ec"]


@pytest.mark.rest
async def test_as_a_transparent_proxy(tmp_path: Path) -> None:
    """The machine redirects connections of clients to mitmproxy, which queries the original destination."""
    if reason := no_redirecting():
        pytest.skip(reason)
    command = f"ip link set lo up; exec {sys.executable} -m tests.e2e.transparent {tmp_path}"
    run = await asyncio.create_subprocess_exec(
        *NAMESPACE, command, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    async with asyncio.timeout(3 * PATIENCE):
        output, _ = await run.communicate()
    assert run.returncode == 0
    assert json.loads(output.splitlines()[-1]) == [["read", {"filePath": "/a"}]]
