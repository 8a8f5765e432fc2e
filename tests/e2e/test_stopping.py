"""A reply and an agent that repeat themselves are ended: `vtc_stop_repeats` and `vtc_stop_loops`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import PATIENCE, Lab, Start
from tests.e2e.upstream import Reply

LINE = "Let me check the file again.\n"
MESSAGE = "(VTC ended this reply, because it repeats one block of 29 characters at least 68 times in a row.)"
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a"}'}}
POLICY = "{kind: policy, name: mine, match: {}, guards: {stop_repeats: true}}"


def repeat_lines() -> Iterator[bytes]:
    yield chat.ROLE
    while True:
        yield chat.make_text_chunks(LINE)[0]


async def check_next_exchange(lab: Lab) -> None:
    """Check that the connection of the client can be used again."""
    answer = await lab.post(chat.request(stream=True))
    assert answer.message.content == "Hello"


@pytest.mark.parametrize("by", ["option", "policy"])
async def test_endless_reply_is_ended_and_its_request_cancelled(by: str, start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(POLICY)
    settings: dict[str, Any] = {"vtc_profiles": [str(tmp_path)]} if by == "policy" else {"vtc_stop_repeats": "on"}
    replies = iter([Reply(repeat_lines()), Reply(chat.make_stream("Hello"))])
    lab = await start(lambda _: next(replies), **settings)
    async with asyncio.timeout(PATIENCE):
        answer = await lab.post(chat.request(stream=True))
        await lab.upstream.gone.wait()
    content = answer.message.content or ""
    assert content.startswith(LINE)
    assert content.endswith(f"\n\n{MESSAGE}")
    assert answer.message.finish_reason == "stop"
    flow = await lab.next_client_flow()
    assert flow.error is None
    assert flow.metadata["vtc"]["notes"] == [
        "the reply repeats one block of 29 characters at least 68 times in a row",
        "VTC ended the reply there (vtc_stop_repeats)",
    ]
    assert not lab.proxy.addon._live
    await check_next_exchange(lab)


async def test_request_is_cancelled_over_http2(start_http2: Start) -> None:
    """Only its stream ends: the next request uses the same connection to the server."""
    endless = [chat.ROLE, *chat.make_text_chunks(*[LINE] * 400)]
    replies = iter([Reply(endless), Reply(chat.make_stream("Hello"))])
    lab = await start_http2(lambda _: next(replies), vtc_stop_repeats="on")
    async with asyncio.timeout(PATIENCE):
        answer = await lab.post(chat.request(stream=True))
        assert (answer.message.content or "").endswith(MESSAGE)
        await check_next_exchange(lab)


async def test_observed_reply_is_not_ended(start: Start) -> None:
    body = [chat.ROLE, *chat.make_text_chunks(*[LINE] * 400), chat.STOP, chat.DONE]
    lab = await start(Reply(body), vtc_mode="observe", vtc_stop_repeats="on")
    assert (await lab.post(chat.request(stream=True))).body == b"".join(body)


async def test_client_that_leaves_early_gets_no_second_end(start: Start) -> None:
    """The client disconnects in the middle of a reply that VTC would end later."""
    begun = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        for place, piece in enumerate(repeat_lines()):
            yield piece
            if place == 3:
                await begun.wait()

    lab = await start(Reply(pieces()), vtc_stop_repeats="on")
    async with lab.client.stream("POST", "/v1/chat/completions", json=chat.request(stream=True)) as response:
        assert response.status_code == 200
    await lab.flow()
    begun.set()
    async with asyncio.timeout(PATIENCE):
        await lab.upstream.gone.wait()


@pytest.mark.parametrize(("times", "stops"), [(2, False), (3, True)])
@pytest.mark.parametrize("stream", [True, False])
async def test_agent_is_stopped_after_three_identical_calls(
    times: int, stops: bool, stream: bool, start: Start
) -> None:
    results = {"role": "tool", "tool_call_id": "c1", "content": "found"}
    turn = [{"role": "assistant", "content": None, "tool_calls": [CALL]}, results]
    body = chat.request(stream=stream, messages=[{"role": "user", "content": "Go"}, *turn * times])
    text = chat.make_stream("Hello") if stream else [chat.encode_json(chat.completion("Hello"))]
    headers = {"content-type": "text/event-stream" if stream else "application/json"}
    lab = await start(Reply(text, headers), vtc_stop_loops="on")
    content = (await lab.post(body)).message.content or ""
    assert ("`read` was called 3 times in a row with the same arguments and the same result" in content) is stops
    assert len(lab.upstream.seen) == (not stops)
