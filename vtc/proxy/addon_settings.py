"""All settings of the addon."""

from __future__ import annotations

from typing import Annotated, Literal

from vtc.profiles.settings import Setting, Settings, Switch, list_settings

SECRET_VARIABLE = "VTC_SECRET"
"""The environment variable with the secrets that sign reasoning (`vtc_secret_file`)."""


class AddonSettings(Settings, frozen=True, kw_only=True):
    """The settings of a plan, and those that only the proxy uses."""

    key_env: Annotated[
        str,
        Setting(
            "The environment variable with the key of a reverse proxy's model server, for clients that send none: "
            "anyone who can reach VTC can make requests with it. It is sent only to that server.",
            "The variable with the model server's key, for clients that send none. Only that server receives it.",
            ("run",),
        ),
    ] = ""
    share_keys: Annotated[
        Literal["on", "off"],
        Setting(
            "Whether keys from the environment (vtc_key_env, key_env in profiles) are also lent to clients on other "
            "machines: anyone who can reach VTC can then make requests with them.",
            "Let clients on other machines use your keys, too.",
            ("run",),
            flag_sets="on",
        ),
    ] = "off"
    mode: Annotated[
        Literal["rewrite", "observe", "off"],
        Setting(
            "rewrite: translate tool calls. observe: change nothing and report what would have been done. off: do "
            "nothing.",
            "Change nothing, and report the changes that would have been made.",
            flag="observe",
            flag_sets="observe",
        ),
    ] = "rewrite"
    discover: Annotated[
        Literal["on", "off"],
        Setting(
            "Whether VTC probes the model server of a reverse proxy to identify it and its APIs, unless vtc_server and "
            "vtc_upstream_api are set: when VTC starts, and before requests until the server answers. A server that "
            "wants a key is probed with that of vtc_key_env, or else of a client. `vtc run` sets on."
        ),
    ] = "off"
    profiles: Annotated[
        tuple[str, ...],
        Setting(
            "Directories or files with your own profiles (YAML); they override built-in ones of the same kind and "
            "name. Edited files are reloaded while VTC runs."
        ),
    ] = ()
    keep_bodies: Annotated[
        Switch,
        Setting(
            "Whether received requests and replies are stored in addition to the sent ones, so that both can be "
            "inspected. auto: if flows are listed (mitmweb, mitmproxy) or saved to a file."
        ),
    ] = "auto"
    cache: Annotated[
        Literal["on", "off"],
        Setting(
            "Whether VTC keeps anything in memory between exchanges: facts about servers (whether their replies begin "
            "with reasoning, their rejections), search patterns with names of tools, reasoning before calls, the last "
            "prompt of each conversation, and responses to which a client refers over a bridge. off: nothing; "
            "reasoning that a client drops is lost, and exchanges take longer."
        ),
    ] = "on"
    secret_file: Annotated[
        str,
        Setting(
            "File with the secrets that sign the reasoning of servers of another API for its way through the client, "
            "one on each line: the first signs, all verify. Workers that share it accept each other's signatures. "
            "Empty: the lines of the environment variable VTC_SECRET, or else mitmproxy's certificate authority."
        ),
    ] = ""
    log: Annotated[
        str,
        Setting(
            "File to which a line of JSON is appended for each exchange: actions, sizes and times, but no content of "
            "messages (empty: none).",
            "Append a line of JSON for each exchange to this file.",
            ("run",),
        ),
    ] = ""
    metrics: Annotated[
        str,
        Setting(
            "Port or HOST:PORT of the Prometheus metrics; a port alone is on the loopback interface (empty: no "
            "metrics). Needs the package prometheus-client."
        ),
    ] = ""
    keep_alive: Annotated[
        int,
        Setting(
            "Seconds after which the client of a stream is sent a comment while a call is buffered (0: never).",
            minimum=0,
        ),
    ] = 15
    max_body_bytes: Annotated[
        int, Setting("Maximum size in bytes of a request or whole reply that VTC processes.", minimum=1)
    ] = 64 << 20


SETTINGS = (*list_settings(AddonSettings),)
