"""Declare the addon's options for mitmproxy's editor and `--set`, and build the planner and memory from them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mitmproxy import ctx, exceptions
from mitmproxy.optmanager import OptManager
from mitmproxy.utils import typecheck

from vtc.dialects.text_client.user_agent import CLIENT_PATTERNS
from vtc.profiles import loader as profile_loader
from vtc.profiles.document import ProfileError, suggest_nearest
from vtc.profiles.matching import is_glob
from vtc.profiles.memory import Memory
from vtc.profiles.planner import Planner
from vtc.profiles.schema import API_NAMES, VARIABLE
from vtc.profiles.settings import Settings, UnknownName
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


class DeclaredOption(NamedTuple):
    """One option of mitmproxy: the arguments of `add_option`."""

    name: str
    type: Any
    default: object
    help: str
    choices: Sequence[str] | None = None


DECLARED_OPTIONS = (
    DeclaredOption("vtc_server", str, "", "Name of the server profile to use for every request (empty: by matching)."),
    DeclaredOption(
        "vtc_upstream_api",
        str,
        "auto",
        f"The API that the model server speaks: {', '.join(API_NAMES[:-1])} or {API_NAMES[-1]}; "
        "requests and replies of clients of another API are translated. Separate several by commas, with the target of "
        "translation first. same: the client's. auto: as in the server's or the model's profile, else same.",
    ),
    DeclaredOption(
        "vtc_discover",
        str,
        "off",
        "Whether VTC probes the model server of a reverse proxy to identify it and its APIs, unless vtc_server and "
        "vtc_upstream_api are set: when VTC starts, and before requests until the server answers. "
        "`vtc run` sets on.",
        choices=("on", "off"),
    ),
    DeclaredOption(
        "vtc_models",
        Sequence[str],
        [],
        "Models that replace others in requests to the server, as GLOB=NAME: claude-*=qwen3-coder. The first match "
        "wins. A NAME alone replaces all models that the server does not list (`vtc run --model NAME`).",
    ),
    DeclaredOption(
        "vtc_key_env",
        str,
        "",
        "The environment variable with the key of a reverse proxy's model server, for clients that send none: anyone "
        "who can reach VTC can make requests with it. It is sent only to that server.",
    ),
    DeclaredOption(
        "vtc_share_keys",
        str,
        "off",
        "Whether keys from the environment (vtc_key_env, key_env in profiles) are also lent to clients on other "
        "machines: anyone who can reach VTC can then make requests with them.",
        choices=("on", "off"),
    ),
    DeclaredOption(
        "vtc_mode",
        str,
        "rewrite",
        "rewrite: translate tool calls. observe: change nothing and report what would have been done. off: do nothing.",
        choices=("rewrite", "observe", "off"),
    ),
    DeclaredOption(
        "vtc_profiles",
        Sequence[str],
        [],
        "Directories or files with your own profiles (YAML); they override built-in ones of the same kind and name. "
        "Edited files are reloaded while VTC runs.",
    ),
    DeclaredOption("vtc_client", str, "", "Name of the client profile to use for every request (empty: by matching)."),
    DeclaredOption("vtc_model", str, "", "Name of the model profile to use for every request (empty: by matching)."),
    DeclaredOption(
        "vtc_tools",
        str,
        "auto",
        "How tools reach the model. native: as the API's `tools`. prompt: written into the system message, for servers "
        "and models without tool support. auto: as in the model profile, and in the prompt once the server rejected "
        "them.",
        choices=("auto", "native", "prompt"),
    ),
    DeclaredOption(
        "vtc_dialect",
        str,
        "",
        "Dialect of the prompt, and the first one to parse (empty: as in the model profile).",
    ),
    DeclaredOption(
        "vtc_client_patterns",
        Sequence[str],
        list(CLIENT_PATTERNS),
        "Substrings of the User-Agent of clients that parse calls from text when they declare no tools. "
        "Empty: no client is recognized by its name.",
    ),
    DeclaredOption(
        "vtc_lenient",
        str,
        "auto",
        "Whether malformed calls are repaired. auto: as in the model profile.",
        choices=("auto", "on", "off"),
    ),
    DeclaredOption(
        "vtc_retry",
        str,
        "auto",
        "Whether VTC asks the model once more after a faulty reply or a turn that ends without an answer. on: always, "
        "unless a profile says otherwise. off: never. auto: as in the profiles.",
        choices=("auto", "on", "off"),
    ),
    DeclaredOption(
        "vtc_blocks",
        str,
        "auto",
        "How to treat a JSON call in a code block after text. text: as an example. last: as a call, if the closed "
        "block ends the reply and contains only the name and arguments of an offered tool. auto: as in the model "
        "profile.",
        choices=("auto", "text", "last"),
    ),
    DeclaredOption(
        "vtc_unknown_tools",
        str,
        "auto",
        "How to treat a call of a tool that was not offered. allow: forward it, so that the client answers that the "
        "tool does not exist. text: leave it as text. drop: remove it. auto: as in the model profile.",
        choices=("auto", "allow", "text", "drop"),
    ),
    DeclaredOption(
        "vtc_echo",
        str,
        "auto",
        "How to treat an echo: a call that repeats one in a tool result of the request, for example in a page or a "
        "file. text: leave it as text. steer: replace it by a message to the model. call: make it. auto: as in the "
        "model profile.",
        choices=("auto", "text", "steer", "call"),
    ),
    DeclaredOption(
        "vtc_constrain",
        str,
        "required",
        "Whether to constrain a capable server by a grammar of calls. required: if a call is required and the tools "
        "are in the prompt. auto: also for calls in free text, and for tools that the API declares (strict). "
        "off: never.",
        choices=("off", "required", "auto"),
    ),
    DeclaredOption(
        "vtc_keep_bodies",
        str,
        "auto",
        "Whether received requests and replies are stored in addition to the sent ones, so that both can be inspected. "
        "auto: if flows are listed (mitmweb, mitmproxy) or saved to a file.",
        choices=("auto", "on", "off"),
    ),
    DeclaredOption(
        "vtc_cache",
        str,
        "on",
        "Whether VTC keeps anything in memory between exchanges: facts about servers (whether their replies begin with "
        "reasoning, their rejections), search patterns with names of tools, reasoning before calls, and the last "
        "prompt of each conversation. off: nothing; reasoning that a client drops is lost, and exchanges take longer.",
        choices=("on", "off"),
    ),
    DeclaredOption(
        "vtc_log",
        str,
        "",
        "File to which a line of JSON is appended for each exchange: actions, sizes and times, but no content of "
        "messages (empty: none).",
    ),
    DeclaredOption(
        "vtc_metrics",
        str,
        "",
        "Port or HOST:PORT of the Prometheus metrics; a port alone is on the loopback interface (empty: no metrics). "
        "Needs the package prometheus-client.",
    ),
    DeclaredOption(
        "vtc_max_call_bytes", int, 1 << 20, "Maximum size in bytes of a buffered call; a longer one stays text."
    ),
    DeclaredOption(
        "vtc_keep_alive",
        int,
        15,
        "Seconds after which the client of a stream is sent a comment while a call is buffered (0: never).",
    ),
    DeclaredOption(
        "vtc_max_body_bytes", int, 64 << 20, "Maximum size in bytes of a request or whole reply that VTC processes."
    ),
)
"""All options, those of the model server first."""


def declare_options(loader: Loader | OptManager) -> None:
    """Declare the options."""
    for option in DECLARED_OPTIONS:
        loader.add_option(*option)


def list_profile_directories(options: OptManager) -> list[Path]:
    """List the directories of profiles; later ones win."""
    return [profile_loader.builtin_directory(), *(Path(path).expanduser() for path in options.vtc_profiles)]


def build_memory() -> Memory | None:
    """Make the memory; None with `vtc_cache=off`."""
    return Memory(clock=time.monotonic) if ctx.options.vtc_cache == "on" else None


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
    for name, option in options.items():
        # mitmproxy shows choices but does not check them.
        value = option.current()
        if name.startswith("vtc_") and option.choices and value not in option.choices:
            raise exceptions.OptionsError(f"{name} must be one of {', '.join(option.choices)}, not {value!r}")
    for name in ("vtc_max_call_bytes", "vtc_max_body_bytes"):
        if getattr(options, name) < 1:
            raise exceptions.OptionsError(f"{name} must be at least 1, not {getattr(options, name)}")
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
    if options.vtc_keep_alive < 0:
        raise exceptions.OptionsError(f"vtc_keep_alive must be 0 or more, not {options.vtc_keep_alive}")
    settings = Settings(
        client=options.vtc_client,
        model=options.vtc_model,
        server=options.vtc_server,
        # An observed flow keeps its path.
        upstream_api=_parse_apis(options.vtc_upstream_api) if options.vtc_mode == "rewrite" else ("same",),
        models=tuple(options.vtc_models) if options.vtc_mode == "rewrite" else (),
        tools=options.vtc_tools,
        dialect=options.vtc_dialect,
        lenient=options.vtc_lenient,
        retry=options.vtc_retry,
        blocks=options.vtc_blocks,
        unknown_tools=options.vtc_unknown_tools,
        echo=options.vtc_echo,
        constrain=options.vtc_constrain,
        client_patterns=tuple(pattern for pattern in options.vtc_client_patterns if pattern),
        max_call_bytes=options.vtc_max_call_bytes,
    )
    try:
        return Planner(profile_loader.load_profiles(list_profile_directories(options)), settings)
    except ProfileError as error:
        raise exceptions.OptionsError(f"vtc: the profiles are invalid\n{error}") from error
    except UnknownName as error:
        raise exceptions.OptionsError(f"vtc_{error.setting}: {error}") from None


def _is_alias(entry: str) -> bool:
    """True for a valid entry of `vtc_models`: GLOB=NAME, or a NAME alone."""
    glob, is_pair, name = entry.partition("=")
    return bool(glob.strip() and name.strip()) if is_pair else bool(glob.strip()) and not is_glob(glob)


def _parse_apis(text: str) -> tuple[str, ...]:
    """Parse `vtc_upstream_api`; an empty result leaves the choice to the profiles."""
    names = tuple(name.strip() for name in text.split(","))
    if text == "auto":
        return ()
    for name in names:
        if name != "same" and name not in API_NAMES:
            near = suggest_nearest(name, (*API_NAMES, "same", "auto"))
            raise exceptions.OptionsError(f"vtc_upstream_api: there is no API {name!r}{near}")
    return names
