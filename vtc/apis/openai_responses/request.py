"""Requests of Responses. A request keeps the bytes of every field and item that is not changed.

A turn of the model may be several items: reasoning, text, calls. They are one message here; items that are
neither text nor calls are opaque parts of it, in their place. `instructions` are the first message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vtc.apis import base, fields
from vtc.apis.openai_responses.items import CALLS, Form, Json, call_of, item_of
from vtc.events import Message, Opaque, Tool

OUTPUTS = {f"{kind}_output": kind for kind in CALLS}
"""The kinds of results, each with that of its call."""
ROLES = {"developer": "system"}
STATE = {
    "previous_response_id": "the server keeps the conversation (`previous_response_id`), and would not know of a call "
    "that it did not make: none is read from the text",
    "conversation": "the server keeps the conversation (`conversation`), and would not know of a call that it did not "
    "make: none is read from the text",
}
INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters of a custom tool: raw text."""


class _Item(dict[str, Any]):
    """An item that is an opaque part of a message."""


class Request(fields.FieldsRequest):
    """A request for a response."""

    TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls")

    NAME = "request for a response"

    def _decode(self, body: bytes, cache: base.Cache | None) -> None:
        self._raw, self.fields, declared = fields.raws(body, ("tools",), _declared, cache)
        assert isinstance(declared, Declared)
        given = self.fields["input"]
        if not isinstance(given, str) and not all(isinstance(item, dict) for item in given):
            raise TypeError("`input` is neither a string nor a list of items")
        self.declared = declared.all
        self.model = str(self.fields.get("model") or "")
        most = self.fields.get("max_output_tokens")
        self.form = Form(declared.nested, declared.custom, most if isinstance(most, int) else None, self.model)
        self.tool_choice, allowed = _tool_choice(self.fields.get("tool_choice"), self.declared)
        self.tools = [tool for tool in declared if allowed is None or tool.name in allowed]
        self.call_ids = frozenset(str(one.get("call_id")) for one in self._items if one.get("type") in CALLS)
        self.stream = self.fields.get("stream") is True
        self.parallel = self.fields.get("parallel_tool_calls") is not False
        self.unliftable = next((why for key, why in STATE.items() if self.fields.get(key)), "")

    @property
    def _items(self) -> Sequence[Json]:
        given = self.fields["input"]
        return [{"role": "user", "content": given}] if isinstance(given, str) else given

    def _read(self) -> Iterator[fields.Group]:
        instructions = self.fields.get("instructions")
        if isinstance(instructions, str):
            yield (Message("system", (instructions,), source=STATE),), ()
        for message, places in _turns(self._items, self.form):
            yield (message,), places

    def _declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        hosted = [one for one in self.fields.get("tools") or () if one.get("type") not in _OFFERED]
        if declared := [*hosted, *({**tool.as_openai()["function"], **_FUNCTION} for tool in tools)]:
            kept["tools"] = declared

    def _put(self, kept: dict[str, Any], messages: Sequence[Message]) -> None:
        """Write the conversation; a new system message goes to `instructions`."""
        told = [one for one in messages if one.role == "system" and (one.source is STATE or one.source is None)]
        system = {*map(id, told)}
        text = "\n\n".join(one.text for one in told)
        if text != (self.fields.get("instructions") or ""):
            kept["instructions"] = text
            if not text:
                del kept["instructions"]
        rest = [message for message in messages if id(message) not in system]
        if [*map(id, rest)] != [id(one) for one in self.messages if one.source is not STATE]:
            raws = fields.items(self._raw["input"], self._items)
            kept["input"] = self._entries(raws, rest, lambda out, message: out.extend(_written(message, self.form)))

    def _withhold(self, kept: dict[str, Any], names: Collection[str]) -> None:
        """Leave out the declarations of these tools, and a demand for one of them."""
        left = []
        for entry in self.fields.get("tools") or ():
            if entry.get("type") == "namespace":
                nested = [one for one in entry["tools"] if _qualified(entry, one) not in names]
                left += [{**entry, "tools": nested}] if nested else []
            elif _name(entry) not in names:
                left.append(entry)
        if left:
            kept["tools"] = left
        for key in () if left else self.TOOL_FIELDS:
            kept.pop(key, None)
        if self.tool_choice in names or _is_allowing(self.fields.get("tool_choice")):
            kept.pop("tool_choice", None)


# Tools

_OFFERED = ("function", "custom", "namespace")
_FUNCTION = {"type": "function", "strict": False}
"""Functions are strict unless they say otherwise, and a text client's are not."""


class Declared(list[Tool]):
    """The functions and custom tools, and the names of all that is declared."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        super().__init__(tools)
        self.all: list[str] = []
        """Names of all that is declared."""
        self.nested: dict[str, tuple[str, str]] = {}
        """Namespace and name of tools, by flat names."""
        self.custom: frozenset[str] = frozenset()
        """Names of custom tools."""


def _declared(said: Mapping[str, Any]) -> Declared:
    """Read the entries of `tools`, those in namespaces, too."""
    found = Declared(())
    for entry in said.get("tools") or ():
        group = entry if entry.get("type") == "namespace" else None
        for one in entry["tools"] if group else (entry,):
            name = _qualified(group, one) if group else _name(one)
            if group:
                space, own = str(group["name"]), str(one.get("name"))
                found.nested |= {name: (space, own), f"{space}__{own}": (space, own)}
            found.all.append(name)
            if not isinstance(one.get("name"), str):
                continue
            if one.get("type") == "custom":
                found.custom |= {name}
                found.append(Tool(name, _told(one), INPUT))
            elif one.get("type") == "function":
                parameters = one.get("parameters")
                found.append(Tool(name, _told(one), parameters if isinstance(parameters, dict) else {}))
    return found


def _name(entry: Json) -> str:
    """The name of a declared tool; one that the server runs has only its type."""
    return str(entry.get("name") or entry.get("type"))


def _qualified(group: Json, entry: Json) -> str:
    return f"{group['name']}.{entry.get('name')}"


def _told(entry: Json) -> str:
    """The description of a tool, with the grammar of its input if it has one."""
    said, format_ = str(entry.get("description") or ""), entry.get("format")
    definition = format_.get("definition") if isinstance(format_, dict) else None
    return f"{said}\n\nThe input follows this grammar:\n{definition}" if definition else said


def _is_allowing(choice: Any) -> bool:
    return isinstance(choice, dict) and choice.get("type") == "allowed_tools"


def _tool_choice(choice: Any, declared: Collection[str]) -> tuple[str, Collection[str] | None]:
    """Read the demand, and the tools that are allowed; None for all."""
    if not isinstance(choice, dict):
        return str(choice or "auto"), None
    if _is_allowing(choice):
        return str(choice.get("mode") or "auto"), {_meant(one, declared) for one in choice.get("tools") or ()}
    return _meant(choice, declared) if choice.get("type") in _OFFERED else "auto", None


def _meant(choice: Json, declared: Collection[str]) -> str:
    """The name of the tool that is chosen, with its namespace, which the choice may leave out."""
    name, space = _name(choice), choice.get("namespace")
    if space:
        return f"{space}.{name}"
    nested = [one for one in declared if one.endswith(f".{name}")]
    return nested[0] if name not in declared and len(nested) == 1 else name


# The conversation


def _turns(items: Sequence[Json], form: Form) -> Iterator[tuple[Message, list[int]]]:
    names: dict[str, str] = {}  # of the tools, by the ids of their calls
    turn: list[int] = []  # places of the model's items
    for place, item in enumerate(items):
        kind, role = item.get("type") or "message", str(item.get("role") or "")
        if kind in CALLS:
            call = call_of(item, form)
            names[call.id or ""] = call.name
        by_model = role == "assistant" if kind == "message" else not kind.endswith(("_output", "_response"))
        if by_model:
            turn.append(place)
            continue
        if turn:
            yield _turn([items[one] for one in turn], form), turn
            turn = []
        if kind in OUTPUTS:
            call_id = item.get("call_id")
            message = Message("tool", _content(item.get("output")), (), call_id, names.get(call_id or ""), item)
        elif kind == "message":
            message = Message(ROLES.get(role, role), _content(item.get("content")), source=item)
        else:
            message = Message("user", (Opaque(_Item(item)),), source=item)
        yield message, [place]
    if turn:
        yield _turn([items[one] for one in turn], form), turn


def _turn(items: Sequence[Json], form: Form) -> Message:
    """Read the items of one turn of the model."""
    content: list[str | Opaque] = []
    thoughts: list[str] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "message":
            content += _content(item.get("content"))
        elif kind not in CALLS:
            content.append(Opaque(_Item(item)))
        if kind == "reasoning":
            parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
            thoughts += [str(part.get("text") or "") for part in parts]
    calls = tuple(call_of(item, form) for item in items if item.get("type") in CALLS)
    return Message("assistant", tuple(content), calls, source=items, reasoning="\n".join(thoughts))


def _content(content: Any) -> tuple[str | Opaque, ...]:
    if isinstance(content, str):
        return (content,) if content else ()
    return tuple(
        part["text"]
        if part.get("type") in ("input_text", "output_text", "text") and isinstance(part.get("text"), str)
        else Opaque(part)
        for part in content or ()
    )


def _written(message: Message, form: Form) -> list[dict[str, Any]]:
    """Write a message that was changed, as items."""
    source = message.source
    first = source if isinstance(source, dict) else {}
    if isinstance(source, list):
        first = next((one for one in source if one.get("type", "message") == "message"), {})
    same_role = ROLES.get(str(first.get("role")), first.get("role")) == message.role
    if message.role == "tool":
        custom = first.get("type") == "custom_tool_call_output" or message.name in form.custom
        kind = "custom_tool_call_output" if custom else "function_call_output"
        parts = _parts(message.content, "input_text", first.get("output"))
        output = message.text if all(isinstance(one, str) for one in message.content) else parts
        rest = first if first.get("type") in OUTPUTS else {}
        return [{**rest, "type": kind, "call_id": message.call_id, "output": output}]
    items: list[dict[str, Any]] = []
    own: list[str | Opaque] = []

    def say() -> None:
        if own:
            kept = first if same_role and not any(one.get("type") == "message" for one in items) else {}
            kind = "output_text" if message.role == "assistant" else "input_text"
            said = {"type": "message", "role": first["role"] if same_role else message.role}
            items.append({**kept, **said, "content": _parts(own, kind, first.get("content"))})
            own.clear()

    for part in message.content:
        if isinstance(part, Opaque) and isinstance(part.part, _Item):
            say()
            items.append(part.part)
        else:
            own.append(part)
    say()
    return [*items, *(item_of(call, form) for call in message.calls)]


def _parts(content: Iterable[str | Opaque], kind: str, originals: Any) -> list[Any]:
    """Write parts; one whose text is unchanged keeps its fields."""
    known = {str(one.get("text")): one for one in originals} if isinstance(originals, list) else {}
    made: dict[str, Any] = {"type": kind, **({"annotations": []} if kind == "output_text" else {})}
    return [part.part if isinstance(part, Opaque) else known.get(part) or {**made, "text": part} for part in content]
