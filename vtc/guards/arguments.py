"""Check arguments against the tool's JSON Schema, and coerce arguments that fit after lossless coercion.

Two coercions are lossless: text that is the JSON of an expected type (`"3"` for 3, `"True"` for true) becomes its
value, and a value becomes its JSON if text is expected (an object as the content of a `.json` file). Nothing is
invented, filled in or removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec.structs import replace

from vtc import json_text
from vtc.events import Call, Denied, Event, Intervention, Manner, OnFailure, Tool
from vtc.guards.guard import Guard, match_every_tool
from vtc.guards.patterns import MAX_EXPRESSION_CHARS, Budget, TakesTooLongError

# `jsonschema` is slow to import, and most profiles check no arguments, so functions import it when they need it.
if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

type Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]

WALKING_KEYWORDS = {
    *("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems", "propertyNames", "dependencies"),
    *("patternProperties", "additionalProperties", "unevaluatedProperties"),
}
"""Keywords that visit each item of a value."""
LOOKUP_KEYWORDS = {"properties", "required", "dependentRequired", "dependentSchemas", "dependencies"}
"""Keywords that look up each of their entries in the value, which is fast."""
REFERENCE_KEYWORDS = {"$ref", "$dynamicRef", "$recursiveRef"}
"""Keywords that refer to another place of the schema, which is slower than other keywords."""
REFERENCE_STEPS = 10
"""Number of steps that a reference costs."""
ENTRIES_PER_STEP = 16
"""Number of looked-up entries that cost one step."""
CHARS_PER_STEP = 64
"""Number of characters of an error message that cost one step, because a message may quote all arguments."""


def make_counting_validator(kind: type[Validator], budget: Budget) -> type[Validator]:
    """Make a validator class of a draft that spends a budget; its methods raise TakesTooLongError."""
    import attrs
    from jsonschema.validators import extend

    own = CountedKeywords(kind, budget)
    validator_class: Any = extend(kind, own.build_keywords())  # type: ignore[no-untyped-call]
    # The original `evolve` returns a validator that does not count if a part of the schema names a draft.
    validator_class.evolve = attrs.evolve
    return cast("type[Validator]", validator_class)


class CountedKeywords:
    """The keywords of a draft of JSON Schema, which spend a budget; slow ones are replaced by bounded ones.

    No examined library bounds the work. `jsonschema-rs` is linear in expressions and lists, but collects the errors of
    `anyOf` and `$ref` without a bound, and cannot be interrupted.
    """

    def __init__(self, kind: type[Validator], budget: Budget) -> None:
        from jsonschema.exceptions import ValidationError

        self._theirs: Mapping[str, Any] = kind.VALIDATORS
        self._budget = budget
        self._error = ValidationError
        self._sets: dict[int, tuple[Any, set[str]]] = {}

    def build_keywords(self) -> dict[str, Keyword]:
        """Return the implementations of the keywords by name."""
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
                # This keyword visits all references of the schema without counting, so count them once before.
                rest = {key: entry for key, entry in schema.items() if not key.startswith("unevaluated")}
                for _ in validator.evolve(schema=rest).iter_errors(instance):
                    pass
            for error in keyword(validator, wanted, instance, schema) or ():
                self._budget.spend(1 + len(error.message) // CHARS_PER_STEP)
                yield error

        return spends

    def _search(self, pattern: str, text: str) -> bool:
        if len(pattern) > MAX_EXPRESSION_CHARS:
            raise TakesTooLongError
        self._budget.spend(len(text) >> 10)
        return self._budget.search(pattern, text)

    def _make_key(self, value: Any) -> str:
        return json.dumps(_normalize_numbers(value, self._budget), sort_keys=True)

    def _unique_items(self, validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if wanted and validator.is_type(instance, "array") and len({*map(self._make_key, instance)}) < len(instance):
            yield self._error(f"{instance!r} has non-unique elements")

    def _enum(self, _: Any, options: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
        if id(options) not in self._sets:  # stored with the options, so that no other object can get their id
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
    """Normalize numbers so that equal ones serialize identically: 1.0 becomes 1, and true stays distinct."""
    budget.spend()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normalize_numbers(item, budget) for item in value]
    if isinstance(value, Mapping):
        return {name: _normalize_numbers(item, budget) for name, item in value.items()}
    return value


MAX_COERCION_PASSES = 8
"""Maximum depth of texts that contain coercible values."""
MAX_REPORTED_FAULTS = 3
"""Maximum number of faults that are reported for a call."""
MAX_FAULT_CHARS = 200
"""Maximum length of the description of one fault."""

_PYTHON_LITERALS = {"True": True, "False": False, "None": None}


class Uncheckable(ValueError):
    """The schema is invalid, or has a reference that it does not define."""


class Mismatch(NamedTuple):
    """The faults of arguments; empty if they fit."""

    reason: str = ""
    """The faults in terms of the schema alone."""
    detail: str = ""
    """The faults with quotes of the model's values."""


class Checker:
    """A tool's parameters as a JSON Schema; external references are not fetched."""

    def __init__(self, tool: Tool, budget: Budget) -> None:
        """Raise `Uncheckable` or TakesTooLongError if the schema cannot be used."""
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for
        from referencing import Registry

        schema = dict(tool.parameters)
        draft = validator_for(schema, default=Draft202012Validator)
        # The schema gets a separate budget, because it is checked only once and the model cannot influence it.
        for error in make_counting_validator(draft, Budget())(draft.META_SCHEMA).iter_errors(schema):
            raise Uncheckable(f"the tool's schema is not a JSON Schema: {error.message[:MAX_FAULT_CHARS]}")
        schema_text = json.dumps(schema)
        if '"unevaluated' in schema_text and '"patternProperties"' in schema_text:
            raise Uncheckable("the tool's schema combines unevaluated keywords with `patternProperties`")
        self._validator: Validator = make_counting_validator(draft, budget)(schema, registry=Registry())

    def find_mismatch(self, arguments: Any) -> Mismatch:
        """Describe the faults of arguments and their places. Raises `Uncheckable` or TakesTooLongError."""
        errors = list(islice(self._iterate_errors(arguments), MAX_REPORTED_FAULTS))
        return Mismatch("; ".join(map(_describe_error, errors)), "; ".join(map(_quote_error, errors)))

    def coerce(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
        """Return the coerced arguments and descriptions of the coercions, or None if coercion does not make them fit.

        Arguments that fit are returned without coercions. Raises the same errors as `find_mismatch`.
        """
        value = json.loads(json.dumps(arguments))
        coercions: list[str] = []
        for _ in range(MAX_COERCION_PASSES):  # because a coerced text may contain values to coerce
            errors = list(self._iterate_errors(value))
            if not errors:
                return value, coercions
            if not all(_coerce_error(value, error, coercions) for error in errors):
                return None
        return None

    def _iterate_errors(self, value: Any) -> Iterator[ValidationError]:
        from referencing.exceptions import Unresolvable

        try:
            yield from self._validator.iter_errors(value)
        except Unresolvable as error:
            raise Uncheckable(f"the tool's schema has an undefined reference: {error.ref}") from None


class Arguments(Guard):
    """The guard that checks the arguments of each call against the schema of its tool.

    `manner` says what replaces a call that does not fit; with None the call passes and is reported.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        coerce: bool,
        manner: Manner | None,
        on_failure: OnFailure = "refuse",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(refuses=match_every_tool if manner else None, on_failure=on_failure)
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
            return self._handle_misfit(event, Mismatch(f"they are not JSON: {error}"))
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
        except Exception as error:  # for example too deep nesting, or a number out of range
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
        message = f"The call of `{name}` was not carried out, because its arguments do not fit: "
        message += fault.detail or fault.reason
        return [
            Intervention("arguments", "refused", name, reason, fault.detail),
            Denied(event.raw, event.call, self._manner, message),
        ]


def _describe_error(error: ValidationError) -> str:
    """Describe a fault in terms of the schema alone."""
    path = error.json_path.removeprefix("$").removeprefix(".")
    wanted = repr(error.validator_value)
    if len(wanted) > MAX_FAULT_CHARS // 4 or error.validator in ("additionalProperties", "unevaluatedProperties"):
        wanted = ""
    message = error.message if error.validator == "required" else f"does not fit {error.validator} {wanted}".rstrip()
    return f"{path}: {message}" if path else message


def _quote_error(error: ValidationError) -> str:
    """Describe a fault with a quote of the value."""
    path = error.json_path.removeprefix("$").removeprefix(".")
    message = error.message if len(error.message) <= MAX_FAULT_CHARS else f"{error.message[:MAX_FAULT_CHARS]}…"
    return f"{path}: {message}" if path else message


def _convert_to_type(value: Any, wanted: str | list[str]) -> tuple[Any, str] | None:
    """Convert a value to one of the types; return it and its type, or None if the conversion would not be lossless."""
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


def _coerce_error(value: Any, error: ValidationError, coercions: list[str]) -> bool:
    """Fix one type error inside `value` by coercion, and record it in `coercions`; return False if it is impossible."""
    for part in (error, *(error.context or ())):
        if part.validator == "type" and part.absolute_path:
            coerced = _convert_to_type(part.instance, part.validator_value)
            if coerced is not None:
                _set_at_path(value, [*part.absolute_path], coerced[0])
                coercions.append(f"{part.json_path.removeprefix('$.')} to {coerced[1]}")
                return True
    return False


def _set_at_path(value: Any, path: list[str | int], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new
