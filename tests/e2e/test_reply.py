"""Calls in a reply: values, types, limits, ids, and text that stays unchanged."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Start, by_turn
from tests.e2e.upstream import JSON, Reply

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def replying(text: str, stream: bool, finish: str = "stop") -> Reply:
    if stream:
        return Reply(chat.make_stream(*text, finish=finish))
    return Reply([chat.encode_json(chat.completion(text, finish))], JSON, framing="length")


def model_profile(directory: Path, **settings: Any) -> list[str]:
    """Write a model profile, and return its directory as the option `vtc_profiles` takes it."""
    profile = {"kind": "model", "name": "mine", "match": {"model": chat.MODEL}, **settings}
    (directory / "mine.yaml").write_bytes(chat.encode_json(profile))  # JSON is YAML
    return [str(directory)]


CALLED = chat.Read("Look:", "", [("read", {"filePath": "/a"})], [], "tool_calls")


@STREAM
async def test_text_and_a_call(stream: bool, start: Start) -> None:
    lab = await start(replying("Text <read><filePath>/a</filePath></read>", stream))
    message = (await lab.post(chat.request(stream=stream))).message
    assert message == chat.Read("Text", "", [("read", {"filePath": "/a"})], [], "tool_calls")


@STREAM
@pytest.mark.parametrize(
    "value",
    [
        '{\n  "name": "x",\n  "n": [1, 2]\n}',
        "  indented\n\n\nlast  ",
        "\n",
        "",
        "a </content> b </write> c <filePath>no</filePath>",
        "tab\tCR\r\nLF é😀 &amp; <![CDATA[x]]>",
        "```\nfence\n```",
        "5000",
    ],
)
async def test_values_arrive_exactly(value: str, stream: bool, start: Start) -> None:
    """The content of a file loses only the newlines that separate it from the tags."""
    framed = f"\n{value}\n" if "\n" in value else value
    text = f"<write>\n<filePath>/a</filePath>\n<content>{framed}</content>\n</write>"
    lab = await start(replying(text, stream))
    message = (await lab.post(chat.request(stream=stream))).message
    assert message.calls == [("write", {"filePath": "/a", "content": value})]


TYPED = chat.tool(
    "typed",
    required=["string"],
    string="string",
    integer="integer",
    number="number",
    boolean="boolean",
    array={"type": "array", "items": {"type": "integer"}},
    object={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    either={"anyOf": [{"type": "integer"}, {"type": "null"}]},
    choice={"enum": ["red", "5"]},
)


@STREAM
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ({"string": "5000"}, "5000"),
        ({"string": "true"}, "true"),
        ({"string": '{"a": 1}'}, '{"a": 1}'),
        ({"integer": " 42 "}, 42),
        ({"number": "-1.5e3"}, -1500.0),
        ({"boolean": "True"}, True),
        ({"array": "[1, 2]"}, [1, 2]),
        ({"array": "<item>1</item>\n<item>2</item>"}, [1, 2]),
        ({"object": '{"a": 1}'}, {"a": 1}),
        ({"object": "<a>1</a><b>1</b>"}, {"a": 1, "b": "1"}),
        ({"either": "null"}, None),
        ({"choice": "5"}, "5"),
    ],
)
async def test_types_are_taken_from_the_schema(written: dict[str, str], value: Any, stream: bool, start: Start) -> None:
    """In this dialect all values are text."""
    lab = await start(replying(chat.DIALECTS["tag"]("typed", {"string": "s", **written}), stream))
    message = (await lab.post(chat.request(stream=stream, tools=[TYPED]))).message
    ((name, arguments),) = message.calls
    (key,) = written
    assert (name, arguments[key], type(arguments[key])) == ("typed", value, type(value))


@STREAM
@pytest.mark.parametrize(
    ("text", "lenient", "message", "reason"),
    [
        ("Look: <read><filePath>/a</read>", "auto", CALLED, "missing-parameter-closer"),
        ("Look: <read><filePath>/a</path></read>", "auto", CALLED, "wrong-parameter-closer"),
        ('Look: <read>{"filePath": "/a"}</read>', "auto", CALLED, None),
        ("Look: <read><filePath>/a</read>", "off", None, "the reply ends inside it"),
        ("Look: <read><filePath>/a</read> and more", "auto", None, "the reply ends inside it"),
        ("Look: <read><filePath>/a", "auto", None, "the reply ends inside it"),
    ],
)
async def test_a_parameter_that_is_never_closed(
    text: str, lenient: str, message: chat.Read | None, reason: str | None, stream: bool, start: Start
) -> None:
    """The call is repaired if that is safe, otherwise it stays text; the report states the reason."""
    lab = await start(replying(text, stream), vtc_lenient=lenient)
    found = (await lab.post(chat.request(stream=stream))).message
    report = await lab.report()
    if message:
        assert found == message
        assert [call["repairs"] for call in report["calls"]] == [[reason] if reason else []]
    else:
        assert found == chat.Read(text, finish_reason="stop")
        assert [refusal["reason"] for refusal in report["refusals"]] == [reason]


UNOFFERED = 'Go. <tool_call>{"name": "rm", "arguments": {"path": "/"}}</tool_call>'


@STREAM
@pytest.mark.parametrize(
    ("unknown_tools", "message"),
    [
        ("text", chat.Read(UNOFFERED, finish_reason="stop")),
        ("drop", chat.Read("Go.", finish_reason="stop")),
        ("allow", chat.Read("Go.", calls=[("rm", {"path": "/"})], finish_reason="tool_calls")),
    ],
)
async def test_a_call_of_a_tool_that_is_not_offered(
    unknown_tools: str, message: chat.Read, stream: bool, start: Start, tmp_path: Path
) -> None:
    """The profile decides: it stays text, is dropped, or is delivered."""
    directories = model_profile(tmp_path, unknown_tools=unknown_tools)
    lab = await start(replying(UNOFFERED, stream), vtc_profiles=directories)
    assert (await lab.post(chat.request(stream=stream))).message == message
    report = await lab.report()
    assert report["model"] == "mine"
    if unknown_tools != "allow":
        (refusal,) = report["refusals"]
        assert "no tool 'rm' is offered" in refusal["reason"]


THREE = "\n".join(chat.DIALECTS["tag"]("read", {"filePath": path}) for path in "abc")


@STREAM
async def test_several_calls(stream: bool, start: Start) -> None:
    """All are delivered in order, with different ids."""
    lab = await start(replying(THREE, stream))
    message = (await lab.post(chat.request(stream=stream))).message
    assert message.calls == [("read", {"filePath": path}) for path in "abc"]
    assert len(set(message.ids)) == 3


@STREAM
@pytest.mark.parametrize("why", ["max_calls", "parallel_tool_calls"])
async def test_only_one_call(why: str, stream: bool, start: Start, tmp_path: Path) -> None:
    """If the profile or the request forbids more, the first call is kept and the report names the others."""
    profiles = model_profile(tmp_path, max_calls=1) if why == "max_calls" else []
    fields = {"parallel_tool_calls": False} if why == "parallel_tool_calls" else {}
    lab = await start(replying("Hi.\n" + THREE, stream), vtc_profiles=profiles)
    message = (await lab.post(chat.request(stream=stream, **fields))).message
    assert message.calls == [("read", {"filePath": "a"})]
    assert "<" not in message.content
    policies = (await lab.report())["policies"]
    assert [(one["action"], one["tool"]) for one in policies] == [("dropped", "read")] * 2
    assert ["b" in policies[0]["detail"], "c" in policies[1]["detail"]] == [True, True]


@STREAM
async def test_a_forbidden_call_is_text(stream: bool, start: Start) -> None:
    """With `tool_choice: none` nothing is read."""
    lab = await start(reply := replying(THREE, stream))
    answer = await lab.post(chat.request(stream=stream, tool_choice="none"))
    assert answer.body == b"".join(reply.pieces)  # type: ignore[arg-type]


async def test_ids_are_unique_in_the_conversation(start: Start) -> None:
    """This holds also if a model's calls have ids that it used before."""
    lab = await start(by_turn(*[chat.make_stream(THREE)] * 3))
    messages: list[Any] = [{"role": "user", "content": "x"}]
    ids: list[str] = []
    for _ in range(3):
        message = (await lab.post(chat.request(stream=True, messages=messages))).message
        ids += message.ids
        calls = [
            {"id": id_, "type": "function", "function": {"name": "read", "arguments": "{}"}} for id_ in message.ids
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": id_, "content": "x"} for id_ in message.ids]
    assert len(set(ids)) == len(ids) == 9


@STREAM
async def test_the_older_form_of_tools_passes_unread(stream: bool, start: Start) -> None:
    """These are `functions` in the request, `function_call` in the reply, and calls in the text."""
    functions = [tool["function"] for tool in chat.TOOLS]
    call = {"name": "read", "arguments": '{"filePath":"a"}'}
    pieces = [
        *chat.make_text_chunks(THREE),
        chat.chunk({"function_call": call}),
        chat.chunk({}, "function_call"),
        chat.DONE,
    ]
    whole = chat.encode_json(chat.completion(THREE, "function_call", message={"function_call": call}))
    lab = await start(Reply(pieces) if stream else Reply([whole], JSON, framing="length"))
    answer = await lab.post(chat.request(stream=stream, tools=None, functions=functions))
    assert answer.body == (b"".join(pieces) if stream else whole)


@STREAM
@pytest.mark.parametrize(
    "text",
    [
        chat.DIALECTS["hermes"]("tool_call", {"function": "x"}),
        chat.DIALECTS["tag"]("tool_call", {"function": "x"}),
        chat.DIALECTS["qwen3-coder"]("tool_call", {"function": "x"}),
    ],
)
async def test_a_tool_that_is_named_like_a_marker(text: str, stream: bool, start: Start) -> None:
    """One agent has a tool named `tool_call`; the text after the tag distinguishes the two."""
    lab = await start(replying("Go " + text, stream))
    answer = await lab.post(chat.request(stream=stream, tools=[chat.tool("tool_call", function="string")]))
    assert answer.message == chat.Read("Go", "", [("tool_call", {"function": "x"})], [], "tool_calls")


# A model with an agent that always streams


@STREAM
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'First.\n<tools>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tools>\n',
            chat.Read("First.", calls=[("read", {"filePath": "/a"})], finish_reason="tool_calls"),
        ),
        (
            '{"name": "read", "arguments": {"filePath": "/a"}}',
            chat.Read(calls=[("read", {"filePath": "/a"})], finish_reason="tool_calls"),
        ),
        (
            'Two\n{"name": "read", "arguments": {"filePath": "a"}}\n{"name": "read", "arguments": {"filePath": "b"}}\n',
            chat.Read(
                "Two", calls=[("read", {"filePath": "a"}), ("read", {"filePath": "b"})], finish_reason="tool_calls"
            ),
        ),
        (
            '{"name": "Ada", "arguments": {"filePath": "/a"}}\n{"name": "read"}\n',
            chat.Read('{"name": "Ada", "arguments": {"filePath": "/a"}}\n{"name": "read"}\n', finish_reason="stop"),
        ),
    ],
    ids=["tools tag", "one object", "an object a line", "objects that are no calls"],
)
async def test_qwen2_5(text: str, message: chat.Read, stream: bool, start: Start) -> None:
    """The model is recognized by its name, with and without streaming."""
    lab = await start(replying(text, stream))
    answer = await lab.post(chat.request(stream=stream, model="Qwen/Qwen2.5-7B-Instruct"))
    assert answer.message == message
    assert (await lab.report())["model"] == "qwen2.5"


@STREAM
async def test_reasoning_is_not_speech(stream: bool, start: Start) -> None:
    """Reasoning is sent as `reasoning_content`, and no call is read from it."""
    call = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
    lab = await start(replying(f"<think>\nI could <tool_call>{{}}</tool_call>\n</think>\n\nOK {call}", stream))
    message = (await lab.post(chat.request(stream=stream, model="qwen3:8b"))).message
    assert message == chat.Read(
        "OK", "\nI could <tool_call>{}</tool_call>\n", [("read", {"filePath": "/a"})], [], "tool_calls"
    )


@STREAM
async def test_a_reply_that_was_cut_off(stream: bool, start: Start) -> None:
    """With `finish_reason: length`, complete calls are delivered, the open call is reported, and the reason is kept."""
    text = "Go\n<read><filePath>a</filePath></read>\n<read><filePath>b"
    lab = await start(replying(text, stream, finish="length"))
    message = (await lab.post(chat.request(stream=stream))).message
    assert message.calls == [("read", {"filePath": "a"})]
    assert message.content == "Go"
    assert message.finish_reason == "length"
    (refusal,) = (await lab.report())["refusals"]
    assert (refusal["reason"], refusal["left_out"]) == ("the reply was cut off inside it", True)
    assert "<read><filePath>b" in refusal["excerpt"]


async def test_a_very_long_call_is_released_as_text(start: Start) -> None:
    """The limit is an option, and the report states that it was reached."""
    text = chat.DIALECTS["tag"]("write", {"filePath": "a", "content": "x" * 5000})
    frames = chat.make_stream(*[text[i : i + 100] for i in range(0, len(text), 100)])
    lab = await start(frames, vtc_max_call_bytes=1000)
    assert (await lab.post(chat.request(stream=True))).message == chat.Read(text, finish_reason="stop")
    assert "longer than 1000 bytes" in (await lab.report())["refusals"][0]["reason"]


# Log lines


def list_log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return VTC's log lines on exchanges at level INFO; those on models, and warnings about a slow machine, are
    excluded."""
    ours = [record for record in caplog.records if record.name.startswith("vtc.") and "startup" not in record.name]
    lines = [record.getMessage() for record in ours if record.levelno == logging.INFO]
    return [line for line in lines if not line.startswith("vtc: model ")]


async def test_report_of_a_rewritten_exchange(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vtc")
    lab = await start(chat.make_stream(*THREE), vtc_tools="prompt")
    await lab.post(chat.request(stream=True))
    flow = await lab.flow()
    summary = "vtc: read x3, tag -> tool_calls, 3 tools -> tag prompt"
    assert (flow.comment, flow.marked) == (summary.replace("vtc: ", "vtc: lab-model: "), ":hammer:")
    assert flow.metadata["vtc"]["calls"][0] == {
        "name": "read",
        "id": flow.metadata["vtc"]["calls"][0]["id"],
        "dialect": "tag",
        "repairs": [],
    }
    (line,) = list_log_lines(caplog)
    assert line.startswith(summary)
    assert "chat/completions" in line


async def test_unchanged_exchange_is_visible_only_in_the_flow_list(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vtc")
    lab = await start(chat.make_stream("Hello"))
    await lab.post(chat.request(stream=True))
    flow = await lab.flow()
    assert (flow.comment, flow.marked) == ("vtc: lab-model: nothing was changed", "")
    assert list_log_lines(caplog) == []
