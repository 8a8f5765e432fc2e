"""A whole reply that passes through the codec of its API and a toy pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vtc.apis import Api, NoReply, convert_to_stream, fold_rewritten
from vtc.apis.relay import Relay
from vtc.apis.relay.choice import Pipeline


def rewrite_reply(api: Api, body: bytes, pipeline: Callable[[], Pipeline], form: Any = None, drop: Any = ()) -> bytes:
    """Pass a whole reply through a relay with a toy pipeline; return the body that the client receives."""
    try:
        received = convert_to_stream(api, body)
    except NoReply:
        return body
    relay = Relay(api.decoder(form, drop), api.encoder(form, drop), pipeline)
    reader = relay.decoder.framing.make_reader()
    out = [piece for frame in [*reader.feed(received), *reader.finish()] for piece in relay.feed(frame)]
    sent = b"".join([*out, *relay.finish()])
    return fold_rewritten(api, body, received, sent)
