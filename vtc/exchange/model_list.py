"""Parse servers' lists of models in the form of any API.

`model_list.yaml` lists the paths at which the servers put the name, the context length and so on of a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from vtc.events import ListedModel
from vtc.json_text import decode_json
from vtc.profiles.document import load_table
from vtc.profiles.matching import plain_model


class ModelPaths(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The paths of each fact about a model; the first that leads to a value is used.

    A path is keys joined by `/`, the last one optionally with `*`; `abilities` also have `path=word` for a list that
    contains the word.
    """

    lists: tuple[str, ...]
    name: tuple[str, ...]
    behind: tuple[str, ...]
    family: tuple[str, ...]
    created: tuple[str, ...]
    window: tuple[str, ...]
    longest: tuple[str, ...]
    template: tuple[str, ...]
    abilities: Mapping[str, tuple[str, ...]]


MAX_REAL_NAMES = 8
MAX_NAME_CHARS = 200
_HUB_FOLDER = "models--"
"""Prefix of a model's folder in the cache of Hugging Face: `models--Qwen--Qwen3-8B`."""
_PREFIX = "models/"
"""Prefix of names in Gemini's lists, and of its paths."""


@cache
def _load_paths() -> ModelPaths:
    """Load `model_list.yaml`."""
    return load_table(Path(__file__).with_suffix(".yaml"), ModelPaths)


def read_models(body: bytes) -> list[ListedModel] | None:
    """Parse a server's list of its models; None if it is no such list."""
    value = _try_decode(body)
    if isinstance(value, list):
        return [*_read_entries(value)]
    if not isinstance(value, dict):
        return None
    lists = [value[key] for key in _load_paths().lists if isinstance(value.get(key), list)]
    return [*_read_entries([entry for entries in lists for entry in entries])] if lists else None


def list_model_names(body: bytes) -> list[str]:
    """Return the names in a server's list of its models; empty if it is no such list."""
    return [model.name for model in read_models(body) or ()]


def collect_real_names(models: Iterable[ListedModel]) -> dict[str, tuple[str, ...]]:
    """Map models to the names of the models behind them; the parent of an adapter may be such an alias, too."""
    names = {plain_model(model.name): model.real_names for model in models if model.real_names}
    return {
        alias: tuple(dict.fromkeys(chain.from_iterable(names.get(plain_model(name), (name,)) for name in real_names)))
        for alias, real_names in names.items()
    }


def find_model(body: bytes, name: str) -> ListedModel | None:
    """Find a model in a server's list, or parse a description of that model alone; None if it is missing."""
    listed = read_models(body)
    if listed is None:
        value = _try_decode(body)
        return _read_entry(name, value) if isinstance(value, dict) and "error" not in value else None
    return next((model for model in listed if plain_model(model.name) == plain_model(name)), None)


def strip_prefix(name: str) -> str:
    """Return a name as requests have it in a body."""
    return name.removeprefix(_PREFIX)


def _try_decode(body: bytes) -> Any:
    try:
        return decode_json(body)
    except ValueError:
        return None


def _read_entries(entries: Sequence[Any]) -> Iterator[ListedModel]:
    """Parse entries; merge the facts of several lists about one model."""
    by_name: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name = next(_find_names(entry), "") if isinstance(entry, dict) else ""
        if name:
            by_name[name] = {**by_name.get(name, {}), **entry}
    for name, entry in by_name.items():
        yield _read_entry(strip_prefix(name), entry)


def _find_names(entry: Mapping[str, Any]) -> Iterator[str]:
    return (value for value in _find_values(entry, _load_paths().name) if isinstance(value, str) and value)


def _list_real_names(name: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """List the names of the model behind a name, and the name itself; empty if the server states no other one."""
    behind, family = (
        [_strip_folders(value) for value in _find_values(entry, paths) if isinstance(value, str) and value]
        for paths in (_load_paths().behind, _load_paths().family)
    )
    names = tuple(dict.fromkeys([*behind[:MAX_REAL_NAMES], name, *family[:MAX_REAL_NAMES]]))
    return names if len(names) > 1 else ()


def _strip_folders(name: str) -> str:
    """Return the name of a model in the path of its files: folders may be named after anything."""
    parts = name[-MAX_NAME_CHARS:].replace("\\", "/").rstrip("/").split("/")
    for part in parts:
        if part.startswith(_HUB_FOLDER):
            return part.removeprefix(_HUB_FOLDER).replace("--", "/", 1)
    return "/".join(parts if len(parts) == 2 else parts[-1:]).replace(" ", "-")


def _read_entry(name: str, entry: Mapping[str, Any]) -> ListedModel:
    abilities = {ability: _has_ability(entry, paths) for ability, paths in _load_paths().abilities.items()}
    return ListedModel(
        name=name,
        created=next(filter(None, map(_read_seconds, _find_values(entry, _load_paths().created))), 0),
        window=_find_number(entry, _load_paths().window),
        max_reply_tokens=_find_number(entry, _load_paths().longest),
        real_names=_list_real_names(name, entry),
        template=next((text for text in _find_values(entry, _load_paths().template) if isinstance(text, str)), ""),
        abilities={ability: able for ability, able in abilities.items() if able is not None},
    )


def _find_values(entry: Mapping[str, Any], paths: Sequence[str]) -> Iterator[Any]:
    """Yield the values at each path, except null."""
    for path in paths:
        *keys, last = path.split("/")
        value: Any = entry
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping):
            continue
        for key, inner in value.items():
            if inner is not None and (key == last or ("*" in last and fnmatchcase(key, last))):
                yield inner


def _find_number(entry: Mapping[str, Any], paths: Sequence[str]) -> int:
    return next((value for value in _find_values(entry, paths) if type(value) is int and value > 0), 0)


def _read_seconds(value: Any) -> int:
    """Parse a time into seconds since 1970; 0 if it is no time."""
    if type(value) in (int, float):
        return max(0, int(value))
    with suppress(ValueError, TypeError, OverflowError):
        return max(0, int(datetime.fromisoformat(value).timestamp()))
    return 0


def _has_ability(entry: Mapping[str, Any], paths: Sequence[str]) -> bool | None:
    """Return True or False if the server states whether a model has an ability; None if it does not.

    A list of abilities that lacks the word does not state that the ability is missing.
    """
    answers: list[bool] = []
    for path in paths:
        at, _, word = path.partition("=")
        for value in _find_values(entry, [at]):
            if word:
                if word == value or (isinstance(value, list) and word in value):
                    answers.append(True)
            elif isinstance(value, Mapping):
                answers.append(bool(value.get("supported", value)))
            elif isinstance(value, bool):
                answers.append(value)
    return any(answers) if answers else None
