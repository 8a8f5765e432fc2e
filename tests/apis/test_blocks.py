"""Replies that are a sequence of blocks: buffering of a block until it is known to be needed, for each such API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import messages, responses
from tests.apis.shapes import SHAPES
from tests.apis.toy import Toy
from vtc.apis import APIS, Api
from vtc.apis.relay import Relay
from vtc.wire import Frame

READ: dict[str, Any] = {"anthropic-messages": messages.read, "openai-responses": responses.read}
each = pytest.mark.parametrize("api", [api for api in APIS if api.name in READ], ids=lambda api: api.name)


def frames(api: Api, *pieces: str) -> list[Frame]:
    reader = api.decoder().framing.make_reader()
    body = b"".join(SHAPES[api.name].streamed(*pieces))
    return [*reader.feed(body), *reader.finish()]


def first_text(some: list[Frame], text: str) -> int:
    return next(place for place, frame in enumerate(some) if f'"{text}"'.encode() in frame.raw)


@each
def test_block_begins_with_its_first_text(api: Api) -> None:
    relay, some = Relay(api.decoder(), api.encoder(), Toy), frames(api, "Hi")
    place = first_text(some, "Hi")
    before = [b"".join(relay.feed(frame)) for frame in some[:place]]
    stayed = b"".join(frame.raw for frame in some[:place]).removeprefix(b"".join(before))
    assert stayed
    assert b"".join(relay.feed(some[place])) == stayed + some[place].raw


@each
def test_block_without_remaining_content_is_not_started(api: Api) -> None:
    relay = Relay(api.decoder(), api.encoder(), Toy)
    found = READ[api.name](b"".join([out for frame in frames(api, "[x]") for out in relay.feed(frame)]))
    assert (found.content, found.calls) == ("", [("x", {})])
    assert len(found.kinds) == 1


@each
def test_truncated_reply_returns_the_remaining_text(api: Api) -> None:
    some = frames(api, "Hi")
    for length in range(len(some)):
        relay = Relay(api.decoder(), api.encoder(), Toy)
        out = [piece for frame in some[:length] for piece in relay.feed(frame)]
        assert b"".join([*out, *relay.finish()]) == b"".join(frame.raw for frame in some[:length])


@each
def test_frame_that_was_not_decoded_is_when_it_passes(api: Api) -> None:
    """After a failure, frames pass in this way."""
    relay, some = Relay(api.decoder(), api.encoder(), Toy), frames(api, "Hi", "Ho")
    out = [piece for frame in some for piece in relay.pass_through(frame)]
    assert b"".join([*out, *relay.finish()]) == b"".join(frame.raw for frame in some)
