"""How frames look that are alike but for a few values: an expression, found out by decoding one with other values.

A value is a hole if it makes no difference to the decoder what stands there.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from vtc.apis.base import Decoder
from vtc.dialects.bounded_cache import COMPILED, PER_CHARACTER
from vtc.dialects.reading.reader import PlainRule
from vtc.events import Delta, ReasoningDelta, TextDelta
from vtc.exchange import endings
from vtc.exchange.text_reading import ANYTHING
from vtc.wire.framing import Frame

MOST_LEARNED = 1 << 14
"""Bytes of a frame beyond which it is not learned from."""
PER_SHAPE = 1 << 10
"""Characters that stand for the holes of a shape, as its size is counted."""
_PROBE = "vtc probe"

TEXT = 2
"""The number of the group `text`."""
ODD = 3
"""The number of the group that stands where a text goes on as the beginning of a line of code or a quotation does."""

type Match = Callable[[bytes], re.Match[bytes] | None]


class Shape:
    """How frames look that are alike; `match` takes those whose texts are plain by `rule`."""

    __slots__ = ("_expression", "match", "of_any_text", "rule")

    def __init__(self, expression: bytes) -> None:
        self._expression = expression
        self.rule = ANYTHING
        self.match = self.of_any_text = _compiled(expression, ANYTHING)

    def of_plain_text(self, rule: PlainRule) -> None:
        """Take only texts that are plain by this rule."""
        self.rule, self.match = rule, _compiled(self._expression, rule)


def expression_of(decoder: Decoder, frame: Frame, delta: TextDelta | ReasoningDelta) -> bytes | None:
    """Write the expression for frames like this one, with `TEXT` for its text; None if there is none.

    A value is a hole if the codec decodes the frame to the same with another value in its place.
    """
    data, raw = frame.data, frame.raw
    if data is None or len(raw) > MOST_LEARNED or not raw.endswith(decoder.framing.end) or b"\r" in raw:
        return None
    before, _, after = raw.partition(data)

    def decoded(tokens: Sequence[bytes]) -> tuple[Sequence[Delta], Sequence[Any]] | None:
        data = b"".join(tokens)
        made, trial = Frame(before + data + after, data), copy.copy(decoder)
        found = trial.decode(made)
        if found is None or found.frame is not None or trial != decoder:
            return None
        # The values of what stands beside the text make no difference.
        return found.deltas, [(type(one), getattr(one, "kind", "")) for one in found.beside]

    tokens = [token[0] for token in _TOKEN.finditer(data)]
    other = msgspec.structs.replace(delta, text=_PROBE)
    if isinstance(other, ReasoningDelta) and other.own and other.own.value == delta.text:
        other = msgspec.structs.replace(other, own=msgspec.structs.replace(other.own, value=_PROBE))
    said = [place for place in _values(tokens) if _string(tokens[place]) == delta.text]
    probe = json.dumps(_PROBE).encode()
    for text in said:
        asked = decoded([*tokens[:text], probe, *tokens[text + 1 :]])
        if asked and asked[0] == (other,):
            break
    else:
        return None
    wanted = decoded(tokens)
    holes: set[int] = set()

    def dig(places: Sequence[int]) -> None:
        """Find the holes among some values: all of them, or those of each half."""
        trial = [_PROBES[token[:1]] if place in places else token for place, token in enumerate(tokens)]
        if decoded(trial) == wanted:
            holes.update(places)
        elif len(places) > 1:
            middle = len(places) // 2
            dig(places[:middle])
            dig(places[middle:])

    dig([place for place in _values(tokens) if place != text])
    pieces = [
        b'"(?P<text>TEXT)"' if place == text else _HOLES[token[:1]] if place in holes else re.escape(token)
        for place, token in enumerate(tokens)
    ]
    return b"(?P<frame>%b%b%b)+" % (re.escape(before), b"".join(pieces), re.escape(after))


# Tokens of JSON. An array of numbers is one, since its length differs from frame to frame.
_NUMBER = rb"-?[0-9][-+.eE0-9]*+"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NUMBERS = rb"\[[-+.eE0-9,\s]*+\]"
_TOKEN = re.compile(b"|".join((_STRING, _NUMBERS, _NUMBER, rb'[^"\[0-9-]++|.')), re.DOTALL)
_HOLES = {b'"': _STRING, b"[": _NUMBERS, **dict.fromkeys([b"%d" % digit for digit in range(10)] + [b"-"], _NUMBER)}
_PROBES = {hole: {_STRING: b'"vtc"', _NUMBERS: b"[-70707]", _NUMBER: b"-70707"}[kind] for hole, kind in _HOLES.items()}
_NAME_END = re.compile(rb"\s*:")


def _values(tokens: Sequence[bytes]) -> Iterator[int]:
    """Find the places of the values that may be holes: numbers, arrays of these, strings that are no names."""
    for place, token in enumerate(tokens):
        if token[:1] not in _HOLES or token == b"[":
            continue
        if token[:1] == b'"' and place + 1 < len(tokens) and _NAME_END.match(tokens[place + 1]):
            continue
        yield place


def _string(token: bytes) -> str | None:
    if token[:1] != b'"':
        return None
    try:
        return str(json.loads(token))
    except ValueError:
        return None


def _compiled(shape: bytes, rule: PlainRule) -> Match:
    """Get a shape, compiled for texts that are plain by a rule; it matches nothing but whole frames."""
    size = (len(shape) + PER_SHAPE) * PER_CHARACTER
    return COMPILED.get_or_make(("shape", shape, rule), lambda: _compile(shape, rule), lambda _: size)


def _compile(shape: bytes, rule: PlainRule) -> Match:
    text = endings.text_without(rule.stop, lines=bool(rule.lines))
    return re.compile(shape.replace(b"(?P<text>TEXT)", b"(?P<text>%b)" % text)).fullmatch
