"""The view of an exchange that went through a whole proxy, live and from a file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mitmproxy import contentviews, flowfilter, http

from tests.apis import chat
from tests.e2e.conftest import Lab, Start
from tests.e2e.test_modes import reload_flow
from tests.e2e.upstream import JSON, Reply, Seen
from vtc.proxy import flows

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
UNCLOSED = CALL.removesuffix("</tool_call>")
UNKNOWN = chat.DIALECTS["hermes"]("sh.rm", {"filePath": "/a"})


def replying(*pieces: str) -> Any:
    def script(seen: Seen) -> Reply:
        if b'"stream": true' in seen.body:
            return Reply(chat.make_stream(*pieces))
        return Reply([chat.encode_json(chat.completion("".join(pieces)))], JSON, framing="length")

    return script


async def run_exchange(lab: Lab, **fields: Any) -> http.HTTPFlow:
    await lab.post(chat.request(**fields))
    return await lab.flow()


def render_view(flow: http.HTTPFlow, side: str) -> str:
    found = contentviews.prettify_message(getattr(flow, side), flow)
    assert found.view_name == "VTC"
    return found.text


@pytest.mark.parametrize("stream", [True, False])
async def test_both_sides_of_a_reply_and_a_request(stream: bool, start: Start) -> None:
    lab = await start(replying("I look.\n", CALL), vtc_keep_bodies="on", vtc_tools="prompt", vtc_dialect="hermes")
    live = await run_exchange(lab, stream=stream)
    for flow in (live, reload_flow(live)):
        reply = render_view(flow, "response")
        assert reply.startswith(flow.comment)
        before, after = reply.split("[assistant, as the model wrote it]")[1].split(
            "[assistant, as the client received it]"
        )
        assert "<tool_call>" in before
        assert "+ -> read  call_" in after
        assert "+      filePath: /a" in after
        assert "+ finish_reason: tool_calls" in after
        request = render_view(flow, "request")
        assert "[system, as the model was given it]" in request
        assert "[tools, as the client sent it]" in request
        assert "call: read, hermes -> tool_calls" in request


async def test_a_flow_that_is_opened_from_a_file_stays_as_it_was_saved(start: Start) -> None:
    """mitmproxy runs all hooks for it, as for a live flow."""
    lab = await start(replying(CALL), vtc_tools="prompt", vtc_keep_bodies="on")
    flow = reload_flow(await run_exchange(lab, stream=True))
    unseen = reload_flow(flow)
    unseen.metadata, unseen.comment, unseen.marked = {}, "mine", ""
    for one in (flow, unseen):
        before = reload_flow(one)
        await lab.proxy.master.load_flow(one)
        assert (one.comment, one.marked, one.metadata) == (before.comment, before.marked, before.metadata)
        assert one.response is not None
        assert before.response is not None
        assert (one.request.content, one.response.content) == (before.request.content, before.response.content)
    assert json.loads(lab.proxy.master.commands.call("vtc.stats"))["total"]["exchanges"] == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_without_a_list_of_flows_nothing_is_kept(stream: bool, start: Start) -> None:
    """mitmdump forgets its flows; an open stream uses no memory for views that nobody opens."""
    flow = await run_exchange(await start(replying(CALL), vtc_tools="prompt"), stream=stream)
    assert set(flow.metadata) == {"vtc"}
    sizes = flow.metadata["vtc"]["sizes"]
    assert sizes["request_came"] < sizes["request_went"]
    assert sizes["reply_came"] > 0
    assert sizes["reply_went"] > 0


async def test_unchanged_message_is_stored_once(start: Start) -> None:
    flow = await run_exchange(await start(replying("Hello"), vtc_keep_bodies="on"), stream=True)
    assert set(flow.metadata) == {"vtc", "vtc_headers"}  # needed to replay it with the client's own `accept-encoding`
    assert "Hello" in render_view(flow, "response")


async def test_observing_shows_possible_actions(start: Start) -> None:
    flow = await run_exchange(await start(replying(CALL), vtc_tools="prompt", vtc_mode="observe"), stream=False)
    assert flow.response is not None
    reply = render_view(flow, "response")
    assert "call: read, hermes -> tool_calls" in reply
    assert "<tool_call>" in reply
    assert "as the client received it" not in reply
    sizes = flow.metadata["vtc"]["sizes"]
    assert (sizes["request_came"], sizes["reply_came"]) == (sizes["request_went"], sizes["reply_went"])
    assert flows.get_original(flow, "reply") == flow.response.content


@pytest.mark.parametrize(
    ("pieces", "settings", "mark", "expressions"),
    [
        ([CALL], {}, ":hammer:", ["~marker hammer", "~comment 'hermes -> tool_calls'"]),
        ([UNCLOSED], {}, ":wrench:", ["~marker wrench", "~comment repaired"]),
        ([CALL, UNKNOWN], {}, ":warning:", ["~marker warning", "~comment 'left as text'"]),
        (["\ud800"], {}, "", []),
    ],
    ids=["rewritten", "repaired", "refused", "untouched"],
)
async def test_marks_and_comments_are_found_by_filters(
    pieces: list[str], settings: dict[str, Any], mark: str, expressions: list[str], start: Start
) -> None:
    flow = await run_exchange(await start(replying(*pieces), **settings), stream=True)
    assert flow.marked == mark
    assert bool(flowfilter.match(flowfilter.parse("~marked & ~comment ^vtc"), flow)) is bool(mark)
    assert all(flowfilter.match(flowfilter.parse(expression), flow) for expression in expressions)


async def test_failed_open_exchange_has_its_own_mark(start: Start) -> None:
    lab = await start(Reply([b"no gzip"], {**JSON, "content-encoding": "gzip"}, framing="length"))
    flow = await run_exchange(lab)
    assert flow.marked == ":boom:"
    assert flowfilter.match(flowfilter.parse("~marker boom"), flow)
    assert flowfilter.match(flowfilter.parse("~comment 'error in VTC'"), flow)
