"""The forms of a dialect's calls and parameters, as sequences of parts to look for in a reply.

head     everything before the arguments: the section's opener, the call's opener and the tool's name
tail     everything after the arguments
closer   a closing tag as text
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vtc.dialects.repair import is_whole_call
from vtc.dialects.syntax import pattern, tool_names
from vtc.dialects.syntax.description import WRAPPER_KEYS, Description
from vtc.dialects.syntax.markup import (
    ENCODED_TWICE,
    MAX_NAME_LENGTH,
    NAME_CHARACTERS,
    QUOTES,
    allow_attributes,
    list_envelope_openers,
    loosen_parts,
    make_json_opener,
    make_spaced_name,
    make_tool_name,
    parse_literal,
    parse_markup,
    space_attributes,
    split_spellings,
    trim_parts,
)
from vtc.dialects.syntax.pattern import AnyOf, Chars, Group, Lit, Maybe, OneOf, Part, Slot, Space, make_expression

KEY_CHARACTERS = r"^\s<>\"'=/\\"
ESCAPED_KEY_CHARACTERS = r"^\"\\"
"""Allowed characters of a key in an attribute, if quotes in it are written as entities."""
ELEMENT = "<{key}>{value}</{key}>"
_OPENING_TAG = re.compile(r"<([A-Za-z][\w:.-]*)>")
_TAG_NAME = re.compile(r"<[\w:.-]{3,}")
_TAGS = re.compile(r"(?:<[^<>]*>|\S)+")
_BETWEEN_TAGS = re.compile(r"(?<!\s)\s*\n\s*|(?<=>)\s*(?=<)")
_LAST_TAG = re.compile(r"(?<=>)\s*(<[^<>]*>)\Z")
_BRACKETS = re.compile(r"^[\])}]+(?=<[|/\w]|\[/)")
JSON_COMMENT_MARKS = ("//", "/*", "#")
"""Marks with which models begin a comment in JSON."""
CODE_FENCES = ("```", "~~~")
"""Fences of a code block."""
MIN_MARKER_LENGTH = 4
"""Minimum number of characters of a marker; a call with a shorter one is recognised by the name of its tool."""
CODE_BLOCK = Maybe((Lit("```"), Maybe((Lit("json"),)), Space()))
"""Opening fence of a code block inside the tags of a call."""


type SplitPattern = tuple[Sequence[str | Slot], Sequence[str | Slot]]
"""The parts of a pattern before and after a slot."""


def _split_call(call: str) -> SplitPattern:
    """Split the pattern of a call at its arguments."""
    return pattern.split_at_slot(pattern.parse(call, "call"), pattern.BODY_SLOTS)


def _split_section(section: str) -> SplitPattern:
    """Split the pattern of a section at its calls."""
    return pattern.split_at_slot(pattern.parse(section, "section"), ("calls",))


def _split_parameter(parameter: str) -> SplitPattern:
    """Split the pattern of a parameter at its value."""
    return pattern.split_at_slot(pattern.parse(parameter, "param"), ("value",))


@dataclass(frozen=True)
class ParameterSyntax:
    """The parameters of a dialect's calls that are written between tags."""

    dialect: Description

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """Patterns of a parameter: the dialect's, then the element that models of any family write."""
        own = self.dialect.params
        known = not own or self.dialect.names == "declared" or ELEMENT in map(str.strip, own)
        return own if known else (*own, ELEMENT)

    @property
    def shares_closer(self) -> bool:
        """True if every parameter ends with the same closing tag; False if the tag names the parameter."""
        return not any("key" in after for after in self._after_values)

    @cached_property
    def _after_values(self) -> list[list[str]]:
        """Slots after {value}, for each of the dialect's patterns of a parameter."""
        slots = []
        for text in self.dialect.params:
            _, after = _split_parameter(text)
            slots.append([part.name for part in after if isinstance(part, Slot)])
        return slots

    @cached_property
    def child_mark(self) -> str:
        """Text before each tag in a list or an object, if the dialect writes these as tags; otherwise empty."""
        return self.dialect.params[0].partition("<{key}>")[0] if self.dialect.values == "nested" else ""

    @cached_property
    def may_hold_sections(self) -> bool:
        """True if a CDATA section around a value is not part of it."""
        return self.dialect.cdata or any("{string}" in text for text in self.dialect.params[:1])

    @cached_property
    def ends_with_quote(self) -> bool:
        """True if only a quotation mark ends a value, although values contain quotation marks themselves."""
        ends = (_split_parameter(text)[1] for text in self.dialect.params[:1])
        return any("".join(map(str, end)).strip() in ("'", '"') for end in ends)

    def is_element(self, index: int) -> bool:
        """Return True for the fallback pattern `<name>`, which counts only for parameters that the tool declares."""
        return index >= len(self.dialect.params)

    def get_frame(self, index: int) -> str:
        """Return how the value is set off from its tags (`Description.frame`)."""
        return "multiline" if self.is_element(index) else self.dialect.frame

    def compile_opener(self, keys: tuple[str, ...]) -> re.Pattern[str]:
        """Compile an expression for the opening tag of one of these parameters; group 1 is its key."""
        before, _ = _split_parameter(self.dialect.params[0])
        slots = _make_parameter_slots(Group((OneOf(tuple(map(self.dialect.escape_key, keys))),), "key"))
        parts = loosen_parts(trim_parts(parse_markup(before, self.dialect, slots)))
        return re.compile(make_expression(parts, "opener"))

    def list_heads(self, key: Part | None = None) -> list[tuple[Part, ...]]:
        """List the openers of a parameter, one for each pattern: with any name, or with this `key`."""
        heads = []
        for text in self.patterns:
            before, _ = _split_parameter(text)
            slots = _make_parameter_slots(
                key or Chars(ESCAPED_KEY_CHARACTERS if self.dialect.entities else KEY_CHARACTERS, 128, "key")
            )
            if not (self.dialect.entities or before[0] == "<"):
                slots["key"] = (Space(), *slots["key"], Space()) if before[0] != Slot("key") else slots["key"]
            heads.append(allow_attributes(loosen_parts(trim_parts(parse_markup(before, self.dialect, slots)))))
        return heads

    def get_closer(self, key: str) -> str:
        """Return the closing tag of a parameter as the dialect writes it."""
        _, after = _split_parameter(self.dialect.params[0])
        return "".join(key if isinstance(part, Slot) else part for part in after).strip()

    def make_tail(self, index: int, key: str) -> tuple[Part, ...]:
        _, after = _split_parameter(self.patterns[index])
        return loosen_parts(trim_parts(parse_markup(after, self.dialect, {"key": (Lit(key),)})))

    def list_next_keys(self, body: str) -> list[str]:
        """List the parameters that open directly after a closer, declared or not; none if closers name them."""
        if not self.shares_closer:
            return []
        key = ESCAPED_KEY_CHARACTERS if self.dialect.entities else KEY_CHARACTERS
        before, _ = _split_parameter(self.dialect.params[0])
        opener = loosen_parts(
            trim_parts(parse_markup(before, self.dialect, _make_parameter_slots(Chars(key, MAX_NAME_LENGTH, "key"))))
        )
        parts = (*self.make_tail(0, ""), Space(), *opener)
        return [opening["key_next"] for opening in re.finditer(make_expression(parts, "next"), body)]

    def is_balanced(self, text: str) -> bool:
        """Return True if a text closes no parameter that it does not open."""
        closer = re.compile(make_expression(self.make_tail(0, "")))
        opener = re.compile(_make_alternation((*self.list_quoted_openers(0, ""), *self.list_quoted_elements(0, ""))))
        opened = {tag.start(): 1 for tag in opener.finditer(text) if not is_self_closing(tag[0])}
        depth = 0
        for _, step in sorted([*opened.items(), *((tag.start(), -1) for tag in closer.finditer(text))]):
            depth += step
            if depth < 0:
                return False
        return True

    def list_quoted_openers(self, index: int, key: str) -> list[tuple[Part, ...]]:
        """List the parameter openers that, inside the value of parameter `key`, pair with its closing tag.

        Openers that begin with the key itself are omitted, because they have no literal text to search for.
        """
        closer = self.make_tail(index, key)
        heads = enumerate(self.list_heads(Lit(key) if key else None))
        return [head for i, head in heads if isinstance(head[0], Lit) and self.make_tail(i, key) == closer]

    def list_quoted_elements(self, index: int, key: str) -> list[tuple[Part, ...]]:
        """List the opening tags of documents and other dialects that pair with the parameter's closing tag."""
        closer = self.make_tail(index, key)
        return _list_element_openers(trim_parts(closer[:-1])) if closer[-1:] == (Lit(">"),) else []

    def list_tag_names(self) -> list[tuple[Part, ...]]:
        """List the beginnings of parameter openers that consist of a tag's name: `<parameter`."""
        names = {tag[0] for text in self.dialect.params if (tag := _TAG_NAME.match(text))}
        return [(Lit(name),) for name in sorted(names)]

    @property
    def beginnings(self) -> list[str]:
        """Literal text at the start of a parameter's opener, for each pattern."""
        return [text.partition("{")[0].strip() for text in self.patterns]


@dataclass(frozen=True)
class CallClosers:
    """The closing tags after the arguments of a call, and those of its section."""

    dialect: Description
    call: str
    section: str
    fence: str

    def make_tail(self, name: str) -> tuple[Part, ...]:
        """Make the tail of a call of this name."""
        _, after = _split_call(self.call)
        slots: dict[str, tuple[Part, ...]] = {
            "name": (Lit(name),),
            "id": (Chars(r"\w.:\-", 128),),
            "index": (Chars(r"\d", 9),),
            "number": (Chars(r"\d", 9),),
        }
        return loosen_parts(trim_parts(parse_markup(after, self.dialect, slots)))

    def make_required_tail(self, name: str) -> tuple[Part, ...]:
        """Make the tail with at least some text in it: if all of it is optional, the optional parts are required."""
        tail = self.make_tail(name)
        if any(isinstance(part, Lit | Chars | OneOf) for part in tail):
            return tail
        return tuple(inner for part in tail for inner in (part.parts if isinstance(part, Maybe) else (part,)))

    @cached_property
    def are_optional(self) -> bool:
        """True if all of them are optional, because models often omit them."""
        return self.make_tail("") != self.make_required_tail("")

    def make_section_tail(self) -> tuple[Part, ...]:
        tail: tuple[Part, ...] = ()
        if self.section:
            _, closing = _split_section(self.section)
            tail = trim_parts(parse_markup(closing, self.dialect, {}))
        return trim_parts((*tail, Space(), Lit(self.fence))) if self.fence else tail

    def list_tags(self, name: str) -> list[str]:
        """List the closing tags of the call and of its possible sections, as the dialect writes them."""
        tags = [tag for text in self._list_texts(name) for tag in _TAGS.findall(text)]
        return [*tags, *(bare for tag in tags if (bare := _BRACKETS.sub("", tag)) != tag)]

    def list_markup(self) -> list[tuple[Part, ...]]:
        """List the closing tags of all calls and their sections one by one, except those with a name."""
        texts = self._list_texts("\0") if self.dialect.names == "any" else []
        if texts and not any(texts):
            texts = self.list_written("\0")
        if self.dialect.params and ParameterSyntax(self.dialect).shares_closer:
            texts.append(ParameterSyntax(self.dialect).get_closer(""))
        tags = [tag for text in texts for tag in _BETWEEN_TAGS.split(text.strip())]
        tags += [_BRACKETS.sub("", tag) for tag in tags]  # a list ends once, but its closers may be repeated
        known = [tag for tag in tags if len(tag) > 3 and not tag[0].isalnum() and "\0" not in tag]
        return [parts for tag in known for parts in split_spellings(trim_parts(parse_literal(tag, self.dialect)))]

    def _list_texts(self, name: str) -> list[str]:
        """List the text after the arguments, then the text after the calls of each section."""
        _, after = _split_call(self.call)
        texts = ["".join(name if isinstance(part, Slot) else part for part in after)]
        for section in self.dialect.sections:
            _, after = _split_section(section)
            texts.append("".join(part for part in after if isinstance(part, str)))
        return texts

    def list_last_tags(self, name: str) -> list[tuple[Part, ...]]:
        """List the closing tags after the first one: further ones of the call, and those of its sections."""
        return [trim_parts(parse_literal(tag, self.dialect)) for tag in self.list_tags(name)[1:]]

    def list_written(self, name: str) -> list[str]:
        """List the closing tags of a call; if it has none, the one for its opening tag, which models write anyway."""
        tag = _OPENING_TAG.match(self.call)
        return self.list_tags(name) or ([f"</{tag[1]}>"] if tag else [])

    def unslash(self, name: str) -> str:
        """Return the only closing tag without its slash, which models forget; empty if there are several tags."""
        tags = self.list_tags(name)
        return tags[0].replace("</", "<", 1) if len(tags) == 1 and tags[0].startswith("</") else ""


@dataclass(frozen=True)
class CallSyntax:
    """One call pattern of a dialect, with the section around it if there is one."""

    dialect: Description
    call: str
    section: str = ""
    fence: str = ""
    """Fence of the code block that holds the calls and is the whole reply; empty if there is none."""
    is_indented: bool = False
    """True inside indented code, in which a call counts only if no words follow it."""
    in_paragraph: bool = False
    """True if a line of text introduces the call: words on the next line then continue that text."""

    @cached_property
    def ends_reply(self) -> bool:
        """True if a call is an example when words follow it, on any line."""
        return self.is_indented or self.dialect.ends_reply

    @cached_property
    def parameters(self) -> ParameterSyntax:
        return ParameterSyntax(self.dialect)

    @cached_property
    def closers(self) -> CallClosers:
        return CallClosers(self.dialect, self.call, self.section, self.fence)

    @cached_property
    def body(self) -> str:
        """The slot of the pattern that holds the arguments: `json`, `args`, `params` or `kwargs`."""
        return pattern.find_body_slot(self.call)

    @cached_property
    def whole_reply(self) -> bool:
        """True if the calls count only if their section or code block is the whole reply."""
        return bool(self.fence) or (bool(self.section) and self.dialect.section_anchor == "message")

    @cached_property
    def has_tokens(self) -> bool:
        """True if special tokens of the dialect's models precede the arguments."""
        before = self.section.partition("{calls}")[0] + self.call.partition(f"{{{self.body}}}")[0]
        return any(token in before for token in self.dialect.tokens)

    @cached_property
    def opening(self) -> re.Pattern[str] | None:
        """Expression for the beginning of a call, with its own marker or its section's; None if it has none."""
        for section in ("", self.section):
            head = CallSyntax(self.dialect, self.call, section).make_head()
            if any(isinstance(part, Lit) and len(part.text.strip()) >= MIN_MARKER_LENGTH for part in head):
                return re.compile(make_expression(head, "opening"))
        return None

    @property
    def names_the_tag(self) -> bool:
        """True if the tag of a call is just the tool's name."""
        return self.call.startswith("<{name}>")

    @cached_property
    def repeats_name(self) -> bool:
        """True if the text after the head of a call may repeat the name of the tool."""
        _, after = _split_call(self.call)
        return self.dialect.names == "declared" or Slot("name") in after

    @property
    def lists_calls(self) -> bool:
        """True if the section is a list in brackets."""
        before, _, after = self.section.partition("{calls}")
        return before.rstrip().endswith("[") and after.lstrip().startswith("]")

    def resolve_unoffered(self, written: str, repairs: Collection[str], *, in_json: bool) -> str | None:
        """Return the name of a tool that is not offered; None if these repairs make it doubtful that this is a call."""
        is_call = self.dialect.is_framed and not self.fence and is_whole_call(repairs, in_json=in_json)
        return tool_names.resolve_unoffered(written) if is_call else None

    @property
    def whole_line(self) -> bool:
        """True if a call counts only if it is alone on its lines, without a section."""
        return self.dialect.anchor == "line" and not (self.section or self.fence)

    def make_head(self, name: str = "") -> tuple[Part, ...]:
        """Make the head. In a dialect whose tags are tools' names, it matches any tool or only this `name`."""
        before, _ = _split_call(self.call)
        slots: dict[str, tuple[Part, ...]] = {
            "name": make_spaced_name(self.dialect, name, before),
            "id": (Space(), Chars(r"\w.:\-", 128, "id"), Space()),
            "index": (Chars(r"\d", 9, "index"), Space()),
            "number": (Chars(r"\d", 9),),
            "noise": (Maybe((Chars(r"^<>{}\n", 64),)),),
        }
        parts = space_attributes(parse_markup(before, self.dialect, slots))
        if self.section:
            opening, _ = _split_section(self.section)
            parts = (*parse_markup(opening, self.dialect, {}), Space(), *parts)
        if self.fence:
            info = (Maybe((Chars(r"\w+\-", 32),)), Maybe((Chars(r" \t\r", 8),)), Lit("\n"), Space())
            return (Lit(self.fence), *info, *trim_parts(parts))
        return trim_parts(parts)

    def make_attribute_head(self) -> tuple[Part, ...] | None:
        """Make the head of a call with attributes, up to the first value; None if its tag is not the tool's name."""
        if self.dialect.names == "any" or self.section or self.fence or not self.call.startswith("<{name}>"):
            return None
        attribute = (Chars(KEY_CHARACTERS, 128, "key"), Space(), Lit("="), Space(), OneOf(QUOTES))
        return (Lit("<"), make_tool_name(self.dialect), Chars(r"\s", 16), Group(attribute, "attribute"))

    def list_following_heads(self, name: str) -> list[tuple[Part, ...]]:
        """List the openers of a call that follows another, with optional markup before them."""
        calls = [call for call in self.dialect.calls if pattern.find_body_slot(call) == "params"]
        return [trim_parts(CallSyntax(self.dialect, call).make_head(name)) for call in calls]

    def list_quoted_heads(self, name: str) -> list[tuple[Part, ...]]:
        """List the call openers that, inside a value of the call `name`, pair with its closing tag."""
        heads: list[tuple[Part, ...]] = []
        for call in self.dialect.calls:
            if pattern.find_body_slot(call) == "params":
                head = CallSyntax(self.dialect, call).make_head(name)
                if isinstance(head[0], Maybe):
                    head = trim_parts(head[1:])  # if the marker is missing, the literal text comes first
                if isinstance(head[0], Lit):
                    heads.append(head)
        return heads

    def list_quoted_wrappers(self, name: str) -> list[tuple[Part, ...]]:
        """List the opening tags of documents that pair with the closing tag of the call `name`."""
        closers = (closer for closer in self.closers.list_tags(name)[:1] if closer.endswith(">"))
        return [
            tag
            for closer in closers
            for tag in _list_element_openers(loosen_parts(parse_literal(closer[:-1], self.dialect)))
        ]

    def has_quoted_call(self, name: str, value: str) -> bool:
        """Return True if a value contains the opening tag of a call, directly followed by a parameter's."""
        call = _make_alternation((*self.list_quoted_heads(name), *self.list_quoted_wrappers(name)))
        param = _make_alternation(
            (*self.parameters.list_quoted_openers(0, ""), *self.parameters.list_quoted_elements(0, ""))
        )
        return re.search(rf"{call}\s*{param}", value) is not None


def make_result_head(dialect: Description) -> tuple[Part, ...]:
    """Return the words at the start of a result; nothing if it starts with a tag or has too few words."""
    before, _ = pattern.split_at_slot(pattern.parse(dialect.result, "result"), ("result",))
    if (
        not (before and isinstance(before[0], str) and len(before[0].strip()) > MIN_MARKER_LENGTH)
        or dialect.result_opening
    ):
        return ()
    slots: dict[str, tuple[Part, ...]] = {
        "name": (Chars(NAME_CHARACTERS, MAX_NAME_LENGTH),),
        "id": (Chars(r"\w.:\-", MAX_NAME_LENGTH),),
    }
    return trim_parts(parse_markup(before, dialect, slots))


def _list_element_openers(closer: Sequence[Part]) -> list[tuple[Part, ...]]:
    """List the opening tags that pair with a closing tag (without its bracket): `<a>`, `<a b="c">`, `<a=b>`."""
    match tuple(closer):
        case (Lit("<") as first, Space(), Lit("/"), Space(), *name):
            more = AnyOf(((Chars(r"\s", 16),), (Space(), Lit("="))))
            return [(first, *name, Maybe((more, Maybe((Chars("^<>", 256),)))), Lit(">"))]
    return []


def _make_alternation(choices: Sequence[tuple[Part, ...]]) -> str:
    """Return an expression for any of some sequences; it matches nothing if there are none."""
    return f"(?:{'|'.join(map(make_expression, choices)) or '(?!)'})"


def _make_parameter_slots(key: Part) -> dict[str, tuple[Part, ...]]:
    return {
        "key": (key,),
        "string": (OneOf(("true", "false"), "string"),),
        "type": (Chars(r"\w", 32, "type"),),
    }


def get_last_tag(opener: str) -> str:
    """Return the last tag of an opener with more than one; otherwise empty."""
    tag = _LAST_TAG.search(opener)
    return tag[1] if tag else ""


def is_self_closing(tag: str) -> bool:
    """Return True for a self-closing tag: `<parameter/>`."""
    return tag.endswith("/>")


def make_self_closing(parts: tuple[Part, ...]) -> tuple[Part, ...] | None:
    """Return the self-closing form of a call's opening tag, `<invoke name="now"/>`; None for any other head."""
    return (*parts[:-1], Lit("/>")) if parts and parts[-1] == Lit(">") else None


def list_call_syntaxes(dialect: Description) -> list[CallSyntax]:
    """List the forms of a dialect's calls: each pattern with each section, without one, and in a code block."""
    call_syntaxes = [CallSyntax(dialect, call, section) for section in dialect.sections for call in dialect.calls]
    if not dialect.section_required:
        call_syntaxes += [CallSyntax(dialect, call) for call in dialect.calls]
    # Plain calls without a section, one a line, are more likely to be shown as code than made.
    in_section = not dialect.is_json_reply and any(section.strip() != "{calls}" for section in dialect.sections)
    if dialect.fenced and (dialect.is_framed or in_section) and dialect.may_be_quoted:
        # Only the form that the dialect writes counts: any other in a code block is more likely an explanation.
        unfenced = [syntax for syntax in call_syntaxes if "```" not in syntax.section]
        written = [syntax for syntax in unfenced if syntax.call == dialect.calls[0]]
        call_syntaxes += [replace(syntax, fence=fence) for syntax in written for fence in CODE_FENCES]
    return call_syntaxes


def list_late_closers(syntax: CallSyntax) -> list[tuple[Part, ...]]:
    """List the closing tags that may follow a call: of its section (also a stray one), and optional ones."""
    dialect = syntax.dialect
    _, after = _split_call(syntax.call)
    tail = "".join(part for part in after if isinstance(part, str))
    closers: list[tuple[Part, ...]] = [(Lit(marker),) for marker in dialect.optional if marker in tail]
    for section in [syntax.section] if syntax.whole_reply else dialect.sections:
        if syntax.whole_reply or dialect.section_anchor == "anywhere":
            own = CallSyntax(dialect, syntax.call, section, syntax.fence)
            closing = own.closers.make_section_tail()
            if own.lists_calls:  # also with a surplus comma or bracket, or without its marker
                more: tuple[tuple[Part, ...], ...] = (
                    (),
                    (Lit(","), Space()),
                    (Lit("]"), Space()),
                    (Lit(","), Space(), Lit("]"), Space()),
                )
                closers += [(*before, *closing) for before in reversed(more)]
                if not syntax.whole_reply:
                    closers.append((Lit("]"),))
            else:
                closers.append(closing)
    return [closer for closer in closers if closer]


def list_head_variants(syntax: CallSyntax) -> list[tuple[Part, ...]]:
    """Return the variants of a head: with and without a leading optional marker, for each opening of JSON."""
    # Step 1: The head itself, without its optional marker and in other spellings.
    head = syntax.make_head()
    heads = [head]
    if head and isinstance(head[0], Maybe):
        heads = [(*head[0].parts, *head[1:]), trim_parts(head[1:])]
    heads = [spelled for parts in heads for spelled in split_spellings(parts)]
    if syntax.body in ("params", "kwargs"):
        return heads
    # Step 2: The openings of JSON that may follow.
    if syntax.body == "json" and syntax.dialect.names == "declared":
        openings = list_envelope_openers(syntax.dialect)
    elif syntax.dialect.codec == "gemma":
        openings = [(Lit("{"),)]
    else:
        empty = [Lit("}")] if syntax.body == "args" else []
        openings = [make_json_opener(*empty, *map(Lit, JSON_COMMENT_MARKS))]
        openings.append((Lit("{"), *make_json_opener()))
        if syntax.body == "args":
            openings.append(ENCODED_TWICE)
        keys = syntax.dialect.json
        bare = (*keys.name, *keys.arguments, *WRAPPER_KEYS, *([keys.id] if keys.id else []))
        key = Chars(r"\w.\-", MAX_NAME_LENGTH) if syntax.body == "args" else OneOf(bare)
        openings.append((Lit("{"), Space(), key, Maybe((OneOf(QUOTES),)), Space(), Lit(":")))  # a missing quote
        if syntax.body == "json":
            openings.append((Lit("["), Space(), *openings[0]))  # a list of calls in place of one
    return [
        (*parts, Space(), CODE_BLOCK, Group(opening, "json")) if parts else opening
        for parts in heads
        for opening in openings
    ]
