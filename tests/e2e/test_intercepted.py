"""A person stops a flow in mitmproxy, edits and resumes it: nothing breaks, and policies still apply.

An edit of an intercepted *reply* is sent unchanged, because it was made after all processing by VTC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from mitmproxy import http
from mitmproxy.addons.intercept import Intercept

from tests.apis import chat, messages
from tests.e2e.conftest import PATIENCE, Answer, Lab, Start
from tests.e2e.policies import BASH, STREAM, make_calls_reply, policies, write_guards
from tests.e2e.upstream import JSON, Reply

ASK = chat.request(stream=True, tools=[BASH, chat.READ])
BOTH = [("bash", {"command": "rm -rf /"}), ("read", {"filePath": "/a"})]

type Edit = Callable[[http.HTTPFlow], None]


class Person(Intercept):
    """mitmproxy's intercept addon, after VTC's as in mitmweb, and a person who edits each stopped flow."""

    def __init__(self, edit: Edit) -> None:
        self._edit = edit

    def process_flow(self, f: http.HTTPFlow) -> None:
        super().process_flow(f)
        if f.intercepted:
            asyncio.get_running_loop().call_soon(self._go_on, f)

    def _go_on(self, f: http.HTTPFlow) -> None:
        self._edit(f)
        f.resume()


async def stopping(start: Start, reply: Any, where: str, edit: Edit, **settings: Any) -> Lab:
    lab = await start(reply, **settings)
    lab.proxy.master.addons.add(Person(edit))
    lab.set(intercept=where)
    return lab


async def post_edited(lab: Lab, ask: Any) -> Answer:
    async with asyncio.timeout(PATIENCE):
        return await lab.post(ask)


def content(made: Any) -> Edit:
    def edit(flow: http.HTTPFlow) -> None:
        flow.request.content = made if isinstance(made, bytes) else chat.encode_json(made)

    return edit


def path(flow: http.HTTPFlow) -> None:
    flow.request.path = "/v1/messages"


def headers(flow: http.HTTPFlow) -> None:
    flow.request.headers.clear()


EDITS: dict[str, Edit] = {
    "nothing": lambda _: None,
    "another conversation": content(chat.request("Something else", stream=True, tools=[BASH])),
    "no tools": content(chat.request(stream=True, tools=None)),
    "no JSON": content(b"<>"),
    "nothing left": content(b""),
    "headers": headers,
}


@STREAM
@pytest.mark.parametrize("form", ["text", "native"])
@pytest.mark.parametrize("edit", EDITS)
async def test_policy_holds_for_an_edited_request(
    edit: str, form: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    """The server gets the edited request; the policy of the client's request applies to the reply."""
    denying = write_guards(tmp_path, denied_tools=["bash"], on_denied="drop")
    lab = await stopping(start, make_calls_reply(form, stream, *BOTH), "~q", EDITS[edit], vtc_profiles=denying)
    answer = await post_edited(lab, {**ASK, "stream": stream})
    assert (answer.message.calls, b"rm -rf" in answer.body) == (BOTH[1:], False)
    assert await policies(lab) == [("denied_tools", "refused", "bash")]


async def test_request_is_edited_as_it_was_rewritten(start: Start) -> None:
    """The person sees the request as rewritten by VTC, and the edited request is sent unchanged."""
    seen: list[bytes | None] = []
    lab = await stopping(
        start,
        make_calls_reply("text", True, *BOTH),
        "~q",
        lambda flow: seen.append(flow.request.content),
        vtc_tools="prompt",
    )
    assert (await post_edited(lab, ASK)).message.calls == BOTH
    assert seen == [lab.upstream.seen[0].body]
    assert seen != [chat.encode_json(ASK)]


@STREAM
async def test_request_that_is_answered_by_a_person(stream: bool, start: Start, tmp_path: Path) -> None:
    """A reply that a person writes instead of the server is processed like any other."""

    def answer(flow: http.HTTPFlow) -> None:
        (reply,) = [make_calls_reply("native", stream, *BOTH)]
        flow.response = http.Response.make(200, b"".join(reply.pieces), dict(reply.headers))  # type: ignore[arg-type]

    denying = write_guards(tmp_path, denied_tools=["bash"], on_denied="drop")
    lab = await stopping(start, [], "~q", answer, vtc_profiles=denying)
    assert (await post_edited(lab, {**ASK, "stream": stream})).message.calls == BOTH[1:]
    assert lab.upstream.seen == []


async def test_request_that_is_sent_to_another_api_gets_no_call_past_a_policy(start: Start, tmp_path: Path) -> None:
    """The reply belongs to another API than the plan, so it cannot be read and is withheld."""
    called = messages.message(messages.call("bash", command="rm"), stop_reason="tool_use")
    reply = Reply([chat.encode_json(called)], JSON, framing="length")
    lab = await stopping(start, reply, "~q", path, vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    answer = await post_edited(lab, {**ASK, "stream": False})
    assert b'"rm"' not in answer.body
    assert await policies(lab) == [("unread_calls", "refused", "")]


@STREAM
async def test_whole_reply_is_edited_after_everything_of_ours(stream: bool, start: Start) -> None:
    """A stream has been sent by then, so an edit changes nothing for the client."""

    def edit(flow: http.HTTPFlow) -> None:
        assert flow.response is not None
        flow.response.content = b"Mine"

    lab = await stopping(start, make_calls_reply("text", stream, *BOTH), "~s", edit)
    answer = await post_edited(lab, {**ASK, "stream": stream})
    if stream:
        assert answer.message.calls == BOTH
    else:
        assert answer.body == b"Mine"
    assert len((await lab.report())["calls"]) == 2


def kill(flow: http.HTTPFlow) -> None:
    flow.resume()
    flow.kill()


@pytest.mark.parametrize("where", ["~q", "~s"])
async def test_flow_that_is_killed_while_it_is_stopped(where: str, start: Start) -> None:
    lab = await stopping(start, make_calls_reply("text", False, *BOTH), where, kill)
    with pytest.raises(httpx.RemoteProtocolError):
        await post_edited(lab, {**ASK, "stream": False})
    assert (await lab.flow()).metadata["vtc"]["failures"] == []
    assert not lab.proxy.addon._live


async def test_request_edited_into_an_api_is_reported_as_unread(start: Start, tmp_path: Path) -> None:
    """No plan exists for it, so no policy applies, and the comment must state that."""

    def edit(flow: http.HTTPFlow) -> None:
        flow.request.path = "/v1/chat/completions"

    reply = make_calls_reply("native", False, *BOTH)
    lab = await stopping(start, reply, "~q", edit, vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]))
    async with asyncio.timeout(PATIENCE):
        answer = await lab.post({**ASK, "stream": False}, path="/other")
    assert answer.message.calls == BOTH
    flow = await lab.flow()
    assert (
        flow.comment
        == "vtc: left alone: its request was not processed: it was edited later, or VTC was off at that time"
    )
