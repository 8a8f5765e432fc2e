"""Streams of which one frame is damaged: a field is missing or has a wrong JSON type, or the decoder fails at it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from operator import getitem
from typing import Any, NamedTuple

import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from tests.apis import chat, pairs
from tests.apis.replies import REPLIES
from tests.apis.shapes import SHAPES
from tests.exchange.crossings import BY_NAME, open_bridge
from tests.exchange.damages import frames_of, no_faults, places, put_value
from vtc.exchange import Stream

MISSING, ADDED = object(), object()
"""Instead of a value: the field is removed, or its object gets another field, whose name is empty."""
VALUES = [MISSING, ADDED, None, True, 5, -1.5, "x", "", [], {}, [None], [[]], ["a"], {"a": [1]}, [{}]]
FOLDERS = {"messages": "anthropic-messages", "ollama": "ollama-chat", "responses": "openai-responses"}
ENTRIES = [
    {"type": "reasoning.text", "text": "a", "signature": "s", "format": "f", "index": 0},
    {"type": "reasoning.encrypted", "data": "d", "index": 1},
]
FUNCTION = {"name": "x", "arguments": "{}"}
SIGNED = {"google": {"thought_signature": "s"}}
CHAT_FRAMES = [
    chat.ROLE,
    chat.chunk({"reasoning_details": ENTRIES}),
    chat.chunk({"content": [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": [{"text": "b"}]}]}),
    chat.chunk({"thinking_blocks": [{"type": "thinking", "thinking": "a", "signature": "s"}]}),
    chat.chunk({"refusal": "no"}),
    chat.chunk({"tool_calls": [{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "x", "input": "y"}}]}),
    chat.chunk({"tool_calls": [{"index": 1, "id": "c2", "function": FUNCTION, "extra_content": SIGNED}]}),
    chat.chunk({"function_call": FUNCTION}),
    chat.STOP,
    chat.frame({"error": {"message": "m", "type": "t", "code": 5}, "choices": []}),
    chat.DONE,
]


class Damage(NamedTuple):
    """One value of one frame of a reply."""

    frames: Sequence[bytes]
    number: int
    """The number of the frame."""
    place: tuple[Any, ...]

    def apply(self, value: Any) -> bytes:
        """Return the frame with this value."""
        frame = self.frames[self.number]
        before, brace, data = frame.partition(b"{")
        fields = json.loads(brace + data)
        *above, last = self.place
        if value is ADDED:
            put_value(fields, (*above, "" if isinstance(last, str) else last), 5)
        elif value is not MISSING:
            put_value(fields, self.place, copy.deepcopy(value))
        elif isinstance(last, str):
            del reduce(getitem, above, fields)[last]
        else:
            reduce(getitem, above, fields).pop(last)
        return before + chat.encode_json(fields) + frame[len(frame.rstrip()) :]

    def list_frames(self, value: Any) -> list[bytes]:
        """Return the frames of the reply with this value."""
        return [*self.frames[: self.number], self.apply(value), *self.frames[self.number + 1 :]]


@cache
def list_replies(server: str) -> list[list[bytes]]:
    """List the replies of an API's servers, as frames."""
    recorded = [body for name, body in REPLIES.items() if FOLDERS.get(name.partition("/")[0]) == server]
    calls = [("read", {"filePath": "/a"}), ("list", {})]
    bodies = [*recorded, pairs.make_stream(server, ["Hel", "lo"], calls, reasoning="Hm.")]
    end = b"\n" if server == "ollama-chat" else b"\n\n"
    replies = [[frame + end for frame in body.split(end) if frame.strip()] for body in bodies]
    return [*replies, frames_of(server), *([CHAT_FRAMES] if server == "openai-chat" else [])]


def _list_damages(frames: Sequence[bytes]) -> Iterator[tuple[Any, Damage]]:
    """List each value of some frames, with a key that similar values of similar frames share."""
    for number, frame in enumerate(frames):
        if b"{" in frame:
            fields = json.loads(frame[frame.index(b"{") :])
            for place in places(fields):
                names = tuple("" if isinstance(key, int) else key for key in place)
                yield (str(fields.get("type")), names), Damage(frames, number, place)


@cache
def list_damages(server: str) -> list[Damage]:
    """List the values of replies that are to be damaged: each kind of value once in each reply."""
    return [damage for frames in list_replies(server) for damage in dict(_list_damages(frames)).values()]


@pytest.mark.parametrize("server", SHAPES)
def test_no_decoder_raises(server: str) -> None:
    tried = set()
    for frames in list_replies(server):
        decoder = BY_NAME[server].decoder()
        states = []
        for frame in frames:
            states.append(copy.copy(decoder))
            [*map(decoder.decode, decoder.framing.make_reader().feed(frame))]
        for key, damage in _list_damages(frames):
            for value in VALUES if key not in tried else ():
                decoder = copy.copy(states[damage.number])
                rest = [damage.apply(value), *frames[damage.number + 1 :][:2], *frames[-2:]]
                [*map(decoder.decode, decoder.framing.make_reader().feed(b"".join(rest)))]
            tried.add(key)


def sent(stream: Stream, chunks: Sequence[bytes]) -> bytes:
    """Return everything that a client is sent."""
    return b"".join([*(piece for chunk in chunks for piece in stream.feed(chunk)), *stream.finish()])


def cut(frames: Sequence[bytes], size: int) -> Sequence[bytes]:
    """Cut a reply into chunks of this size; 0 means frame by frame."""
    body = b"".join(frames)
    return [body[at : at + size] for at in range(0, len(body), size)] if size else frames


ENDS: dict[str, tuple[bytes, ...]] = {
    "openai-chat": (b"data: [DONE]", b'"error"'),
    "anthropic-messages": (b'"message_stop"', b'"error"'),
    "openai-responses": (b'"response.completed"', b'"response.incomplete"', b'"response.failed"', b'"error"'),
    "ollama-chat": (b'"done":true', b'"error"'),
    "gemini-generate": (b'"finishReason"', b'"error"'),
}


@pytest.mark.parametrize("server", SHAPES)
@over(data=st.data())
def test_no_cut_matters_and_a_bridged_reply_has_an_end(server: str, data: st.DataObject) -> None:
    frames = data.draw(st.sampled_from(list_damages(server))).list_frames(data.draw(st.sampled_from(VALUES)))
    client = data.draw(st.sampled_from([*SHAPES, server]))
    with no_faults():
        outs = {sent(open_bridge(client, server, stream=True).stream(), cut(frames, size)) for size in (1 << 20, 0, 40)}
    assert len(outs) == 1, "the cut of the bytes matters"
    (out,) = outs
    assert client == server or any(end in out for end in ENDS[client]), "the reply has no end"


@pytest.mark.parametrize("server", SHAPES)
@over(data=st.data())
def test_after_a_fault_of_the_decoder(server: str, data: st.DataObject) -> None:
    """The rest is forwarded unchanged, whatever the cut; a client of another API gets an error."""
    frames = [*data.draw(st.sampled_from(list_replies(server)))]
    client = data.draw(st.sampled_from([*SHAPES, server]))
    at = data.draw(st.integers(0, len(frames) - 1))
    frames.insert(at, b'{"fault": 1}\n' if server == "ollama-chat" else b'data: {"fault": 1}\n\n')
    outs = set()
    for size in (1 << 20, 0, 40):
        stream = open_bridge(client, server, stream=True).stream()
        with pytest.MonkeyPatch.context() as patch:
            fail_at_fault(type(stream._relay.decoder), patch)
            outs.add((sent(stream, cut(frames, size)), stream.broken))
    assert len(outs) == 1, "the cut of the bytes matters"
    ((out, is_broken),) = outs
    assert is_broken == (client != server)
    assert client == server or any(end in out for end in ENDS[client]), "the reply has no end"


@pytest.mark.parametrize(
    ("frame", "place", "value"),
    [("output_text.delta", ("logprobs",), 5), ("output_item.added", ("item", "type"), "reasoning")],
)
def test_a_damaged_text_of_responses_is_encoded_again(frame: str, place: tuple[Any, ...], value: Any) -> None:
    """Without `response.created`, all frames are encoded again."""
    frames = [one for one in frames_of("openai-responses") if b"response.created" not in one]
    number = next(number for number, one in enumerate(frames) if frame.encode() in one and b"msg" in one)
    with no_faults():
        out = sent(
            open_bridge("openai-responses", "openai-responses", stream=True).stream(),
            Damage(frames, number, place).list_frames(value),
        )
    assert any(end in out for end in ENDS["openai-responses"])


def fail_at_fault(decoder: type[Any], patch: pytest.MonkeyPatch) -> None:
    """Let a decoder fail at a frame with the field `fault`."""
    decode = decoder.decode

    def fails(self: Any, frame: Any) -> Any:
        if b'"fault"' in frame.raw:
            raise KeyError("fault")
        return decode(self, frame)

    patch.setattr(decoder, "decode", fails)
