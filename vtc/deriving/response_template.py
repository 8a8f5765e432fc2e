"""Draft a dialect from a `response_template`, the description of replies that tokenizers of Transformers contain.

It names the fields of a reply, each with expressions for its opener and closer and the form of its content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from vtc.deriving.drafts import Draft, Sample, render_calls, try_draft
from vtc.deriving.slots import escape_pattern
from vtc.deriving.template import FIRST, SAMPLE_TOOLS, SECOND

UNDESCRIBED_KEYS = {
    "result": "a response template does not describe results",
    "prompt": "a response template does not describe the prompt",
}
MAX_TRANSLATED_CHARS = 1000
_EXPRESSION = re.compile(
    r"\(\?P<(?P<group>\w+)>(?:[^()\\\[]|\\.|\[(?:[^\]\\]|\\.)*\])*+\)"
    r"|(?P<space>(?:\\s|\\n|\n)[*+]?)|\\(?P<escaped>[^\w\s])|(?P<literal>[^\\()\[\]|*+?.^$])",
    re.DOTALL,
)
"""Matches the next element of a simple regular expression."""


class UnknownFormError(ValueError):
    """Raised if a response template has an expression or a form of content that no dialect can express."""


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
        if element["group"]:
            pattern += f"{{{element['group']}}}"
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
        if path := re.fullmatch(r"\{content\.(\w+)\}", str(members.get(key))):
            keys[key] = [path[1]]
    return keys
