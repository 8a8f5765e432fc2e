"""The description of a dialect, as in its YAML file: the text of calls, with slots.

The same description serves both directions: `pattern.py` splits its strings into parts, `grammar.py` compiles them for
reading and `writing/calls.py` fills them for writing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec.structs import replace

from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.pattern import PatternError
from vtc.events import Tool


def _render_json(value: object, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML, but a model must see the plain text.
    return json.dumps(value, ensure_ascii=False, indent=indent)


_environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False, undefined=jinja2.StrictUndefined
)
"""Sandbox for prompt templates. Texts of tools are data: a description that looks like a template is not evaluated."""
_environment.filters["tojson"] = _render_json


@lru_cache(maxsize=256)
def _compile_template(text: str) -> jinja2.Template:
    return _environment.from_string(text)


_SAMPLE_PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "A path."}},
    "required": [],
}
_SAMPLE_TOOL = Tool("read", "Reads a file.", _SAMPLE_PARAMETERS)


def check_template(text: str) -> None:
    """Raise `PatternError` if `text` is not a template, or cannot be rendered for a plain tool."""
    try:
        _render_prompt(text, [_SAMPLE_TOOL], {"must_call": "", "example": ""})
    except jinja2.TemplateSyntaxError as error:
        raise PatternError("prompt", f"line {error.lineno} of the template: {error.message}") from None
    except Exception as error:
        raise PatternError("prompt", f"the template fails: {error}") from None


def render_template(text: str, tools: Sequence[Tool], variables: Mapping[str, Any]) -> str:
    """Render the prompt for `tools`, each with `name`, `description`, `parameters` (JSON Schema) and `fields`.

    If the template fails because of a tool's schema, that tool is rendered without parameters.
    """
    try:
        return _render_prompt(text, tools, variables)
    except Exception:
        return _render_prompt(text, [_drop_unrenderable_schema(text, tool, variables) for tool in tools], variables)


def _drop_unrenderable_schema(text: str, tool: Tool, variables: Mapping[str, Any]) -> Tool:
    try:
        _render_prompt(text, [tool], variables)
    except Exception:
        return replace(tool, parameters={"type": "object", "properties": {}})
    return tool


def _render_prompt(text: str, tools: Sequence[Tool], variables: Mapping[str, Any]) -> str:
    shown = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "fields": list_fields(tool.parameters),
            "declaration": tool.as_openai(),
        }
        for tool in tools
    ]
    return _compile_template(text).render(tools=shown, **variables).strip()


def list_fields(schema: Mapping[str, Any], depth: int = 0) -> list[dict[str, Any]]:
    """Flatten the properties of a schema: name, type in words, required, description, depth.

    The fields of nested objects and of array items follow their parent one level deeper.
    """
    required = schema.get("required") or ()
    listed: list[dict[str, Any]] = []
    for name, entry in (schema.get("properties") or {}).items():
        entry = entry if isinstance(entry, dict) else {}
        listed.append(
            {
                "name": name,
                "type": describe_type(entry),
                "required": name in required,
                "description": entry.get("description", ""),
                "enum": entry.get("enum"),
                "default": entry.get("default"),
                "has_default": "default" in entry,
                "depth": depth,
            }
        )
        inner = entry.get("items") if isinstance(entry.get("items"), dict) else entry
        if depth < 4 and isinstance(inner, dict) and inner.get("properties"):
            listed += list_fields(inner, depth + 1)
    return listed


def describe_type(schema: Mapping[str, Any]) -> str:
    """Describe a type in words: `string`, `array of object`, `integer or null` …"""
    union = schema.get("anyOf") or schema.get("oneOf")
    if union:
        return " or ".join(dict.fromkeys(describe_type(member) for member in union if isinstance(member, dict)))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(option) for option in kind)
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"array of {describe_type(schema['items'])}"
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "any"


ARGUMENT_KEYS = ("args", "input", "params", "parameters", "kwargs", "tool_input", "action_input", "arguments")
"""Keys of the arguments that models use in place of the dialect's."""
WRAPPER_KEYS = ("function", "tool_call", "function_call")
"""Keys that hold the object with name and arguments."""
CALL_LIST_KEYS = ("tool_calls", "function_calls")
"""Keys of an object that contains only a list of calls."""


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a JSON object that holds a whole call; of several keys, the first is written and all are read."""

    name: tuple[str, ...] = ("name",)
    """The key of the tool's name."""
    arguments: tuple[str, ...] = ("arguments", "parameters")
    """The key of the tool's arguments."""
    id: str = ""
    """The key of the call's id; empty if it has none."""
    may_lack_arguments: bool = False
    """True if an object without the key of the arguments is a call, too, if the tool has no parameters. Only for models
    that are known to write it, because such an object may be an answer."""
    order: tuple[Literal["id", "name", "arguments"], ...] = ("id", "name", "arguments")
    """The order in which the keys are written."""


class Description(msgspec.Struct, frozen=True, cache_hash=True, forbid_unknown_fields=True, kw_only=True):
    """One dialect, as its YAML file describes it.

    `call`, `param` and `section` are patterns: literal text with placeholders like `{name}` and `{value}` (`{{` and
    `}}` are braces; `pattern.SLOTS` lists them). If there are several patterns, the first is written and all are read.
    White space between markup is written exactly and read loosely; white space next to `{value}` is the value's frame.
    """

    kind: Literal["dialect"]
    """The kind of profile."""
    name: str
    """The name in profiles, options and reports."""
    description: str = ""
    """One line for people."""
    call: tuple[str, ...] | str
    """A pattern for one call."""
    param: tuple[str, ...] | str = ()
    """A pattern for one parameter, with `{key}` and `{value}`; for calls with `{params}`."""
    section: tuple[str, ...] | str = ()
    """A pattern with `{calls}` around one or more calls."""
    section_required: bool = False
    """A call counts only inside a section."""
    section_anchor: Literal["anywhere", "message"] = "anywhere"
    """`message`: the section counts only when it is the whole reply."""
    separator: str = "\n"
    """Text between calls."""
    param_separator: str = ""
    """Text between parameters, in addition to white space."""
    prompted: str = ""
    """The text at the end of the prompt with which the first call begins. The reply does not repeat it."""
    optional: tuple[str, ...] = ()
    """Markers of `call` that models omit."""
    spellings: tuple[tuple[str, ...], ...] = ()
    """Alternative spellings of the markup: each list starts with the text in the patterns, followed by the others that
    are read."""
    tokens: tuple[str, ...] = ()
    """Texts of the markup that are special tokens of the dialect's models. Such a model does not use them in examples,
    so they count everywhere."""
    anchor: Literal["anywhere", "line"] = "anywhere"
    """`line`: a call counts only if it is alone on its lines."""
    ends_reply: bool = False
    """A call counts only if nothing except other calls follows it."""
    id: str = ""
    """The id that is implied by a call's header, for example `functions.{name}:{index}`."""
    names: Literal["declared", "any"] = "any"
    """`declared`: only names (and parameters) of offered tools are markup; everything else is text."""
    stray_words: tuple[str, ...] = ()
    """Words that models write by mistake before a call, alone on the line before its opener: they are removed with the
    call, as a repair."""
    namespaces: tuple[str, ...] = ()
    """Prefixes that a tag may carry (`antml:`); they are ignored."""
    values: Literal["json", "python", "repr", "nested", "typed"] = "json"
    """The format of values that are not strings. `json`: JSON. `python`: scalars as Python literals. `repr`: all of
    them as Python literals. `nested`: lists and objects as parameters inside the parameter, with the key `item` for
    items. `typed`: the same with the type in each tag, and no key for items. In keyword arguments this covers strings,
    too: in double quotes, or as Python's `repr`."""
    codec: Literal["json", "gemma"] = "json"
    """The format of `{args}`: JSON, or Gemma 4's with bare keys and strings between `string_token`."""
    string_token: str = '<|"|>'
    """The marker around a string of the codec `gemma`; it begins with `<`."""
    entities: bool = False
    """The key of a parameter is escaped like an XML attribute: `&quot;` and `&amp;`."""
    cdata: bool = False
    """A CDATA section around a value is not part of the value; without this option it is."""
    frame: Literal["pattern", "multiline"] = "pattern"
    """`multiline`: a value of several lines has one extra newline on either side."""
    json_body: bool = True
    """Clients that read the dialect also accept arguments as one JSON object in the call's body, which is used for
    values that would not survive between tags. Models accept it in every dialect."""
    to_last_closer: tuple[str, ...] = ()
    """Parameters, as `tool.parameter`, whose value a client ends at the last closer in the call. All others end at the
    first closer."""
    in_code: Literal["text", "call"] = "text"
    """Meaning of a call inside a Markdown code block or span: an example, which stays `text`, or a `call`."""
    fenced: bool = False
    """A reply that consists of one closed code block around calls counts as these calls. This applies to dialects of a
    known model."""
    json: Envelope = Envelope()
    """The keys of `{json}`."""
    unconstrained: str = ""
    """The reason why servers get no grammar for this dialect, for people; empty if one can be made of the patterns."""
    result: str = "{result}"
    """The text of a tool's result in the conversation; `{name}`, `{id}` and `{result}`."""
    result_role: Literal["user", "tool"] = "user"
    """The role of the message that holds a tool's result."""
    result_start: str = ""
    """A regular expression with a group `name` for the start of a result, as clients of this dialect write it."""
    empty_result: str = "(no output)"
    """Replaces a result without text."""
    prompt: str = ""
    """Jinja2 template, sandboxed: the presentation of the tools to the model. `{{ example }}` is a call."""

    @property
    def calls(self) -> tuple[str, ...]:
        return (self.call,) if isinstance(self.call, str) else self.call

    @property
    def params(self) -> tuple[str, ...]:
        return (self.param,) if isinstance(self.param, str) else self.param

    @property
    def sections(self) -> tuple[str, ...]:
        return (self.section,) if isinstance(self.section, str) else self.section

    def escape_key(self, key: str) -> str:
        """Escape the key of a parameter for writing."""
        return key.replace("&", "&amp;").replace('"', "&quot;") if self.entities else key

    def unescape_key(self, written: str) -> str:
        """Unescape the key of a parameter."""
        return written.replace("&quot;", '"').replace("&amp;", "&") if self.entities else written

    @property
    def may_be_quoted(self) -> bool:
        """True if the text around a call can show that it is only quoted.

        False if calls count everywhere, as for a client that searches the whole text for them.
        """
        return self.in_code == "text" and self.json_body

    @property
    def writes_json(self) -> bool:
        """True if an object is written as JSON."""
        return self.codec == "json" and self.values != "repr"

    @property
    def is_json_reply(self) -> bool:
        """True if a call is just JSON or a code block of JSON, like an answer in JSON."""
        return self.names == "declared" and (self.is_block or any(call.startswith("{json}") for call in self.calls))

    @property
    def is_block(self) -> bool:
        """True if a call is a code block: only its closing fence ends it."""
        return self.calls[0].startswith("```") if self.calls else False

    @property
    def is_framed(self) -> bool:
        """True if the markers alone identify a call, so that even one of a tool that is not offered is a call.

        If a parameter may be any tag, as in data of all kinds, only the tool's schema can identify it.
        """
        patterns = self.sections if self.section_required else self.calls
        prefixes = [*map(_literal_prefix, patterns)]
        is_marked = any(_is_marker(prefix) or (len(prefix) > 5 and prefix.endswith("[")) for prefix in prefixes)
        return self.names == "any" and is_marked and not any(text.startswith("<{key}>") for text in self.params)

    @property
    def result_opening(self) -> str:
        """The tag at the start of a result, which only the client writes; empty if there is none."""
        opening = _literal_prefix(self.result)
        return opening if _is_marker(opening) and opening[0] in "<[" else ""

    @property
    def rescued(self) -> Description | None:
        """The part of the dialect that is read from every model, because nobody writes it by accident; None if none is.

        It consists of calls with a marker of at least five characters; of JSON or Python with the name of an offered
        tool that is the whole reply; and of tags that are tools' names, if no text follows. Dialects that only describe
        how clients read calls are excluded, and so are code blocks, which contain examples.
        """
        if not self.json_body or self.is_block:
            return None
        if self.names == "declared":
            if self.sections and self.section_anchor == "message":
                self = replace(self, json=replace(self.json, may_lack_arguments=False))
                whole = [section.replace("{calls}", call) for section in self.sections for call in self.calls]
                words = any(text[0].isalnum() or text.startswith("{name}") for text in whole)
                return None if words else replace(self, section_required=True)
            return replace(self, ends_reply=True) if {*map(_literal_prefix, self.calls)} == {"<"} else None
        patterns = self.sections if self.section_required else self.calls
        marked = tuple(text for text in patterns if _is_marker(_literal_prefix(text)))
        if not marked:
            return None
        return replace(self, section=marked) if self.section_required else replace(self, call=marked)

    def check(self, *, template: bool = True) -> None:
        """Raise the first of the errors from `find_faults`."""
        for fault in self.find_faults(template=template):
            raise fault

    def find_faults(self, *, template: bool = True) -> Iterator[pattern.PatternError]:
        """Find invalid patterns, each with the `.key` of the field that contains it.

        Compiling the `template` of the prompt takes longer than everything else; without it, it is compiled on demand.
        """
        for check in self._list_checks(template):
            try:
                check()
            except pattern.PatternError as error:
                yield error

    def _list_checks(self, template: bool) -> Iterator[Callable[[], object]]:
        for key, patterns in (("call", self.calls), ("param", self.params), ("section", self.sections)):
            for text in patterns:
                enclosed = key != "call" or self.section_required
                yield partial(pattern.check_findable, text, key, enclosed=enclosed)
        yield self._check_bodies
        yield partial(pattern.parse, self.result, "result")
        yield self._check_result_start
        if template:
            yield partial(check_template, self.prompt)

    def _check_bodies(self) -> None:
        if not self.calls:
            raise pattern.PatternError("call", "at least one pattern is needed")
        bodies = [pattern.parse(text, "call") for text in self.calls]
        if not self.string_token.startswith("<"):
            raise pattern.PatternError("string_token", f"{self.string_token!r} must begin with '<'")
        if not self.params and any(pattern.Slot("params") in parts for parts in bodies):
            raise pattern.PatternError("param", "a call with {params} needs a pattern for one parameter")
        if self.section_required and not self.sections:
            raise pattern.PatternError("section_required", "a required section needs a pattern in `section`")

    def _check_result_start(self) -> None:
        try:
            groups = re.compile(self.result_start).groupindex  # used with match
        except re.error as error:
            raise pattern.PatternError("result_start", f"not a regular expression: {error}") from None
        if self.result_start and "name" not in groups:
            raise pattern.PatternError("result_start", "the group (?P<name>…) is missing, for the name of the tool")


def _literal_prefix(text: str) -> str:
    """Return the literal text at the start of a pattern."""
    return text[: text.index("{")].strip() if "{" in text else text


def _is_marker(opening: str) -> bool:
    """Return True for text that nobody writes by accident. A dash is excluded: it would match in all prose."""
    return len(opening) >= 5 and not (opening[0].isalnum() or opening[0] == "-" or opening.startswith("```"))
