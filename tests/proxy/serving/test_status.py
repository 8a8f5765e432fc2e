"""`GET /.vtc`: its content, and which clients get it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.apis import chat
from tests.e2e.conftest import Start, newer_tls, start, start_http2
from vtc import __version__

__all__ = ["newer_tls", "start", "start_http2"]


@pytest.mark.parametrize("mode", ["rewrite", "observe", "off"])
async def test_reverse_proxy_reports_version_mode_and_server_without_a_request(mode: str, start: Start) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_mode=mode, vtc_discover="on")
    answer = await lab.client.get("/.vtc?x=1")
    assert answer.status_code == 200
    assert answer.json() == {"name": "vtc", "version": __version__, "mode": mode, "upstream": lab.upstream.url}
    assert answer.headers["content-type"] == "application/json"
    assert (await lab.client.head("/.vtc")).status_code == 200
    assert not [seen for seen in lab.upstream.seen if "vtc" in seen.path]


async def test_no_other_reply_reveals_vtc(start: Start) -> None:
    lab = await start(chat.make_stream("Hi"))
    answer = await lab.post(chat.request(stream=True))
    assert not [name for name in answer.headers if "vtc" in name]
    for method, path in (("POST", "/.vtc"), ("GET", "/.vtc/x"), ("GET", "/v1/.vtc")):
        await lab.client.request(method, path)
        assert (lab.upstream.seen[-1].method, lab.upstream.seen[-1].path) == (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://example.com"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"host": "example.com:8088"},  # a name that may resolve to this machine
        {"host": "127.0.0.1.example.com"},
        {"host": "[::1"},
    ],
    ids=str,
)
async def test_web_pages_get_no_status(headers: dict[str, str], start: Start) -> None:
    lab = await start(chat.make_stream("Hi"))
    answer = await lab.client.get("/.vtc", headers=headers)
    assert answer.status_code == 403
    assert lab.upstream.url not in answer.text
    assert "access-control-allow-origin" not in answer.headers


async def test_over_http_2_a_page_is_known_by_its_host_too(start_http2: Start) -> None:
    lab = await start_http2(chat.make_stream("Hi"))
    answers = [await lab.client.get("/.vtc", headers={"host": host}) for host in ("127.0.0.1", "example.com")]
    assert [(answer.http_version, answer.status_code) for answer in answers] == [("HTTP/2", 200), ("HTTP/2", 403)]


@pytest.mark.parametrize("host", ["localhost:8088", "[::1]:8088", "192.0.2.7", "vtc:8088", "host.docker.internal:8088"])
async def test_programs_of_the_network_are_answered(host: str, start: Start) -> None:
    lab = await start(chat.make_stream("Hi"))
    assert (await lab.client.get("/.vtc", headers={"host": host})).status_code == 200
    await lab.post(chat.request(stream=True), headers={"host": "example.com"})  # a proxy in front of VTC
    assert lab.upstream.seen[-1].path == "/v1/chat/completions"


async def test_a_proxy_for_any_server_answers_for_none(start: Start) -> None:
    """Only the requested server may answer a request through a regular proxy."""
    lab = await start(chat.make_stream("Hi"), mode=["regular"])
    async with httpx.AsyncClient(proxy=lab.proxy.url, trust_env=False, verify=False) as client:
        await client.get(f"{lab.upstream.url}/.vtc")
    assert lab.upstream.seen[-1].path == "/.vtc"


async def test_only_local_programs_get_the_place_of_the_log(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "vtc.jsonl"
    lab = await start(chat.make_stream("Hi"), vtc_log=str(log))
    assert (await lab.client.get("/.vtc")).json()["log"] == str(log)
    far = await lab.client.get("/.vtc", headers={"x-forwarded-for": "192.0.2.1"})
    assert (far.status_code, "log" in far.json()) == (200, False)


@pytest.mark.parametrize(
    "headers", [{}, {"vtc-nonce": "x" * 32}, {"vtc-nonce": "0" * 32, "x-forwarded-for": "192.0.2.1"}], ids=str
)
async def test_only_programs_of_this_machine_that_send_a_nonce_get_a_proof(
    headers: dict[str, str], start: Start
) -> None:
    lab = await start(chat.make_stream("Hi"))
    assert "proof" not in (await lab.client.get("/.vtc", headers=headers)).json()
