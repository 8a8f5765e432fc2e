"""The layout of an API's request bodies: the fields of the conversation, the tools and the limits; the shape of values.

A value that is out of shape is put right when a request is decoded, before all else reads it, so that a request is the
same whether its server speaks that API or another. What is in shape keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from operator import is_
from typing import Any, NamedTuple

import msgspec

from vtc.apis.fields import at, split_items
from vtc.events import MAX_TOKENS, Thought
from vtc.json_text import encode

UNSIGNED_CALL_SIGNATURE = "skip_thought_signature_validator"
"""The thought signature that Google documents for calls which it did not sign: ai.google.dev, "Thought signatures"."""


class FullError(NamedTuple):
    """The error of a prompt that is too long, as the servers of an API say it: agents make the conversation shorter."""

    sentence: str
    """Holds `{prompt}` and `{window}`, or `{over}`: tokens."""
    sign: str
    """The part of the error by which agents know it."""
    streamed: bool = False
    """True if it is told in the stream that was asked for, by status 200."""


class BodyLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request's body, and the one of a reply's that repeats the model."""

    name: str
    """What the body is, for the error where it is none."""
    full: FullError
    """Sent where the prompt is too long for the model."""
    entries: str = "messages"
    """The field of the conversation."""
    prompt: str | None = None
    """The field of the system prompt; None if that is a message."""
    choice: str | None = "tool_choice"
    """The field that demands a tool, or forbids all; None if the API has no word for that."""
    parallel: str | None = "parallel_tool_calls"
    """The field that forbids more than one call; None if there is none."""
    in_path: bool = False
    """True if the path says the model, and whether to stream, instead of the body."""
    model_paths: Sequence[str] = ("model",)
    """Where replies and the frames of these tell the model, as paths."""
    any_json: bool = True
    """True if it can ask for JSON without a schema."""
    limits: Mapping[str, Sequence[str]] = {}
    """Where limits and sampling stand, by their names in chat completions: dotted paths, the one to write first."""
    shapes: Sequence[Shape] = ()
    """The shapes of values that some clients miss."""
    carried: Collection[str] = ()
    """The other fields that other APIs are told of, and those that mean nothing to them; parts by dotted paths."""
    bridged_form: Any = None
    """The `form` for the decoder of a reply whose client speaks another API."""
    unsigned: Thought | None = None
    """The seal that Google's servers accept on a call which none of them signed; None if the API has no such seal."""
    signed: tuple[str, ...] = ()
    """The type of a part that servers of the API sign, and the field of the signature. They refuse one without it."""

    def read_limits(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Read limits and sampling; `stop` is a list."""
        values = {name: [at(fields, path) for path in paths] for name, paths in self.limits.items()}
        limits = {name: value for name, given in values.items() for value in reversed(given) if value is not None}
        if isinstance(most := limits.get(MAX_TOKENS), int) and most < 0:
            del limits[MAX_TOKENS]  # as much as there is room for
        return {**limits, "stop": [limits["stop"]]} if isinstance(limits.get("stop"), str) else limits

    def write_limits(self, limits: Mapping[str, Any]) -> dict[str, Any]:
        """Write limits and sampling at the first place of each; those for which there is none are left."""
        fields: dict[str, Any] = {}
        for name, value in limits.items():
            if name in self.limits:
                *above, key = self.limits[name][0].split(".")
                into = fields
                for part in above:
                    into = into.setdefault(part, {})
                into[key] = value
        return fields

    def rewrite_limits(self, fields: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
        """Write limits where the body says each of them, or else at the first place: return the fields at its top."""
        written: dict[str, Any] = {}
        for name, value in limits.items():
            paths = self.limits.get(name, ())
            for path in [path for path in paths if at(fields, path) is not None] or paths[:1]:
                top, _, key = path.partition(".")
                inside = written.get(top, fields.get(top))
                written[top] = {**(inside if isinstance(inside, Mapping) else {}), key: value} if key else value
        return written

    def list_untranslated(self, fields: Mapping[str, Any]) -> list[str]:
        """List the fields that other APIs are not told: dotted paths in objects of which any part is known."""
        known = {self.entries, self.prompt, self.choice, self.parallel, "tools", *self.carried}
        known |= {path for paths in self.limits.values() for path in paths}
        known |= set() if self.in_path else {"model", "stream"}
        inside = {path.partition(".")[0] for path in known if path and "." in path}
        untold: list[str] = []
        for key, value in fields.items():
            if key not in inside:
                untold += [key] if key not in known and not _is_nothing(value) else []
            elif isinstance(value, Mapping):
                paths = (f"{key}.{name}" for name, part in value.items() if not _is_nothing(part))
                untold += [path for path in paths if path not in known]
        return untold


def _is_nothing(value: object) -> bool:
    return value is None or value == [] or value == {}


# Shapes


type Fix = Callable[[Any], Any]


class Shape(NamedTuple):
    """The shape of what stands at a dotted path; the empty path is the whole body.

    `*` is any index. `[a|b]` goes no deeper, and only on where an object has one of these types.
    """

    path: str
    fix: Fix
    """Returns the value in shape: the very one if it is so already."""
    line: str
    """Tells people what was done."""


class ShapedBody(NamedTuple):
    """A body whose values are in shape."""

    fields: dict[str, Any]
    raw: Mapping[str, msgspec.Raw]
    """The bytes of each field; those that came, but for what was out of shape."""
    lines: tuple[str, ...] = ()
    """Tell people what was put in shape."""


def apply_shapes(
    raw: Mapping[str, msgspec.Raw], fields: dict[str, Any], shapes: Iterable[Shape], before: Sequence[str] = ()
) -> ShapedBody:
    """Put the fields of a body in shape; the lines about what was done `before` come first."""
    shaped = fields
    lines: dict[str, None] = dict.fromkeys(before)
    for shape in shapes:
        last, shaped = shaped, _make_fix(shape.path, shape.fix)(shaped)
        if shaped is not last:
            lines[shape.line] = None
    return ShapedBody(shaped, _encode_fields(raw, fields, shaped), (*lines,)) if lines else ShapedBody(fields, raw)


def _encode_fields(
    raw: Mapping[str, msgspec.Raw], before: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, msgspec.Raw]:
    """Write fields that were put in shape; what is the same as `before` keeps its bytes, entries of lists, too."""
    written: dict[str, msgspec.Raw] = {}
    for key, value in fields.items():
        old = before.get(key)
        if value is old:
            written[key] = raw[key]
        elif isinstance(value, list) and isinstance(old, list):
            known = {id(entry): entry_raw for entry, entry_raw in zip(old, split_items(raw[key], old), strict=True)}
            written[key] = msgspec.Raw(encode([known.get(id(entry), entry) for entry in value]))
        else:
            written[key] = msgspec.Raw(encode(value))
    return written


@cache
def _make_fix(path: str, mend: Fix) -> Fix:
    """Make the function that puts in shape what stands at a path."""
    for key in reversed(path.split(".") if path else ()):
        if key == "*":
            mend = partial(fix_each, mend)
        elif key.startswith("["):
            mend = partial(_fix_typed, key.strip("[]").split("|"), mend)
        else:
            mend = partial(fix_field, key, mend)
    return mend


def _fix_typed(types: Collection[str], mend: Fix, value: Any) -> Any:
    """Put in shape an object of one of these types."""
    return mend(value) if isinstance(value, dict) and value.get("type") in types else value


def fix_field(key: str, mend: Fix, value: Any) -> Any:
    """Put in shape what an object has in this field."""
    if not isinstance(value, dict) or key not in value:
        return value
    new = mend(value[key])
    return value if new is value[key] else {**value, key: new}


def fix_each(mend: Fix, values: Any) -> Any:
    """Put each entry of a list in shape."""
    if not isinstance(values, list):
        return values
    new = [mend(value) for value in values]
    return values if all(map(is_, new, values)) else new
