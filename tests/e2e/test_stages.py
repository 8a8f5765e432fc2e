"""An internal fault in each stage: every byte is sent once and in order, and the fault is logged and counted once."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apis import chat
from tests.e2e.conftest import PATH, Lab, Start, by_turn
from tests.e2e.test_faults import receive_stream
from tests.e2e.test_transport import encode_gzip
from tests.e2e.text_clients import AGENT, request, write_profiles
from tests.e2e.upstream import JSON, SSE, Reply
from vtc import exchange
from vtc.apis import calls as tool_calls
from vtc.apis import fields, relay
from vtc.apis.openai_chat import Decoder, Encoder
from vtc.apis.openai_chat import request as chat_request
from vtc.apis.openai_chat import request_writer as chat_request_writer
from vtc.apis.relay import choice, writer
from vtc.dialects import Reader
from vtc.dialects.reading import completion, open_call, parameters
from vtc.dialects.reading.context import Cursor, EventBuffer
from vtc.dialects.text_client import conversation, documented_tools
from vtc.dialects.writing import history
from vtc.exchange import whole_replies
from vtc.exchange.asking import prompt
from vtc.exchange.asking.request import RequestEncoder
from vtc.exchange.replying import factory, fast_path, native_call_events, reply, stages, text_client
from vtc.exchange.replying import faults as replying_faults
from vtc.exchange.replying.fast_path import FastPath
from vtc.profiles import Planner, tool_protocol
from vtc.proxy import addon
from vtc.wire import EventReader, EventStream, compression

ASK = chat.request(stream=True, tool_choice="required")
CALL = chat.DIALECTS["invoke"]("read", {"filePath": "/a"})
TEXT = f"Let me look.\n\n{CALL}\nDone it. <read> is `<read>`."


class PlantedError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Stage:
    """A function, given by its owner and name, and the number of the call of it that fails (from 0)."""

    owner: Any
    name: str
    call: int = 0

    def plant(self, patch: pytest.MonkeyPatch) -> Callable[[], int]:
        """Replace the function by a failing one; return a function that counts its calls."""
        real, calls = getattr(self.owner, self.name), [0]

        def broken(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == self.call + 1:
                raise PlantedError("planted")
            return real(*args, **kwargs)

        patch.setattr(self.owner, self.name, broken)
        return lambda: calls[0]

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}{f' {self.call}' * bool(self.call)}"


REPLY = [
    *(Stage(EventReader, "feed", call) for call in (0, 3)),
    *(Stage(Decoder, "decode", call) for call in (0, 2, 7, 21, 42)),
    *(Stage(Decoder, "_decode_any", call) for call in (0, 1)),
    *(Stage(Encoder, "follow", call) for call in (0, 2)),
    *(Stage(Encoder, "write", call) for call in (0, 1)),
    *(Stage(Encoder, name) for name in ("_start", "_render_call")),
    *(Stage(writer.FrameWriter, name, call) for name in ("send", "send_whole", "encode_events") for call in (0, 1)),
    *(Stage(EventStream, "encode", call) for call in (0, 1)),
    *(Stage(choice.Choices, name) for name in ("_begin", "read")),
    Stage(writer, "_settle_frames"),
    Stage(fast_path, "describe_last_frame"),
    *(Stage(choice, name) for name in ("_finish_choice", "_decide_calls")),
    *(Stage(FastPath, "learn", call) for call in (0, 2)),
    *(Stage(FastPath, "feed", call) for call in (2, 9)),
    Stage(fast_path, "_compile"),
    *(Stage(factory.ReplyFactory, name) for name in ("make_pipeline", "make_reader")),
    *(Stage(reply.ReplyPipeline, "feed", call) for call in (0, 20)),
    *(Stage(reply.ReplyPipeline, name) for name in ("finish", "_run_stages")),
    *(Stage(owner, "feed") for owner in (stages.Limit, stages.Identify, stages.RecordCalls)),
    Stage(replying_faults.FaultRecorder, "check_choice"),
    Stage(stages.ForStructuredClient, "feed"),
    Stage(stages.Ids, "take"),
    *(Stage(Reader, name) for name in ("_advance", "_transition", "_enter_state", "feed", "finish")),
    *(Stage(Cursor, "consume", call) for call in (0, 8)),
    *(Stage(EventBuffer, name) for name in ("add_text", "add_call")),
    *(Stage(open_call.OpenCall, name) for name in ("begin_body", "end_parameter")),
    Stage(completion, "parse_calls"),
    *(Stage(parameters.Parameters, name) for name in ("begin", "end")),
]


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def restore_text(body: bytes) -> str:
    """Return all text that was sent, with each call as its original text."""
    out = ""
    for delta in chat.deltas(body):
        out += delta.get("content") or ""
        if any("id" in call for call in delta.get("tool_calls") or ()):
            out += CALL
    return out


def remove_white_space(text: str) -> str:
    """Remove white space, because white space next to a call is removed with it."""
    return re.sub(r"\s+", "", text)


@pytest.fixture(autouse=True)
def nothing_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable `Session.warm`, so that the fault occurs in the reply and not in the sample that a thread reads
    before.
    """
    monkeypatch.setattr(exchange.Session, "warm", lambda _: None)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("stage", REPLY, ids=str)
async def test_a_stream(
    stage: Stage, size: int, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lab = await start(chat.make_stream(*(TEXT[at : at + size] for at in range(0, len(TEXT), size))), vtc_cache="off")
    calls = stage.plant(monkeypatch)
    body = (await lab.post(ASK)).body
    assert remove_white_space(restore_text(body)) == remove_white_space(TEXT)
    assert chat.events(body)[-1] == "[DONE]"
    assert chat.events(body)[-2]["usage"] == chat.USAGE
    fails = calls() > stage.call
    assert fails or size > 1
    assert len(faults(caplog)) == fails
    assert (await lab.report())["failures"] == ["PlantedError: planted"] * fails
    assert stats(lab)["failed"] == fails


def stats(lab: Lab) -> Any:
    (counts,) = lab.proxy.addon._stats.as_dict()["models"].values()
    return counts


BODY = [*REPLY, *(Stage(whole_replies, name) for name in ("convert_to_stream", "fold_rewritten"))]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("stage", BODY, ids=str)
async def test_a_whole_reply(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    body = chat.encode_json(chat.completion(TEXT))
    lab = await start(Reply([body], JSON, framing="length"), vtc_cache="off")
    calls = stage.plant(monkeypatch)
    answer = await lab.post(chat.request(tool_choice="required"))
    fails = calls() > stage.call
    assert answer.body == body if fails else answer.message.calls
    assert len(faults(caplog)) == fails
    assert (await lab.report())["failures"] == ["PlantedError: planted"] * fails


@pytest.mark.parametrize(
    "stage",
    [
        Stage(conversation, "is_readable"),
        Stage(conversation, "write_for_client"),
        Stage(text_client.ForTextClient, "feed"),
        *REPLY[-12:],
    ],
    ids=str,
)
async def test_a_text_clients_stream(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call = chat.DIALECTS["hermes"]("list_files", {"path": "."})
    text = f"Look:\n{call}\nDone."
    frames = chat.make_stream(*text)
    lab = await start(frames)
    calls = stage.plant(monkeypatch)
    answer = await lab.post(request(stream=True), headers=AGENT)
    if fails := calls() > stage.call:
        given = answer.message.content.replace("<list_files>\n<path>.</path>\n</list_files>", call)
        assert remove_white_space(given) == remove_white_space(text)
    assert len(faults(caplog)) == fails


NATIVE = [
    *(Stage(relay.Relay, "feed", call) for call in range(0, 8, 2)),
    *(Stage(Decoder, "decode", call) for call in range(0, 8, 2)),
    Stage(choice.Choices, "read"),
    Stage(writer, "_settle_frames"),
    *(Stage(choice, name) for name in ("_finish_choice", "_adapt_reason", "_decide_calls", "_without_calls")),
    *(Stage(tool_calls.ToolCallAccumulator, name) for name in ("add", "_find_place", "calls")),
    *(Stage(tool_calls.ToolCallAccumulator, "add", call) for call in (1, 2, 3)),
    *(Stage(reply.ReplyPipeline, name) for name in ("finish", "_run_stages")),
    Stage(native_call_events.NativeCalls, "read_calls"),
    Stage(Encoder, "write"),
    Stage(conversation, "write_for_client"),
]


@pytest.mark.parametrize("guarded", [False, True], ids=["text client", "guards"])
@pytest.mark.parametrize("stage", NATIVE, ids=str)
async def test_calls_that_upstream_made_itself(
    stage: Stage,
    guarded: bool,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The buffered part of a call is released, and its other frames follow as they arrive."""
    pieces = ['{"path"', ': "a.', 'py"}']
    deltas = [[chat.native(0, id="a", name="read_file")], *([chat.native(0, arguments=piece)] for piece in pieces)]
    frames = [
        chat.ROLE,
        *chat.make_text_chunks("I", " will."),
        *(chat.chunk({"tool_calls": delta}) for delta in deltas),
    ]
    guards = {"denied_tools": ["rm"], "on_denied": "steer", "on_failure": "pass"}
    mine = {"match": {"model": chat.MODEL}, "guards": guards}
    lab = await start(
        [*frames, chat.chunk({}, "tool_calls"), chat.DONE],
        vtc_profiles=write_profiles(tmp_path, model=mine) if guarded else [],
    )
    calls = stage.plant(monkeypatch)
    if guarded:
        answer = await lab.post(chat.request(stream=True, tools=[chat.tool("read_file", path="string")]))
    else:
        answer = await lab.post(request(stream=True), headers=AGENT)
    content = "".join(delta.get("content") or "" for delta in chat.deltas(answer.body))
    arguments, names = "", []
    for delta in chat.deltas(answer.body):
        for call in delta.get("tool_calls") or ():
            names += [call["function"]["name"]] if call["function"].get("name") else []
            arguments += call["function"].get("arguments") or ""
    if names:
        assert (names, arguments) == (["read_file"], "".join(pieces)) or json.loads(arguments) == {"path": "a.py"}
        assert remove_white_space(content) == "Iwill."
    else:
        assert remove_white_space(content) == "Iwill.<read_file><path>a.py</path></read_file>"
    assert len(faults(caplog)) == (calls() > stage.call)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("stage", [*NATIVE, *REPLY], ids=str)
async def test_no_fault_of_ours_opens_a_policy(
    stage: Stage, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread content is withheld; the client notices at most a broken connection."""
    deltas = [[chat.native(0, id="a", name="rm")], [chat.native(0, arguments='{"path": "a"}')]]
    own = [chat.chunk({"tool_calls": delta}) for delta in deltas]
    text = chat.DIALECTS["hermes"]("rm", {"path": "b"})
    frames = [chat.ROLE, *chat.make_text_chunks("I", " will.", *text), *own, chat.chunk({}, "tool_calls"), chat.DONE]
    mine = {"match": {"model": chat.MODEL}, "guards": {"denied_tools": ["rm"], "on_denied": "drop"}}
    lab = await start(frames, vtc_profiles=write_profiles(tmp_path, model=mine))
    stage.plant(monkeypatch)
    body = b""
    asked = chat.request(stream=True, tools=[chat.tool("rm", path="string"), chat.READ])
    with suppress(httpx.HTTPError):
        async with lab.client.stream("POST", PATH, json=asked) as response:
            async for piece in response.aiter_raw():
                body += piece
    assert b'"rm"' not in body.replace(b"\\", b"")
    assert b"tool_call>" not in body


# The request

REQUEST = [
    Stage(chat_request, "_read_call"),
    Stage(chat_request, "_read_message"),
    Stage(fields, "split_items"),
    Stage(chat_request_writer.ChatRequestWriter, "apply_changes"),
    Stage(chat_request_writer, "_rewrite_message"),
    Stage(Planner, "plan"),
    Stage(tool_protocol, "_find_documented_tools"),
    Stage(documented_tools, "find_documented_tools"),
    Stage(documented_tools, "find_documented_tools", 1),
    Stage(conversation, "structure_messages"),
    Stage(conversation, "rewrite_samples"),
    Stage(history, "convert_to_text"),
    Stage(history, "join_user_turns"),
    Stage(history, "append_tools"),
    Stage(prompt, "prepare_messages"),
    Stage(RequestEncoder, "_encode"),
]


@pytest.mark.parametrize("stage", REQUEST, ids=str)
@pytest.mark.parametrize("client", ["native", "text"])
async def test_a_request(
    client: str, stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Request and reply pass unchanged."""
    frames = chat.make_stream(TEXT)
    lab = await start(frames, vtc_tools="prompt", vtc_dialect="hermes")
    calls = stage.plant(monkeypatch)
    past = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    turns = [{"role": "assistant", "content": None, "tool_calls": [past]}, {"role": "user", "content": "on"}]
    native = chat.request(messages=turns, stream=True)
    body, headers = (request(stream=True), AGENT) if client == "text" else (native, {})
    answer = await lab.post(body, headers=headers)
    fails = calls() > stage.call
    assert (lab.upstream.seen[0].json == body) == fails
    assert not fails or answer.body == b"".join(frames)
    assert len(faults(caplog)) == fails
    report = await lab.report()
    assert (report["notes"] == ["left alone: PlantedError: planted"]) == fails


@pytest.mark.parametrize("name", ["encode_retry", "convert_to_stream"])
async def test_a_reply_that_is_settled_first(
    name: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a retry fails, or the request for a whole reply, the reply that arrived is passed on."""
    mine: chat.Json = {"match": {"model": chat.MODEL}, "upstream_stream": "never"}
    if name == "encode_retry":
        mine["retry"] = {"max": 1, "on": ["malformed"]}
    text = '<tool_call>{"name": "sh.rm", "arguments": {}}</tool_call>'
    lab = await start(
        Reply([chat.encode_json(chat.completion(text))], JSON, framing="length"),
        vtc_profiles=write_profiles(tmp_path, model=mine),
    )
    # It is converted to a stream twice, for reading and for the client.
    stage = Stage(whole_replies, name, 1) if name == "convert_to_stream" else Stage(RequestEncoder, name)
    calls = stage.plant(monkeypatch)
    answer = await lab.post(ASK)
    assert calls() > 0
    assert answer.message.content == text
    assert (await lab.report())["failures"] == ["PlantedError: planted"]
    assert len(faults(caplog)) == 1


# Content that cannot be released is reported


async def test_the_decoder(start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The client notices that the reply is incomplete."""
    frames = chat.make_stream(*TEXT)
    lab = await start(Reply(encode_gzip(frames), {**SSE, "content-encoding": "gzip"}))
    Stage(compression._LimitedDecoder, "feed", 5).plant(monkeypatch)
    body, is_incomplete = await receive_stream(lab)
    assert is_incomplete
    assert remove_white_space(TEXT).startswith(remove_white_space(restore_text(body)))
    assert len(faults(caplog)) == 1


# Pitfalls of mitmproxy


async def test_a_fault_in_the_final_call_ends_the_reply_all_the_same(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an exception there, the client would wait forever."""
    frames = [chat.ROLE, *chat.make_text_chunks(*"Hi <read> there"), *chat.make_text_chunks("<read>")]
    lab = await start(frames)
    Stage(relay.Relay, "finish").plant(monkeypatch)
    assert restore_text((await lab.post(ASK)).body) == "Hi <read> there<read>"
    assert len(faults(caplog)) == 1


@pytest.mark.parametrize("also", ["release", "frames"])
async def test_two_faults_at_once_end_the_reply_all_the_same(
    also: str, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If releasing fails, too, the rest of the reply continues, and the log states the loss."""
    lab = await start(
        [chat.ROLE, *chat.make_text_chunks("a", " <read>"), *chat.make_text_chunks("b", "c"), chat.STOP, chat.DONE]
    )
    Stage(relay.Relay, "feed", 3).plant(monkeypatch)
    if also == "release":
        Stage(relay.Relay, "release").plant(monkeypatch)
    else:
        Stage(EventReader, "finish").plant(monkeypatch)
    answer = (await lab.post(ASK)).message
    assert answer.content.replace(" <read>", "") == "abc"
    assert answer.finish_reason == "stop"
    assert any("lost" in line for line in faults(caplog))


HOOKS = [
    Stage(exchange.Session, "open"),
    Stage(exchange.Session, "stream"),
    Stage(addon, "make_rewriter"),
    Stage(addon.VirtualToolCalling, "finish_exchange"),
]


@pytest.mark.parametrize("stage", HOOKS, ids=str)
async def test_a_fault_in_a_hook(stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """mitmproxy logs it and continues; this flow and the next are processed."""
    frames = chat.make_stream(*TEXT)
    lab = await start(by_turn(frames, frames))
    stage.plant(monkeypatch)
    first = (await lab.post(ASK)).body
    assert first == b"".join(frames) or chat.read(first).calls
    assert (await lab.post(ASK)).message.calls == [("read", {"filePath": "/a"})]


async def test_a_reply_never_ends_early(start: Start) -> None:
    """Empty bytes would end the reply for the client, so VTC sends none while text is buffered."""
    lab = await start(chat.make_stream(*("<read>" * 50), " end"))
    async with lab.client.stream("POST", PATH, json=ASK) as response:
        pieces = [piece async for piece in response.aiter_raw()]
    assert restore_text(b"".join(pieces)) == "<read>" * 50 + " end"
