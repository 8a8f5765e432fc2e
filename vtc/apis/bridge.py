"""Bridges: requests for a server of another API, in the form that every API can express, and names that are mapped both
ways.

    client's Request -> to_canonical -> CanonicalRequest -> Api.writer (server's) -> body

Further corrections for a server are the steps of `exchange/asking/steps`.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self

import msgspec
from msgspec.structs import replace

from vtc.apis.content import describe_omitted_part, find_cache_mark, get_file_name
from vtc.apis.contract import Decoded, Decoder, TextChain, join_chain
from vtc.apis.fields import get_at, object_of, part_of, text_at
from vtc.apis.layout import UNSIGNED_CALL_SIGNATURE
from vtc.apis.request import Request
from vtc.apis.seals import SealKey
from vtc.events import (
    BlockStart,
    CallDelta,
    CanonicalRequest,
    Delta,
    FrameMetadata,
    Media,
    Message,
    Opaque,
    ReasoningDelta,
    Seal,
    SealPlace,
    Start,
    Thought,
    Tool,
    ToolCall,
    flatten_name,
)
from vtc.json_text import decode_json, encode_json
from vtc.wire.framing import Frame, Framing

FAILED_RESULT_PREFIX = "Error:"
"""Prefix of a failed result whose text does not mention the error, because other APIs have no field for it."""
_WIRE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


type ReasoningField = Literal["reasoning_content", "reasoning", "reasoning_text"]
"""The field in which servers of chat completions expect the reasoning of a past message."""
REASONING_FIELDS: tuple[ReasoningField, ...] = ("reasoning_content", "reasoning", "reasoning_text")


def to_canonical(
    request: Request,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    choice: str,
    thoughts: str = "",
    seals: SealKey | None = None,
) -> CanonicalRequest:
    """Convert a request to canonical form, with these messages and tools, which may replace its own.

    `thoughts` is the field in which a server of chat completions expects past reasoning. The server gets its own sealed
    reasoning back if VTC signed it with the key `seals`.
    """
    offer, generation = request.offer, request.generation
    # Step 1: Convert the messages; this also collects parts and seals that are not translated.
    unknown: dict[str, None] = {}
    foreign: list[str] = []
    canonical = tuple(_convert_message(request, message, seals, unknown, foreign) for message in messages)
    # Step 2: List everything that is not translated, for the report.
    functions = {tool.name for tool in offer.tools}
    untranslated = request.LAYOUT.list_untranslated(request.fields)
    if generation.wants_choices:
        untranslated.append("more than one choice")
    if generation.constrained and generation.answer is None:
        untranslated.append("form of the answer")
    untranslated += (f"tool {name}" for name in offer.declared if name not in functions)
    untranslated += (f"a second declaration of {name}" for name in sorted(offer.redeclared))
    untranslated += _list_untranslated_tool_fields(request)
    untranslated += unknown
    untranslated += dict.fromkeys(name for message in messages for name in request.list_untranslated(message))
    return CanonicalRequest(
        model=request.model,
        messages=canonical,
        reasoning_field=thoughts,
        stream=request.stream,
        tools=tuple(replace(tool, parameters=_complete_schema(tool)) for tool in tools),
        choice=choice if tools or choice not in ("none", "required") else "auto",
        parallel=offer.parallel,
        limits=generation.limits,
        effort=generation.effort,
        thinking=generation.thinking,
        answer=generation.answer,
        tools_mark=find_cache_mark(request.fields.get("tools")) if tools else None,
        untranslated=tuple(untranslated),
        foreign_seals=len(foreign),
    )


def _convert_message(
    request: Request, message: Message, seals: SealKey | None, unknown: dict[str, None], foreign_seals: list[str]
) -> Message:
    """Convert a message to the form that every API can express.

    Kinds of parts that have no equivalent are added to `unknown`, seals that VTC did not sign here to `foreign`.
    """
    content: list[str | Opaque] = []
    is_failed = message.role == "tool" and request.is_failed_result(message)
    if is_failed and "error" not in message.text.strip().partition("\n")[0].casefold():
        content.append(FAILED_RESULT_PREFIX)
    own_seals = request.list_seals(message) if message.role == "assistant" else ()
    sealed = {value: seals.unseal(value) if seals else None for value in own_seals}
    foreign_seals += [value for value, thought in sealed.items() if not thought and value != UNSIGNED_CALL_SIGNATURE]
    for part in _read_parts_in_text(request, message):
        if isinstance(part, Opaque) and part.thought:
            content.append(part)
            continue
        meaning = part if isinstance(part, str) else request.interpret_part(part.part)
        if isinstance(meaning, Media):
            content.append(Opaque(media=meaning))
        elif isinstance(meaning, Seal):
            content += _select_thoughts(sealed, [meaning.value])
        elif meaning:
            content.append(meaning)
        elif meaning is None and isinstance(part, Opaque) and (kind := request.name_part(part.part)):
            file_name = get_file_name(part.part)
            unknown[f"{kind} by file_id" if file_name else kind] = None
            if message.role in ("user", "tool"):
                content.append(describe_omitted_part(f"{kind} {file_name}".strip()))
    if refusal := request.get_refusal(message):
        content.append(refusal)
    content += [Opaque(media=media) for media in request.get_attached_media(message)]
    calls: list[ToolCall] = []
    for call in message.calls:
        if not call.name:  # servers reject it, and its result becomes a message of the user
            content.append(call.arguments)
            continue
        on_call = _select_thoughts(sealed, request.get_call_seals(call))
        # In some APIs the first call carries all earlier seals, which belong to the beginning of the reply.
        if not calls:
            content = [*_select_placed(on_call, ""), *content, *_select_placed(on_call, "text")]
            on_call = _select_placed(on_call, "call")
        calls.append(_convert_call(request, call, on_call, sealed))
    return replace(
        message,
        content=tuple(content),
        calls=tuple(calls),
        name=message.name if message.role == "tool" else None,
        cache_mark=find_cache_mark(message.source),
        source=None,
    )


def _read_parts_in_text(request: Request, message: Message) -> Sequence[str | Opaque]:
    """Return the content of a message, with the parts of a result that is the JSON text of parts, one of them media."""
    match message:
        case Message(role="tool", content=(str(text),)) if text.startswith("[") and "image" in text:
            with suppress(ValueError):
                parts = [*map(Opaque, decode_json(text.encode()))]
                kinds = {type(request.interpret_part(part.part)) for part in parts}
                if Media in kinds and kinds <= {str, Media}:
                    return parts
    return message.content


type _Sealed = Mapping[str, Thought | None]
"""The seals of a message with their reasoning; None for a seal that may not be from its server."""


def _select_thoughts(sealed: _Sealed, values: Iterable[str]) -> list[Opaque]:
    return [Opaque(thought=thought) for value in values if (thought := sealed.get(value))]


def _select_placed(thoughts: Iterable[Opaque], on: SealPlace) -> list[Opaque]:
    return [part for part in thoughts if part.thought and part.thought.on == on]


def _convert_call(request: Request, call: ToolCall, on_call: Sequence[Opaque], sealed: _Sealed) -> ToolCall:
    """Convert a call with the reasoning next to it and on it."""

    def thoughts_in(parts: Iterable[Opaque]) -> list[Opaque]:
        seals = [seal for part in parts if part.part and isinstance(seal := request.interpret_part(part.part), Seal)]
        brought = _select_thoughts(sealed, (seal.value for seal in seals))
        return [*(part for part in parts if part.thought), *brought]

    before, after = (*thoughts_in(call.before), *on_call), (*thoughts_in(call.after),)
    return ToolCall(call.name, call.arguments, call.id, before=before, after=after)


_TRANSLATED_TOOL_FIELDS = (
    *("type", "name", "description", "parameters", "input_schema", "strict", "function", "custom", "format", "tools"),
    *("cache_control", "defer_loading", "eager_input_streaming"),
)
"""Fields of tools that are translated, or that mean nothing to servers of other APIs."""


def _list_untranslated_tool_fields(request: Request) -> dict[str, None]:
    """List the fields of tools that have no equivalent in other APIs."""
    names = {tool.name for tool in request.offer.tools}
    entries = [entry for entry in request.fields.get("tools") or () if isinstance(entry, Mapping)]
    own = [entry for entry in entries if text_at(part_of(entry, "function") or entry, "name") in names]
    return {
        f"{key} of tools": None
        for entry in own
        for key, value in entry.items()
        if key not in _TRANSLATED_TOOL_FIELDS and value
    }


def list_strict_tools(request: Request) -> set[str]:
    """List the tools whose calls must conform to their schema; the server may get a simpler schema."""
    entries = (part for entry in request.fields.get("tools") or () for part in (entry, part_of(entry, "function")))
    return {str(part.get("name")) for part in entries if isinstance(part, Mapping) and part.get("strict") is True}


def _complete_schema(tool: Tool) -> Mapping[str, object]:
    """Return the schema of a tool's parameters with the type `object`, which servers require."""
    return tool.parameters if tool.parameters.get("type") else {"type": "object", "properties": {}, **tool.parameters}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


class WireNames:
    """Maps tool names to names that every API accepts: at most 64 letters, digits, `_` and `-`, and no digit first.

    Two tools never share a name, and a name is mapped identically in every turn.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._out: dict[str, str] = {}
        self._back: dict[str, str] = {}
        for name in sorted(names, key=lambda name: not _WIRE_NAME.fullmatch(name)):
            self.to_wire(name)

    def to_wire(self, name: str) -> str:
        """Return the name for the server."""
        if name not in self._out:
            wire = re.sub(r"[^A-Za-z0-9_-]|^(?=[0-9-])", "_", flatten_name(name))
            if len(wire) > 64 or wire in self._back:
                wire = f"{wire[:55]}_{_digest(name)[:8]}"
            self._out[name], self._back[wire] = wire, name
        return self._out[name]

    @property
    def changed(self) -> Mapping[str, str]:
        """Return the names that differ, each with its name for the server."""
        return {name: wire for name, wire in self._out.items() if name != wire}

    def to_client(self, wire: str) -> str:
        """Return the client's name of a tool that the server calls."""
        return self._back.get(wire, wire)


class WrappedDecoder(msgspec.Struct):
    """Base of decoders that change the frames of another decoder."""

    decoder: Decoder

    def __copy__(self) -> Self:
        return replace(self, decoder=copy.copy(self.decoder))

    @property
    def framing(self) -> Framing:
        return self.decoder.framing


class BridgeDecoder(WrappedDecoder, eq=False):
    """Decoder of a bridge: restores names of tools and the model, gives each call an id, and signs seals."""

    names: WireNames
    model: str
    id: str
    """The id of the reply, without the prefix that ids have in the client's API. Calls without an id get one made of
    it.
    """
    seals: SealKey
    """Signs the server's seals."""
    signs: bool = False
    """True if its seals are valid only with the text of the reasoning."""
    created: int = 0
    """The time of a reply whose server sends none, in seconds since 1970."""
    calls: int = 0
    """Number of calls that had no id."""
    known: frozenset[tuple[int, int]] = frozenset()
    """The calls that have an id, by choice and number."""
    thought: TextChain = None
    """The text of the latest reasoning until it is sealed, if the seal depends on the text."""

    def __eq__(self, other: object) -> bool:
        """Return True if another decoder will decode frames identically, for any reasoning so far."""
        if not isinstance(other, BridgeDecoder):
            return False
        return (self.decoder, self.calls, self.known) == (other.decoder, other.calls, other.known)

    def __ne__(self, other: object) -> bool:
        return not self == other  # msgspec defines `__ne__` itself

    __hash__ = None  # type: ignore[assignment]

    def record_reasoning(self, data: bytes, texts: Sequence[bytes]) -> None:
        if self.thought:
            self.thought = self.thought, "".join(decode_json(b'["%b"]' % b'","'.join(texts)))

    def decode(self, frame: Frame) -> Decoded | None:
        decoded = self.decoder.decode(frame)
        if decoded is None:
            return None
        deltas, metadata = decoded.deltas, decoded.metadata
        if self.signs and any(isinstance(item, BlockStart) and item.kind == "reasoning" for item in metadata):
            self.thought = None, ""
        if self.thought:
            for delta in deltas:
                self.thought = (self.thought, delta.text) if isinstance(delta, ReasoningDelta) else self.thought
        if any(isinstance(delta, CallDelta) and (delta.name or delta.id) for delta in deltas):
            deltas = tuple(self._assign_call_id(delta) if isinstance(delta, CallDelta) else delta for delta in deltas)
        return replace(decoded, deltas=deltas, metadata=tuple(map(self._rewrite_metadata, metadata)))

    def _rewrite_metadata(self, item: FrameMetadata) -> FrameMetadata:
        """Give a start the client's id and model, and sign a seal together with its reasoning."""
        match item:
            case Start():
                return replace(item, id=self.id, model=self.model, created=item.created or self.created)
            case Seal(signature, encrypted):
                text, self.thought = join_chain(self.thought) if signature else "", None
                value = self.seals.seal(Thought(text, signature, encrypted, item.on))
                return replace(item, signature=value) if signature else replace(item, encrypted=value)
        return item

    def _assign_call_id(self, call: CallDelta) -> CallDelta:
        key = None if call.index is None else (call.choice, call.index)
        id_ = call.id
        if call.name and not id_ and key not in self.known:
            self.calls += 1
            id_ = f"call_{self.id}{self.calls}"
        if id_ and key:
            self.known |= {key}
        return replace(call, name=self.names.to_client(call.name) if call.name else "", id=id_)


class ReplyIdReader(WrappedDecoder):
    """Decoder that reads the id of a reply from the first frame that has one, and reports it."""

    path: str
    """The dotted path of the id in a frame."""
    on_id: Callable[[str], None]
    found: bool = False

    def decode(self, frame: Frame) -> Decoded | None:
        if not self.found and frame.data and isinstance(id_ := get_at(object_of(frame.data), self.path), str):
            self.found = True
            self.on_id(id_)
        return self.decoder.decode(frame)


class RenamedModel(WrappedDecoder):
    """Decoder of a server that gets another model name than the client sent: replaces the name in its frames."""

    paths: Sequence[str]
    """The paths of the model's name (`BodyLayout.model_paths`)."""
    model: str
    """The client's name of the model."""

    def decode(self, frame: Frame) -> Decoded | None:
        renamed = self._rename_model(frame)
        decoded = self.decoder.decode(renamed)
        return decoded if decoded is None or renamed is frame else replace(decoded, frame=decoded.frame or renamed)

    def _rename_model(self, frame: Frame) -> Frame:
        """Put the client's name of the model into a frame; return the same frame if it has no other name."""
        value = object_of(frame.data) if frame.data and b"odel" in frame.data else None
        names = {path: get_at(value, path) for path in self.paths}
        others = [path for path, name in names.items() if isinstance(name, str) and name not in ("", self.model)]
        for path in others:
            outer, _, key = path.rpartition(".")
            part: Any = get_at(value, outer) if outer else value
            part[key] = self.model
        return Frame(self.framing.encode([value], frame)[0], encode_json(value)) if others and value else frame


class RenamedTools(WrappedDecoder, eq=False):
    """Decoder of a server that gets other names of tools: restores the client's names."""

    names: WireNames

    def decode(self, frame: Frame) -> Decoded | None:
        decoded = self.decoder.decode(frame)
        if decoded is None or not any(isinstance(delta, CallDelta) and delta.name for delta in decoded.deltas):
            return decoded
        return replace(decoded, deltas=tuple(map(self._restore_tool_name, decoded.deltas)))

    def _restore_tool_name(self, delta: Delta) -> Delta:
        if not isinstance(delta, CallDelta) or not delta.name:
            return delta
        return replace(delta, name=self.names.to_client(delta.name))
