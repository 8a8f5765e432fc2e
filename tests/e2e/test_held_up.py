"""No exchange keeps the proxy from all others for long: what it works on at once is little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mitmproxy import http

from tests.apis import chat
from tests.e2e.conftest import Start
from tests.e2e.upstream import SSE, Reply
from vtc.proxy.turns import MOST_READ


class Sizes:
    """Notes how much of a streamed reply is given to our addon at once."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        assert flow.response
        rewrite: Callable[[bytes], Any] = flow.response.stream  # type: ignore[assignment]

        def noted(chunk: bytes) -> Any:
            self.seen.append(len(chunk))
            return rewrite(chunk)

        flow.response.stream = noted


@pytest.mark.parametrize("framing", ["length", "close"])
async def test_long_reply_is_read_in_small_pieces(framing: Any, start: Start) -> None:
    """Between two of them the event loop looks after all other connections."""
    frames = chat.streamed(
        "Go.\n", *["It is a long way. "] * 20_000, chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
    )
    lab = await start(Reply([b"".join(frames)], SSE, framing=framing))
    sizes = Sizes()
    lab.proxy.master.addons.add(sizes)
    answer = await lab.post(chat.request(stream=True))
    assert answer.message.calls == [("read", {"filePath": "/a"})]
    assert sum(sizes.seen) == len(b"".join(frames))
    assert max(sizes.seen) <= 2 * MOST_READ
