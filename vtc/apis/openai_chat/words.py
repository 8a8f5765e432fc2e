"""Finish reasons, errors, calls and entries of reasoning of chat completions.

The decoder, the encoder and the requests share them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vtc.apis import content
from vtc.apis.calls import format_arguments, parse_raw_input
from vtc.apis.clean import MISSING, NUMBER, OPTIONAL, WRITTEN, Table, get_text, is_clean
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED, Json, list_chain
from vtc.apis.errors import find_kind, find_kind_of_status
from vtc.apis.reasons import ReasonTable
from vtc.apis.whole import add_piece
from vtc.events import CallDelta, Media, Message, Opaque, Reason, ToolCall
from vtc.json_text import decode_json, encode_json
from vtc.wire.sse import EventStream

NAME = "openai-chat"


CACHE_WRITES = "cache_write_tokens"
"""The count of tokens written to the cache, among the details of the prompt's usage; also in Responses."""


class ChatForm(msgspec.Struct, frozen=True):
    """The settings of a request that the codec of its reply needs."""

    wants_usage: bool = True
    """True if the client gets usage: it asks for it, or for a whole reply, which contains it."""
    reasoning_fields: tuple[str, ...] = ()
    """The fields in which the client gets reasoning; empty for the server's own fields."""
    custom_tools: frozenset[str] = frozenset()
    """Names of custom tools."""
    wants_one_choice: bool = False
    """True if the client asks for one choice, as nearly all do. Then all choices of the server belong to it, because
    some servers send the text and the calls of one reply as separate choices."""


FRAMING = EventStream(last=b"data: [DONE]\n\n")
REASONS: dict[str, Reason] = {
    "stop": "stop",
    "length": "length",
    "model_context_window_exceeded": "length",  # z.ai
    "model_length": "length",  # Mistral
    "content_filter": "halted",
    "sensitive": "halted",  # z.ai
    "error": "failed",  # OpenRouter
    "abort": "failed",  # vLLM, SGLang
    "network_error": "failed",  # z.ai
    "insufficient_system_resource": "failed",  # DeepSeek
    "tool_calls": "tool_calls",
    "function_call": "other",  # the older form of a call, which is not read
}
"""Finish reasons of this API."""
REASON_OF = ReasonTable(REASONS)


def build_error(message: str, kind: str, status: int = 500) -> Json:
    """Render an error; `kind` is the server's word for it."""
    if kind == CONTEXT_LENGTH_EXCEEDED:
        return {
            "message": message,
            "type": "invalid_request_error",
            "param": "messages",
            "code": CONTEXT_LENGTH_EXCEEDED,
        }
    known = find_kind(kind) if kind else find_kind_of_status(status)
    type_, code = (known.openai, known.code) if known else (kind, None)
    return {"message": message, "type": type_, "param": None, "code": code}


# Reasoning, in the fields in which servers send it and require it back. OpenRouter has `reasoning_details`:
#
#     {"type": "reasoning.text", "text": …, "signature": …, "format": …, "index": 0}
#     {"type": "reasoning.summary", "summary": …, …}
#     {"type": "reasoning.encrypted", "data": …, …}
#
# LiteLLM has Claude's blocks in `thinking_blocks`; the one with the signature may repeat the text of earlier ones:
#
#     {"type": "thinking", "thinking": …, "signature": …}
#     {"type": "redacted_thinking", "data": …}
#
# Google signs reasoning on a call, and requires the signature there: `extra_content`, with a `google` or `vertex`
# object that has the `thought_signature`. On a bridge it is an entry of VTC's own, `{"extra_content": …}`.
#
# Copilot has two fields of the message, which must be sent back together: `reasoning_text`, and `reasoning_opaque`,
# which may arrive in pieces. On a bridge they are an entry of VTC's own with both fields.
#
# In a stream an entry arrives in pieces of one type and index. An entry with a signature or encrypted data must be sent
# back, with all entries before it; so together they are one seal. The other entries are text, which usually also has a
# separate field.


DETAILS_FIELD = "reasoning_details"
_BLOCKS_FIELD = "thinking_blocks"
COPILOT_FIELDS = ("reasoning_text", "reasoning_opaque")
SEALED_FIELDS = (DETAILS_FIELD, _BLOCKS_FIELD, *COPILOT_FIELDS)
"""The fields of a message that contain entries of reasoning."""
_BLOCK_TYPES = ("thinking", "redacted_thinking")
_TEXT_KEYS = ("text", "summary", "thinking", COPILOT_FIELDS[0])
_SEAL_KEYS = ("signature", "data", COPILOT_FIELDS[1])
EXTRA_CONTENT = "extra_content"
SEAL_SEPARATOR = "."
"""Separates several seals of another API's server in one signature."""
_SIGNERS, _SIGNATURE = ("google", "vertex"), "thought_signature"
type EntryChain = tuple[Any, Sequence[Json]] | None
"""Entries of reasoning: those of the newest chunk, linked to those of the earlier chunks."""


def entries_of(message: Json) -> list[Json]:
    """Find the entries of reasoning in a message or a delta."""
    lists = (message[key] for key in (DETAILS_FIELD, _BLOCKS_FIELD) if isinstance(message.get(key), list))
    listed: list[Json] = [entry for entries in lists for entry in entries if isinstance(entry, dict)]
    of_copilot: Json = {
        key: message[key] for key in COPILOT_FIELDS if message.get(key) and isinstance(message[key], str)
    }
    return [*listed, of_copilot] if of_copilot else listed


def field_of(entry: Json) -> str:
    """Return the field of an entry."""
    return _BLOCKS_FIELD if entry.get("type") in _BLOCK_TYPES else DETAILS_FIELD


def text_of(entries: Sequence[Json]) -> str:
    """Join the text of entries."""
    return "".join(entry[key] for entry in entries for key in _TEXT_KEYS if isinstance(entry.get(key), str))


def seals_in(entries: Sequence[Json]) -> Iterator[str]:
    """Find the seals of entries."""
    return (str(entry[key]) for entry in entries for key in _SEAL_KEYS if entry.get(key))


def is_sealed(entries: Sequence[Json]) -> bool:
    """Return True if one of the entries has a seal."""
    return any(seals_in(entries))


def pack_entries(pieces: EntryChain) -> str:
    """Merge the pieces of entries, and encode the entries as one JSON value."""
    # Step 1: merge adjacent pieces of one type and index. The texts of an entry are a list until step 2.
    whole: list[dict[str, Any]] = []
    texts: list[str] = []
    for entry in (entry for entries in list_chain(pieces) for entry in entries):
        key = next((key for key in _TEXT_KEYS if isinstance(entry.get(key), str)), "")
        last = whole[-1] if whole else {}
        if last and _entry_key(last) == _entry_key(entry) and not is_sealed([last]) and not entry.get("data"):
            last |= {name: value for name, value in entry.items() if value is not None and name not in _TEXT_KEYS}
        else:
            whole.append({**entry})
            texts = []
        if key:
            # A signed block of Claude may repeat the text of the pieces before it.
            if key == "thinking" and is_sealed([entry]) and entry[key] == "".join(texts):
                texts.clear()
            texts.append(entry[key])
            whole[-1][key] = texts
    # Step 2: join the texts, once per entry, because there may be thousands of pieces.
    for entry in whole:
        lists = {key: entry[key] for key in _TEXT_KEYS if isinstance(entry.get(key), list)}
        entry |= {key: "".join(text for text in texts if isinstance(text, str)) for key, texts in lists.items()}
    return encode_json(whole).decode()


def unpack_entries(value: str) -> list[Json]:
    """Decode entries from one value; an empty list if it is invalid."""
    try:
        entries = decode_json(value.encode())
    except ValueError:
        return []
    return entries_of({DETAILS_FIELD: entries})


def find_call_seals(message: Json) -> Iterator[tuple[int, Json]]:
    """Find the seals on the calls of a delta, each with the index of its call among those that begin in this delta.

    The index is -1 for the last call of an earlier delta.
    """
    calls = message.get("tool_calls")
    index = -1
    for entry in calls if isinstance(calls, list) else ():
        if isinstance(entry, dict):
            if function_of(entry).get("name"):  # the first piece of a call
                index += 1
            if entry.get(EXTRA_CONTENT):
                yield index, {EXTRA_CONTENT: entry[EXTRA_CONTENT]}


def signature_on(call: Json) -> str:
    """Return the signature on a call; empty if there is none."""
    extra = call.get(EXTRA_CONTENT)
    signed = [extra.get(signer) for signer in _SIGNERS] if isinstance(extra, dict) else []
    values = [fields[_SIGNATURE] for fields in signed if isinstance(fields, dict) and fields.get(_SIGNATURE)]
    return str(values[0]) if values else ""


def make_signature_entry(signature: str) -> Json:
    """Make the entry of a signature on a call."""
    return {EXTRA_CONTENT: {_SIGNERS[0]: {_SIGNATURE: signature}}}


class PastEntries(NamedTuple):
    """Entries that a past message must send back: its fields, and fields of its calls."""

    fields: Json
    on_calls: Mapping[int, Json]
    """Fields by the index of the call."""

    def put_on(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add the fields to the entries of their calls; return these."""
        for place, fields in self.on_calls.items():
            calls[place] |= fields
        return calls


_NO_ENTRIES = PastEntries({}, {})


def drop_reasoning(message: Message) -> Sequence[str | Opaque]:
    """Return the content of a past message without reasoning."""
    if Opaque not in map(type, message.content):
        return message.content
    return [part for part in message.content if isinstance(part, str) or not part.thought]


def find_past_entries(message: Message) -> PastEntries:
    """Find the entries of a past message that must be sent back."""
    if Opaque not in map(type, message.sequence if message.calls else message.content):
        return _NO_ENTRIES
    fields: dict[str, Any] = {}
    on_calls: dict[int, Json] = {}
    on_next_call: Json = {}
    calls = 0
    for part in message.sequence:
        if isinstance(part, ToolCall):
            on_calls[calls], on_next_call = on_next_call, {}
            calls += 1
        elif isinstance(part, Opaque) and part.thought:
            for entry in unpack_entries(part.thought.encrypted):
                if EXTRA_CONTENT in entry:
                    on_next_call = entry
                else:
                    add_piece(fields, entry if entry.keys() & COPILOT_FIELDS else {field_of(entry): [entry]})
    return PastEntries(fields, on_calls)


def _entry_key(entry: Json) -> tuple[Any, Any]:
    return entry.get("type"), entry.get("index")


_RENDERED_CALL_FIELDS = frozenset(("index", "id", "type", "function", "custom", "name", "arguments"))
HARMLESS_CALL_FIELDS = _RENDERED_CALL_FIELDS | {EXTRA_CONTENT}
"""Fields of a call in which no client finds another one."""

_TYPES = ("function", "custom")
_FIRST_PIECE: Table = {"index": (NUMBER,), "id": (WRITTEN,), "type": _TYPES}
_LATER_PIECE: Table = {"index": (NUMBER,), "id": (MISSING,), "type": (MISSING, *_TYPES)}
_FIRST_FUNCTION: Table = {"name": (WRITTEN,), "arguments": OPTIONAL}
_LATER_FUNCTION: Table = {"name": (MISSING,), "arguments": OPTIONAL}
"""Kinds of value in a clean piece of a call, and in its function: for the first piece and for later ones."""


def read_call(call: Mapping[str, Any], choice: int, begun_calls: int = 0) -> CallDelta:
    """Decode an entry of `tool_calls`, or a piece of one; `begun_calls` calls have begun before it."""
    function = function_of(call)
    index, name, arguments = call.get("index"), get_text(function.get("name")), function.get("arguments")
    number = index if isinstance(index, int) else None
    begins = bool(name) or number is None or number >= begun_calls
    clean = is_clean(call, _FIRST_PIECE if begins else _LATER_PIECE) and is_clean(
        function, _FIRST_FUNCTION if begins else _LATER_FUNCTION
    )
    text = format_arguments(function.get("input") if arguments is None else arguments)
    return CallDelta(number, get_text(call.get("id")) or None, name, text, call, choice, clean)


def function_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the function or custom tool that an entry of `tool_calls` calls or one of `tools` declares."""
    part = entry.get("function") or entry.get("custom")
    return part if isinstance(part, dict) else {}


def entry_of(call: ToolCall, custom: Collection[str] = ()) -> dict[str, Any]:
    """Render a call as an entry of `tool_calls`, with its unknown fields (thought signatures).

    `custom` are the names of custom tools.
    """
    source = call.source if isinstance(call.source, dict) else {}
    rest = {key: value for key, value in source.items() if key not in _RENDERED_CALL_FIELDS}
    if "custom" in source or call.name in custom:
        custom_tool = {"name": call.name, "input": parse_raw_input(call.arguments)}
        return {**rest, "id": call.id, "type": "custom", "custom": custom_tool}
    return rest | call.as_openai()


_DETAILS = {"low": "low", "high": "high", "auto": "auto", "original": "high"}
"""Levels of detail of Responses, with those of this API."""


def render_media(media: Media) -> Mapping[str, Any]:
    """Render media as a part of a message."""
    if media.kind == "image":
        detail = {"detail": _DETAILS[media.detail]} if media.detail in _DETAILS else {}
        return {"type": "image_url", "image_url": {"url": content.render_media_url(media), **detail}}
    if media.data:
        return {
            "type": "file",
            "file": {"filename": media.name or "document.pdf", "file_data": content.render_media_url(media)},
        }
    return {"type": "text", "text": content.describe_omitted_media(media)}
