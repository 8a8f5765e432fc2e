"""Replies of a server as decoded for clients of other APIs."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.apis import chat, messages
from vtc.apis import Api, anthropic_messages, openai_chat
from vtc.apis.bridge import BridgeDecoder, WireNames
from vtc.apis.seals import SealKey
from vtc.events import CallDelta, Seal, Start, Thought
from vtc.wire import Frame

KEY = SealKey.of([b"secret"], ("anthropic-messages", "a", "1"))


def make_decoder(api: Api) -> BridgeDecoder:
    return BridgeDecoder(api.decoder(), WireNames(["mcp.read"]), "asked-for", "0a", KEY, api.signs_reasoning)


def decode_frames(decoder: BridgeDecoder, *frames: bytes) -> list[Any]:
    found = []
    for raw in frames:
        decoded = decoder.decode(Frame(raw, raw.partition(b"data: ")[2].strip()))
        assert decoded is not None
        found += [*decoded.metadata, *decoded.deltas]
    return found


def test_names_of_tools_and_model_are_the_clients_and_calls_have_ids() -> None:
    pieces = [
        chat.chunk({"tool_calls": [{"index": at, "function": {"name": "mcp__read", "arguments": "{}"}}]})
        for at in (0, 1)
    ]
    found = decode_frames(make_decoder(openai_chat.API), chat.ROLE, *pieces)
    (start,) = [one for one in found if isinstance(one, Start)]
    assert (start.id, start.model) == ("0a", "asked-for")
    assert [(one.name, one.id) for one in found if isinstance(one, CallDelta)] == [
        ("mcp.read", "call_0a1"),
        ("mcp.read", "call_0a2"),
    ]


def test_a_signature_is_sealed_with_all_that_it_is_for() -> None:
    """This includes the text of frames that were not decoded."""
    decoder = make_decoder(anthropic_messages.API)
    *begun, signed, _ = messages.thinking_block(0, "Hm", ", well", signature="sig")
    decode_frames(decoder, *begun)
    before = copy.copy(decoder)
    decoder.record_reasoning(b"", [b" \\u0041", "é".encode()])
    (seal,) = [one for one in decode_frames(decoder, signed) if isinstance(one, Seal)]
    assert KEY.unseal(seal.signature) == Thought("Hm, well Aé", "sig")
    (seal,) = [one for one in decode_frames(before, signed) if isinstance(one, Seal)]
    assert KEY.unseal(seal.signature) == Thought("Hm, well", "sig")
    data = {"type": "redacted_thinking", "data": "hidden"}
    (seal,) = [one for one in decode_frames(decoder, messages.make_block_start(1, data)) if isinstance(one, Seal)]
    assert KEY.unseal(seal.encrypted) == Thought(encrypted="hidden")


def test_reasoning_does_not_affect_how_frames_are_decoded() -> None:
    decoder = make_decoder(anthropic_messages.API)
    decode_frames(decoder, *messages.thinking_block(0, "Hm")[:2])
    other = copy.copy(decoder)
    other.record_reasoning(b"", [b"more"] * 3)
    assert other == decoder
    decode_frames(other, messages.make_block_stop(0))
    assert other != decoder
    assert json.dumps("") != decoder
