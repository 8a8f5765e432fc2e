"""Handwritten requests and replies of OpenAI Responses, and a parser as strict as the strictest clients.

This module does not use VTC, because the tests need an independent witness of the format of requests, replies and
calls. The parser fails if openai-python's `.stream()`, the AI SDK or Codex would fail or lose something; a
comment at each check names the client.

The events of an item have no numbers, because these depend on the place in the stream: `all_events` adds
`output_index`, and `number_events` adds `sequence_number`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.apis import chat
from tests.apis.named_events import DONE, Json, StreamError, events, frame, is_integer

MODEL = chat.MODEL
PATH = "/v1/responses"
USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 8,
}


def tool(name: str, required: Sequence[str] = (), **properties: str | Json) -> Json:
    """Declare a function; a property is the name of a type or a schema."""
    return {"type": "function", **chat.tool(name, required, **properties)["function"], "strict": False}


def namespace(name: str, *tools: Json) -> Json:
    """Declare multiple functions under one name, as Codex sends the tools of an MCP server."""
    return {"type": "namespace", "name": name, "description": f"Tools of {name}.", "tools": list(tools)}


def custom(name: str) -> Json:
    """Declare a tool that accepts raw text, like Codex's `apply_patch`."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"}
    return {"type": "custom", "name": name, "description": f"Does {name}.", "format": grammar}


READ = tool("read", filePath="string")
LIST = tool("list_files", path="string")
WRITE = tool("write", filePath="string", content="string")
TOOLS = [READ, LIST, WRITE]


def make_input_message(role: str, text: str) -> Json:
    """Make a message of `input`: user, system, developer, or an earlier one of the assistant."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def output(text: Any, call_id: str = "call_1", *, custom: bool = False) -> Json:
    """Make the result of a call."""
    kind = "custom_tool_call_output" if custom else "function_call_output"
    return {"type": kind, "call_id": call_id, "output": text}


def request(content: Any = "hello", *, stream: bool = False, **fields: Any) -> Json:
    """Make a request with one user message and, by default, `TOOLS`; None removes a field.

    `store` is off, as in Codex: the server stores nothing, and each request contains the whole history.
    """
    body = {
        "model": MODEL,
        "input": [make_input_message("user", content)],
        "stream": stream,
        "store": False,
        "tools": TOOLS,
    }
    return {key: value for key, value in {**body, **fields}.items() if value is not None}


CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def check_request(body: Json) -> None:
    """Fail on a history whose calls and outputs do not match: OpenAI's server rejects it with status 400."""
    if isinstance(body["input"], str):
        return
    waiting: dict[str, str] = {}
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind in CALLS:
            assert item["call_id"] not in waiting, f"two calls of one id: {item}"
            assert isinstance(item["name"], str)
            assert isinstance(item["arguments" if kind == "function_call" else "input"], str)
            waiting[item["call_id"]] = CALLS[kind]
        elif kind in CALLS.values():
            assert waiting.get(item["call_id"]) == kind, f"the output of no call: {item}"
            waiting[item["call_id"]] = ""
        elif kind == "message":
            assert item["role"] in ("user", "assistant", "system", "developer")
            assert item["content"], f"an empty message: {item}"
    open_calls = [call_id for call_id, kind in waiting.items() if kind]
    assert not open_calls, f"no output for {open_calls}"


def message(text: str, id: str = "msg_1") -> Json:
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [_part(text)]}


def call(name: str, id: str = "fc_1", call_id: str = "call_1", *, namespace: str = "", **arguments: Any) -> Json:
    """Make a function call; `namespace` is the name of the group that declares the function."""
    encoded = json.dumps(arguments)
    item = {"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": encoded}
    return {**item, "status": "completed", **({"namespace": namespace} if namespace else {})}


def custom_call(name: str, input: str, id: str = "ctc_1", call_id: str = "call_1") -> Json:
    item = {"type": "custom_tool_call", "id": id, "call_id": call_id, "name": name, "input": input}
    return {**item, "status": "completed"}


def reasoning(text: str, id: str = "rs_1") -> Json:
    """Make a reasoning summary, as OpenAI sends it."""
    return {"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": text}]}


def open_reasoning(text: str, id: str = "rs_1") -> Json:
    """Make plain reasoning, as servers of open models send it."""
    return {"type": "reasoning", "id": id, "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def response(*output: Json, status: str = "completed", **fields: Any) -> Json:
    """Make a whole reply."""
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": MODEL, "status": status, "error": None}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "incomplete_details": None}
    return {**head, **settings, "output": list(output), "usage": USAGE, **fields}


def make_cut_reply(*output: Json) -> Json:
    """Make a whole reply that reached its token limit."""
    return response(*output, status="incomplete", incomplete_details={"reason": "max_output_tokens"})


def text_events(*pieces: str, id: str = "msg_1") -> list[Json]:
    """Make the events of a message, its text in pieces."""
    done = message("".join(pieces), id)
    at = {"item_id": id, "content_index": 0}
    return [
        {"type": "response.output_item.added", "item": {**done, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **at, "part": _part("")},
        *({"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []} for piece in pieces),
        {"type": "response.output_text.done", **at, "text": "".join(pieces), "logprobs": []},
        {"type": "response.content_part.done", **at, "part": done["content"][0]},
        {"type": "response.output_item.done", "item": done},
    ]


def call_events(name: str, *pieces: str, id: str = "fc_1", call_id: str = "call_1", namespace: str = "") -> list[Json]:
    """Make the events of a function call; `pieces` are its arguments as JSON, cut anywhere."""
    done = {**call(name, id, call_id, namespace=namespace), "arguments": "".join(pieces)}
    return [
        {"type": "response.output_item.added", "item": {**done, "status": "in_progress", "arguments": ""}},
        *({"type": "response.function_call_arguments.delta", "item_id": id, "delta": piece} for piece in pieces),
        {
            "type": "response.function_call_arguments.done",
            "item_id": id,
            "name": name,
            "arguments": done["arguments"],
        },
        {"type": "response.output_item.done", "item": done},
    ]


def custom_call_events(name: str, *pieces: str, id: str = "ctc_1", call_id: str = "call_1") -> list[Json]:
    """Make the events of a custom tool call; `pieces` are its raw input."""
    done = custom_call(name, "".join(pieces), id, call_id)
    return [
        {"type": "response.output_item.added", "item": {**done, "status": "in_progress", "input": ""}},
        *({"type": "response.custom_tool_call_input.delta", "item_id": id, "delta": piece} for piece in pieces),
        {"type": "response.custom_tool_call_input.done", "item_id": id, "input": done["input"]},
        {"type": "response.output_item.done", "item": done},
    ]


def reasoning_events(*pieces: str, id: str = "rs_1") -> list[Json]:
    """Make the events of a reasoning summary."""
    done = reasoning("".join(pieces), id)
    at, part = {"item_id": id, "summary_index": 0}, done["summary"][0]
    return [
        {"type": "response.output_item.added", "item": {**done, "summary": []}},
        {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}},
        *({"type": "response.reasoning_summary_text.delta", **at, "delta": piece} for piece in pieces),
        {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]},
        {"type": "response.reasoning_summary_part.done", **at, "part": part},
        {"type": "response.output_item.done", "item": done},
    ]


def open_reasoning_events(*pieces: str, id: str = "rs_1") -> list[Json]:
    """Make the events of plain reasoning."""
    done = open_reasoning("".join(pieces), id)
    at, part = {"item_id": id, "content_index": 0}, done["content"][0]
    return [
        {"type": "response.output_item.added", "item": {**done, "content": []}},
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        *({"type": "response.reasoning_text.delta", **at, "delta": piece} for piece in pieces),
        {"type": "response.reasoning_text.done", **at, "text": part["text"]},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "item": done},
    ]


def all_events(*items: list[Json], status: str = "completed") -> list[Json]:
    """Make the events of a whole reply, with `output_index` and without `sequence_number`."""
    output = [item[-1]["item"] for item in items]
    begun = response(status="in_progress", usage=None)
    last = make_cut_reply(*output) if status == "incomplete" else response(*output, status=status)
    return [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *({**event, "output_index": index} for index, item in enumerate(items) for event in item),
        {"type": f"response.{status}", "response": last},
    ]


def number_events(events: Iterable[Json]) -> list[bytes]:
    """Number the events from 0 and serialize each as one frame."""
    return [frame({**event, "sequence_number": place}) for place, event in enumerate(events)]


def make_stream(*items: list[Json], status: str = "completed") -> list[bytes]:
    """Make a whole streamed reply as OpenAI sends it."""
    return number_events(all_events(*items, status=status))


def make_text_stream(*pieces: str, status: str = "completed") -> list[bytes]:
    """Make a streamed reply of one message."""
    return make_stream(text_events(*pieces), status=status)


def error(message: str = "The server had an error.", code: str = "server_error") -> Json:
    """Make the event of an error, without its number."""
    return {"type": "error", "code": code, "message": message, "param": None}


@dataclass(slots=True)
class Read:
    """A reply as a client understands it: its finished items in order."""

    items: list[Json] = field(default_factory=list)
    status: str | None = None
    reason: str | None = None
    """Reason of an incomplete reply."""

    def __eq__(self, other: object) -> bool:
        """Compare without ids, which differ in each exchange."""
        return isinstance(other, Read) and self._said == other._said

    @property
    def content(self) -> str:
        return "".join(_join_text(item) for item in self.items if item["type"] == "message")

    @property
    def reasoning(self) -> str:
        return "".join(_join_text(item) for item in self.items if item["type"] == "reasoning")

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(item["name"], json.loads(item["arguments"])) for item in self._of("function_call")]

    @property
    def custom_calls(self) -> list[tuple[str, str]]:
        return [(item["name"], item["input"]) for item in self._of("custom_tool_call")]

    @property
    def namespaces(self) -> list[str | None]:
        """The group of each of `calls`."""
        return [item.get("namespace") for item in self._of("function_call")]

    @property
    def ids(self) -> list[str]:
        """The ids that tool results refer to, for functions and custom tools."""
        return [item["call_id"] for item in self.items if item["type"] in CALLS]

    @property
    def kinds(self) -> list[str]:
        return [item["type"] for item in self.items]

    def _of(self, kind: str) -> list[Json]:
        return [item for item in self.items if item["type"] == kind]

    @property
    def _said(self) -> tuple[Any, ...]:
        return [_essence(item) for item in self.items], self.status, self.reason


def _join_text(item: Json) -> str:
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    return "".join(part.get("text", "") for part in parts)


def _essence(item: Json) -> tuple[Any, ...]:
    match item["type"]:
        case "message" | "reasoning":
            return item["type"], _join_text(item)
        case "function_call":
            return item["type"], item.get("namespace"), item["name"], _decode_arguments(item["arguments"])
        case "custom_tool_call":
            return item["type"], item["name"], item["input"]
    return (item["type"],)


def _decode_arguments(arguments: str) -> Any:
    """Parse the arguments to an object; cut-off arguments remain text."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def read(body: bytes) -> Read:
    """Parse a reply, JSON or server-sent events, as the strictest clients do, and fail if they would.

    Raises `StreamError` if the server reports an error.
    """
    if body.lstrip().startswith(b"{"):
        return _read_response(json.loads(body))
    return _StreamReader().read(body)


def _read_response(body: Json) -> Read:
    if body.get("error"):
        raise StreamError(body["error"])
    assert body["object"] == "response"
    assert body["status"] in ("completed", "incomplete")
    assert isinstance(body["id"], str)
    # The AI SDK fails without it.
    assert is_integer(body["created_at"]) or isinstance(body["created_at"], float)
    assert isinstance(body["model"], str)
    _check_usage(body)
    for item in body["output"]:
        _check_item(item, done=True)
    found = Read(body["output"], body["status"], (body.get("incomplete_details") or {}).get("reason"))
    return _check_reply(found)


@dataclass(slots=True)
class _Item:
    """An open item: its ids, and the content of its deltas so far."""

    index: int
    added: Json
    parts: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """Text by part of the content or summary."""
    closed: set[tuple[str, int]] = field(default_factory=set)
    written: str | None = None
    """Arguments or raw input; None before the first delta."""
    settled: str | None = None
    """Content of the event after the deltas."""


PLACES = {"content_part": "content_index", "reasoning_summary_part": "summary_index"}
TEXTS = {
    "output_text": ("content_index", "output_text"),
    "refusal": ("content_index", "refusal"),
    "reasoning_text": ("content_index", "reasoning_text"),
    "reasoning_summary_text": ("summary_index", "summary_text"),
}
"""Text events: the name of their index, and the type of their part."""
INPUTS = {
    "function_call_arguments": ("function_call", "arguments"),
    "custom_tool_call_input": ("custom_tool_call", "input"),
}


@dataclass(slots=True)
class _StreamReader:
    found: Read = field(default_factory=Read)
    head: Json | None = None
    """The `response` of `response.created`."""
    added: int = 0
    open: _Item | None = None
    numbers: list[int] = field(default_factory=list)
    taken: int = 0
    done: bool = False

    def read(self, body: bytes) -> Read:
        for event in events(body):
            if event.data == DONE:
                assert self.found.status, "SDKs stop reading at [DONE]"
                self.done = True
                continue
            # No client requires the line, but a wrong one is a bug.
            assert event.name in (None, event.data["type"]), f"event: {event.name} with {event.data}"
            assert not self.found.status, f"something comes behind the end: {event.data}"
            assert not self.done, f"something comes behind [DONE]: {event.data}"
            self._count(event.data)
            self._take(event.data)
        # openai-python: RuntimeError; Codex: "stream closed before response.completed", and five retries.
        assert self.found.status, "the stream ends without response.completed"
        return _check_reply(self.found)

    def _count(self, event: Json) -> None:
        """Check that all events are numbered from 0, or none is."""
        if "sequence_number" in event:
            assert event["sequence_number"] == self.taken, f"event {self.taken} has another number: {event}"
            assert len(self.numbers) == self.taken, "the first events have no number"
            self.numbers.append(event["sequence_number"])
        else:
            assert not self.numbers, f"an event without a number among numbered ones: {event}"
        self.taken += 1

    def _take(self, event: Json) -> None:
        kind = event["type"]
        if kind == "error":
            raise StreamError(event.get("error") or event)
        if self.head is None:
            # openai-python: RuntimeError, for a keepalive too.
            assert kind == "response.created", f"comes ahead of response.created: {event}"
            self._create(event["response"])
            return
        name, _, what = kind.removeprefix("response.").rpartition(".")
        if kind == "response.created":
            raise AssertionError("a second response.created")
        elif kind == "response.failed":
            assert is_integer(event["sequence_number"])  # the AI SDK fails without it
            raise StreamError(event["response"]["error"])
        elif kind in ("response.completed", "response.incomplete"):
            self._end(kind, event["response"])
        elif kind in ("response.queued", "response.in_progress"):
            self._same(event["response"])
        elif kind == "response.output_item.added":
            self._add(event["output_index"], event["item"])
        elif kind == "response.output_item.done":
            self._finish(self._item(event, of=event["item"]), event["item"])
        elif name in PLACES:
            self._part(self._item(event), (PLACES[name], event[PLACES[name]]), event["part"], what)
        elif name in TEXTS:
            self._text(self._item(event), name, event, what)
        elif name in INPUTS:
            self._input(self._item(event), name, event, what)
        # All clients ignore other types.

    def _create(self, head: Json) -> None:
        self.head = head
        assert isinstance(head["id"], str)
        # The AI SDK fails without them.
        assert is_integer(head["created_at"]) or isinstance(head["created_at"], float)
        assert isinstance(head["model"], str)
        assert head["status"] in ("in_progress", "queued")
        assert head["output"] == []

    def _same(self, response: Json) -> None:
        assert self.head
        assert response["id"] == self.head["id"], "openai-python fails when the id of the response changes"

    def _add(self, index: int, item: Json) -> None:
        # openai-python fails at a used index, and in some versions at a gap; the AI SDK mixes calls up.
        assert index == self.added, f"item {index} follows {self.added} items"
        assert self.open is None, f"item {index} begins while {self.open} is open"
        self.added += 1
        _check_item(item, done=False)
        self.open = _Item(index, item)

    def _item(self, event: Json, of: Json | None = None) -> _Item:
        """Return the open item; fail if the event belongs to another one."""
        # openai-python: RuntimeError; Codex: "OutputTextDelta without active item", and the text is lost.
        assert self.open, f"comes for no open item: {event}"
        assert event["output_index"] == self.open.index, f"comes for another item than {self.open.index}: {event}"
        # The AI SDK keys text by the item's id, openai-python compares ids.
        id_ = of["id"] if of else event["item_id"]
        assert id_ == self.open.added["id"], f"the id of item {self.open.index} changes: {event}"
        return self.open

    def _part(self, item: _Item, place: tuple[str, int], part: Json, what: str) -> None:
        if what == "added":
            # openai-python: IndexError.
            among = sum(one[0] == place[0] for one in item.parts)
            assert place[1] == among, f"part {place} follows {among} parts"
            item.parts[place] = [part["type"], part.get("text", part.get("refusal", ""))]
        else:
            assert place in item.parts, f"part {place} was not added"
            assert part["type"] == item.parts[place][0]
            assert part.get("text", part.get("refusal")) == item.parts[place][1], f"deltas said otherwise: {part}"
            item.closed.add(place)

    def _text(self, item: _Item, name: str, event: Json, what: str) -> None:
        number_, kind = TEXTS[name]
        place = (number_, event[number_])
        if name == "output_text" and what not in ("delta", "done"):
            return  # annotations
        assert place in item.parts, f"no part was added for this text: {event}"
        assert place not in item.closed, f"the part is done: {event}"
        part = item.parts[place]
        assert part[0] == kind, f"text for a part {part[0]}: {event}"
        if what == "delta":
            part[1] += event["delta"]
        else:
            assert event["refusal" if name == "refusal" else "text"] == part[1], f"deltas said otherwise: {event}"

    def _input(self, item: _Item, name: str, event: Json, what: str) -> None:
        kind, field_ = INPUTS[name]
        assert item.added["type"] == kind, f"comes for an item {item.added['type']}: {event}"
        if what == "delta":
            assert item.settled is None, f"a delta comes behind the end of arguments: {event}"
            item.written = (item.written if item.written is not None else item.added[field_]) + event["delta"]
        else:
            assert item.written in (None, event[field_]), f"deltas said otherwise: {event}"
            item.settled = event[field_]
            assert event.get("name", item.added["name"]) == item.added["name"]

    def _finish(self, item: _Item, done: Json) -> None:
        self.open = None
        _check_item(done, done=True)
        # openai-python compares the first three for any item.
        names = ("name", "namespace") if done["type"] in CALLS else ()
        for key in ("id", "type", "call_id", *names):
            assert done.get(key) == item.added.get(key), f"{key} of item {item.index} changes: {done}"
        if done["type"] in CALLS:
            final = done["arguments" if done["type"] == "function_call" else "input"]
            assert item.written in (None, final), f"deltas said otherwise: {done}"
            assert item.settled in (None, final), f"its arguments were said to be {item.settled}: {done}"
        elif done["type"] in ("message", "reasoning"):
            assert set(item.parts) == item.closed, f"a part of item {item.index} was not closed"
            parts = {
                **{("summary_index", place): part for place, part in enumerate(done.get("summary") or ())},
                **{("content_index", place): part for place, part in enumerate(done.get("content") or ())},
            }
            summary = {place: [part["type"], part.get("text", part.get("refusal"))] for place, part in parts.items()}
            assert summary == item.parts, f"deltas said otherwise: {done}"
        self.found.items.append(done)

    def _end(self, kind: str, response: Json) -> None:
        self._same(response)
        # openai-python: RuntimeError; the AI SDK never announces the call, Codex never runs it.
        assert self.open is None, f"item {self.open and self.open.index} is never done"
        _check_usage(response)
        for item in response["output"]:
            _check_item(item, done=True)
        # openai-python gives `output` as the result.
        own = [(item["type"], item["id"], item.get("call_id"), _essence(item)) for item in self.found.items]
        summary = [(item["type"], item["id"], item.get("call_id"), _essence(item)) for item in response["output"]]
        assert summary == own, f"the end tells of other items: {summary}"
        assert f"response.{response['status']}" == kind
        self.found.status = response["status"]
        self.found.reason = (response.get("incomplete_details") or {}).get("reason")


def _check_item(item: Json, *, done: bool) -> None:
    """Fail if the AI SDK would miss a field, or Codex would drop the item silently."""
    assert isinstance(item["id"], str), f"an item without id: {item}"
    assert item["id"]
    match item["type"]:
        case "message":
            assert item["role"] == "assistant"
            assert isinstance(item["content"], list)
            assert done or not item["content"], f"a message begins with content: {item}"
        case "function_call" | "custom_tool_call" as kind:
            field_ = "arguments" if kind == "function_call" else "input"
            assert isinstance(item[field_], str)
            assert isinstance(item["name"], str)
            assert item["name"]
            assert isinstance(item["call_id"], str)
            assert item["call_id"]
            if done and kind == "function_call":
                assert item["status"] in ("in_progress", "completed", "incomplete"), f"a call without status: {item}"
        case "reasoning":
            assert isinstance(item["summary"], list)


def _check_usage(response: Mapping[str, Any]) -> None:
    """Fail if Codex cannot parse the counts; they may be absent."""
    if usage := response.get("usage"):
        assert all(is_integer(usage[count]) for count in ("input_tokens", "output_tokens", "total_tokens"))


def _check_reply(found: Read) -> Read:
    assert (found.status == "incomplete") == (found.reason is not None), f"{found.status} because of {found.reason}"
    for item in found.items:
        if item["type"] == "function_call" and found.status == "completed":
            assert isinstance(json.loads(item["arguments"]), dict), f"arguments are no object: {item}"
    ids = [item["id"] for item in found.items]
    assert len(set(ids)) == len(ids), f"two items of one id: {ids}"
    assert len(set(found.ids)) == len(found.ids), f"two calls of one id: {found.ids}"
    return found
