"""Test `vtc probe` with servers of all kinds: its findings, its files, and its limits."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.apis import pairs
from tests.cli.probing.servers import Server, error
from tests.e2e.conftest import PATIENCE
from tests.e2e.upstream import JSON, SSE, Reply, Script, Seen, serving
from vtc.cli import main

TEMPLATE = """\
{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{% for message in messages %}
{% if message.role == 'system' and not loop.first %}{{ raise_exception('System message must be first') }}{% endif %}
<|im_start|>{{ message.role }}
{{ message.content }}
{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{% endfor %}
<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
PROPS = {"build_info": "b6900", "default_generation_settings": {"n_ctx": 8192}, "chat_template": TEMPLATE}
SHOWN = {"capabilities": ["completion", "tools"], "parameters": "num_ctx 4096", "model_info": {}}
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
NO_JINJA = "tools param requires --jinja flag"
TOKENS = ("<tool_call>", "</tool_call>")
THOUGHT = "The user wants the weather.\n</think>\n"

CASES: dict[str, tuple[Server, int, dict[str, Any], str]] = {
    "vLLM with a parser": (
        Server(parses=True, strict=True, parted="reasoning", about={"/version": {"version": "0.33.0"}}),
        0,
        {"server": "vllm", "tools": "parsed", "reasoning": "parted", "special_tokens": "kept", "strict": "taken"},
        "vtc_constrain=auto",
    ),
    "vLLM without a parser, which drops special tokens": (
        Server(drops=TOKENS),
        0,
        {"server": "vllm", "tools": "leaked", "special_tokens": "dropped", "reasoning": "none", "dialect": "hermes"},
        "start vLLM with `--enable-auto-tool-choice --tool-call-parser hermes`",
    ),
    "vLLM that refuses tools": (
        Server(rejects_tools=NO_PARSER),
        0,
        {"server": "vllm", "tools": "refused", "dialect": "hermes", "constrain": "schema"},
        "--enable-auto-tool-choice --tool-call-parser hermes",
    ),
    "llama-server without --jinja, with a thinking model": (
        Server(owner="llamacpp", rejects_tools=NO_JINJA, thinks=THOUGHT, about={"/props": PROPS}),
        0,
        {"server": "llama.cpp", "tools": "refused", "dialect": "hermes", "reasoning": "prefilled", "context": 8192},
        "restart llama-server with `--jinja`",
    ),
    "Ollama, which cuts a long prompt": (
        Server(
            owner="library",
            model="qwen2.5:7b",
            parses=True,
            remembers=9000,
            paths=("/v1/chat/completions", "/api/chat"),
            about={"/api/version": {"version": "0.12.1"}, "/api/show": SHOWN},
        ),
        0,
        {"server": "ollama", "version": "0.12.1", "tools": "parsed", "context": 4096, "strict": "ignored"},
        "OLLAMA_CONTEXT_LENGTH",
    ),
    "Ollama's own API alone": (
        Server(owner="library", parses=True, paths=("/api/chat",)),
        0,
        {"api": "ollama-chat", "tools": "parsed"},
        "",
    ),
    "Messages alone": (
        Server(owner="someone", parses=True, paths=("/v1/messages",)),
        0,
        {"server": None, "api": "anthropic-messages", "apis": ["anthropic-messages"], "tools": "parsed"},
        "",
    ),
    "a template that leaves the tools out": (
        Server(shows_tools=False),
        0,
        {"tools": "ignored", "dialect": "hermes"},
        "too few to hold the tools",
    ),
    "reasoning in the text, and schemas that are refused": (
        Server(thinks="<think>Hm.</think>\n", rejects_schemas="failed to parse grammar", model="unknown"),
        0,
        {"tools": "leaked", "reasoning": "raw", "dialect": "hermes"},
        "failed to parse grammar",
    ),
    "a model that forgets, of a server that counts nothing": (
        Server(parses=True, counts=False, remembers=9000),
        0,
        {"tools": "parsed"},
        "not known: the model did not remember it",
    ),
    "a model that never calls": (
        Server(writes=None),
        1,
        {"tools": "ignored", "dialect": None, "command": None},
        "the model called no tool in",
    ),
}


def read_files(directory: Path) -> str:
    """Return the concatenated files of a directory."""
    return "".join(file.read_text("utf-8") for file in sorted(directory.iterdir()))


async def run_probe(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["probe", *arguments])


def parse_output(result: Result) -> Any:
    """Parse the output, which must be one JSON object."""
    assert isinstance(result.exception, SystemExit) or result.exception is None, result.exception
    return json.loads(result.stdout)


@pytest.mark.halved
@pytest.mark.parametrize("case", CASES)
async def test_findings_about_a_server_become_profiles(case: str, tmp_path: Path) -> None:
    server, code, expected, message = CASES[case]
    async with serving(server) as upstream:
        result = await run_probe(upstream.url, "--json", "--write", str(tmp_path))
    found = parse_output(result)
    assert {key: found[key] for key in expected} == expected
    assert (result.exit_code, found["works"]) == (code, code == 0), found["reason"]
    assert message in result.stdout.replace('\\"', '"')
    assert found["requests"] == len(upstream.seen) <= 30
    assert [finding for finding in found["findings"] if finding["evidence"].startswith(";")] == []
    assert "at most 30 requests" in result.stderr

    assert all(
        f"name: {json.dumps(Path(file).stem.partition('-')[2])}" in read_files(tmp_path) for file in found["profiles"]
    )
    checked = CliRunner().invoke(main, ["check", str(tmp_path)])
    assert checked.exit_code == 0, checked.output
    where = upstream.url.removeprefix("http://")
    about = ["--profiles", str(tmp_path), "--model", found["model"], "--host", where, "--json"]
    explained = json.loads(CliRunner().invoke(main, ["explain", *about]).output)
    names = {f"{explained[kind]['profile']}.yaml" for kind in ("model", "server")}
    assert names == {Path(file).name.partition("-")[2] for file in found["profiles"]}
    if code == 0:
        assert found["command"] == f"vtc run {upstream.url} --profiles {tmp_path}"
        launched = f"vtc launch gemini {upstream.url} --profiles {tmp_path} --model {found['model']}"
        assert found["clients"]["Gemini CLI"] == launched


async def test_profiles_contain_the_observations(tmp_path: Path) -> None:
    server, *_ = CASES["llama-server without --jinja, with a thinking model"]
    async with serving(server) as upstream:
        await run_probe(upstream.url, "--write", str(tmp_path))
        bare = await run_probe(upstream.url)
    text = read_files(tmp_path)
    assert f'tools: "prompt"  # `tools` were refused: status 400: {NO_JINJA}' in text
    assert '"prefilled": true' in text
    assert "parts_reasoning: false  # reasoning arrived in the text" in text
    assert "What does the template reject? a system message inside the conversation" in bare.output
    assert f"vtc run {upstream.url} --tools prompt --dialect hermes" in bare.output
    assert f"vtc launch codex {upstream.url} --tools prompt --dialect hermes --model " in bare.output
    assert "For reasoning, profiles are required: run this again with `--write DIR`." in bare.output


async def test_commands_contain_the_options_of_the_probe(tmp_path: Path, server_tls: ssl.SSLContext) -> None:
    server = Server(parses=True)

    def below_a_path(seen: Seen) -> Reply:
        return server(replace(seen, path=seen.path.removeprefix("/openai")))

    async with serving(below_a_path, server_tls) as upstream:
        given = ["--profiles", str(tmp_path), "--set", "ssl_insecure=true"]
        found = parse_output(await run_probe(f"{upstream.url}/openai/v1", "--json", *given))
    carried = f"--profiles {tmp_path} --api openai-chat --set ssl_insecure=true"
    assert found["command"] == f"vtc run {upstream.url} {carried}"
    launched = f"vtc launch codex {upstream.url}/openai {carried} --model {server.model}"
    assert found["clients"]["Codex"] == launched


async def test_scenarios_are_those_of_canitoolcall_as_the_server_alone_and_with_vtc() -> None:
    server, *_ = CASES["vLLM without a parser, which drops special tokens"]
    async with serving(server) as upstream:
        rows = parse_output(await run_probe(upstream.url, "--json"))["scenarios"]
    compared = {row["name"]: (row["direct"], row["outcome"]) for row in rows if row["canitoolcall"]}
    calls = ("fail", "mended")
    assert compared == {
        **dict.fromkeys(["single-call", "parallel-calls", "nested-args", "unicode-args", "empty-args"], calls),
        **dict.fromkeys(["forced-tool-choice", "reasoning-then-call"], calls),
        **dict.fromkeys(["no-call", "tool-result-followup"], ("pass", "works")),
    }


async def test_tools_are_harmless_and_the_model_can_be_chosen() -> None:
    async with serving(Server(parses=True, models=("other",))) as upstream:
        found = parse_output(
            await run_probe(f"{upstream.url}/v1/", "--model", "other", "--api", "openai-chat", "--json")
        )
    assert (found["model"], found["api"], found["url"]) == ("other", "openai-chat", upstream.url)
    asked = [seen.json for seen in upstream.seen if seen.path == "/v1/chat/completions"]
    assert {body["model"] for body in asked} == {"other"}
    assert all(body["temperature"] == 0 and body["max_tokens"] == 1024 for body in asked)


@pytest.mark.parametrize("name", ["temperature", "max_tokens"])
async def test_a_limit_that_the_server_rejects_is_removed(name: str) -> None:
    server = Server(parses=True)

    def script(seen: Seen) -> Reply:
        refused = seen.path == "/v1/chat/completions" and name in seen.json
        return error(f"Unsupported parameter: '{name}'") if refused else server(seen)

    async with serving(script) as upstream:
        assert parse_output(await run_probe(upstream.url, "--json"))["tools"] == "parsed"


async def test_each_quirk_is_shown_with_the_error() -> None:
    server = Server(parses=True)
    words = {
        "max_tokens": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        "temperature": "Unsupported parameter: 'temperature'.",
    }

    def script(seen: Seen) -> Reply:
        named = seen.path == "/v1/chat/completions" and next((name for name in words if name in seen.json), "")
        return error(words[named]) if named else server(seen)

    async with serving(script) as upstream:
        found = parse_output(await run_probe(upstream.url, "--json"))
    assert found["works"]
    assert found["taught"] == ["max_tokens sent as max_completion_tokens", "temperature left out"]
    findings = [finding for finding in found["findings"] if finding["answer"] in found["taught"]]
    assert {finding["outcome"] for finding in findings} == {"mended"}
    assert [finding["evidence"] for finding in findings] == [f"status 400: {message}" for message in words.values()]
    asked = [seen.json for seen in upstream.seen if seen.path == "/v1/chat/completions"]
    assert sum("max_tokens" in body for body in asked) == 1


async def test_a_model_of_another_api_is_probed_in_that_api() -> None:
    server, api = Server(parses=True), "openai-responses"

    def script(seen: Seen) -> Reply:
        if seen.path == "/v1/responses":
            is_stream = seen.json.get("stream")
            return Reply(
                [pairs.make_stream(api, ["Hi."]) if is_stream else pairs.make_whole_reply(api, "Hi.")],
                SSE if is_stream else JSON,
            )
        refuses = seen.path == "/v1/chat/completions" and "messages" in seen.json
        return error('model "m" is not accessible via the /chat/completions endpoint') if refuses else server(seen)

    async with serving(script) as upstream:
        found = parse_output(await run_probe(upstream.url, "--json"))
    assert found["taught"] == [f"api: {api}"]
    asked = [seen.path for seen in upstream.seen if seen.path in ("/v1/chat/completions", "/v1/responses")]
    # The detection of APIs and the request without VTC use chat completions.
    assert asked.count("/v1/responses") > 2 * asked.count("/v1/chat/completions")


async def test_a_rejected_flag_of_agents_in_a_header_is_shown() -> None:
    server, flag = Server(parses=True, paths=("/v1/messages",)), "prompt-caching-scope-2026-01-05"
    words = f"Unexpected value(s) `{flag}` for the `anthropic-beta` header."

    def script(seen: Seen) -> Reply:
        return error(words) if flag in seen.headers.get("anthropic-beta", "") else server(seen)

    async with serving(script) as upstream:
        found = parse_output(await run_probe(upstream.url, "--json"))
    assert found["works"]
    quirk = f"header anthropic-beta: {flag} left out"
    assert found["taught"] == [quirk]
    (evidence,) = [finding["evidence"] for finding in found["findings"] if finding["answer"] == quirk]
    assert evidence == f"status 400: {words}"
    first, *rest = [
        seen.headers["anthropic-beta"].split(",") for seen in upstream.seen if "tools" in seen.body.decode()
    ]
    assert {flag, "claude-code-20250219"} < {*first}
    assert {*map(tuple, rest)} == {tuple(name for name in first if name != flag)}


async def test_a_key_is_sent_and_never_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", key := "open-sesame-4711")
    async with serving(Server(key=key, rejects_tools=f"tools are not supported for {key}")) as upstream:
        without = await run_probe(upstream.url, "--json")
        result = await run_probe(upstream.url, "--key-env", "MY_KEY", "--json", "--write", str(tmp_path))
    assert (without.exit_code, "--key-env" in parse_output(without)["reason"]) == (1, True)
    assert (result.exit_code, parse_output(result)["tools"]) == (0, "refused")
    assert " --key-env MY_KEY " in parse_output(result)["clients"]["Codex"]
    assert key not in result.output + read_files(tmp_path)


async def test_a_server_that_denies_access_to_the_model_gets_one_request() -> None:
    server = Server()

    def script(seen: Seen) -> Reply:
        refused = seen.path == "/v1/chat/completions" and seen.json.get("tools")
        return error("No access?", 403) if refused else server(seen)

    async with serving(script) as upstream:
        found = parse_output(await run_probe(upstream.url, "--json"))
        asked = [seen for seen in upstream.seen if seen.path == "/v1/chat/completions" and seen.json.get("tools")]
    assert (found["works"], len(asked)) == (False, 1)
    assert "--key-env" in found["stopped"]


async def test_a_web_page_is_no_server() -> None:
    page = Reply([b"<!DOCTYPE html><p>Log in"], {"content-type": "text/html"}, framing="length")
    async with serving(lambda _: page) as upstream:
        found = parse_output(await run_probe(upstream.url, "--json"))
    assert found["works"] is False
    assert found["reason"] == "the server answers GET /v1/models with a web page: is this the model server?"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (error("The model `old` does not exist.", 404), "does not have the model old (status 404: The model `old`"),
        (error("Model Not Exist"), "does not have the model old (status 400: Model Not Exist)"),
        (error("Nothing here", 404), "has nothing at /v1/chat/completions (status 404: Nothing here)"),
    ],
)
async def test_a_server_without_the_model_gets_one_request(answer: Reply, message: str) -> None:
    server = Server()

    def script(seen: Seen) -> Reply:
        return answer if seen.path == "/v1/chat/completions" and seen.json.get("tools") else server(seen)

    async with serving(script) as upstream:
        result = await run_probe(upstream.url, "--model", "old")
        asked = [seen for seen in upstream.seen if seen.path == "/v1/chat/completions" and seen.json.get("tools")]
    assert (result.exit_code, len(asked)) == (1, 1)
    (line,) = (line for line in result.stdout.splitlines() if message in line)
    assert "--model" in line
    assert line.endswith("; it lists Qwen/Qwen2.5-7B-Instruct.")
    assert "Does it accept `tools`?" not in result.stdout


async def test_a_404_with_a_known_quirk_does_not_end_the_probe() -> None:
    server = Server(rejects_tools="No endpoints found that support tool use.")

    def script(seen: Seen) -> Reply:
        reply = server(seen)
        return replace(reply, status=404) if reply.status == 400 and seen.json.get("tools") else reply

    async with serving(script) as upstream:
        found = parse_output(await run_probe(upstream.url, "--json"))
    assert (found["works"], found["tools"], found["stopped"]) == (True, "refused", None)


async def test_a_server_that_is_down_is_reported() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        result = await run_probe(f"http://127.0.0.1:{nobody.getsockname()[1]}", "--json")
    found = parse_output(result)
    assert (result.exit_code, found["requests"], found["tools"], found["profiles"]) == (1, 1, None, [])
    assert "cannot be reached (Connection refused)" in found["reason"]


async def stream_forever() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.01)


def build_endless_server(at: str, server: Script) -> Script:
    """Return a server whose answers at one path never end."""
    return lambda seen: Reply(stream_forever(), JSON) if seen.path == at and seen.body != b"{}" else server(seen)


@pytest.mark.parametrize(("at", "message"), [("/v1/models", "cannot be reached"), ("/v1/chat/completions", "no reply")])
async def test_a_server_that_never_answers_ends_the_probe_soon(at: str, message: str) -> None:
    async with serving(build_endless_server(at, Server())) as upstream:
        result = await run_probe(upstream.url, "--timeout", "1", "--json")
    assert result.exit_code == 1
    assert message in (reason := parse_output(result)["reason"])
    assert "no answer within 1 second" in reason
    assert len(upstream.seen) < 10


@pytest.mark.parametrize(
    ("hangs", "server", "code", "verdict"),
    [
        pytest.param(
            *(b"Use the tool", Server(), 1, "It is not known whether an agent will work: stopped by Ctrl-C."),
            marks=pytest.mark.rest,
        ),
        pytest.param(
            *(
                b"Use the tool",
                Server(rejects_tools=NO_PARSER),
                1,
                "It is not known whether an agent will work: stopped",
            ),
            marks=pytest.mark.rest,
        ),
        pytest.param(
            *(b"Paris?", Server(), 0, "as far as this shows: a call arrives; not tested: an answer after a tool's"),
            marks=pytest.mark.rest,
        ),
        (
            b"in Tokyo",
            Server(rejects_tools=NO_PARSER),
            0,
            "as far as this shows: a call arrives, streamed or not, and the",
        ),
    ],
)
async def test_ctrl_c_ends_the_probe_with_a_report_and_writes_nothing(
    hangs: bytes, server: Server, code: int, verdict: str, tmp_path: Path
) -> None:
    reached = asyncio.Event()

    def script(seen: Seen) -> Reply:
        if hangs in seen.body and not (server.rejects_tools and seen.json.get("tools")):
            reached.set()
            return Reply(stream_forever(), JSON)
        return server(seen)

    async with serving(script) as upstream:
        command = [sys.executable, "-m", "vtc", "probe", upstream.url, "--write", str(tmp_path / "new")]
        heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, preexec_fn=heeds)
        async with asyncio.timeout(PATIENCE):
            await reached.wait()
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
    assert (process.returncode, verdict in out.decode()) == (code, True), out.decode()
    assert b"Which server is it?" in out
    assert out.count(b"stopped by Ctrl-C") == 1
    assert b"\nnot asked " in out
    assert b"broken" not in out
    assert b"Traceback" not in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://me:open-sesame@127.0.0.1:1"], "leave out user and password"),
        (["http://127.0.0.1:99999"], "127.0.0.1:99999"),
        (["127.0.0.1:1", "--server", "vlm"], "there is no server 'vlm'"),
        (["127.0.0.1:1", "--key-env", "NOT_SET_ANYWHERE"], "the environment variable NOT_SET_ANYWHERE is not set"),
    ],
)
def test_invalid_arguments_are_reported(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["probe", *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert "open-sesame" not in result.output
