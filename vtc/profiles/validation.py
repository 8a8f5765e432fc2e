"""Whether a document is what its class says, told so that a person can mend it.

The JSON Schema that msgspec derives from the class finds everything that is wrong at once, where conversion
would stop at the first; each finding becomes one problem with its line.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import jsonschema
    from jsonschema.exceptions import ValidationError

from vtc.guards import content, patterns, reactors
from vtc.profiles.document import Document, KeyPath, Problem

_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


def problems(document: Document, model: type[msgspec.Struct]) -> list[Problem]:
    """Everything that keeps the document from being a `model`."""
    return [
        document.problem(path, message)
        for error in _validator(model).iter_errors(document.value)
        for path, message in _explain(error)
    ]


def nearest(word: object, known: Iterable[str]) -> str:
    """` (did you mean 'dialect'?)` for a word close to a known one, else nothing."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def listed(words: Iterable[str], last: str = "or") -> str:
    """`a, b or c`"""
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end


def shown(value: Any) -> str:
    """A value as its file writes it, shortened."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"


@cache
def _validator(model: type[msgspec.Struct]) -> jsonschema.Draft202012Validator:
    import jsonschema  # slow to import, and nearly always nothing is wrong

    formats = jsonschema.FormatChecker(formats=())
    for name, check in _FORMATS.items():
        formats.checks(name, raises=ValueError)(partial(_fits, check))
    return jsonschema.Draft202012Validator(msgspec.json.schema(model), format_checker=formats)


_FORMATS: Mapping[str, Callable[[str], object]] = {
    "regular expression": patterns.expression,
    "glob or /regular expression/": patterns.check_one,
    "glob": patterns.check_glob,
    "pattern of a text": content.check,
    "JMESPath": reactors.compiled_path,
}
"""What the classes check of texts when they are made, by the `format` in their schema: here all of them at once."""


def _fits(check: Callable[[str], object], value: object) -> bool:
    """False never; raises what is wrong."""
    if isinstance(value, str):
        check(value)
    return True


def _explain(error: ValidationError) -> Iterator[tuple[KeyPath, str]]:
    path = tuple(error.absolute_path)
    value: Any = error.instance
    schema: Any = error.schema
    limit: Any = error.validator_value
    match error.validator:
        case "additionalProperties":
            known = sorted(schema["properties"])
            for key in value:
                if key not in known:
                    yield (
                        (*path, key),
                        f"unknown key; known here are {listed(known, 'and')}{nearest(key, known)}",
                    )
        case "required":
            for key in limit:
                if key not in value:
                    yield (*path, key), f"missing; add `{key}: …`"
        case "type" | "enum":
            yield path, _expected([schema], value)
        case "anyOf":
            branches: dict[Any, list[ValidationError]] = {}
            for part in error.context:
                branches.setdefault(part.relative_schema_path[0], []).append(part)
            # The alternative that was meant is the one whose type fits, if there is one.
            meant = [parts for parts in branches.values() if not any(map(_is_mistyped, parts))]
            if meant:
                for part in meant[0]:
                    yield from _explain(part)
            else:
                yield path, _expected(limit, value)
        case "format":
            yield (*path, value) if "propertyNames" in error.schema_path else path, str(error.cause)
        case "minimum":
            yield path, f"must be {limit} or more, not {shown(value)}"
        case "minLength" | "minItems":
            yield path, "must not be empty; write a value, or remove the key"
        case _:
            yield path, error.message


def _is_mistyped(error: ValidationError) -> bool:
    return not error.relative_path and error.validator in ("type", "enum")


def _expected(schemas: list[dict[str, Any]], value: Any) -> str:
    wanted: list[str] = []
    words: list[str] = []
    for schema in schemas:
        if "enum" in schema:
            texts = [one for one in schema["enum"] if isinstance(one, str)]
            words += texts
            wanted += texts + [shown(one) for one in schema["enum"] if not isinstance(one, str)]
        else:
            wanted.append(_TYPES[schema.get("type", "object")])
    if len(wanted) > 1:
        wanted = [want for want in wanted if want != _TYPES["null"]]
    hint = ""
    if isinstance(value, str):
        if "a list" in wanted:
            hint = f"; write [{value}]"
        hint += nearest(value, words)
    elif "a text" in wanted:
        hint = "; put it in quotes"
    return f"must be {listed(wanted)}, not {shown(value)}{hint}"
