"""JSON Schema within a budget: the keywords of `jsonschema`, counted, and own ones where theirs have no bound.

No library that was looked at bounds this. `jsonschema-rs` has linear expressions and lists, but collects errors of
`anyOf` and `$ref` without a bound, where nothing can stop it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from vtc.guards.budget import MOST_PATTERN, Budget, TakesTooLongError

# `jsonschema` is slow to import, and most profiles check no arguments: it is imported where it is used.
if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

type Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]

WALKS = {
    *("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems", "propertyNames", "dependencies"),
    *("patternProperties", "additionalProperties", "unevaluatedProperties"),
}
"""Keywords that look at each item of a value, whatever they ask of it."""
LOOKED_UP = {"properties", "required", "dependentRequired", "dependentSchemas", "dependencies"}
"""Keywords that look each of their entries up in the value, which is quick."""
REFERS = {"$ref", "$dynamicRef", "$recursiveRef"}
"""Keywords that lead to another place of the schema, which takes as long as some others together."""
REFERENCE = 5
"""Steps of one."""
PER_STEP = 16
"""Entries that are looked up in a step."""
CHARACTERS = 64
"""Characters of a message that are written in a step: it may quote all arguments."""


def counted(kind: type[Validator], budget: Budget) -> type[Validator]:
    """Make a validator of a draft that spends of a budget; it raises TakesTooLongError."""
    import attrs
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    sets: dict[int, tuple[Any, set[str]]] = {}

    def search(pattern: str, text: str) -> bool:
        if len(pattern) > MOST_PATTERN:
            raise TakesTooLongError
        budget.spend(len(text) >> 10)
        return budget.search(pattern, text)

    def key(value: Any) -> str:
        return json.dumps(_plain(value, budget), sort_keys=True)

    def is_one_of(value: Any, options: Any) -> bool:
        if id(options) not in sets:  # with the options, so that no other object gets their id
            sets[id(options)] = options, {*map(key, options)}
        return key(value) in sets[id(options)][1]

    def unique_items(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if wanted and validator.is_type(instance, "array") and len({*map(key, instance)}) < len(instance):
            yield ValidationError(f"{instance!r} has non-unique elements")

    def enum(_: Any, options: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
        if not is_one_of(instance, options):
            yield ValidationError(f"{instance!r} is not one of {options!r}")

    def const(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
        if key(instance) != key(wanted):
            yield ValidationError(f"{wanted!r} was expected")

    def pattern(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "string") and not search(wanted, instance):
            yield ValidationError(f"{instance!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "object"):
            for one, subschema in wanted.items():
                for name, value in instance.items():
                    if search(one, name):
                        yield from validator.descend(value, subschema, path=name, schema_path=one)

    def additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        patterns = schema.get("patternProperties", {})
        if patterns and validator.is_type(instance, "object"):
            found = {name: True for name in instance if any(search(one, name) for one in patterns)}
            schema = {"properties": {**schema.get("properties", {}), **found}}
        yield from kind.VALIDATORS["additionalProperties"](validator, wanted, instance, schema) or ()

    own: dict[str, Keyword] = {
        "uniqueItems": unique_items,
        "enum": enum,
        "const": const,
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }

    def spending(name: str, keyword: Keyword) -> Keyword:
        def spends(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            looked = _size(wanted) // PER_STEP if name in LOOKED_UP else 0
            walked = _size(instance) if name in WALKS else 0
            budget.spend(looked + walked + (REFERENCE if name in REFERS else 1))
            if name.startswith("unevaluated"):
                # It goes through all that the schema refers to, uncounted: so be it counted once before.
                rest = {one: entry for one, entry in schema.items() if not one.startswith("unevaluated")}
                for _ in validator.evolve(schema=rest).iter_errors(instance):
                    pass
            for error in keyword(validator, wanted, instance, schema) or ():
                budget.spend(1 + len(error.message) // CHARACTERS)
                yield error

        return spends

    theirs: Mapping[str, Any] = kind.VALIDATORS
    keywords = {name: spending(name, own.get(name, keyword)) for name, keyword in theirs.items()}
    made: Any = extend(kind, keywords)  # type: ignore[no-untyped-call]
    # Theirs takes a validator that does not count, if a part of the schema names a draft.
    made.evolve = attrs.evolve
    return cast("type[Validator]", made)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _plain(value: Any, budget: Budget) -> Any:
    """A value in which numbers that are equal are the same: 1.0 is 1, and true is neither."""
    budget.spend()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item, budget) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item, budget) for name, item in value.items()}
    return value
