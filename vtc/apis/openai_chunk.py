"""Chunks of a streamed chat completion. Nearly every one says some text of one choice, and nothing else that matters:

    {"id": …, "choices": [{"index": 0, "delta": {"content": " word"}, "logprobs": null, "finish_reason": null}]}

Decoded into the few fields that decide about it, such a chunk costs a third of what plain data would; any other is for
`openai_stream.py` to look at closely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vtc.apis.openai_json import encode


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    role: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class Said(msgspec.Struct, gc=False):
    """A choice with text in its delta."""

    delta: Delta
    index: int | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[Said]


_decode = msgspec.json.Decoder(_Chunk).decode


def text_only(data: bytes) -> Said | None:
    """The choice of a chunk that says no more than some text of it; None for any other."""
    try:
        choices = _decode(data).choices
    except (msgspec.DecodeError, UnicodeError):
        return None
    if len(choices) != 1:
        return None
    choice = choices[0]
    delta = choice.delta
    if not delta.content or choice.finish_reason:
        return None
    if delta.tool_calls or delta.function_call or delta.reasoning_content or delta.reasoning:
        return None
    return choice


def says_nothing_else(chunk: Mapping[str, Any], *, role_sent: bool) -> bool:
    """Whether a chunk of one choice says nothing besides the text in its delta, or only its role once more."""
    if chunk.get("usage") is not None:
        return False
    (choice,) = chunk["choices"]
    known = ("content", "role") if role_sent else ("content",)
    if any(value not in (None, "", []) for key, value in choice["delta"].items() if key not in known):
        return False
    return not any(value is not None for key, value in choice.items() if key not in ("index", "delta"))


def is_more(raw: bytes, data: bytes) -> bool:
    """Whether a frame has other lines than its data."""
    return len(raw) > len(b"data: \n\n") + len(data)


# Making new ones


def framed(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"


def whole(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """What a chunk says of the whole reply: id, model, …"""
    return {key: value for key, value in chunk.items() if key not in ("choices", "usage")}


def bare(whole: Mapping[str, Any], index: int) -> dict[str, Any]:
    """A chunk that says nothing yet."""
    return {**whole, "choices": [{"index": index, "delta": {}, "finish_reason": None}]}


def with_delta(chunk: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """A chunk of one choice that says something else."""
    return {**chunk, "choices": [{**chunk["choices"][0], "delta": delta}]}
