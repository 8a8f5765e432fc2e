"""Declare the settings as options for mitmproxy's editor and `--set`, and build planner and memory from them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from mitmproxy import ctx, exceptions
from mitmproxy.optmanager import OptManager
from mitmproxy.utils import typecheck

from vtc.profiles import loader as profile_loader
from vtc.profiles.document import ProfileError, suggest_nearest
from vtc.profiles.matching import is_glob
from vtc.profiles.memory import Memory
from vtc.profiles.planner import Planner
from vtc.profiles.schema import VARIABLE
from vtc.profiles.settings import Settings, parse_apis
from vtc.profiles.stack import UnknownName
from vtc.proxy.addon_settings import SETTINGS
from vtc.proxy.secret import SecretError, read_secrets
from vtc.proxy.trust import Trust, TrustError

if TYPE_CHECKING:  # some commands load this module only to check options
    from mitmproxy.addonmanager import Loader

# mitmproxy defers options that no addon has declared yet, and applies them while it loads the script. If it rejects one
# there, it drops the script without a visible error, and everything would pass unchanged. So the addon applies deferred
# options itself, and reports wrong ones.


class AppliedOptions(NamedTuple):
    """Messages about the options that were deferred and have been applied."""

    faults: list[str]
    """Errors of rejected options."""
    notes: list[str]
    """Notes on options that were applied differently than given."""


def apply_deferred(options: OptManager) -> AppliedOptions:
    """Apply deferred options, except wrong ones. The last of multiple values wins."""
    applied = AppliedOptions([], [])
    for name, value in [*options.deferred.items()]:
        if not name.startswith("vtc"):
            continue
        if fault := _find_fault(options, name, value):
            applied.faults.append(fault)
            del options.deferred[name]
        elif name in options and options._options[name].typespec != Sequence[str]:
            texts = getattr(value, "val", [])
            if len(texts) > 1:
                applied.notes.append(f"{name} is given {len(texts)} times: the last value, {texts[-1]}, wins")
                del texts[:-1]
    try:
        options.process_deferred()
    except (exceptions.OptionsError, TypeError) as error:  # an option of another addon
        applied.faults.append(str(error))
    return applied


def format_missing_value(name: str) -> str:
    """Format the error about an option without a value."""
    return f"{name} has no value: --set {name}=…"


def _find_fault(options: OptManager, name: str, value: object) -> str:
    """Describe the fault of an option from a command line or a settings file; empty if there is none."""
    if name not in options:
        known = [option for option in options.keys() if option.startswith("vtc")]  # noqa: SIM118 - it cannot be iterated
        return f"there is no option {name}{suggest_nearest(name, known)}"
    wanted = options._options[name].typespec
    texts = getattr(value, "val", None)
    if texts == []:
        return format_missing_value(name)
    try:
        if texts is None:
            typecheck.check_option_type(name, value, wanted)
        elif wanted is int:
            int(texts[-1])
    except (TypeError, ValueError):
        return f"{name} must be {TYPE_DESCRIPTIONS[wanted]}, not {(texts[-1] if texts else value)!r}"
    return ""


TYPE_DESCRIPTIONS = {int: "a whole number", str: "a text", Sequence[str]: "a list of texts"}


def declare_options(loader: Loader | OptManager) -> None:
    """Declare all settings as options."""
    for setting in SETTINGS:
        default = setting.empty_text or setting.default
        kind, default = (Sequence[str], [*default]) if isinstance(default, tuple) else (type(default), default)
        loader.add_option(setting.option, kind, default, setting.help, setting.choices or None)


def list_profile_directories(options: OptManager) -> list[Path]:
    """List the directories of profiles; later ones win."""
    return [profile_loader.builtin_directory(), *(Path(path).expanduser() for path in options.vtc_profiles)]


def build_memory(last: Memory | None = None) -> Memory | None:
    """Make the memory; None with `vtc_cache=off`. Of the `last` one only the responses are kept, which clients need."""
    if ctx.options.vtc_cache == "off":
        return None
    return Memory(clock=time.monotonic, responses=last.responses if last else None)


class InvalidOption(ValueError):
    """An option that does not exist, lacks a value, or has an invalid one."""


def build_planner_from_specs(specs: Sequence[str]) -> Planner:
    """Build the planner that the addon would build from these `NAME=VALUE`s; raises InvalidOption, ProfileError.

    mitmproxy checks its own options, except certificate files, which are checked here.
    """
    try:
        Trust.from_settings(specs).check()
    except TrustError as error:
        raise InvalidOption(str(error)) from None
    specs = [spec for spec in specs if spec.startswith("vtc")]
    if bare := next((spec for spec in specs if "=" not in spec), ""):
        raise InvalidOption(format_missing_value(bare))
    options = OptManager()
    options.set(*specs, defer=True)
    declare_options(options)
    if faults := apply_deferred(options).faults:
        raise InvalidOption("; ".join(faults))
    try:
        return build_planner(options)
    except exceptions.OptionsError as error:
        if isinstance(error.__cause__, ProfileError):
            raise error.__cause__ from None
        raise InvalidOption(str(error)) from None


_JOINED_ENTRIES = re.compile(r"=[^=,;\s]*+[,;\s][^=]*+=")
"""Matches a value of `vtc_models` that contains more than one entry."""


def build_planner(options: OptManager) -> Planner:
    """Build a planner from profiles and options; raises `OptionsError`."""
    for setting in SETTINGS:
        name, value, minimum = setting.option, getattr(options, setting.option), setting.minimum
        # mitmproxy shows choices but does not check them.
        if setting.choices and value not in setting.choices:
            raise exceptions.OptionsError(f"{name} must be one of {', '.join(setting.choices)}, not {value!r}")
        if minimum is not None and value < minimum:
            raise exceptions.OptionsError(f"{name} must be at least {minimum}, not {value}")
    wrong = next((entry for entry in options.vtc_models if not _is_alias(entry)), None)
    if wrong is not None:
        raise exceptions.OptionsError(
            f"vtc_models must be GLOB=NAME, like claude-*=qwen3-coder, or the NAME of a model alone, not {wrong!r}"
        )
    if joined := next((entry for entry in options.vtc_models if _JOINED_ENTRIES.search(entry)), ""):
        raise exceptions.OptionsError(
            f"vtc_models takes one GLOB=NAME; repeat the option for each, instead of {joined!r}"
        )
    if options.vtc_key_env and not VARIABLE.fullmatch(options.vtc_key_env):  # perhaps a key, so do not print it
        raise exceptions.OptionsError("vtc_key_env must be the name of an environment variable, not the key itself")
    try:
        read_secrets(options.vtc_secret_file)
    except SecretError as error:
        raise exceptions.OptionsError(str(error)) from None
    values = {name: getattr(options, f"vtc_{name}") for name in Settings.__struct_fields__}
    values["client_patterns"] = [pattern for pattern in options.vtc_client_patterns if pattern]
    if options.vtc_mode == "rewrite":
        try:
            values["upstream_api"] = parse_apis(options.vtc_upstream_api)
        except ValueError as error:
            raise exceptions.OptionsError(f"vtc_upstream_api: {error}") from None
    else:  # an observed flow keeps its path and model
        values |= {"upstream_api": ["same"], "models": []}
    try:
        return Planner(
            profile_loader.load_profiles(list_profile_directories(options)), msgspec.convert(values, Settings)
        )
    except ProfileError as error:
        raise exceptions.OptionsError(f"vtc: the profiles are invalid\n{error}") from error
    except UnknownName as error:
        raise exceptions.OptionsError(f"vtc_{error.setting}: {error}") from None


def _is_alias(entry: str) -> bool:
    """True for a valid entry of `vtc_models`: GLOB=NAME, or a NAME alone."""
    glob, is_pair, name = entry.partition("=")
    return bool(glob.strip() and name.strip()) if is_pair else bool(glob.strip()) and not is_glob(glob)
