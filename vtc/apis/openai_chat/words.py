"""The words of chat completions that its modules share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vtc.apis.calls import arguments_text, raw_input
from vtc.apis.contract import FULL, Json, unchained
from vtc.events import CallDelta, Message, Opaque, Reason, ToolCall
from vtc.json_text import decode, encode
from vtc.wire.sse import EventStream

NAME = "openai-chat"


class ChatForm(msgspec.Struct, frozen=True):
    """The part of a request that the encoder of its reply must know."""

    usage: bool = True
    """The client asks how many tokens were used, or for a whole reply, which says it."""
    thoughts: tuple[str, ...] = ()
    """The fields in which the client is told what the model thinks; none for those of the server."""
    custom: frozenset[str] = frozenset()
    """Names of custom tools."""


FRAMING = EventStream(last=b"data: [DONE]\n\n")
REASONS: dict[str, Reason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "halted",
    "error": "halted",  # OpenRouter
    "abort": "halted",  # vLLM, SGLang
    "tool_calls": "tool_calls",
    "function_call": "other",  # the older form of a call, which is not read
}
"""Finish reasons; any other is a stop."""


def error(message: str, kind: str, status: int = 500) -> Json:
    """Write an error; `kind` is the server's word for it."""
    if kind == FULL:
        return {"message": message, "type": "invalid_request_error", "param": "messages", "code": FULL}
    type_ = kind or ("invalid_request_error" if status < 500 else "server_error")
    return {"message": message, "type": type_, "param": None, "code": None}


# Reads and writes what a model thought, as OpenRouter tells it and wants it back: `reasoning_details`.
#
#     {"type": "reasoning.text", "text": …, "signature": …, "format": …, "index": 0}
#     {"type": "reasoning.summary", "summary": …, …}
#     {"type": "reasoning.encrypted", "data": …, …}
#
# Google has a signature of what was thought on a call (`extra_content`), which must come back there. It crosses as an
# entry of our own, `{"type": "call", "id": …, "extra_content": …}`.
#
# In a stream an entry comes in pieces, of one type and index. One with a signature, or encrypted, must come back, with
# all entries before it; so they are one seal. The others are text, as a field of their own mostly says, too.


FIELD = "reasoning_details"
_TEXTS = ("text", "summary")
_SEALS = ("signature", "data")
CALL = "call"
EXTRA = "extra_content"
type Pieces = tuple[Any, Sequence[Json]] | None
"""The entries of a chunk, after those that came before."""


def entries_of(message: Json) -> list[Json]:
    """Find the entries of a message, or of a delta."""
    entries = message.get(FIELD)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def text_of(entries: Sequence[Json]) -> str:
    """Join the text of entries."""
    return "".join(entry[key] for entry in entries for key in _TEXTS if isinstance(entry.get(key), str))


def is_sealed(entries: Sequence[Json]) -> bool:
    """True if one of them must come back as it is."""
    return any(entry.get(key) for entry in entries for key in _SEALS)


def sealed(pieces: Pieces) -> str:
    """Write all entries so far as one value."""
    whole: list[dict[str, Any]] = []
    texts: list[str] = []
    for entry in (entry for entries in unchained(pieces) for entry in entries):
        key = next((key for key in _TEXTS if isinstance(entry.get(key), str)), "")
        last = whole[-1] if whole else {}
        if last and _about(last) == _about(entry) and not is_sealed([last]) and not entry.get("data"):
            last |= {name: value for name, value in entry.items() if value is not None and name not in _TEXTS}
        else:
            whole.append({**entry})
            texts = []
        if key:
            texts.append(entry[key])
            whole[-1][key] = texts  # joined once, as there may be thousands
    for entry in whole:
        entry |= {key: "".join(entry[key]) for key in _TEXTS if isinstance(entry.get(key), list)}
    return encode(whole).decode()


def opened(value: str) -> list[Json]:
    """Read entries that were written as one value; none if it is no such."""
    try:
        entries = decode(value.encode())
    except ValueError:
        return []
    return entries_of({FIELD: entries})


def of_calls(message: Json) -> list[Json]:
    """Find what stands on the calls of a delta and must come back with them; return it as entries."""
    calls = message.get("tool_calls")
    entries = [entry for entry in calls if isinstance(entry, dict)] if isinstance(calls, list) else []
    return [{"type": CALL, "id": entry.get("id"), EXTRA: entry[EXTRA]} for entry in entries if entry.get(EXTRA)]


def on_calls(calls: Sequence[Json], entries: Sequence[Json]) -> list[Json]:
    """Write calls with what stood on them; those that have other ids by now, or had none, by their order."""
    ids = {call["id"] for call in calls}
    extras = {entry["id"]: entry[EXTRA] for entry in entries if entry.get("type") == CALL and entry["id"] in ids}
    rest = iter([entry[EXTRA] for entry in entries if entry.get("type") == CALL and entry["id"] not in ids])
    written = [extras.get(call["id"]) or next(rest, None) for call in calls]
    return [{**call, EXTRA: extra} if extra else call for call, extra in zip(calls, written, strict=True)]


def past(message: Message) -> Iterator[Json]:
    """Find the entries of a past message that must come back."""
    if message.seal:
        yield from opened(message.seal.encrypted)
    for part in message.content:
        if isinstance(part, Opaque) and part.thought:
            yield from opened(part.thought.encrypted)


def _about(entry: Json) -> tuple[Any, Any]:
    return entry.get("type"), entry.get("index")


# Calls of chat completions: entries of `tool_calls`.


_KNOWN = ("index", "id", "type", "function", "custom", "name", "arguments")
HARMLESS = frozenset((*_KNOWN, EXTRA))
"""The fields of a call in which no client finds another one."""


def read_call(call: Mapping[str, Any], choice: int) -> CallDelta:
    """Read an entry of `tool_calls`, or a piece of one; it is not clean if it breaks a rule that clients rely on."""
    function = function_of(call)
    index, id_, name, arguments = (
        call.get("index"),
        call.get("id"),
        function.get("name") or "",
        function.get("arguments"),
    )
    clean = isinstance(index, int) and (not name or bool(id_ and call.get("type") in ("function", "custom")))
    clean = clean and isinstance(arguments, str | None)
    return CallDelta(
        index if isinstance(index, int) else None,
        id_ if isinstance(id_, str) else None,
        name if isinstance(name, str) else "",
        arguments_text(function.get("input") if arguments is None else arguments),
        call,
        choice,
        clean,
    )


def function_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an entry of `tool_calls` calls, or one of `tools` declares: a function or a custom tool."""
    part = entry.get("function") or entry.get("custom")
    return part if isinstance(part, Mapping) else {}


def entry_of(call: ToolCall, custom: Collection[str] = ()) -> dict[str, Any]:
    """Write a call as an entry of `tool_calls`, with the fields that VTC does not know (thought signatures).

    `custom` are the names of custom tools.
    """
    source = call.source if isinstance(call.source, dict) else {}
    rest = {key: value for key, value in source.items() if key not in _KNOWN}
    if "custom" in source or call.name in custom:
        custom_tool = {"name": call.name, "input": raw_input(call.arguments)}
        return {**rest, "id": call.id, "type": "custom", "custom": custom_tool}
    return {**rest, **call.as_openai()}
