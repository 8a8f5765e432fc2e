"""Log at the start: rejected options, the addresses for clients, and access by other machines.

Also log an error if the script is removed while mitmproxy keeps running. A wrong option is reported in one line without
a traceback, because it is the user's mistake and not a bug.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence

from mitmproxy import ctx, exceptions
from mitmproxy.addonmanager import Loader
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.addons.termlog import TermLog
from mitmproxy.log import MitmFormatter
from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode

from vtc import __version__
from vtc.profiles.loader import Profiles
from vtc.proxy import options
from vtc.proxy.asking import keys
from vtc.proxy.asking.address import Address
from vtc.proxy.reload import ReloadableAddon
from vtc.proxy.secret import describe_secrets

logger = logging.getLogger(__name__)

CONNECTION_LOGGERS = [logging.getLogger(f"mitmproxy.{name}") for name in ("proxy.server", "addons.clientplayback")]
"""Loggers of every connection of clients and of VTC: many lines per exchange, so `flow_detail=0` silences them."""

ALL_INTERFACES = ("", "0.0.0.0", "::")
"""Addresses that denote all network interfaces."""


class Startup:
    """Logs once, when the proxy listens."""

    name = "vtc-startup"

    def __init__(self, addon: ReloadableAddon) -> None:
        self._addon = addon

    def load(self, loader: Loader) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Readers of a pipe or a file (`docker logs`, the demonstration) get each line at once.
            sys.stdout.reconfigure(line_buffering=True)
        terminal = ctx.master.addons.get("termlog")
        if isinstance(terminal, TermLog) and os.environ.get("NO_COLOR"):  # no-color.org; mitmproxy ignores it
            terminal.logger.formatter = MitmFormatter(colorize=False)
        # mitmproxy logs errors of loading or configuring a script with a traceback.
        logging.getLogger("mitmproxy.addons.script").addFilter(drop_trace)
        # mitmweb has no option `flow_detail`; a given value stays deferred until an addon declares it.
        self._set_connection_level(getattr(ctx.options.deferred.get("flow_detail"), "val", None) == ["0"])
        applied = options.apply_deferred(ctx.options)
        for note in applied.notes:
            logger.warning("vtc: %s", note)
        for fault in applied.faults:
            logger.error("vtc: %s", fault)  # mitmproxy exits if an error is logged while it starts

    def configure(self, updated: set[str]) -> None:
        if "flow_detail" in updated:
            self._set_connection_level(ctx.options.flow_detail == 0)

    def _set_connection_level(self, quiet: bool) -> None:
        for connections in CONNECTION_LOGGERS:
            connections.setLevel(logging.WARNING if quiet else logging.NOTSET)

    def running(self) -> None:
        server = ctx.master.addons.get("proxyserver")
        if isinstance(server, Proxyserver) and self._addon.planner:
            lines = format_greeting(
                self._addon.planner.profiles, [(instance.mode, instance.listen_addrs) for instance in server.servers]
            )
            for line in lines:
                logger.info("vtc: %s", line)
            used = describe_secrets(ctx.options.confdir, ctx.options.vtc_secret_file)
            logger.info("vtc: signatures on reasoning use the secret %s", used)
            self._log_lenders(server)
            if any(address[0] in ALL_INTERFACES for address in server.listen_addrs()):
                logger.warning(
                    "vtc: every machine on the network can use this proxy; --listen-host 127.0.0.1 (`vtc run` without "
                    "--host) restricts it to this machine"
                )

    def _log_lenders(self, server: Proxyserver) -> None:
        """Log whose keys are lent; a logged error makes mitmproxy exit."""
        modes = [instance.mode for instance in server.servers]
        upstreams = [Address(*mode.address) for mode in modes if isinstance(mode, ReverseMode)]
        servers = upstreams if len(upstreams) == len(modes) else []
        planner, variable = self._addon.planner, ctx.options.vtc_key_env
        lenders = keys.list_lenders(planner.profiles, servers, variable) if planner else []
        addresses = [Address(str(address[0]), int(address[1])) for address in server.listen_addrs()]
        if variable and len({*servers}) != 1:
            logger.error(
                "vtc: vtc_key_env: the key belongs to one server, so VTC must be a reverse proxy for exactly one"
            )
        for fault in keys.find_faults(lenders, addresses, shared=ctx.options.vtc_share_keys == "on"):
            logger.error("vtc: %s", fault)
        for lender in lenders:
            logger.info("vtc: %s", lender.lends)

    def done(self) -> None:
        loop = ctx.master.event_loop
        if loop.is_running() and not ctx.master.should_exit.is_set():
            loop.call_soon(self._log_if_removed)  # later, because an edited script is loaded again

    def _log_if_removed(self) -> None:
        if not ctx.master.addons.get(self.name):
            logger.error(
                "vtc: VTC is off and all traffic passes unchanged, because its script was removed or cannot be loaded. "
                "Restart mitmproxy"
            )


def drop_trace(record: logging.LogRecord) -> bool:
    """Remove the traceback from a log record about a rejected option; for `Logger.addFilter`."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, exceptions.OptionsError):
        record.msg, record.args, record.exc_info = f"vtc: {str(error).removeprefix('vtc: ')}", (), None
    return True


def format_greeting(
    profiles: Profiles, servers: Sequence[tuple[ProxyMode, Sequence[tuple[str | int, ...]]]]
) -> Iterator[str]:
    """Yield the version, the profiles and, for each server of mitmproxy, the base URL for clients."""
    yours = [str(directory) for directory in ctx.options.vtc_profiles]
    source = f", yours from {', '.join(yours)}" if yours else ""
    yield f"VTC {__version__}, mode {ctx.options.vtc_mode}: {profiles.format_counts()}{source}"
    for mode, addresses in servers:
        for host, port, *_ in addresses[:1]:
            client_url = format_client_url(host, port)
            if isinstance(mode, ReverseMode):
                scheme, (name, at) = mode.scheme, mode.address
                yield f"{format_base_url(client_url)} -> {scheme}://{name}:{at}"
            elif mode.type_name == "regular":
                yield f"no model server was named, so this is an ordinary proxy: HTTPS_PROXY={client_url}"


def format_client_url(host: str | int, port: str | int) -> str:
    """Format the URL at which clients on this machine reach a server of mitmproxy."""
    if host in ALL_INTERFACES:
        host = "127.0.0.1"
    elif ":" in str(host):
        host = f"[{host}]"
    return f"http://{host}:{port}"


def format_base_url(here: str) -> str:
    """Format the base URLs for clients of a reverse proxy."""
    return f"base URL for clients {here}/v1 (Anthropic's, Ollama's and Gemini's: {here})"


def list_base_urls() -> list[str]:
    """List the base URLs for clients, for each reverse proxy that listens."""
    server = ctx.master.addons.get("proxyserver")
    listening = server.servers if isinstance(server, Proxyserver) else ()
    reverse = [instance for instance in listening if isinstance(instance.mode, ReverseMode)]
    return [
        format_base_url(format_client_url(*instance.listen_addrs[0][:2]))
        for instance in reverse
        if instance.listen_addrs
    ]
