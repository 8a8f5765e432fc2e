"""Repairs of malformed calls.

They run only if the strict parse failed and the reply is complete. Each repair has a name and is small. It changes
structure and never a value: strings, numbers and keys are copied from the reply character by character. An ambiguous
call is not repaired.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from vtc.dialects.arguments import broken_gemma, broken_json, broken_kwargs, parameter
from vtc.dialects.arguments.broken_json import ExpectedObject
from vtc.dialects.arguments.gemma import GemmaBody, close_last_string
from vtc.dialects.arguments.json_object import JsonBody, escape_surrogates, render_members, split_items
from vtc.dialects.bounded_cache import BYTES_PER_PATTERN_CHARACTER, COMPILED_PATTERNS
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.forms import get_last_tag
from vtc.json_schema import ObjectSchema

MAX_CALL_ENDS = 16
"""Maximum positions that are tried as the end of a broken call."""
MAX_JSON_SEARCHES = 2
"""Maximum of these positions at which missing JSON structure is searched."""
MIN_CLOSER_LETTERS = 3
"""Letters of a closing tag's name that identify it; fewer could belong to any other tag."""


class RepairedBody(NamedTuple):
    """The objects of a repaired body as strict JSON, the repairs, and the offset at which the call ends."""

    values: list[str]
    repairs: list[str]
    end: int


def repair_json(text: str, closers: Sequence[str], expected: ExpectedObject) -> RepairedBody | None:
    """Repair a broken JSON body and return its objects as strict JSON; None if it is ambiguous.

    `text` is the text after the head of a call, and `closers` are the closing tags of its dialect. Text may follow the
    call only after a closer that cannot be inside it. An unterminated string may have ended before any closer in it.
    """
    # Step 1: Try the whole text as the body.
    body = _strip_closers(text.lstrip(), closers)
    closed = len(body) < len(text.strip())
    string_may_be_open = not any(closer in body for closer in closers) and _has_only_frame(text.lstrip()[len(body) :])
    whole = _repair_values(body, closers, expected, closed=closed, in_string=string_may_be_open)
    if whole:
        return RepairedBody(*whole, len(text))
    # Step 2: Try each closer in the text as the end of the call.
    last = len(text.rstrip())
    places = _list_closer_ends(text, closers)
    for place, end in enumerate(places[:MAX_CALL_ENDS]):
        if end == last and len(places) == 1:
            break  # step 1 tried this end
        body = _strip_closers(text[:end].lstrip(), closers)
        if len(places) == 1:
            repaired = _repair_values(body, closers, expected, closed=True, in_string=False)
        else:
            # The first of several closers may be content, so a body up to it may be incomplete.
            repaired = _parse_tolerantly(body)
            if repaired is None and place < MAX_JSON_SEARCHES:
                repaired = _search_interpretation(body, expected, closed=False)
        if repaired:
            return RepairedBody(*repaired, end)
    return None


def repair_gemma(text: str, closers: Sequence[str], quote: str, takes: ObjectSchema) -> RepairedBody | None:
    """Repair a body in Gemma's notation, if at least a part of the call's closer follows it.

    The token after the last string may be missing, or the brackets after a value that shows its own end. Any other
    tokens and commas are found by the schema of the tool.
    """
    whole = text.strip()
    body, corrupt = strip_corrupt_closers(_strip_closers(whole, closers), closers)
    notes = [Repair.CORRUPT_CLOSER] if corrupt else []
    for tried, repair in (
        (body, ""),
        (close_last_string(body, quote), Repair.JSON_MISSING_QUOTE),
        (body, Repair.JSON_CUT),
    ):
        reader = GemmaBody(quote)
        at = reader.feed(tried, 0, final=True)
        shows_its_end = not (reader.error or reader.in_string) and body.endswith(("}", "]", '"', quote))
        if repair == Repair.JSON_CUT and shows_its_end:
            reader.close()
        if reader.done and not tried[at:].strip() and body != whole:
            return RepairedBody([reader.text()], [*reader.repairs, *notes, *([repair] if repair else [])], len(text))
    ends = _list_closer_ends(text, closers)[:MAX_CALL_ENDS]
    found = broken_gemma.read_first((_strip_closers(text[:end], closers) for end in ends), takes, quote)
    return RepairedBody([found[1]], [Repair.STRING_MARKERS], ends[found[0]]) if found else None


def _list_closer_ends(text: str, closers: Sequence[str]) -> list[int]:
    """List the ends of the closing tags in a text, in order."""
    return sorted(match.end() for closer in closers for match in re.finditer(re.escape(closer), text))


def repair_kwargs(text: str, closers: Sequence[str]) -> RepairedBody | None:
    """Repair a Python call with unescaped quotes in its strings; None if it is ambiguous.

    The call must have its end: a bracket, followed only by closers of the section.
    """
    inner = _strip_closers(text, closers)
    end = len(inner) + len(text[len(inner) :]) - len(text[len(inner) :].lstrip())
    closing = _BRACKETS.match(text, end)
    read = broken_kwargs.read(inner) if closing else None
    if closing is None or read is None:
        return None
    return RepairedBody([escape_surrogates(render_members(dict(read.values)))], sorted(read.repairs), closing.end())


_BRACKETS = re.compile(r"\)+")


def _strip_closers(text: str, closers: Sequence[str]) -> str:
    """Remove the closing tags at the end of a text; return it unchanged if there are none."""
    body = text
    for _ in range(MAX_CALL_ENDS):
        ending = [closer for closer in closers if body.rstrip().endswith(closer)]
        if not ending:
            break
        body = body.rstrip()[: -len(ending[0])].rstrip()
    return body


def _repair_values(
    body: str, closers: Sequence[str], expected: ExpectedObject, *, closed: bool, in_string: bool
) -> tuple[list[str], list[str]] | None:
    """Return the values of a broken body and the repairs; `in_string` if the end of a string may be missing.

    A string is completed only before a closer, `closed` or garbled. A string in which the reply ends is incomplete.
    """
    notes: list[str] = []
    written = body
    body, corrupt = strip_corrupt_closers(body, closers)
    in_string = in_string and (closed or corrupt) and _has_only_frame(written[len(body) :])
    if corrupt:
        notes.append(Repair.CORRUPT_CLOSER)
    if (fenced := body.rstrip()).endswith("```"):
        body, notes = re.sub(r"\A```[a-z]*\s*", "", fenced.removesuffix("```").rstrip()), [*notes, Repair.CODE_FENCE]
        in_string = False  # the fence may belong to the string
    escaped = re.match(r'(?:[{\[]\s*(?:\\n\s*)*)+\\"', body) is not None
    twice = r"\\" in body
    if escaped:
        body, notes = unescape_body(body) or body, [*notes, Repair.ESCAPED_JSON]
    if body.startswith("{{") and body.rstrip().endswith("}}"):
        body, notes = _undouble_braces(body), [*notes, Repair.DOUBLED_BRACES]
    if (straight := _straighten_quotes(body)) is not None:
        body, notes = straight, [*notes, Repair.JSON_TYPOGRAPHIC_QUOTES]
    mended = _parse_tolerantly(body, closers, cut="anywhere" if in_string else "behind")
    mended = mended or _search_interpretation(body, expected, closed=closed or corrupt, listed=True)
    if mended and escaped and twice and {Repair.JSON_CONTROL_CHARACTER, Repair.JSON_BAD_ESCAPE} & {*mended[1]}:
        return None  # ambiguous: only a part is escaped
    return (mended[0], [*notes, *mended[1]]) if mended else None


def _has_only_frame(text: str) -> bool:
    """Return True if at most one line break precedes a closing tag; other white space may belong to a string."""
    return text[: len(text) - len(text.lstrip())] in ("", "\n", "\r\n")


def _undouble_braces(body: str) -> str:
    """Undo braces that are doubled as in a prompt template: only the outer ones if that is enough, otherwise all."""
    inner = body.rstrip()[1:-1]
    reader = JsonBody(lenient=False)
    reader.feed(inner, 0, final=True)
    return (
        inner
        if reader.done
        else _DOUBLED_BRACES.sub(lambda match: match[0][0] if match[0] in "{{}}" else match[0], body)
    )


def _straighten_quotes(body: str) -> str | None:
    """Replace typographic quotation marks around keys and values with straight ones; None if there are none.

    Also None if one of these strings contains such a mark, because it could end at each of them.
    """
    if not any(mark in body for mark in "“”„"):
        return None
    tokens = [*_QUOTED_TEXT.finditer(body)]
    if not any(token["typed"] is not None for token in tokens) or sum(len(token[0]) for token in tokens) < len(body):
        return None
    return "".join(token[0] if token["typed"] is None else f'"{token["typed"]}"' for token in tokens)


_QUOTED_TEXT = re.compile(
    r""""(?:[^"\\]|\\.)*+"?|[“”„](?P<typed>[^“”„"\\]*+)[“”„](?=\s*+[:,}\]])|[^“”„"]++""", re.DOTALL
)
_DOUBLED_BRACES = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|\{\{|\}\}', re.DOTALL)
"""Finds doubled braces outside strings; an unterminated string extends to the end."""


def _parse_tolerantly(
    body: str, closers: Sequence[str] = (), *, cut: Literal["", "behind", "anywhere"] = ""
) -> tuple[list[str], list[str]] | None:
    """Parse valid JSON values, and allow several of them and extra braces.

    With `cut` the last value may be incomplete: after a complete member (`behind`) or also in a string (`anywhere`).
    Only quotes and braces are added. A fragment of a closer may follow.
    """
    values: list[str] = []
    names: dict[str, None] = {}
    at = 0
    while at < len(body):
        if body[at] not in "{[":
            if not body[at:].strip(" \t\r\n,;}]"):
                if body[at:].strip(" \t\r\n,;"):
                    names[Repair.EXTRA_BRACE] = None
            elif cut and is_partial_closer(body[at:], closers):
                names[Repair.CORRUPT_CLOSER] = None
            else:
                return None
            break
        reader = JsonBody()
        at = reader.feed(body, at, final=True)
        names.update(reader.repairs)
        if not reader.done:
            rest = body[at:]
            # A string that ends in a brace either lacks its quote, or was cut off after a brace in its text.
            unsure = reader.in_string and (cut != "anywhere" or rest or body.endswith(("}", "]")))
            if not cut or unsure or (rest and not is_partial_closer(rest, closers)) or not reader.close():
                return None
            names.update({Repair.JSON_CUT: None, **({Repair.CORRUPT_CLOSER: None} if rest else {})})
            at = len(body)
        values.append(reader.text())
        gap = _GAP.match(body, at)
        at = gap.end() if gap else at
    if len(values) > 1:
        names[Repair.SEVERAL_OBJECTS] = None
    return (_flatten_arrays(values), list(names)) if values else None


_GAP = re.compile(r"[ \t\r\n,;]*")


def _search_interpretation(
    body: str, expected: ExpectedObject, *, closed: bool, listed: bool = False
) -> tuple[list[str], list[str]] | None:
    """Find the only interpretation of JSON in which commas, colons or quotes are missing; None if it is ambiguous."""
    is_json = listed or body.startswith(("{", "["))
    read = broken_json.read(body, expected, closed=closed, listed=listed) if is_json else None
    return (_flatten_arrays([read.text]), read.repairs) if read else None


def _flatten_arrays(bodies: Sequence[str]) -> list[str]:
    """Replace arrays by their items, and keep objects."""
    return [item for text in bodies for item in (split_items(text) if text.startswith("[") else [text])]


def unescape_body(text: str) -> str | None:
    r"""Unescape text that was escaped once too often (`{\"path\": \"a\"}`); None if only a part of it was."""
    return parameter.unescape_json_text(text) if "\\" in text else text


def strip_corrupt_closers(text: str, closers: Iterable[str]) -> tuple[str, bool]:
    """Remove garbled closing tags at the end of a text; return the rest, and whether there were any.

    A garbled closer has at least one bracket, since a word alone may be content: `</invo`, `/invoke>`, `invoke>`, or
    the beginning of one closer joined to the end of another, as in `invfunction_calls>`.
    """
    known = tuple(sorted(set(closers)))
    pattern, longest = COMPILED_PATTERNS.get_or_make(
        ("corrupt", known), lambda: _compile_corrupt_closer(known), _estimate_bytes
    )
    rest = text
    for _ in range(MAX_CALL_ENDS):
        ending = rest.rstrip()
        closer = pattern.search(ending, max(0, len(ending) - longest))
        if not closer:
            break
        rest = ending[: closer.start()].rstrip()
    return rest, rest != text


def _estimate_bytes(compiled: tuple[re.Pattern[str], int]) -> int:
    return len(compiled[0].pattern) * BYTES_PER_PATTERN_CHARACTER


def _compile_corrupt_closer(closers: tuple[str, ...]) -> tuple[re.Pattern[str], int]:
    """Compile a pattern for a garbled closer at the end of a text; return it and the maximum length of a match."""
    names = [name for closer in closers if (name := closer.strip("</> \n"))]
    if not names:
        return re.compile(r"(?!)"), 0
    long = [name for name in names if len(name) >= MIN_CLOSER_LETTERS]
    beginnings = {name[:n] for name in long for n in range(MIN_CLOSER_LETTERS, len(name) + 1)}
    last_parts = {name[n:] for name in long for n in range(len(name) - MIN_CLOSER_LETTERS + 1)}
    whole, first, last = _join_alternatives(names), _join_alternatives(beginnings), _join_alternatives(last_parts)
    glued = rf"(?!{whole}>){first}{last}"
    marked = _join_alternatives([name for name in long if not name[0].isalnum()])  # a special token without its slash
    ends = rf"</(?:{glued}|{first}|{whole})>?|<{marked}>|/{whole}>|(?<![\w/.-]){_join_alternatives(long)}>|{glued}>"
    pattern = re.compile(rf"(?:{ends})\Z")
    return pattern, 2 * max(map(len, names)) + len("</>")


def _join_alternatives(words: Collection[str]) -> str:
    """Return a pattern that matches any of the words; without words it matches nothing."""
    if not words:
        return "(?!)"
    return "(?:" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


def is_partial_closer(text: str, closers: Iterable[str]) -> bool:
    """Return whether text after a complete value is the beginning of a closer, or a garbled closer."""
    text = text.strip()
    begun = any(closer.startswith(text) or closer.strip("</>").startswith(text) for closer in closers)
    return begun or strip_corrupt_closers(text, closers)[0] == ""


def read_tagged(
    text: str,
    heads: re.Pattern[str],
    closers: Mapping[str, str],
    tail: Sequence[str],
    required: Iterable[str],
    openings: Sequence[str] = (),
    unclosed: Callable[[str, str, bool], str | None] = lambda _, text, __: text,
) -> tuple[dict[str, str], list[str]] | None:
    """Parse the parameters of a body whose closers are missing or wrong; None if it is ambiguous.

    `heads` matches the openers of declared parameters (group 1 is the key), which begin with one of `openings`.
    `closers` maps keys to closers, and `tail` lists the closing tags of the call. `unclosed` returns a value from the
    key, the text up to the next tag, and whether the parameter is the last; None if it is ambiguous. Every parameter
    must open exactly once (or twice in a row), all required ones must be present, and no text may be outside them.
    """
    notes: dict[str, None] = {}
    body = _strip_closers(text, tail)
    ended = body != text
    body = _restore_whitespace(body, text)  # a value may end with white space
    garbled = False
    if not ended:
        rest, garbled = strip_corrupt_closers(body, tail)
        body = _restore_whitespace(rest, body) if garbled else body
        notes.update({Repair.CORRUPT_CLOSER: None} if garbled else {})
    openers = _find_openers(heads, body, closers)
    if not openers or body[: next(iter(openers.values())).start].strip() or set(required) - {*openers}:
        return None
    values: dict[str, str] = {}
    for (key, opener), following in zip(openers.items(), [*[*openers.values()][1:], None], strict=True):
        piece = body[opener.end : following.start if following else None]
        closer = closers[key]
        value, note = _split_value(piece, closer, [] if following else tail, openings)
        if note == Repair.MISSING_PARAMETER_CLOSER:
            # The last parameter is complete only if the end of the call follows it.
            value = unclosed(key, piece, not following) if following or ended or garbled else None
            if not following and garbled and value != piece:
                return None  # the garbled tag may belong to the parameter
        if value is None:
            return None
        if opener.doubled:
            if closer in value:
                return None  # the second opener may belong to the value
            notes[Repair.DOUBLED_OPENER] = None
        if note:
            notes[note] = None
        values[key] = value
    return values, list(notes)


class _ParameterOpener(NamedTuple):
    """The opening tag of a parameter; `doubled` if it is written twice."""

    start: int
    end: int
    doubled: bool = False


def _find_openers(heads: re.Pattern[str], body: str, closers: Mapping[str, str]) -> dict[str, _ParameterOpener] | None:
    """Find the openers of parameters; None if a parameter opens twice.

    An opener whose last tag is repeated counts once, and an opener inside its own value is a word.
    """
    openers: dict[str, _ParameterOpener] = {}
    last, closes = None, -1
    for head in heads.finditer(body):
        key, start, end = head[1], head.start(), head.end()
        if last and (start < openers[last].end or (key == last and not 0 <= closes < start)):
            continue
        if key in openers:
            return None
        twice = re.compile(
            rf"\s*{_join_alternatives([*filter(None, (head[0], get_last_tag(head[0])))])}"
        )  # used with match
        while again := twice.match(body, end):
            end = again.end()
        openers[key] = _ParameterOpener(start, end, end > head.end())
        last, closes = key, body.find(closers[key], end)
    return openers


def _split_value(piece: str, closer: str, tail: Sequence[str], openings: Sequence[str]) -> tuple[str | None, str]:
    """Split a parameter's value from its closer; return it and the repair. The value is None if text follows.

    The last parameter may be followed by a fragment of `tail`, the closing tags of the call.
    """
    before, closed, after = piece.rpartition(closer)
    if closed:
        if not after.strip():
            return before, ""
        if any(opening.startswith(after.strip()) for opening in openings):
            return None, ""  # another parameter may begin here
        if tail and (is_partial_closer(after, tail) or _TAG.fullmatch(after.strip())):
            return before, Repair.CORRUPT_CLOSER
        return None, ""
    value, corrupt = strip_corrupt_closers(piece, [closer])
    if corrupt:
        return _restore_whitespace(value, piece), Repair.CORRUPT_PARAMETER_CLOSER
    mark = closer[: closer.find("</")] if "</" in closer else ""
    before, bracket, tag = piece.rstrip().rpartition(f"{mark}<")
    if bracket and _TAG.fullmatch(f"<{tag}"):
        if f"{mark}<{tag.strip('/>')}>" in before:
            return None, ""  # the tag closes an element of the value
        return before, Repair.WRONG_PARAMETER_CLOSER
    if _PARTIAL_TAG.search(piece.rstrip()):
        return None, ""  # a partial tag may be content
    return piece, Repair.MISSING_PARAMETER_CLOSER


_PARTIAL_TAG = re.compile(r"</?[\w:.-]{0,64}\Z")
_TAG = re.compile(r"</?[\w:.｜-]{1,64}>")


def _restore_whitespace(value: str, piece: str) -> str:
    """Append the white space that follows `value` in `piece`."""
    rest = piece[len(value) :]
    return value + rest[: len(rest) - len(rest.lstrip())]


# Signs that the reply was cut off, although its finish reason does not say so:
#
# {"command": "ls", "timeout": 1        within a number, for example 1200
# {"command": "ls", "time               within a name
# {"name": "typed", "arguments": {      before the arguments


_CUT_OFF = re.compile(r"[-+.\w]\Z|[{\[,:]\s*\Z")
"""The end of incomplete JSON: a word without white space or bracket after it, or a mark without a value after it."""
_JSON_FRAME = "[]{}(), "


def list_json_closers(body: str, closers: Sequence[str]) -> Sequence[str] | None:
    """List the closing tags that may follow an incomplete JSON body; None if the body was cut off.

    If the whole text is JSON that ends too early, none of its brackets closes the section.
    """
    reader = JsonBody()
    at = reader.feed(body, 0, final=True)
    if reader.done:
        return closers
    if not reader.error:
        closers = [closer for closer in closers if closer.strip(_JSON_FRAME)]
    if reader.in_string or any(closer in body for closer in closers) or strip_corrupt_closers(body, closers)[1]:
        return closers  # it ends at the closer, or in a string, which other checks handle
    stump, behind = body[at:].strip(), body[:at].rstrip()
    if behind.endswith(('"', "}", "]")) and len(stump) >= MIN_CLOSER_LETTERS and is_partial_closer(stump, closers):
        return closers  # the stump is a closer, because no name begins after a value
    return None if _CUT_OFF.search(body) else closers
