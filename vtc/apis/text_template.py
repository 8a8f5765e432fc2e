r"""Write text frames for a client of another API from a template that was learned from its encoder, for the fast path.

    data: {"type":"response.output_text.delta", … ,"delta":" word", … ,"sequence_number":17}
    before                                          text          between                  number, after

Two frames that an encoder writes for two texts in a row show the template: they differ only in the text and in at most
one number, a counter.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence

from msgspec.structs import replace

from vtc.apis.relay.choice import to_events
from vtc.apis.relay.writer import FrameWriter
from vtc.events import ReasoningDelta, TextDelta

_PROBE = "vtc probe"
_ENCODED_PROBE = json.dumps(_PROBE).encode()
_NUMBER = re.compile(rb"\d+")
_ESCAPED_LINE_ENDS = re.compile("[\u2028\u2029\x85]")
"""Matches characters that must be escaped, because some clients split lines at them."""


class TextTemplate:
    """Writes frames for texts that are escaped as in JSON, instead of an encoder."""

    __slots__ = ("_after", "_before", "_between", "_number")

    def __init__(self, before: bytes, between: bytes = b"", number: int | None = None, after: bytes = b"") -> None:
        """Create a template; the next frame has the `number`, if frames are counted."""
        self._before, self._between, self._number, self._after = before + b'"', b'"' + between, number, after

    def write(self, texts: Sequence[bytes]) -> bytes | None:
        """Write a frame for each text; None if the encoder has to write one of them."""
        data = texts[0] if len(texts) == 1 else b"".join(texts)
        if not data.isascii():
            try:
                if _ESCAPED_LINE_ENDS.search(data.decode()):
                    return None
            except UnicodeError:
                return None
        before, between, number, after = self._before, self._between, self._number, self._after
        if number is None:
            return b"%b%b%b" % (before, (between + before).join(texts), between)
        self._number = number + len(texts)
        return b"".join(
            [b"%b%b%b%d%b" % (before, text, between, number + place, after) for place, text in enumerate(texts)]
        )

    def advance(self, frame: bytes) -> bool:
        """Advance past a text frame that the encoder wrote; False if it no longer matches the template."""
        if self._number is None:
            return frame.startswith(self._before) and frame.endswith(self._between)
        text, mark, rest = frame.rpartition(self._between)
        number = rest.removesuffix(self._after)
        if not (mark and number.isdigit() and text.startswith(self._before) and rest.endswith(self._after)):
            return False
        self._number = int(number) + 1
        return True


def learn_template(writer: FrameWriter, delta: TextDelta | ReasoningDelta) -> TextTemplate | None:
    """Learn the template of the next text of this kind; None if frames vary in any other way."""
    trial = copy.copy(writer)
    trial.on_sent = None  # nothing is sent
    events = to_events([replace(delta, text=_PROBE)])
    frames = [trial.encode_events(events, delta.choice) for _ in range(2)]
    if [*map(len, frames)] != [1, 1]:
        return None
    (first,), (second,) = frames
    if first.count(_ENCODED_PROBE) != 1:
        return None
    before, _, rest = first.partition(_ENCODED_PROBE)
    if first == second:
        return TextTemplate(before, rest) if trial.encoder == writer.encoder else None
    counted = [
        number for number in _NUMBER.finditer(rest) if second == _count_up(first, len(first) - len(rest), number)
    ]
    if len(counted) != 1:
        return None
    start, end = counted[0].span()
    return TextTemplate(before, rest[:start], int(counted[0][0]), rest[end:])


def _count_up(frame: bytes, start: int, number: re.Match[bytes]) -> bytes:
    """Return a frame with a number increased by one."""
    return b"%b%d%b" % (frame[: start + number.start()], int(number[0]) + 1, frame[start + number.end() :])
