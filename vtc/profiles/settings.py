"""The user's settings, each declared once: type, default, description, and the commands that have an option for it.

A setting is an option of mitmproxy, `vtc_NAME`. Some are also options of commands; those of `vtc run` are keys of
`vtc.yaml`, too. The settings of a plan are here; `vtc.proxy.addon_settings` adds the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import replace

from vtc.dialects.user_agent import CLIENT_PATTERNS
from vtc.profiles.document import suggest_nearest
from vtc.profiles.schema import API_NAMES

type Command = Literal["run", "launch", "explain", "replay", "render"]
STARTING: tuple[Command, ...] = ("run", "launch")
"""The commands that start VTC."""
PLANNING: tuple[Command, ...] = ("explain", "replay")
"""The commands that plan exchanges and send nothing."""
COMMANDS = (*STARTING, *PLANNING, "render")
Switch = Literal["auto", "on", "off"]
"""The values of a setting that profiles decide unless the user does."""


class Setting(msgspec.Struct, frozen=True):
    """The description of a setting, in the annotation of its field."""

    help: str
    flag_help: str = ""
    """The description of the option of commands; empty if no command has one."""
    commands: tuple[Command, ...] = STARTING
    """The commands that have this option; one of `vtc run` is also a key of `vtc.yaml`."""
    flag: str = ""
    """The name of this option; by default the setting's."""
    flag_sets: str = ""
    """The value that this option sets; empty if it takes one."""
    minimum: int | None = None
    empty_text: str = ""
    """If mitmproxy's option is a text with commas instead of a list: the text of an empty list."""
    name: str = ""
    """The name of the field. `list_settings` adds it, its type and its default."""
    type: Any = str
    default: Any = None

    @property
    def option(self) -> str:
        """Its name as an option of mitmproxy."""
        return f"vtc_{self.name}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values; empty if others are valid, too."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def flag_type(self) -> Any:
        """The type of the option of commands: `bool`, `str`, or the literals that it takes."""
        return bool if self.flag_sets else self.type if self.choices else str


def parse_apis(text: str) -> tuple[str, ...]:
    """Parse names of APIs with commas between them; `auto` has none. Raises ValueError."""
    names = tuple(name.strip() for name in text.split(",")) if text != "auto" else ()
    for name in names:
        if name not in (known := (*API_NAMES, "same")):
            near = suggest_nearest(name, (*known, "auto"))
            raise ValueError(f"there is no API {name!r}{near}; known: {', '.join(API_NAMES)}")
    return names


def list_settings(declared: type[msgspec.Struct]) -> Iterator[Setting]:
    """Yield the settings that the fields of a class declare."""
    for field in msgspec.structs.fields(declared):
        kind, setting = get_args(field.type)
        yield replace(setting, name=field.name, type=kind, default=field.default, flag=setting.flag or field.name)


class StoppingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that end replies and requests which repeat themselves."""

    stop_repeats: Annotated[
        Switch,
        Setting(
            "Whether a reply is ended once it repeats one block of text (at least 20 characters, 8 times in a row, "
            "2,000 characters in all). on: the client is told why, and the server's request is cancelled; the rest of "
            "the text of a reply that is not streamed, or has several choices, is left out. off: it is only reported. "
            "auto: as in the profiles, else off.",
            "End a reply that repeats one block of text.",
            flag_sets="on",
        ),
    ] = "auto"
    stop_loops: Annotated[
        Literal["auto", "on"],
        Setting(
            "Whether an agent that repeats itself is stopped. on: a request after three identical calls with identical "
            "results is answered with a message that says so. auto: as in the profiles, else it is only reported.",
            "Stop an agent after three identical calls with identical results.",
            flag_sets="on",
        ),
    ] = "auto"


class Settings(StoppingSettings, frozen=True, kw_only=True):
    """The settings that a plan depends on; an empty string or `auto` leaves the choice to the profiles."""

    tools: Annotated[
        Literal["auto", "native", "prompt"],
        Setting(
            "How tools reach the model. native: as the API's `tools`. prompt: written into the system message, for "
            "servers and models without tool support. auto: as in the model profile, and in the prompt once the server "
            "rejected them.",
            "How tools reach the model.",
            COMMANDS,
        ),
    ] = "auto"
    dialect: Annotated[
        str,
        Setting(
            "Dialect of the prompt, and the first one to parse (empty: as in the model profile).",
            "The dialect of the tool prompt.",
            COMMANDS,
        ),
    ] = ""
    blocks: Annotated[
        Literal["auto", "text", "last"],
        Setting(
            "How to treat a JSON call in a code block after text. text: as an example. last: as a call, if the closed "
            "block ends the reply and contains only the name and arguments of an offered tool. auto: as in the model "
            "profile.",
            "Meaning of a JSON call in the last code block: an example (`text`) or a call (`last`).",
        ),
    ] = "auto"
    models: Annotated[
        tuple[str, ...],
        Setting(
            "Models that replace others in requests to the server, as GLOB=NAME: claude-*=qwen3-coder. The first match "
            "wins. A NAME alone replaces all models that the server does not list (`vtc run --model NAME`).",
            "The model to request if the client requests one that the server does not list.",
            ("run",),
            flag="model",
        ),
    ] = ()
    """The last name without a glob counts."""
    client: Annotated[
        str,
        Setting(
            "Name of the client profile to use for every request (empty: by matching).",
            "The client profile, if it is not recognised.",
            PLANNING,
        ),
    ] = ""
    model: Annotated[str, Setting("Name of the model profile to use for every request (empty: by matching).")] = ""
    server: Annotated[
        str,
        Setting(
            "Name of the server profile to use for every request (empty: by matching).",
            "The server profile, if it is not recognised.",
            STARTING + PLANNING,
        ),
    ] = ""
    upstream_api: Annotated[
        tuple[str, ...],
        Setting(
            f"The API that the model server speaks: {', '.join(API_NAMES[:-1])} or {API_NAMES[-1]}; "
            "requests and replies of clients of another API are translated. Separate several by commas, with the "
            "target of translation first. same: the client's. auto: as in the server's or the model's profile, else "
            "same.",
            "The APIs of the server, separated by commas. [the detected ones]",
            flag="api",
            empty_text="auto",
        ),
    ] = ()
    lenient: Annotated[
        Switch,
        Setting(
            "Whether malformed calls are repaired. auto: as in the model profile.",
            "Repair malformed calls.",
            PLANNING,
        ),
    ] = "auto"
    unknown_tools: Annotated[
        Literal["auto", "allow", "text", "drop"],
        Setting(
            "How to treat a call of a tool that was not offered. allow: forward it, so that the client answers that "
            "the tool does not exist. text: leave it as text. drop: remove it. auto: as in the model profile."
        ),
    ] = "auto"
    echo: Annotated[
        Literal["auto", "text", "steer", "call"],
        Setting(
            "How to treat an echo: a call that repeats one in a tool result of the request, for example in a page or a "
            "file. text: leave it as text. steer: replace it by a message to the model. call: make it. auto: as in the "
            "model profile."
        ),
    ] = "auto"
    constrain: Annotated[
        Literal["off", "required", "auto"],
        Setting(
            "Whether to constrain a capable server by a grammar of calls. required: if a call is required and the "
            "tools are in the prompt. auto: also for calls in free text, and for tools that the API declares (strict). "
            "off: never.",
            "Which calls servers constrain by a grammar: none, required ones, or all.",
            PLANNING,
        ),
    ] = "required"
    retry: Annotated[
        Switch,
        Setting(
            "Whether VTC asks the model once more after a faulty reply or a turn that ends without an answer. on: "
            "always, unless a profile says otherwise. off: never. auto: as in the profiles.",
            "Retry once after a faulty reply, or a reply without text and calls.",
            flag_sets="on",
        ),
    ] = "auto"
    client_patterns: Annotated[
        tuple[str, ...],
        Setting(
            "Substrings of the User-Agent of clients that parse calls from text when they declare no tools. Empty: no "
            "client is recognized by its name."
        ),
    ] = CLIENT_PATTERNS
    max_call_bytes: Annotated[
        int, Setting("Maximum size in bytes of a buffered call; a longer one stays text.", minimum=1)
    ] = 1 << 20

    def list_changed(self) -> dict[str, Any]:
        """List the settings that differ from the defaults, as plain data: stored with an exchange, so that it can be
        replayed."""
        defaults = zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
        return {name: value for name, default in defaults if (value := getattr(self, name)) != default}
