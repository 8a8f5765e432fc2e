r"""The raw input of a custom tool, read from the JSON of a call's arguments as it comes: `{"input": "*** Begin…"}`.

Servers that know no custom tools are told a function with one text, so they write JSON; the client gets the text.
"""

from __future__ import annotations

import json
import re

import msgspec

from vtc.apis.chain import Chain, joined
from vtc.apis.tool_calls import raw_input
from vtc.events import Tool

_BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_RUN = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4})*+'
)
"""Characters of a JSON string that are whole: none is cut in an escape, or between two that are one character."""


INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters of a custom tool: raw text."""


def freeform(name: str, description: str, grammar: object) -> Tool:
    """Tell a custom tool as a function with one text; its description says the `grammar` of that, if it has one."""
    said = f"{description}\n\nThe input follows this grammar:\n{grammar}".lstrip() if grammar else description
    return Tool(name, said, INPUT)


class RawInput(msgspec.Struct, frozen=True, gc=False):
    """The input so far."""

    said: Chain = None
    """The arguments as they came."""
    told: Chain = None
    tail: str = ""
    """The end of the arguments, which is no input yet."""
    begun: bool = False

    def more(self, arguments: str) -> tuple[RawInput, str]:
        """Go on with a piece of the arguments; return also what it adds to the input."""
        said, text, begun = (self.said, arguments), self.tail + arguments, self.begun
        if not begun:
            if (found := _BEGIN.match(text)) is None:
                return RawInput(said, self.told, text), ""
            text, begun = text[found.end() :], True
        found = _RUN.match(text)
        assert found is not None
        piece = str(json.loads(f'"{found[0]}"', strict=False))
        return RawInput(said, (self.told, piece) if piece else self.told, text[found.end() :], begun), piece

    @property
    def rest(self) -> str:
        """Return what is missing of the input; arguments that are no such object are it as they came."""
        told, whole = joined(self.told), raw_input(joined(self.said) or "{}")
        return whole[len(told) :] if whole.startswith(told) else ""
