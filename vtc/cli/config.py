"""`vtc.yaml`: settings of `vtc run`, so that they need not be typed.

    upstream: http://127.0.0.1:8000
    port: 8088
    profiles: [my-profiles]
    options: {vtc_lenient: "off"}

The first file of that name is used, in the current folder or in the user's folder for settings. Options of the command
line have precedence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import click
import msgspec
from msgspec import Meta

from vtc.cli.flags import list_flags
from vtc.profiles import document
from vtc.profiles.document import KeyPath, Problem, ProfileError
from vtc.proxy import launch
from vtc.proxy.trust import Trust

CONFIG_FILE_NAME = "vtc.yaml"


type Port = Annotated[int, Meta(ge=0, le=65535)]
SETTING_KEYS = list_flags("run")


def add_setting_keys[C](config: type[C]) -> type[C]:
    """Add the keys that set a setting to the class of all keys."""
    keys = [
        (name, Annotated[setting.flag_type | None, Meta(description=setting.flag_help)], None)
        for name, setting in SETTING_KEYS.items()
    ]
    return cast(type[C], msgspec.defstruct(config.__name__, keys, bases=(config,), kw_only=True))


@add_setting_keys
class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of `vtc run`; null stands for the default."""

    upstream: Annotated[str, Meta(description="The model server, for example `http://127.0.0.1:8000`.")] = ""
    web: Annotated[bool, Meta(description="Run mitmweb, which shows exchanges in a browser.")] = False
    port: Annotated[Port | None, Meta(description=f"The port for clients; 0: any free one. [{launch.PORT}]")] = None
    host: Annotated[
        str | None,
        Meta(description="The address to listen at; 0.0.0.0 for clients on other machines. [127.0.0.1]"),
    ] = None
    profiles: Annotated[
        tuple[str, ...],
        Meta(description="Directories or files with your own profiles; paths are relative to this file."),
    ] = ()
    options: Annotated[
        dict[str, str | int | bool | tuple[str, ...]],
        Meta(description="Options of VTC and mitmproxy by name, as after `--set`."),
    ] = {}
    mitmproxy: Annotated[tuple[str, ...], Meta(description="Arguments for mitmproxy, as after `--`.")] = ()

    @property
    def flags(self) -> dict[str, Any]:
        """The values of the keys that set a setting; None for those that the file lacks. `log` is a resolved path."""
        return {name: getattr(self, name) for name in SETTING_KEYS}

    def build_arguments(self) -> list[str]:
        """Return the arguments for mitmproxy from `options` and `mitmproxy`."""
        return [*launch.format_sets(_format_settings(self.options)), *self.mitmproxy]

    def build_trust(self, sets: Sequence[str]) -> Trust:
        """Return the trusted certificates; `sets` of the command line have precedence."""
        return Trust.from_settings(self._list_sets(sets))

    def choose_confdir(self, sets: Sequence[str]) -> str:
        """Return the folder of mitmproxy's certificates; `sets` of the command line have precedence."""
        return launch.choose_confdir(self._list_sets(sets))

    def _list_sets(self, sets: Sequence[str]) -> list[str]:
        return [*launch.list_settings(self.build_arguments()), *sets]

    def list_specs(self) -> dict[KeyPath, list[str]]:
        """Return the options of mitmproxy as `NAME=VALUE`, by the key of this file that sets them."""
        own: dict[KeyPath, list[str]] = {(name,): format_options({name: value}) for name, value in self.flags.items()}
        of_addon: dict[KeyPath, list[str]] = {
            ("options", name): [*_format_settings({name: value})] for name, value in self.options.items()
        }
        return {**own, **of_addon, ("mitmproxy",): launch.list_settings(self.mitmproxy)}


KEY_DESCRIPTIONS = {field.name: get_args(field.type)[1].description for field in msgspec.structs.fields(Config)}
"""The descriptions of all keys."""


def format_options(values: Mapping[str, object]) -> list[str]:
    """Format keys that set a setting as options `NAME=VALUE` of the addon, without empty values."""
    settings = [(SETTING_KEYS[name], value) for name, value in values.items() if value]
    return [f"{setting.option}={setting.flag_sets or value}" for setting, value in settings]


def find_config(named: Path | None) -> Path | None:
    """Return the file of settings: the named one, else one in the current folder or the user's folder, else None."""
    places = [Path(CONFIG_FILE_NAME), Path(click.get_app_dir("vtc"), CONFIG_FILE_NAME)]
    return named or next((place for place in places if place.is_file()), None)


NO_CONFIG_FILE = Path()
"""Stands for the file of settings if there is none."""


def load_config(named: Path | None) -> tuple[Path, Config]:
    """Load the settings; return their file (`NO_CONFIG_FILE` if there is none) and the settings.

    Prints mistakes and exits with 1 if there are any.
    """
    file = find_config(named)
    if file is None:
        return NO_CONFIG_FILE, Config()
    try:
        return file, read_config(file)
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def read_config(file: Path) -> Config:
    """Parse a file of settings; raise `ProfileError` with all mistakes, each with its line and key."""
    documents, problems = document.read_documents(file)
    if not documents and not problems:
        return Config()
    for parsed in documents:
        problems += document.problems(parsed, Config)
        problems += [
            parsed.problem(path, "contains the character NUL, which arguments of a program cannot contain; remove it")
            for path, text in _iter_texts(parsed.value, ())
            if "\0" in text
        ]
    if problems:
        raise ProfileError(problems)
    config = msgspec.convert(documents[0].value, Config)
    log = config.flags["log"]
    return msgspec.structs.replace(config, log=resolve_path(file, log)) if log else config


def build_problem(file: Path, key: KeyPath, message: str) -> Problem:
    """Build the problem of a key of the file.

    The name of the key, its option or its argument is removed from the start of the message, because the problem
    names the key itself.
    """
    (parsed,), _ = document.read_documents(file)
    name = str(key[-1])
    option = SETTING_KEYS[name].option if name in SETTING_KEYS else name
    for prefix in (option, f"--{name.replace('_', '-')}", name):
        message = message.removeprefix(f"{prefix}: ")
    return parsed.problem(key, message)


def list_directories(file: Path, settings: Config) -> tuple[Path, ...]:
    """Return the paths of profiles; print the missing ones and exit with 1 if there are any."""
    paths = [resolve_path(file, path) for path in settings.profiles]
    missing = [index for index, path in enumerate(paths) if not path.exists()]
    for index in missing:
        message = f"{paths[index]}: no such directory; create it or correct the path"
        click.echo(str(build_problem(file, ("profiles", index), message)), err=True)
    if missing:
        sys.exit(1)
    return tuple(paths)


def _iter_texts(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield each text of a document, including names of keys, with its path."""
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
    """Resolve a path in the file, which is relative to the file's folder."""
    return file.parent / Path(path).expanduser()


def _format_settings(options: Mapping[str, str | int | bool | tuple[str, ...]]) -> Iterator[str]:
    """Format options by name as `NAME=VALUE`; a list results in one for each item."""
    for name, value in options.items():
        for item in value if isinstance(value, tuple) else (value,):
            # YAML parses unquoted `on` and `off` as true and false.
            words = ("off", "on") if name.startswith("vtc_") else ("false", "true")
            yield f"{name}={words[item] if isinstance(item, bool) else item}"
