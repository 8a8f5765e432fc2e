"""Translate the part of a Go template that writes calls to Jinja (Ollama, docs/template.md).

    {{ if .ToolCalls }}<calls>{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", …}{{ end }}</calls>{{ end }}

Other parts of the template decide what a prompt contains, and are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

CALLS = ".ToolCalls"
MESSAGES = "{%% for message in messages %%}{{ message.role }}: {{ message.content }}%s\n{%% endfor %%}"
"""A template of messages, with a place for their calls."""
_ACTION = re.compile(r'\{\{(?P<code>-?\s?"(?:[^"\\]|\\.){0,99}+"\s?-?|[^{}]*+)\}\}')
_RANGE = re.compile(r"range (?:(?P<index>\$\w+), *(?P<call>\$\w+) *:= *)?\$?[.\w]*\.ToolCalls")
_VALUES = {
    ".Function.Name": "{{ call.function.name }}",
    ".Function.Arguments": "{{ call.function.arguments | tojson }}",
    ".Function.Index": "{{ loop.index0 }}",
    ".ID": "{{ call.id }}",
}
"""Expressions about a call in Go, and in Jinja."""


class GoToken(NamedTuple):
    """A text or an action of a Go template."""

    text: str = ""
    code: str = ""

    @property
    def is_opening(self) -> bool:
        return self.code.startswith(("if ", "range ", "with ", "define ", "block "))

    @property
    def is_closing(self) -> bool:
        return self.code == "end"


def translate_go_template(source: str) -> str:
    """Translate the part of a Go template that writes calls; empty if it writes none, or in an unknown way."""
    tokens = [*_split_tokens(source)]
    at = next((at for at, token in enumerate(tokens) if _RANGE.fullmatch(token.code)), None)
    if at is None:
        return ""
    # The range may be inside of a branch whose text is written once.
    end, start = _find_end(tokens, at + 1), _find_start(tokens, at - 1)
    parts = [tokens[at : end + 1]]
    if start >= 0 and CALLS in tokens[start].code:
        parts.insert(0, tokens[start + 1 : _find_end(tokens, end + 1)])
    written = next((texts for part in parts if None not in (texts := [*_translate(part)])), ())
    calls = "".join(filter(None, written))
    return MESSAGES % f"{{% if message.tool_calls %}}{calls}{{% endif %}}" if calls else ""


def _find_end(tokens: Sequence[GoToken], at: int) -> int:
    """Find the `end` or `else` of the branch that a token is in, from this token on."""
    depth = 0
    for place in range(at, len(tokens)):
        if not depth and tokens[place].code.startswith(("end", "else")):
            return place
        depth += tokens[place].is_opening - tokens[place].is_closing
    return len(tokens)


def _find_start(tokens: Sequence[GoToken], at: int) -> int:
    """Find the start of the branch that a token is in, from this token back; -1 if it is in none."""
    depth = 0
    for place in range(at, -1, -1):
        if not depth and (tokens[place].is_opening or tokens[place].code.startswith("else")):
            return place
        depth += tokens[place].is_closing - tokens[place].is_opening
    return -1


def _split_tokens(source: str) -> Iterator[GoToken]:
    """Split a template into texts and actions; a dash in an action removes the white space next to it."""
    at, is_trimmed = 0, False
    for action in _ACTION.finditer(source):
        text = source[at : action.start()]
        text = text.lstrip() if is_trimmed else text
        yield GoToken(text.rstrip() if action["code"].startswith("-") else text)
        yield GoToken(code=action["code"].removeprefix("-").removesuffix("-").strip())
        at, is_trimmed = action.end(), action["code"].endswith("-")
    yield GoToken(source[at:].lstrip() if is_trimmed else source[at:])


def _translate(tokens: Sequence[GoToken]) -> Iterator[str | None]:
    """Translate tokens; yield None for an action that is unknown."""
    index = call = ""
    for token in tokens:
        if not token.code:
            yield f"{{{{ {json.dumps(token.text)} }}}}" if token.text else ""
        elif opening := _RANGE.fullmatch(token.code):
            index, call = opening["index"] or "", opening["call"] or ""
            yield "{% for call in message.tool_calls %}"
        elif token.code == "end":
            yield "{% endfor %}"
        elif token.code.startswith('"'):
            yield f"{{{{ {token.code} }}}}"
        elif index and token.code == index:
            yield "{{ loop.index0 }}"
        else:
            yield _VALUES.get(token.code.removeprefix("json ").removeprefix(call))
