"""Properties that VTC learns from a model server at its own start, or later if the server starts afterwards."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from mitmproxy.proxy.mode_specs import ProxyMode

from tests.apis import chat, pairs
from tests.apis.shapes import SHAPES, make_request_body
from tests.cli.templates.made_templates import NUMBERED, NUMBERED_CALL
from tests.e2e.conftest import PATH, PATIENCE, Proxy, running_proxy
from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc.proxy import launch
from vtc.proxy.asking import discovery
from vtc.proxy.asking.discovery import RETRY_PAUSE_SECONDS, Discovery

LAZY = dict([launch.LAZY_CONNECTION.split("=")])
MODELS = b'{"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]}'
CLIENTS = [name for name in pairs.NAMES if name != "openai-chat"]


def chat_only(seen: Seen) -> Reply:
    """Act as a server that speaks chat completions only."""
    if seen.method == "GET":
        return Reply([MODELS], JSON, framing="length")
    if seen.path != PATH:
        return Reply([b'{"detail": "Not Found"}'], JSON, status=404, framing="length")
    if seen.body == b"{}":
        return Reply([b'{"error": "no messages"}'], JSON, status=400, framing="length")
    return Reply([chat.encode_json(chat.completion("Hi."))], JSON, framing="length")


@pytest.fixture
def port() -> Iterator[socket.socket]:
    """Yield a bound socket on which no server listens yet."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def url(bound: socket.socket) -> str:
    return f"http://127.0.0.1:{bound.getsockname()[1]}"


@asynccontextmanager
async def before(upstream: str, confdir: Path, **settings: Any) -> AsyncIterator[tuple[Proxy, httpx.AsyncClient]]:
    """Start a proxy in front of a model server, and a client of it."""
    settings = {"mode": [f"reverse:{upstream}"], "vtc_discover": "on", **LAZY, **settings}
    async with (
        running_proxy(confdir, **settings) as proxy,
        httpx.AsyncClient(base_url=proxy.url, trust_env=False, verify=False, timeout=PATIENCE) as client,
    ):
        yield proxy, client


async def ask(client: httpx.AsyncClient, name: str) -> httpx.Response:
    """Send a request of an API."""
    return await client.post(SHAPES[name].build_path(), content=make_request_body(name))


@pytest.mark.parametrize("client_api", CLIENTS)
async def test_a_server_that_starts_after_vtc_is_served_in_its_api_at_the_next_request(
    client_api: str, confdir: Path, port: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """A request before that gets an error of its own API."""
    caplog.set_level(logging.INFO, "vtc")
    where = url(port)
    async with before(where, confdir) as (_, client):
        refused = await ask(client, client_api)
        await ask(client, client_api)
        async with serving(chat_only, at=port) as server:
            answered = await ask(client, client_api)
            paths = [(seen.method, seen.path) for seen in server.seen]
            await ask(client, client_api)
    assert refused.status_code == 502
    assert "cannot be reached" in str(refused.json()["error"])
    assert answered.status_code == 200
    assert "Hi." in answered.text
    assert paths[0] == ("GET", "/v1/models")
    assert paths[-1] == ("POST", PATH)
    assert len(server.seen) == len(paths) + 1  # known properties are not requested again
    lines = [record.getMessage() for record in caplog.records]
    (missed,) = (line for line in lines if "is the model server running?" in line)
    assert "probed again before requests" in missed
    assert [line for line in lines if "VTC started before the server" in line] == [
        f"vtc: VTC started before the server: {where} is vLLM",
        "vtc: VTC started before the server: "
        f"it speaks openai-chat: clients of {', '.join(CLIENTS)} are translated to openai-chat",
        "vtc: VTC started before the server: its models: m",
    ]


async def test_a_server_that_loads_its_model_is_not_known_yet(confdir: Path) -> None:
    loading = True

    def script(seen: Seen) -> Reply:
        if loading:
            return Reply([b'{"error": {"message": "Loading model"}}'], JSON, status=503, framing="length")
        return chat_only(seen)

    async with serving(script) as server, before(server.url, confdir) as (_, client):
        assert (await ask(client, "anthropic-messages")).status_code == 503
        loading = False
        assert (await ask(client, "anthropic-messages")).json()["content"][0]["text"] == "Hi."


@pytest.mark.parametrize(
    ("settings", "looked"),
    [
        ({"vtc_server": "vllm"}, True),
        ({"vtc_upstream_api": "openai-chat"}, True),
        ({"vtc_server": "vllm", "vtc_upstream_api": "openai-chat"}, True),
        ({"vtc_discover": "off", "vtc_upstream_api": "openai-chat"}, False),
    ],
)
async def test_only_unset_facts_are_requested_and_options_win(
    settings: dict[str, Any], looked: bool, confdir: Path
) -> None:
    async with serving(chat_only) as server, before(server.url, confdir, **settings) as (proxy, client):
        assert (await ask(client, "anthropic-messages")).json()["content"][0]["text"] == "Hi."
        flow = await proxy.flows.ended.get()
    assert (server.seen[0].method == "GET") == looked
    assert any(seen.body == b"{}" for seen in server.seen) == ("vtc_upstream_api" not in settings)
    chosen = flow.metadata["vtc"]["settings"]
    assert chosen.get("server") == (None if settings.get("vtc_discover") == "off" else "vllm")
    assert list(chosen["upstream_api"]) == ["openai-chat"]


async def test_observing_proxy_does_not_report_translation(confdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vtc")
    async with serving(chat_only) as server, before(server.url, confdir, vtc_mode="observe") as (_, client):
        assert (await ask(client, "anthropic-messages")).status_code == 404
    assert "translated" not in caplog.text
    assert "is vLLM" in caplog.text


class Addon:
    """The attributes of the addon that `Discovery` uses."""

    memory = None

    def __init__(self, planner: Any) -> None:
        self.planner = planner

    def forget(self) -> None: ...


async def test_slow_server_without_an_answer_is_skipped_for_a_while(confdir: Path, port: socket.socket) -> None:
    """Otherwise each request would wait for it."""
    times = count(0.0, 2.0)  # the clock advances by two seconds with each reading
    async with before(url(port), confdir, vtc_discover="on") as (proxy, _):
        prober = Discovery(Addon(proxy.addon.planner), lambda: next(times))
        mode = ProxyMode.parse(f"reverse:{url(port)}")
        asking = [prober._ensure_probe(mode)]
        for _ in range(12):
            assert asking[-1] is not None
            await asking[-1]
            asking.append(prober._ensure_probe(mode))
        prober.done()
    # The probe ended at 2; the readings of the clock at 4, 6, 8 and 10 are inside of the pause.
    assert [one is asking[0] for one in asking].count(True) == RETRY_PAUSE_SECONDS // 2


async def test_profile_for_some_models_of_a_host_applies_next_to_the_recognized_one(
    confdir: Path, port: socket.socket, tmp_path: Path
) -> None:
    for name, match in (("all", {}), ("some", {"model": "gpt-5*"})):
        own = {"kind": "server", "name": name, "match": {"host": "127.0.0.1", **match}, "request": {"set": {name: 1}}}
        (tmp_path / f"{name}.yaml").write_bytes(chat.encode_json(own))
    async with (
        serving(chat_only, at=port) as server,
        before(url(port), confdir, vtc_profiles=[str(tmp_path)]) as (_, client),
    ):
        for model in ("gpt-4o", "gpt-5-mini"):
            await client.post(PATH, content=make_request_body("openai-chat", model=model))
        first, second = [seen.json for seen in server.seen if seen.method == "POST" and seen.body != b"{}"]
    assert ("all" in first, "some" in first) == (True, False)
    assert ("all" in second, "some" in second) == (False, True)


KEY = "canary-server-5e6f7a8b"
KEY_HEADERS = {
    **{name: {"authorization": f"Bearer {KEY}"} for name in ("openai-chat", "openai-responses", "ollama-chat")},
    "anthropic-messages": {"x-api-key": KEY},
    "gemini-generate": {"x-goog-api-key": KEY},
}


def keyed(seen: Seen) -> Reply:
    """Act as a server that speaks chat completions only, and rejects all paths below /v1 without the key."""
    if seen.path.startswith("/v1") and seen.headers.get("authorization") != f"Bearer {KEY}":
        return Reply([b'{"error": "Unauthorized"}'], JSON, status=401, framing="length")
    return chat_only(seen)


def public_list(seen: Seen) -> Reply:
    """Act as such a server that shows its models to everyone, and rejects all other paths."""
    if seen.method == "POST" and seen.headers.get("authorization") != f"Bearer {KEY}":
        return Reply([b'{"error": "Unauthorized"}'], JSON, status=401, framing="length")
    return chat_only(seen)


def keyed_by_path(seen: Seen) -> Reply:
    """Act as such a server that rejects only the paths that it has."""
    answer = chat_only(seen)
    return keyed(seen) if answer.status != 404 else answer


async def ask_with_key(client: httpx.AsyncClient, name: str, headers: dict[str, str] | None = None) -> httpx.Response:
    path, body = SHAPES[name].build_path(), make_request_body(name, stream=False)
    return await client.post(path, content=body, headers=KEY_HEADERS[name] if headers is None else headers)


@pytest.mark.parametrize("script", [keyed, public_list, keyed_by_path])
@pytest.mark.parametrize("name", pairs.NAMES)
async def test_a_server_that_wants_a_key_is_probed_with_that_of_a_client_once(
    name: str, script: Any, confdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vtc")
    async with serving(script) as server, before(server.url, confdir) as (_, client):
        await client.get("/healthz")
        assert not any(KEY in str(seen.headers) for seen in server.seen)
        first, second = await asyncio.gather(*(ask_with_key(client, name) for _ in range(2)))
        sent = [seen for seen in server.seen if KEY in str(seen.headers)]
        third = await ask_with_key(client, name)
    probes = [seen for seen in sent if seen.method == "GET" or seen.body == b"{}"]
    assert [answer.status_code for answer in (first, second, third)] == [200, 200, 200]
    assert "Hi." in first.text
    assert len(sent) == len(probes) + 2
    paths = [seen.path for seen in probes]
    expected = [] if script is keyed_by_path else ["/v1/models", *(path for path in paths if path != "/v1/models")]
    assert paths == expected
    assert len(paths) in (0, 1 + len(pairs.NAMES))
    assert KEY not in caplog.text


async def test_each_key_of_clients_is_tried_once_until_one_is_accepted(
    confdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "MAX_TRIED_KEYS", 2)
    async with serving(keyed) as server, before(server.url, confdir) as (_, client):
        counts = []
        for wrong in ("wrong-key-1", "wrong-key-1"):
            assert (await ask_with_key(client, "anthropic-messages", {"x-api-key": wrong})).status_code == 401
            counts.append(sum(wrong in str(seen.headers) for seen in server.seen))
        assert counts[1] == counts[0] + 1
        assert (await ask_with_key(client, "anthropic-messages")).status_code == 200
        await ask_with_key(client, "anthropic-messages", {"x-api-key": "wrong-key-3"})
        assert len([seen for seen in server.seen if "wrong-key-3" in str(seen.headers)]) == 1


@pytest.mark.parametrize(
    ("settings", "headers", "query"),
    [
        ({}, {}, f"?key={KEY}"),
        ({}, {}, ""),
        ({}, {"x-goog-api-key": f"{KEY}\xe9"}, ""),  # no header of VTC can contain it
        ({"vtc_mode": "observe"}, {"x-goog-api-key": KEY}, ""),
        ({"vtc_mode": "observe", "vtc_key_env": "LAB_KEY"}, {}, ""),
        ({"vtc_discover": "off"}, {"x-goog-api-key": KEY}, ""),
        ({"vtc_upstream_api": "gemini-generate"}, {"x-goog-api-key": KEY}, ""),
    ],
)
async def test_no_other_key_is_used_for_a_probe(
    settings: dict[str, Any],
    headers: dict[str, str],
    query: str,
    confdir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("LAB_KEY", KEY)
    async with serving(keyed) as server, before(server.url, confdir, **settings) as (_, client):
        path = SHAPES["gemini-generate"].build_path()
        encoded = {name: value.encode() for name, value in headers.items()}
        await client.post(path + query, content=make_request_body("gemini-generate", stream=False), headers=encoded)
    assert "could not be probed" not in caplog.text
    probes = [seen for seen in server.seen if seen.method == "GET" or seen.body == b"{}"]
    assert not any(KEY in f"{seen.path} {seen.headers}" for seen in probes)


@pytest.mark.parametrize("script", [keyed, public_list, keyed_by_path])
@pytest.mark.parametrize("name", pairs.NAMES)
async def test_a_server_is_probed_with_the_key_that_the_user_named(
    name: str, script: Any, confdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a key then reaches it in every API."""
    monkeypatch.setenv("LAB_KEY", KEY)
    async with serving(script) as server, before(server.url, confdir, vtc_key_env="LAB_KEY") as (_, client):
        answer = await ask_with_key(client, name, {})
    assert (answer.status_code, "Hi." in answer.text) == (200, True)
    assert all(KEY in seen.headers.get("authorization", "") for seen in server.seen)


async def test_model_that_is_loaded_later_is_asked_about(
    confdir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The request that names it first does not wait for the answer."""
    caplog.set_level(logging.INFO, "vtc")
    monkeypatch.setattr(discovery, "LIST_REFRESH_SECONDS", 0)
    name = "first"

    def script(seen: Seen) -> Reply:
        if seen.path == "/props":
            return Reply([chat.encode_json({"chat_template": NUMBERED})], JSON, framing="length")
        if seen.method == "GET":
            return Reply([chat.encode_json({"data": [{"id": name}]})], JSON, framing="length")
        if seen.path == PATH and seen.body != b"{}":
            return Reply([chat.encode_json(chat.completion(NUMBERED_CALL))], JSON, framing="length")
        return chat_only(seen)

    async with serving(script) as server, before(server.url, confdir) as (_, client):
        body = chat.encode_json(chat.request(model="second"))
        assert (await client.post(PATH, content=body)).json()["choices"][0]["message"]["tool_calls"]
        name = "second"
        async with asyncio.timeout(PATIENCE):
            while "derived-second" not in caplog.text:
                await client.post(PATH, content=body)
    assert [line for line in caplog.messages if "its models: " in line] == [
        "vtc: its models: first",
        "vtc: its models: second",
    ]
