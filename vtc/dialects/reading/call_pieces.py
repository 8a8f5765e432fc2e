"""Split a call into pieces that can be sent before it is complete (`deliver: incremental`).

    <function=write><parameter=content>     {"content":"          the name is known, and the value is text
    def f():                                def f():
      ret                                   \n  ret
    </para                                                        buffered: a closing tag may begin here
    meter></function>                       "}                    the call is complete

A value that is text is sent as it arrives. Three things are buffered until more text arrives or the call ends: values
of other types, a suffix that may belong to the value's end (white space, tags and partial tags, which a repair may
treat as the end), and everything after a tag that may be content of the value or its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import JsonBody, escape_surrogates, load_json
from vtc.dialects.arguments.parameter import strip_frame
from vtc.dialects.reading.context import WHITESPACE
from vtc.dialects.syntax.description import WRAPPER_KEYS, Envelope
from vtc.dialects.syntax.forms import CallSyntax
from vtc.events import CallPiece, Tool

MAX_HELD_CHARACTERS = 1024
"""Maximum characters of a value that are buffered because they may belong to its end."""
MAX_TRAILING_TAGS = 16
"""Maximum tags at the end of a text that are considered as the end of the value."""
_TAG = re.compile(r"(?:</?[^<>\s]{0,64}|/[\w:.-]{0,64}|[\w:.-]{1,64})>?\Z")
_MAX_TAG_CHARACTERS = 70
"""Maximum characters of such a tag."""
_ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:[nrt]|u00[01][0-9a-f])\Z")


def can_be_sent_in_pieces(syntax: CallSyntax, written: str) -> bool:
    """Return True if a call can be sent in pieces: tags mark its end, and no later text decides if it is a call."""
    dialect = syntax.dialect
    if dialect.names != "any" or syntax.whole_reply or syntax.ends_reply:
        return False
    if syntax.body != "params" and not dialect.writes_json:
        return False
    if syntax.body == "params" and not syntax.parameters.shares_closer:
        return False
    closers = _list_closers(syntax, written)
    return bool(closers) and all(closer.startswith("<") for closer in closers)


def _list_closers(syntax: CallSyntax, written: str) -> list[str]:
    """List the closing tags of a call, and the one that all of its parameters share."""
    closers = syntax.closers.list_tags(written)
    if syntax.body == "params":
        closers.append(syntax.parameters.get_closer(""))
    return closers


def _dump_json(value: Any) -> str:
    return escape_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


type PieceKind = Literal["arguments", "text"]
"""Content of the pieces: the arguments, or the original text for a client that parses calls from the text."""


class CallPieces:
    """The pieces of one call: the arguments that were sent, and those that can be sent now.

    The caller feeds the call's text while it is parsed. The subclasses differ in the notation of the arguments.
    """

    as_text = False
    """True if the original text of the call is sent."""

    __slots__ = ("_content", "_ready", "begun", "halted", "id", "sent", "stopped", "tool")

    def __init__(self, tool: Tool | None, id_: str | None) -> None:
        self.tool = tool
        self.id = id_
        self.begun = False
        """True once a call of the tool has certainly begun."""
        self.halted = False
        """True if all further text is buffered until the end of the call."""
        self.stopped = False
        """True if even arguments that are ready are buffered, because they may hold the call's end and another call."""
        self.sent: list[str] = []
        """The arguments that were sent, in pieces."""
        self._ready: list[str] = []
        self._content: ValueText | None = None
        """The current value if it is text that is sent while it arrives; otherwise None."""

    def stop(self) -> None:
        """Send nothing more before the end of the call."""
        self.halted = self.stopped = True

    @property
    def held(self) -> str:
        """The buffered suffix of a value whose beginning can be sent."""
        return self._content.held if self._content else ""

    def take_piece(self, *, first: bool) -> CallPiece | None:
        """Take the arguments that are ready; `first` is True for the call's first piece. The caller fills in `raw`."""
        arguments, begins = "".join(self._ready), self.begun and first
        if self.tool is None or self.stopped or not (arguments or begins):
            return None
        self._ready.clear()
        self.sent.append(arguments)
        return CallPiece("", self.tool.name if begins else "", self.id if begins else None, arguments)

    def remaining_arguments(self, name: str, arguments: str) -> str | None:
        """Return the unsent arguments; None if the pieces that were sent do not begin the final arguments."""
        sent = "".join(self.sent)
        if self.tool is None or name != self.tool.name:
            return None
        if arguments.startswith(sent):
            return arguments[len(sent) :]
        body = JsonBody(lenient=False)  # renders the arguments without white space, as the pieces were
        body.feed(arguments, 0, final=True)
        return body.text()[len(sent) :] if body.text().startswith(sent) else None


class ValueText:
    """The text of a value, without a suffix that may belong to its end."""

    __slots__ = ("_end_characters", "_in_json", "_names", "held")

    def __init__(self, closers: Sequence[str], *, in_json: bool) -> None:
        self._names = {name for closer in closers if (name := closer.strip("</> \n"))}
        self._in_json = in_json
        self._end_characters = f"{WHITESPACE}]}}" if in_json else WHITESPACE
        self.held = ""

    def feed(self, text: str) -> str:
        """Add text of the value; return the part that can be sent."""
        text = self.held + text
        end = max(self._find_end(text), len(text) - MAX_HELD_CHARACTERS)
        self.held = text[end:]
        return text[:end]

    def _find_end(self, text: str) -> int:
        """Return the end of the part that can be sent, before white space, tags and partial tags."""
        end = len(text)
        for _ in range(MAX_TRAILING_TAGS):
            at = end
            end = len(text[:end].rstrip(self._end_characters))
            if self._in_json and (escape := _ESCAPED.search(text, max(0, end - _MAX_TAG_CHARACTERS), end)):
                end = escape.end(1)
            elif (tag := _TAG.search(text, max(0, end - _MAX_TAG_CHARACTERS), end)) and self._may_be_closer(tag[0]):
                end = tag.start()
            if end == at:
                break
        return end

    def _may_be_closer(self, text: str) -> bool:
        """Return True if a text may be a closing tag, or a fragment of one."""
        if text[0] == "<":
            return True
        word = text.lstrip("/").rstrip(">")
        return any(name[: min(3, len(word))] == word[:3] for name in self._names)


class TaggedPieces(CallPieces):
    """The pieces of a call whose parameters are between tags, rendered as JSON."""

    __slots__ = ("_closers", "_keys", "_raw", "_schema", "_strip_frame", "_syntax", "_value_sent")

    def __init__(self, syntax: CallSyntax, written: str, tool: Tool, id_: str | None) -> None:
        super().__init__(tool, id_)
        self._syntax = syntax
        self._schema = tool.schema
        self._closers = _list_closers(syntax, written)
        self._keys: set[str] = set()
        self._raw: str | None = None  # the beginning of a value, until its frame is complete
        self._value_sent: list[str] = []  # the text of the value that is ready or was sent
        self._strip_frame: Callable[[str], str] = str

    def begin(self, key: str, pattern: int, *, is_string: bool | None) -> None:
        """Begin a parameter."""
        if key not in self._schema.properties or key in self._keys:
            self.halted = True
        if self.halted:
            return
        self._ready.append(("," if self._keys else "{") + _dump_json(key) + ":")
        self._keys.add(key)
        self.begun = True
        self._value_sent = []
        is_text = self._schema.is_text(key) and is_string is not False
        self._content = ValueText(self._closers, in_json=False) if is_text else None
        self._raw = ""
        frame, written = self._syntax.parameters.get_frame(pattern), self._syntax.parameters.patterns[pattern]
        self._strip_frame = lambda text: strip_frame(f"{text}.", frame, written)[:-1]

    def feed(self, text: str) -> None:
        """Add text of the parameter's value."""
        if self.halted or self._content is None:
            return
        # Step 1: Collect the beginning of the value until its frame is complete: a line break, or a CDATA section.
        if self._raw is not None:
            text = self._raw + text
            if text[:1] in ("", "\r") and len(text) < 2:
                self._raw = text
                return
            if self._syntax.parameters.may_hold_sections and (bare := text.lstrip(WHITESPACE))[:1] in ("", "<"):
                if bare or len(text) > MAX_HELD_CHARACTERS:
                    self._content = None  # possibly a CDATA section
                self._raw = text
                return
            text, self._raw = self._strip_frame(text), None
            self._add_ready('"')
        # Step 2: Send the text, except a suffix that may belong to the value's end.
        if text := self._content.feed(text):
            self._add_ready(_dump_json(text)[1:-1])

    def end(self, value: Any) -> None:
        """End the parameter, whose complete value is `value`."""
        if self.halted:
            return
        whole, sent = _dump_json(value), "".join(self._value_sent)
        if whole.startswith(sent):
            self._ready.append(whole[len(sent) :])
        else:
            self.halted = True

    def _add_ready(self, text: str) -> None:
        self._value_sent.append(text)
        self._ready.append(text)


class JsonPieces(CallPieces):
    """The pieces of a call in JSON: the arguments alone, or an object with the call's name (`keys`)."""

    __slots__ = (
        "_awaits_key",
        "_closers",
        "_depth",
        "_held",
        "_key",
        "_keys",
        "_offered",
        "_open",
        "_string",
    )

    def __init__(
        self,
        syntax: CallSyntax,
        written: str,
        tool: Tool | None,
        id_: str | None,
        *,
        keys: Envelope | None,
        offered: Callable[[str], Tool | None],
    ) -> None:
        super().__init__(tool, id_)
        self._closers = _list_closers(syntax, written)
        self._keys = keys
        self._offered = offered
        self._open: list[str] = []
        self._depth: int | None = None  # nesting depth of the arguments' keys
        self._awaits_key = False
        self._key = ""
        self._string: list[str] | None = None  # text of a string that is not in `_content`
        self._held: list[str] = []  # arguments that are buffered until more text arrives

    def feed(self, tokens: Iterable[str]) -> None:
        """Add tokens of the body, as `JsonBody.take` returns them."""
        for token in tokens:
            if self.halted:
                return
            if self._string is None:
                self._read_token(token)
            elif token != '"':
                self._string.append(token)
            else:
                self._end_string(escape_surrogates("".join(self._string)))
        if self._string and self._content is not None:
            self._continue_value(self._content, escape_surrogates("".join(self._string)))
            self._string.clear()

    def _continue_value(self, content: ValueText, text: str) -> None:
        """Add text of a value that can be sent."""
        known = content.held + text
        if any(closer in known for closer in self._closers):
            self.stop()
            return
        if text := content.feed(text):
            self._ready.append(text)

    def _read_token(self, mark: str) -> None:
        """Handle a token outside of strings: a bracket, a comma, a colon, a quotation mark, or a number or literal."""
        if mark == '"':
            self._begin_string()
            return
        if mark in "{[":
            self._begin_bracket(mark)
        elif mark in "}]":
            self._open.pop()
            if self._depth is None or len(self._open) < self._depth:
                self.halted = True
        elif mark == ",":
            self._awaits_key = self._open[-1] == "{"
        elif self._depth is None and mark != ":" and self._key not in ("id", "index"):
            self.halted = True
        self._held.append(mark)

    def _begin_bracket(self, mark: str) -> None:
        """Enter an object or an array, which may be the arguments."""
        keys = self._keys
        self._open.append(mark)
        self._awaits_key = mark == "{"
        if self._depth is not None or (keys and len(self._open) == 1 and mark == "{"):
            return
        named = self.tool is not None and (not keys or self._key in keys.arguments)
        if not named or mark == "[":
            self.halted = True
        self._depth = len(self._open)
        self._held.clear()

    def _begin_string(self) -> None:
        """Begin a string, which is sent while it arrives if it is a text value in the arguments."""
        self._string, self._content = [], None
        if self._awaits_key or self._depth is None:
            self._held.append('"')
            return
        assert self.tool is not None
        own = self.tool.schema.properties.get(self._key)
        at_top = len(self._open) == self._depth
        if at_top and own is not None and own.get("type") != "string":
            self.halted = not self.tool.schema.accepts_text(self._key)
        if not self.halted:
            self._content = ValueText(self._closers, in_json=True)
            self._ready += [*self._held, '"']
            self._held.clear()

    def _end_string(self, written: str) -> None:
        """End a string whose text, or the rest of it, is `written`: a value in the arguments, a key, or a field."""
        self._string = None
        if self._content is not None:
            self._continue_value(self._content, written)
            self._held += [self._content.held, '"']
            return
        if self._depth is not None:
            self._held += [written, '"']
        is_key, self._awaits_key = self._awaits_key, False
        if is_key and len(self._open) == (self._depth or 1):
            self._key = str(load_json(f'"{written}"'))
            if self._depth is not None:
                self._check_key()
        elif self._depth is None:
            self._read_field(str(load_json(f'"{written}"')))

    def _check_key(self) -> None:
        """Record that the call has begun if the tool declares the parameter; otherwise buffer the rest of the call."""
        assert self.tool is not None
        declared = self.tool.schema.properties
        if declared and self._key not in declared:
            self.halted = True
        else:
            self.begun = True

    def _read_field(self, value: str) -> None:
        """Read a string next to the arguments: the tool's name or the call's id."""
        assert self._keys is not None
        if self._key in self._keys.name and self._key not in WRAPPER_KEYS and self.tool is None:
            self.tool = self._offered(value)
            self.halted = self.tool is None
        elif self._keys.id and self._key == self._keys.id:
            self.id = value
        elif self._key not in ("id", "type", "index"):
            self.halted = True


TAG_START = "<"
"""The first character of every tag."""


class TextPieces(CallPieces):
    """The pieces of a call as original text, for a client that parses calls of its own dialect from the text.

        <write_to_file><path>a.py</path>     sent
        <content>if a                        sent unchanged
         < b:                                buffered: possible markup is decided at the end of the value
        </content></write_to_file>           the call is complete

    The client receives the same characters whether or not the text proves to be a call. Only a repair changes them, so
    text that a repair could change is buffered. Frames are not split: a frame is buffered whole if a part of it is.
    """

    __slots__ = ("_is_text", "_keys", "_may_hold_markup", "_syntax", "_value")

    as_text = True

    def __init__(self, syntax: CallSyntax, tool: Tool) -> None:
        super().__init__(tool, None)
        self._syntax = syntax
        self._keys: set[str] = set()
        self._is_text = True
        self._value: list[str] = []  # value of a parameter whose type is not text
        self._may_hold_markup = False  # the value contains possible markup

    @classmethod
    def create(cls, syntax: CallSyntax, written: str, tool: Tool | None) -> Self | None:
        """Create the pieces of a call; None if the client might not parse it, or if tags do not mark its end."""
        closers = [*syntax.closers.list_tags(written), syntax.parameters.get_closer("key")]
        if syntax.body != "params" or not all(closer.startswith(TAG_START) for closer in closers):
            return None
        return cls(syntax, tool) if tool and tool.name == written else None

    def begin(self, key: str, pattern: int, *, is_string: bool | None) -> None:
        """Begin a parameter."""
        assert self.tool is not None
        schema = self.tool.schema
        if pattern or key not in schema.properties or key in self._keys:
            self.halted = True
            return
        self.begun = True
        self._keys.add(key)
        self._is_text = schema.is_text(key) and is_string is not False
        self._may_hold_markup = False
        self._value.clear()

    def feed(self, text: str) -> None:
        """Add text of the parameter's value."""
        if not self._is_text:
            self._value.append(text)
        elif TAG_START in text:
            self._may_hold_markup = True

    def end(self, value: Any) -> None:
        """End the parameter, whose complete value is `value`."""
        if not self._is_text and values.write(value, self._syntax.dialect.values) != "".join(self._value).strip():
            self.halted = True  # the text denotes another value
        self._is_text, self._may_hold_markup = True, False

    def take_piece(self, *, first: bool) -> CallPiece | None:
        if self.tool is None or self._may_hold_markup or not self._is_text or self.halted or not self.begun:
            return None
        return CallPiece("", self.tool.name if first else "")

    def remaining_arguments(self, name: str, arguments: str) -> str | None:
        """Return an empty string: the client reads the arguments from the text."""
        return ""
