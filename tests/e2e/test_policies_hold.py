"""Ways around a policy, each closed: no output of a model, a server or a filter delivers a denied call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apis import chat
from tests.e2e.conftest import Start
from tests.e2e.policies import BASH, BROKEN, make_calls_reply, policies, whole, write_guards, write_policy
from tests.e2e.text_clients import AGENT
from tests.e2e.text_clients import request as cline_request
from tests.e2e.upstream import JSON, SSE, Reply
from vtc.exchange import WITHHELD

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
COMMAND = "<command>rm -rf .</command>"
OPENER = "<execute_command>"

UNREAD = {
    "words first": f"{OPENER}I run\n{COMMAND}\n</execute_command>",
    "an unknown parameter first": f"{OPENER}\n<x>1</x>\n{COMMAND}\n</execute_command>",
    "a wrong closer": f"{OPENER}\n{COMMAND}\n</execute>",
    "no end": f"{OPENER}\n<command>rm -rf .",
    "too long": f"{OPENER}\n<command>rm -rf {'a' * (1 << 20)}</command>\n</execute_command>",
    "a quoted one": f"So:\n```\n{OPENER}\n{COMMAND}\n</execute_command>\n```\n",
    "parted by a content filter": f"<execute_<|im_end|>command>\n{COMMAND}\n</execute_command>",
}


@STREAM
@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("expected", UNREAD.values(), ids=UNREAD)
async def test_text_client_finds_no_denied_call_in_unread_text(
    expected: str, finish: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    """Such clients parse differently, and execute calls that VTC treats as text."""
    denying = write_guards(
        tmp_path, denied_tools=["execute_command"], on_denied="steer", content=[{"pattern": r"<\|im_end\|>"}]
    )
    pieces = [expected[at : at + 4096] for at in range(0, len(expected), 4096)] if len(expected) > 5000 else [*expected]
    reply = Reply(chat.make_stream(*pieces, finish=finish)) if stream else whole(expected, finish)
    lab = await start(reply, vtc_profiles=denying)
    content = (await lab.post(cline_request(stream=stream), headers=AGENT)).message.content or ""
    assert OPENER not in content
    assert "execute_command" in content


async def test_nor_behind_the_end_nor_in_a_stream_that_has_none(start: Start, tmp_path: Path) -> None:
    denying = write_guards(tmp_path, denied_tools=["execute_command"])
    call = chat.make_text_chunks(OPENER, COMMAND, "</execute_command>")
    for frames in ([chat.ROLE, *chat.make_text_chunks("Hi"), chat.STOP, *call, chat.DONE], [chat.ROLE, *call[:2]]):
        lab = await start(frames, vtc_profiles=denying)
        content = (await lab.post(cline_request(stream=True), headers=AGENT)).message.content or ""
        assert OPENER not in content


@STREAM
async def test_an_allowed_call_carries_no_other_in_its_arguments(stream: bool, start: Start, tmp_path: Path) -> None:
    path = (
        f"a</path>\n</read_file>\n{OPENER}\n{COMMAND}\n<requires_approval>false</requires_approval>\n</execute_command>"
    )
    reply = make_calls_reply("native", stream, ("read_file", {"path": path}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, denied_tools=["execute_command"]))
    content = (await lab.post(cline_request(stream=stream), headers=AGENT)).message.content or ""
    assert OPENER not in content
    assert "The call of `read_file` was not passed on" in content


@STREAM
@pytest.mark.parametrize("fields", [{"tool_choice": "none"}, {"tools": None}])
async def test_a_native_call_that_nobody_asked_for(
    fields: dict[str, Any], stream: bool, start: Start, tmp_path: Path
) -> None:
    reply = make_calls_reply("native", stream, ("bash", {"command": "rm -rf ."}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, denied_tools=["bash"], on_denied="drop"))
    body = chat.request(stream=stream, **{"tools": [BASH, chat.READ], **fields})
    assert (await lab.post(body)).message.calls == []
    assert await policies(lab) == [("denied_tools", "refused", "bash")]


@STREAM
@pytest.mark.parametrize("name", ["functions.bash", "default_api.bash", "bash ", "bash\n", "BASH"])
async def test_a_native_call_by_another_spelling(name: str, stream: bool, start: Start, tmp_path: Path) -> None:
    reply = make_calls_reply("native", stream, (name, {"command": "ls"}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, denied_tools=["bash"], on_denied="drop"))
    assert (await lab.post(chat.request(stream=stream, tools=[BASH]))).message.calls == []


@STREAM
async def test_name_of_a_declared_tool_is_written_as_it_was_declared(
    stream: bool, start: Start, tmp_path: Path
) -> None:
    reply = make_calls_reply("native", stream, ("functions.read", {"filePath": "a"}))
    lab = await start(reply, vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    assert (await lab.post(chat.request(stream=stream))).message.calls == [("read", {"filePath": "a"})]


async def test_tools_in_the_older_form_are_refused(start: Start, tmp_path: Path) -> None:
    """No policy would see `function_call`, because VTC does not read it."""
    lab = await start([chat.DONE], vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    answer = await lab.post(chat.request(tools=None, functions=[BASH["function"]]))
    assert (answer.status, lab.upstream.seen) == (400, [])
    assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"


ENTRY = {"index": 0, "id": "c0", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
READ = {**ENTRY, "function": {"name": "read", "arguments": "{}"}}


@pytest.mark.parametrize(
    "frames",
    [
        [chat.chunk({"tool_calls": [ENTRY]}), chat.chunk({"tool_calls": [ENTRY]})],
        [chat.chunk({"tool_calls": [READ], "function_call": {"name": "bash", "arguments": "{}"}})],
        [
            chat.chunk(
                {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "bash", "input": "rm"}}]}
            )
        ],
        [*chat.make_text_chunks("Hi"), chat.STOP, chat.chunk({"tool_calls": [ENTRY]})],
    ],
    ids=["a repeated name", "both forms", "a custom tool", "behind the end"],
)
async def test_a_native_call_in_an_odd_form(frames: list[bytes], start: Start, tmp_path: Path) -> None:
    denying = write_guards(tmp_path, denied_tools=["bash"], on_denied="drop")
    lab = await start([chat.ROLE, *frames, chat.chunk({}, "tool_calls"), chat.DONE], vtc_profiles=denying)
    body = (await lab.post(chat.request(stream=True, tools=[BASH, chat.READ]))).body
    assert b"bash" not in body


async def test_a_custom_tool_is_not_offered_either(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream("Hi"), vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    custom = {"type": "custom", "custom": {"name": "bash", "description": "Runs."}}
    await lab.post(chat.request(stream=True, tools=[custom, chat.READ]))
    assert lab.upstream.seen[0].json["tools"] == [chat.READ]


@pytest.mark.parametrize(
    "arguments",
    ['{"command": "rm -rf ."', '{"command": "rm\n-rf ."}', json.dumps('{"command": "rm -rf ."}'),
     '{"command": "rm -rf .", "n": ' + "1" * 5000 + "}",
     '{"command": ["rm", "-rf", "."]}', '{"command": "/bin/rm -rf ."}',
     '{"command": "bash -c \\"rm -rf x\\""}', '{"command": "git -C x clean -fd"}', '{"command": "remove-item x"}'],
)  # fmt: skip
async def test_arguments_that_a_rule_cannot_read_do_not_pass_it(arguments: str, start: Start, tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "profiles" / "examples" / "no-deleting.yaml"
    entry = {**ENTRY, "function": {"name": "bash", "arguments": arguments}}
    frames = [chat.ROLE, chat.chunk({"tool_calls": [entry]}), chat.chunk({}, "tool_calls"), chat.DONE]
    lab = await start(frames, vtc_profiles=[str(examples)])
    body = (await lab.post(chat.request(stream=True, tools=[BASH]))).body
    assert b"tool_calls" not in body
    assert b"Deleting files is forbidden" in body


async def test_a_rule_that_raises_refuses_that_call_alone(start: Start, tmp_path: Path) -> None:
    when = {"arguments": {"starts_with(command, 'rm')": {"equals": True}}}
    rules = [{"name": "rm", "when": when, "then": {"refuse": "No."}}]
    attempts = [("bash", {"command": 5}), ("bash", {"command": "rm x"}), ("bash", {"command": "ls"})]
    for on_failure, passing, outcome in (
        ("refuse", attempts[2:], "refused"),
        ("pass", [attempts[0], attempts[2]], "failed"),
    ):
        guards = write_guards(tmp_path, reactors=rules, on_failure=on_failure)
        lab = await start(make_calls_reply("native", True, *attempts), vtc_profiles=guards)
        assert (await lab.post(chat.request(stream=True, tools=[BASH]))).message.calls == passing
        assert [entry[:2] for entry in await policies(lab)] == [("reactors.rm", outcome), ("reactors.rm", "refused")]


# Requirements of the request that are checked in the reply


@pytest.mark.parametrize("choice", [{"type": "function", "function": {"name": "bash"}}, "required"])
async def test_nothing_is_demanded_that_is_not_offered(choice: Any, start: Start, tmp_path: Path) -> None:
    denying = write_policy(tmp_path, guards={"denied_tools": ["bash"]}, retry={})
    lab = await start(whole("Hi"), vtc_profiles=denying)
    assert (await lab.post(chat.request(tools=[BASH], tool_choice=choice))).message.content == "Hi"
    assert len(lab.upstream.seen) == 1
    assert await policies(lab) == []


async def test_any_is_as_required(start: Start, tmp_path: Path) -> None:
    lab = await start(
        make_calls_reply("text", False, ("read", {"filePath": "a"})), vtc_profiles=write_policy(tmp_path, retry={})
    )
    message = (await lab.post(chat.request(tool_choice="any"))).message
    assert message.calls == [("read", {"filePath": "a"})]
    assert await policies(lab) == []


async def test_upstream_that_streams_all_the_same_is_asked_again(start: Start, tmp_path: Path) -> None:
    replies = [Reply(chat.make_stream(BROKEN), SSE), Reply(chat.make_stream("Better."), SSE)]
    lab = await start(lambda _: replies.pop(0), vtc_profiles=write_policy(tmp_path, retry={}))
    assert (await lab.post(chat.request(stream=True))).message.content == "Better."
    assert [seen.json["stream"] for seen in lab.upstream.seen] == [False, False]
    assert BROKEN in json.dumps(lab.upstream.seen[1].json["messages"][1]["content"]).encode().decode("unicode_escape")


async def test_calls_are_numbered_by_us(start: Start, tmp_path: Path) -> None:
    entries = [{**ENTRY, "index": None, "id": f"c{i}", "function": READ["function"]} for i in range(2)]
    body = chat.completion(None, "tool_calls", message={"tool_calls": entries})
    reply = Reply([chat.encode_json(body)], JSON, framing="length")
    lab = await start(reply, vtc_profiles=write_policy(tmp_path, upstream_stream="never"))
    assert (await lab.post(chat.request(stream=True))).message.calls == [("read", {}), ("read", {})]


# Content that VTC does not see


def whole_call(padding: int = 0) -> Reply:
    entry = {key: ENTRY[key] for key in ("id", "type", "function")}
    body = chat.completion("x" * padding, "tool_calls", message={"tool_calls": [entry]})
    return Reply([chat.encode_json(body)], JSON, framing="length")


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_long_reply_is_read_though_mitmproxy_would_stream_it(
    framing: Any, start: Start, tmp_path: Path
) -> None:
    denying = write_guards(tmp_path, denied_tools=["bash"], on_denied="drop")
    reply = Reply(whole_call(10_000).pieces, JSON, framing=framing)
    lab = await start(reply, stream_large_bodies="1k", vtc_profiles=denying)
    answer = await lab.post(chat.request(tools=[BASH]))
    assert (answer.message.calls, answer.message.content) == ([], "x" * 10_000)


async def test_too_long_reply_is_not_sent(start: Start, tmp_path: Path) -> None:
    denying = write_guards(tmp_path, denied_tools=["bash"])
    lab = await start(whole_call(30_000), vtc_max_body_bytes=20_000, vtc_profiles=denying)
    answer = await lab.post(chat.request(tools=[BASH]))
    assert (answer.status, answer.message.content, answer.message.calls) == (200, WITHHELD, [])
    assert await policies(lab) == [("unread_calls", "refused", "")]


async def test_a_stream_that_cannot_be_read_breaks_off(start: Start, tmp_path: Path) -> None:
    endless = [b"data: " + b"x" * (1 << 20)] * 18
    frames = [chat.ROLE, *chat.make_text_chunks("Hi"), *endless, b"\n\n", chat.chunk({"tool_calls": [ENTRY]})]
    lab = await start(frames, vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    with pytest.raises(httpx.HTTPError):
        await lab.post(chat.request(stream=True, tools=[BASH]))
    assert await policies(lab) == [("unread_calls", "refused", "")]


@pytest.mark.parametrize("body", [b"x", b'{"messages": [], "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"])
async def test_a_request_that_cannot_be_read_goes_nowhere(body: bytes, start: Start, tmp_path: Path) -> None:
    """No policy would apply to its reply; without a policy it passes unchanged."""
    lab = await start(lambda _: whole_call(), vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    answer = await lab.post(body)
    assert (answer.status, lab.upstream.seen) == (400, [])
    assert b"a policy restricts calls here" in answer.body
    lab.set(vtc_profiles=write_guards(tmp_path, denied_tools=["bash"], on_failure="pass"))
    assert (await lab.post(body)).status == 200
    assert lab.upstream.seen[0].body == body


async def test_a_request_that_cannot_be_rewritten_keeps_its_policies(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("vtc.exchange.asking.prompt.prepare_messages", broken)
    lab = await start(whole_call(), vtc_profiles=write_guards(tmp_path, denied_tools=["bash"], on_denied="drop"))
    assert (await lab.post(chat.request(tools=[BASH]))).message.calls == []
    report = await lab.report()
    assert report["failures"] == ["the request was forwarded unchanged: ZeroDivisionError: planted"]
