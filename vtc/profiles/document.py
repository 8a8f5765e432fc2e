"""Parse YAML for people: plain data, and the line of every value.

PyYAML composes the nodes; this module converts them to dicts, lists and scalars, strictly: only tags of JSON's types,
no duplicate keys, only text keys, and aliases only if they stay small.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from yaml.constructor import SafeConstructor

from vtc.guards import content, patterns, reactors
from vtc.profiles import agents

if TYPE_CHECKING:
    import jsonschema
    from jsonschema.exceptions import ValidationError

type KeyPath = tuple[str | int, ...]

_MAX_BYTES = 256 * 1024
_MAX_VALUES = 10_000
"""Maximum number of values in a document; those of an alias count each time, because a few lines of aliases can expand
to millions."""
_MAX_DEPTH = 32
_MAX_RECURSION = 1000
"""Levels of recursion that fit into the stack of any thread."""

_TAG = "tag:yaml.org,2002:"
_COLLECTIONS = {f"{_TAG}map", f"{_TAG}seq"}
_SCALARS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null")}
# Values that look like a date, a merge key or YAML's "value" are text here.
_TEXTS = {f"{_TAG}{name}" for name in ("timestamp", "merge", "value")}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Problem(msgspec.Struct, frozen=True, order=True):
    """A fault of a profile file, shown as `FILE:LINE: key.path: fault; remedy`."""

    file: str
    line: int
    """From 1; 0 without a file."""
    key: str
    message: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}: {key}{self.message}"


class ProfileError(ValueError):
    """Invalid profile files; its text has one problem per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


class Document(msgspec.Struct, frozen=True):
    """One YAML document: its data, made of JSON's types, and the line (from 1) of each key and item."""

    file: Path
    value: Any
    lines: dict[KeyPath, int]

    def problem(self, path: KeyPath, message: str, line: int | None = None) -> Problem:
        """Create a problem about the value at `path`, or about its absence."""
        known = path
        while known not in self.lines:
            known = known[:-1]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        return Problem(str(self.file), line or self.lines[known], key.removeprefix("."), message)


def read_documents(file: Path) -> tuple[list[Document], list[Problem]]:
    """Parse the documents of a file and list its YAML errors; empty documents are skipped."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            return [], [Problem(str(file), 1, "", f"over {_MAX_BYTES >> 10} KiB; split it into several files")]
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return [], [Problem(str(file), line, "", "not UTF-8; save the file as UTF-8")]
    except OSError as error:
        return [], [Problem(str(file), 1, "", f"cannot be read: {error.strerror}; check that it exists and its rights")]

    documents, problems = _parse_documents(file, text)
    return [*documents], [*problems]


@lru_cache(maxsize=1024)
def _parse_documents(file: Path, text: str) -> tuple[list[Document], list[Problem]]:
    """Parse documents; cached, because profiles are loaded again whenever an option changes and YAML is slow to
    parse."""
    documents: list[Document] = []
    problems: list[Problem] = []
    try:
        for node in _nodes(text):
            builder = _Builder(file, problems)
            value = builder.build(node, ())
            if value is not None:
                documents.append(Document(file, value, builder.lines))
    except yaml.MarkedYAMLError as error:
        problems.append(_syntax_problem(file, error))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(Problem(str(file), line, "", f"not valid YAML: {error.reason}; remove them or write \\x…"))
    except RecursionError:
        problems.append(Problem(str(file), 1, "", "nested too deeply; flatten it"))
    except _TooLarge:
        pass
    return documents, problems


def _nodes(text: str) -> Iterable[yaml.Node]:
    """Compose the documents of a text with libyaml if PyYAML has it, which takes a tenth of the time.

    libyaml recurses without a limit, so text that may be nested deeply is not passed to it; and if it fails, PyYAML's
    own parser explains the error.
    """
    fast = getattr(yaml, "CSafeLoader", None)
    # Each level of a block is indented further, or is a sequence right below its key; each inline level has its
    # bracket.
    deepest = 2 * max(map(len, text.splitlines()), default=0) + text.count("[") + text.count("{")
    if fast and deepest < _MAX_RECURSION:
        try:
            return [*yaml.compose_all(text, Loader=fast)]
        except yaml.YAMLError:
            pass
    return yaml.compose_all(text, Loader=yaml.SafeLoader)


def _syntax_problem(file: Path, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    where = f" {error.context}" if error.context else ""
    if where and error.context_mark and error.context_mark.line + 1 != line:
        where += f" that begins on line {error.context_mark.line + 1}"
    return Problem(
        str(file),
        line,
        "",
        f"not valid YAML: {error.problem}{where}; check the indentation, and put texts with any of "
        "* & ! % @ ` { } [ ] # : in quotes",
    )


class _TooLarge(Exception):
    """The file is abandoned; its problem has been recorded."""


class _Builder:
    def __init__(self, file: Path, problems: list[Problem]) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._file = file
        self._problems = problems
        self._scalars = SafeConstructor()
        self._left = _MAX_VALUES

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._left -= 1
        if len(path) > _MAX_DEPTH:
            self._complain(path[:1], f"nested over {_MAX_DEPTH} levels deep; flatten it")
            raise _TooLarge
        if self._left < 0:
            self._complain(path[:1], f"over {_MAX_VALUES} values, aliases written out; use fewer aliases")
            raise _TooLarge
        if isinstance(node, yaml.MappingNode):
            self._refuse_tag(node, path)
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._refuse_tag(node, path)
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if isinstance(key, bool):  # `on` is a bool in YAML 1.1; no key uses it as one
                key = key_node.value
            if not isinstance(key, str):
                shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else "what stands before the colon"
                self._complain(path, f"{shown} is a key but no text; put it in quotes", line)
            elif key in mapping:
                first = self.lines[*path, key]
                self._complain((*path, key), f"written twice, first on line {first}; remove one of the two", line)
            else:
                self.lines[*path, key] = line
                mapping[key] = self.build(value_node, (*path, key))
        return mapping

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        value: Any = node.value
        if node.tag in _SCALARS:
            try:
                value = self._scalars.construct_object(node)
            except (ValueError, KeyError):
                kind = node.tag.removeprefix(_TAG)
                self._complain(path, f"{node.value[:40]!r} is no {kind}; put it in quotes")
        elif node.tag not in _TEXTS:
            self._refuse_tag(node, path)
        if isinstance(value, float) and not math.isfinite(value):
            self._complain(path, f"JSON has no {node.value}; write a number")
        if isinstance(value, str) and _SURROGATE.search(value):
            self._complain(path, r"\uD800 to \uDFFF are halves of characters; write the character itself")
            value = _SURROGATE.sub("?", value)  # continue with a valid text, so that the other checks can run
        return value

    def _refuse_tag(self, node: yaml.Node, path: KeyPath) -> None:
        if node.tag not in _COLLECTIONS:
            tag = node.tag.replace(_TAG, "!!")
            self._complain(path, f"the YAML tag {tag} is not allowed; remove it, or put the text in quotes")

    def _complain(self, path: KeyPath, message: str, line: int | None = None) -> None:
        self._problems.append(Document(self._file, None, self.lines).problem(path, message, line))


# Validation against a class, with messages that help a person to fix the file.
#
# The JSON Schema that msgspec derives from the class finds all errors at once, whereas conversion stops at the first;
# each error becomes one problem with its line.


_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


def load_table[T: msgspec.Struct](file: Path, model: type[T]) -> T:
    """Load a table that comes with the package, a file of one document; raises `ProfileError`."""
    documents, problems = read_documents(file)
    if problems or len(documents) != 1:
        raise ProfileError(problems or [Problem(str(file), 1, "", "must be one document")])
    return convert(documents[0], model)


def convert[T: msgspec.Struct](document: Document, model: type[T]) -> T:
    """Convert the document to a `model`; raises `ProfileError` with all errors."""
    try:
        return msgspec.convert(document.value, model)
    except msgspec.ValidationError as error:  # msgspec names only the first error
        raise ProfileError(problems(document, model) or [document.problem(*_split_error(str(error)))]) from None


def _split_error(text: str) -> tuple[KeyPath, str]:
    """Split msgspec's error into location and message: `… - at `$.guards.reactors[0]``."""
    message, at, where = text.rpartition(" - at `$")
    steps = re.findall(r"\[(\d+)\]|([^.\[\]`]+)", where) if at else []
    return tuple(int(index) if index else key for index, key in steps), message or text


def problems(document: Document, model: type[msgspec.Struct]) -> list[Problem]:
    """List all errors that prevent the document from being a `model`."""
    return [
        document.problem(path, message)
        for error in _validator(model).iter_errors(document.value)
        for path, message in _explain(error)
    ]


def suggest_nearest(word: object, known: Iterable[str]) -> str:
    """Suggest the most similar known word, ` (did you mean 'dialect'?)`; empty if none is close."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def format_count(count: int, noun: str) -> str:
    """Format a number and its noun: `1 message`, `2 messages`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def join_words(words: Iterable[str], last: str = "or") -> str:
    """Join words as in `a, b or c`."""
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end


def format_value(value: Any) -> str:
    """Format a value as in its file, shortened."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"


@cache
def _validator(model: type[msgspec.Struct]) -> jsonschema.Draft202012Validator:
    import jsonschema  # slow to import, and rarely needed

    formats = jsonschema.FormatChecker(formats=())
    for name, check in _FORMATS.items():
        formats.checks(name, raises=ValueError)(partial(_fits, check))
    return jsonschema.Draft202012Validator(msgspec.json.schema(model), format_checker=formats)


_FORMATS: Mapping[str, Callable[[str], object]] = {
    "regular expression": patterns.compile_expression,
    "glob or /regular expression/": patterns.check_pattern,
    "glob": patterns.check_glob,
    "glob of a host": patterns.check_host,
    "pattern of a text": content.check_stream_pattern,
    "JMESPath": reactors.compile_path,
    "template": agents.check_places,
}
"""Checks that the classes run when they are created, by the `format` in their schema; used here to report all errors at
once."""


def _fits(check: Callable[[str], object], value: object) -> bool:
    """Run a format check; it raises ValueError instead of returning False."""
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
                        f"unknown key; known here are {join_words(known, 'and')}{suggest_nearest(key, known)}",
                    )
        case "required":
            for key in limit:
                if key not in value:
                    yield (*path, key), f"missing; add `{key}: …`"
        case "type" | "enum":
            yield path, _describe_expected([schema], value)
        case "anyOf":
            branches: dict[Any, list[ValidationError]] = {}
            for part in error.context:
                branches.setdefault(part.relative_schema_path[0], []).append(part)
            # The intended alternative is the first whose type fits, if there is one.
            meant = [parts for parts in branches.values() if not any(map(_is_mistyped, parts))]
            if meant:
                for part in meant[0]:
                    yield from _explain(part)
            else:
                yield path, _describe_expected(limit, value)
        case "format":
            yield (*path, value) if "propertyNames" in error.schema_path else path, str(error.cause)
        case "minimum":
            yield path, f"must be {limit} or more, not {format_value(value)}"
        case "minLength" | "minItems":
            yield path, "must not be empty; write a value, or remove the key"
        case _:
            yield path, error.message


def _is_mistyped(error: ValidationError) -> bool:
    return not error.relative_path and error.validator in ("type", "enum")


def _describe_expected(schemas: list[dict[str, Any]], value: Any) -> str:
    wanted: list[str] = []
    words: list[str] = []
    for schema in schemas:
        if "enum" in schema:
            texts = [word for word in schema["enum"] if isinstance(word, str)]
            words += texts
            wanted += texts + [format_value(word) for word in schema["enum"] if not isinstance(word, str)]
        else:
            wanted.append(_TYPES[schema.get("type", "object")])
    if len(wanted) > 1:
        wanted = [want for want in wanted if want != _TYPES["null"]]
    hint = ""
    if isinstance(value, str):
        if "a list" in wanted:
            hint = f"; write [{value}]"
        hint += suggest_nearest(value, words)
    elif isinstance(value, dict) and any(value.values()):  # `{name}` is a text without its quotes
        hint = "; write [first, second]" if "a list" in wanted else ""
    elif "a text" in wanted:
        hint = "; put it in quotes"
    return f"must be {join_words(wanted)}, not {format_value(value)}{hint}"
