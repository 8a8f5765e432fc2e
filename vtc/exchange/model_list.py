"""Parse servers' lists of models in the form of any API; the paths of their values are data (`model_list.yaml`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from vtc.events import ListedModel
from vtc.json_text import decode
from vtc.profiles.document import table
from vtc.profiles.matching import plain_model


class ModelPaths(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The paths in servers' lists of models, by meaning."""

    lists: tuple[str, ...]
    name: tuple[str, ...]
    created: tuple[str, ...]
    window: tuple[str, ...]
    longest: tuple[str, ...]
    abilities: Mapping[str, tuple[str, ...]]


_PREFIX = "models/"
"""Prefix of names in Gemini's lists, and of its paths."""


@cache
def _paths() -> ModelPaths:
    """Load `model_list.yaml`."""
    return table(Path(__file__).with_suffix(".yaml"), ModelPaths)


def read_models(body: bytes) -> list[ListedModel] | None:
    """Parse a server's list of its models; None if it is no such list."""
    value = _try_decode(body)
    if isinstance(value, list):
        return [*_models(value)]
    if not isinstance(value, dict):
        return None
    lists = [value[key] for key in _paths().lists if isinstance(value.get(key), list)]
    return [*_models([entry for entries in lists for entry in entries])] if lists else None


def list_model_names(body: bytes) -> list[str]:
    """Return the names in a server's list of its models; empty if it is no such list."""
    return [model.name for model in read_models(body) or ()]


def find_model(body: bytes, name: str) -> ListedModel | None:
    """Find a model in a server's list, or parse a description of that model alone; None if it is missing."""
    listed = read_models(body)
    if listed is None:
        value = _try_decode(body)
        return _model(name, value) if isinstance(value, dict) and "error" not in value else None
    return next((model for model in listed if plain_model(model.name) == plain_model(name)), None)


def strip_prefix(name: str) -> str:
    """Return a name as requests have it in a body."""
    return name.removeprefix(_PREFIX)


def _try_decode(body: bytes) -> Any:
    try:
        return decode(body)
    except ValueError:
        return None


def _models(entries: Sequence[Any]) -> Iterator[ListedModel]:
    """Parse entries; merge the facts of several lists about one model."""
    by_name: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name = next(_texts(entry), "") if isinstance(entry, dict) else ""
        if name:
            by_name[name] = {**by_name.get(name, {}), **entry}
    for name, entry in by_name.items():
        yield _model(strip_prefix(name), entry)


def _texts(entry: Mapping[str, Any]) -> Iterator[str]:
    return (value for value in _values(entry, _paths().name) if isinstance(value, str) and value)


def _model(name: str, entry: Mapping[str, Any]) -> ListedModel:
    abilities = {ability: _has_ability(entry, paths) for ability, paths in _paths().abilities.items()}
    return ListedModel(
        name=name,
        created=next(filter(None, map(_read_seconds, _values(entry, _paths().created))), 0),
        window=_number(entry, _paths().window),
        max_reply_tokens=_number(entry, _paths().longest),
        abilities={ability: able for ability, able in abilities.items() if able is not None},
    )


def _values(entry: Mapping[str, Any], paths: Sequence[str]) -> Iterator[Any]:
    """Yield the values at each path, except null."""
    for path in paths:
        *keys, last = path.split("/")
        value: Any = entry
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        for key, inner in value.items() if isinstance(value, Mapping) else ():
            if inner is not None and (key == last or ("*" in last and fnmatchcase(key, last))):
                yield inner


def _number(entry: Mapping[str, Any], paths: Sequence[str]) -> int:
    return next((value for value in _values(entry, paths) if type(value) is int and value > 0), 0)


def _read_seconds(value: Any) -> int:
    """Parse a time into seconds since 1970; 0 if it is no time."""
    if type(value) in (int, float):
        return max(0, int(value))
    with suppress(ValueError, TypeError, OverflowError):
        return max(0, int(datetime.fromisoformat(value).timestamp()))
    return 0


def _has_ability(entry: Mapping[str, Any], paths: Sequence[str]) -> bool | None:
    """Return whether a model has an ability; None if nothing states it, as for a list that merely lacks the word."""
    answers: list[bool] = []
    for path in paths:
        at, _, word = path.partition("=")
        for value in _values(entry, [at]):
            if word:
                answers += [True] if word == value or (isinstance(value, list) and word in value) else []
            elif isinstance(value, Mapping):
                answers.append(bool(value.get("supported", value)))
            elif isinstance(value, bool):
                answers.append(value)
    return any(answers) if answers else None
