"""Chunks of a streamed chat completion. Nearly every one says some text of one choice, and nothing else that matters:

    {"id": …, "choices": [{"index": 0, "delta": {"content": " word"}, "logprobs": null, "finish_reason": null}]}

Decoded into the few fields that decide about it, such a chunk costs a third of what plain data would; any other is for
`openai_stream.py` to look at closely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec


class Said(NamedTuple):
    choice: int
    text: str
    has_role: bool


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    role: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta
    index: int | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Chunk).decode


def text_only(data: bytes) -> Said | None:
    """The text of a chunk that says no more than that; None for any other."""
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
    return Said(choice.index or 0, delta.content, bool(delta.role))


# Making new ones


def whole(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """What a chunk says of the whole reply: id, model, …"""
    return {key: value for key, value in chunk.items() if key not in ("choices", "usage")}


def bare(whole: Mapping[str, Any], index: int) -> dict[str, Any]:
    """A chunk that says nothing yet."""
    return {**whole, "choices": [{"index": index, "delta": {}, "finish_reason": None}]}


def with_delta(chunk: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """A chunk of one choice that says something else."""
    return {**chunk, "choices": [{**chunk["choices"][0], "delta": delta}]}
