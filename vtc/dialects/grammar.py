"""A set of dialects, compiled for reading.

Several dialects are armed at once and may share an opener: `<tool_call>` begins hermes, qwen3-coder and
others. All their heads (everything up to a call's arguments) go into one expression, so
the text that follows an opener decides which dialect it is, in one pass. Each state of the reader has one such
expression of what leaves it; `reader.py` says what happens then.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vtc.dialects import pattern
from vtc.dialects.description import Description
from vtc.dialects.names import PREFIXES
from vtc.dialects.pattern import (
    Chars,
    Group,
    Lit,
    Maybe,
    OneOf,
    Part,
    Scan,
    Slot,
    Space,
    Token,
    expecting,
    searching,
)

NAME = r"\w.:\-/"
KEY = r"^\s<>\"'=/\\"
_QUOTES = ('"', "'", '\\"', "\\'")
"""Around an attribute; escaped once too often, too."""

FENCES = (
    Token("fence", (Lit("```"), Maybe((Chars("`", 61),))), line_start=True),
    Token("tilde", (Lit("~~~"), Maybe((Chars("~", 61),))), line_start=True),
)
TICKS = Token("ticks", (Lit("`"), Maybe((Chars("`", 63),))))
BLANK_LINE = Token("blank", (Lit("\n"), Maybe((Chars(" \\t\\r", 64),)), Lit("\n")))


@dataclass(frozen=True, slots=True)
class Form:
    """One call pattern of a dialect, and the section around it if there is one."""

    dialect: Description
    call: str
    section: str = ""

    @property
    def body(self) -> str:
        return pattern.body(self.call)

    @property
    def whole_reply(self) -> bool:
        return bool(self.section) and self.dialect.section_anchor == "message"

    @property
    def whole_line(self) -> bool:
        return self.dialect.anchor == "line" and not self.section

    def head(self, tools: tuple[str, ...]) -> tuple[Part, ...]:
        before, _ = pattern.split(pattern.parse(self.call, "call"), pattern.BODIES)
        slots: dict[str, tuple[Part, ...]] = {
            "name": _names(self.dialect, tools),
            "id": (Chars(r"\w.:\-", 128, "id"),),
            "index": (Chars(r"\d", 9, "index"),),
        }
        parts = _markup(before, self.dialect, slots)
        if self.section:
            opening, _ = pattern.split(pattern.parse(self.section, "section"), ("calls",))
            parts = (*_markup(opening, self.dialect, {}), Space(), *parts)
        return _trim(parts)

    def attribute_head(self, tools: tuple[str, ...]) -> tuple[Part, ...] | None:
        """The beginning of a call with attributes, if the tool's name is the tag; up to the first value."""
        if not tools or self.section or not self.call.startswith("<{name}>"):
            return None
        attribute = (Chars(KEY, 128, "key"), Space(), Lit("="), Space(), OneOf(_QUOTES))
        return (Lit("<"), *_names(self.dialect, tools), Chars(r"\s", 16), Group(attribute, "attribute"))

    def tail(self, name: str) -> tuple[Part, ...]:
        """What must follow the arguments of a call that was written with this name."""
        _, after = pattern.split(pattern.parse(self.call, "call"), pattern.BODIES)
        slots: dict[str, tuple[Part, ...]] = {
            "name": (Lit(name),),
            "id": (Chars(r"\w.:\-", 128),),
            "index": (Chars(r"\d", 9),),
        }
        return _loose(_trim(_markup(after, self.dialect, slots)))

    def section_tail(self) -> tuple[Part, ...]:
        if not self.section:
            return ()
        _, closing = pattern.split(pattern.parse(self.section, "section"), ("calls",))
        return _trim(_markup(closing, self.dialect, {}))

    def closing_tags(self, name: str) -> list[str]:
        """The closing tags of the call and of the sections it may stand in, as they are written."""
        _, after = pattern.split(pattern.parse(self.call, "call"), pattern.BODIES)
        texts = ["".join(name if isinstance(part, Slot) else part for part in after)]
        for section in self.dialect.sections:
            _, after = pattern.split(pattern.parse(section, "section"), ("calls",))
            texts.append("".join(part for part in after if isinstance(part, str)))
        return [tag for text in texts for tag in text.split()]

    def param_opener(self, keys: tuple[str, ...]) -> re.Pattern[str]:
        """Finds the opening tag of one of these parameters; group 1 is which."""
        before, _ = pattern.split(pattern.parse(self.dialect.params[0], "param"), ("value",))
        slots: dict[str, tuple[Part, ...]] = {
            "key": (Group((OneOf(keys),), "key"),),
            "string": (OneOf(("true", "false")),),
            "type": (Chars(r"\w", 32),),
        }
        parts = _loose(_trim(_markup(before, self.dialect, slots)))
        return re.compile(pattern.whole(parts, "opener"))

    def param_closer(self, key: str) -> str:
        """The closing tag of a parameter, as it is written."""
        _, after = pattern.split(pattern.parse(self.dialect.params[0], "param"), ("value",))
        return "".join(key if isinstance(part, Slot) else part for part in after).strip()

    def param_heads(self) -> list[tuple[Part, ...]]:
        heads = []
        for text in self.dialect.params:
            before, _ = pattern.split(pattern.parse(text, "param"), ("value",))
            slots: dict[str, tuple[Part, ...]] = {
                "key": (Chars(KEY, 128, "key"),),
                "string": (OneOf(("true", "false"), "string"),),
                "type": (Chars(r"\w", 32, "type"),),
            }
            heads.append(_loose(_trim(_markup(before, self.dialect, slots))))
        return heads

    def param_tail(self, index: int, key: str) -> tuple[Part, ...]:
        _, after = pattern.split(pattern.parse(self.dialect.params[index], "param"), ("value",))
        return _loose(_trim(_markup(after, self.dialect, {"key": (Lit(key),)})))


@dataclass(frozen=True, slots=True)
class Head:
    """How a call may begin; `token` is its name in the expressions that look for it."""

    form: Form
    token: Token
    attributes: bool = False
    """The parameters follow as attributes, `<read_file path="a.py"/>`: a malformation of tag-per-tool dialects."""


class Grammar:
    """The expressions of every state for one set of dialects and one set of offered tools."""

    def __init__(
        self, dialects: Sequence[Description], tools: Iterable[str], reasoning: tuple[str, str] | None
    ) -> None:
        self.tools = tuple(tools)
        self.heads: dict[str, Head] = {}
        for dialect in dialects:
            for form in _forms(dialect):
                for parts in _variants(form, self.tools):
                    token = Token(f"h{len(self.heads)}", parts, line_start=form.whole_line)
                    self.heads[token.name] = Head(form, token)
                if tag := form.attribute_head(self.tools):
                    token = Token(f"h{len(self.heads)}", tag)
                    self.heads[token.name] = Head(form, token, attributes=True)
        anywhere = [head for head in self.heads.values() if not head.form.whole_reply]
        tokens = [head.token for head in anywhere]
        in_code = [head.token for head in anywhere if head.form.dialect.in_code == "call"]
        think = [Token("think", (Lit(reasoning[0]),))] if reasoning else []
        self.start = expecting([*think, *(h.token for h in self.heads.values() if h.form.whole_reply)])
        self.text = searching([*tokens, *FENCES, TICKS])
        self.reasoning = searching([Token("unthink", (Lit(reasoning[1]),))] if reasoning else [])
        self.span = searching([*tokens, *FENCES, TICKS, BLANK_LINE])
        self.span_end = searching([*FENCES, TICKS, BLANK_LINE])
        self._in_code = in_code
        # Bounded, as names and keys are what a model writes.
        kept = lru_cache(maxsize=256)
        self.closing_fence = kept(self._closing_fence)
        self.arguments = kept(self._arguments)
        self.value = kept(self._value)
        self.tail = kept(self._tail)
        self.after = kept(self._after)
        self.damaged = kept(self._damaged)
        self.closer = kept(self._closer)

    def _closing_fence(self, run: str) -> Scan:
        """The end of a code block that `run` opened: at least as many of the same, alone on a line."""
        more = Maybe((Chars(run[0], 64),))
        blank = Maybe((Chars(" \\t\\r", 64),))
        tokens = [*self._in_code, Token("unfence", (Lit(run), more, blank, Lit("\n")), line_start=True)]
        return searching(tokens, [Token("unfence_end", (Lit(run), more), line_start=True)])

    def _arguments(self, form: Form, name: str) -> Scan:
        """Right behind a head with {params}: a parameter, the end of a call without any, or a JSON object."""
        tokens = [Token(f"p{i}", parts) for i, parts in enumerate(form.param_heads())]
        tokens.append(Token("tail", form.tail(name)))
        tokens.append(Token("json", _opening_of_json(Lit("}"))))
        return expecting(tokens)

    def _value(self, form: Form, name: str, index: int, key: str) -> Scan:
        """In a parameter's value.

        A closer counts only where the structure allows it: before another parameter or
        the end of the call, and that end in turn only if no parameter's closer follows it.
        """
        close, tail = form.param_tail(index, key), form.tail(name)
        tokens = [Token(f"p{i}", (*close, Space(), *parts)) for i, parts in enumerate(form.param_heads())]
        tokens.append(Token("stray", (*close, Space(), *tail, Space(), *close)))
        tokens.append(Token("tail", (*close, Space(), *tail)))
        return searching(tokens, [Token("unclosed", close)])

    def _tail(self, form: Form, name: str) -> Scan:
        """Behind a JSON body: the call's closers, also with a brace too many or the fence of a code block before them;
        a closing tag of another kind; the next call; or the end of the line.
        """
        if parts := form.tail(name):
            brace, fence = Token("extra0", (Lit("}"), Space(), *parts)), Token("extra1", (Lit("```"), Space(), *parts))
            wrong = Token("wrong", (Lit("</"), Chars(r"\w:.\-", 64), Lit(">")))
            return expecting([Token("tail", parts), brace, fence, wrong, *self._numbered("m")])
        return _END_OF_LINE if form.whole_line else _NOTHING

    def _after(self, form: Form) -> Scan:
        """Behind a call: closers that may still come, and in a section its next call."""
        dialect = form.dialect
        tokens = [Token(f"o{i}", parts) for i, parts in enumerate(_closers(form))]
        if form.section and (dialect.section_required or form.whole_reply):
            inner = Form(dialect, form.call)
            heads = _variants(inner, self.tools)
            comma = dialect.separator.strip()
            if comma:
                heads = [(Lit(comma), Space(), *parts) for parts in heads] + heads
            tokens += [Token(f"next{i}", parts) for i, parts in enumerate(heads) if isinstance(parts[0], Lit)]
        return expecting(tokens)

    def _damaged(self, form: Form, name: str) -> Scan:
        """In a call whose JSON broke: its closer with another call right behind it, which only then is one."""
        closers = [parts for parts in (form.tail(name), form.section_tail()) if parts]
        pairs = itertools.product(closers, self._numbered("m"))
        return searching(
            [Token(f"d{i}", (*closer, Space(), Group(head.parts, "next"))) for i, (closer, head) in enumerate(pairs)]
        )

    def _numbered(self, name: str) -> list[Token]:
        """The heads that count anywhere, as tokens of this name."""
        heads = [head for head in self.heads.values() if not (head.form.whole_reply or head.form.whole_line)]
        return [Token(f"{name}{i}", head.token.parts) for i, head in enumerate(heads)]

    def _closer(self, form: Form, name: str) -> Scan:
        """The end of a call that is no call any more, or else of its section, wherever it stands."""
        tail = form.tail(name) or form.section_tail()
        return searching([Token("closer", tail)] if tail else [])


ATTRIBUTES_END = searching(
    [Token(f"end{i}", (Lit(quote), Space(), Maybe((Lit("/"),)), Lit(">"))) for i, quote in enumerate(_QUOTES)]
)
"""The end of a tag with attributes, if it is not inside a value."""

_END_OF_LINE = Scan(
    re.compile(r"[ \t\r]{0,256}(?:(?P<hold>\Z)|(?P<tail>(?=\n)))"), re.compile(r"[ \t\r]{0,256}(?P<tail>(?=\n)|\Z)")
)
_NOTHING = Scan(re.compile("(?P<tail>)"), re.compile("(?P<tail>)"))


@lru_cache(maxsize=256)
def compiled(
    dialects: tuple[Description, ...], tools: tuple[str, ...], reasoning: tuple[str, str] | None = None
) -> Grammar:
    """The grammar for these dialects and tool names; agents offer the same tools again and again."""
    return Grammar(dialects, tools, reasoning)


def _forms(dialect: Description) -> list[Form]:
    forms = [Form(dialect, call, section) for section in dialect.sections for call in dialect.calls]
    if not dialect.section_required:
        forms += [Form(dialect, call) for call in dialect.calls]
    return forms


def _closers(form: Form) -> list[tuple[Part, ...]]:
    """What may close behind a call: its section, if only by a stray closer, and what the call could do without."""
    dialect = form.dialect
    _, after = pattern.split(pattern.parse(form.call, "call"), pattern.BODIES)
    tail = "".join(part for part in after if isinstance(part, str))
    closers: list[tuple[Part, ...]] = [(Lit(marker),) for marker in dialect.optional if marker in tail]
    for section in [form.section] if form.whole_reply else dialect.sections:
        if form.whole_reply or dialect.section_anchor == "anywhere":
            closers.append(Form(dialect, form.call, section).section_tail())
    return closers


def _variants(form: Form, tools: tuple[str, ...]) -> list[tuple[Part, ...]]:
    """The ways a head may begin: with and without a leading optional marker, for each opening of JSON."""
    if form.dialect.names == "declared" and not tools:
        return []
    head = form.head(tools)
    heads = [head]
    if head and isinstance(head[0], Maybe):
        heads = [(*head[0].parts, *head[1:]), _trim(head[1:])]
    if form.body in ("params", "kwargs"):
        return heads
    if form.body == "json" and form.dialect.names == "declared":
        openings = _declared_envelopes(form.dialect, tools)
    else:
        openings = [_opening_of_json(Lit("}")) if form.body == "args" else _opening_of_json()]
        if form.body == "json":
            openings.append((Lit("["), Space(), *openings[0]))  # several calls where there should be one
    fence = Maybe((Lit("```"), Maybe((Lit("json"),)), Space()))  # a code block inside the tags
    return [
        (*parts, Space(), fence, Group(opening, "json")) if parts else opening
        for parts in heads
        for opening in openings
    ]


def _opening_of_json(*others: Part) -> tuple[Part, ...]:
    words = (*_QUOTES, *(part.text for part in others if isinstance(part, Lit)))
    return (Lit("{"), Space(), OneOf(words))


def _loose(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Inside a call, tags are read with stray white space in them: `< parameter = x >`."""
    found: list[Part] = []
    for part in parts:
        if not isinstance(part, Lit):
            found += [Space()] * bool(found and _ends_in(found[-1], "=")) + [part]
            continue
        for piece in re.split(r"(?<=[<=])|(?=[=>])", part.text):
            if piece:
                found += [Space()] * (piece[0] in "=>" or bool(found and _ends_in(found[-1], "<="))) + [Lit(piece)]
    return tuple(found)


def _ends_in(part: Part, characters: str) -> bool:
    return isinstance(part, Lit) and part.text[-1] in characters


def _declared_envelopes(dialect: Description, tools: tuple[str, ...]) -> list[tuple[Part, ...]]:
    """Beginnings of a JSON object that can be a call of an offered tool, and hardly anything else."""
    keys = dialect.json

    def opening(*parts: Part) -> tuple[Part, ...]:
        return (Lit("{"), Space(), Lit('"'), *parts)

    colon = (Lit('"'), Space(), Lit(":"), Space())
    return [
        opening(OneOf(keys.name), *colon, Lit('"'), *_names(dialect, tools), Lit('"')),
        opening(OneOf((*keys.arguments, "function")), *colon, Lit("{")),
        opening(Lit("type"), *colon, Lit('"function"')),
        *([opening(Lit(keys.id), *colon, Lit('"'))] if keys.id else []),
    ]


def _names(dialect: Description, tools: tuple[str, ...]) -> tuple[Part, ...]:
    if dialect.names == "any":
        return (Chars(NAME, 128, "name"),)
    return (Group((Maybe((OneOf(PREFIXES),)), OneOf(tools, any_case=True)), "name"),)


def _trim(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Without white space at either end: the states skip it themselves."""
    while parts and isinstance(parts[0], Space):
        parts = parts[1:]
    while parts and isinstance(parts[-1], Space):
        parts = parts[:-1]
    return tuple(parts)


def _markup(parts: Sequence[str | Slot], dialect: Description, slots: dict[str, tuple[Part, ...]]) -> tuple[Part, ...]:
    """Pattern text as it is read, with `slots` filled in."""
    found: list[Part] = []
    for i, part in enumerate(parts):
        if isinstance(part, Slot):
            found += slots[part.name]
            continue
        for piece in _pieces(part, dialect.optional):
            if piece in dialect.optional:
                # White space goes with the marker, so that none is eaten where the marker is missing.
                marker = _literal(piece, dialect)
                if found and isinstance(found[-1], Space):
                    found[-1:] = [Maybe((Space(), *marker))]
                else:
                    found.append(Maybe((*marker, Space())))
            else:
                # A quote that stands directly beside a slot is an attribute's, and may be of either kind.
                found += _literal(piece, dialect, quoted=(i > 0, i < len(parts) - 1))
    return tuple(found)


def _pieces(text: str, markers: Sequence[str]) -> list[str]:
    if not markers:
        return [text]
    return [piece for piece in re.split(f"({'|'.join(map(re.escape, markers))})", text) if piece]


def _literal(text: str, dialect: Description, quoted: tuple[bool, bool] = (False, False)) -> list[Part]:
    found: list[Part] = []
    for piece in re.split(r"(\s+|</?(?=[A-Za-z])|[\"'])", text):
        if not piece:
            continue
        if piece.isspace():
            if not found or not isinstance(found[-1], Space):
                found.append(Space())
        elif piece in ("<", "</") and dialect.namespaces:
            found += [Lit(piece), Maybe((OneOf(dialect.namespaces),))]
        elif piece in _QUOTES and ((quoted[1] and text.endswith(piece)) or (quoted[0] and text.startswith(piece))):
            found.append(OneOf(_QUOTES))
        elif found and isinstance(last := found[-1], Lit):
            found[-1] = Lit(last.text + piece)
        else:
            found.append(Lit(piece))
    return found
