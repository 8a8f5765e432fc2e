"""The options of commands that set a setting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from vtc.cli.common import complete_names
from vtc.profiles.settings import Command, Setting, parse_apis
from vtc.proxy.addon_settings import SETTINGS


class ApiNames(click.ParamType[str]):
    """Names of APIs, separated by commas."""

    name = "APIS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_apis(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


PARAMETER_TYPES: dict[str, click.ParamType[Any]] = {
    "api": ApiNames(),
    "log": click.Path(dir_okay=False, path_type=Path),
}
"""The types of options whose texts click checks further."""
PROFILE_FLAGS = ("client", "dialect", "server")
"""Options with the name of a profile, which the shell completes."""


def list_flags(command: Command) -> dict[str, Setting]:
    """Return the settings for which a command has an option, by the name of the option."""
    return {setting.flag: setting for setting in SETTINGS if setting.flag_help and command in setting.commands}


set_option = click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="An option of VTC or mitmproxy.")


def add_flags[F: Callable[..., Any]](command: Command) -> Callable[[F], F]:
    """Make a decorator that adds the options which set a setting to the function of a command."""

    def add(function: F) -> F:
        for name, setting in reversed(list_flags(command).items()):
            choices = get_args(setting.flag_type)
            function = click.option(
                f"--{name.replace('_', '-')}",
                type=click.Choice(choices) if choices else PARAMETER_TYPES.get(name),
                is_flag=bool(setting.flag_sets) or None,  # False would make the value of other options optional
                help=setting.flag_help,
                shell_complete=complete_names(f"{name}s") if name in PROFILE_FLAGS else None,
            )(function)
        return function

    return add
