"""Whole replies, converted to and from equivalent streams so that one codec handles both.

    body -> Api.unfold -> events -> frames -> processing as a stream -> frames -> events -> Api.fold -> body

A body whose stream is unchanged keeps its bytes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vtc.apis.calls import ToolCallAccumulator
from vtc.apis.contract import Api, Reply
from vtc.apis.fields import INVALID_BODY_ERRORS, describe_body_fault, object_of, unwrap_envelope
from vtc.apis.request import Request
from vtc.events import (
    CUT_OFF,
    CallDelta,
    Delta,
    Failure,
    Finish,
    Message,
    ReasoningDelta,
    Start,
    Text,
    TextDelta,
    Usage,
)
from vtc.json_text import decode_json, encode_json


class NoReply(ValueError):
    """The body is no reply of this API."""


def unwrap_gateway_envelope(body: bytes) -> bytes:
    """Unwrap a reply from a gateway's envelope; the same body if there is no envelope."""
    inner = unwrap_envelope(object_of(body))
    return body if inner is None else encode_json(inner)


def convert_to_stream(api: Api, body: bytes, request: Request | None = None) -> bytes:
    """Convert a whole reply to a stream: all its content, or the part that `request` asks for.

    Raises `NoReply`.
    """
    framing = api.framing
    try:
        events = [*api.unfold(decode_json(body, "replace"), request)]
    except INVALID_BODY_ERRORS as error:
        raise NoReply(f"the body is not a reply of {api.name}: {describe_body_fault(error)}") from None
    return b"".join(framing.encode(events)) + framing.last


def fold_rewritten(api: Api, body: bytes, before: bytes, after: bytes) -> bytes:
    """Convert the stream of a body, `before` and `after` processing, back to a body.

    An unchanged body keeps its bytes.
    """
    if before == after:
        return body
    reply = _fold_frames(api, after)
    return body if reply == _fold_frames(api, before) else encode_json(reply)


def render_text_reply(api: Api, request: Request, text: str, digest: str, created: int) -> bytes:
    """Render a whole reply with a text; its id is made of 64 hex digits, its time is in seconds since 1970."""
    encoder = api.encoder(request.form)
    reply = Start(digest[:24], request.model, created), Text(text), Finish("stop"), Usage()
    return encode_json(api.fold([*encoder.write(reply, 0), *encoder.end()]))


def make_error_stream(api: Api, request: Request, failure: Failure) -> bytes:
    """Render a stream that contains only an error."""
    framing, encoder = api.framing, api.encoder(request.form)
    events = [*encoder.write((Start(model=request.model), failure), 0), *encoder.end()]
    return b"".join(framing.encode(events)) + framing.last


def fold_stream(api: Api, stream: bytes) -> bytes:
    """Convert a stream of any origin to a whole body."""
    return encode_json(_fold_frames(api, stream))


def _fold_frames(api: Api, stream: bytes) -> Mapping[str, Any]:
    return api.fold(_decode_frames(api, stream))


def _decode_frames(api: Api, stream: bytes) -> Iterator[Mapping[str, Any]]:
    """Decode the frames of a stream; each is dropped once it is used, because freeing very many at once blocks."""
    reader = api.framing.make_reader()
    frames = deque([*reader.feed(stream.removesuffix(api.framing.last)), *reader.finish()])
    while frames:
        if data := frames.popleft().data:
            yield decode_json(data)


def add_piece(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add a piece to a message, a block or a call: texts and lists are joined."""
    for key, value in piece.items():
        if isinstance(value, dict):
            add_piece(whole.setdefault(key, {}), value)
        elif key == "content" and (isinstance(value, list) or isinstance(whole.get(key), list)):
            whole[key] = _join_text_parts([*_list_parts(whole.get(key)), *_list_parts(value)])
        elif isinstance(value, list):
            whole[key] = [*(whole.get(key) or ()), *value]
        elif isinstance(value, str) and isinstance(whole.get(key), str) and key not in ("role", "type"):
            text, whole[key] = whole[key], ""  # the only reference to it, so that nothing is copied for each piece
            text += value
            whole[key] = text
        else:
            whole[key] = value


def _list_parts(content: Any) -> list[Any]:
    """Return a message's content as a list of parts."""
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _join_text_parts(parts: Iterable[Any]) -> list[Any]:
    """Join adjacent parts of text."""
    joined: list[Any] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, dict) and isinstance(last, dict) and part.get("type") == last.get("type") == "text":
            joined[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def read_replies(api: Api, body: bytes) -> list[Reply]:
    """Decode each choice of a reply as one message, for people to read. Raises ValueError if the body is no reply of
    this API.

    A stream that broke off is decoded up to there.
    """
    decoder = api.decoder()
    if not decoder.framing.matches(body):
        body = convert_to_stream(api, body)
    reader = decoder.framing.make_reader()
    choices: dict[int, list[Delta]] = {}
    usage: Usage | None = None
    for frame in [*reader.feed(body), *reader.finish()]:
        decoded = decoder.decode(frame)
        if decoded is None:
            continue
        usage = next((item for item in decoded.metadata if isinstance(item, Usage)), usage)
        for delta in decoded.deltas:
            if not isinstance(delta, Failure):
                choices.setdefault(delta.choice, []).append(delta)
    if not choices:
        raise ValueError(f"the body is not a reply of {api.name}")
    return [_build_reply(deltas, usage) for _, deltas in sorted(choices.items())]


def get_first_text(api: Api, body: bytes) -> str:
    """Return the text of the first choice, with its calls as JSON; empty if the body is no reply of this API."""
    try:
        message = read_replies(api, body)[0].message
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    calls = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in message.calls]
    return "\n".join(part for part in (message.text, *calls) if part)


def _build_reply(deltas: Sequence[Delta], usage: Usage | None) -> Reply:
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    message = Message(
        "assistant",
        (text,) if text else (),
        tuple(ToolCallAccumulator(delta for delta in deltas if isinstance(delta, CallDelta)).calls()),
        reasoning="".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
    )
    end = next((delta for delta in reversed(deltas) if isinstance(delta, Finish) and delta.native_reason), None)
    own = next((delta.own for delta in deltas if isinstance(delta, ReasoningDelta) and delta.own), None)
    return Reply(
        message,
        end.native_reason if end else None,
        end is None or end.reason not in CUT_OFF,
        usage,
        all(delta.clean for delta in deltas if isinstance(delta, CallDelta)),
        own.kind.rpartition(".")[2] if own else "",
    )
