"""A request on its way to a server of another API: what every API can be told; and the names that go there and back.

    client's Request -> read -> Asked -> Api.ask (server's) -> body

What servers refuse of it besides is mended by the steps of `exchange/ready`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Literal

from msgspec.structs import replace

from vtc.apis import asking
from vtc.apis.base import Request
from vtc.apis.fields import part_of
from vtc.apis.media import file_of, missing
from vtc.apis.sealed import opened
from vtc.events import Asked, Media, Message, Opaque, Seal, Tool, ToolCall

FAILED = "Error:"
"""Begins a result that is an error and does not say so itself, as other APIs have no field for that."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


type Field = Literal["reasoning_content", "reasoning"]
"""Where servers of chat completions want the reasoning of a past message."""
FIELDS: tuple[Field, ...] = ("reasoning_content", "reasoning")


def read(
    request: Request,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    choice: str,
    thoughts: str = "reasoning_content",
    origin: str = "",
) -> Asked:
    """Read what a request asks: with these messages and tools, which may be others than its own.

    `thoughts` is the field in which a server of chat completions wants past reasoning, `origin` the server
    (`origin_of`), whose own past reasoning it is told.

    Raises `BadRequest` where its messages are none.
    """
    fields = request.fields
    unknown: dict[str, None] = {}

    def told(part: str | Opaque, role: str) -> str | Opaque | None:
        found = part if isinstance(part, str) else request.meaning(part.part)
        if isinstance(found, Media):
            return Opaque(media=found)
        if isinstance(found, Seal):
            thought = opened(found.signature or found.encrypted, origin)
            return Opaque(thought=thought) if thought else None
        if found is None and isinstance(part, Opaque) and (kind := request.kind(part.part)):
            where = "by file_id " * bool(file_id := file_of(part.part))
            unknown[f"{kind} {where}".strip()] = None
            return missing(f"{kind} {file_id}".strip()) if role in ("user", "tool") else None
        return found or None

    plain = tuple(
        replace(
            message,
            content=(
                *_failed(message, failed=message.role == "tool" and request.failed(message)),
                *(part for one in message.content if (part := told(one, message.role)) is not None),
                *filter(None, [request.declined(message)]),
                *(Opaque(media=one) for one in request.beside(message)),
            ),
            calls=tuple(ToolCall(call.name, call.arguments, call.id) for call in message.calls),
            name=message.name if message.role == "tool" else None,
            source=None,
        )
        for message in messages
    )
    functions = {tool.name for tool in request.tools}
    hosted = [name for name in request.declared if name not in functions]
    return Asked(
        model=request.model,
        messages=plain,
        thoughts=thoughts,
        stream=request.stream,
        tools=tuple(with_fields(tool, parameters=_parameters(tool)) for tool in tools),
        choice=choice if tools or choice not in ("none", "required") else "auto",
        parallel=request.parallel,
        limits=asking.limits(fields, request.LIMITS),
        effort=request.effort,
        answer=request.answer,
        left_out=(
            *asking.untold(fields, request.LIMITS, request.CARRIED),
            *(["more than one choice"] if request.several else []),
            *(f"tool {name}" for name in hosted),
            *_unsaid_of_tools(request),
            *unknown,
            *dict.fromkeys(name for message in messages for name in request.unsaid(message)),
        ),
    )


def _failed(message: Message, *, failed: bool) -> Iterator[str]:
    if failed and "error" not in message.text.strip().partition("\n")[0].casefold():
        yield FAILED


_OF_TOOLS = (
    *("type", "name", "description", "parameters", "input_schema", "strict", "function", "custom", "format", "tools"),
    *("cache_control", "defer_loading", "eager_input_streaming"),
)
"""Fields of tools that are told, or mean nothing to servers of other APIs."""


def _unsaid_of_tools(request: Request) -> dict[str, None]:
    """Name the fields of tools that no other API is told."""
    names = {tool.name for tool in request.tools}
    entries = [one for one in request.fields.get("tools") or () if isinstance(one, Mapping)]
    own = [one for one in entries if (part_of(one, "function") or one).get("name") in names]
    return {f"{key} of tools": None for one in own for key, said in one.items() if key not in _OF_TOOLS and said}


def strict_tools(request: Request) -> set[str]:
    """Name the tools whose calls the server is to hold to their schema; what it is sent may be simpler than that."""
    said = (one for tool in request.fields.get("tools") or () for one in (tool, part_of(tool, "function")))
    return {str(one.get("name")) for one in said if isinstance(one, Mapping) and one.get("strict") is True}


def _parameters(tool: Tool) -> Mapping[str, object]:
    """The schema of a tool's parameters: one of an object, which servers demand."""
    return tool.parameters if tool.parameters.get("type") else {"type": "object", "properties": {}, **tool.parameters}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


class Names:
    """The names of tools as every API takes them: at most 64 letters, digits, `_` and `-`.

    Two tools never get one name. The same name becomes the same in every turn.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._out: dict[str, str] = {}
        self._back: dict[str, str] = {}
        for name in sorted(names, key=lambda one: not _NAME.fullmatch(one)):
            self.out(name)

    def out(self, name: str) -> str:
        """The name that the server is told."""
        if name not in self._out:
            wire = re.sub(r"[^A-Za-z0-9_-]", "_", name.replace(".", "__"))  # the flat name of a tool in a namespace
            if len(wire) > 64 or wire in self._back:
                wire = f"{wire[:55]}_{_digest(name)[:8]}"
            self._out[name], self._back[wire] = wire, name
        return self._out[name]

    @property
    def changed(self) -> Mapping[str, str]:
        """The names that are others, each with the one that the server is told."""
        return {name: wire for name, wire in self._out.items() if name != wire}

    def back(self, wire: str) -> str:
        """The client's name of a tool that the server calls."""
        return self._back.get(wire, wire)
