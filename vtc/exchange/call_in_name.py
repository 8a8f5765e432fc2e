"""A call whose text upstream's parser took for its name, read in the dialects that it can be written in.

name: read<arg_key>filePath</arg_key><arg_value>/a</arg_value>     arguments: {}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.events import Call, Text

MOST = 1 << 18
"""Characters beyond which a name is not read: each opener is tried."""
_NAME = pattern.Slot("name")


def reader_of_names(dialects: Sequence[Description], reader: Callable[[], Reader]) -> Callable[[str], Call | None]:
    """Make what reads the text of a call from its name on; None if it is none.

    Without the opener dialects may differ in which line breaks are the value's own: the first of them is taken.
    """

    def read(text: str) -> Call | None:
        openers = _openers(dialects) if len(text) <= MOST else []
        found = [call for opener in openers if (call := _read(reader(), opener + text))]
        same = found and all(_meaning(call) == _meaning(found[0]) for call in found)
        return found[0] if same else None

    return read


def _read(reader: Reader, text: str) -> Call | None:
    events = reader.whole(text)
    calls = [event for event in events if isinstance(event, Call)]
    spoken = any(isinstance(event, Text) and not event.raw.isspace() for event in events)
    return calls[0] if len(calls) == 1 and not spoken else None


def _meaning(call: Call) -> tuple[str, dict[str, Any]]:
    arguments = json.loads(call.call.arguments)
    return call.call.name, {key: one.strip() if isinstance(one, str) else one for key, one in arguments.items()}


def _openers(dialects: Sequence[Description]) -> list[str]:
    """List what the dialects write before a call's name."""
    found: dict[str, None] = {}
    for dialect in dialects:
        for call in dialect.calls:
            match pattern.parse(call, "call"):
                case [str(opener), slot, *_] if slot == _NAME:
                    found[opener] = None
    return list(found)
