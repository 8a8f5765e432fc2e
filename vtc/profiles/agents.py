"""How to start coding agents so that they use VTC: the keys of `kind: agent`, and their values for one run.

    kind: agent
    name: codex
    commands: [codex]
    variables: {VTC_KEY: "{key}"}
    arguments: ["--model", "{model}", "--config", "model_providers.vtc.base_url={address}/v1"]

Nothing here starts a program or touches a file of the user's: an agent is configured by variables and arguments, and
by files in a new folder (`{folder}`) if those do not suffice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from vtc.guards.patterns import prefix_errors
from vtc.profiles.schema import VARIABLE, ApiName, ProfileText

PLACES = ("address", "folder", "key", "model", "window")
"""Names that may appear in braces: VTC's address without a path, the folder of the agent's files, the key that it
sends, the model's name, and the size of its context window in tokens."""
_PLACE = re.compile(r"\{([a-z]+)\}")


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable, in place of its value."""

    name: str


type Value = str | Variable
type Phrase = tuple[Value, ...]
"""A text, with variables between its parts."""


def check_places(template: str) -> None:
    """Raise `ValueError` if a text has an unknown placeholder."""
    for match in _PLACE.finditer(template):
        if match[1] not in PLACES:
            known = ", ".join(f"{{{name}}}" for name in PLACES)
            raise ValueError(f"there is no {match[0]}; what is put in is {known}")


def phrase(template: str, values: Mapping[str, Value], *, quoted: bool = False) -> Phrase:
    """Fill in the placeholders of a text; `quoted` values are escaped as JSON, TOML and JavaScript do between double
    quotes."""
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


def join_phrase(words: Phrase) -> str:
    """Return the text of a phrase without variables."""
    return "".join(part for part in words if isinstance(part, str))


type Template = Annotated[str, msgspec.Meta(extra_json_schema={"format": "template"})]


class TriedVersion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The version of an agent that was tested this way, with a call carried out."""

    version: ProfileText
    """Its version number."""
    date: ProfileText
    """The day: `2026-11-26`."""


class LoginServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The server of an agent's makers, on which the user's login, models and settings remain."""

    hosts: Annotated[tuple[ProfileText, ...], msgspec.Meta(min_length=1)]
    """Its names."""
    variables: dict[str, Template | dict[str, Any] | None]
    """Environment variables in place of those of the profile; its arguments and files are left out."""


class AgentProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A coding agent, and how to start it so that it uses VTC (`vtc launch`, `vtc env`).

    In texts `{address}` is VTC's address without a path, `{model}` the name of the model, `{key}` the key that the
    agent sends, and `{folder}` a new folder that contains its `files`. `{window}` is the size of the model's context
    window in tokens; if the server does not state it, a variable with it is left out.
    """

    kind: Literal["agent"] = "agent"
    """Kind of this profile."""
    name: ProfileText
    """Name of the agent: `vtc launch NAME`. Your profile replaces a built-in one of the same name."""
    description: str = ""
    """Its name for people."""
    api: ApiName
    """The API that it speaks."""
    commands: Annotated[tuple[ProfileText, ...], msgspec.Meta(min_length=1)]
    """The names of its program; the first installed one is started."""
    install: str = ""
    """The command that installs it."""
    variables: dict[str, Template | dict[str, Any] | None] = {}
    """Environment variables; a mapping is rendered as JSON, and null unsets one of the user's."""
    arguments: tuple[Template, ...] = ()
    """Arguments before those of the user."""
    login: LoginServer | None = None
    """Its makers' own server. It applies if neither a model nor a key is named."""
    files: dict[str, Template | dict[str, Any]] = {}
    """Files by name in a folder that is created for one run; a mapping is rendered as JSON, which is also YAML. Values
    appear between double quotes there."""
    headless: tuple[str, ...] = ()
    """Arguments that make it process a single prompt, `{prompt}`, and exit; reading files needs no permission."""
    tried: TriedVersion | None = None
    """The tested version; null: according to its documentation."""
    source: str = ""
    """Source in its makers' documentation."""
    note: str = ""
    """A remark for users, in one line."""

    def __post_init__(self) -> None:
        for key in (*self.variables, *(self.login.variables if self.login else ())):
            if not VARIABLE.fullmatch(key):
                raise ValueError(f"variables: {key!r} is no name of a variable")
        for name in self.files:
            if not _FILE.fullmatch(name):
                raise ValueError(f"files: {name!r} must be the path of a file inside of the folder: settings/a.json")
        for key, template in self._templates():
            with prefix_errors(key):
                check_places(template)

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.description or self.name

    def with_login(self, server: str) -> AgentProfile | None:
        """Return the profile for the user's login at the URL of a server; None if that is not its makers' own."""
        if self.login is None or urlsplit(server).hostname not in self.login.hosts:
            return None
        return replace(self, variables=self.login.variables, arguments=(), files={})

    def setup(self, values: Mapping[str, Value]) -> AgentSetup:
        """Fill an address, a model, a key and a folder into all of its texts."""
        return AgentSetup(
            files={name: _content(content, values) for name, content in self.files.items()},
            variables={
                name: phrase(content, values) if isinstance(content, str) else _content(content, values)
                for name, content in self.variables.items()
                if content is not None and (values.get("window") or not _needs_window(content))
            },
            unset=tuple(name for name, content in self.variables.items() if content is None),
            arguments=tuple(phrase(argument, values) for argument in self.arguments),
        )

    def _templates(self) -> Iterator[tuple[str, str]]:
        texts: dict[str, Mapping[str, object]] = {"variables": self.variables, "files": self.files}
        texts["login.variables"] = self.login.variables if self.login else {}
        for key, contents in texts.items():
            for name, content in contents.items():
                yield f"{key}.{name}", content if isinstance(content, str) else json.dumps(content)
        for argument in self.arguments:
            yield "arguments", argument


def _needs_window(content: object) -> bool:
    return "{window}" in str(content)


_FILE = re.compile(r"(?!\.\.?(/|$))[\w.-]+(/(?!\.\.?(/|$))[\w.-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """The files, variables and arguments by which an agent uses VTC."""

    files: Mapping[str, Phrase]
    variables: Mapping[str, Phrase]
    unset: Sequence[str]
    """Variables of the user that would send the agent elsewhere, or send the user's key."""
    arguments: Sequence[Phrase]


def _content(content: str | Mapping[str, Any], values: Mapping[str, Value]) -> Phrase:
    """Render the content of a file, or of a variable that contains JSON."""
    template = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return phrase(template, values, quoted=True)
