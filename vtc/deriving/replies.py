"""Draft the dialect of a reply that no dialect reads.

The draft is based on the places of an offered tool's name, parameters and values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vtc.deriving.bodies import parse_object
from vtc.deriving.drafts import Draft, Sample, choose_draft, derive_conditions
from vtc.deriving.slots import escape_pattern
from vtc.events import Tool

MAX_NAME_PLACES = 20
"""Maximum number of occurrences of a tool's name that are tried."""
MAX_MARKUP_LINE_CHARS = 60
"""Maximum length of a line that can be markup."""
MAX_ARGUMENTS_DISTANCE = 80
"""Maximum number of characters between a name and its arguments."""
MARKUP_RUN = re.compile(r"(?:\s|<[^<>\n]*>|\[[^\[\]\n]*\]|[^\w\s./-])*")
"""Markup between a key and its value."""
MARKUP_BEFORE_KEY = re.compile(r"(?:<[^<>\n]*>[ \t]*)?(?:[<\[][^<>\[\]\n]*|[^\w\s>\])}]*)$")
"""Markup that ends before a key."""
VALUE_END = re.compile(r"\n?</[^<>\n]+>|\n?\[/[^\[\]\n]+\]|\n?<\|[^|<>\n]*\|>|[^\w\s./-]{2,}|[\"'`;,]|\n|$")
"""Finds the end of a value."""
UNSEEN_KEYS = {
    "result": "not in the reply: the form in which the model expects results",
    "prompt": "not in the reply: the prompt that shows the tools to the model, if VTC writes them into the prompt",
}
"""Keys of which a reply shows nothing, and the reason for the user."""


def draft_dialect(text: str, tools: Mapping[str, Tool], name: str) -> Draft | None:
    """Draft the dialect of a reply; None if it does not contain the name of a tool."""
    draft = choose_draft(_list_drafts(text, tools), [Sample(text)], tools, name)
    if draft is None:
        return None
    unsure = {**UNSEEN_KEYS, **draft.unsure}
    if len(draft.calls) < 2:
        unsure["call"] = "the reply has one call; the text between two calls is not known"
    return replace(draft, source="this reply", sample=text, unsure=unsure)


def _list_drafts(text: str, tools: Mapping[str, Tool]) -> Iterator[Draft]:
    names = "|".join(re.escape(name) for name in sorted(tools, key=len, reverse=True))
    places = [*re.finditer(rf"(?<![\w-])(?:{names})(?![\w-])", text)] if names else []
    for place in places[:MAX_NAME_PLACES]:
        for body in _find_call_sites(text, place.start(), place.end(), tools[place[0]]):
            for head in _list_heads(text, body.start):
                for tail in _list_tails(text, body.end):
                    call = f"{escape_pattern(head)}{body.pattern}{escape_pattern(tail)}"
                    yield Draft({"call": call, **body.keys, **derive_conditions(head)}, body.unsure)


@dataclass(frozen=True, slots=True)
class _CallSite:
    """The place of a name with its arguments, and its pattern."""

    start: int
    end: int
    pattern: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    unsure: Mapping[str, str] = field(default_factory=dict)


def _find_call_sites(text: str, start: int, end: int, tool: Tool) -> Iterator[_CallSite]:
    """Find the possible arguments of a tool's name at `text[start:end]`, in all known forms."""
    yield from _find_envelopes(text, start, tool.name)
    opened = text.find("{", end, end + MAX_ARGUMENTS_DISTANCE)
    if opened >= 0 and (found := parse_object(text, opened)):
        yield _CallSite(start, found[1], f"{{name}}{escape_pattern(text[end:opened])}{{args}}", found[2])
    if text[end : end + 1] == "(":
        closed = [match.end() for match in re.finditer(r"\)", text[end : end + 4096])]
        yield from (_CallSite(start, end + at, "{name}({kwargs})") for at in closed)
    yield from _find_tagged_parameters(text, start, end, tool)


def _find_envelopes(text: str, at: int, name: str) -> Iterator[_CallSite]:
    """Find the JSON objects that contain the name and an object of arguments."""
    for opened in [match.start() for match in re.finditer(r"\{", text[:at])][-3:]:
        found = parse_object(text, opened)
        if found is None or found[1] <= at:
            continue
        value, end, style = found
        named = [key for key, member in value.items() if member == name]
        arguments = [key for key, member in value.items() if isinstance(member, dict)]
        if named and arguments:
            keys = {"json": {"name": named[:1], "arguments": arguments[:1]}, **style}
            yield _CallSite(opened, end, "{json}", keys)


def _find_tagged_parameters(text: str, start: int, end: int, tool: Tool) -> Iterator[_CallSite]:
    """Find the tool's parameters after its name, each with its value and enclosed in the same markup."""
    # Step 1: Find the names of the parameters.
    keys = sorted(
        (
            match
            for key in tool.schema.properties
            if (match := re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text[end:]))
        ),
        key=lambda match: match.start(),
    )
    if not keys:
        return
    spans = [(end + match.start(), end + match.end()) for match in keys]
    # Step 2: Derive the markup before a name, and between a name and its value.
    between = text[end : spans[0][0]]
    line = between[between.rfind("\n") + 1 :] if "\n" in between else between
    opening = MARKUP_BEFORE_KEY.search(line)
    prefix = opening[0] if opening else ""
    after = between.removesuffix(prefix)
    run = MARKUP_RUN.match(text, spans[0][1])
    middle = run[0] if run else ""
    # Step 3: Try each possible end of a value.
    for closer, after_value in _find_closers(text, spans, middle):
        param = f"{escape_pattern(prefix)}{{key}}{escape_pattern(middle)}{{value}}{closer}"
        unsure = (
            {}
            if len(spans) > 1
            else {"param": "the reply has one parameter; the text between two parameters is not known"}
        )
        breaks = "\n" if text[after_value : after_value + 1] == "\n" and len(spans) > 1 else ""
        for line_break in dict.fromkeys([breaks, ""]):
            pattern = f"{{name}}{escape_pattern(after)}{{params}}"
            yield _CallSite(start, after_value + len(line_break), pattern, {"param": param + line_break}, unsure)


def _find_closers(text: str, spans: Sequence[tuple[int, int]], middle: str) -> Iterator[tuple[str, int]]:
    """Find possible closers of values, as patterns, each with the position after the last value's closer."""
    start, end = spans[-1]
    key = text[start:end]
    begin = end + len(middle)
    repeated = re.compile(rf"\n?[^\w\s]+{re.escape(key)}[^\w\s]*").search(text, begin)
    if repeated:
        yield escape_pattern(repeated[0]).replace(key, "{key}"), repeated.end()
    quote = middle[-1:] if middle[-1:] in ("'", '"', "`") else ""
    if quote and (closed := text.find(quote, begin)) >= 0:
        yield quote, closed + 1
    for match in [*VALUE_END.finditer(text, begin)][:4]:
        yield escape_pattern(match[0]), match.end()


def _list_heads(text: str, start: int) -> list[str]:
    """List possible openers before a call's name or object, the longest first."""
    begin = text.rfind("\n", 0, start) + 1
    line = text[begin:start]
    above = text[text.rfind("\n", 0, max(0, begin - 1)) + 1 : begin]
    last = re.search(r"\S*[^\w\s]\s*$", line)
    openers = [above + line] if _is_markup(above) else []
    openers += [line] if not line.strip() or not line.lstrip()[0].isalnum() else []
    return [*dict.fromkeys([*openers, last[0] if last else ""])]


def _list_tails(text: str, end: int) -> list[str]:
    """List possible closers after a call's arguments, the longest first."""
    closers = [""]
    at = end
    for line in text[end:].splitlines(keepends=True)[:3]:
        at += len(line)
        if not (_is_markup(line) or not line.strip()):
            first = re.match(r"[^\w\s]+", line)
            closers += [text[end : at - len(line)] + first[0]] if first else []
            break
        closers.append(text[end:at].rstrip())
    return [*dict.fromkeys(reversed(closers))]


def _is_markup(line: str) -> bool:
    plain = line.strip()
    return (
        bool(plain)
        and len(plain) <= MAX_MARKUP_LINE_CHARS
        and not plain[0].isalnum()
        and not plain[-1].isspace()
        and " " not in plain
    )
