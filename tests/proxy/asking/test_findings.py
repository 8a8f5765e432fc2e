"""Identification of the server behind `vtc run`."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.apis import pairs
from tests.apis.shapes import SHAPES
from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc.profiles import Facts, builtin_directory, load_profiles
from vtc.profiles.planner import Planner
from vtc.profiles.settings import Settings
from vtc.proxy.asking.asker import Asker
from vtc.proxy.asking.findings import (
    ServerFindings,
    ServerIdentity,
    collect_findings,
    detect_apis,
    format_translation,
    identify_server,
)
from vtc.proxy.trust import Trust

PROFILES = load_profiles([builtin_directory()])


def models(owner: Any) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner}]}).encode()


async def identify_models_reply(body: bytes, status: int = 200) -> ServerIdentity:
    async with serving(lambda _: Reply([body], JSON, status=status, framing="length")) as upstream:
        found = await asyncio.to_thread(identify_server, Asker(upstream.url), PROFILES)
        assert [(seen.method, seen.path) for seen in upstream.seen] == [("GET", "/v1/models")]
    return found


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("llamacpp", "llama.cpp"),
        ("library", None),
        ("openai", None),
        (5, None),
        (["vllm"], None),
        ({"vllm": 1}, None),
        ([[]], None),
        (None, None),
    ],
)
async def test_a_server_is_known_by_whom_it_names_as_owner(owner: Any, name: str | None) -> None:
    identity = await identify_models_reply(models(owner))
    assert identity.server == name
    assert (PROFILES.servers[name].description in identity.message) if name else ("answers" in identity.message)
    assert (identity.models, identity.has_model_list) == (("m",), True)


@pytest.mark.parametrize("body", [b"<a>", b"[]", b'{"data": 5}', b'{"data": [5, {}]}', b"\xff"])
async def test_any_answer_will_do(body: bytes) -> None:
    assert (await identify_models_reply(body))[0] is None


async def test_one_that_wants_a_key_is_not_known() -> None:
    identity = await identify_models_reply(b"{}", 401)
    assert (identity.server, identity.is_available, identity.has_model_list) == (None, True, False)
    assert "answers 401 to GET /v1/models: it wants a key (--key-env NAME)" in identity.message


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("page", [b"<html>", b"\r\n<!doctype html><p>Log in"])
async def test_a_web_page_is_no_list_of_models(page: bytes, status: int) -> None:
    identity = await identify_models_reply(page, status)
    assert (identity.server, identity.is_available, identity.has_model_list) == (None, True, False)
    assert f"answers {status} to GET /v1/models with a web page: is this the model server?" in identity.message


async def test_one_that_loads_its_model_is_not_there_yet() -> None:
    identity = await identify_models_reply(b'{"error": {"message": "Loading model", "code": 503}}', 503)
    assert (identity.server, identity.is_available) == (None, False)
    assert "answers 503" in identity.message


def test_unreachable_server_is_reported() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        identity = identify_server(Asker(url), PROFILES)
    assert (identity.server, identity.is_available) == (None, False)
    assert f"{url} cannot be reached (" in identity.message
    assert "is the model server running?" in identity.message


async def test_server_of_another_protocol_is_reported() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = await asyncio.to_thread(identify_server, Asker(url), PROFILES)
    assert found == ServerIdentity(None, f"{url} does not speak HTTP: is it the model server?", is_available=False)


def test_a_hosted_api_is_known_by_its_name_and_not_asked() -> None:
    """There is no server of this name, so a request would fail, and be reported."""
    message = "https://no-such-host.googleapis.com is one of: hosted APIs"
    identity = ServerIdentity("hosted", message, is_hosted=True)
    assert identify_server(Asker("https://no-such-host.googleapis.com"), PROFILES) == identity


@pytest.mark.parametrize(
    ("host", "model", "name"),
    [
        ("api.openai.com", "gpt-4o", "openai"),
        ("api.openai.com", "gpt-5-mini", "openai-reasoning"),
        ("no-such-host.googleapis.com", "gemini-3-pro", "google-gemini-3"),
        ("bedrock-runtime.no-such-region.amazonaws.com", "us.openai.gpt-6-luna", "bedrock-gpt"),
        ("api.no-such-plan.githubcopilot.com", "gpt-5.4", "copilot-gpt"),
    ],
)
def test_of_the_profiles_of_a_hosted_api_each_model_has_its_own(host: str, model: str, name: str) -> None:
    """This holds also if `vtc run` identified the API, because it did not see the model."""
    planner = Planner(PROFILES, Settings())
    found = collect_findings(Asker(f"https://{host}"), planner)
    server = planner.with_settings(found.settings, found.models).find_server(Facts(host=host, port=443, model=model))
    assert (found.server is not None, server and server.name) == (True, name)


def test_one_for_which_the_user_has_a_profile_is_not_asked(tmp_path: Path) -> None:
    """Its owner is unknown to VTC; the profile of the kind of server would take precedence."""
    (tmp_path / "mine.yaml").write_text('{kind: server, name: mine, match: {host: "127.0.0.1:1"}}')
    own = load_profiles([builtin_directory(), tmp_path])
    message = "http://127.0.0.1:1 has a profile of yours: mine"
    assert identify_server(Asker("http://127.0.0.1:1"), own) == ServerIdentity("mine", message)


@pytest.mark.parametrize("server", pairs.NAMES)
async def test_the_apis_that_a_server_speaks_are_found(server: str) -> None:
    path = SHAPES[server].path

    def script(seen: Seen) -> Reply:
        assert (seen.method, seen.body) == ("POST", b"{}")
        ends = seen.path.rpartition(":")[2] == path.rpartition(":")[2]  # for any model
        status = 400 if ends else 404
        return Reply([b'{"error": "no messages"}'], JSON, status=status, framing="length")

    async with serving(script) as upstream:
        found = await asyncio.to_thread(detect_apis, Asker(upstream.url))
    assert found == (server,)
    assert format_translation(found).startswith(f"it speaks {server}: clients of ")


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_server_that_answers_all_paths_equally_is_not_recognized(status: int) -> None:
    async with serving(lambda _: Reply([b"{}"], JSON, status=status, framing="length")) as upstream:
        assert await asyncio.to_thread(detect_apis, Asker(upstream.url)) == ()


async def test_an_answer_that_names_an_unexpected_endpoint_is_none() -> None:
    """LM Studio answers with status 200."""
    unexpected = b'{"error": "Unexpected endpoint or method. (POST /api/chat)"}'

    def script(seen: Seen) -> Reply:
        return Reply([unexpected if seen.path == "/api/chat" else b"{}"], JSON, framing="length")

    async with serving(script) as upstream:
        found = await asyncio.to_thread(detect_apis, Asker(upstream.url))
    assert found == tuple(name for name in pairs.NAMES if name != "ollama-chat")


def answering(*apis: str) -> Any:
    """Return a server that lists a model, and speaks these APIs."""

    def script(seen: Seen) -> Reply:
        if seen.method == "GET":
            return Reply([models("library")], JSON, framing="length")
        spoken_here = any(SHAPES[name].path.rpartition(":")[2] == seen.path.rpartition(":")[2] for name in apis)
        return Reply([b"{}"], JSON, status=400 if spoken_here else 404, framing="length")

    return script


async def test_a_server_of_https_is_asked_too_with_the_trust_that_is_given_and_without_a_key(
    server_tls: ssl.SSLContext,
) -> None:
    async with serving(answering("openai-chat"), server_tls) as upstream:
        planner = Planner(PROFILES, Settings())
        strange = await asyncio.to_thread(collect_findings, Asker(upstream.url, trust=Trust()), planner)
        asker = Asker(upstream.url, trust=Trust(ssl_insecure=True))
        found = await asyncio.to_thread(collect_findings, asker, planner)
        assert not any("authorization" in seen.headers for seen in upstream.seen)
    assert "is not trusted" in strange.lines[0]
    assert (found.apis, found.models.names) == (("openai-chat",), ("m",))


@pytest.mark.parametrize("is_tls", [True, False])
async def test_swapped_http_and_https_are_reported(is_tls: bool, server_tls: ssl.SSLContext) -> None:
    async with serving(answering("openai-chat"), server_tls if is_tls else None) as upstream:
        scheme, rest = upstream.url.split(":", 1)
        wrong = f"{'http' if is_tls else 'https'}:{rest}"
        identity = await asyncio.to_thread(identify_server, Asker(wrong), PROFILES)
    assert identity.message == f"{wrong} speaks {scheme}: start VTC with `vtc run {upstream.url}`"


async def of_ollama(context: str, directory: Path) -> ServerFindings:
    """Return the findings about an Ollama server with a user's profile."""
    both = ("openai-chat", "ollama-chat")
    async with serving(answering(*both)) as upstream:
        host = upstream.url.removeprefix("http://")
        (directory / "own.yaml").write_text(
            f"{{kind: server, name: own, match: {{host: '{host}'}}, remark: start it otherwise{context}}}"
        )
        planner = Planner(load_profiles([builtin_directory(), directory]), Settings())
        return await asyncio.to_thread(collect_findings, Asker(upstream.url), planner)


async def test_server_with_unknown_context_is_reported(tmp_path: Path) -> None:
    found = await of_ollama("", tmp_path)
    assert found.apis == ("openai-chat", "ollama-chat")
    assert "start it otherwise" in found.lines


async def test_api_that_accepts_a_context_is_used_if_it_is_known(tmp_path: Path) -> None:
    found = await of_ollama(", ready: {context: 65536}", tmp_path)
    assert found.apis == ("ollama-chat",)
    assert "start it otherwise" not in found.lines


def test_ollamas_profile_has_a_remedy_for_its_context() -> None:
    assert "OLLAMA_CONTEXT_LENGTH=65536" in PROFILES.servers["ollama"].remark
