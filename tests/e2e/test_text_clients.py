"""Clients that declare tools in the system prompt and read calls from the text, with models of every kind."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Answer, Lab, Replies, Start, by_turn
from tests.e2e.text_clients import AGENT, CLINE, LIST, PROMPTS, assistant, make_user_message, request, write_profiles
from tests.e2e.upstream import JSON, Reply, Seen

ROO = (PROMPTS / "roo.md").read_text("utf-8")
BOTH_WAYS = (False, True)
STREAM = pytest.mark.parametrize("stream", BOTH_WAYS, ids=["whole", "streamed"])

READ = "<read_file>\n<path>a.py</path>\n</read_file>"
NO_MORE = "\n\n(Not carried out, as only one tool can be used at a time: {}.)"


def replying(text: str, stream: bool, finish: str = "stop") -> Reply:
    """Return a text reply, streamed character by character."""
    if stream:
        return Reply(chat.make_stream(*text, finish=finish))
    return Reply([chat.encode_json(chat.completion(text, finish))], JSON, framing="length")


def calling(stream: bool, *calls: tuple[str, Any], content: str | None = None, finish: str = "tool_calls") -> Reply:
    """Return a reply of native calls; a stream has their arguments in two pieces, interleaved."""
    texts = [arguments if isinstance(arguments, str) else json.dumps(arguments) for _, arguments in calls]
    if not stream:
        entries = [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": text}}
            for i, ((name, _), text) in enumerate(zip(calls, texts, strict=True))
        ]
        message = chat.completion(content, finish, message={"tool_calls": entries})
        return Reply([chat.encode_json(message)], JSON, framing="length")
    heads = [chat.native(i, id=f"c{i}", name=name) for i, (name, _) in enumerate(calls)]
    first = [chat.native(i, arguments=text[: len(text) // 2]) for i, text in enumerate(texts)]
    second = [chat.native(i, arguments=text[len(text) // 2 :]) for i, text in enumerate(texts)]
    deltas = [chat.chunk({"tool_calls": [entry]}) for entry in (*heads, *first, *second)]
    return Reply(
        [chat.ROLE, *chat.make_text_chunks(*(content or "")), *deltas, chat.chunk({}, finish), chat.USED, chat.DONE]
    )


def calls_in_pieces(*deltas: Sequence[chat.Json], end: Sequence[bytes] = (chat.STOP, chat.DONE)) -> list[bytes]:
    return [chat.ROLE, *(chat.chunk({"tool_calls": list(entries)}) for entries in deltas), *end]


async def ask(lab: Lab, body: chat.Json | None = None, *, stream: bool = False, agent: str | None = None) -> Answer:
    headers = AGENT if agent is None else {"user-agent": agent}
    return await lab.post(body or request(stream=stream), headers=headers)


async def read_client_text(lab: Lab, *, stream: bool) -> str:
    """Return the text that the client gets, after checking that no native call accompanies it."""
    answer = await ask(lab, stream=stream)
    assert b"tool_calls" not in answer.body
    assert answer.message.finish_reason in ("stop", "length")
    return answer.message.content


def model(**settings: Any) -> chat.Json:
    return {"match": {"model": chat.MODEL}, **settings}


def client(**settings: Any) -> chat.Json:
    return {"match": {"user_agent": "cline/*"}, "dialect": "cline", **settings}


# Recognition


@pytest.mark.parametrize("agent", ["Cline/3.82.0", "KILO-CODE/4", "my-roo-fork"])
async def test_a_client_is_recognised_by_its_user_agent(
    agent: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason names agent and pattern, in the report and at debug level."""
    caplog.set_level(logging.DEBUG, "vtc")
    lab = await start(replying(chat.DIALECTS["hermes"]("read_file", {"path": "a.py"}), True))
    answer = await ask(lab, stream=True, agent=agent)
    assert answer.message.content == READ
    why = (await lab.report())["why"]
    pattern = next(one for one in ("cline", "kilo", "roo") if one in agent.lower())
    (reason,) = [line for line in why if "user agent" in line and "text client" in line]
    assert repr(agent) in reason
    assert repr(pattern) in reason
    debug = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert any(line.startswith("vtc: ") and reason in line for line in debug)


async def test_a_client_is_recognised_by_its_prompt(start: Start) -> None:
    """Newer versions and derivatives have no distinctive user agent, but their prompt is."""
    lab = await start(replying(chat.DIALECTS["hermes"]("read_file", {"path": "a.py"}), True))
    assert (await ask(lab, stream=True, agent="node")).message.content == READ
    assert "the system prompt documents 9 tools: a text client" in (await lab.report())["why"]


async def test_a_client_that_declares_tools_is_native(start: Start) -> None:
    """This holds also under the name of a text client, and with a similar prompt."""
    lab = await start(replying(chat.DIALECTS["tag"]("read", {"filePath": "/a"}), True))
    body = request(stream=True, system=CLINE.replace("path", "filePath")) | {"tools": chat.TOOLS}
    assert (await ask(lab, body)).message.calls == [("read", {"filePath": "/a"})]
    assert "the request has 3 tools; calls go back as `tool_calls`" in (await lab.report())["why"]


@STREAM
async def test_unknown_client_is_ignored(stream: bool, start: Start) -> None:
    """No byte changes, and the report states the reason."""
    reply = replying(f"{chat.DIALECTS['hermes']('read_file', {'path': 'a.py'})} {READ}", stream)
    lab = await start(reply)
    body = request(stream=stream, system="You are kind.")
    answer = await ask(lab, body, agent="node")
    assert answer.body == b"".join(reply.pieces)  # type: ignore[arg-type]
    assert lab.upstream.seen[0].body == chat.encode_json(body)
    (reason,) = [line for line in (await lab.report())["why"] if "declares no tools" in line]
    assert all(part in reason for part in ("'node'", "'cline'", "'kilo'", "'roo'", "documents no tools"))


@STREAM
async def test_no_patterns_turn_the_recognition_off(stream: bool, start: Start) -> None:
    """This disables recognition by name and by prompt."""
    reply = replying(chat.DIALECTS["hermes"]("read_file", {"path": "a.py"}), stream)
    lab = await start(reply, vtc_client_patterns=[])
    assert (await ask(lab, stream=stream)).body == b"".join(reply.pieces)  # type: ignore[arg-type]
    assert any("vtc_client_patterns is empty" in line for line in (await lab.report())["why"])


async def test_patterns_of_ones_own(start: Start) -> None:
    """The list is an option that can change during a run."""
    lab = await start(replying(chat.DIALECTS["hermes"]("read_file", {"path": "a.py"}), True))
    lab.set(vtc_client_patterns=["MyAgent"])
    assert (await ask(lab, stream=True, agent="myagent/1")).message.content == READ
    assert any("'MyAgent'" in line for line in (await lab.report())["why"])


@STREAM
async def test_prompt_without_tools_is_unchanged(stream: bool, start: Start) -> None:
    """A client's side requests (for a title, a summary) have no tools."""
    reply = replying(READ, stream)
    lab = await start(reply, vtc_tools="native")
    body = request(stream=stream, system="Make a title of at most five words.")
    assert (await ask(lab, body)).body == b"".join(reply.pieces)  # type: ignore[arg-type]
    assert lab.upstream.seen[0].body == chat.encode_json(body)
    assert any("no tools are found in its prompt" in line for line in (await lab.report())["why"])


@STREAM
async def test_calls_of_the_servers_own_reach_a_client_whose_prompt_documents_no_tools(
    stream: bool, start: Start
) -> None:
    lab = await start(calling(stream, ("read_file", {"path": "a.py"}), content="I look."))
    body = request(stream=stream, system="You are an agent with tools of your own.")
    message = (await ask(lab, body, agent="Cline/3.82.0")).message
    assert (message.content, message.calls) == (f"I look.\n\n{READ}", [])


# The same dialect on both sides


FINE = {
    "one call": READ,
    "text before": f"I will look.\n\n{READ}",
    "text after": f"{READ}\n\nThat is all. ",
    "white space after": f"I will.\n{READ}\n\n",
    "white space before": f"\n\n{READ}",
    "no white space": "Look:<read_file><path>a.py</path></read_file>",
    "no call": "I wonder. < `x` <div>",
    "in code": f"```xml\n{READ}\n```\nand `{READ}`",
    "never closed, cut off": "I will.\n\n<read_file>\n<path>a",
    "unknown tool": "<rm>\n<path>a</path>\n</rm>",
    "unknown parameter": "<read_file>\n<file>a</file>\n</read_file>",
    "file content": "<write_to_file>\n<path>a</path>\n<content>\n# T\n</content>\n<read_file>\n</path>\n</content>\n"
    "</write_to_file>",
    "diff": "<replace_in_file>\n<path>a</path>\n<diff>\n------- SEARCH\na\n=======\n</diff>\n+++++++ REPLACE\n</diff>\n"
    "<task_progress>\n- [x] a\n- [ ] b\n</task_progress>\n</replace_in_file>",
    "MCP": '<use_mcp_tool>\n<server_name>w</server_name>\n<tool_name>f</tool_name>\n<arguments>\n{\n  "a": "\\u00e9",\n'
    '  "n": [1.50]\n}\n</arguments>\n</use_mcp_tool>',
    "tool without parameters": "<show_help>\n</show_help>",
    "thinking": f"<thinking>Is it <path>?</thinking>\n\n{READ}",
}


@STREAM
async def test_a_reply_whose_calls_are_fine_is_byte_identical(stream: bool, start: Start) -> None:
    replies = {name: replying(text, stream, "length" if "cut off" in name else "stop") for name, text in FINE.items()}
    lab = await start(by_turn(*replies.values()))
    body = request(stream=stream)
    for name, reply in replies.items():
        assert (await ask(lab, body)).body == b"".join(reply.pieces), name  # type: ignore[arg-type]
        assert lab.upstream.seen[-1].body == chat.encode_json(body)


async def test_fine_calls_are_byte_identical_however_their_frames_are_cut(start: Start) -> None:
    """If markup begins in the middle of a frame, the text before it has been sent already; the text is the same."""
    text = f"I will look. \n\n{FINE['file content']}\n\nDone.\n"
    words = [text[:12], text[12:15], *text[15:].splitlines(keepends=True)]
    cuts = [[text[:at], text[at:]] for at in range(1, len(text), 3)]
    lab = await start(
        by_turn(chat.make_stream(*words), chat.make_stream(text), *(chat.make_stream(*cut) for cut in cuts))
    )
    assert (await ask(lab, stream=True)).body == b"".join(chat.make_stream(*words))
    assert (await ask(lab, stream=True)).body == b"".join(chat.make_stream(text))
    for cut in cuts:
        assert await read_client_text(lab, stream=True) == text, cut


MENDED = {
    "I will.\n\n<read_file>\n<path>a.py</path>\n": f"I will.\n\n{READ}",
    "<Read_File>\n<path>a.py</path>\n</Read_File>": READ,
    "<functions.read_file>\n<path>a.py</path>\n</functions.read_file>": READ,
    '<read_file>\n{"path": "a.py"}\n</read_file>': READ,
    f"{READ}\n\nOne more: <LIST_FILES><path>.</path></LIST_FILES>.": f"{READ}\n\nOne more:\n\n{LIST}.",
}


@STREAM
async def test_call_that_the_client_cannot_read_is_rendered_again(stream: bool, tmp_path: Path, start: Start) -> None:
    replies = [replying(text, stream) for text in MENDED]
    lab = await start(by_turn(*replies), vtc_profiles=write_profiles(tmp_path, client=client()))
    for expected in MENDED.values():
        assert await read_client_text(lab, stream=stream) == expected


@STREAM
async def test_of_several_calls_a_one_call_client_gets_the_first_and_a_note(stream: bool, start: Start) -> None:
    lab = await start(replying(f"Both.\n\n{READ}\n\n{LIST}", stream))
    assert await read_client_text(lab, stream=stream) == f"Both.\n\n{READ}{NO_MORE.format('list_files')}"
    report = await lab.report()
    assert [call["name"] for call in report["calls"]] == ["read_file"]
    assert [(one["policy"], one["tool"], one["reason"]) for one in report["policies"]] == [
        ("max_calls", "list_files", "only 1 call a reply")
    ]


REFUSED = {
    '<tool_call>{"name": "read_file", "arguments": {no}}</tool_call>': "not JSON",
    '<tool_call>{"name": "rm", "arguments": {}}</tool_call>': "no tool 'rm' is offered",
    "<read_file>\n<b>Which one?</b>\n</read_file>": "no parameter follows the opening tag",
}


async def test_reason_of_an_unread_call_is_reported(start: Start) -> None:
    """Text that resembles a call stays text, and the report states the reason."""
    lab = await start(by_turn(*(chat.make_stream(text) for text in REFUSED)))
    for text, reason in REFUSED.items():
        assert await read_client_text(lab, stream=True) == text
        assert reason in (await lab.report())["refusals"][0]["reason"]


async def test_a_call_that_is_too_long_is_text(start: Start) -> None:
    """The limit is an option, and the report states the reason."""
    text = chat.DIALECTS["hermes"]("write_to_file", {"path": "a", "content": "x" * 3_000})
    lab = await start(replying(text, True), vtc_max_call_bytes=1_000)
    assert await read_client_text(lab, stream=True) == text
    assert "longer than 1000 bytes" in (await lab.report())["refusals"][0]["reason"]


# A model that writes another dialect


async def test_no_markup_of_another_dialect_is_ever_shown(start: Start) -> None:
    """Text is sent as it arrives; two newlines separate the call, however the reply was cut."""
    for dialect in ("hermes", "invoke", "qwen3-coder", "tools-tag"):
        text = "I will check.\n" + chat.DIALECTS[dialect]("list_files", {"path": "."})
        cuts = [[text[:at], text[at:]] for at in range(1, len(text), 7)]
        lab = await start(by_turn(*(chat.make_stream(*cut) for cut in cuts), chat.make_stream(*text)))
        for _ in range(len(cuts) + 1):
            assert await read_client_text(lab, stream=True) == f"I will check.\n\n{LIST}"


@pytest.mark.parametrize("dialect", chat.DIALECTS)
async def test_a_call_in_another_dialect_becomes_the_clients_own(dialect: str, start: Start) -> None:
    text = "I will look.\n\n" + chat.DIALECTS[dialect]("read_file", {"path": "a.py"})
    lab = await start(by_turn(*(replying(text, stream) for stream in BOTH_WAYS)), vtc_dialect=dialect)
    for stream in BOTH_WAYS:
        assert await read_client_text(lab, stream=stream) == f"I will look.\n\n{READ}"
        report = await lab.report()
        read_as = "cline" if dialect == "tag" else dialect  # both have the same text
        assert [(call["name"], call["dialect"]) for call in report["calls"]] == [("read_file", read_as)]
        assert report["form"] == "cline"


@STREAM
async def test_text_behind_a_call_stays_apart_from_it(stream: bool, start: Start) -> None:
    call = chat.DIALECTS["hermes"]("read_file", {"path": "a.py"})
    lab = await start(replying(f"One.{call}\n\nTwo.\n", stream))
    assert await read_client_text(lab, stream=stream) == f"One.\n\n{READ}\n\nTwo.\n"


SPECIAL: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "closers in a file": (
        CLINE,
        "write_to_file",
        {"path": "a.html", "content": "<p>\n</content>\n</path>\n&lt; \u2028 é😀\n\\n"},
        "<write_to_file>\n<path>a.html</path>\n<content>\n<p>\n</content>\n</path>\n&lt; \u2028 é😀\n\\n\n</content>\n"
        "</write_to_file>",
    ),
    "SEARCH/REPLACE": (
        CLINE,
        "replace_in_file",
        {"path": "a", "diff": "------- SEARCH\na\n=======\nb\n+++++++ REPLACE", "task_progress": "- [x] a\n- [ ] b"},
        "<replace_in_file>\n<path>a</path>\n<diff>\n------- SEARCH\na\n=======\nb\n+++++++ REPLACE\n</diff>\n"
        "<task_progress>\n- [x] a\n- [ ] b\n</task_progress>\n</replace_in_file>",
    ),
    "MCP": (
        CLINE,
        "use_mcp_tool",
        {"server_name": "w", "tool_name": "f", "arguments": {"city": "Graz", "days": 5, "x": None}},
        "<use_mcp_tool>\n<server_name>w</server_name>\n<tool_name>f</tool_name>\n"
        '<arguments>{"city": "Graz", "days": 5, "x": null}</arguments>\n</use_mcp_tool>',
    ),
    "typed": (
        CLINE,
        "read_file",
        {"path": "a", "start_line": 3},
        "<read_file>\n<path>a</path>\n<start_line>3</start_line>\n</read_file>",
    ),
    "nested": (
        ROO,
        "read_file",
        {"args": "<file>\n  <path>a</path>\n</file>\n<file>\n  <path>b</path>\n</file>"},
        "<read_file>\n<args>\n<file>\n  <path>a</path>\n</file>\n<file>\n  <path>b</path>\n</file>\n</args>\n"
        "</read_file>",
    ),
    "todo list": (
        ROO,
        "update_todo_list",
        {"todos": "[x] a\n[-] b\n[ ] c"},
        "<update_todo_list>\n<todos>\n[x] a\n[-] b\n[ ] c\n</todos>\n</update_todo_list>",
    ),
}


@STREAM
async def test_special_bodies_reach_the_client_as_it_reads_them(stream: bool, start: Start) -> None:
    """Values are raw, from Hermes and from native calls."""
    replies = []
    for _, tool, arguments, _ in SPECIAL.values():
        hermes = f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"
        replies += [replying(hermes, stream), calling(stream, (tool, arguments))]
    lab = await start(by_turn(*replies))
    for name, (system, _, _, xml) in SPECIAL.items():
        for _ in range(2):
            answer = await ask(lab, request(stream=stream, system=system))
            assert answer.message == chat.Read(xml, finish_reason="stop"), name


# Prompt and history in the dialect of the model


HISTORY = [
    make_user_message("<task>\nLook.\n</task>", "<environment_details>x</environment_details>"),
    assistant(f"I will look.\n\n{READ}"),
    make_user_message(
        "[read_file for 'a.py'] Result:\n1 | moose </read_file>", "<environment_details>y</environment_details>"
    ),
]


@STREAM
async def test_prompt_and_history_are_translated(stream: bool, start: Start) -> None:
    call = chat.DIALECTS["hermes"]("list_files", {"path": "."})
    lab = await start(replying(call, stream), vtc_tools="prompt", vtc_dialect="hermes")
    answer = await ask(lab, request(*HISTORY, stream=stream, temperature=0))
    assert answer.message.content == LIST
    sent = lab.upstream.seen[0].json
    assert {key: value for key, value in sent.items() if key != "messages"} == {
        "model": chat.MODEL,
        "stream": stream,
        "temperature": 0,
    }
    system, question, own, result = sent["messages"]
    for gone in ("# Tool Use Formatting", "<read_file>\n", "<execute_command>", "using the XML format"):
        assert gone not in system["content"]
    assert "# Tools\n\nUse make and ruff here, no other tools." in system["content"]
    assert system["content"].count('"type": "function"') == 9
    assert '<tool_call>\n{"name": "execute_command", "arguments": {"command": "make build"' in system["content"]
    assert question == HISTORY[0]
    assert own == assistant("I will look.\n\n" + chat.DIALECTS["hermes"]("read_file", {"path": "a.py"}))
    told_back = "<tool_response>\n1 | moose </read_file>\n</tool_response>\n\n"
    assert result == make_user_message(told_back, "<environment_details>y</environment_details>")


async def test_models_profile_defines_the_form_of_the_report(tmp_path: Path, start: Start) -> None:
    lab = await start(
        replying(chat.DIALECTS["invoke"]("read_file", {"path": "a.py"}), True),
        vtc_profiles=write_profiles(tmp_path, model=model(tools="prompt", dialect="invoke")),
    )
    assert await read_client_text(lab, stream=True) == READ
    prompt = lab.upstream.seen[0].json["messages"][0]["content"]
    assert 'like this:\n<function_calls>\n<invoke name="' in prompt
    assert '">...</parameter>\n</invoke>\n</function_calls>' in prompt


async def test_the_models_own_way_and_the_clients_are_both_read(start: Start) -> None:
    """The client's own reminders can make a model write the client's XML."""
    lab = await start(replying(READ, True), vtc_tools="prompt", vtc_dialect="hermes")
    assert await read_client_text(lab, stream=True) == READ


# A model with native tools


@STREAM
@pytest.mark.parametrize("by", ["profile", "option"])
async def test_a_model_with_native_tools_is_given_them(by: str, stream: bool, tmp_path: Path, start: Start) -> None:
    promoting: dict[str, Any] = {"vtc_tools": "native"}
    if by == "profile":
        promoting = {"vtc_profiles": write_profiles(tmp_path, model=model(promote=True))}
    lab = await start(calling(stream, ("list_files", {"path": "."}), content="I will check."), **promoting)
    answer = await ask(lab, request(*HISTORY, stream=stream))
    assert answer.message == chat.Read(f"I will check.\n\n{LIST}", finish_reason="stop")
    sent = lab.upstream.seen[0].json
    assert [tool["function"]["name"] for tool in sent["tools"]][:3] == ["execute_command", "read_file", "write_to_file"]
    read_file = sent["tools"][1]["function"]["parameters"]
    assert (read_file["required"], read_file["properties"]["start_line"]["type"]) == (["path"], "integer")
    system, question, own, result, details = sent["messages"]
    assert "<read_file>" not in system["content"]
    assert "<execute_command>" not in system["content"]
    assert question == HISTORY[0]
    (made,) = own.pop("tool_calls")
    assert own == assistant("I will look.")
    assert made["function"] == {"name": "read_file", "arguments": '{"path":"a.py"}'}
    assert result == {"role": "tool", "tool_call_id": made["id"], "content": "1 | moose </read_file>"}
    assert details == make_user_message("<environment_details>y</environment_details>")
    assert (await lab.report())["request"] == ["9 tools -> `tools`"]


async def test_ids_and_prompt_stay_the_same_while_the_conversation_grows(start: Start) -> None:
    """Prompt caches work because each request begins with the one before."""
    turns = [*HISTORY, assistant(READ), make_user_message("[read_file for 'a.py'] Result:\nsame"), assistant(LIST)]
    turns.append(
        make_user_message("[list_files for '.'] Result:", "a.py", {"type": "image_url", "image_url": {"url": "x"}})
    )
    lab = await start(lambda _: replying("Hm.", False), vtc_tools="native")
    for count in (1, 3, 5, 7):
        await ask(lab, request(*turns[:count]))
    first, *others = (seen.json for seen in lab.upstream.seen)
    for one, other in zip([first, *others], others):  # noqa: B905 - each with the next
        assert other["tools"] == one["tools"]
        assert other["messages"][: len(one["messages"])] == one["messages"]
    *_, result, picture = others[-1]["messages"]
    assert (result["role"], result["content"]) == ("tool", "a.py")
    assert [part["type"] for part in picture["content"]] == ["image_url"]


@pytest.mark.parametrize("form", ["parts", "messages"])
async def test_a_prompt_in_several_parts(form: str, start: Start) -> None:
    """One part contains tools, others examples and rules; parts without tools stay unchanged."""
    at = [CLINE.index(mark) for mark in ("# Tools\n", "# Tool Use Examples", "====\n\nRULES")]
    pieces = [CLINE[i:j] for i, j in zip([0, *at], [*at, None], strict=True)]
    body = request(system=[{"type": "text", "text": piece} for piece in pieces])
    if form == "messages":
        body["messages"][:1] = [{"role": "system", "content": piece} for piece in pieces]
    lab = await start(lambda _: calling(False, ("read_file", {"path": "a.py"})), vtc_tools="native")
    assert (await ask(lab, body)).message.content == READ
    sent = lab.upstream.seen[0].json
    assert len(sent["tools"]) == 9
    parts = sent["messages"][0]["content"] if form == "parts" else sent["messages"][:-1]
    texts = [part["text"] if form == "parts" else part["content"] for part in parts]
    assert all(texts), "servers refuse empty texts"
    assert "<read_file>" not in "".join(texts)
    assert "# Tool Use Examples" not in "".join(texts)
    assert texts[-1] == pieces[-1]


async def test_a_system_message_of_tools_alone_is_gone_without_them(start: Start) -> None:
    tools = CLINE[CLINE.index("# Tools\n") : CLINE.index("# Tool Use Examples")]
    body = request(system="Be kind.")
    body["messages"].insert(1, {"role": "system", "content": tools})
    lab = await start(lambda _: replying("Yes.", False), vtc_tools="native")
    await ask(lab, body)
    messages = lab.upstream.seen[0].json["messages"]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"] == "Be kind."


async def test_denials_errors_and_missing_results(start: Start) -> None:
    turns = [
        assistant(READ),
        make_user_message(
            "[read_file for 'a.py'] Result:\nThe user denied this operation.", "<feedback>Why?</feedback>"
        ),
        assistant("Because."),
        make_user_message(f"[ERROR] No tool was used. Write:\n\n{LIST}"),
        assistant(LIST),
        {"role": "user", "content": "Never mind."},
    ]
    lab = await start(lambda _: replying("Fine.", False), vtc_tools="native")
    await ask(lab, request(*turns))
    _, first, denied, feedback, because, error, second, missing, last = lab.upstream.seen[0].json["messages"]
    assert denied["tool_call_id"] == first["tool_calls"][0]["id"]
    assert denied["content"] == "The user denied this operation."
    assert (feedback, because, error) == (make_user_message("<feedback>Why?</feedback>"), turns[2], turns[3])
    assert missing["tool_call_id"] == second["tool_calls"][0]["id"]
    assert missing["content"] == "(no result)"
    assert last == turns[-1]


# Native calls in the reply, requested or not


@STREAM
async def test_native_calls_are_given_as_text(stream: bool, start: Start) -> None:
    """This includes servers that parse on their own; the calls follow the content as separate paragraphs."""
    lab = await start(by_turn(*(calling(stream, ("list_files", {"path": "."}), content=text) for text in SAYINGS)))
    for content, expected in SAYINGS.items():
        assert await read_client_text(lab, stream=stream) == expected, content


SAYINGS: dict[str | None, str] = {
    "I will check.": f"I will check.\n\n{LIST}",
    "I will check.\n": f"I will check.\n\n{LIST}",
    "I will check.\n\n": f"I will check.\n\n{LIST}",
    None: LIST,
    "": LIST,
}


@STREAM
async def test_the_gap_before_a_call_is_a_setting(stream: bool, tmp_path: Path, start: Start) -> None:
    """The setting is a number of newlines."""
    replies = [calling(stream, ("list_files", {"path": "."}), content=content) for content in ("One.", "Two.\n")]
    lab = await start(by_turn(*replies), vtc_profiles=write_profiles(tmp_path, client=client(call_gap=1)))
    assert [await read_client_text(lab, stream=stream) for _ in range(2)] == [f"One.\n{LIST}", f"Two.\n{LIST}"]


BOTH = [("read_file", {"path": "a.py"}), ("list_files", {"path": "."})]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_calls": 1}, f"Both.\n\n{READ}{NO_MORE.format('list_files')}"),
        ({"max_calls": 1, "extra_calls": "drop"}, f"Both.\n\n{READ}"),
        ({}, f"Both.\n\n{READ}\n\n{LIST}"),
    ],
    ids=["note", "drop", "all"],
)
async def test_parallel_calls_reach_the_client_in_the_form_of_its_profile(
    settings: chat.Json, expected: str, tmp_path: Path, start: Start
) -> None:
    """Their pieces alternate and are distinguished by index."""
    replies = [calling(stream, *BOTH, content="Both.") for stream in BOTH_WAYS]
    lab = await start(by_turn(*replies), vtc_profiles=write_profiles(tmp_path, client=client(**settings)))
    for stream in BOTH_WAYS:
        assert await read_client_text(lab, stream=stream) == expected


STREAMS: dict[str, tuple[list[bytes], str]] = {
    "a name in pieces": (
        calls_in_pieces(
            [chat.native(0, id="a", name="read_")],
            [chat.native(0, name="file", arguments="")],
            [chat.native(0, arguments='{"path":')],
            [chat.native(0, arguments='"a.py"}')],
        ),
        READ,
    ),
    "no ids": (
        calls_in_pieces(
            [chat.native(1, name="list_files", arguments='{"path":"."}')], [chat.native(0, name="read_file")]
        )[:-2]
        + calls_in_pieces([chat.native(0, arguments='{"path":"a.py"}')])[1:],
        f"{LIST}\n\n{READ}",  # each at its own end
    ),
    "content and calls in one chunk": (
        [
            chat.chunk(
                {
                    "role": "assistant",
                    "content": "I will.",
                    "tool_calls": [chat.native(0, id="a", name="read_file", arguments='{"path":"a.py"}')],
                },
                "tool_calls",
            ),
            chat.DONE,
        ],
        f"I will.\n\n{READ}",
    ),
    "two calls in one chunk": (
        calls_in_pieces(
            [
                chat.native(0, id="a", name="read_file", arguments='{"path":"a.py"}'),
                chat.native(1, id="b", name="list_files", arguments='{"path":"."}'),
            ]
        ),
        f"{READ}\n\n{LIST}",
    ),
    "no index": (
        calls_in_pieces(
            [{"id": "a", "type": "function", "function": {"name": "read_file", "arguments": '{"path":'}}],
            [{"function": {"arguments": '"a.py"}'}}],
            [{"id": "b", "type": "function", "function": {"name": "list_files", "arguments": '{"path":"."}'}}],
        ),
        f"{READ}\n\n{LIST}",
    ),
    "no index in one chunk": (
        calls_in_pieces(
            [
                {"index": None, "function": {"name": "read_file", "arguments": '{"path":"a.py"}'}},
                {"index": None, "function": {"name": "list_files", "arguments": '{"path":"."}'}},
            ]
        ),
        f"{READ}\n\n{LIST}",
    ),
    "escapes": (
        calls_in_pieces(
            [chat.native(0, id="a", name="read_file", arguments='{"path":"a\\n\\u00e9\\ud8')],
            [chat.native(0, arguments='3d\\ude00.py"}')],
        ),
        "<read_file>\n<path>\na\né😀.py\n</path>\n</read_file>",
    ),
    "a line break that is not escaped": (
        calls_in_pieces([chat.native(0, id="a", name="read_file", arguments='{"path":"a\nb",}')]),
        "<read_file>\n<path>\na\nb\n</path>\n</read_file>",
    ),
    "arguments as an object": (
        calls_in_pieces([{"index": 0, "id": "a", "function": {"name": "read_file", "arguments": {"path": "é"}}}]),
        "<read_file>\n<path>é</path>\n</read_file>",
    ),
    "no arguments": (calls_in_pieces([chat.native(0, id="a", name="show_help")]), "<show_help>\n</show_help>"),
    "null for what is not given": (
        calls_in_pieces(
            [chat.native(0, id="a", name="read_file", arguments='{"path":"a.py","start_line":null,"why":"x"}')]
        ),
        READ,
    ),
    "a name with a prefix": (
        calls_in_pieces([chat.native(0, id="a", name="functions.read_file", arguments='{"path":"a.py"}')]),
        READ,
    ),
    "the same call in the text": (
        [
            chat.ROLE,
            *chat.make_text_chunks(READ),
            *calls_in_pieces([chat.native(0, id="a", name="read_file", arguments='{"path": "a.py"}')])[1:],
        ],
        READ,
    ),
    "a role in every chunk": (
        [
            chat.chunk(
                {"role": "assistant", "tool_calls": [chat.native(0, id="a", name="read_file", arguments='{"path":')]}
            ),
            chat.chunk({"role": "assistant", "tool_calls": [chat.native(0, id="a", arguments='"a.py"}')]}),
            chat.STOP,
            chat.DONE,
        ],
        READ,
    ),
}


async def test_calls_that_are_streamed_in_any_way_become_text(tmp_path: Path, start: Start) -> None:
    replies = [frames for frames, _ in STREAMS.values()]
    lab = await start(by_turn(*replies), vtc_profiles=write_profiles(tmp_path, client=client()))
    for name, (_, expected) in STREAMS.items():
        assert await read_client_text(lab, stream=True) == expected, name


async def test_missing_id_is_given(start: Start) -> None:
    """Text has no ids, so the report's id is generated from the exchange, always the same."""
    lab = await start(calls_in_pieces([chat.native(0, name="read_file", arguments='{"path":"a.py"}')]))
    await ask(lab, stream=True)
    (call,) = (await lab.report())["calls"]
    assert call["id"].startswith("call_")


CALL = [
    chat.ROLE,
    *chat.make_text_chunks("I will."),
    *calls_in_pieces([chat.native(0, id="a", name="read_file", arguments='{"path":"a.py"}')], end=())[1:],
]
ENDS: dict[str, Reply] = {
    "finish reason and [DONE]": Reply([*CALL, chat.chunk({}, "tool_calls"), chat.DONE]),
    "finish reason in the last delta": Reply(
        [*CALL[:-1], CALL[-1].replace(b'"finish_reason": null', b'"finish_reason": "tool_calls"'), chat.DONE]
    ),
    "finish reason without [DONE]": Reply([*CALL, chat.chunk({}, "tool_calls")]),
    "[DONE] without finish reason": Reply([*CALL, chat.DONE]),
    "neither": Reply(CALL),
    "closed": Reply(CALL, framing="close"),
    "closed in a frame": Reply([*CALL, b'data: {"choices": [{"ind'], framing="close"),
}


async def test_every_end_of_a_stream_delivers_complete_calls(start: Start) -> None:
    lab = await start(by_turn(*ENDS.values()))
    for name, reply in ENDS.items():
        answer = await ask(lab, stream=True)
        # An incomplete event of the server stays incomplete, after all others: every client of events ignores it.
        body = answer.body.removesuffix(b'data: {"choices": [{"ind')
        assert chat.read(body) == chat.Read(f"I will.\n\n{READ}", finish_reason="stop"), name
        assert answer.body.endswith(chat.DONE) is (chat.DONE in reply.pieces), name  # type: ignore[operator]


async def test_broken_connection_has_no_side_effects(start: Start) -> None:
    """All sent text has arrived, and the next stream starts with new state."""
    broken = Reply(chat.make_stream("I will.", "\n\n<read_file>\n<pa")[:3], cut=True)
    lab = await start(by_turn(broken, replying(READ, True)))
    with pytest.raises(Exception, match="peer closed connection"):
        await ask(lab, stream=True)
    assert await read_client_text(lab, stream=True) == READ


@STREAM
async def test_truncated_call_is_reported_in_text(stream: bool, start: Start) -> None:
    """An incomplete call is not delivered, but its text is kept; a complete call before it is delivered."""
    ends = {"length": "length", "tool_calls": "stop"}
    half = ("list_files", '{"path": "sr')
    lab = await start(by_turn(*(calling(stream, BOTH[0], half, content="Both.", finish=reason) for reason in ends)))
    for expected in ends.values():
        answer = await ask(lab, stream=stream)
        content = f"Both.\n\n{READ}\n\nThe call of `list_files` could not be read: {half[1]}"
        assert answer.message == chat.Read(content, finish_reason=expected)
        (refusal,) = (await lab.report())["refusals"]
        assert (refusal["name"], refusal["excerpt"]) == half


async def test_arguments_are_repaired_only_on_request(start: Start) -> None:
    frames = calls_in_pieces([chat.native(0, id="a", name="read_file", arguments='{"path":"a\nb"}')])
    lab = await start(lambda _: Reply(frames))
    await ask(lab, stream=True)
    assert (await lab.report())["calls"][0]["repairs"] == ["json-control-character"]
    lab.set(vtc_lenient="off")
    assert await read_client_text(lab, stream=True) == 'The call of `read_file` could not be read: {"path":"a\nb"}'


@STREAM
async def test_a_call_without_a_name_is_not_delivered(stream: bool, start: Start) -> None:
    lab = await start(calling(stream, ("", {"path": "."}), content="Hm."))
    assert await read_client_text(lab, stream=stream) == 'Hm.{"path": "."}'  # its content is text
    assert "no name" in (await lab.report())["refusals"][0]["reason"]


@STREAM
async def test_native_deltas_keep_their_bytes_for_a_native_client(stream: bool, start: Start) -> None:
    reply = calling(stream, *BOTH, content="Both.")
    lab = await start(reply)
    body = request(stream=stream) | {"tools": chat.TOOLS}
    assert (await ask(lab, body)).body == b"".join(reply.pieces)  # type: ignore[arg-type]


# Concurrency


async def test_two_streams_of_one_client_never_mix(start: Start) -> None:
    """One stream uses Hermes, one native calls; their pieces alternate."""
    gate = asyncio.Barrier(2)
    hermes = chat.DIALECTS["hermes"]("read_file", {"path": "one"})
    native = json.dumps({"path": "two"})
    first = [chat.ROLE, *chat.make_text_chunks(*f"First.\n\n{hermes}"), chat.STOP, chat.DONE]
    second = [
        chat.chunk({"tool_calls": [chat.native(0, id="x", name="read_file")]}),
        *chat.make_text_chunks(*"Second."),
    ]
    second += [chat.chunk({"tool_calls": [chat.native(0, arguments=char)]}) for char in native]
    second += [chat.chunk({"content": ""})] * (len(first) - len(second) - 2) + [chat.chunk({}, "tool_calls"), chat.DONE]

    def script(seen: Seen) -> Reply:
        frames = first if "one" in seen.json["messages"][-1]["content"][0]["text"] else second

        async def pieces() -> AsyncIterator[bytes]:
            for frame in frames:
                await gate.wait()
                yield frame

        return Reply(pieces())

    assert len(first) == len(second)
    lab = await start(script)
    answers = await asyncio.gather(
        *(ask(lab, request(make_user_message(which), stream=True)) for which in ("one", "two"))
    )
    assert [answer.message.content for answer in answers] == [
        f"First.\n\n{READ.replace('a.py', 'one')}",
        f"Second.\n\n{READ.replace('a.py', 'two')}",
    ]


# A whole task


def strict(form: str) -> Replies:
    """Return a model that knows one format of calls: it reads a file, and ends with the content."""

    def call(name: str, stream: bool, **arguments: str) -> Reply:
        if form == "native":
            return calling(stream, (name, arguments))
        return replying(chat.DIALECTS[form](name, arguments), stream)

    def script(seen: Seen) -> Reply:
        asked = seen.json
        knows = (
            "tools" in asked
            if form == "native"
            else chat.DIALECTS[form]("x", {})[:8] in asked["messages"][0]["content"]
        )
        if not knows or "<read_file>\\n<path>" in seen.body.decode():
            return Reply([chat.encode_json({"error": {"message": "what tools?"}})], JSON, 400)
        if len(asked["messages"]) == 2:
            return call("read_file", asked["stream"], path="a.py")
        roles = ["assistant", "tool", "user"] if form == "native" else ["assistant", "user"]
        assert [message["role"] for message in asked["messages"][2:]] == roles
        assert "moose" in json.dumps(asked["messages"][3]["content"])
        return call("attempt_completion", asked["stream"], result="It says moose.")

    return script


@pytest.mark.parametrize("form", ["native", "hermes", "invoke", "qwen3-coder"])
async def test_a_whole_task(form: str, start: Start) -> None:
    """Without the addon the model does not even learn of the tools."""
    settings = {"vtc_tools": "native"} if form == "native" else {"vtc_tools": "prompt", "vtc_dialect": form}
    lab = await start(strict(form), **settings)
    for stream in BOTH_WAYS:
        turns = [make_user_message("<task>Look.</task>")]
        first = (await ask(lab, request(*turns, stream=stream))).message.content
        assert first == READ
        turns += [assistant(first), make_user_message("[read_file for 'a.py'] Result:\nmoose", "<environment_details>")]
        last = (await ask(lab, request(*turns, stream=stream))).message.content
        assert last == "<attempt_completion>\n<result>It says moose.</result>\n</attempt_completion>"
    lab.set(vtc_mode="off")
    assert (await ask(lab)).status == 400
