"""A text client's conversation in structured form: calls are parsed from its past turns and paired with their results.

The client sends the model's text as plain assistant text, and the result of a call as the beginning of a user turn
(`[read_file for 'a.py'] Result:`, as a separate part in older versions). Ids are derived from the content of a call and
the number of earlier equal calls, so that they are the same in every turn and prompt caches stay valid.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import structs
from msgspec.structs import replace

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import dump_json, render_members, split_members
from vtc.dialects.reading.reader import Reader, ReaderOptions
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.dialects.writing.calls import write_calls
from vtc.events import Call, Event, Message, Opaque, Text, Tool, ToolCall

JAVASCRIPT_SPACE = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""The characters that JavaScript's `trim` removes, which are not those of `str.strip`."""


MAX_ANGLE_BRACKETS = 10_000
"""Maximum number of `<` outside values; a text with more is not searched, because it is no intended call."""


class _TooManyError(Exception):
    pass


class _Tag(NamedTuple):
    """The opening and closing tag of a tool or a parameter."""

    name: str
    opener: str
    closer: str


class ClientReader:
    """Reads calls like a text client, by simpler rules than the reader's, to check what the client will understand.

        <tool>          any known tool opens
          <parameter>   inside it, any known parameter opens, even one of another tool
          </parameter>  the first closer ends the value; the last value of a parameter wins
        </tool>

    Other text is skipped and nothing is balanced. A value in `to_last_closer` of the dialect is everything between the
    first opener and the last closer in the call. White space at the ends of a value is ignored. Versions of a client
    differ in when they search for that closer; only calls that all of them read identically count. The dialect must be
    tagged (`is_tagged`); its first patterns are used.
    """

    def __init__(self, dialect: Description, tools: Iterable[str], parameters: Iterable[str]) -> None:
        self._dialect = dialect
        self._brackets_left = MAX_ANGLE_BRACKETS
        self._tools = {name: _make_tag(dialect.calls[0], "{params}", "{name}", name) for name in tools}
        self._parameters = {name: _make_tag(dialect.params[0], "{value}", "{key}", name) for name in parameters}

    def is_one_call(self, text: str, call: ToolCall) -> bool:
        """Return True if the client finds just this call in a text, or no call at all if it does not know the tool."""
        try:
            # Two calls are enough to know that there is not exactly one.
            return all(
                self._is_only_call([*islice(self.find_calls(text, while_streaming=early), 2)], call)
                for early in (False, True)
            )
        except _TooManyError:
            return False

    def find_calls(self, text: str, *, while_streaming: bool = False) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the name and the parameters of each call, even of an unclosed one.

        Current clients search for the last closer of a value when the call has ended. Older ones search while closers
        arrive (`as_it_comes`), and so ignore a closer that ends a parameter.
        """
        self._brackets_left = MAX_ANGLE_BRACKETS
        at = 0
        while opened := self._find_opener(text, at, self._tools.values()):
            start, tool = opened
            given, at = self._find_parameters(text, start, tool, while_streaming)
            yield tool.name, {key: text[begin:end].strip(JAVASCRIPT_SPACE) for key, (begin, end) in given.items()}

    def _is_only_call(self, found: list[tuple[str, dict[str, str]]], call: ToolCall) -> bool:
        """Return True if the calls that were found are just this one; none must be found for an unknown tool."""
        if call.name not in self._tools:
            return not found
        arguments = json.loads(call.arguments).items()
        expected = {key: value for key, value in arguments if value is not None and key in self._parameters}
        if len(found) != 1:
            return False
        ((name, texts),) = found
        if name != call.name or texts.keys() != expected.keys():
            return False
        return all(self._is_value(texts[key], value) for key, value in expected.items())

    def _find_parameters(
        self, text: str, start: int, tool: _Tag, while_streaming: bool
    ) -> tuple[dict[str, tuple[int, int]], int]:
        """Find the spans of a call's parameters from `start` on; also return the end of the call."""
        # Step 1: collect the tags that count inside the call: its closer (a tag without a name), all openers, and older
        # clients' closers of `to_last_closer` (tags without a closer).
        spans: dict[str, tuple[int, int]] = {}
        to_last_closer = [
            self._parameters[key]
            for key in {*self._parameters} & {*_list_parameters_to_last_closer(self._dialect, tool.name)}
        ]
        firsts = {name: text.find(opener, start) + len(opener) for name, opener, _ in to_last_closer}
        tags = [_Tag("", tool.closer, ""), *self._parameters.values()]
        if while_streaming:
            tags += [_Tag(name, closer, "") for name, _, closer in to_last_closer]
        # Step 2: find the span of each parameter, up to its first closer.
        at = start
        while opened := self._find_opener(text, at, tags):
            at, (name, mark, closer) = opened
            if not name:
                break
            if not closer:
                spans[name] = firsts[name], at - len(mark)
                continue
            begin, end = at, text.find(closer, at)
            spans[name] = begin, end if end >= 0 else len(text)
            if end < 0:
                return spans, len(text)
            at = end + len(closer)
        if not opened:
            return spans, len(text)
        # Step 3: extend the spans that end at the last closer in the call.
        if while_streaming:
            return spans, at
        for name, _, closer in to_last_closer:
            last = text.rfind(closer, start, at)
            if start < firsts[name] <= last:
                spans[name] = firsts[name], last
        return spans, at

    def _find_opener(self, text: str, at: int, tags: Collection[_Tag]) -> tuple[int, _Tag] | None:
        """Find the first opener, and the position after it.

        No regular expression is used, because it would be cached with the names of tools.
        """
        marks = tuple(tag.opener for tag in tags)
        while (at := text.find("<", at)) >= 0:
            self._brackets_left -= 1
            if self._brackets_left < 0:
                raise _TooManyError
            if text.startswith(marks, at):
                tag = max((tag for tag in tags if text.startswith(tag.opener, at)), key=lambda tag: len(tag.opener))
                return at + len(tag.opener), tag
            at += 1
        return None

    def _is_value(self, text: str, value: Any) -> bool:
        """Return True if the text of a parameter has this value."""
        if isinstance(value, str) or self._dialect.values != "json":
            return text == values.write(value, self._dialect.values).strip(JAVASCRIPT_SPACE)
        try:
            return json.dumps(json.loads(text)) == json.dumps(value)
        except (ValueError, RecursionError):
            return False


def is_tagged(dialect: Description) -> bool:
    """Return True if tools' names are the tags of calls, and keys are the tags of parameters."""
    return dialect.calls[0].startswith("<{name}") and any(param.startswith("<{key}") for param in dialect.params[:1])


def trim_arguments(call: ToolCall, dialect: Description) -> ToolCall:
    """Strip white space from text arguments, as the client does before it uses them.

    Parameters that end at the last closer are content, for which some clients keep it. Arguments that are not an object
    are returned unchanged.
    """
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call
    keeps = _list_parameters_to_last_closer(dialect, call.name)
    texts = {key: value for key, value in _list_arguments(arguments) if isinstance(value, str) and key not in keeps}
    bare = {
        key: dump_json(value.strip(JAVASCRIPT_SPACE))
        for key, value in texts.items()
        if value != value.strip(JAVASCRIPT_SPACE)
    }
    return replace(call, arguments=render_members({**split_members(call.arguments), **bare})) if bare else call


def _list_arguments(arguments: Any) -> Iterable[tuple[str, Any]]:
    return arguments.items() if isinstance(arguments, dict) else ()


def _list_parameters_to_last_closer(dialect: Description, tool: str) -> list[str]:
    """Return the parameters of a tool that end at their last closer."""
    named = (name.rpartition(".") for name in dialect.to_last_closer)
    return [key for name, _, key in named if name == tool]


def _make_tag(pattern: str, hole: str, slot: str, name: str) -> _Tag:
    """Fill a pattern with a name, and split it at the hole for its content."""
    opener, _, closer = pattern.replace(slot, name).partition(hole)
    return _Tag(name, opener.rstrip(), closer.strip())


NO_RESULT_TEXT = "(no result)"
"""Replaces the result of a call if the client sent none, because every call must have one."""


def structure_messages(messages: Sequence[Message], dialect: Description, tools: Mapping[str, Tool]) -> list[Message]:
    """Convert calls and results to structured form; messages without them stay the same objects."""
    marker = re.compile(dialect.result_start, re.DOTALL) if dialect.result_start else None  # used with match
    seen: Counter[tuple[str, str]] = Counter()
    open_calls: list[ToolCall] = []
    after_results: list[Message] = []  # other content of the client, which must not separate calls from their results
    out: list[Message] = []
    for message in messages:
        if open_calls and message.role == "user":
            results, rest = _structure_results(message, open_calls, marker, tools)
            out += results
            after_results += rest
            continue
        if message.role == "tool" and any(call.id == message.call_id for call in open_calls):
            open_calls = [call for call in open_calls if call.id != message.call_id]
            out.append(message)
            continue
        out += [*_fill_missing_results(open_calls), *after_results]
        after_results.clear()
        open_calls.clear()
        if message.role == "assistant":
            message = _structure_calls(message, _read_events(message.text, dialect, tools), seen)
            open_calls = list(message.calls)
        out.append(message)
    return [*out, *_fill_missing_results(open_calls), *after_results]


def rewrite_samples(
    text: str, dialect: Description, tools: Mapping[str, Tool], write: Callable[[ToolCall], str]
) -> str:
    """Rewrite the sample calls of a prompt in another format."""
    events = _read_events(text, dialect, tools)
    return "".join(f"\n\n{write(event.call)}" if isinstance(event, Call) else event.raw for event in events)


def write_for_client(
    call: ToolCall, dialect: Description, tools: Mapping[str, Tool], parameters: Collection[str] = ()
) -> str:
    """Write a call for a client that knows only `dialect`.

    Content that means nothing to such a client is omitted: null values, and parameters that are neither its tool's nor
    known for any other tool (`parameters`).
    """
    arguments = {key: value for key, value in json.loads(call.arguments).items() if value is not None}
    if call.name in tools:
        known = {*tools[call.name].schema.properties, *parameters}
        arguments = {key: value for key, value in arguments.items() if key in known}
    return write_calls([replace(call, arguments=json.dumps(arguments))], dialect, tools, for_client=True)


def strip_beginning(begun: str, written: str) -> str | None:
    """Return `written` without its beginning `begun`, compared without white space; None if it begins otherwise."""
    known = iter("".join(begun.split()))
    wanted = next(known, "")
    for at, char in enumerate(written):
        if not wanted:
            return written[at:].removeprefix(begun[len(begun.rstrip()) :])
        if char.isspace():
            continue
        if char != wanted:
            return None
        wanted = next(known, "")
    return None if wanted else ""


def list_openers(dialect: Description, tools: Iterable[str]) -> list[str]:
    """Return the opening tag of each tool's calls; none if tools have no tags."""
    head = dialect.calls[0].partition("{params}")[0].rstrip()
    return [head.replace("{name}", name) for name in tools] if head.startswith("<{name}") else []


def get_closer(dialect: Description, tool: str) -> str:
    """Return the closing tag of a tool's calls."""
    return dialect.calls[0].partition("{params}")[2].strip().replace("{name}", tool)


def is_read_as(
    text: str,
    call: ToolCall,
    dialect: Description,
    tools: Mapping[str, Tool],
    known_tools: Iterable[str] = (),
    known_parameters: Iterable[str] = (),
) -> bool:
    """Return True if the client reads just this call in a text, with exactly these arguments, and nothing else.

    For a client that parses by tags, `known_tools` and `known_parameters` are those that it knows in addition to
    `tools`.
    """
    if not is_tagged(dialect):
        events = _read_events(text, dialect, tools)
        calls = [event.call.name for event in events if isinstance(event, Call)]
        return calls == [call.name] and not any(isinstance(event, Text) and event.raw.strip() for event in events)
    declared = {key for tool in tools.values() for key in tool.schema.properties}
    reader = ClientReader(dialect, {*tools, *known_tools}, {*declared, *known_parameters})
    return reader.is_one_call(text, call)


def is_readable(event: Call, dialect: Description) -> bool:
    """Return True if the client can read the call in its original characters.

    They must begin with the exact opener: in another case, the client does not recognise the tag and looks inside it.
    """
    if event.dialect != dialect.name or event.repairs or event.changed or dialect.sections:
        return False
    head, params, _ = dialect.calls[0].partition("{params}")
    opener, raw = head.replace("{name}", event.call.name).rstrip(), event.raw.lstrip()
    return not params or (raw.startswith(opener) and not raw[len(opener) :].lstrip().startswith("{"))


def _read_events(text: str, dialect: Description, tools: Mapping[str, Tool]) -> list[Event]:
    return Reader(compile_grammar((dialect,)), tools, ReaderOptions(lenient=False)).read_whole(text)


def _structure_calls(message: Message, events: Sequence[Event], seen: Counter[tuple[str, str]]) -> Message:
    calls = [event.call for event in events if isinstance(event, Call)]
    if not calls:
        return message
    text = "".join(event.raw for event in events if isinstance(event, Text))
    opaque = tuple(part for part in message.content if isinstance(part, Opaque))
    identified = []
    for call in calls:
        seen[call.name, call.arguments] += 1
        digest = hashlib.sha256(
            f"{call.name}\0{call.arguments}\0{seen[call.name, call.arguments]}".encode()
        ).hexdigest()
        identified.append(replace(call, id=f"call_{digest[:24]}"))
    return structs.replace(message, content=((text, *opaque) if text else opaque), calls=(*message.calls, *identified))


def _structure_results(
    message: Message, open_calls: list[ToolCall], marker: re.Pattern[str] | None, tools: Mapping[str, Tool]
) -> tuple[list[Message], list[Message]]:
    """Split a user turn after calls into their results, which close them, and a message with the rest.

    Pictures belong to the rest, since the result of a call cannot contain any.
    """
    results: list[Message] = []
    rest: list[str | Opaque] = []
    is_marker_alone = False  # True if the marker is a separate part, so that the next part is the result
    for part in message.content:
        match = marker.match(part) if marker and isinstance(part, str) else None
        call = _find_open_call(match["name"], open_calls, tools) if match else None
        if match and call and isinstance(part, str):
            open_calls.remove(call)
            text = part[match.end() :]
            is_marker_alone = not text.strip()
            results.append(Message("tool", () if is_marker_alone else (text,), call_id=call.id, name=call.name))
        elif is_marker_alone and isinstance(part, str):
            results[-1] = structs.replace(results[-1], content=(part,))
            is_marker_alone = False
        else:
            rest.append(part)
            is_marker_alone = False
    if not results:
        return [], [message]
    return results, [structs.replace(message, content=tuple(rest))] if rest else []


def _find_open_call(written: str, open_calls: Sequence[ToolCall], tools: Mapping[str, Tool]) -> ToolCall | None:
    name = tool_names.resolve(written, tools) or written
    return next((call for call in open_calls if call.name == name), None)


def _fill_missing_results(open_calls: Sequence[ToolCall]) -> list[Message]:
    return [Message("tool", (NO_RESULT_TEXT,), call_id=call.id, name=call.name) for call in open_calls]
