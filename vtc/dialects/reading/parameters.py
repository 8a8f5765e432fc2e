"""The parameters of one call that are written between tags."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vtc.dialects.arguments import envelope, parameter, typed_tags
from vtc.dialects.arguments.json_object import dump_json
from vtc.dialects.reading import repairs
from vtc.dialects.reading.call_pieces import TaggedPieces, TextPieces
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import ARGUMENT_KEYS
from vtc.dialects.syntax.forms import CallSyntax
from vtc.events import Tool
from vtc.json_schema import ObjectSchema

EMPTY_SCHEMA = ObjectSchema({})


class NamedTool:
    """A tool name as the model wrote it, empty while it is inside JSON, and the offered tool that it denotes."""

    __slots__ = ("declared", "schema", "tool", "tools", "written")

    def __init__(self, written: str, tools: Mapping[str, Tool]) -> None:
        self.written = written
        self.tools = tools
        """All offered tools by name."""
        self.tool = self.find_tool(written) if written else None
        """The offered tool; None if there is none of this name."""
        self.schema = self.tool.schema if self.tool else EMPTY_SCHEMA
        """The schema of its parameters; empty without a tool."""
        self.declared = self.schema.properties
        """The declared parameters and their schemas."""

    def find_tool(self, written: str) -> Tool | None:
        """Find the tool that a name denotes, if necessary without its server: then it must accept the arguments."""
        tool = self.tools.get(written) or self.find_named_tool(written)
        return tool or self.tools.get(tool_names.find_with_server(written, self.tools) or "")

    def find_named_tool(self, written: str) -> Tool | None:
        """Find the tool that a complete name denotes, for any arguments."""
        return self.tools.get(tool_names.resolve(written, self.tools) or "")

    @property
    def needs_nothing(self) -> bool:
        """True if the tool is offered and requires no parameter."""
        return self.tool is not None and not self.schema.required

    @property
    def takes_nothing(self) -> bool:
        """True if the tool is offered and declares no parameter."""
        return self.tool is not None and not self.declared

    def split_key(self) -> tuple[str, str] | None:
        """Split the written name into a tool's name and one of its parameters' names; None unless it consists of both.

        GLM omits the key's opening tag: `<tool_call>bashcommand</arg_key><arg_value>ls`.
        """
        names = [
            (tool.name, key)
            for tool in self.tools.values()
            if self.written.startswith(tool.name) and (key := self.written[len(tool.name) :]) in tool.schema.properties
        ]
        return names[0] if len(names) == 1 and self.tool is None else None


_TAG_BOUNDARY = re.compile(r"(?<=>)(?=<)")
"""Matches between adjacent tags without white space."""
_ESCAPED_QUOTE = re.compile(r"\\[\"']")
"""Finds a quotation mark after a backslash, which may be escaped. A mark without a backslash proves that none is."""


@dataclass(slots=True)
class _OpenParameter:
    """The parameter whose value is being parsed."""

    key: str = ""
    pattern: int = 0
    """The number of its pattern."""
    is_string: bool | None = None
    """True or False if the markup declares the type; None if it does not."""
    value: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _ValueFaults:
    """Signs that values were misinterpreted."""

    doubtful: str = ""
    """The key of a value whose quotes may or may not be escaped."""
    broken: str = ""
    """The key of a value whose tags are neither list nor object."""
    half_escaped: bool = False
    """True if only a part of a value is escaped."""


class Parameters:
    """The parameters of a call that are written between tags, as far as they were parsed."""

    __slots__ = (
        "_conflicting",
        "_current",
        "_faults",
        "_lenient",
        "_named",
        "_repairs",
        "_syntax",
        "balance",
        "escaped",
        "given",
        "opens_twice",
        "pieces",
        "quotes_calls",
        "undeclared",
        "unsure",
    )

    def __init__(self, syntax: CallSyntax, named: NamedTool, repairs: dict[str, None], *, lenient: bool) -> None:
        """Create an empty set; the repairs of parameters are added to `repairs`."""
        self._syntax = syntax
        self._named = named
        self._repairs = repairs
        self._lenient = lenient
        self._current = _OpenParameter()
        self.given: dict[str, Any] = {}
        """Values of the complete parameters."""
        self.undeclared = 0
        """Number of parameters that the tool does not declare."""
        self.balance = 0
        """Parameter openers minus closers, in and around values."""
        self.unsure = False
        """True if a value may have swallowed a parameter at its end."""
        self.opens_twice = False
        """True if a value begins with its parameter's own opening tag."""
        self.quotes_calls = False
        """True if a value holds the opening tag of a call."""
        self.escaped = False
        """True if all of the call is escaped as in JSON."""
        self._conflicting = ""
        """The key of a parameter that is given twice with different values."""
        self._faults = _ValueFaults()
        self.pieces: TaggedPieces | TextPieces | None = None
        """Receives the parameters while they are parsed, if the call is sent in pieces."""

    def begin(self, key: str, pattern: int, is_string: bool | None = None) -> None:
        """Begin a parameter; `is_string` if the markup declares whether it is a string."""
        self._current = _OpenParameter(key, pattern, is_string)
        self.undeclared += key not in self._named.declared
        if self.pieces:
            self.pieces.begin(key, pattern, is_string=is_string)

    def rename(self, key: str) -> None:
        """Rename the current parameter to `key`, unless its own name is declared."""
        if self._current.key not in self._named.declared:
            self._current.key = key
            self.undeclared -= 1
            self._repairs[Repair.ONLY_PARAMETER.of(key)] = None

    def add_text(self, text: str) -> None:
        """Add text to the value of the current parameter."""
        self._current.value.append(text)
        if self.pieces:
            self.pieces.feed(text)

    @property
    def value(self) -> str:
        """Return the text of the current value so far."""
        return "".join(self._current.value)

    @property
    def is_empty(self) -> bool:
        """True if the current value has no text yet."""
        return not any(text.strip() for text in self._current.value)

    def end(self, *, doubled: bool = False) -> None:
        """Store the complete value of the current parameter; `doubled` if it has several closers."""
        current, given = self._current, self.given
        key = current.key
        is_repeated, previous = key in given, given.get(key)
        self._read_value(key, "".join(current.value), current.pattern, current.is_string)
        if is_repeated:
            self._repairs[Repair.REPEATED.of(key)] = None
            if not self._conflicting and dump_json(previous) != dump_json(given[key]):
                self._conflicting = key
        if doubled:
            self._repairs[Repair.DOUBLED_CLOSER] = None
        self._note_undeclared(key)
        current.value.clear()
        if self.pieces:
            self.pieces.end(given[key])

    def truncate_value(self, size: int) -> None:
        """Truncate the value of the current parameter to `size` characters."""
        self._current.value[:] = [self.value[:size]]

    def pass_over(self) -> None:
        """Store only the name of a parameter of an overlong call, because the meaning of later tags depends on it."""
        self.given[self._current.key] = None

    def spill(self) -> None:
        """Discard the current value."""
        self._current.value.clear()

    def read_attributes(self, tag: str) -> bool:
        """Parse parameters from the rest of an opening tag; False if it is incomplete or they do not fit."""
        arguments = parameter.read_attributes(tag, self._named.schema)
        if arguments is None:
            return False
        self._repairs[Repair.ATTRIBUTES] = None
        self.given |= arguments
        return True

    def is_wrapper(self, key: str) -> bool:
        """Return True if an element of this name is not a parameter, but wraps the parameters or JSON."""
        declared = self._named.declared
        return bool(declared) and key in ARGUMENT_KEYS and key not in declared and not self.given

    def is_guess(self, key: str) -> bool:
        """Return True if the opener of parameter `key` may be any tag in a text.

        This is so if only declared names are markup, this one is not declared, and no declared one was parsed yet.
        """
        declared = self._named.declared
        if self._syntax.dialect.names == "any" or key in declared:
            return False
        return not self.given.keys() & declared.keys()

    def is_content(self, key: str) -> bool:
        """Return True if a bare tag after a closer is content, because it names another tool and no parameter."""
        bare = self._syntax.dialect.names == "declared" and key not in self._named.declared
        return bare and self._named.find_tool(key) is not None

    def complete(self, body: str) -> None:
        """Check the parameters at the end of the call's `body`, and repair values that swallowed another parameter.

        Raises `envelope.NotACall` if the call is ambiguous.
        """
        if self._conflicting:
            raise envelope.NotACall(f"{self._conflicting!r} is given twice")
        self._split_absorbed(body)

    def check_values(self) -> None:
        """Check for ambiguous values. Raises `envelope.NotACall`.

        A value is ambiguous if it is escaped in part, if its tags are neither a list nor an object, or if its quotes
        may or may not be escaped.
        """
        faults = self._faults
        if faults.doubtful:
            raise envelope.NotACall(f"it is ambiguous whether the quotes in {faults.doubtful!r} are escaped")
        if faults.broken:
            raise envelope.NotACall(f"{faults.broken!r} is neither a list nor an object")
        if faults.half_escaped:
            raise envelope.NotACall("only a part of a value is escaped")

    def _split_absorbed(self, body: str) -> None:
        """Split a value that swallowed a missing parameter, because the value's closer is missing.

        This applies if the parameter is required, or if all closers are identical and there are more openers. The
        split must yield every required parameter exactly once; otherwise the call is ambiguous.
        """
        syntax, named = self._syntax, self._named
        missing = [key for key in named.declared if key not in self.given]
        required = [key for key in missing if key in named.schema.required]
        if required and Repair.MISSING_CLOSER in self._repairs:
            raise envelope.NotACall(f"{required[0]!r} is missing: its end may be, too")
        if self.balance > 0 and syntax.parameters.shares_closer:
            required = [*missing, *(key for key in syntax.parameters.list_next_keys(body) if key not in self.given)]
        if required and syntax.parameters.compile_opener(tuple(required)).search(body):
            if not self._lenient or not self.split(body, Repair.UNPAIRED_OPENER):
                raise envelope.NotACall(
                    f"a parameter may have swallowed {required[0]!r}, as its closing tag is missing"
                )
        elif self.opens_twice and self.balance > 0:
            if not self._lenient or not self.split(body, Repair.UNPAIRED_OPENER):
                raise envelope.NotACall("the opening tag of a parameter is written twice")
        elif self.unsure:
            raise envelope.NotACall("a parameter may have swallowed another, as its closing tag is missing")

    def split(self, body: str, repair: Repair = Repair.MISSING_CLOSER) -> bool:
        """Parse the parameters of a body whose closers are missing or wrong; False if it is ambiguous.

        If every parameter has its own closer, the recorded repair is `repair`.
        """
        syntax, declared = self._syntax, self._named.declared
        if not declared or syntax.parameters.ends_with_quote:  # a value may contain text that looks like its end
            return False
        escaped, unescaped = syntax.dialect.escape_key, syntax.dialect.unescape_key
        following = map(unescaped, syntax.parameters.list_next_keys(body))
        keys = {escaped(key): key for key in (*declared, *self.given, *following)}
        closers = {key: syntax.parameters.get_closer(key) for key in keys}
        opener = syntax.parameters.compile_opener(tuple(keys.values()))
        tail = [
            text for tag in syntax.closers.list_tags(self._named.written) for text in (tag, *_TAG_BOUNDARY.split(tag))
        ]
        needed = map(escaped, self._named.schema.required)
        if (ending := syntax.closers.unslash(self._named.written)) and syntax.parameters.shares_closer:
            closed = rf"(?<={re.escape(syntax.parameters.get_closer(''))})\s*{re.escape(ending)}\s*\Z"
            body = re.sub(closed, lambda _: tail[0], body)
        tagged = repairs.read_tagged(
            body, opener, closers, tail, needed, syntax.parameters.beginnings, self._read_unclosed_value
        )
        if tagged is None:
            return False
        self.given.clear()
        self._repairs.clear()
        self._repairs |= dict.fromkeys(tagged[1] or [repair])
        for written, text in tagged[0].items():
            self._read_value(keys[written], text)
            self._note_undeclared(keys[written])
        return True

    def _read_unclosed_value(self, written: str, text: str, last: bool) -> str | None:
        """Return a value without a closing tag, up to the next parameter or the end; None if it is ambiguous."""
        syntax = self._syntax
        if not self._named.schema.accepts_text(syntax.dialect.unescape_key(written)):
            return text  # white space around it is not significant
        after = syntax.call.partition("{params}")[2] if last else ""
        more = after[: len(after) - len(after.lstrip())]
        return parameter.read_unclosed_value(text, syntax.parameters.get_frame(0), syntax.parameters.patterns[0], more)

    def _note_undeclared(self, key: str) -> None:
        """Record an undeclared parameter, unless the schema allows additional ones."""
        self._repairs |= dict.fromkeys(parameter.list_undeclared((key,), self._named.schema))

    def _read_value(self, key: str, text: str, pattern: int = 0, is_string: bool | None = None) -> None:
        """Parse the value of a parameter from the text between its tags, and store it."""
        # Step 1: Remove the frame, and unescape the text if all of the call is escaped.
        syntax, dialect = self._syntax, self._syntax.dialect
        text = parameter.strip_frame(text, syntax.parameters.get_frame(pattern), syntax.parameters.patterns[pattern])
        if syntax.parameters.ends_with_quote and _ESCAPED_QUOTE.search(text):
            self._faults.doubtful = key
        if self.escaped:
            plain = repairs.unescape_body(text)
            self._faults.half_escaped |= plain is None
            text = text if plain is None else plain
        # Step 2: Unwrap a CDATA section. In a dialect without such sections this is a repair, and only if the markup
        # does not declare the type: then it is XML, not the dialect's own.
        is_foreign = self._lenient and is_string is None and not dialect.cdata
        if syntax.parameters.may_hold_sections and (dialect.cdata or is_foreign):
            inner = parameter.unwrap_cdata(text)
            if inner is not None:
                text = inner
                if is_foreign:
                    self._repairs[Repair.CDATA] = None
        # Step 3: Parse lists and objects that are written as typed tags.
        schema, mark = self._named.schema, syntax.parameters.child_mark
        is_not_text = is_string is False or not schema.accepts_text(key)
        if dialect.values == "typed" and not is_string and is_not_text and text.lstrip().startswith("<"):
            with contextlib.suppress(ValueError):
                self.given[key] = typed_tags.read(
                    text, typed_tags.get_tag_name(dialect.params[0]), dialect.unescape_key
                )
                return
            self._faults.broken = key
        # Step 4: Parse all other values by the schema.
        declared = schema.properties.get(key)
        self.given[key], repair = parameter.read(
            text, key, declared, schema.root, is_string=is_string, mark=mark, lenient=self._lenient
        )
        if repair:
            self._repairs[repair] = None
