"""Tests of `vtc doctor`, with and without a model server and a running proxy."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat
from tests.apis.shapes import SHAPES
from tests.e2e.conftest import Start, start
from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc import __version__
from vtc.cli import main

__all__ = ["start"]
MODELS = {"object": "list", "data": [{"id": "m-7b", "object": "model", "owned_by": "vllm"}]}
CALL = '<tool_call>\n{"name": "report_word", "arguments": {"word": "fine"}}\n</tool_call>'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


async def run_doctor(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["doctor", *arguments])


def build_server_script(text: str) -> object:
    def answer(seen: Seen) -> Reply:
        if seen.path.endswith("/models"):
            return Reply([json.dumps(MODELS).encode()], JSON, framing="length")
        if seen.body == b"{}":
            known = seen.path.endswith("/chat/completions")
            return Reply([b'{"error": {}}'], JSON, status=400 if known else 404, framing="length")
        return Reply([chat.encode_json(SHAPES["openai-chat"].whole(text))], JSON, framing="length")

    return answer


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("ssl_insecure=true", " is vLLM"),
        ("ssl_verify_upstream_trusted_ca={confdir}/mitmproxy-ca-cert.pem", " is vLLM"),
        ("ssl_verify_upstream_trusted_confdir=.", "is not trusted"),
        (
            "ssl_verify_upstream_trusted_ca=vtc.yaml",
            "_trusted_ca: vtc.yaml has no certificate in PEM format",
        ),
        (
            "ssl_verify_upstream_trusted_ca=/nope",
            "_trusted_ca: /nope: No such file or directory",
        ),
        ("ssl_verify_upstream_trusted_confdir=/nope", "!!  ssl_verify_upstream_trusted_confdir: /nope: no such folder"),
    ],
)
@pytest.mark.parametrize("is_typed", [True, False])
async def test_a_server_of_https_is_asked_with_the_trust_that_is_given(
    settings: str, message: str, is_typed: bool, here: Path, confdir: Path, server_tls: ssl.SSLContext
) -> None:
    settings = settings.format(confdir=confdir)
    name, _, value = settings.partition("=")
    (here / "vtc.yaml").write_text("{port: 1}" if is_typed else f"{{port: 1, options: {{{name}: {value}}}}}")
    async with serving(build_server_script(CALL), server_tls) as upstream:  # type: ignore[arg-type]
        done = await run_doctor(upstream.url, *(["--set", settings] if is_typed else []))
    assert message in done.output
    assert "Traceback" not in done.output
    assert done.exit_code == (" is vLLM" not in message)


@pytest.mark.parametrize(("text", "code"), [(CALL, 0), ("I cannot do that.", 1)])
async def test_a_call_is_tried_through_a_running_proxy(text: str, code: int, start: Start) -> None:
    async with serving(build_server_script(text)) as upstream:  # type: ignore[arg-type]
        lab = await start([], mode=[f"reverse:{upstream.url}"])
        port = lab.proxy.url.rpartition(":")[2]
        done = await run_doctor(upstream.url, "--port", port)
    assert done.exit_code == code, done.output
    assert f"{upstream.url} is vLLM" in done.output
    assert "it speaks openai-chat" in done.output
    assert "models: m-7b" in done.output
    assert f"VTC {__version__} listens at 127.0.0.1:{port}, mode rewrite, in front of {upstream.url}" in done.output
    assert ("received it as `tool_calls`" if code == 0 else "'I cannot do that.'") in done.output


@pytest.mark.parametrize("odd", [["vllm"], {"a": ["b"]}, None, 5, "x"], ids=str)
async def test_odd_lists_of_models_and_replies_end_nothing(odd: object, start: Start) -> None:
    """The value replaces an owner, an id, an entry or the list of models; or a message, a call or its function."""
    listed = [{"data": [{"id": "m", "owned_by": odd}, {"id": odd, "name": odd}, odd]}, {"data": odd}, odd]
    replied = [{"message": odd}, {"message": {"tool_calls": odd}}, {"message": {"tool_calls": [{"function": odd}]}}]
    turn = 0

    def answer(seen: Seen) -> Reply:
        value = listed[turn] if seen.path.endswith("/models") else {"choices": [replied[turn]]}
        return Reply([json.dumps(value).encode()], JSON, framing="length")

    async with serving(answer) as upstream:
        lab = await start([], mode=[f"reverse:{upstream.url}"])
        for turn in range(3):  # noqa: B007 - `answer` reads it
            done = await run_doctor(upstream.url, "--port", lab.proxy.url.rpartition(":")[2])
            assert not done.exception or isinstance(done.exception, SystemExit), done.exception


async def test_server_text_is_printed_in_one_line_without_terminal_escapes(start: Start) -> None:
    name, text = "m\x1b]0;pwn\x07\nok  all is well", "\x1b[2J\x9b1m\u202e"
    body = {"data": [{"id": name, "owned_by": "vllm"}]}

    def answer(seen: Seen) -> Reply:
        if seen.path.endswith("/models"):
            return Reply([json.dumps(body).encode()], JSON, framing="length")
        error = json.dumps({"error": {"message": f"no such model: {name}{text}"}}).encode()
        return Reply([error], JSON, status=404, framing="length")

    async with serving(answer) as upstream:
        lab = await start([], mode=[f"reverse:{upstream.url}"])
        done = await run_doctor(upstream.url, "--port", lab.proxy.url.rpartition(":")[2])
    assert "all is well" in done.output
    assert not any(line.startswith("ok  all is well") for line in done.output.splitlines())
    assert not set(done.output) & set(f"\x1b\x07{text}".replace("[2J", "").replace("1m", ""))


def page(_: Seen) -> Reply:
    return Reply([b"<html>"], {"content-type": "text/html"}, framing="length")


async def test_web_page_in_place_of_the_server_is_reported() -> None:
    async with serving(page) as upstream:
        done = await run_doctor(upstream.url)
    assert done.exit_code == 1
    assert f"{upstream.url} answers 200 to GET /v1/models with a web page: is this the model server?" in done.output


async def test_other_program_on_vtcs_address_is_reported() -> None:
    async with serving(build_server_script(CALL)) as upstream, serving(page) as stranger:  # type: ignore[arg-type]
        done = await run_doctor(upstream.url, "--port", stranger.url.rpartition(":")[2])
        assert [seen.path for seen in stranger.seen] == ["/.vtc"]
    assert done.exit_code == 1
    listener = stranger.url.removeprefix("http://")
    assert (
        f"another program, or a mitmproxy without VTC, listens at {listener} (its answer: 200 to GET /.vtc)"
        in done.output
    )


async def test_ordinary_proxy_in_place_of_vtc_is_reported(start: Start) -> None:
    lab = await start([], mode=["regular"])
    done = await run_doctor("--port", lab.proxy.url.rpartition(":")[2])
    assert done.exit_code == 1
    assert "a mitmproxy without a model server listens at" in done.output


async def test_vtc_before_another_server_is_reported(start: Start) -> None:
    async with serving(build_server_script(CALL)) as upstream, serving(build_server_script(CALL)) as named:  # type: ignore[arg-type]
        lab = await start([], mode=[f"reverse:{upstream.url}"])
        port = lab.proxy.url.rpartition(":")[2]
        done = await run_doctor(named.url, "--port", port)
        same = await run_doctor(upstream.url.replace("127.0.0.1", "localhost"), "--port", port, "--no-call")
        assert not [seen for seen in upstream.seen if seen.method == "POST" and seen.body != b"{}"]
    assert done.exit_code == 1
    assert f"it does not run in front of {named.url}; start another VTC: vtc run {named.url}" in done.output
    assert "another server" not in same.output


async def test_no_call_is_tried_if_vtc_only_observes(start: Start) -> None:
    async with serving(build_server_script(CALL)) as upstream:  # type: ignore[arg-type]
        lab = await start([], mode=[f"reverse:{upstream.url}"], vtc_mode="observe")
        done = await run_doctor(upstream.url, "--port", lab.proxy.url.rpartition(":")[2])
    assert done.exit_code == 0, done.output
    assert "mode observe changes nothing, so no call was tried" in done.output


async def test_nothing_runs_and_nothing_is_sent() -> None:
    done = await run_doctor("--port", "9")
    assert done.exit_code == 0
    assert "nothing listens at 127.0.0.1:9" in done.output
    assert "profiles: " in done.output


@pytest.mark.parametrize("upstream", ["http://[::1", "[[", "::", "a b", "ftp://x", "http://x:99999"])
async def test_missing_upstream_is_reported(upstream: str, here: Path) -> None:
    (here / "vtc.yaml").write_text(f"upstream: {json.dumps(upstream)}\n")
    done = await run_doctor("--port", "9")
    assert done.exit_code == 1
    assert re.search(rf"!!  {re.escape(upstream)}: (not a URL|the port must)", done.output)


async def test_faults_are_reported_with_exit_status_1(here: Path) -> None:
    (here / "vtc.yaml").write_text("upstream: http://127.0.0.1:9\nprofiles: [mine.yaml]\n")
    (here / "mine.yaml").write_text("kind: model\nname: x\nmatch: {}\ntols: native\n")
    done = await run_doctor("--port", "9")
    assert done.exit_code == 1
    assert "http://127.0.0.1:9 cannot be reached (" in done.output
    assert "did you mean 'tools'?" in done.output
    (here / "vtc.yaml").write_text("upstrem: x\n")
    assert "did you mean 'upstream'?" in (await run_doctor("--port", "9")).output


async def test_nothing_secret_is_printed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    (here / "vtc.yaml").write_text("api_key: sk-proj-abcdefghijklmnopqrstuvwxyz0123456789\n")
    done = await run_doctor("--port", "9")
    assert "abcdefghijklmnop" not in done.output
    assert str(here) not in done.output


NOT_PROVEN = "it does not prove that it is yours"


async def test_a_vtc_proves_to_programs_of_its_user_whose_it_is(start: Start, confdir: Path, here: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_log=str(here / "vtc.jsonl"))
    port = lab.proxy.url.rpartition(":")[2]
    shutil.copy(confdir / "mitmproxy-ca-cert.pem", here / "mitmproxy-ca.pem")  # which other users can read
    for folder, is_own in ((confdir, True), (here, False), (here / "none", False)):
        (here / "vtc.yaml").write_text(f"options: {{confdir: '{folder}'}}")
        done = await run_doctor("--port", port)
        assert (f"VTC {__version__} listens at" in done.output, NOT_PROVEN in done.output) == (True, not is_own)


async def test_another_listener_cannot_pass_the_question_on_or_repeat_an_answer(
    start: Start, confdir: Path, here: Path
) -> None:
    (here / "vtc.yaml").write_text(f"options: {{confdir: '{confdir}'}}")
    lab = await start(chat.make_stream("Hi"))
    answers: list[bytes] = []

    async def relayed(seen: Seen) -> AsyncIterator[bytes]:
        answer = await lab.client.get(seen.path, headers={"vtc-nonce": seen.headers["vtc-nonce"]})
        answers.append(answer.content)
        yield answers[0]

    async with serving(lambda seen: Reply(relayed(seen), JSON)) as impostor:
        port = impostor.url.rpartition(":")[2]
        for _ in range(2):
            assert NOT_PROVEN in (await run_doctor("--port", port)).output
    assert all(b'"proof"' in answer for answer in answers)
