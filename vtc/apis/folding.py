"""Whole replies: read and written as the streams that say the same, so that there is one codec for both.

    body -> Api.unfold -> events -> frames -> the way of a stream -> frames -> events -> Api.fold -> body

A body whose stream comes back unchanged keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vtc.apis.base import Api, Request
from vtc.apis.fields import UNFIT, told
from vtc.json_text import decode, encode


class NoReply(ValueError):
    """The body is no reply of this API."""


def streamed(api: Api, body: bytes, request: Request | None = None) -> bytes:
    """Turn a whole reply into a stream: all that it says, or what `request` asks to be told.

    Raises `NoReply`.
    """
    framing = api.decoder().framing
    try:
        events = [*api.unfold(decode(body, "replace"), request)]
    except UNFIT as error:
        raise NoReply(f"the body is no reply of {api.name}: {told(error)}") from None
    return b"".join(framing.write(event, None, first=True) for event in events) + framing.last


def folded(api: Api, body: bytes, came: bytes, went: bytes) -> bytes:
    """Turn the stream that a body became, as `came` and rewritten as `went`, into the body that it adds up to.

    A body of which nothing changed keeps its bytes.
    """
    if came == went or (reply := _folded(api, went)) == _folded(api, came):
        return body
    return encode(reply)


def joined(api: Api, stream: bytes) -> bytes:
    """Turn a stream into the body that it adds up to, whatever that came from."""
    return encode(_folded(api, stream))


def _folded(api: Api, stream: bytes) -> Mapping[str, Any]:
    framing = api.encoder().framing
    reader = framing.reader()
    frames = [*reader.feed(stream.removesuffix(framing.last)), *reader.finish()]
    return api.fold([decode(one.data) for one in frames if one.data])


def add(said: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add a piece of a message, of a block or of a call: texts are joined, so are lists."""
    for key, value in more.items():
        if isinstance(value, dict):
            add(said.setdefault(key, {}), value)
        elif key == "content" and (isinstance(value, list) or isinstance(said.get(key), list)):
            said[key] = _joined([*_in_parts(said.get(key)), *_in_parts(value)])
        elif isinstance(value, list):
            said[key] = [*(said.get(key) or ()), *value]
        elif isinstance(value, str) and isinstance(said.get(key), str) and key not in ("role", "type"):
            said[key] += value
        else:
            said[key] = value


def _in_parts(content: Any) -> list[Any]:
    """A message's content in parts, as it is where some of it is no text."""
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _joined(parts: Iterable[Any]) -> list[Any]:
    """Parts of which those of text that follow each other are one."""
    joined: list[Any] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, dict) and isinstance(last, dict) and part.get("type") == last.get("type") == "text":
            joined[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            joined.append(part)
    return joined
