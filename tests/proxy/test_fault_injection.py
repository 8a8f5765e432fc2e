"""An exception in any function that a hook calls: no policy is bypassed, and without a policy the text arrives.

Exchanges go through mitmproxy's addon manager, hook by hook. A first run records which functions of `vtc` start; then
each of them raises in turn, when it starts for the first time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any
from zlib import crc32

import pytest
from mitmproxy import http
from mitmproxy.proxy.layers.http import (
    HttpErrorHook,
    HttpRequestHeadersHook,
    HttpRequestHook,
    HttpResponseHeadersHook,
    HttpResponseHook,
)
from mitmproxy.test import taddons, tflow, tutils

import vtc
from tests.apis import chat, pairs
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchanges import declare_tools
from vtc.proxy.addon import VirtualToolCalling

SOURCE = str(Path(vtc.__file__).parent)
MONITOR = sys.monitoring
TOOL = MONITOR.PROFILER_ID
START = MONITOR.events.PY_START

TEXT, ARGUMENT = "Here is what I see.", "/planted/by/test"
"""The text of each reply, and the argument of the call that the policy denies."""
CALL = ("bash", {"why": "x" * len(ARGUMENT), "command": ARGUMENT})  # neither half contains a part of the argument
IN_TEXT = chat.DIALECTS["hermes"](*CALL)
ERROR = {"error": {"message": TEXT, "type": "server_error"}}
SCHEMA = {"type": "object", "properties": {"why": {"type": "string"}, "command": {"type": "string"}}}

OWN_HELPERS = {
    # The boundary itself: code before its `try`.
    "Boundary._wrap.<locals>.run",
    "Boundary._wrap.<locals>.run_async",
    "ReceivedFlow.of",
    "OriginalRequest.of",
    "OriginalReply.of",
    # The same in the stream callable.
    "make_rewriter.<locals>.rewrite",
}
"""The functions of the boundary that run outside of it, by their qualified names."""


class PlantedError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Scenario:
    """An exchange of a client with a server."""

    client: str
    server: str
    stream: bool
    reply: str
    """`native`: a native tool call; `text`: a text tool call; `error`: an error with status 400 that nevertheless
    contains a call; `broken`: half a stream.
    """

    def request(self) -> http.Request:
        body = make_request_body(self.client, stream=self.stream, tools=declare_tools(self.client, {"bash": SCHEMA}))
        path = SHAPES[self.client].build_path(stream=self.stream).encode()
        return tutils.treq(
            method=b"POST", path=path, headers=http.Headers(content_type="application/json"), content=body
        )

    def pieces(self) -> list[bytes]:
        """Return the body of the reply, in the pieces in which it arrives."""
        if self.reply == "error":
            return [chat.encode_json({**json.loads(pairs.make_whole_reply(self.server, TEXT, [CALL])), **ERROR})]
        calls = [CALL] if self.reply == "native" else []
        text = [TEXT, f"\n\n{IN_TEXT}"] if self.reply == "text" else [TEXT]
        if not self.stream:
            return [pairs.make_whole_reply(self.server, "".join(text), calls)]
        end = b"\n" if self.server == "ollama-chat" else b"\n\n"
        frames = [frame + end for frame in pairs.make_stream(self.server, text, calls).split(end) if frame]
        return frames[: len(frames) // 2 + 1] if self.reply == "broken" else frames

    def response(self) -> http.Response:
        is_stream = self.stream and self.reply != "error"
        kind = SHAPES[self.server].media_type if is_stream else "application/json"
        headers = http.Headers(content_type=kind)
        return tutils.tresp(headers=headers, status_code=400 if self.reply == "error" else 200, content=None)


class Exchanges:
    """Passes exchanges through the hooks of an addon, as mitmproxy does."""

    def __init__(self, context: taddons.context, addon: VirtualToolCalling) -> None:
        self._context = context
        self.addon = addon

    async def run(self, scenario: Scenario) -> tuple[bytes, http.HTTPFlow]:
        """Return the body that the client receives, and the flow."""
        flow = tflow.tflow(req=scenario.request())
        trigger = self._context.master.addons.trigger_event
        await trigger(HttpRequestHeadersHook(flow))
        await trigger(HttpRequestHook(flow))
        if flow.error:
            return b"", flow
        if flow.response is None:
            flow.response, sent = scenario.response(), b""
            await trigger(HttpResponseHeadersHook(flow))
            pieces, stream = scenario.pieces(), flow.response.stream
            if flow.error:
                return b"", flow
            if callable(stream):
                if scenario.reply == "broken":
                    for piece in pieces:
                        sent += b"".join(stream(piece))
                    sent += b"".join(self.addon.server_broke_off(flow, "it broke off"))
                    flow.error = tflow.terr("it broke off")
                    await trigger(HttpErrorHook(flow))
                    return sent, flow
                for piece in (*pieces, b""):
                    out: Any = stream(piece)
                    assert isinstance(out, list)
                    assert all(out), "empty bytes end the body at the client"
                    sent += b"".join(out)
            elif stream:
                sent = b"".join(pieces)
            else:
                flow.response.raw_content = b"".join(pieces)
            await trigger(HttpResponseHook(flow))
            if stream:
                return sent, flow
        else:
            await trigger(HttpResponseHook(flow))
        assert flow.response is not None
        return b"" if flow.error else flow.response.raw_content or b"", flow


@contextmanager
def record_starts(started: dict[CodeType, int]) -> Iterator[None]:
    """Count how often each function of `vtc` starts."""

    def note(code: CodeType, _: int) -> object:
        is_ours = code.co_filename.startswith(SOURCE)
        if is_ours:
            started[code] = started.get(code, 0) + 1
        return None if is_ours else MONITOR.DISABLE

    MONITOR.use_tool_id(TOOL, "faults")
    MONITOR.register_callback(TOOL, START, note)
    MONITOR.restart_events()
    MONITOR.set_events(TOOL, START)
    try:
        yield
    finally:
        MONITOR.set_events(TOOL, 0)
        MONITOR.free_tool_id(TOOL)


@contextmanager
def raising(code: CodeType, number: int) -> Iterator[None]:
    """Make a function raise when it starts for the n-th time."""
    remaining = number

    def fail(*_: Any) -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            raise PlantedError(code.co_qualname)

    MONITOR.use_tool_id(TOOL, "faults")
    MONITOR.register_callback(TOOL, START, fail)
    MONITOR.set_local_events(TOOL, code, START)
    try:
        yield
    finally:
        MONITOR.set_local_events(TOOL, code, 0)
        MONITOR.free_tool_id(TOOL)


@contextmanager
def quiet() -> Iterator[None]:
    """Disable logging, because thousands of tracebacks take most of the time."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


PAIRS = [*zip(pairs.NAMES, pairs.NAMES, strict=True), *zip(pairs.NAMES, pairs.NAMES[1:] + pairs.NAMES[:1], strict=True)]
"""Each client with a server of its own API, and with a server of another."""
POINTS = [(False, "native"), (False, "text"), (False, "error")]
POINTS += [(True, "native"), (True, "text"), (True, "error"), (True, "broken")]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a policy that denies every call, and return its path."""
    file = tmp_path_factory.mktemp("faults") / "policy.yaml"
    guards = {"denied_tools": ["*"], "on_denied": "drop"}
    file.write_bytes(chat.encode_json({"kind": "policy", "name": "none", "match": {}, "guards": guards}))
    return str(file)


@pytest.mark.every
@pytest.mark.parametrize("share", [5, pytest.param(1, marks=pytest.mark.rest)], ids=["one in five", "all"])
@pytest.mark.parametrize("forbids", [True, False], ids=["policy", "no policy"])
@pytest.mark.parametrize(("stream", "reply"), POINTS, ids=str)
def test_a_fault_in_any_function(stream: bool, reply: str, forbids: bool, share: int, policy: str) -> None:
    """A bridge cannot forward frames unread, so the client may get an error or a broken connection instead of the
    text.
    """
    addon, wrong = VirtualToolCalling(), []
    reached, tried = set[tuple[Any, ...]](), set[tuple[Any, ...]]()
    with taddons.context(addon) as context, asyncio.Runner() as runner, quiet():
        exchanges = Exchanges(context, addon)
        for client, server in PAIRS:
            context.configure(addon, vtc_mode="rewrite", vtc_profiles=[policy] * forbids, vtc_upstream_api=server)
            scenario = Scenario(client, server, stream, reply)
            runner.run(exchanges.run(scenario))  # fills the caches of compiled patterns
            started: dict[CodeType, int] = {}
            with record_starts(started):
                sent, _ = runner.run(exchanges.run(scenario))
            assert not (forbids and ARGUMENT.encode() in sent)
            assert forbids or TEXT.encode() in sent
            for code, number in [(code, n) for code, count in started.items() for n in {1, count if share == 1 else 1}]:
                point = code.co_filename.removeprefix(SOURCE), code.co_qualname, code.co_firstlineno, number == 1
                if code.co_qualname in OWN_HELPERS:
                    continue
                reached.add(point)
                if point in tried or crc32(repr(point).encode()) % share:
                    continue
                tried.add(point)
                with raising(code, number):
                    sent, flow = runner.run(exchanges.run(scenario))
                where = f"{client} {server} {code.co_qualname} {number}"
                if forbids and ARGUMENT.encode() in sent:
                    wrong.append(f"{where}: a call leaves")
                arrives = TEXT.encode() in sent or (client != server and (flow.error or b"error" in sent))
                if not (forbids or arrives):
                    wrong.append(f"{where}: the text does not arrive")
                if "vtc" not in flow.metadata:
                    wrong.append(f"{where}: there is no report")
    assert len(reached) > 500  # not of `tried`: its size depends on the lines of functions
    assert tried
    assert wrong == []


@pytest.mark.parametrize("forbids", [True, False], ids=["policy", "no policy"])
def test_a_fault_in_any_function_that_declines_a_websocket(forbids: bool, policy: str) -> None:
    """Under a policy the server gets no request."""
    addon, started = VirtualToolCalling(), dict[CodeType, int]()
    with taddons.context(addon) as context, asyncio.Runner() as runner, quiet():
        context.configure(addon, vtc_mode="rewrite", vtc_profiles=[policy] * forbids)

        def ask() -> http.HTTPFlow:
            headers = http.Headers(upgrade="websocket", connection="upgrade")
            flow = tflow.tflow(req=tutils.treq(path=b"/v1/chat/completions", headers=headers, content=b""))
            for hook in (HttpRequestHeadersHook(flow), HttpRequestHook(flow)):
                runner.run(context.master.addons.trigger_event(hook))
            return flow

        with record_starts(started):
            flow = ask()
        assert flow.response is not None
        assert flow.response.status_code == 426
        for code in (code for code in started if code.co_qualname not in OWN_HELPERS):
            with raising(code, 1):
                flow = ask()
            assert "vtc" in flow.metadata, code
            assert flow.response or not forbids, code
