"""OpenAI Responses through a real proxy with the official SDK, streamed and whole, and models of every kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, responses, sdks
from tests.apis.named_events import Json, events
from tests.apis.responses import (
    call,
    check_request,
    custom,
    custom_call,
    make_input_message,
    message,
    namespace,
    output,
    reasoning,
    text_events,
    tool,
)
from tests.e2e.conftest import Lab, Start, by_turn
from tests.e2e.upstream import JSON, Reply

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
PROMPT = (Path(__file__).parents[1] / "cases" / "prompts" / "cline.md").read_text("utf-8")
AGENT = {"user-agent": "Cline/3.82.0"}
HERMES = chat.DIALECTS["hermes"]
READ = HERMES("read", {"filePath": "/a"})
CLINE_READ = "<read_file>\n<path>a.py</path>\n</read_file>"


def replying(*items: Json | str, stream: bool) -> Reply:
    """Return a reply of these items; a string is a message, streamed character by character."""
    whole = [message(item, f"msg_{place}") if isinstance(item, str) else item for place, item in enumerate(items)]
    if not stream:
        return Reply([chat.encode_json(responses.response(*whole))], JSON, framing="length")
    return Reply(responses.make_stream(*map(item_events, whole)))


def item_events(item: Json) -> list[Json]:
    match item["type"]:
        case "message":
            return text_events(*item["content"][0]["text"], id=item["id"])
        case "function_call":
            names = {"id": item["id"], "call_id": item["call_id"], "namespace": item.get("namespace", "")}
            return responses.call_events(item["name"], *item["arguments"], **names)
        case "custom_tool_call":
            return responses.custom_call_events(item["name"], item["input"], id=item["id"], call_id=item["call_id"])
    return responses.reasoning_events(item["summary"][0]["text"], id=item["id"])


async def ask_responses(lab: Lab, *, headers: dict[str, str] | None = None, **fields: Any) -> responses.Read:
    """Send a request, and parse the reply as the strictest client does."""
    answer = await lab.post(responses.request(**fields), path=responses.PATH, headers=headers)
    assert answer.status == 200, answer
    return responses.read(answer.body)


def profile(directory: Path, kind: str = "policy", **settings: Any) -> list[str]:
    found = {"kind": kind, "name": "mine", "match": {"model": chat.MODEL}, **settings}
    (directory / "mine.yaml").write_bytes(chat.encode_json(found))  # JSON is YAML
    return [str(directory)]


@STREAM
@pytest.mark.parametrize("dialect", chat.DIALECTS)
async def test_a_call_in_every_dialect_reaches_the_sdk(dialect: str, stream: bool, start: Start) -> None:
    written = chat.DIALECTS[dialect]("read", {"filePath": "/é"})
    read = {"vtc_dialect": dialect} if dialect == "bare-json" else {}  # only read if it is expected
    lab = await start(replying(written if dialect == "bare-json" else f"Look:\n{written}", stream=stream), **read)
    body = {key: value for key, value in responses.request().items() if key != "stream"}
    async with lab.sdk() as client:
        final = await sdks.final_response(client, body, stream=stream)
    (made,) = [item for item in final.output if item.type == "function_call"]
    assert (made.name, json.loads(made.arguments)) == ("read", {"filePath": "/é"})
    assert final.output_text == ("" if dialect == "bare-json" else "Look:")
    assert (final.status, made.call_id[:5], (made.id or "")[:3]) == ("completed", "call_", "fc_")


@STREAM
async def test_text_after_a_call_is_a_separate_message(stream: bool, start: Start) -> None:
    lab = await start(replying(reasoning("Hm", "rs_9"), f"Look:\n{READ}\nDone.", call("read", x="y"), stream=stream))
    found = await ask_responses(lab, stream=stream)
    assert found.kinds == ["reasoning", "message", "function_call", "message", "function_call"]
    assert (found.content, len({*found.ids})) == ("Look:\nDone.", 2)


@STREAM
async def test_a_reply_without_calls_is_byte_identical(stream: bool, start: Start) -> None:
    reply = replying("Hi there, ", reasoning("Hm", "rs_9"), "a < b", stream=stream)
    lab = await start(reply)
    answer = await lab.post(responses.request(stream=stream), path=responses.PATH)
    assert answer.body == b"".join(reply.pieces)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", chat.DIALECTS)
async def test_model_without_tools_gets_them_in_the_instructions(dialect: str, start: Start) -> None:
    history = [
        make_input_message("user", "Go"),
        reasoning("Hm"),
        message("Yes."),
        call("read", filePath="a"),
        output("A"),
    ]
    dialect = "cline" if dialect == "tag" else dialect
    lab = await start(replying("Fine.", stream=True), vtc_tools="prompt", vtc_dialect=dialect)
    found = await ask_responses(lab, input=history, instructions="Be brief.", stream=True)
    assert found.content == "Fine."
    (seen,) = lab.upstream.seen
    assert "tools" not in seen.json
    assert seen.json["instructions"].startswith("Be brief.")
    assert "list_files" in seen.json["instructions"]
    assert seen.json["input"][:2] == history[:2]
    assert [item.get("role") for item in seen.json["input"][2:]] == ["assistant", "user"]
    assert "filePath" in seen.json["input"][2]["content"][-1]["text"]
    check_request(seen.json)


@STREAM
async def test_a_text_client_reads_a_native_call_in_the_same_message(stream: bool, start: Start) -> None:
    lab = await start(replying("Look.", call("read_file", path="a.py"), stream=stream))
    found = await ask_responses(lab, input="Look", instructions=PROMPT, tools=None, stream=stream, headers=AGENT)
    assert (found.kinds, found.content) == (["message"], f"Look.\n\n{CLINE_READ}")


@STREAM
async def test_a_text_client_reads_a_call_of_another_dialect_as_its_own(stream: bool, start: Start) -> None:
    lab = await start(replying("Look.\n" + HERMES("read_file", {"path": "a.py"}), stream=stream))
    found = await ask_responses(lab, input="Look", instructions=PROMPT, tools=None, stream=stream, headers=AGENT)
    assert (found.kinds, found.content) == (["message"], f"Look.\n\n{CLINE_READ}")


@STREAM
async def test_a_text_client_is_promoted(stream: bool, start: Start, tmp_path: Path) -> None:
    """The model gets tools, calls and results in native form; its calls are returned as the client's text."""
    lab = await start(replying(call("read_file", path="a.py"), stream=stream), vtc_tools="native")
    turns = [
        make_input_message("user", "Look"),
        message(f"Yes.\n\n{CLINE_READ}"),
        make_input_message("user", "[read_file for 'a.py'] Result:\nA"),
    ]
    found = await ask_responses(lab, input=turns, instructions=PROMPT, tools=None, stream=stream, headers=AGENT)
    assert found.content == CLINE_READ
    (seen,) = lab.upstream.seen
    check_request(seen.json)
    assert "read_file" in [entry["name"] for entry in seen.json["tools"]]
    kinds = [item["type"] for item in seen.json["input"]]
    assert kinds == ["message", "message", "function_call", "function_call_output"]
    assert "<read_file>" not in seen.json["instructions"]


@STREAM
async def test_forbidden_calls_are_text(stream: bool, start: Start) -> None:
    reply = replying(READ, stream=stream)
    lab = await start(reply)
    answer = await lab.post(responses.request(stream=stream, tool_choice="none"), path=responses.PATH)
    assert answer.body == b"".join(reply.pieces)  # type: ignore[arg-type]


@STREAM
@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "read"}])
async def test_a_call_that_tool_choice_demands_is_missed(choice: Any, stream: bool, start: Start) -> None:
    lab = await start(replying("No.", stream=stream))
    await ask_responses(lab, stream=stream, tool_choice=choice)
    assert [entry["action"] for entry in (await lab.report())["policies"]] == ["missed"]


@STREAM
@pytest.mark.parametrize("form", ["text", "native"])
async def test_denied_call_is_replaced_by_a_message(form: str, stream: bool, start: Start, tmp_path: Path) -> None:
    items = [f"Look:\n{READ}"] if form == "text" else ["Look:", call("read", filePath="/a")]
    guards = {"denied_tools": ["read"], "on_denied": "steer"}
    lab = await start(replying(*items, stream=stream), vtc_profiles=profile(tmp_path, guards=guards))
    found = await ask_responses(lab, stream=stream)
    assert (found.kinds, found.calls) == (["message"], [])
    assert found.content.startswith("Look:\n\n")
    assert "read" in found.content
    assert "read" not in [entry["name"] for entry in lab.upstream.seen[0].json["tools"]]


@STREAM
async def test_a_native_call_is_changed(stream: bool, start: Start, tmp_path: Path) -> None:
    reactors = [{"name": "r", "when": {"tools": "read"}, "then": {"rename_tool": "list_files"}}]
    lab = await start(
        replying(call("read", path="/a"), stream=stream), vtc_profiles=profile(tmp_path, guards={"reactors": reactors})
    )
    assert (await ask_responses(lab, stream=stream)).calls == [("list_files", {"path": "/a"})]


BROKEN = 'Look.\n<tool_call>\n{"name": "read", "arguments": {"filePath": \n</tool_call> and so on'


@STREAM
async def test_the_model_is_asked_again(stream: bool, start: Start, tmp_path: Path) -> None:
    """The server is asked for whole replies about an unreadable call; the client gets the form that it asked for."""
    turns = by_turn(replying(BROKEN, stream=False), replying(f"Look.\n{READ}", stream=False))
    lab = await start(turns, vtc_profiles=profile(tmp_path, retry={}))
    found = await ask_responses(lab, stream=stream)
    assert (found.content, found.calls) == ("Look.", [("read", {"filePath": "/a"})])
    first, again = lab.upstream.seen
    assert (first.json["stream"], again.json["stream"]) == (False, False)
    assert again.json["input"][0] == first.json["input"][0]
    assert [item["role"] for item in again.json["input"]] == ["user", "assistant", "user"]
    check_request(again.json)


async def test_upstream_is_asked_without_streaming(start: Start, tmp_path: Path) -> None:
    items = [reasoning("Hm", "rs_9"), f"Look.\n{READ}", custom_call("patch", "x\n", call_id="call_2")]
    lab = await start(replying(*items, stream=False), vtc_profiles=profile(tmp_path, upstream_stream="never"))
    found = await ask_responses(lab, stream=True, tools=[responses.READ, custom("patch")])
    assert found.kinds == ["reasoning", "message", "function_call", "custom_tool_call"]
    assert lab.upstream.seen[0].json["stream"] is False


@STREAM
async def test_an_agent_in_a_loop_is_answered_by_us(stream: bool, start: Start, tmp_path: Path) -> None:
    turns = [
        [call("read", f"fc_{place}", f"call_{place}", filePath="a"), output("A", f"call_{place}")] for place in range(4)
    ]
    history = [make_input_message("user", "Go"), *(item for turn in turns for item in turn)]
    loop = {"repeated_calls": 2, "action": "stop"}
    lab = await start(replying("Never.", stream=stream), vtc_profiles=profile(tmp_path, guards={"loop": loop}))
    body = {key: value for key, value in responses.request(input=history).items() if key != "stream"}
    async with lab.sdk() as client:
        final = await sdks.final_response(client, body, stream=stream)
    assert final.output_text.startswith("Stopped:")
    assert (final.id[:5], lab.upstream.seen) == ("resp_", [])


@STREAM
async def test_reasoning_in_the_text_is_parted_from_it(stream: bool, start: Start, tmp_path: Path) -> None:
    settings = {"reasoning": {"open": "<think>", "close": "</think>"}}
    lab = await start(
        replying(f"<think>Hm.</think>\n\nLook.\n{READ}", stream=stream),
        vtc_profiles=profile(tmp_path, "model", **settings),
    )
    found = await ask_responses(lab, stream=stream)
    assert (found.kinds, found.reasoning, found.content) == (["reasoning", "message", "function_call"], "Hm.", "Look.")


NESTED = namespace("mcp__fs", tool("read_note", path="string"))


@STREAM
@pytest.mark.parametrize("flat", ["mcp__fs.read_note", "mcp__fs__read_note"])
@pytest.mark.parametrize("form", ["text", "native"])
async def test_a_flat_name_is_parted_into_namespace_and_name(form: str, flat: str, stream: bool, start: Start) -> None:
    item = HERMES(flat, {"path": "a"}) if form == "text" else call(flat, path="a")
    lab = await start(replying(item, stream=stream))
    found = await ask_responses(lab, stream=stream, tools=[responses.READ, NESTED])
    assert (found.calls, found.namespaces) == ([("read_note", {"path": "a"})], ["mcp__fs"])


PATCH = "*** Begin Patch\n*** Add File: a\n+<tool_call>\n*** End Patch"


@STREAM
@pytest.mark.parametrize("dialect", ["hermes", "qwen3-coder", "invoke"])
async def test_a_call_of_a_custom_tool_has_raw_input(dialect: str, stream: bool, start: Start) -> None:
    lab = await start(replying(chat.DIALECTS[dialect]("apply_patch", {"input": PATCH}), stream=stream))
    found = await ask_responses(lab, stream=stream, tools=[custom("apply_patch")])
    assert found.custom_calls == [("apply_patch", PATCH)]


@STREAM
async def test_a_native_call_of_a_custom_tool_passes_a_policy(stream: bool, start: Start, tmp_path: Path) -> None:
    reply = replying(custom_call("apply_patch", PATCH), stream=stream)
    lab = await start(reply, vtc_profiles=profile(tmp_path, guards={"denied_tools": ["read"]}))
    found = await ask_responses(lab, stream=stream, tools=[custom("apply_patch")])
    assert found.custom_calls == [("apply_patch", PATCH)]


@STREAM
@pytest.mark.parametrize("key", ["previous_response_id", "conversation"])
async def test_nothing_is_lifted_if_the_server_stores_the_conversation(key: str, stream: bool, start: Start) -> None:
    reply = replying(READ, stream=stream)
    lab = await start(reply, vtc_tools="prompt")
    answer = await lab.post(responses.request(stream=stream, **{key: "resp_0"}), path=responses.PATH)
    assert answer.body == b"".join(reply.pieces)  # type: ignore[arg-type]
    assert key in " ".join((await lab.report())["why"])
    assert lab.upstream.seen[0].json["tools"] == responses.TOOLS


async def test_a_client_hears_something_while_a_call_is_held_back(start: Start) -> None:
    """Codex ignores comments, so its timeout needs events."""
    pieces: Sequence[bytes] = responses.make_text_stream(
        "Hi ", *HERMES("write", {"filePath": "a", "content": "x" * 200})
    )

    async def slow() -> AsyncIterator[bytes]:
        for place, piece in enumerate(pieces):
            if place in (60, 120):
                await asyncio.sleep(1.1)
            yield piece

    lab = await start(Reply(slow()), vtc_keep_alive=1)
    answer = await lab.post(responses.request(stream=True), path=responses.PATH)
    assert "keepalive" in [event.data["type"] for event in events(answer.body)]
    assert [name for name, _ in responses.read(answer.body).calls] == ["write"]


async def test_similar_paths_are_ignored(start: Start) -> None:
    lab = await start(lambda _: replying(READ, stream=False))
    for path in ("/v1/responses/resp_1", "/v1/responses/input_tokens", "/v1/responses/compact"):
        assert responses.read((await lab.post(responses.request(), path=path)).body).calls == []
    assert responses.read((await lab.post(responses.request(), path="/x/responses?a=1")).body).calls
