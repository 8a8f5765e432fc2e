"""How coding agents are started so that they ask VTC: the keys of `kind: agent`, and what they come to.

    kind: agent
    name: codex
    commands: [codex]
    variables: {VTC_KEY: "{key}"}
    arguments: ["--model", "{model}", "--config", "model_providers.vtc.base_url={address}/v1"]

Nothing here starts anything or touches a file of the user's: an agent is told by variables and arguments, and by files
of its own in a new folder (`{folder}`) where those do not reach.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from vtc.guards.patterns import naming
from vtc.profiles.schema import VARIABLE, ApiName, ProfileText

# Texts with places in them.


PLACES = ("address", "folder", "key", "model")
"""What may stand in braces: VTC's address without a path, the folder of the agent's files, the key that it sends, the
name of the model."""
_PLACE = re.compile(r"\{([a-z]+)\}")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the environment, in the place of its value."""

    name: str


type Value = str | Variable
type Phrase = tuple[Value, ...]
"""A text, with variables between its parts."""


def check_places(template: str) -> None:
    """Raise `ValueError` if a text has a place that is none."""
    for match in _PLACE.finditer(template):
        if match[1] not in PLACES:
            known = ", ".join(f"{{{name}}}" for name in PLACES)
            raise ValueError(f"there is no {match[0]}; what is put in is {known}")


def phrase(template: str, values: Mapping[str, Value], *, quoted: bool = False) -> Phrase:
    """Put values into a text; `quoted` ones as JSON, TOML and JavaScript write them between double quotes."""
    parts: list[Value] = []
    for number, part in enumerate(_PLACE.split(template)):
        value: Value = values[part] if number % 2 else part
        if number % 2 and quoted and isinstance(value, str):
            value = json.dumps(value)[1:-1]
        if isinstance(value, str) and parts and isinstance(parts[-1], str):
            parts[-1] += value
        elif value:
            parts.append(value)
    return tuple(parts)


def text(words: Phrase) -> str:
    """Return a phrase that holds no variable as a text."""
    return "".join(part for part in words if isinstance(part, str))


# The keys.


type Template = Annotated[str, msgspec.Meta(extra_json_schema={"format": "template"})]


class TriedVersion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The version of an agent that was run in this way, with a call carried out."""

    version: ProfileText
    """Its own number."""
    date: ProfileText
    """The day: `2026-11-26`."""


class AgentProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A coding agent, and how it is started so that it asks VTC (`vtc launch`, `vtc env`).

    In texts `{address}` is VTC's address without a path, `{model}` the name of the model, `{key}` the key that the
    agent sends, and `{folder}` a new folder that holds its `files`.
    """

    kind: Literal["agent"] = "agent"
    """What this profile is about."""
    name: ProfileText
    """What it is called by: `vtc launch NAME`. A profile of yours with the name of a built-in one takes its place."""
    description: str = ""
    """Its name for people."""
    api: ApiName
    """The API that it speaks."""
    commands: Annotated[tuple[ProfileText, ...], msgspec.Meta(min_length=1)]
    """The names of its program; the first that is installed is started."""
    install: str = ""
    """The line that installs it."""
    variables: dict[str, Template | dict[str, Any] | None] = {}
    """Variables of its environment; a mapping is written as JSON, and null takes out one of the user's."""
    arguments: tuple[Template, ...] = ()
    """Arguments that go ahead of those of the user."""
    files: dict[str, Template | dict[str, Any]] = {}
    """Files by name in a folder made for this one run; a mapping is written as JSON, which is YAML, too. Values stand
    between double quotes there."""
    headless: tuple[str, ...] = ()
    """Arguments by which it carries out a single prompt, `{prompt}`, and ends; reading files needs no leave."""
    tried: TriedVersion | None = None
    """What was run; null: as its documentation tells."""
    source: str = ""
    """Where its makers say so."""
    note: str = ""
    """What to know about it, in one line."""

    def __post_init__(self) -> None:
        for key in self.variables:
            if not VARIABLE.fullmatch(key):
                raise ValueError(f"variables: {key!r} is no name of a variable")
        for name in self.files:
            if not _FILE.fullmatch(name):
                raise ValueError(f"files: {name!r} must be the path of a file inside of the folder: settings/a.json")
        for key, template in self._templates():
            with naming(key):
                check_places(template)

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.description or self.name

    def setup(self, values: Mapping[str, Value]) -> AgentSetup:
        """Put an address, a model, a key and a folder into all of its texts."""
        return AgentSetup(
            files={name: _content(content, values) for name, content in self.files.items()},
            variables={
                name: phrase(content, values) if isinstance(content, str) else _content(content, values)
                for name, content in self.variables.items()
                if content is not None
            },
            unset=tuple(name for name, content in self.variables.items() if content is None),
            arguments=tuple(phrase(argument, values) for argument in self.arguments),
        )

    def _templates(self) -> Iterator[tuple[str, str]]:
        for key in ("variables", "files"):
            for name, content in getattr(self, key).items():
                yield f"{key}.{name}", content if isinstance(content, str) else json.dumps(content)
        for argument in self.arguments:
            yield "arguments", argument


_FILE = re.compile(r"(?!\.\.?(/|$))[\w.-]+(/(?!\.\.?(/|$))[\w.-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """The files, variables and arguments by which an agent asks VTC."""

    files: Mapping[str, Phrase]
    variables: Mapping[str, Phrase]
    unset: Sequence[str]
    """Variables of the user's that would lead it elsewhere, or send a key of theirs."""
    arguments: Sequence[Phrase]


def _content(content: str | Mapping[str, Any], values: Mapping[str, Value]) -> Phrase:
    """Write the content of a file, or of a variable that holds JSON."""
    template = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return phrase(template, values, quoted=True)
