"""Whether calls that are written between tags are read back as what they are.

Values stand there raw: one may hold the very markers that would end it, or a string may look like another type. So what
is written is read, once for all calls that are alike: a text in which no markup begins has a short stand-in, because
only how it begins and ends, and whether it has several lines, can make a difference then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import dumped
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.grammar import Grammar, compiled
from vtc.events import Call, Markup, Tool, ToolCall

LONGEST = 5
"""Characters of a stand-in."""
type Search = Callable[[str], object]


class RoundTrip:
    """For calls of some tools, written in one dialect."""

    def __init__(self, dialect: Description, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self._dialect = dialect
        self._form = CallSyntax(dialect, dialect.calls[0])
        self._texts: dict[str, Mapping[str, tuple[Search, Search]]] = {}
        self._tried: dict[tuple[str, str], bool] = {}

    def survives(self, name: str, arguments: Mapping[str, Any], write: Callable[[Mapping[str, Any]], str]) -> bool:
        """Whether a call is read back with just these arguments; `write` gives its text for any."""
        short = self._shortened(name, arguments)
        alike = name, repr(short)  # in which `1`, `1.0` and `True` are three things
        if alike not in self._tried:
            self._tried[alike] = self._reads_back(write(short), name, short)
        return self._tried[alike]

    @property
    def has_failed(self) -> bool:
        """True if a call was not read back."""
        return not all(self._tried.values())

    def _shortened(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if name not in self._texts:
            self._texts[name] = self._searches(name)
        searches = self._texts[name]
        return {
            key: _stand_in(value)
            if key in searches and isinstance(value, str) and len(value) > LONGEST and _is_plain(value, *searches[key])
            else value
            for key, value in arguments.items()
        }

    def _searches(self, name: str) -> Mapping[str, tuple[Search, Search]]:
        """For those of a tool's parameters that are any text: what finds openers, and
        what finds all else that counts in a value.
        """
        schema = self.tools[name].parameters if name in self.tools else {}
        declared = values.properties(schema)
        texts = [key for key, entry in declared.items() if values.is_text(entry, schema)]
        if not texts:
            return {}
        markup = self._form.param_opener(tuple(declared))
        ends = {key: self._grammar.value(self._form, name, 0, key).while_open for key in texts}
        return {key: (markup.search, end.search) for key, end in ends.items()}

    @cached_property
    def _grammar(self) -> Grammar:
        return compiled((self._dialect,))

    def _reads_back(self, text: str, name: str, arguments: Mapping[str, Any]) -> bool:
        if self._dialect.section_required:
            text = pattern.filled(self._dialect.sections[0], "section", {"calls": text})
        reader = Reader(self._grammar, self.tools, max_call_bytes=len(text) * 8 + 8)
        match [event for event in reader.whole(text) if not isinstance(event, Markup)]:
            # As JSON `1`, `1.0` and `true` are three things.
            case [Call(call=ToolCall(name=read, arguments=written))]:
                return read == name and dumped(json.loads(written)) == dumped(arguments)
        return False


def _is_plain(text: str, markup: Search, end: Search) -> bool:
    # A carriage return and CDATA are read in ways of their own, wherever they stand.
    return not ("\r" in text or "<![CDATA[" in text or markup(text) or end(text))


def _stand_in(text: str) -> str:
    return f"{text[0]}x{'\n' * ('\n' in text)}x{text[-1]}"
