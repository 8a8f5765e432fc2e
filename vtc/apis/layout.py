"""The layout of an API's request bodies: the fields of the conversation, the tools and the limits; the shape of values.

A value out of shape is repaired when a request is decoded, before any other code reads it, so that a request is the
same for a server of any API. Values in shape keep their bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vtc.apis.fields import get_at, split_items
from vtc.apis.json_path import Edit, edit_at
from vtc.events import Thought
from vtc.json_text import encode_json

UNSIGNED_CALL_SIGNATURE = "skip_thought_signature_validator"
"""The thought signature that Google documents for calls without one of its own: ai.google.dev, "Thought signatures"."""


MAX_TOKENS = "max_tokens"
"""The limit on the length of a reply, as chat completions name it; also the name of the step that lowers it."""


class FullError(NamedTuple):
    """The error for a prompt that is too long, as servers of the API send it; agents then shorten the conversation."""

    sentence: str
    """Contains `{prompt}` and `{window}`, or `{over}`: tokens."""
    sign: str
    """The part of the error that agents recognise."""
    streamed: bool = False
    """True if it is sent with status 200 in the requested stream."""


class BodyLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request's body, and the one with the model's name in a reply."""

    name: str
    """The name of such a body in errors."""
    full: FullError
    """Sent if the prompt is too long for the model."""
    entries: str = "messages"
    """The field of the conversation."""
    prompt: str | None = None
    """The field of the system prompt; None if it is a message."""
    choice: str | None = "tool_choice"
    """The field that demands a tool or forbids all; None if the API has none."""
    parallel: str | None = "parallel_tool_calls"
    """The field that forbids more than one call; None if there is none."""
    in_path: bool = False
    """True if the path instead of the body names the model and asks for a stream."""
    model_paths: Sequence[str] = ("model",)
    """Paths of the model's name in replies and their frames."""
    any_json: bool = True
    """True if a request can ask for JSON without a schema."""
    limits: Mapping[str, Sequence[str]] = {}
    """Dotted paths of limits and sampling by their names in chat completions, the one to write first."""
    shapes: Sequence[Shape] = ()
    """The shapes that some clients get wrong."""
    carried: Collection[str] = ()
    """Other fields that are translated for other APIs or mean nothing to them; dotted paths for parts."""
    bridged_form: Any = None
    """The `form` for the decoder of a bridged reply."""
    unsigned: Thought | None = None
    """The seal that Google's servers accept on a call that none of them signed; None if the API has no such seal."""
    signed: tuple[str, ...] = ()
    """The type of a signed part, and the field of its signature. Servers reject one without it."""

    def read_limits(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Read limits and sampling; `stop` is a list."""
        values = {name: [get_at(fields, path) for path in paths] for name, paths in self.limits.items()}
        limits = {name: value for name, given in values.items() for value in reversed(given) if value is not None}
        max_tokens = limits.get(MAX_TOKENS)
        if isinstance(max_tokens, int) and max_tokens < 0:
            del limits[MAX_TOKENS]  # a negative number means no limit
        if isinstance(limits.get("stop"), str):
            limits["stop"] = [limits["stop"]]
        return limits

    def write_limits(self, limits: Mapping[str, Any]) -> dict[str, Any]:
        """Write limits and sampling at the first path of each; those without a path are omitted."""
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
        """Write limits at the paths that the body already uses, else at the first path; return the changed fields."""
        written: dict[str, Any] = {}
        for name, value in limits.items():
            paths = self.limits.get(name, ())
            for path in [path for path in paths if get_at(fields, path) is not None] or paths[:1]:
                top, _, key = path.partition(".")
                inside = written.get(top, fields.get(top))
                written[top] = {**(inside if isinstance(inside, Mapping) else {}), key: value} if key else value
        return written

    def list_untranslated(self, fields: Mapping[str, Any]) -> list[str]:
        """List the fields that are not translated: dotted paths in objects of which any part is known."""
        known = {self.entries, self.prompt, self.choice, self.parallel, "tools", *self.carried}
        known |= {path for paths in self.limits.values() for path in paths}
        known |= set() if self.in_path else {"model", "stream"}
        inside = {path.partition(".")[0] for path in known if path and "." in path}
        untranslated: list[str] = []
        for key, value in fields.items():
            if key not in inside:
                if key not in known and not _is_nothing(value):
                    untranslated.append(key)
            elif isinstance(value, Mapping):
                paths = (f"{key}.{name}" for name, part in value.items() if not _is_nothing(part))
                untranslated += [path for path in paths if path not in known]
        return untranslated


def _is_nothing(value: object) -> bool:
    return value is None or value == [] or value == {}


class Shape(NamedTuple):
    """The shape of the values at a dotted path (`json_path.py`); the empty path is the whole body."""

    path: str
    fix: Edit
    """Returns the value in shape; the same object if nothing was wrong."""
    line: str
    """The line in the report about a repaired value."""


class ShapedBody(NamedTuple):
    """A body with values in shape."""

    fields: dict[str, Any]
    raw: Mapping[str, msgspec.Raw]
    """The bytes of each field; the original ones unless it was out of shape."""
    lines: tuple[str, ...] = ()
    """The lines of the report."""


def apply_shapes(
    raw: Mapping[str, msgspec.Raw], fields: dict[str, Any], shapes: Iterable[Shape], before: Sequence[str] = ()
) -> ShapedBody:
    """Repair the fields of a body that are out of shape; the lines of `before` come first in the report."""
    shaped = fields
    lines: dict[str, None] = dict.fromkeys(before)
    for shape in shapes:
        last, shaped = shaped, edit_at(shaped, shape.path.split(".") if shape.path else (), shape.fix)
        if shaped is not last:
            lines[shape.line] = None
    return ShapedBody(shaped, _encode_fields(raw, fields, shaped), (*lines,)) if lines else ShapedBody(fields, raw)


def _encode_fields(
    raw: Mapping[str, msgspec.Raw], before: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, msgspec.Raw]:
    """Encode repaired fields; values that equal `before` keep their bytes, also as entries of lists."""
    written: dict[str, msgspec.Raw] = {}
    for key, value in fields.items():
        old = before.get(key)
        if value is old:
            written[key] = raw[key]
        elif isinstance(value, list) and isinstance(old, list):
            known = {id(entry): entry_raw for entry, entry_raw in zip(old, split_items(raw[key], old), strict=True)}
            written[key] = msgspec.Raw(encode_json([known.get(id(entry), entry) for entry in value]))
        else:
            written[key] = msgspec.Raw(encode_json(value))
    return written
