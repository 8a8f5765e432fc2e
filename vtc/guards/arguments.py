"""Arguments against the tool's JSON Schema: what fits is untouched, what fits after lossless coercion is coerced.

Lossless is: text that is the JSON of a wanted type (`"3"` for 3, `"True"` for true), and the JSON of a value where
text is wanted (an object as the content of a `.json` file). Nothing is invented, filled in or left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec.structs import replace

from vtc import json_text
from vtc.events import Call, Denied, Event, Intervention, Manner, OnFailure, Tool
from vtc.guards.guard import Guard, always
from vtc.guards.patterns import MOST_PATTERN, Budget, TakesTooLongError

# `jsonschema` is slow to import, and most profiles check no arguments: it is imported where it is used.
if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

# JSON Schema within a budget: the keywords of `jsonschema`, counted, and own ones where theirs have no bound.
#
# No library that was looked at bounds this. `jsonschema-rs` has linear expressions and lists, but collects errors of
# `anyOf` and `$ref` without a bound, where nothing can stop it.


type Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]

WALKING_KEYWORDS = {
    *("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems", "propertyNames", "dependencies"),
    *("patternProperties", "additionalProperties", "unevaluatedProperties"),
}
"""Keywords that look at each item of a value, whatever they ask of it."""
LOOKUP_KEYWORDS = {"properties", "required", "dependentRequired", "dependentSchemas", "dependencies"}
"""Keywords that look each of their entries up in the value, which is quick."""
REFERENCE_KEYWORDS = {"$ref", "$dynamicRef", "$recursiveRef"}
"""Keywords that lead to another place of the schema, which takes as long as some others together."""
REFERENCE_STEPS = 5
"""Steps of one."""
ENTRIES_PER_STEP = 16
"""Entries that are looked up in a step."""
CHARS_PER_STEP = 64
"""Characters of a message that are written in a step: it may quote all arguments."""


def make_counting_validator(kind: type[Validator], budget: Budget) -> type[Validator]:
    """Make a validator of a draft that spends of a budget; it raises TakesTooLongError."""
    import attrs
    from jsonschema.validators import extend

    own = CountedKeywords(kind, budget)
    validator_class: Any = extend(kind, own.build_keywords())  # type: ignore[no-untyped-call]
    # Theirs takes a validator that does not count, if a part of the schema names a draft.
    validator_class.evolve = attrs.evolve
    return cast("type[Validator]", validator_class)


class CountedKeywords:
    """The keywords of a draft of JSON Schema, each of which spends of a budget; those that may be slow are our own."""

    def __init__(self, kind: type[Validator], budget: Budget) -> None:
        from jsonschema.exceptions import ValidationError

        self._theirs: Mapping[str, Any] = kind.VALIDATORS
        self._budget = budget
        self._error = ValidationError
        self._sets: dict[int, tuple[Any, set[str]]] = {}

    def build_keywords(self) -> dict[str, Keyword]:
        """List the keywords by name."""
        own: dict[str, Keyword] = {
            "uniqueItems": self._unique_items,
            "enum": self._enum,
            "const": self._const,
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
        }
        return {name: self._add_spending(name, own.get(name, keyword)) for name, keyword in self._theirs.items()}

    def _add_spending(self, name: str, keyword: Keyword) -> Keyword:
        def spends(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            looked = _size(wanted) // ENTRIES_PER_STEP if name in LOOKUP_KEYWORDS else 0
            walked = _size(instance) if name in WALKING_KEYWORDS else 0
            self._budget.spend(looked + walked + (REFERENCE_STEPS if name in REFERENCE_KEYWORDS else 1))
            if name.startswith("unevaluated"):
                # It goes through all that the schema refers to, uncounted: so be it counted once before.
                rest = {key: entry for key, entry in schema.items() if not key.startswith("unevaluated")}
                for _ in validator.evolve(schema=rest).iter_errors(instance):
                    pass
            for error in keyword(validator, wanted, instance, schema) or ():
                self._budget.spend(1 + len(error.message) // CHARS_PER_STEP)
                yield error

        return spends

    def _search(self, pattern: str, text: str) -> bool:
        if len(pattern) > MOST_PATTERN:
            raise TakesTooLongError
        self._budget.spend(len(text) >> 10)
        return self._budget.search(pattern, text)

    def _make_key(self, value: Any) -> str:
        return json.dumps(_normalize_numbers(value, self._budget), sort_keys=True)

    def _unique_items(self, validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if wanted and validator.is_type(instance, "array") and len({*map(self._make_key, instance)}) < len(instance):
            yield self._error(f"{instance!r} has non-unique elements")

    def _enum(self, _: Any, options: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
        if id(options) not in self._sets:  # with the options, so that no other object gets their id
            self._sets[id(options)] = options, {*map(self._make_key, options)}
        if self._make_key(instance) not in self._sets[id(options)][1]:
            yield self._error(f"{instance!r} is not one of {options!r}")

    def _const(self, _: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
        if self._make_key(instance) != self._make_key(wanted):
            yield self._error(f"{wanted!r} was expected")

    def _pattern(self, validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "string") and not self._search(wanted, instance):
            yield self._error(f"{instance!r} does not match {wanted!r}")

    def _pattern_properties(self, validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "object"):
            for pattern, subschema in wanted.items():
                for name, value in instance.items():
                    if self._search(pattern, name):
                        yield from validator.descend(value, subschema, path=name, schema_path=pattern)

    def _additional_properties(
        self, validator: Any, wanted: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        patterns = schema.get("patternProperties", {})
        if patterns and validator.is_type(instance, "object"):
            matched = {name: True for name in instance if any(self._search(pattern, name) for pattern in patterns)}
            schema = {"properties": {**schema.get("properties", {}), **matched}}
        yield from self._theirs["additionalProperties"](validator, wanted, instance, schema) or ()


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _normalize_numbers(value: Any, budget: Budget) -> Any:
    """Write a value so that numbers that are equal are the same: 1.0 is 1, and true is neither."""
    budget.spend()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normalize_numbers(item, budget) for item in value]
    if isinstance(value, Mapping):
        return {name: _normalize_numbers(item, budget) for name, item in value.items()}
    return value


MAX_COERCION_PASSES = 8
MAX_REPORTED_FAULTS = 3
MAX_FAULT_CHARS = 200
"""Faults that are told, and characters of each."""

_PYTHON_LITERALS = {"True": True, "False": False, "None": None}


class Uncheckable(ValueError):
    """The schema is none, or refers to what is not in it."""


class Mismatch(NamedTuple):
    """A value that does not fit: by the schema alone, and with what the model wrote there."""

    reason: str = ""
    detail: str = ""


class Checker:
    """A tool's parameters as a JSON Schema; nothing that it refers to is fetched."""

    def __init__(self, tool: Tool, budget: Budget) -> None:
        """Raise `Uncheckable`, or TakesTooLongError."""
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for
        from referencing import Registry

        schema = dict(tool.parameters)
        draft = validator_for(schema, default=Draft202012Validator)
        # Of a budget of its own, as it is checked but once, and the model has no say in it.
        for error in make_counting_validator(draft, Budget())(draft.META_SCHEMA).iter_errors(schema):
            raise Uncheckable(f"the tool's schema is no JSON Schema: {error.message[:MAX_FAULT_CHARS]}")
        written = json.dumps(schema)
        if '"unevaluated' in written and '"patternProperties"' in written:
            raise Uncheckable("the tool's schema has unevaluated properties beside patterns of their names")
        self._validator: Validator = make_counting_validator(draft, budget)(schema, registry=Registry())

    def find_mismatch(self, arguments: Any) -> Mismatch:
        """Tell what does not fit, and where; empty if all does. Raises `Uncheckable`, or TakesTooLongError."""
        errors = list(islice(self._iterate_errors(arguments), MAX_REPORTED_FAULTS))
        return Mismatch("; ".join(map(_describe_error, errors)), "; ".join(map(_quote_error, errors)))

    def coerce(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
        """Return the arguments as the schema wants them and what was coerced, or None if they cannot be.

        Arguments that fit come back with nothing coerced. Raises as `fault` does.
        """
        value = json.loads(json.dumps(arguments))
        done: list[str] = []
        for _ in range(MAX_COERCION_PASSES):  # what was text may hold what is to be coerced in its turn
            errors = list(self._iterate_errors(value))
            if not errors:
                return value, done
            if not all(_coerce_error(value, error, done) for error in errors):
                return None
        return None

    def _iterate_errors(self, value: Any) -> Iterator[ValidationError]:
        from referencing.exceptions import Unresolvable

        try:
            yield from self._validator.iter_errors(value)
        except Unresolvable as error:
            raise Uncheckable(f"the tool's schema refers to what it does not hold: {error.ref}") from None


class Arguments(Guard):
    """Checks each call; what becomes of a misfit is a setting, `None` being to pass it."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        coerce: bool,
        manner: Manner | None,
        on_failure: OnFailure = "refuse",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(refuses=always if manner else None, on_failure=on_failure)
        self._tools = tools
        self._checkers: dict[str, Checker] = {}
        self._coerce = coerce
        self._manner = manner
        self._budget = budget or Budget()

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or event.call.name not in self._tools:
            return [event]
        name = event.call.name
        try:
            arguments = json_text.parse(event.call.arguments)
        except ValueError as error:
            return self._handle_misfit(event, Mismatch(f"they are no JSON: {error}"))
        coerced, text = None, ""
        try:
            if name not in self._checkers:
                self._checkers[name] = Checker(self._tools[name], self._budget)
            checker = self._checkers[name]
            fault = checker.find_mismatch(arguments)
            if fault.reason and self._coerce and isinstance(arguments, dict):
                coerced = checker.coerce(arguments)
            if coerced:
                text = json_text.serialize_changed(event.call.arguments, coerced[0])
        except Uncheckable as error:
            return [Intervention("arguments", "unchecked", name, str(error)), event]
        except TakesTooLongError:
            return self._handle_misfit(event, Mismatch("checking its arguments takes too long"))
        except Exception as error:  # nested too deeply to be looked through, a number that no arithmetic takes
            if self.on_failure == "pass" and self._manner:
                raise
            return self._handle_misfit(event, Mismatch("they cannot be checked", f"{type(error).__name__}: {error}"))
        if not fault.reason:
            return [event]
        if not coerced:
            return self._handle_misfit(event, fault)
        changed = replace(event, call=replace(event.call, arguments=text), changed=True)
        return [Intervention("arguments", "coerced", name, ", ".join(coerced[1])), changed]

    def _handle_misfit(self, event: Call, fault: Mismatch) -> list[Event]:
        name, reason = event.call.name, f"they do not fit: {fault.reason}"
        if self._manner is None:
            return [Intervention("arguments", "passed", name, reason, fault.detail), event]
        message = f"The call of `{name}` was not carried out, as its arguments do not fit: "
        message += fault.detail or fault.reason
        return [
            Intervention("arguments", "refused", name, reason, fault.detail),
            Denied(event.raw, event.call, self._manner, message),
        ]


def _describe_error(error: ValidationError) -> str:
    """Tell what does not fit, in words of the schema alone."""
    where = error.json_path.removeprefix("$").removeprefix(".")
    wanted = repr(error.validator_value)
    if len(wanted) > MAX_FAULT_CHARS // 4 or error.validator in ("additionalProperties", "unevaluatedProperties"):
        wanted = ""
    message = error.message if error.validator == "required" else f"does not fit {error.validator} {wanted}".rstrip()
    return f"{where}: {message}" if where else message


def _quote_error(error: ValidationError) -> str:
    """Tell what does not fit, and quote what stands there."""
    where = error.json_path.removeprefix("$").removeprefix(".")
    message = error.message if len(error.message) <= MAX_FAULT_CHARS else f"{error.message[:MAX_FAULT_CHARS]}…"
    return f"{where}: {message}" if where else message


def _convert_to_type(value: Any, wanted: str | list[str]) -> tuple[Any, str] | None:
    """Read a value as one of the types; return it and the name of its type, None if something would be lost."""
    types = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(value, str):
        if "string" not in types or value is None:
            return None
        return (json.dumps(value, ensure_ascii=False), "string")
    text = value.strip()
    try:
        value_read = (
            _PYTHON_LITERALS[text] if text in _PYTHON_LITERALS else json_text.parse(text, json_text.parse_exact_float)
        )
    except (ValueError, RecursionError):
        return None
    from jsonschema import Draft202012Validator

    checker = Draft202012Validator.TYPE_CHECKER
    kind = next((kind for kind in types if kind != "string" and checker.is_type(value_read, kind)), None)
    return (value_read, kind) if kind else None


def _coerce_error(value: Any, error: ValidationError, done: list[str]) -> bool:
    """Mend one error inside of `value`, if it is one of type; notes what was done."""
    for part in (error, *(error.context or ())):
        if part.validator == "type" and part.absolute_path:
            coerced = _convert_to_type(part.instance, part.validator_value)
            if coerced is not None:
                _set_at_path(value, [*part.absolute_path], coerced[0])
                done.append(f"{part.json_path.removeprefix('$.')} to {coerced[1]}")
                return True
    return False


def _set_at_path(value: Any, path: list[str | int], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new
