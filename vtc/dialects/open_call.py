"""A call that is being read: what it was written with so far, and what that says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vtc.dialects import envelope, names, values
from vtc.dialects.grammar import Form
from vtc.dialects.json_body import JsonBody
from vtc.events import Call, Tool, ToolCall


class OpenCall:
    """One call from its head to its end.

    `raw` is kept whole, so that a call that does not complete can be given back as the text it was.
    """

    def __init__(self, form: Form, written: str, id_: str | None, tools: Mapping[str, Tool]) -> None:
        self.form = form
        self.written = written
        """The name as the model wrote it; empty as long as it is inside JSON."""
        self.json: JsonBody | None = None
        self.repairs: dict[str, None] = {}
        self.size = 0
        self.spilled = False
        """Too long to hold: read to its end, but as text."""
        self._id = id_
        self._tools = tools
        self._tool = tools.get(names.resolve(written, tools) or "")
        self._schema = self._tool.parameters if self._tool else {}
        self._declared = values.properties(self._schema)
        self._raw: list[str] = []
        self._param = 0
        self._key: str | None = None
        self._value: list[str] = []
        self._arguments: dict[str, Any] = {}

    @property
    def raw(self) -> str:
        return "".join(self._raw)

    def hold(self, text: str, *, value: bool = False) -> None:
        """More of its text; `value` when that is part of the current parameter's value."""
        self._raw.append(text)
        self.size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if value:
            self._value.append(text)

    def spill(self) -> None:
        """Its text is given back: keep none of it, and none of what follows."""
        self.spilled = True
        self._raw.clear()
        self._value.clear()

    def may_open(self, key: str) -> bool:
        """Whether a parameter's opener is one, by the tool's schema.

        Only names that the tool declares are markup in a dialect of bare tags. In a value, a parameter
        that was given already or is not declared is content that quotes one.
        """
        if self._key is None:
            return key in self._declared or self.form.dialect.names == "any"
        given = key in self._arguments or key == self._key
        return not given and (key in self._declared or not self._declared)

    @property
    def may_be_empty(self) -> bool:
        """Whether a call without any parameter is one."""
        if self.form.dialect.names == "any":
            return True
        return self._tool is not None and not values.required(self._schema)

    def open_param(self, key: str, param: int) -> None:
        self._key, self._param = key, param

    def close_param(self) -> None:
        """The current parameter's value is complete."""
        if self.spilled:
            return
        assert self._key is not None
        dialect = self.form.dialect
        text = unframed("".join(self._value), dialect.frame, dialect.params[self._param])
        self._value.clear()
        value, fits = values.read(text, self._declared.get(self._key, {}), self._schema)
        self._arguments[self._key] = value
        if not fits:
            self.repairs[f"untyped:{self._key}"] = None

    def complete(self, unknown_tools: str) -> Call:
        """The event for the call; raises `envelope.NotACall`."""
        written, id_ = self.written, self._id
        bare = self.form.dialect.names == "declared"
        if self.json is None:
            arguments = json.dumps(self._arguments, ensure_ascii=False, separators=(",", ":"))
        else:
            self.repairs |= self.json.repairs
            arguments = self.json.text()
            if self.form.body == "json":
                read = envelope.read(arguments, self.form.dialect.json, needs_arguments=bare)
                written, arguments, id_ = read.name, read.arguments, read.id or id_
                self.repairs |= dict.fromkeys(read.repairs)
        name = names.resolve(written, self._tools)
        if name is None:
            if unknown_tools == "text" or bare:
                raise envelope.NotACall(f"no tool {written!r} is offered")
            name = written
        return Call(self.raw, ToolCall(name, arguments, id_), self.form.dialect.name, tuple(self.repairs))


def unframed(text: str, frame: str, param: str) -> str:
    """A value without the newlines that only set it off from its tags: at most one on either side."""
    before, _, after = param.partition("{value}")
    if frame == "multiline":
        if not text.startswith(("\n", "\r\n")):
            return text
        newline = "\n" if text[0] == "\n" else "\r\n"
        return text.removeprefix(newline).removesuffix(newline)
    if before.endswith("\n"):
        text = text[2:] if text.startswith("\r\n") else text.removeprefix("\n")
    if after.startswith("\n"):
        text = text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
    return text
