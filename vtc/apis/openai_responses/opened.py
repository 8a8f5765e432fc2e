"""The items of a reply as a client was told them: what is open, what is done, and the events of each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis.base import Json
from vtc.apis.chain import Chain, joined
from vtc.apis.openai_responses.items import (
    ADDED,
    CALLS,
    DONE,
    IDS,
    PARTS,
    Form,
    action_of,
    essence,
    id_of,
    item_of,
)
from vtc.apis.openai_responses.pieces import Pieces
from vtc.apis.raw_input import RawInput
from vtc.apis.tool_calls import raw_input
from vtc.events import ToolCall

_SAYING = ("message", "reasoning")
"""Kinds of items that hold text."""
_LISTS = {"reasoning_summary_part": "summary", "content_part": "content"}


class Item(msgspec.Struct, frozen=True, gc=False):
    """An item that the client was told the beginning of, and not the end."""

    kind: str
    number: int
    """Upstream's."""
    index: int
    """The client's."""
    fields: Json
    parts: tuple[tuple[str, Json], ...] = ()
    """Those that are done, each with the list that it stands in."""
    part: Json | None = None
    """The one that is not."""
    settled: bool = False
    """True if the client was told that its text, or its arguments, are complete."""

    @property
    def place(self) -> str:
        """The list in which the open part stands."""
        return _LISTS[_names(self.part)[0]]

    @property
    def at(self) -> dict[str, Any]:
        """Tell an event where it belongs."""
        at = {"item_id": self.fields["id"], "output_index": self.index}
        if self.part is None:
            return at
        return {**at, f"{self.place}_index": sum(one == self.place for one, _ in self.parts)}


class Opened(msgspec.Struct):
    """It is copied for each frame: a field gets a new value, and is not changed."""

    form: Form = Form()
    drop: frozenset[str] = frozenset()
    id: str = ""
    """Of the reply."""
    count: int = 0
    """Items that began."""
    open: Item | None = None
    said: Chain = None
    """The text of the open part, or what was told of the open call's arguments."""
    raw: RawInput = RawInput()
    """That of the open call, if it is one of a custom tool."""
    calls: dict[int, Pieces] = {}
    """Calls that came in pieces and are not done."""
    notes: dict[str, Json] = {}
    """What upstream says of the beginning or the end of an item or a part, until that is told."""
    done: tuple[tuple[int, Json], ...] = ()
    """Items that are done, by their index."""

    def _take(self, key: str) -> Json | None:
        """Take a note."""
        found = self.notes.get(key)
        if found is not None:
            self.notes = {one: note for one, note in self.notes.items() if one != key}
        return found

    # Messages and reasoning

    def _begin(self, kind: str, number: int, fields: Json) -> Iterator[Json]:
        own = f"{IDS[kind]}_vtc{self.count}_{self.id.removeprefix('resp_')}"
        lists = {"role": "assistant", "content": []} if kind == "message" else {"summary": []}
        about = {"id": own, "type": kind}
        about |= {} if kind == "reasoning" and fields else {"status": "in_progress"}
        rest = {key: one for key, one in fields.items() if key not in ("content", "summary", "id")}
        if (id_ := fields.get("id")) and not any(item["id"] == id_ for _, item in self.done):
            rest["id"] = id_
        lists |= {"content": []} if "content" in fields else {}
        self.open = Item(kind, number, self.count, {**about, **rest, **lists})
        self.count += 1
        yield {"type": ADDED, "output_index": self.open.index, "item": self.open.fields}

    def _begin_part(self, part: Json) -> Iterator[Json]:
        assert self.open is not None
        around, _, field = _names(part)
        more: Json = {"annotations": [], "logprobs": []} if field == "text" and self.open.kind == "message" else {}
        part = {**({field: "", **more} if field else {}), **part}
        self.open, self.said = replace(self.open, part=part, settled=False), None
        yield {"type": f"response.{around}.added", **self.open.at, "part": part}

    def _say(self, text: str, logprobs: Any = ()) -> Iterator[Json]:
        assert self.open is not None
        self.said = (self.said, text)
        _, events, _ = _names(self.open.part)
        more: Json = {"logprobs": [*logprobs]} if events == "output_text" else {}
        yield {"type": f"response.{events}.delta", **self.open.at, "delta": text, **more}

    def _end_part(self) -> Iterator[Json]:
        """End the open part, as upstream does if it says the same text."""
        open_, noted = self.open, self._take("part_done")
        if open_ is None or open_.part is None:
            return
        text, (around, events, field) = joined(self.said), _names(open_.part)
        part = {**open_.part, **(noted or {})} if noted is None or not field or noted.get(field) == text else open_.part
        if field:
            part = {**part, field: text}
            if not open_.settled:
                more: Json = {"logprobs": part["logprobs"]} if events == "output_text" else {}
                yield {"type": f"response.{events}.done", **open_.at, field: text, **more}
        yield {"type": f"response.{around}.done", **open_.at, "part": part}
        self.open = replace(open_, part=None, parts=(*open_.parts, (open_.place, part)))

    def _end(self, status: str = "completed") -> Iterator[Json]:
        """End what is open."""
        if self.open is not None and self.open.number in self.calls and self.open.kind not in _SAYING:
            yield from self._end_call()
            return
        yield from self._end_part()
        open_, noted = self.open, self._take("item_done") or {}
        if open_ is None:
            return
        rest = {key: one for key, one in noted.items() if key not in ("id", "type", "content", "summary")}
        lists = {key: [part for place, part in open_.parts if place == key] for key in ("summary", "content")}
        kept = {key: parts for key, parts in lists.items() if parts or key in open_.fields}
        told = {"status": status} if "status" in open_.fields else {}
        item = {**open_.fields, **told, **rest, **kept}
        self._finished(open_.index, item)
        yield {"type": DONE, "output_index": open_.index, "item": item}

    def _finished(self, index: int, item: Json) -> None:
        self.done, self.open, self.said = (*self.done, (index, item)), None, None

    # Calls that come in pieces

    def _begin_call(self, call: Pieces) -> Iterator[Json]:
        id_ = call.id or f"call_vtc{self.count}_{self.id.removeprefix('resp_')}"
        arguments = action_of(call.source) if call.is_hosted else "{}"
        item = item_of(ToolCall(call.name, arguments, id_, call.source), self.form)
        if item["type"] in CALLS:
            item[CALLS[item["type"]][1]] = ""
        item = {**item, "id": item.get("id") or id_of(item), "status": "in_progress"}
        self.open, self.count = Item(item["type"], call.number, self.count, item), self.count + 1
        self.said, self.raw = None, RawInput()
        yield {"type": ADDED, "output_index": self.open.index, "item": item}
        if call.nesting.begun:
            yield from self._argue(joined(call.said))

    def _argue(self, arguments: str) -> Iterator[Json]:
        """Write a piece of the open call's arguments, of a custom tool what that has of its raw input."""
        assert self.open is not None
        piece = arguments
        if self.open.kind == "custom_tool_call":
            self.raw, piece = self.raw.more(arguments)
        if self.open.kind in CALLS and piece:
            self.said = (self.said, piece)
            yield {"type": f"response.{CALLS[self.open.kind][0]}.delta", **self.open.at, "delta": piece}

    def _end_call(self) -> Iterator[Json]:
        open_ = self.open
        assert open_ is not None
        call = self._taken(open_.number)
        item = {**open_.fields, "status": "completed" if call.is_whole or not call.nesting.begun else "incomplete"}
        ours = call.source if str(call.source.get("type")) == open_.kind else {}
        item |= {key: one for key, one in ours.items() if key not in (*open_.fields, "arguments", "input")}
        if open_.kind in CALLS:
            events, field = CALLS[open_.kind]
            told, said = joined(self.said), call.arguments if field == "arguments" else raw_input(call.arguments)
            item[field] = said = said if said.startswith(told) else told
            if len(said) > len(told) and not open_.settled:
                yield {"type": f"response.{events}.delta", **open_.at, "delta": said[len(told) :]}
            if not open_.settled:
                yield {"type": f"response.{events}.done", **open_.at, "name": item["name"], field: said}
        else:
            item |= ours
        self._finished(open_.index, item)
        yield {"type": DONE, "output_index": open_.index, "item": item}

    def _taken(self, number: int) -> Pieces:
        call = self.calls[number]
        self.calls = {key: one for key, one in self.calls.items() if key != number}
        return call

    def _is_told(self, output: Any) -> bool:
        """True if the last event repeats the items that were told."""
        told = [essence(item) for _, item in self.done]
        return isinstance(output, list) and [essence(item) for item in output] == told

    @property
    def _output_text(self) -> str:
        """All text of the messages that were told, as some servers repeat it beside them."""
        parts = [part for _, item in sorted(self.done, key=lambda one: one[0]) for part in item.get("content") or ()]
        return "".join(str(part.get("text") or "") for part in parts if part.get("type") == "output_text")


def _names(part: Json | None) -> tuple[str, str, str]:
    return PARTS.get((part or {}).get("type"), ("content_part", "", ""))
