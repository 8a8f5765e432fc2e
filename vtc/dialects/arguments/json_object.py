"""Parse a JSON value in a stream: find its end, and render it as strict JSON.

No marker is searched for: `</tool_call>` inside a string is content, because only the JSON grammar defines the end of a
value. The grammar is the table `JSON_GRAMMAR`; a missing entry is an error. Unambiguous faults (a raw newline in a
string, a trailing comma, a Python literal) are repaired and recorded in `repairs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from vtc.dialects.repair import Repair

MAX_JSON_DEPTH = 256
"""Maximum nesting, so that hostile text cannot overflow a stack later."""

# State -> token -> next state. `end` closes an object or an array; `done` is replaced by the state of the enclosing
# container.
JSON_GRAMMAR: dict[str, dict[str, str]] = {
    "value": {'"': "done", "word": "done", "{": "first key", "[": "first item"},
    "first item": {'"': "done", "word": "done", "{": "first key", "[": "first item", "]": "end"},
    "next item": {'"': "done", "word": "done", "{": "first key", "[": "first item", "]": "end"},
    "first key": {'"': "colon", "}": "end", "{": "first key"},
    "next key": {'"': "colon", "}": "end"},
    "colon": {":": "value"},
    "comma in {": {",": "next key", "}": "end"},
    "comma in [": {",": "next item", "]": "end"},
    "second brace": {"}": "end"},
}
DOUBLED = "{{"
"""Opener of an object with doubled braces, as in a prompt template."""
LITERALS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}

_TOKEN = re.compile(r"""\s*(?:(?P<mark>[{}\[\],:"])|(?P<word>[-+.\w]{1,400})|(?P<end>\Z)|(?P<other>.))""", re.DOTALL)
JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?\Z", re.ASCII)  # used with match
_AFTER_RUN = (
    r"""|(?P<close>")|(?P<escape>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))"""
    r"""|(?P<partial>\\(?:u[0-9a-fA-F]{0,3})?\Z)|(?P<bad>\\)|(?P<control>[\x00-\x1f]+)"""
)
_IN_STRING = re.compile(r"""(?P<run>(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))++)""" + _AFTER_RUN)
_IN_PATH = re.compile(r"""(?P<run>[^"\\\x00-\x1f]+)""" + _AFTER_RUN)
"""Inside a path, each escape is matched alone, because it may be part of the path."""
MAX_PATH_LENGTH = 260
"""Maximum length of a Windows path, in characters."""
_PATH = re.compile(  # for at most 260 characters
    r"(?:^|[\s'=(,;])[A-Za-z]:((?:\\(?:u....|.)|[^\s\\'])*)\Z"
)
_ESCAPE = re.compile(r"(?<!\\)\\([nrtbf])")
_WHITE = re.compile(r"\s")
dump_json = json.JSONEncoder(ensure_ascii=False).encode
"""Encode a value as JSON text, without escaping non-ASCII characters."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_ARRAY_DECODER = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


def escape_surrogates(text: str) -> str:
    """Escape the halves of surrogate pairs in JSON text.

    They may arrive in two frames of the stream; as escapes they form one character again.
    """
    return text if text.isascii() else _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def split_items(text: str) -> list[str]:
    """Return the items of a strict JSON array as JSON text, unchanged. Raises ValueError for anything else."""
    try:
        return [bytes(item).decode() for item in _ARRAY_DECODER.decode(text)]
    except (msgspec.DecodeError, UnicodeError):
        return [json.dumps(item, allow_nan=False) for item in _load_kind(text, list)]


def split_members(text: str) -> dict[str, str]:
    """Return the members of a strict JSON object as JSON text, unchanged. Raises ValueError for anything else."""
    try:
        return {key: bytes(value).decode() for key, value in _OBJECT_DECODER.decode(text).items()}
    except (msgspec.DecodeError, UnicodeError):
        return {key: json.dumps(value, allow_nan=False) for key, value in _load_kind(text, dict).items()}


def load_json(text: str) -> Any:
    """Parse JSON like `json.loads`, but faster. Raises ValueError and RecursionError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(text)  # accepts half of a surrogate pair, and NaN


class DuplicateKeyError(ValueError):
    """An object has a key twice, with different values."""


def load_unique_keys(text: str) -> Any:
    """Parse strict JSON. Raises `DuplicateKeyError`."""
    return json.loads(text, object_pairs_hook=reject_duplicate_keys)


def render_members(members: Mapping[str, str]) -> str:
    """Render an object whose values are JSON text."""
    return f"{{{', '.join(f'{dump_json(key)}: {value}' for key, value in members.items())}}}"


def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from its members, as a hook for `json.loads`. Raises `DuplicateKeyError`."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        for key, value in pairs:
            if value != entries[key]:
                raise DuplicateKeyError(f"{key!r} is given twice")
    return entries


def _load_kind[T](text: str, kind: type[T]) -> T:
    value = load_json(text)
    if not isinstance(value, kind):
        raise ValueError(f"the JSON is not a {kind.__name__}")
    return value


class JsonBody:
    """A parser of one JSON object or array that arrives in pieces, with repairs if it is lenient."""

    def __init__(self, *, lenient: bool = True) -> None:
        self.lenient = lenient
        self.done = False
        self.error = ""
        self.repairs: dict[str, None] = {}
        self._expect = "value"
        self._containers: list[str] = []
        self.in_string = False
        """True if the text so far ends inside a string."""
        self._out: list[str] = []
        self._string_start = 0  # index in `_out` of the start of the string
        self._taken = 0  # number of pieces of `_out` that were taken
        self._in_path = False

    def text(self) -> str:
        """Return the value as strict JSON (once `done`)."""
        return escape_surrogates("".join(self._out))

    def take(self) -> list[str]:
        """Return the tokens of strict JSON since the last call, except those that more text may still change.

        A string consists of its quotes, and pieces between them.
        """
        new = self._out[self._taken :]
        if self.in_string and any("\\" in piece for piece in new) and self._find_path()[1]:
            return []
        self._taken = len(self._out)
        return new

    def discard(self) -> None:
        """Discard the text so far, because only the end of the value is needed."""
        self._out.clear()
        self._taken = 0

    def close(self) -> bool:
        """Close everything that is open, if the text was cut off in or after a value; otherwise return False.

        In a string without content, the text was cut off before the value.
        """
        if self.in_string and self._expect.startswith("comma") and self._out[-1] != '"':
            self.in_string = False
            self._out.append('"')
        if self.in_string or not self._expect.startswith(("comma", "first")):
            return False
        self._out += ["]" if opened == "[" else "}" for opened in reversed(self._containers)]
        self._containers.clear()
        self.done = True
        return True

    def feed(self, text: str, at: int, *, final: bool = False) -> int:
        """Parse `text` from `at` on; return the end of the parsed part.

        This is after the value if `done`, at the fault if `error` is set, and otherwise before an incomplete token
        (half an escape, a number that may continue); feed that again with more text after it.
        """
        while not self.done and not self.error and at < len(text):
            here = at
            at = self._feed_string(text, at) if self.in_string else self._feed_structure(text, at, final)
            if at == here and not self.error:
                break
        return at

    def write(self, escaped: str) -> None:
        """Append to the open string."""
        self._append(escaped)

    def _feed_string(self, text: str, at: int) -> int:
        match = (_IN_PATH if self._in_path else _IN_STRING).match(text, at)
        assert match is not None
        kind, piece = match.lastgroup, match[0]
        if kind == "partial":
            return at
        if kind == "close":
            self.in_string = False
            self.done = self._expect == "done"
        elif kind == "bad":
            # `\'` is an escape in Python and JavaScript; any other backslash was not escaped.
            if text.startswith("'", at + 1):
                return at + 2 if self._repair_with(Repair.JSON_BAD_ESCAPE, "'") else at
            self._in_path = self._in_path or self._escape_path()
            return at + 1 if self._repair_with(Repair.JSON_BAD_ESCAPE, "\\\\") else at
        elif kind == "escape" and self._in_path and piece[1] not in '\\"/':
            piece = "\\" + piece
        elif kind == "control":
            escaped = "".join(f"\\u{ord(char):04x}" for char in piece)
            return match.end() if self._repair_with(Repair.JSON_CONTROL_CHARACTER, escaped) else at
        self._append(piece)
        return match.end()

    def _append(self, text: str) -> None:
        self._in_path = self._in_path and not _WHITE.search(text)
        self._out.append(text)

    def _escape_path(self) -> bool:
        """Double the backslashes of a Windows path at the end of the string; return False if there is none.

        One bad escape shows that the model does not escape: `C:\\new\\Users` contains no line break.
        """
        start, path = self._find_path()
        if path:
            written = path.string[: path.start(1)] + _ESCAPE.sub(r"\\\\\1", path[1])
            taken = len("".join(self._out[start : self._taken]))
            self._taken = min(self._taken, start + 1)
            self._out[start:] = [written[:taken], written[taken:]]
        return path is not None

    def _find_path(self) -> tuple[int, re.Match[str] | None]:
        """Find a Windows path at the end of the string; also return the index of the first piece searched."""
        start = max(self._string_start, len(self._out) - MAX_PATH_LENGTH)
        text = "".join(self._out[start:])
        return start, _PATH.search(text, max(0, len(text) - MAX_PATH_LENGTH))

    def _feed_structure(self, text: str, at: int, final: bool) -> int:
        # Step 1: Match a token; a word at the end of the text may continue.
        match = _TOKEN.match(text, at)
        assert match is not None
        kind = match.lastgroup
        if kind == "end":
            return match.end()
        at = match.start(kind or 0)
        if kind == "word":
            if match.end() == len(text) and not final:
                return at
            token, piece = "word", self._parse_word(match["word"])
        else:
            token = piece = match[kind or 0]
        # Step 2: Look up the next state; the braces of an object may be doubled.
        state = JSON_GRAMMAR[self._expect].get(token)
        if self._expect == "first key" and token == "{":
            if self._containers[-1] != DOUBLED and self._record_repair(Repair.DOUBLED_BRACES):
                self._containers[-1] = DOUBLED
                return match.end()
            state = None
        if state is None or not piece:
            shown = "a word" if kind == "word" else repr(piece)  # a word may be a value, so it is not shown
            self.error = self.error or f"{shown} where JSON expects {self._expect.split(' in')[0]}"
            return at
        # Step 3: Write the token, with the comma that precedes it.
        if state == "end":
            if self._expect.startswith("next") and not self._record_repair(Repair.JSON_TRAILING_COMMA):
                return at
            if self._containers[-1] == DOUBLED:
                self._containers[-1], self._expect = "{", "second brace"
                return match.end()
        elif self._expect.startswith("next"):
            self._out.append(",")  # written only now, so that a trailing comma never is
        if token != ",":
            self._out.append(piece)
        self.in_string = token == '"'
        if self.in_string:
            self._string_start, self._in_path = len(self._out), False
        # Step 4: Enter or leave a container.
        if state in ("first key", "first item"):
            self._containers.append(token)
            if len(self._containers) > MAX_JSON_DEPTH:
                self.error = f"nested more than {MAX_JSON_DEPTH} deep"
        elif state == "end":
            self._containers.pop()
            state = "done"
        if state == "done":
            self.done = not (self._containers or self.in_string)
            state = f"comma in {self._containers[-1][0]}" if self._containers else "done"
        self._expect = state
        return match.end()

    def _parse_word(self, word: str) -> str:
        if JSON_NUMBER.match(word):
            return word
        literal = LITERALS.get(word, "")
        if literal and literal != word and not self._record_repair(Repair.JSON_PYTHON_LITERAL):
            return ""
        return literal

    def _repair_with(self, repair: Repair, text: str) -> bool:
        if self._record_repair(repair):
            self._out.append(text)
        return not self.error

    def _record_repair(self, repair: Repair) -> bool:
        if self.lenient:
            self.repairs[str(repair)] = None
        else:
            self.error = f"{repair.removeprefix('json-').replace('-', ' ')} in JSON"
        return self.lenient
