"""Renders calls and results in a dialect: the other direction of the same patterns.

If values between tags would not survive reading (`RoundTrip`), the arguments are written as one JSON object in the
call's body, which every dialect accepts and in which no tag can occur.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from vtc.dialects.arguments import gemma, typed_tags, values
from vtc.dialects.arguments.json_object import dump_json, escape_surrogates, load_json
from vtc.dialects.arguments.python import PARAMETER_NAME
from vtc.dialects.reading.reader import Reader, ReaderOptions
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.grammar import Grammar, compile_grammar
from vtc.events import Call, Markup, Tool, ToolCall

MAX_VERBATIM_LENGTH = 5
"""Maximum length of a text that `RoundTrip` checks without shortening it, in characters."""
type SearchMarkup = Callable[[str], object]


class RoundTrip:
    """Checks that calls written between tags are read back unchanged, for some tools and one dialect.

    Values between tags are raw: one may contain the markers that end it, or a string may look like another type. So the
    written text is read again, once for all calls of the same shape: text without markup is shortened first, because
    only its first and last character and the presence of line breaks can make a difference.
    """

    def __init__(self, dialect: Description, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self._dialect = dialect
        self._form = CallSyntax(dialect, dialect.calls[0])
        self._searches: dict[str, Mapping[str, tuple[SearchMarkup, SearchMarkup]]] = {}
        self._results: dict[tuple[str, str], bool] = {}

    def survives(self, name: str, arguments: Mapping[str, Any], write: Callable[[Mapping[str, Any]], str]) -> bool:
        """Return True if a call is read back with exactly these arguments; `write` renders any arguments."""
        short = self._shorten_values(name, arguments)
        shape = name, repr(short)  # `1`, `1.0` and `True` are different in a repr
        if shape not in self._results:
            self._results[shape] = self._reads_back(write(short), name, short)
        return self._results[shape]

    @property
    def has_failed(self) -> bool:
        """True if any call was not read back."""
        return not all(self._results.values())

    def _shorten_values(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if name not in self._searches:
            self._searches[name] = self._make_searches(name)
        searches = self._searches[name]
        short = dict(arguments)
        for key, value in arguments.items():
            if key not in searches or not isinstance(value, str) or len(value) <= MAX_VERBATIM_LENGTH:
                continue
            if _is_plain(value, *searches[key]):
                short[key] = _shorten_text(value)
        return short

    def _make_searches(self, name: str) -> Mapping[str, tuple[SearchMarkup, SearchMarkup]]:
        """Return, for the text parameters of a tool, the searches for openers and for other markup in a value."""
        if name not in self.tools:
            return {}
        schema = self.tools[name].schema
        texts = [*filter(schema.is_text, schema.properties)]
        if not texts:
            return {}
        markup = self._form.parameters.compile_opener(tuple(schema.properties))
        ends = {key: self._grammar.scan_value(self._form, name, 0, key) for key in texts}
        return {key: (markup.search, end.search) for key, end in ends.items()}

    @cached_property
    def _grammar(self) -> Grammar:
        return compile_grammar((self._dialect,))

    def _reads_back(self, text: str, name: str, arguments: Mapping[str, Any]) -> bool:
        if self._dialect.section_required:
            text = pattern.fill_pattern(self._dialect.sections[0], "section", {"calls": text})
        reader = Reader(self._grammar, self.tools, ReaderOptions(max_call_bytes=len(text) * 8 + 8))
        match [event for event in reader.read_whole(text) if not isinstance(event, Markup)]:
            # Compared as JSON, in which `1`, `1.0` and `true` are different.
            case [Call(call=ToolCall(name=read, arguments=written))]:
                return read == name and dump_json(json.loads(written)) == dump_json(arguments)
        return False


def _is_plain(text: str, markup: SearchMarkup, end: SearchMarkup) -> bool:
    # Carriage returns and CDATA have special rules anywhere in a value.
    return not ("\r" in text or "<![CDATA[" in text or markup(text) or end(text))


def _shorten_text(text: str) -> str:
    middle = "x\nx" if "\n" in text else "xx"
    return f"{text[0]}{middle}{text[-1]}"


def write_calls(
    calls: Sequence[ToolCall],
    dialect: Description,
    tools: Mapping[str, Tool],
    round_trip: RoundTrip | None = None,
    *,
    for_client: bool = False,
) -> str:
    """Render some calls, including their section; `tools` are the offered tools by name.

    `round_trip` is for this dialect and these tools, and caches earlier checks. In every dialect, models accept JSON in
    the call's body; the clients of some dialects (`for_client`) do not.
    """
    if not calls:
        return ""
    # A tool in the history may not be offered any more; its calls are written as if it were.
    unoffered = {call.name: Tool(call.name) for call in calls if call.name not in tools}
    if unoffered or round_trip is None:
        round_trip = RoundTrip(dialect, {**unoffered, **tools})
    between_tags = for_client and not dialect.json_body
    text = dialect.separator.join(
        _write_call(call, dialect, index, round_trip, between_tags).rstrip("\n") for index, call in enumerate(calls)
    )
    if dialect.sections and (dialect.section_required or dialect.section_anchor == "anywhere"):
        return pattern.fill_pattern(dialect.sections[0], "section", {"calls": text})
    return text


def _write_call(call: ToolCall, dialect: Description, index: int, round_trip: RoundTrip, between_tags: bool) -> str:
    """Render one call without its section."""
    arguments = _load_arguments(call.arguments)
    syntax = dialect.calls[0]
    id_ = dialect.id.replace("{name}", call.name).replace("{index}", str(index)) or call.id or ""
    slots = {"name": call.name, "id": id_, "index": str(index), "number": str(index + 1), "noise": ""}
    kind = pattern.find_body_slot(syntax)
    if kind == "json":
        keys = dialect.json
        named: dict[str, tuple[str, Any]] = {
            "id": (keys.id, id_ if keys.id else ""),
            "name": (keys.name[0], call.name),
            "arguments": (keys.arguments[0], arguments),
        }
        fields = [named[key] for key in keys.order]
        slots["json"] = _render_object({key: value for key, value in fields if value != ""}, dialect)
    elif kind == "args":
        slots["args"] = _render_object(arguments, dialect)
    elif kind == "kwargs":
        slots["kwargs"] = ", ".join(_write_keyword(key, value, dialect.values) for key, value in arguments.items())
    else:

        def render_call(arguments: Mapping[str, Any]) -> str:
            params = dialect.param_separator.join(_write_param(key, value, dialect) for key, value in arguments.items())
            return pattern.fill_pattern(syntax, "call", {**slots, "params": params})

        if between_tags or round_trip.survives(call.name, arguments, render_call):
            return render_call(arguments)
        # `<` is escaped, so that no tag is found in it.
        slots["params"] = dump_json(arguments).replace("<", "\\u003c") + "\n"
    return pattern.fill_pattern(syntax, "call", slots)


def write_result(name: str, id_: str, result: str, dialect: Description) -> str:
    """Render a tool's result for the conversation. The result itself is never altered."""
    filled = {"name": name, "id": id_, "result": result or dialect.empty_result}
    return pattern.fill_pattern(dialect.result, "result", filled)


def _write_param(key: str, value: Any, dialect: Description) -> str:
    if dialect.values == "typed":
        return _render_typed(key, value, dialect)
    if dialect.values == "nested" and isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else (("item", item) for item in value)
        text = "".join(_write_param(name, entry, dialect) for name, entry in inner)
    else:
        text = values.write(value, dialect.values)
    if dialect.frame == "multiline" and "\n" in text:
        text = f"\n{text}\n"
    kind = "string" if isinstance(value, str) else _json_type(value)
    slots = {"key": dialect.escape_key(key), "value": text, "string": str(isinstance(value, str)).lower(), "type": kind}
    return pattern.fill_pattern(dialect.params[0], "param", slots)


def _render_typed(key: str | None, value: Any, dialect: Description) -> str:
    """Render a value in a tag with its type; the items of a list have no key."""
    match value:
        case dict():
            text = "".join(_render_typed(name, entry, dialect) for name, entry in value.items())
        case list():
            text = "".join(_render_typed(None, item, dialect) for item in value)
        case _:
            text = values.write(value, "json")
    param = dialect.params[0].replace(' name="{key}"', "") if key is None else dialect.params[0]
    return param.format_map(
        {"key": dialect.escape_key(key or ""), "value": text, "type": typed_tags.get_tag_type(value)}
    )


def _json_type(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _render_object(value: Any, dialect: Description) -> str:
    """Render an object in the format of the dialect: JSON, Python's repr, or Gemma's."""
    if dialect.codec == "gemma":
        return gemma.write(value, dialect.string_token)
    return repr(value) if dialect.values == "repr" else dump_json(value)


def _write_keyword(key: str, value: Any, style: values.Style) -> str:
    """Render an argument of a Python call, whose key may not be an identifier."""
    return f"{key}={_write_literal(value, style)}" if PARAMETER_NAME.fullmatch(key) else f"**{ {key: value}!r}"


def _write_literal(value: Any, style: values.Style) -> str:
    """Render a value in a Python call."""
    if isinstance(value, str) and style != "repr":
        return escape_surrogates(dump_json(value))  # Python has the same escapes, but needs complete surrogate pairs
    return repr(value)


def _load_arguments(arguments: str) -> dict[str, Any]:
    """Parse arguments; anything but an object is stored under one key, so that nothing is lost."""
    try:
        value = load_json(arguments or "{}")
    except (ValueError, RecursionError):
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}
