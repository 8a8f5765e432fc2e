"""Translate a `response_template` to a dialect, and a dialect to a `response_template`.

Tokenizers of Transformers contain this description of replies. It names the fields of a reply, each with expressions
for its opener and closer and the form of its content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from vtc.deriving.drafts import Draft, Sample, render_calls, try_draft
from vtc.deriving.slots import escape_pattern
from vtc.deriving.template import FIRST, SAMPLE_TOOLS, SECOND
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import KEY_CHARACTERS, MIN_MARKER_LENGTH
from vtc.dialects.syntax.markup import NAME_CHARACTERS
from vtc.dialects.syntax.pattern import BODY_SLOTS, Slot, find_body_slot, parse, split_at_slot
from vtc.dialects.syntax.tokens import TURN_ENDS

UNDESCRIBED_KEYS = {
    "result": "a response template does not describe results",
    "prompt": "a response template does not describe the prompt",
}
MAX_TRANSLATED_CHARS = 1000
_EXPRESSION = re.compile(
    r"\(\?P<(?P<group>\w+)>(?:[^()\\\[]|\\.|\[(?:[^\]\\]|\\.)*\])*+\)"
    r"|\(\?P=(?P<again>\w+)\)|(?P<skipped>\(\?:(?:[^()\\]|\\.)*\)\?|\(\?=.*\)\Z)"
    r"|(?P<space>(?:\\s|\\n|\n)[*+?]?)|\\(?P<escaped>[^\w\s])|(?P<literal>[^\\()\[\]|*+?.^$])",
    re.DOTALL,
)
"""Matches the next element of a simple regular expression."""
_OPTIONAL = re.compile(r"\(\?:((?:[^()\\]|\\.)*)\)\?")  # for at most 1,000 characters
"""Finds the optional part of an expression for the edge of a call: the edge of a section."""


class UnknownFormError(ValueError):
    """Raised if a response template has a form that no dialect can express, or a dialect one that no template can."""


def draft_response_template(template: Mapping[str, Any], name: str) -> Draft:
    """Draft the dialect of the calls that a response template describes. Raises `UnknownFormError`."""
    keys = {"name": name, "separator": "\n", **_translate_calls(template)}
    tools = {tool.name: tool for tool in SAMPLE_TOOLS}
    try:
        sample = render_calls([FIRST, SECOND], try_draft(Draft(keys), [], tools, name), tools)
    except ValueError as error:
        raise UnknownFormError(f"no dialect can express it: {error}") from None
    draft = try_draft(Draft(keys), [Sample(sample, [FIRST, SECOND])], tools, name)
    notes = ["The calls above are an example.", *_describe_reasoning(template)]
    return replace(draft, source="this response template", sample=sample, notes=notes, unsure=UNDESCRIBED_KEYS)


def _translate_calls(template: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the field of the calls to keys of a dialect."""
    field = _get_mapping(_get_mapping(template, "fields"), "tool_calls")
    if not field:
        raise UnknownFormError("it has no field `tool_calls`")
    openers = [*_list_patterns(field, "open")]
    closers = [*_list_patterns(field, "close")] or [""]
    arguments = _get_mapping(field, "content_args")
    content = field.get("content", "text")
    keys: dict[str, Any] = {}
    section = ""
    match content:
        case "json" if any("{name}" in opener for opener in openers):
            body = "{args}"
            match arguments.get("string_delims"):
                case [[str(token), *_], *_]:
                    keys = {"codec": "gemma", "string_token": token}
        case "json":
            body, keys = "{json}", {"json": _find_json_keys(field.get("transform"))}
            if field.get("transform_each"):
                section = "[{calls}]"
        case "xml-inline":
            body, keys = "{params}", {"param": _translate(str(arguments.get("tag_pattern", "")))}
        case "python-call-list":
            body, section, keys = "{name}({kwargs})", "[{calls}]", {"values": "python"}
        case _:
            raise UnknownFormError(f"no dialect can express the content {content!r}")
    if section:
        sections = [opener + section + closer for opener in openers for closer in closers[:1]]
        keys |= {"section": sections, "section_required": True, "separator": ", "}
        calls = [body]
    else:
        section_opener, section_closer = (_translate_section_edge(field, edge) for edge in ("open", "close"))
        if section_opener:
            keys["section"] = f"{section_opener}{{calls}}{section_closer}"
        calls = [opener + body + closer for opener in openers for closer in closers[:1]]
    return {"call": calls if len(calls) > 1 else calls[0], **keys}


def _describe_reasoning(template: Mapping[str, Any]) -> Iterator[str]:
    """Describe the tags of reasoning as a key of the model's profile."""
    for name, field in _get_mapping(template, "fields").items():
        match field:
            case {"open": str(opener), "close": str(closer)} if "reason" in name or "think" in name:
                yield f'In the profile of the model: reasoning: {{open: "{opener.strip()}", close: "{closer.strip()}"}}'


def _get_mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _list_patterns(field: Mapping[str, Any], edge: str) -> Iterator[str]:
    """List the patterns of a field's opener or closer: literal texts, or one expression."""
    literals = field.get(edge, ())
    yield from map(escape_pattern, [literals] if isinstance(literals, str) else map(str, literals))
    if isinstance(expression := field.get(f"{edge}_pattern"), str):
        yield _translate(expression)


def _translate_section_edge(field: Mapping[str, Any], edge: str) -> str:
    """Translate the opener or the closer of a section around calls; empty if there is none."""
    optional = _OPTIONAL.search(str(field.get(f"{edge}_pattern")))
    return _translate(optional[1]).strip() if optional else ""


def _translate(expression: str) -> str:
    """Translate a simple regular expression: named groups become placeholders, white space becomes a line break."""
    if len(expression) > MAX_TRANSLATED_CHARS:
        raise UnknownFormError("an expression is too long")
    pattern = ""
    at = 0
    while at < len(expression):
        element = _EXPRESSION.match(expression, at)
        if element is None:
            raise UnknownFormError(f"no pattern can express {expression!r} from {expression[at:]!r} on")
        at = element.end()
        if slot := element["group"] or element["again"]:
            pattern += f"{{{slot}}}"
        elif element["skipped"]:  # the edge of a section, or the text after a call
            continue
        elif element["space"]:
            pattern += "\n" if pattern else ""
        else:
            pattern += escape_pattern(element["escaped"] or element["literal"])
    return pattern


def _find_json_keys(transform: Any) -> dict[str, list[str]]:
    """Find the keys of name and arguments in a transform, for example `{"name": "{content.tool}", …}`."""
    keys = {"name": ["name"], "arguments": ["arguments"]}
    call = transform if isinstance(transform, dict) else {}
    members = {**call, **_get_mapping(call, "function")}
    for key in keys:
        if path := re.fullmatch(r"\{(?:content\.)?(\w+)\}", str(members.get(key))):
            keys[key] = [path[1]]
    return keys


_PLACE = "a call counts only at some places of a reply"
_TAGS = "values are tags in tags"
_OBSTACLES: Mapping[str, Mapping[Any, str]] = {
    "names": {"declared": "only calls of offered tools are markup"},
    "anchor": {"line": _PLACE},
    "section_anchor": {"message": _PLACE},
    "ends_reply": {True: _PLACE},
    "values": {"repr": "lists and objects are written as Python prints them", "nested": _TAGS, "typed": _TAGS},
    "cdata": {True: "values may be in CDATA sections"},
}
"""Values of a dialect's keys that no response template can express, with the reasons."""
_SLOT_CHARACTERS: Mapping[str, str] = {
    "name": rf"[{NAME_CHARACTERS}]+",
    "key": rf"[{KEY_CHARACTERS}]+",
    "value": ".*?",
    "id": r"[\w.:\-]*",
    "noise": r"[^\n]*?",
    **dict.fromkeys(("index", "number"), r"\d+"),
    **dict.fromkeys(("type", "string"), r"\w+"),
}


class _Region(NamedTuple):
    """The part of a reply that is one field of a response template: a call, or a list of all calls."""

    pattern: str
    section: str = "{calls}"
    """The pattern around all regions."""
    is_list: bool = False

    def split(self) -> tuple[Sequence[str | Slot], Sequence[str | Slot]]:
        """Split the pattern into the parts before and after its content."""
        parts = parse(self.pattern, "section" if self.is_list else "call")
        return split_at_slot(parts, (*BODY_SLOTS, "calls"))


def build_response_template(dialect: Description, opening_tag: str, closing_tag: str) -> dict[str, Any]:
    """Build the response template for calls as a dialect writes them, and for reasoning between two tags.

    Raises `UnknownFormError` if there is none. A reply begins at the end of the prompt, or at the tag of reasoning that
    ends the prompt. Transformers must be given the tools, because their schemas decide the types of values in tags.
    """
    for key, reasons in _OBSTACLES.items():
        if reason := reasons.get(getattr(dialect, key)):
            raise UnknownFormError(reason)
    region = _find_region(dialect)
    section_opener, section_closer = map(_make_expression, split_at_slot(parse(region.section, "section"), ["calls"]))
    calls = {**_make_edges(region, section_opener, section_closer), **_build_content(dialect, region)}
    # A stream shows a section's closer after the call has ended.
    text = {"close_pattern": _make_end(section_closer), "content": "text", "repeats": True, "join": "\n"}
    prefilled = rf"{re.escape(opening_tag)}\s*"
    return {
        "defaults": {"role": "assistant"},
        "start_anchor_pattern": rf"(?<!{prefilled})\Z|(?={prefilled}\Z)",
        "fields": {
            "reasoning_content": {"open": opening_tag, "close": closing_tag, "content": "text"},
            "tool_calls": calls,
            "content": text,
        },
    }


def _find_region(dialect: Description) -> _Region:
    call, section = dialect.calls[0], (*dialect.sections, "{calls}")[0]
    opening, _, closing = section.partition("{calls}")
    if dialect.separator == closing + opening:  # each call is in a section
        return _Region(opening + call + closing)
    if call in ("{json}", "{name}({kwargs})") and opening.rstrip().endswith("["):
        return _Region(re.sub(r"\[\s*\{calls\}\s*\]", "{calls}", section), is_list=True)
    return _Region(call, section)


def _make_edges(region: _Region, section_opener: str, section_closer: str) -> dict[str, str]:
    """Make the expressions for the opener and the closer of a region, perhaps with those of the section."""
    before, after = region.split()
    first = before[0] if before else ""
    if not isinstance(first, str) or len(marker := first.strip()) < MIN_MARKER_LENGTH:
        raise UnknownFormError("calls have no opener of their own")
    optional_opener, optional_closer = (rf"(?:{edge}\s*)?" if edge else "" for edge in (section_opener, section_closer))
    bracket = r"\s*(?=\[)" if region.is_list else ""
    closer = _make_expression(after)
    return {
        "open_pattern": rf"\s*{optional_opener}{_make_expression(before)}{bracket}",
        "close_pattern": rf"{closer}\s*{optional_closer}" if closer else f"(?={_make_end(re.escape(marker))})",
    }


def _build_content(dialect: Description, region: _Region) -> dict[str, Any]:
    """Build the keys for the content of a region."""
    names = dialect.json.name[0], dialect.json.arguments[0]
    content = {"content": "json", "repeats": True, **_make_transform("name", "content")}
    match find_body_slot(dialect.calls[0]):
        case "json" if region.is_list:
            return {"content": "json", **_make_transform(*names), "transform_each": True}
        case "kwargs" if region.is_list:
            return {"content": "python-call-list", **_make_transform("name", "arguments"), "transform_each": True}
        case "kwargs":
            raise UnknownFormError("calls as in Python are not in a list")
        case "json":
            return content | _make_transform(*(f"content.{name}" for name in names))
        case "params":
            return content | {"content": "xml-inline", "content_args": {"tag_pattern": _make_tag_pattern(dialect)}}
    if dialect.codec == "gemma":
        content["content_args"] = {"unquoted_keys": True, "string_delims": [[dialect.string_token] * 2]}
    return content


def _make_tag_pattern(dialect: Description) -> str:
    """Make the expression for a parameter; a line break at either edge of its value may be markup."""
    param = dialect.params[0]
    breaks = [r"\n?" if dialect.frame == "multiline" or edge in param else "" for edge in ("\n{value}", "{value}\n")]
    opener, closer = map(_make_expression, split_at_slot(parse(param, "param"), ["value"]))
    if len(closer) < MIN_MARKER_LENGTH:
        raise UnknownFormError("values can contain their closer")
    value, key = (_make_expression([Slot(name)]) for name in ("value", "key"))
    return opener + value.join(breaks) + closer.replace(key, "(?P=key)")


def _make_end(markup: str) -> str:
    """Make the expression for the end of a turn, or for some markup, with white space around it."""
    return rf"\s*(?:{'|'.join([*filter(None, [markup]), *map(re.escape, TURN_ENDS)])})\s*"


def _make_expression(parts: Sequence[str | Slot]) -> str:
    """Make the expression for parts of a pattern; white space is loose, and removed at the edges."""
    expressions = [
        f"(?P<{part.name}>{_SLOT_CHARACTERS[part.name]})"
        if isinstance(part, Slot)
        else re.sub(r"(?:\\?\s)+", r"\\s*", re.escape(part))
        for part in parts
    ]
    return "".join(expressions).removeprefix(r"\s*").removesuffix(r"\s*")


def _make_transform(name: str, arguments: str) -> dict[str, Any]:
    """Make the transform of a call from the names of its parts."""
    return {"transform": {"type": "function", "function": {"name": f"{{{name}}}", "arguments": f"{{{arguments}}}"}}}
