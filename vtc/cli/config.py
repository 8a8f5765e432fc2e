"""`vtc.yaml`: what `vtc run` is started with, so that it need not be typed.

    upstream: http://127.0.0.1:8000
    port: 8088
    profiles: [my-profiles]
    options: {vtc_lenient: "off"}

It is looked for in the current folder, then in the user's folder for settings; what the command line says wins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import click
import msgspec

from vtc.profiles import document
from vtc.profiles.document import KeyPath, Problem, ProfileError
from vtc.proxy import launch
from vtc.proxy.trust import Trust

CONFIG_FILE_NAME = "vtc.yaml"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of `vtc run`; null is what holds without the file."""

    upstream: str = ""
    """The model server, such as `http://127.0.0.1:8000`."""
    host: str | None = None
    """The address that VTC listens on."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    """The port that clients connect to."""
    web: bool = False
    """In mitmweb."""
    profiles: tuple[str, ...] = ()
    """Directories or files with profiles of your own, from where this file lies."""
    tools: Literal["auto", "native", "prompt"] | None = None
    """How tools reach the model."""
    dialect: str | None = None
    """The dialect in which the model is prompted."""
    blocks: Literal["auto", "text", "last"] | None = None
    """What a call is that stands as JSON in a code block which ends the reply: an example, or a call."""
    model: str | None = None
    """The model that the server is asked for in the place of each that it does not list."""
    server: str | None = None
    """The server profile, if the server is not recognised."""
    api: str | None = None
    """The APIs that the server speaks, parted by commas, if not those that it shows."""
    key_env: str | None = None
    """The variable of the environment that holds the key of `upstream`, for clients that send none."""
    share_keys: bool = False
    """Clients on other machines may spend the keys that server profiles have from the environment (`key_env`)."""
    retry: bool = False
    """Ask the model once more about a faulty reply, and where it ends its turn without a word."""
    observe: bool = False
    """Change nothing, and tell what would have been done."""
    log: str | None = None
    """A file that gets a line of JSON for each exchange, from where this file lies."""
    options: dict[str, str | int | bool | tuple[str, ...]] = {}
    """Options of VTC and mitmproxy by name, as after `--set`."""
    mitmproxy: tuple[str, ...] = ()
    """Arguments for mitmproxy, as after `--`."""

    def build_arguments(self) -> list[str]:
        """Make the arguments for mitmproxy that the command has no options for."""
        return [*launch.format_sets(_format_settings(self.options)), *self.mitmproxy]

    def build_trust(self, sets: Sequence[str]) -> Trust:
        """Say whose certificates are trusted; what is typed wins."""
        return Trust.from_settings([*launch.list_settings(self.build_arguments()), *sets])

    def choose_confdir(self, sets: Sequence[str]) -> str:
        """Name the folder of mitmproxy's certificates; the command line has precedence."""
        return launch.choose_confdir([*launch.list_settings(self.build_arguments()), *sets])

    def list_specs(self) -> dict[KeyPath, list[str]]:
        """List by its key what each setting makes of mitmproxy's options, as `NAME=VALUE`."""
        own: dict[KeyPath, list[str]] = {(key,): format_options({key: getattr(self, key)}) for key in ADDON_OPTIONS}
        of_addon: dict[KeyPath, list[str]] = {
            ("options", name): [*_format_settings({name: value})] for name, value in self.options.items()
        }
        return {**own, **of_addon, ("mitmproxy",): launch.list_settings(self.mitmproxy)}


ADDON_OPTIONS = {
    "tools": "vtc_tools=",
    "dialect": "vtc_dialect=",
    "blocks": "vtc_blocks=",
    "model": "vtc_models=",
    "server": "vtc_server=",
    "api": "vtc_upstream_api=",
    "key_env": "vtc_key_env=",
    "share_keys": "vtc_share_keys=on",
    "retry": "vtc_retry=on",
    "observe": "vtc_mode=observe",
    "log": "vtc_log=",
}
"""The options of the addon that have keys and options of the command; a value stands behind `=`."""


def format_options(values: Mapping[str, object]) -> list[str]:
    """Write the values of keys that are given as `NAME=VALUE`."""
    given = [(ADDON_OPTIONS[key], value) for key, value in values.items() if value]
    return [f"{option}{value}" if option.endswith("=") else option for option, value in given]


def find_config(named: Path | None) -> Path | None:
    """The file that holds: the one that is named, one in the current folder, one in the user's folder."""
    places = [Path(CONFIG_FILE_NAME), Path(click.get_app_dir("vtc"), CONFIG_FILE_NAME)]
    return named or next((place for place in places if place.is_file()), None)


NO_CONFIG_FILE = Path()


def load_config(named: Path | None) -> tuple[Path, Config]:
    """Return the file that holds, `NOWHERE` if there is none, and its settings; ends the program with what is wrong."""
    file = find_config(named)
    if file is None:
        return NO_CONFIG_FILE, Config()
    try:
        return file, read_config(file)
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def read_config(file: Path) -> Config:
    """Read the settings; raises `ProfileError` with each mistake, by line and key."""
    documents, problems = document.read(file)
    if not documents and not problems:
        return Config()
    for parsed in documents:
        problems += document.problems(parsed, Config)
        problems += [
            parsed.problem(path, "holds the character NUL, which no argument of a program can; remove it")
            for path, text in _iter_texts(parsed.value, ())
            if "\0" in text
        ]
    if problems:
        raise ProfileError(problems)
    return msgspec.convert(documents[0].value, Config)


def build_problem(file: Path, key: KeyPath, message: str) -> Problem:
    """Make a problem of what a key of the file says."""
    (parsed,), _ = document.read(file)
    name = str(key[-1])
    for prefix in (ADDON_OPTIONS.get(name, "").rstrip("="), f"--{name.replace('_', '-')}", name):
        message = message.removeprefix(f"{prefix}: ")
    return parsed.problem(key, message)


def list_directories(file: Path, settings: Config) -> tuple[Path, ...]:
    """List the directories of profiles; ends the program if one is not there."""
    paths = [resolve_path(file, path) for path in settings.profiles]
    missing = [index for index, path in enumerate(paths) if not path.exists()]
    for index in missing:
        message = f"{paths[index]}: no such directory; create it or correct the path"
        click.echo(str(build_problem(file, ("profiles", index), message)), err=True)
    if missing:
        sys.exit(1)
    return tuple(paths)


def _iter_texts(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Each text of a document, names of keys too, and where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), key
            yield from _iter_texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _iter_texts(inner, (*path, index))


def resolve_path(file: Path, path: str) -> Path:
    """A path that is written in the file."""
    return file.parent / Path(path).expanduser()


def _format_settings(options: Mapping[str, str | int | bool | tuple[str, ...]]) -> Iterator[str]:
    """Write options by name as `NAME=VALUE`."""
    for name, value in options.items():
        for item in value if isinstance(value, tuple) else (value,):
            # YAML takes `on` and `off`, unquoted, for true and false.
            words = ("off", "on") if name.startswith("vtc_") else ("false", "true")
            yield f"{name}={words[item] if isinstance(item, bool) else item}"
