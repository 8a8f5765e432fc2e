"""Policies through a real proxy: tools, calls and text; stopping loops, retries, requests without streaming."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.apis import chat
from tests.e2e.conftest import Start, by_turn
from tests.e2e.policies import BASH, BROKEN, STREAM, make_calls_reply, policies, whole, write_guards, write_policy
from tests.e2e.text_clients import AGENT, CLINE
from tests.e2e.text_clients import request as cline_request
from tests.e2e.upstream import JSON, Reply, Seen

FORM = pytest.mark.parametrize("form", ["text", "native"])
EXAMPLES = Path(__file__).parents[2] / "profiles" / "examples"

RUN = chat.tool("run", ["path"], path="string", times="integer", force="boolean")


# Tools


@STREAM
@FORM
@pytest.mark.parametrize(
    ("manner", "content"),
    [
        ("steer", "Well.\n\nNot here."),
        ("drop", "Well."),
        ("text", None),
    ],
)
async def test_a_denied_tool_is_not_called(
    manner: str, content: str | None, form: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    """A setting selects the text that replaces the call; the other call is delivered."""
    reply = make_calls_reply(form, stream, ("bash", {"command": "ls"}), ("read", {"filePath": "a"}))
    denying = write_guards(tmp_path, denied_tools=["ba*"], on_denied=manner, denied_message="Not here.")
    lab = await start(reply, vtc_profiles=denying)
    message = (await lab.post(chat.request(stream=stream, tools=[BASH, chat.READ]))).message
    assert message.calls == [("read", {"filePath": "a"})]
    assert message.finish_reason == "tool_calls"
    if content is None:
        assert message.content is not None
        assert message.content.startswith("Well.\n\n")
        assert '"name": "bash"' in message.content
    else:
        assert (message.content or "").strip() == content
    assert ("denied_tools", "refused", "bash") in await policies(lab)


@STREAM
@FORM
async def test_a_reply_of_nothing_but_a_refused_call_stops(
    form: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    reply = make_calls_reply(form, stream, ("bash", {"command": "ls"}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, denied_tools="/^BASH$/", on_denied="steer"))
    message = (await lab.post(chat.request(stream=stream, tools=[BASH, chat.READ]))).message
    assert (message.calls, message.finish_reason) == ([], "stop")
    assert "The tool `bash` may not be used here" in (message.content or "")


@STREAM
@FORM
@pytest.mark.parametrize(
    "guards",
    [
        {"allowed_tools": ["read"]},
        {"denied_tools": ["Grep"]},
        {"reactors": [{"name": "no", "when": {"tools": "*"}, "then": {"refuse": "No."}}]},
    ],
    ids=["allowed by name", "denied", "a reactor"],
)
async def test_a_tool_that_is_not_declared_is_judged_like_any_other(
    guards: dict[str, Any], form: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    reply = make_calls_reply(form, stream, ("Grep", {"pattern": "x"}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, on_denied="steer", **guards))
    assert (await lab.post(chat.request(stream=stream))).message.calls == []


@STREAM
@FORM
@pytest.mark.parametrize("guards", [{}, {"denied_tools": ["bash"]}], ids=["no policy", "a policy on another"])
async def test_a_call_of_a_tool_that_is_not_declared_reaches_the_client(
    guards: dict[str, Any], form: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    """The agent answers that there is no such tool, and continues."""
    lab = await start(
        make_calls_reply(form, stream, ("Grep", {"pattern": "x"})), vtc_profiles=write_guards(tmp_path, **guards)
    )
    message = (await lab.post(chat.request(stream=stream))).message
    assert (message.calls, message.finish_reason) == ([("Grep", {"pattern": "x"})], "tool_calls")


@pytest.mark.parametrize("tools", ["native", "prompt"])
async def test_a_denied_tool_is_not_offered(tools: str, start: Start, tmp_path: Path) -> None:
    """A `tool_choice` that requires it is removed, too."""
    lab = await start(
        chat.make_stream("Hi"), vtc_tools=tools, vtc_profiles=write_guards(tmp_path, allowed_tools=["read"])
    )
    choice = {"type": "function", "function": {"name": "bash"}}
    await lab.post(chat.request(stream=True, tools=[BASH, chat.READ], tool_choice=choice))
    sent = lab.upstream.seen[0].json
    assert "bash" not in json.dumps(sent)
    assert "read" in json.dumps(sent)


async def test_no_tools_are_declared_if_none_remains(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_guards(tmp_path, denied_tools=["*"]))
    await lab.post(chat.request(stream=True, tool_choice="auto", parallel_tool_calls=True))
    assert set(lab.upstream.seen[0].json) == {"model", "messages", "stream"}


@pytest.mark.parametrize("manner", ["text", "steer"])
@pytest.mark.parametrize("fence", [False, True])
async def test_a_client_that_reads_calls_out_of_the_text_gets_no_denied_one(
    manner: str, fence: bool, start: Start, tmp_path: Path
) -> None:
    """Such clients also execute calls in code blocks."""
    call = chat.DIALECTS["tag"]("execute_command", {"command": "rm -rf .", "requires_approval": "false"})
    content = f"So:\n```\n{call}\n```\n" if fence else f"So:\n\n{call}"
    denying = write_guards(tmp_path, denied_tools=["execute_command"], on_denied=manner)
    lab = await start(chat.make_stream(*content), vtc_profiles=denying)
    answer = await lab.post(cline_request(stream=True), headers=AGENT)
    assert "<execute_command>" not in (answer.message.content or "")
    assert "`execute_command` may not be used here" in (answer.message.content or "")
    assert "Tools that must not be used: execute_command." in json.dumps(lab.upstream.seen[0].json)


async def test_policies_apply_next_to_the_models_profile_and_only_if_they_match(start: Start, tmp_path: Path) -> None:
    mine = write_policy(tmp_path, match={"user_agent": "other*"}, guards={"denied_tools": ["read"]})
    lab = await start(lambda _: make_calls_reply("text", True, ("read", {"filePath": "a"})), vtc_profiles=mine)
    body = chat.request(stream=True, model="Qwen/Qwen2.5-7B-Instruct")
    assert (await lab.post(body)).message.calls == [("read", {"filePath": "a"})]
    assert (await lab.post(body, headers={"user-agent": "Other/1"})).message.calls == []


# Native calls that no policy changes


@pytest.mark.parametrize("on_failure", ["refuse", "pass"])
async def test_unchanged_native_calls_keep_their_content(on_failure: str, start: Start, tmp_path: Path) -> None:
    """Unknown fields are kept in VTC's own frames, or in the server's if policies may fail."""
    signed = {"index": 0, "id": "c0", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    frames = [
        chat.chunk({"role": "assistant", "content": None, "tool_calls": [{**signed, "extra_content": {"sig": "x"}}]}),
        chat.chunk({}, "tool_calls"),
        chat.USED,
        chat.DONE,
    ]
    lab = await start(frames, vtc_profiles=write_guards(tmp_path, denied_tools=["bash"], on_failure=on_failure))
    answer = await lab.post(chat.request(stream=True))
    assert (answer.message.calls, answer.message.ids) == ([("read", {})], ["c0"])
    assert b"extra_content" in answer.body
    assert (answer.body == b"".join(frames)) is (on_failure == "pass")


async def test_a_changed_native_call_keeps_the_fields_that_nobody_knows(start: Start, tmp_path: Path) -> None:
    signed = {"index": 0, "id": "c0", "type": "function", "function": {"name": "cat", "arguments": '{"filePath": "a"}'}}
    frames = [
        chat.chunk({"role": "assistant", "content": None, "tool_calls": [{**signed, "extra_content": {"sig": "x"}}]}),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ]
    renaming = [{"name": "cat", "when": {"tools": "cat"}, "then": {"rename_tool": "read"}}]
    lab = await start(frames, vtc_profiles=write_guards(tmp_path, reactors=renaming))
    answer = await lab.post(chat.request(stream=True))
    assert answer.message.calls == [("read", {"filePath": "a"})]
    assert answer.message.ids == ["c0"]
    assert b'"extra_content":{"sig":"x"}' in answer.body


# Reactors and arguments


@STREAM
@FORM
async def test_reactors_change_a_call(form: str, stream: bool, start: Start, tmp_path: Path) -> None:
    """A call of an unknown tool is read if a reactor renames it to an offered one."""
    reactors = [
        {"name": "name", "when": {"tools": ["execute"]}, "then": {"rename_tool": "run"}},
        {
            "name": "path",
            "when": {"arguments": {"file": {"exists": True}}},
            "then": {"rename_arguments": {"file": "path"}, "set_arguments": {"force": False}, "tag": "mended"},
        },
        {
            "name": "root",
            "when": {"arguments": {"path": "^/srv"}},
            "then": {"replace": [{"argument": "path", "pattern": "^/srv", "replacement": "."}], "steer": "Careful."},
        },
    ]
    reply = make_calls_reply(form, stream, ("execute", {"file": "/srv/a"}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, reactors=reactors))
    message = (await lab.post(chat.request(stream=stream, tools=[RUN]))).message
    assert message.calls == [("run", {"path": "./a", "force": False})]
    assert "Careful." in (message.content or "")
    assert [entry[:2] for entry in await policies(lab)] == [
        ("reactors.name", "changed"),
        ("reactors.path", "changed"),
        ("reactors.path", "tagged"),
        ("reactors.root", "changed"),
        ("reactors.root", "steered"),
    ]


@STREAM
@FORM
async def test_arguments_that_fit_once_they_are_typed(form: str, stream: bool, start: Start, tmp_path: Path) -> None:
    reply = make_calls_reply(form, stream, ("run", {"path": "a", "times": "3", "force": "True"}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, arguments={}))
    message = (await lab.post(chat.request(stream=stream, tools=[RUN]))).message
    assert message.calls == [("run", {"path": "a", "times": 3, "force": True})]
    if form == "text":
        (call,) = (await lab.report())["calls"]
        assert call["repairs"] == ["typed:times", "typed:force"]


@FORM
@pytest.mark.parametrize(("misfit", "delivered"), [(None, True), ("steer", False)])
async def test_arguments_that_do_not_fit(
    form: str, misfit: str | None, delivered: bool, start: Start, tmp_path: Path
) -> None:
    reply = make_calls_reply(form, True, ("run", {"times": "many"}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, arguments={"misfit": misfit}))
    message = (await lab.post(chat.request(stream=True, tools=[RUN]))).message
    assert bool(message.calls) == delivered
    assert delivered or "arguments do not fit" in (message.content or "")
    assert [entry[:2] for entry in await policies(lab)] == [("arguments", "passed" if delivered else "refused")]


async def test_a_text_client_gets_the_changed_call(start: Start, tmp_path: Path) -> None:
    content = "<read_file>\n<path>/srv/a</path>\n</read_file>"
    root = {"argument": "path", "pattern": "^/srv/"}
    reactors = [{"name": "root", "then": {"replace": [root]}}]
    lab = await start(chat.make_stream(*content), vtc_profiles=write_guards(tmp_path, reactors=reactors))
    answer = await lab.post(cline_request(stream=True), headers=AGENT)
    assert answer.message.content == "<read_file>\n<path>a</path>\n</read_file>"


# Loops


def looping(*, times: int, arguments: str = '{"filePath": "a"}') -> list[chat.Json]:
    """Return a message of the user, and the same call as often as given."""
    messages: list[chat.Json] = [{"role": "user", "content": "Go."}]
    for i in range(times):
        function = {"name": "read", "arguments": arguments}
        calls = [{"id": f"c{i}", "type": "function", "function": function}]
        messages += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{i}", "content": "x"},
        ]
    return messages


@STREAM
@pytest.mark.parametrize(
    ("loop", "times", "reason"),
    [
        ({}, 20, "20 tool calls were made"),
        ({"max_tool_messages": 3}, 3, "3 tool calls were made"),
        ({"repeated_calls": 4}, 4, "`read` was called 4 times in a row"),
    ],
)
async def test_an_agent_in_a_loop_is_stopped(
    loop: chat.Json, times: int, reason: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    """No request is forwarded; the client gets a complete reply, streamed or whole as requested."""
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_guards(tmp_path, loop=loop))

    def ask(client: openai.OpenAI) -> Any:
        messages: Any = looping(times=times)
        tools: Any = chat.TOOLS
        if not stream:
            return client.chat.completions.create(model="m", messages=messages, tools=tools).choices[0]
        with client.chat.completions.stream(model="m", messages=messages, tools=tools) as events:
            return events.get_final_completion().choices[0]

    choice = await lab.in_thread(ask)
    assert reason in choice.message.content
    assert choice.finish_reason == "stop"
    assert lab.upstream.seen == []
    assert await policies(lab) == [("loop", "stopped", "")]


async def test_calls_whose_results_change_are_no_loop(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_guards(tmp_path, loop={"repeated_calls": 3}))
    messages = looping(times=3)
    messages[4] = {**messages[4], "content": "not yet"}
    assert (await lab.post(chat.request(stream=True, messages=messages))).message.content == "Hi"
    assert await policies(lab) == []


@pytest.mark.parametrize(("times", "expected"), [(2, []), (3, [("loop", "told", "")]), (30, [("loop", "told", "")])])
async def test_repeated_calls_with_equal_results_are_reported_without_a_policy(
    times: int, expected: list[tuple[str, str, str]], start: Start
) -> None:
    """The request is forwarded unchanged."""
    lab = await start(chat.make_stream("Hi"))
    body = chat.encode_json(chat.request(stream=True, messages=looping(times=times)))
    assert (await lab.post(body)).message.content == "Hi"
    assert lab.upstream.seen[0].body == body
    assert await policies(lab) == expected


async def test_a_user_who_speaks_ends_the_loop(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_guards(tmp_path, loop={"max_tool_messages": 3}))
    messages = [*looping(times=2), {"role": "user", "content": "More."}, *looping(times=2)[1:]]
    assert (await lab.post(chat.request(stream=True, messages=messages))).message.content == "Hi"


async def test_looping_model_can_get_a_message_instead(start: Start, tmp_path: Path) -> None:
    loop = {"max_tool_messages": 3, "action": "steer"}
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_guards(tmp_path, loop=loop))
    messages = looping(times=3)
    assert (await lab.post(chat.request(stream=True, messages=messages))).message.content == "Hi"
    *before, last = lab.upstream.seen[0].json["messages"]
    assert before == messages[:-1]
    assert last["content"].startswith("x\n\n(3 tool calls were made")


async def test_replies_that_cannot_be_read_are_counted(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_guards(tmp_path, loop={"malformed_calls": 2}))
    broken = {"role": "assistant", "content": '<tool_call>\n{"name": "read", "arguments": {{{\n</tool_call>'}
    again = {"role": "user", "content": "?"}
    body = chat.request(stream=True, messages=[again, broken, again, broken, again])
    assert "2 replies in a row contained a tool call that could not be read" in (
        (await lab.post(body)).message.content or ""
    )
    body["messages"].append({"role": "assistant", "content": "Stopped."})
    assert (await lab.post(body)).message.content == "Hi"


async def test_a_text_client_is_stopped_in_its_own_form(start: Start, tmp_path: Path) -> None:
    """Text that a client appends to a result is no message of the user."""
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_guards(tmp_path, loop={"max_tool_messages": 2}))
    turns = [{"role": "user", "content": "<task>\nLook.\n</task>"}]
    for name in ("a", "b"):
        result = f"[read_file for '{name}'] Result:\nx"
        details = {"type": "text", "text": "<environment_details>\n1\n</environment_details>"}
        turns += [
            {"role": "assistant", "content": f"<read_file>\n<path>{name}</path>\n</read_file>"},
            {"role": "user", "content": [{"type": "text", "text": result}, details]},
        ]
    answer = await lab.post(cline_request(*turns, stream=True), headers=AGENT)
    content = answer.message.content or ""
    assert content.startswith("<attempt_completion>\n<result>Stopped: 2 tool calls were made")
    assert lab.upstream.seen == []
    assert "<attempt_completion>" in CLINE


# tool_choice


@STREAM
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "read"}}])
async def test_a_call_that_tool_choice_demands_is_missed(choice: Any, stream: bool, start: Start) -> None:
    """A reply without the call is reported and passes."""
    text = (
        chat.make_stream("No.") if stream else Reply([chat.encode_json(chat.completion("No."))], JSON, framing="length")
    )
    lab = await start(text)
    assert (await lab.post(chat.request(stream=stream, tool_choice=choice))).message.content == "No."
    assert [entry[:2] for entry in await policies(lab)] == [("tool_choice", "missed")]


@STREAM
@FORM
async def test_one_call_if_the_client_accepts_no_more(form: str, stream: bool, start: Start) -> None:
    """This holds for text tool calls and native tool calls."""
    lab = await start(make_calls_reply(form, stream, ("read", {"filePath": "a"}), ("read", {"filePath": "b"})))
    message = (await lab.post(chat.request(stream=stream, parallel_tool_calls=False))).message
    assert message.calls == [("read", {"filePath": "a"})]
    assert message.finish_reason == "tool_calls"


# Fields


@STREAM
async def test_fields_that_a_client_does_not_want(stream: bool, start: Start, tmp_path: Path) -> None:
    """They are removed from the top, choices, messages, deltas and usage, and so are empty lists of calls."""
    names = ["prompt_logprobs", "stop_reason", "reasoning", "prompt_tokens_details"]
    extra = {"prompt_logprobs": None, "usage": {**chat.USAGE, "prompt_tokens_details": None}}
    inner = {"reasoning": "Hm.", "tool_calls": []}
    if stream:
        frames = [
            chat.frame(
                {**chat.HEAD, **extra, "choices": [{"index": 0, "delta": {"content": "Hi", **inner}, "stop_reason": 1}]}
            ),
            chat.STOP,
            chat.DONE,
        ]
        reply: Any = frames
    else:
        body = chat.completion("Hi", message=inner, **extra)
        body["choices"][0]["stop_reason"] = None
        reply = Reply([chat.encode_json(body)], JSON, framing="length")
    lab = await start(reply, vtc_profiles=write_policy(tmp_path, response={"drop": names}))
    answer = await lab.post(chat.request(stream=stream, tools=None))
    assert answer.message.content == "Hi"
    assert not any(f'"{name}"'.encode() in answer.body for name in [*names, "tool_calls"])
    assert b'"total_tokens"' in answer.body


async def test_calls_are_never_dropped_as_a_field(start: Start, tmp_path: Path) -> None:
    reply = make_calls_reply("native", True, ("read", {"filePath": "a"}))
    lab = await start(reply, vtc_profiles=write_policy(tmp_path, response={"drop": ["tool_calls"]}))
    assert (await lab.post(chat.request(stream=True))).message.calls == [("read", {"filePath": "a"})]


async def test_fields_that_a_server_refuses(start: Start, tmp_path: Path) -> None:
    drop = ["stream_options", "messages.*.reasoning_content", "tools.*.function.strict", "messages.*.content.*.cache"]
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_policy(tmp_path, request={"drop": drop}))
    part = {"type": "text", "text": "Hi"}
    messages = [
        {"role": "user", "content": [{**part, "cache": 1}]},
        {"role": "assistant", "content": "a", "reasoning_content": "b"},
        {"role": "user", "content": "c"},
    ]
    tool = {"type": "function", "function": {**chat.READ["function"], "strict": True}}
    body = chat.request(stream=True, messages=messages, tools=[tool], stream_options={"include_usage": True})
    await lab.post(body)
    assert lab.upstream.seen[0].json == {
        **{key: value for key, value in body.items() if key != "stream_options"},
        "messages": [{"role": "user", "content": [part]}, {"role": "assistant", "content": "a"}, messages[2]],
        "tools": [chat.READ],
    }


# Requests without streaming, and retries


HERMES = chat.DIALECTS["hermes"]
TWO = "Look.\n" + HERMES("read", {"filePath": "a"}) + "\n" + HERMES("read", {"filePath": "b"})


async def test_upstream_is_asked_without_streaming(start: Start, tmp_path: Path) -> None:
    """The client gets chunks for the role, the text, each call, the finish reason, the usage, and `[DONE]`."""
    lab = await start(whole(TWO), vtc_profiles=write_policy(tmp_path, upstream_stream="never"))
    answer = await lab.post(chat.request(stream=True, stream_options={"include_usage": True}))
    sent = lab.upstream.seen[0].json
    assert (sent["stream"], "stream_options" in sent) == (False, False)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.message.calls == [("read", {"filePath": "a"}), ("read", {"filePath": "b"})]
    deltas = chat.deltas(answer.body)
    assert [sorted(delta) for delta in deltas] == [["content", "role"], ["content"], ["tool_calls"], ["tool_calls"], []]
    assert [delta["tool_calls"][0]["index"] for delta in deltas[2:4]] == [0, 1]
    *_, finish, usage, done = answer.body.split(b"\n\n")[:-1]
    assert b'"finish_reason":"tool_calls"' in finish
    assert b'"total_tokens"' in usage
    assert done == b"data: [DONE]"


async def test_a_client_that_does_not_stream_gets_json_and_without_tools_nothing_changes(
    start: Start, tmp_path: Path
) -> None:
    lab = await start(lambda seen: whole("Hi") if not seen.json["stream"] else Reply(chat.make_stream("Hi")),
                      vtc_profiles=write_policy(tmp_path, upstream_stream="never"))  # fmt: skip
    answer = await lab.post(chat.request(stream=False))
    assert answer.headers["content-type"] == "application/json"
    body = chat.encode_json(chat.request(stream=True, tools=None))
    assert (await lab.post(body)).body == b"".join(chat.make_stream("Hi"))
    assert lab.upstream.seen[1].body == body


async def test_errors_of_upstream_pass(start: Start, tmp_path: Path) -> None:
    error = Reply([b'{"error": {"message": "no"}}'], JSON, status=400, framing="length")
    lab = await start(error, vtc_profiles=write_policy(tmp_path, upstream_stream="never", retry={}))
    answer = await lab.post(chat.request(stream=True))
    assert (answer.status, answer.body) == (400, b'{"error": {"message": "no"}}')
    assert len(lab.upstream.seen) == 1


@STREAM
async def test_the_model_is_asked_again_about_a_call_that_cannot_be_read(
    stream: bool, start: Start, tmp_path: Path
) -> None:
    """The retry goes to the same server with the same credentials; the client gets only the readable reply."""
    lab = await start(by_turn(whole(BROKEN), whole(TWO)), vtc_profiles=write_policy(tmp_path, retry={}))
    key = {"authorization": "Bearer sk-1"}
    message = (await lab.post(chat.request(stream=stream), headers=key)).message
    assert [name for name, _ in message.calls] == ["read", "read"]
    assert message.content == "Look."
    first, again = lab.upstream.seen
    assert again.headers["authorization"] == "Bearer sk-1"
    assert again.json["messages"][:-2] == first.json["messages"]
    answer, question = again.json["messages"][-2:]
    assert answer == {"role": "assistant", "content": BROKEN}
    assert question["role"] == "user"
    assert "Nothing of your last reply was carried out" in question["content"]
    flow = await lab.next_client_flow()
    report = flow.metadata["vtc"]
    assert [entry["action"] for entry in report["policies"]] == ["asked"]
    assert (len(report["calls"]), report["refusals"]) == (2, [])
    assert "retry asked" in flow.comment


USAGES = [
    ("hermes", BROKEN, '<tool_call>\n{"name": "read", "arguments": {"filePath": "notes.txt"}}\n</tool_call>'),
    ("tag", "<read>\n<file>a</file>\n<b>\n</read>", "<read>\n<filePath>notes.txt</filePath>\n</read>"),
    ("qwen3-coder", "<function=read>\na b\n</function>", "<parameter=filePath>\nnotes.txt\n</parameter>"),
]


@STREAM
@pytest.mark.parametrize(("dialect", "broken", "usage"), USAGES, ids=[one[0] for one in USAGES])
async def test_a_model_that_is_prompted_is_shown_how_the_call_that_failed_is_written(
    stream: bool, dialect: str, broken: str, usage: str, start: Start, tmp_path: Path
) -> None:
    answers = by_turn(whole(broken), whole("No."))
    lab = await start(answers, vtc_profiles=write_policy(tmp_path, retry={}), vtc_tools="prompt", vtc_dialect=dialect)
    await lab.post(chat.request(stream=stream))
    question = lab.upstream.seen[1].json["messages"][-1]["content"]
    assert usage in question
    assert question.endswith("Write your call again like that, filled in.")


@STREAM
async def test_asking_again_quotes_arguments_to_the_model_and_not_in_the_report(
    stream: bool, start: Start, tmp_path: Path
) -> None:
    wrong = make_calls_reply("text", False, ("run", {"path": ["PRIVATE"]}))
    broken = whole('<tool_call>{"name": "run", "arguments": {"x": PRIVATE PRIVATE ]</tool_call>')
    checked = write_policy(tmp_path, retry={"max": 1}, guards={"arguments": {"misfit": "steer", "coerce": False}})
    for reply in (wrong, broken):
        lab = await start(by_turn(reply, reply), vtc_profiles=checked)
        await lab.post(chat.request(stream=stream, tools=[RUN]))
        assert reply is broken or "PRIVATE" in lab.upstream.seen[1].json["messages"][-1]["content"]
        flow = await lab.next_client_flow()
        assert {"asked", "exhausted"} <= {entry["action"] for entry in flow.metadata["vtc"]["policies"]}
        assert "PRIVATE" not in flow.comment
        reasons = [entry["reason"] for key in ("policies", "refusals") for entry in flow.metadata["vtc"][key]]
        assert "PRIVATE" not in json.dumps(reasons)


@pytest.mark.parametrize(
    ("second", "reasons"),
    [
        (whole(BROKEN), ["asked", "exhausted"]),
        (Reply([b"no"], JSON, status=500, framing="length"), ["failed"]),
        (Reply([b"no"], JSON, framing="length", cut=True), ["failed"]),
        (Reply([b"no"], JSON, framing="length"), ["asked", "exhausted"]),
    ],
)
async def test_first_reply_is_sent_if_a_retry_does_not_help(
    second: Reply, reasons: list[str], start: Start, tmp_path: Path
) -> None:
    lab = await start(by_turn(whole(BROKEN), second), vtc_profiles=write_policy(tmp_path, retry={"max": 1}))
    message = (await lab.post(chat.request(stream=True))).message
    assert message.content == BROKEN
    flow = await lab.next_client_flow()
    assert [entry["action"] for entry in flow.metadata["vtc"]["policies"]] == reasons
    assert len(lab.upstream.seen) == 2


async def test_asking_again_is_bounded_in_time_and_holds_up_nobody_else(start: Start, tmp_path: Path) -> None:
    """While one flow waits for its retry, other flows are processed."""
    asked, released = asyncio.Event(), asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        asked.set()
        await released.wait()
        yield b"{}"

    def script(seen: Seen) -> Reply:
        if "Nothing of your last reply" in json.dumps(seen.json):
            return Reply(late(), JSON)
        return (
            whole(BROKEN)
            if seen.json["stream"] is False and seen.json["messages"][0]["content"] == "first"
            else whole("Hi")
        )

    lab = await start(script, vtc_profiles=write_policy(tmp_path, retry={"seconds": 0.5}))
    waiting = asyncio.create_task(lab.post(chat.request("first", stream=True)))
    await asked.wait()
    assert (await lab.post(chat.request("second"))).message.content == "Hi"
    assert (await waiting).message.content == BROKEN
    released.set()


async def test_a_reply_that_was_cut_off_is_not_asked_about(start: Start, tmp_path: Path) -> None:
    lab = await start(whole(BROKEN, "length"), vtc_profiles=write_policy(tmp_path, retry={}))
    assert (await lab.post(chat.request())).message.content == BROKEN
    assert len(lab.upstream.seen) == 1


# Text


@STREAM
async def test_stray_tokens_are_taken_out_of_the_text(stream: bool, start: Start, tmp_path: Path) -> None:
    """This holds for any cut of the stream; the call between the tokens is delivered."""
    rules = [{"pattern": r"<\|im_end\|>"}, {"pattern": "colour", "replacement": "color"}]
    content = "The colour<|im_end|>.\n" + HERMES("read", {"filePath": "colour"}) + "<|im_end|>"
    reply = Reply(chat.make_stream(*content)) if stream else whole(content)
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, content=rules))
    message = (await lab.post(chat.request(stream=stream))).message
    assert message == chat.Read("The color.", "", [("read", {"filePath": "colour"})], [], "tool_calls")
    assert {entry[:2] for entry in await policies(lab)} == {("content", "dropped"), ("content", "replaced")}


async def test_text_that_no_rule_finds_keeps_its_frames_without_tools_too(start: Start, tmp_path: Path) -> None:
    frames = chat.make_stream("The ", "co", "lumn ", "is ", "<", "b>")
    lab = await start(
        frames, vtc_profiles=write_guards(tmp_path, content=[{"pattern": "colour"}, {"pattern": r"<\|x\|>"}])
    )
    assert (await lab.post(chat.request(stream=True, tools=None))).body == b"".join(frames)


# Keep-alive


async def test_a_client_hears_something_while_a_call_is_held_back(start: Start) -> None:
    """The clock advances by ten seconds with each reading."""
    call = HERMES("read", {"filePath": "a" * 40})
    lab = await start(chat.make_stream(*call), vtc_keep_alive=15)
    lab.proxy.addon.clock = itertools.count(0, 10).__next__
    answer = await lab.post(chat.request(stream=True))
    assert answer.message.calls == [("read", {"filePath": "a" * 40})]
    frames = answer.body.split(b"\n\n")
    comments = [frame for frame in frames if frame.startswith(b":")]
    assert comments
    assert set(comments) == {b": keep-alive"}
    lab.set(vtc_keep_alive=0)
    assert b": keep-alive" not in (await lab.post(chat.request(stream=True))).body


# Examples


async def test_the_examples_hold(start: Start) -> None:
    """Each file of profiles/examples has the effect that its first line states."""
    examples = [str(EXAMPLES / name) for name in ("no-deleting.yaml", "read-only.yaml", "argument-names.yaml")]
    calls = [("bash", {"command": "cd x && rm -rf y"}), ("read", {"file_path": "a"})]
    read = chat.tool("read_file", path="string")
    lab = await start(lambda seen: make_calls_reply("text", True, *calls), vtc_profiles=examples[:1])
    message = (await lab.post(chat.request(stream=True, tools=[BASH, chat.READ]))).message
    assert [name for name, _ in message.calls] == ["read"]
    assert "Deleting files is forbidden here" in (message.content or "")
    lab.set(vtc_profiles=examples[1:2])
    message = (await lab.post(chat.request(stream=True, tools=[BASH, chat.READ]))).message
    assert [name for name, _ in message.calls] == ["read"]
    lab.set(vtc_profiles=examples[2:])
    calls[:] = [("read_file", {"file_path": "a"}), ("run_shell_command", {"command": "ls"})]
    message = (await lab.post(chat.request(stream=True, tools=[BASH, read], model="my-model-7b"))).message
    assert message.calls == [("read_file", {"path": "a"}), ("bash", {"command": "ls"})]
    lab.set(vtc_profiles=[str(EXAMPLES / "stop-loops.yaml")])
    body = chat.request(stream=True, messages=looping(times=4))
    assert "4 times in a row" in ((await lab.post(body)).message.content or "")
