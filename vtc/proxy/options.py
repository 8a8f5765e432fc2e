"""The options of the addon: what mitmproxy's options editor and `--set` show, and the settings they give."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mitmproxy import ctx, exceptions
from mitmproxy.optmanager import OptManager
from mitmproxy.utils import typecheck

from vtc.profiles import loader as profile_loader
from vtc.profiles.document import ProfileError, nearest
from vtc.profiles.matching import is_glob
from vtc.profiles.memory import Memory
from vtc.profiles.planner import Planner
from vtc.profiles.schema import API_NAMES, VARIABLE
from vtc.profiles.settings import CLIENT_PATTERNS, Settings, UnknownName
from vtc.proxy.trust import Trust, TrustError

if TYPE_CHECKING:  # commands that only look at options load this module, too
    from mitmproxy.addonmanager import Loader

# Options that were given before there was an addon that has them: mitmproxy keeps their texts until then.
#
# It takes them while it loads the script. What it cannot take it refuses there, where no one sees it, and drops the
# script: everything would pass untouched. So the addon has them taken itself, and tells what is wrong.


class Taken(NamedTuple):
    """The messages about options that were given."""

    faults: list[str]
    """Why they cannot be taken."""
    notes: list[str]
    """Options that were taken otherwise than they were given."""


def apply_deferred(options: OptManager) -> Taken:
    """Give options the values that wait for them; what is wrong is left out. Of several values the last counts."""
    taken = Taken([], [])
    for name, value in [*options.deferred.items()]:
        if not name.startswith("vtc"):
            continue
        if fault := _find_fault(options, name, value):
            taken.faults.append(fault)
            del options.deferred[name]
        elif name in options and options._options[name].typespec != Sequence[str]:
            texts = getattr(value, "val", [])
            if len(texts) > 1:
                taken.notes.append(f"{name} is given {len(texts)} times: {texts[-1]}, which comes last, counts")
                del texts[:-1]
    try:
        options.process_deferred()
    except (exceptions.OptionsError, TypeError) as error:  # an option of someone else's
        taken.faults.append(str(error))
    return taken


def format_missing_value(name: str) -> str:
    """Say what to do about an option without a value."""
    return f"{name} has no value: --set {name}=…"


def _find_fault(options: OptManager, name: str, value: object) -> str:
    """Say what is wrong with the value of an option, from a command line or a file of settings; empty if nothing is."""
    if name not in options:
        known = [option for option in options.keys() if option.startswith("vtc")]  # noqa: SIM118 - it cannot be iterated
        return f"there is no option {name}{nearest(name, known)}"
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
        "requests and replies of clients of another are translated. Several are parted by commas, the one that others "
        "are translated to first. same: the client's. auto: as the server's or the model's profile says, else same.",
    ),
    DeclaredOption(
        "vtc_discover",
        str,
        "off",
        "Whether the model server of a reverse proxy is asked what it is and which APIs it speaks, where vtc_server "
        "and vtc_upstream_api leave that open: when VTC starts, and before requests until the server is there. "
        "`vtc run` says on.",
        choices=("on", "off"),
    ),
    DeclaredOption(
        "vtc_models",
        Sequence[str],
        [],
        "Models that the server is asked for in place of others, as GLOB=NAME: claude-*=qwen3-coder. The first that "
        "fits counts. A NAME alone stands for all that the server does not list (`vtc run --model NAME`).",
    ),
    DeclaredOption(
        "vtc_key_env",
        str,
        "",
        "The variable of the environment that holds the key of the model server of a reverse proxy, for clients that "
        "send none: whoever reaches VTC spends it. It is sent to that server alone.",
    ),
    DeclaredOption(
        "vtc_share_keys",
        str,
        "off",
        "Whether clients on other machines, too, are lent the keys that servers have from the environment "
        "(vtc_key_env, key_env in profiles): whoever reaches VTC then spends them.",
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
        "Directories or files with profiles of your own (YAML); they win over the built-in ones of the same kind and "
        "name. Files that are edited are read again while it runs.",
    ),
    DeclaredOption("vtc_client", str, "", "Name of the client profile to use for every request (empty: by matching)."),
    DeclaredOption("vtc_model", str, "", "Name of the model profile to use for every request (empty: by matching)."),
    DeclaredOption(
        "vtc_tools",
        str,
        "auto",
        "How tools reach the model. native: as the API's `tools`. prompt: written into the system message, for servers "
        "and models that know no tools. auto: as the model profile says, and into the prompt once the server refused "
        "them.",
        choices=("auto", "native", "prompt"),
    ),
    DeclaredOption(
        "vtc_dialect",
        str,
        "",
        "Dialect in which the model is prompted and first read (empty: as the model profile says).",
    ),
    DeclaredOption(
        "vtc_client_patterns",
        Sequence[str],
        list(CLIENT_PATTERNS),
        "Parts of the User-Agent of clients that read calls out of the text when they declare no tools. "
        "Empty: none is recognised by its name.",
    ),
    DeclaredOption(
        "vtc_lenient",
        str,
        "auto",
        "Whether malformed calls are repaired. auto: as the model profile says.",
        choices=("auto", "on", "off"),
    ),
    DeclaredOption(
        "vtc_retry",
        str,
        "auto",
        "Whether the model is asked once more about a faulty reply and a turn that ends without a word. on: about all "
        "of them, where no profile says otherwise. off: never. auto: as profiles say.",
        choices=("auto", "on", "off"),
    ),
    DeclaredOption(
        "vtc_blocks",
        str,
        "auto",
        "What a call is that stands as JSON in a code block after words. text: an example. last: a call, where the "
        "closed block ends the reply and holds name and arguments of an offered tool and nothing else. auto: as the "
        "model profile says.",
        choices=("auto", "text", "last"),
    ),
    DeclaredOption(
        "vtc_unknown_tools",
        str,
        "auto",
        "What becomes of a call of a tool that was not offered. allow: it leaves as written, so that the client "
        "answers that there is no such tool. text: it stays text. drop: it is left out. auto: as the model profile "
        "says.",
        choices=("auto", "allow", "text", "drop"),
    ),
    DeclaredOption(
        "vtc_echo",
        str,
        "auto",
        "What becomes of a call that stands in a result of the request: a page or a file that the "
        "model repeats. text: it stays text. steer: a message stands in its place, for the model to see. call: it is "
        "made. auto: as the model profile says.",
        choices=("auto", "text", "steer", "call"),
    ),
    DeclaredOption(
        "vtc_constrain",
        str,
        "required",
        "Whether a server that can is made to decode by a grammar of calls. required: where a call is demanded and the "
        "tools stand in the prompt. auto: there also for calls in free text; and for tools that the API declares "
        "(strict). off: never.",
        choices=("off", "required", "auto"),
    ),
    DeclaredOption(
        "vtc_keep_bodies",
        str,
        "auto",
        "Whether requests and replies are kept as they came, beside what they became, so that both can be looked at. "
        "auto: where flows are listed (mitmweb, mitmproxy) or saved to a file.",
        choices=("auto", "on", "off"),
    ),
    DeclaredOption(
        "vtc_cache",
        str,
        "on",
        "Whether anything is kept in memory between exchanges: facts about upstreams (whether their replies begin with "
        "reasoning, what they refused), search patterns with names of tools, what models thought before their calls "
        "and the last prompt of each conversation. off: nothing; thoughts that a client loses stay lost, and exchanges "
        "take longer.",
        choices=("on", "off"),
    ),
    DeclaredOption(
        "vtc_log",
        str,
        "",
        "File to which a line of JSON is added for each exchange: what was done, sizes and times, nothing of what was "
        "said (empty: none).",
    ),
    DeclaredOption(
        "vtc_metrics",
        str,
        "",
        "Port, or HOST:PORT, at which figures are served for Prometheus; a port alone is on the loopback interface "
        "(empty: not at all). Needs the package prometheus-client.",
    ),
    DeclaredOption(
        "vtc_max_call_bytes", int, 1 << 20, "Longest call in bytes that is held back; a longer one is left as text."
    ),
    DeclaredOption(
        "vtc_keep_alive",
        int,
        15,
        "Seconds after which the client of a stream is sent a comment while a call is held back (0: never).",
    ),
    DeclaredOption(
        "vtc_max_body_bytes", int, 64 << 20, "Longest request or unstreamed reply in bytes that is looked at."
    ),
)
"""All of them, those of the model server first."""


def declare_options(loader: Loader | OptManager) -> None:
    """Declare the options."""
    for option in DECLARED_OPTIONS:
        loader.add_option(*option)


def list_profile_directories(options: OptManager) -> list[Path]:
    """List the directories of profiles; later ones win."""
    return [profile_loader.builtin_directory(), *(Path(path).expanduser() for path in options.vtc_profiles)]


def build_memory() -> Memory | None:
    """Make the memory that the options ask for; None with `vtc_cache=off`."""
    return Memory(clock=time.monotonic) if ctx.options.vtc_cache == "on" else None


class RefusedOption(ValueError):
    """An option that does not exist, lacks a value, or has one that makes no sense."""


def build_planner_from_specs(specs: Sequence[str]) -> Planner:
    """Make the planner that the addon would make, given these `NAME=VALUE`s; raises RefusedOption, ProfileError.

    Options that are not of VTC are left to mitmproxy, but for files of certificates, which it does not look at.
    """
    try:
        Trust.from_settings(specs).check()
    except TrustError as error:
        raise RefusedOption(str(error)) from None
    specs = [spec for spec in specs if spec.startswith("vtc")]
    if bare := next((spec for spec in specs if "=" not in spec), ""):
        raise RefusedOption(format_missing_value(bare))
    options = OptManager()
    options.set(*specs, defer=True)
    declare_options(options)
    if faults := apply_deferred(options).faults:
        raise RefusedOption("; ".join(faults))
    try:
        return build_planner(options)
    except exceptions.OptionsError as error:
        raise (error.__cause__ if isinstance(error.__cause__, ProfileError) else RefusedOption(str(error))) from None


_SEVERAL = re.compile(r"=[^=,;\s]*+[,;\s][^=]*+=")
"""Entries of `vtc_models` that are written as one."""


def build_planner(options: OptManager) -> Planner:
    """Profiles and settings as the options have them; raises `OptionsError`, so that nothing half-loads."""
    for name, option in options.items():
        # mitmproxy shows choices and does not check them.
        value = option.current()
        if name.startswith("vtc_") and option.choices and value not in option.choices:
            raise exceptions.OptionsError(f"{name} must be one of {', '.join(option.choices)}, not {value!r}")
    for name in ("vtc_max_call_bytes", "vtc_max_body_bytes"):
        if getattr(options, name) < 1:
            raise exceptions.OptionsError(f"{name} must be at least 1, not {getattr(options, name)}")
    if (wrong := next((entry for entry in options.vtc_models if not _is_alias(entry)), None)) is not None:
        raise exceptions.OptionsError(
            f"vtc_models must be GLOB=NAME, like claude-*=qwen3-coder, or the NAME of a model alone, not {wrong!r}"
        )
    if joined := next((entry for entry in options.vtc_models if _SEVERAL.search(entry)), ""):
        raise exceptions.OptionsError(f"vtc_models holds one GLOB=NAME each; give it once for each, not {joined!r}")
    if options.vtc_key_env and not VARIABLE.fullmatch(options.vtc_key_env):  # a key, perhaps: it is not shown
        raise exceptions.OptionsError(
            "vtc_key_env must be the name of a variable of the environment, not the key itself"
        )
    if options.vtc_keep_alive < 0:
        raise exceptions.OptionsError(f"vtc_keep_alive must be 0 or more, not {options.vtc_keep_alive}")
    settings = Settings(
        client=options.vtc_client,
        model=options.vtc_model,
        server=options.vtc_server,
        # A flow that is only observed goes where it went.
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
        return Planner(profile_loader.load(list_profile_directories(options)), settings)
    except ProfileError as error:
        raise exceptions.OptionsError(f"vtc: the profiles are not usable\n{error}") from error
    except UnknownName as error:
        raise exceptions.OptionsError(f"vtc_{error.setting}: {error}") from None


def _is_alias(entry: str) -> bool:
    """True if it names a model that stands for others: for those that a glob finds, or for all."""
    glob, is_pair, name = entry.partition("=")
    return bool(glob.strip() and name.strip()) if is_pair else bool(glob.strip()) and not is_glob(glob)


def _parse_apis(text: str) -> tuple[str, ...]:
    """Read `vtc_upstream_api`; none leaves it to the profiles."""
    names = tuple(name.strip() for name in text.split(","))
    if text == "auto":
        return ()
    for name in names:
        if name != "same" and name not in API_NAMES:
            near = nearest(name, (*API_NAMES, "same", "auto"))
            raise exceptions.OptionsError(f"vtc_upstream_api: there is no API {name!r}{near}")
    return names
