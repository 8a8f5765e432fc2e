"""A call that is being read: what it was written with so far, and what that says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vtc.dialects.arguments import envelope, fitting, parameter, values
from vtc.dialects.arguments.broken_json import Expected
from vtc.dialects.arguments.framing import unframed
from vtc.dialects.arguments.gemma import GemmaBody
from vtc.dialects.arguments.json_object import JsonBody, dumped, items
from vtc.dialects.arguments.kwargs import KwargsBody
from vtc.dialects.reading import checks, pieces, repairs
from vtc.dialects.reading.cut import json_closers
from vtc.dialects.reading.pieces import Pieces, TaggedPieces
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import SYNONYMS, Envelope
from vtc.dialects.syntax.forms import CallSyntax
from vtc.events import Call, CallPiece, Tool, ToolCall


class OpenCall:
    """One call from its head to its end.

    `raw` is kept whole, so that a call that does not complete can be given back as the text it was.
    """

    def __init__(
        self,
        syntax: CallSyntax,
        written: str,
        id_: str | None,
        tools: Mapping[str, Tool],
        *,
        lenient: bool,
        index: str = "",
    ) -> None:
        self.syntax = syntax
        self.json: JsonBody | KwargsBody | GemmaBody | None = None
        """Reads the arguments, where they are not between tags."""
        self.repairs: dict[str, None] = {}
        self.fault = ""
        """Why the strict reading failed."""
        self._wrong_end = 0  # of the body, where a closing tag of another kind ends
        self.size = 0
        self.spilled = False
        """Too long to hold: read to its end, but as text."""
        self.in_line = False
        """Text stands before it, on the same line."""
        self.earlier: list[Call] = []
        """The calls before it in a section that must be the whole reply."""
        self._lenient = lenient
        self._escaped = self._half_escaped = False
        self._body = 0  # of the pieces of `_raw`, the first behind the head
        self._index, self._given_id = index, id_
        self._tools = tools
        self._name(written)
        self._raw: list[str] = []
        self.undeclared = 0
        """Parameters so far that the tool does not declare."""
        self.balance = 0
        """Openers of parameters less closers, in and around values."""
        self.unsure = False
        """A value ends where it may have swallowed a parameter."""
        self.quotes_calls = False
        """A value holds the opening tag of a call."""
        self._twice: str | None = None
        self._param = 0
        self._is_string: bool | None = None
        self._key: str | None = None
        self._value: list[str] = []
        self.pieces: Pieces | None = None
        """What of it leaves as it is read; None if it is delivered whole."""
        self.told = 0
        """Characters of it that have left so."""
        self._told = 0  # of the pieces of `_raw`
        self._arguments: dict[str, Any] = {}

    def _name(self, written: str) -> None:
        self.written = written
        """The name as the model wrote it; empty as long as it is inside JSON."""
        self._tool = self._offered(written)
        self._schema = self._tool.parameters if self._tool else {}
        self._declared = values.properties(self._schema)

    def _offered(self, written: str) -> Tool | None:
        """The tool that a name means."""
        return self._tools.get(tool_names.resolve(written, self._tools) or "")

    @property
    def _id(self) -> str | None:
        """The id that it was given, or that the head amounts to in dialects that have one."""
        template = self.syntax.dialect.id
        if not (template and self._index):
            return self._given_id
        return template.replace("{name}", self.written).replace("{index}", self._index)

    def split_name(self) -> str:
        """Take the name of a parameter off that of the tool, if they stand together; return it, empty if they do not.

        GLM leaves the key's opening tag out: `<tool_call>bashcommand</arg_key><arg_value>ls`.
        """
        if self._tool or not any(text.startswith("{key}") for text in self.syntax.dialect.params):
            return ""
        found = [
            (tool.name, key)
            for tool in self._tools.values()
            if self.written.startswith(tool.name)
            and (key := self.written[len(tool.name) :]) in values.properties(tool.parameters)
        ]
        if len(found) != 1 or not self.raw.endswith(self.written):
            return ""
        name, key = found[0]
        self._raw[:] = [self.raw.removesuffix(key)]
        self._name(name)
        return key

    @property
    def raw(self) -> str:
        return "".join(self._raw)

    @property
    def body(self) -> str:
        """What was held behind the head."""
        return "".join(self._raw[self._body :])

    def hold(self, text: str, *, value: bool = False) -> None:
        """More of its text; `value` when that is part of the current parameter's value."""
        self._raw.append(text)
        self.size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if value:
            self._value.append(text)
            if isinstance(self.pieces, TaggedPieces):
                self.pieces.feed(text)

    def begin_body(self, *, in_pieces: bool = False) -> None:
        """Begin the body after the head, which is held; its arguments may leave `in_pieces`."""
        self._body = len(self._raw)
        if '\\"' in self.raw and self._lenient and self.json is None:
            self._escaped = True
            self.repairs[Repair.ESCAPED_TEXT] = None
        self.pieces = self._pieces() if in_pieces and not self._escaped else None

    def _pieces(self) -> Pieces | None:
        if not pieces.is_possible(self.syntax, self.written):
            return None
        if self.json is None:
            return pieces.TaggedPieces(self.syntax, self.written, self._tool, self._id) if self._tool else None
        keys = self.syntax.dialect.json if self.syntax.body == "json" else None
        return pieces.JsonPieces(self.syntax, self.written, self._tool, self._id, keys=keys, offered=self._offered)

    def piece(self) -> CallPiece | None:
        """Take what may leave of it now."""
        one = self.pieces
        if one is None or self.spilled:
            return None
        if isinstance(one, pieces.JsonPieces):
            assert isinstance(self.json, JsonBody)
            one.feed(self.json.take())
        arguments, begins = one.take(), one.begun and not self.told
        if one.tool is None or not (arguments or begins):
            return None
        raw, self._told = "".join(self._raw[self._told :]), len(self._raw)
        self.told += len(raw)
        return CallPiece(raw, one.tool.name if begins else "", one.id if begins else None, arguments)

    def wait(self) -> None:
        """Let no more of it leave before it is complete: what its value holds may be its end."""
        if self.pieces:
            self.pieces.halted = True

    @property
    def untold(self) -> str:
        """What has not left of its text."""
        return self.raw[self.told :]

    def spill(self) -> None:
        """Its text is given back: keep none of it, and none of what follows."""
        self.spilled = True
        self._raw.clear()
        self._value.clear()

    def declares(self, key: str) -> bool:
        """True if the tool has a parameter of this name."""
        return key in self._declared

    def wraps_arguments(self, key: str) -> bool:
        """True if an element of this name can only stand around the parameters, or around JSON."""
        return bool(self._declared) and key in SYNONYMS and key not in self._declared and not self._arguments

    def begins_with_a_guess(self, key: str) -> bool:
        """True if a parameter's opener may be any tag: names are markup only if declared, and none was read yet."""
        if self.syntax.dialect.names == "any" or key in self._declared:
            return False
        return not self._arguments.keys() & self._declared.keys()

    @property
    def may_be_empty(self) -> bool:
        """Whether a call without any parameter is one."""
        if self.syntax.dialect.names == "any":
            return True
        return self._tool is not None and not values.required(self._schema)

    def open_param(self, key: str, param: int, is_string: bool | None = None) -> None:
        """Begin a parameter; `is_string` where the markup itself says whether it is one."""
        self._key, self._param, self._is_string = key, param, is_string
        self.undeclared += key not in self._declared
        if isinstance(self.pieces, TaggedPieces):
            self.pieces.open(key, param, is_string=is_string)

    def quotes(self, key: str) -> bool:
        """True if a parameter's opener after a closer is content all the same: its name says that it is none.

        That is so if the parameter was given before, or if the bare tag is another tool's. It is no sign if the open
        parameter may be quoted itself, or is the same one.
        """
        if key in self._arguments and key != self._key:
            return self._key in self._declared or not self._declared
        bare = self.syntax.dialect.names == "declared" and key not in self._declared
        return bare and self._offered(key) is not None

    @property
    def sole_parameter(self) -> str | None:
        """The one parameter that may stand without tags: required text, where the call is no word of a sentence."""
        dialect = self.syntax.dialect
        if self._tool is None or dialect.names == "any" or dialect.ends_reply or self.in_line or not dialect.json_body:
            return None
        return values.sole(self._schema)

    @property
    def may_guess(self) -> bool:
        """True if a parameter that the tool declares may follow one that it does not."""
        return bool(self._declared)

    def close_param(self, *, doubled: bool = False) -> None:
        """Take the value of the open parameter, which is complete; `doubled` if it has several closers."""
        assert self._key is not None
        if self.spilled:
            self._arguments[self._key] = None  # which parameters it has decides what its tags mean
            return
        again, given = self._key in self._arguments, self._arguments.get(self._key)
        self._set(self._key, "".join(self._value), self._param, self._is_string)
        if again:
            self.repairs[Repair.REPEATED.of(self._key)] = None
            if self._twice is None and dumped(given) != dumped(self._arguments[self._key]):
                self._twice = self._key
        if doubled:
            self.repairs[Repair.DOUBLED_CLOSER] = None
        self._note_undeclared(self._key)
        self._value.clear()
        if isinstance(self.pieces, TaggedPieces):
            self.pieces.close(self._arguments[self._key])

    def _note_undeclared(self, key: str) -> None:
        """Note an undeclared parameter, unless the schema itself says that there may be more than it declares."""
        if self._tool and self._declared and key not in self._declared and not self._schema.get("additionalProperties"):
            self.repairs[Repair.UNDECLARED.of(key)] = None

    def _set(self, key: str, text: str, param: int = 0, is_string: bool | None = None) -> None:
        """A parameter's value, from the text between its tags."""
        dialect = self.syntax.dialect
        frame = "multiline" if self.syntax.is_element(param) else dialect.frame
        text = unframed(text, frame, self.syntax.params[param])
        if self._escaped:
            plain = repairs.unescaped(text)
            self._half_escaped |= plain is None
            text = text if plain is None else plain
        # Markup that leaves out whether it is a string is another's: XML's, where it writes a section.
        strange = self._lenient and is_string is None and not dialect.cdata
        in_section = self.syntax.may_hold_sections and (dialect.cdata or strange)
        if in_section and (inner := parameter.in_cdata(text)) is not None:
            text = inner
            self.repairs.update({Repair.CDATA: None} if strange else {})
        declared, mark = self._declared.get(key), self.syntax.child_mark
        self._arguments[key], repair = parameter.read(
            text, key, declared, self._schema, is_string=is_string, mark=mark, lenient=self._lenient
        )
        if repair:
            self.repairs[repair] = None

    def read_attributes(self, tag: str) -> bool:
        """Take the parameters from the rest of an opening tag; False if it is not whole yet, or they do not fit."""
        found = parameter.in_attributes(tag, self._declared, self._schema)
        if found is None:
            return False
        self.repairs[Repair.ATTRIBUTES] = None
        self._arguments |= found
        return True

    # What it says

    def ends_wrongly(self, closer: str) -> None:
        """Note a closing tag of another kind: it ends the call, unless the call's own comes later."""
        self._wrong_end = len(self.body) + len(closer)
        self.fault = "its end can be read in two ways"

    def complete(self, unknown_tools: str) -> list[Call]:
        """The events for what was read; raises `envelope.NotACall`."""
        if self.json is None:
            if self._twice is not None:
                raise envelope.NotACall(f"{self._twice!r} is given twice")
            self._split_absorbed()
            return self._events([], unknown_tools)
        self.repairs |= self.json.repairs
        text = self.json.text()
        if self.syntax.body == "json" and text.startswith("{"):
            text = envelope.listed(text) or text
        if not text.startswith("["):
            return self._events([text], unknown_tools)
        self.repairs[Repair.ARRAY_OF_CALLS] = None
        return self._events(items(text), unknown_tools)

    def repaired(self, unknown_tools: str) -> tuple[list[Call], str]:
        """The events for what the strict reading failed on, and the text after it; no events if it cannot be told."""
        body, rest = self.body, ""
        closers = self.syntax.closing_tags(self.written)
        try:
            if self.json is None:
                if self.quotes_calls or not self._split(body):
                    return [], ""  # with a call in it, it could be read in two ways
                return self._events([], unknown_tools), ""
            if self._wrong_end:
                rest = body[self._wrong_end :]
                if any(closer in rest for closer in closers):
                    return [], ""
                self._raw[self._body :] = [body[: self._wrong_end]]
                self.repairs[Repair.WRONG_CLOSER] = None
                return self.complete(unknown_tools), rest
            if isinstance(self.json, GemmaBody) and not _JSON.match(body):
                found = repairs.gemma_body(body, closers, self.json.quote)
            else:
                keys = self.syntax.dialect.json if self.syntax.body == "json" else None
                expected = envelope.expected(keys, self._tools, self._offered) if keys else Expected(self._schema)
                ends = json_closers(body, closers)
                found = None if ends is None else repairs.json_bodies(body, ends, expected)
            if found is None:
                return [], ""
            self.repairs |= dict.fromkeys(found.repairs)
            rest = body[found.end :]
            del self._raw[self._body :]
            self._raw.append(body[: found.end])
            events = self._events(found.values, unknown_tools)
            for event in events:
                checks.repaired(event, self._tools, self.body, self.fault)
            return events, rest
        except envelope.NotACall as error:
            self._raw[self._body :] = [body]
            self.fault = str(error)
            return [], ""

    def _split_absorbed(self) -> None:
        """A value that holds the opener of a parameter that is missing has lost its closer: split it there.

        That is so if the parameter is required, or if the openers are more than the closers and these are all alike.
        Only if that gives every required parameter exactly once; else it could be read in two ways.
        """
        missing = [key for key in self._declared if key not in self._arguments]
        required = [key for key in missing if key in values.required(self._schema)]
        if required and Repair.MISSING_CLOSER in self.repairs:
            raise envelope.NotACall(f"{required[0]!r} is missing: its end may be, too")
        if self.balance > 0 and self.syntax.closers_alike:
            required = [*missing, *(key for key in self.syntax.next_params(self.body) if key not in self._arguments)]
        if required and self.syntax.param_opener(tuple(required)).search(self.body):
            if not self._lenient or not self._split(self.body):
                raise envelope.NotACall(
                    f"a parameter may have swallowed {required[0]!r}, as its closing tag is missing"
                )
        elif self.unsure:
            raise envelope.NotACall("a parameter may have swallowed another, as its closing tag is missing")

    def _split(self, body: str) -> bool:
        """Read the parameters of a body whose closers are missing or wrong; False if that cannot be told."""
        if not self._declared:
            return False
        escaped, unescaped = self.syntax.dialect.escaped, self.syntax.dialect.unescaped
        following = map(unescaped, self.syntax.next_params(body))
        keys = {escaped(key): key for key in (*self._declared, *self._arguments, *following)}
        closers = {key: self.syntax.param_closer(key) for key in keys}
        opener = self.syntax.param_opener(tuple(keys.values()))
        tail = self.syntax.closing_tags(self.written)
        needed = map(escaped, values.required(self._schema))
        found = repairs.tagged(body, opener, closers, tail, needed, self.syntax.param_beginnings)
        if found is None:
            return False
        self._arguments.clear()
        self.repairs = dict.fromkeys(found[1] or [Repair.MISSING_CLOSER])
        for written, text in found[0].items():
            self._set(keys[written], text)
            self._note_undeclared(keys[written])
        return True

    def _events(self, bodies: Sequence[str], unknown_tools: str) -> list[Call]:
        """A call for each JSON body, or one for the tagged parameters; the first stands for all the characters."""
        if self._half_escaped:
            raise envelope.NotACall("only a part of a value is escaped")
        dialect = self.syntax.dialect
        events: list[Call] = []
        for read in self._reads(bodies):
            text, notes = read.text, (*map(str, self.repairs), *map(str, read.repairs))
            name = read.tool.name if read.tool else self._unoffered(read.name, notes)
            if name is None or (read.tool is None and unknown_tools == "text"):
                raise envelope.NotACall(tool_names.refused(read.name, self._tools))
            if read.tool is None:
                notes = (*notes, Repair.UNKNOWN_TOOL) if self._tools else notes
            elif self.json or read.repairs:
                schema = read.tool.parameters
                text, fitted = fitting.fitted_text(text, read.arguments, schema, lenient=self._lenient)
                notes = (*notes, *fitted)
            if dialect.names == "declared" and self.syntax.whole_reply:
                checks.answer(read.arguments, self._tools[name])
            events.append(Call(self.raw * (not events), ToolCall(name, text, read.id or self._id), dialect.name, notes))
        if not events:
            raise envelope.NotACall("it is empty")
        return events

    def _unoffered(self, written: str, notes: Collection[str]) -> str | None:
        """The name of a tool that is not offered, or None if this is no call of one; without any tools each name is."""
        if self._tools:
            return self.syntax.unoffered(written, notes, in_json=self.json is not None)
        return written if self.syntax.dialect.names == "any" else None

    def _reads(self, bodies: Sequence[str]) -> list[envelope.Read]:
        """Read the JSON bodies, or write the tagged parameters as one."""
        if self.json is None:
            read = envelope.read_parameters(self.written, self._arguments, self._tool, self._declared)
            if read.repairs:
                self.repairs.pop(Repair.UNDECLARED.of(next(iter(self._arguments))), None)
            return [read]
        if self.syntax.body == "json":
            keys, bare = self.syntax.dialect.json, self.syntax.dialect.names == "declared"
            return [envelope.read(body, keys, needs_arguments=bare, offered=self._offered) for body in bodies]
        if len(bodies) > 1:
            raise envelope.NotACall("its arguments are several objects")
        if self._tool is None:
            with contextlib.suppress(envelope.NotACall):  # Kimi: an id stands for the name, which the arguments hold
                return [envelope.read(body, _PLAIN, needs_arguments=False, offered=self._offered) for body in bodies]
        return [envelope.read_arguments(self.written, body, self._tool) for body in bodies]


_PLAIN = Envelope()
_JSON = re.compile(r'\s*\{\s*"')
