"""Tools that a client documents in its system prompt, for models that know tools only as text.

The format is that of Cline, Roo Code and Kilo Code before their native protocol, and of their derivatives:

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

A heading is a tool's only if a description and a sample of its tag follow, so prose under `## Purpose` does not count.
The line before the sample varies ("Usage:", "**Usage Example:**", "Examples:"), and some parameters appear only in the
sample. Types are described in words, if at all; otherwise a parameter is a string.

A prompt quotes arbitrary content of a user's files, so all work must be linear in its length: openers and closers are
found once (`_ElementTags`), and no expression searches past the end of a line.
"""

from __future__ import annotations

import re
from bisect import bisect, bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from itertools import pairwise
from typing import Any

import msgspec

from vtc.events import Tool

TOOL_SECTIONS = ("Tools", "Tool Use Formatting", "Tool Use Examples")
"""Titles of the sections that list the tools and the format of calls."""

MAX_PROMPT_LENGTH = 1 << 17
"""Maximum length of a part of a prompt, in characters; longer ones are not searched. The longest of real clients have a
third."""
MAX_DOCUMENTED_TOOLS = 256
"""Maximum number of tools; a text with more is probably no client's prompt."""

_HEADING_OR_RULE = re.compile(r"^(?:(?P<level>#{1,6}) ++(?P<title>\S(?:.*\S)?)|====)[ \t\r]*+$", re.MULTILINE)
"""A heading, or the rule between the chapters of a prompt."""
_FENCE = re.compile(r"[ \t]*(?P<run>`{3,}|~{3,})(?P<info>.*)", re.DOTALL)  # used with match
_TAG_LINE = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z_][\w-]*)>\s*\Z")
_ELEMENT = re.compile(r"^<[A-Za-z_][\w-]*>[ \t\r]*$", re.MULTILINE)
_OPENER = re.compile(r"<(?P<name>[A-Za-z_][\w-]*)>")
_CLOSER = re.compile(r"</(?P<name>[A-Za-z_][\w-]*)>")
_SAMPLE = re.compile(r"^[ \t]*<(?P<name>[A-Za-z_][\w-]*)>", re.MULTILINE)
_FENCE_AFTER = re.compile(r"[ \t\r]*\n[ \t]*(?:`{3,}|~{3,})[ \t\r]*$", re.MULTILINE)  # used with match
"""The closing fence of the code block around a sample, right after it."""
_NAME = re.compile(r"[A-Za-z_][\w-]{0,127}")
_DESCRIPTION = re.compile(r"\s*\**Description\**:\**[ \t]*")  # used with match
_PARAMETER_LIST = re.compile(r"^\**(?:(?P<need>Required|Optional) )?Parameters\**:\**[ \t]*(?:None\b)?", re.MULTILINE)
_PARAMETER = re.compile(
    r"^- (?P<name>[A-Za-z_][\w-]*):[ \t]*(?:\((?P<need>required|optional)\b[^)\n]*\))?[ \t]*", re.MULTILINE
)
_ANNOUNCING = re.compile(r"(?!- )[ \t]*(?:\S.*:\**|\**(?:Usage|Example)\b.*|)[ \t\r]*")
"""A line right before a sample that only announces it."""
_RULE_LINE = re.compile(
    r"^(?=.*\btool (?:use|call)s?\b)(?=.*\bXML\b)(?=.*\b(?:format|tags?)\b).*(?:\n|\Z)", re.MULTILINE | re.IGNORECASE
)
"""Another line about the format of calls ("Formulate your tool use using the XML format …")."""
_TYPES = (
    ("boolean", r"(?:an? )?bool(?:ean)?|whether|\W?true\W? or \W?false|set to \W?true"),
    ("integer", r"(?:an? )?int(?:eger)?|(?:the )?(?:1-based |starting |ending )?line number|(?:the )?number of"),
    ("number", r"(?:a )?(?:number|float)"),
    ("object", r"(?:a )?json object"),
    ("array", r"(?:a )?json (?:array|list)|an array"),
)
"""Types, by expressions for the beginning of a description."""


class Documentation(msgspec.Struct, frozen=True):
    """The tools of a system prompt, and the prompt without them and without the rules for writing calls."""

    tools: tuple[Tool, ...]
    rest: str
    unread: str = ""
    """The reason why the prompt was not searched; empty if it was."""


class _Section(msgspec.Struct, frozen=True):
    """A heading and its text, up to the next heading of its level; `start`, `body` and `end` are offsets."""

    title: str
    start: int
    body: int
    end: int


class _SampleCall(msgspec.Struct, frozen=True):
    """A sample call; `start` and `end` are its offsets, `body` and `close` those of its content."""

    name: str
    start: int
    body: int
    close: int
    end: int
    quoted: bool
    """True inside a code block."""


class _ElementTags:
    """The positions of opening and closing tags in a text, found once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._closers: defaultdict[str, list[int]] = defaultdict(list)
        for match in _CLOSER.finditer(text):
            self._closers[match["name"]].append(match.start())
        self._samples: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for match in _SAMPLE.finditer(text):
            self._samples[match["name"]].append(match.span())

    def find_closer(self, name: str, start: int, end: int) -> int:
        """Find the next closer of an element; -1 if there is none before `end`."""
        places = self._closers.get(name, [])
        place = bisect_left(places, start)
        closes = place < len(places) and places[place] + len(name) + 3 <= end
        return places[place] if closes else -1

    def find_samples(self, name: str, start: int, end: int, *, quoted: bool = False) -> list[_SampleCall]:
        """List the elements of a name at the beginning of a line, without overlaps."""
        samples: list[_SampleCall] = []
        openers = self._samples.get(name, [])
        for place in range(bisect_left(openers, (start, 0)), len(openers)):
            opener, body = openers[place]
            if opener >= end:
                break
            if opener < start:  # inside the previous one
                continue
            close = self.find_closer(name, body, end)
            if close < 0:
                break
            start = close + len(name) + 3
            fence = _FENCE_AFTER.match(self.text, start, end)
            start = fence.end() if fence else start
            samples.append(_SampleCall(name, opener, body, close, start, quoted))
        return samples


def find_documented_tools(prompt: str, tool_sections: tuple[str, ...] = TOOL_SECTIONS) -> Documentation:
    """Find the tools that `prompt`, or one part of it, documents.

    `tool_sections` are globs for the titles of sections that are removed from `rest` if they show the format of calls.
    """
    if len(prompt) > MAX_PROMPT_LENGTH:
        return Documentation((), prompt, f"is too long to be searched ({len(prompt)} characters)")
    # Step 1: Find the sections that document a tool.
    masked = _mask_samples(prompt)
    sections = list(_find_sections(masked))
    is_about_tools = re.compile("|".join(translate(glob.casefold()) for glob in tool_sections) or r"\b\B").match
    texts = (_ElementTags(masked), _ElementTags(prompt))
    candidates = [(section, _find_samples(prompt, texts, section)) for section in sections]
    documented = [(section, samples) for section, samples in candidates if samples]
    count = len({section.title for section, _ in documented})
    if count > MAX_DOCUMENTED_TOOLS:
        return Documentation((), prompt, f"documents too many tools to be read ({count})")
    # Step 2: Build the tools; some parameters appear only in samples.
    shown = _collect_sample_parameters(texts, [section.title for section, _ in documented])
    tools: dict[str, Tool] = {}
    for section, samples in documented:
        tools.setdefault(section.title, _build_tool(prompt, masked, section, samples[0], shown[section.title]))
    # Step 3: Cut the documentation from the prompt, together with the sections that explain calls.
    tool_spans = [(section.start, samples[-1].end) for section, samples in documented]
    spans = list(tool_spans)
    for section in sections:
        if is_about_tools(section.title.casefold()):
            first, end = bisect_left(tool_spans, (section.start,)), bisect_left(tool_spans, (section.end,))
            if first < end:  # text after its last tool is not about tools any more
                spans.append((section.start, max(tool_end for _, tool_end in tool_spans[first:end])))
            elif _ELEMENT.search(masked, section.body, section.end):
                spans.append((section.start, section.end))
    return Documentation(tuple(tools.values()), _RULE_LINE.sub("", _cut_spans(prompt, spans)))


def _mask_samples(prompt: str) -> str:
    """Blank out the content of code blocks and sample calls in a prompt, keeping every offset."""
    lines = prompt.split("\n")
    titles = {match["title"] for match in _HEADING_OR_RULE.finditer(prompt)}
    closers: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        fence, tag = _FENCE.match(line), _TAG_LINE.match(line)
        if fence and not fence["info"].strip():
            closers[fence["run"]].append(number)
        elif tag and tag["close"]:
            closers[tag["name"]].append(number)
    number = 0
    while number < len(lines):
        opener = ""
        if fence := _FENCE.match(lines[number]):
            opener = fence["run"]
        elif (tag := _TAG_LINE.match(lines[number])) and not tag["close"] and tag["name"] in titles:
            opener = tag["name"]
        ends = closers.get(opener, [])
        if (place := bisect(ends, number)) < len(ends):
            for inside in range(number + 1, ends[place]):
                lines[inside] = " " * len(lines[inside])
            number = ends[place]
        number += 1
    return "\n".join(lines)


def _find_sections(masked: str) -> Iterator[_Section]:
    marks = list(_HEADING_OR_RULE.finditer(masked))
    levels = [len(mark["level"] or "") for mark in marks]
    for i, mark in enumerate(marks):
        if levels[i]:
            following = (marks[j].start() for j in range(i + 1, len(marks)) if levels[j] <= levels[i])
            yield _Section(mark["title"], mark.start(), mark.end(), next(following, len(masked)))


def _find_samples(prompt: str, texts: Sequence[_ElementTags], section: _Section) -> list[_SampleCall]:
    """Find the sample calls of the tool that a section documents; none if it documents no tool."""
    described = _DESCRIPTION.match(prompt, section.body, section.end)
    if not (described and _NAME.fullmatch(section.title)):
        return []
    masked, plain = texts
    # A code block may quote anything, so it is searched only if no sample is found elsewhere.
    return masked.find_samples(section.title, described.end(), section.end) or plain.find_samples(
        section.title, described.end(), section.end, quoted=True
    )


def _collect_sample_parameters(texts: Sequence[_ElementTags], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Collect the parameters in each tool's sample calls, anywhere in the prompt, with their first value."""
    plain = texts[-1]
    shown: dict[str, dict[str, str]] = {name: {} for name in names}
    for text in texts:
        samples = [sample for name in shown for sample in text.find_samples(name, 0, len(text.text))]
        last = 0
        for sample in sorted(samples, key=lambda sample: sample.start):
            if sample.start < last:  # inside another one
                continue
            last = sample.end
            for name, value in _find_children(plain, sample.body, sample.close):
                shown[sample.name].setdefault(name, value)
    return shown


def _find_children(tags: _ElementTags, start: int, end: int) -> Iterator[tuple[str, str]]:
    """Find the elements between two positions, with their content."""
    while match := _OPENER.search(tags.text, start, end):
        start = match.end()
        close = tags.find_closer(match["name"], start, end)
        if close >= 0:
            yield match["name"], tags.text[start:close].strip()
            start = close + len(match["name"]) + 3


def _find_announcement(text: str, start: int, end: int) -> int:
    """Find the start of the lines that only announce the text at `end`; `end` if there are none."""
    while end > start and text[end - 1] == "\n":
        line = text.rfind("\n", start, end - 1) + 1 or start
        if (line and text[line - 1] != "\n") or not _ANNOUNCING.fullmatch(text, line, end - 1):
            break
        end = line
    return end


def _build_tool(prompt: str, masked: str, section: _Section, sample: _SampleCall, shown: Mapping[str, str]) -> Tool:
    """Build the tool of a section, from the text up to its first sample."""
    # Step 1: Find the end of the documentation, before the first sample.
    described = _DESCRIPTION.match(prompt, section.body)
    assert described is not None
    end = sample.start
    if sample.quoted:  # in a code block, which begins on the previous line
        end = prompt.rfind("\n", 0, end - 1) + 1
    end = _find_announcement(prompt, described.end(), end)
    # Step 2: Read the lists of parameters.
    properties: dict[str, Any] = {}
    required: list[str] = []
    lists = list(_PARAMETER_LIST.finditer(masked, described.end(), end))
    for listed, list_end in _with_ends(lists, end):
        marks = [
            mark
            for mark in _PARAMETER.finditer(masked, listed.end(), list_end)
            if mark["need"] or listed["need"] or mark["name"] in shown  # otherwise it is a list in prose
        ]
        for mark, mark_end in _with_ends(marks, list_end):
            name = mark["name"]
            properties[name] = _build_schema(prompt[mark.end() : mark_end].strip(), shown.get(name, ""))
            if (mark["need"] or listed["need"] or "").casefold() == "required":
                required.append(name)
    # Step 3: Add the parameters that appear only in samples.
    for name, value in shown.items():
        properties.setdefault(name, _build_schema("", value))
    description = prompt[described.end() : lists[0].start() if lists else end].strip()
    return Tool(section.title, description, {"type": "object", "properties": properties, "required": required})


def _with_ends(marks: Sequence[re.Match[str]], end: int) -> Iterator[tuple[re.Match[str], int]]:
    """Pair each mark with the start of the next one, or with `end`."""
    for mark, following in pairwise([*marks, None]):
        assert mark is not None
        yield mark, following.start() if following else end


def _build_schema(description: str, written: str) -> dict[str, Any]:
    kinds = (kind for kind, words in _TYPES if re.match(rf"(?:{words})\b", description, re.IGNORECASE))
    if "<" in written:
        # Elements inside a value are interpreted by the client; only the sample shows them.
        description = f"{description}\nWritten as:\n{written}".strip()
    return {"type": next(kinds, "string"), "description": description}


def _cut_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Remove spans from a text, leaving one empty line for each."""
    kept, at = [], 0
    for start, end in sorted(spans):
        if start >= at:
            kept.append(text[at:start])
        at = max(at, end)
    kept.append(text[at:])
    for i in range(len(kept) - 1):
        kept[i] = kept[i].rstrip("\r\n")
        kept[i + 1] = kept[i + 1].lstrip("\r\n")
    return "\n\n".join(filter(None, kept))
