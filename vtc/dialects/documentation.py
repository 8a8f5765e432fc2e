"""Tools that a client documents in its system prompt, for models that know tools only as text.

The shape is that of Cline, Roo Code and Kilo Code before their native protocol, and of what derives from them:

    # Tools

    ## read_file
    Description: Request to read a file. Can run over many lines.
    Parameters:
    - path: (required) The path of the file
    - start_line: (optional) Integer, the first line
    Usage:
    <read_file>
    <path>File path here</path>
    </read_file>

A heading is a tool's only if a description and a sample of its own tag follow, so prose under `## Purpose` is none.
Types are told in words at the most; where they are not, a parameter is a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from vtc.events import Tool

TOOL_SECTIONS = ("Tools", "Tool Use Formatting", "Tool Use Examples")
"""Titles of the sections that say which tools there are and how a call is written."""

_HEADING = re.compile(r"(?P<level>#{1,6}) +(?P<title>\S.*?)\s*\Z")
_RULE = re.compile(r"====\s*\Z")
_ELEMENT = re.compile(r"<(?P<tag>[A-Za-z_][\w-]*)>\s*\Z")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_NAME = re.compile(r"[A-Za-z_][\w-]{0,127}\Z")
_FIELD = re.compile(r"^(Description|Parameters|Usage):[ \t]*", re.MULTILINE)
_PARAM = re.compile(
    r"^- (?P<name>[A-Za-z_][\w-]*):[ \t]*(?:\((?P<need>required|optional)\b[^)\n]*\))?[ \t]*", re.MULTILINE
)
_TYPES = (
    ("boolean", re.compile(r"(?:an? )?bool(?:ean)?\b|whether\b|true or false\b|set to true\b", re.IGNORECASE)),
    ("integer", re.compile(r"(?:an? )?int(?:eger)?\b|the (?:1-based )?line number\b|the number of\b", re.IGNORECASE)),
    ("number", re.compile(r"(?:a )?(?:number|float)\b", re.IGNORECASE)),
    ("object", re.compile(r"(?:a )?json object\b", re.IGNORECASE)),
    ("array", re.compile(r"(?:a )?json (?:array|list)\b|an array\b", re.IGNORECASE)),
)
"""How a description begins that tells a type."""
_RULE_LINE = re.compile(r"^.*(?:\btool\b.*\bXML\b|\bXML\b.*\btool\b).*\n", re.MULTILINE | re.IGNORECASE)
"""A line elsewhere that says how calls are written ("Formulate your tool use using the XML format …")."""


@dataclass(frozen=True, slots=True)
class Documentation:
    """The tools of a system prompt, and the prompt without them and without the rules for writing calls."""

    tools: tuple[Tool, ...]
    rest: str


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading and all that follows up to the next one of its level; `start` and `end` are offsets."""

    level: int
    title: str
    start: int
    body: int
    end: int


def read(prompt: str, tool_sections: Sequence[str] = TOOL_SECTIONS) -> Documentation:
    """The tools that `prompt` documents; with none, `rest` is the prompt as it is.

    `tool_sections` are globs for the titles of sections that are left out of `rest`.
    """
    sections = list(_sections(prompt))
    found = [(section, tool) for section in sections if (tool := _tool(section, prompt)) is not None]
    if not found:
        return Documentation((), prompt)
    gone = [(section.start, section.end) for section, _ in found]
    gone += [
        (section.start, section.end)
        for section in sections
        if any(fnmatchcase(section.title.casefold(), glob.casefold()) for glob in tool_sections)
    ]
    return Documentation(tuple(tool for _, tool in found), _without(prompt, gone))


def _sections(prompt: str) -> Iterator[_Section]:
    marks: list[tuple[int, str, int, int]] = []  # level (0 for a rule), title, start, body
    at, fence, sample = 0, "", 0
    for line in prompt.splitlines(keepends=True):
        if at < sample:  # a sample call may hold anything, headings too
            pass
        elif fenced := _FENCE.match(line):
            if not fence:
                fence = fenced[1]
            elif fenced[1].startswith(fence):
                fence = ""
        elif not fence:
            if heading := _HEADING.match(line):
                marks.append((len(heading["level"]), heading["title"], at, at + len(line)))
            elif _RULE.match(line):
                marks.append((0, "", at, at + len(line)))
            elif element := _ELEMENT.match(line):
                sample = prompt.find(f"\n</{element['tag']}>", at)
        at += len(line)
    for i, (level, title, start, body) in enumerate(marks):
        if level:
            end = next((later for other, _, later, _ in marks[i + 1 :] if other <= level), len(prompt))
            yield _Section(level, title, start, body, end)


def _tool(section: _Section, prompt: str) -> Tool | None:
    """The tool that a section documents, or None."""
    name, text = section.title, prompt[section.body : section.end]
    if not _NAME.match(name):
        return None
    fields: dict[str, str] = {}
    marks = list(_FIELD.finditer(text))
    for mark, end in _with_ends(marks):
        fields.setdefault(mark[1], text[mark.end() : end].strip())
    if "Description" not in fields or f"<{name}>" not in fields.get("Usage", ""):
        return None
    return Tool(name, fields["Description"], _schema(name, fields.get("Parameters", ""), fields["Usage"]))


def _schema(name: str, listed: str, usage: str) -> dict[str, Any]:
    sample = usage.partition(f"<{name}>")[2].partition(f"</{name}>")[0]
    properties: dict[str, Any] = {}
    required: list[str] = []
    marks = list(_PARAM.finditer(listed))
    for mark, end in _with_ends(marks):
        description = listed[mark.end() : end].strip()
        written = sample.partition(f"<{mark['name']}>")[2].partition(f"</{mark['name']}>")[0].strip()
        kind = next((kind for kind, words in _TYPES if words.match(description)), "string")
        if "<" in written:
            # Elements inside a value are the client's own business; only the sample shows them.
            description = f"{description}\nWritten as:\n{written}"
        properties[mark["name"]] = {"type": kind, "description": description}
        if mark["need"] == "required":
            required.append(mark["name"])
    return {"type": "object", "properties": properties, "required": required}


def _with_ends(marks: Sequence[re.Match[str]]) -> Iterator[tuple[re.Match[str], int | None]]:
    """Each mark, and where what it opens ends: at the next one."""
    for mark, following in pairwise([*marks, None]):
        assert mark is not None
        yield mark, following.start() if following else None


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    kept, at = [], 0
    for start, end in sorted(spans):
        if start > at:
            kept.append(text[at:start])
        at = max(at, end)
    kept.append(text[at:])
    return re.sub(r"\n{3,}", "\n\n", _RULE_LINE.sub("", "".join(kept)))
