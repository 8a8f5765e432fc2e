"""Log lines of the start: options that were given and not taken, where clients connect, who else could; and when
it is gone while mitmproxy goes on.

A mistake in an option is told in one line, without a trace: it is the user's, not ours.
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
from vtc.proxy import keys, options
from vtc.proxy.address import Address
from vtc.proxy.reload import ReloadableAddon

logger = logging.getLogger(__name__)

CONNECTION_LOGGERS = [logging.getLogger(f"mitmproxy.{name}") for name in ("proxy.server", "addons.clientplayback")]
"""Say each connection, of clients and of VTC itself: many lines for one of ours; with `flow_detail=0` too much."""

ALL_INTERFACES = ("", "0.0.0.0", "::")
"""Addresses that stand for all network interfaces."""


class Startup:
    """Speaks once, when the proxy listens."""

    name = "vtc-startup"

    def __init__(self, addon: ReloadableAddon) -> None:
        self._addon = addon

    def load(self, loader: Loader) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Whoever reads the log from a pipe or a file (`docker logs`, the demonstration) has each line at once.
            sys.stdout.reconfigure(line_buffering=True)
        terminal = ctx.master.addons.get("termlog")
        if isinstance(terminal, TermLog) and os.environ.get("NO_COLOR"):  # no-color.org; mitmproxy does not ask
            terminal.logger.formatter = MitmFormatter(colorize=False)
        # It logs what goes wrong while a script is loaded or configured, with a trace.
        logging.getLogger("mitmproxy.addons.script").addFilter(drop_trace)
        # mitmweb has no option `flow_detail`; what was given waits there for an addon that has it.
        self._set_connection_level(getattr(ctx.options.deferred.get("flow_detail"), "val", None) == ["0"])
        taken = options.apply_deferred(ctx.options)
        for note in taken.notes:
            logger.warning("vtc: %s", note)
        for fault in taken.faults:
            logger.error("vtc: %s", fault)  # an error while it starts ends mitmproxy

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
            self._log_lenders(server)
            if any(address[0] in ALL_INTERFACES for address in server.listen_addrs()):
                logger.warning(
                    "vtc: every machine of the network can use this proxy; --listen-host 127.0.0.1 (`vtc run` without "
                    "--host) keeps it to this one"
                )

    def _log_lenders(self, server: Proxyserver) -> None:
        """Say whose keys are lent; an error ends mitmproxy while it starts."""
        modes = [instance.mode for instance in server.servers]
        upstreams = [Address(*mode.address) for mode in modes if isinstance(mode, ReverseMode)]
        every = upstreams if len(upstreams) == len(modes) else []
        planner, variable = self._addon.planner, ctx.options.vtc_key_env
        lenders = keys.list_lenders(planner.profiles, every, variable) if planner else []
        at = [Address(str(address[0]), int(address[1])) for address in server.listen_addrs()]
        if variable and len({*every}) != 1:
            logger.error("vtc: vtc_key_env: the key is that of one server, and this is no reverse proxy for one alone")
        for fault in keys.find_faults(lenders, at, shared=ctx.options.vtc_share_keys == "on"):
            logger.error("vtc: %s", fault)
        for lender in lenders:
            logger.info("vtc: %s", lender.lends)

    def done(self) -> None:
        loop = ctx.master.event_loop
        if loop.is_running() and not ctx.master.should_exit.is_set():
            loop.call_soon(self._log_if_removed)  # the script may be loaded anew, as it was edited

    def _log_if_removed(self) -> None:
        if not ctx.master.addons.get(self.name):
            logger.error(
                "vtc: VTC is off from now on, and all passes as it comes: its script was removed, or cannot be loaded. "
                "Start mitmproxy again"
            )


def drop_trace(record: logging.LogRecord) -> bool:
    """Take the trace from a log record about a refused option; for `Logger.addFilter`."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, exceptions.OptionsError):
        record.msg, record.args, record.exc_info = f"vtc: {str(error).removeprefix('vtc: ')}", (), None
    return True


def format_greeting(
    profiles: Profiles, servers: Sequence[tuple[ProxyMode, Sequence[tuple[str | int, ...]]]]
) -> Iterator[str]:
    """Yield the version, the profiles and, for each server of mitmproxy, the base URL that clients are given."""
    yours = [str(directory) for directory in ctx.options.vtc_profiles]
    of = f", yours from {', '.join(yours)}" if yours else ""
    yield f"VTC {__version__}, mode {ctx.options.vtc_mode}: {profiles.format_counts()}{of}"
    for mode, addresses in servers:
        for host, port, *_ in addresses[:1]:
            here = format_client_url(host, port)
            if isinstance(mode, ReverseMode):
                scheme, (name, at) = mode.scheme, mode.address
                yield f"{format_base_url(here)} -> {scheme}://{name}:{at}"
            elif mode.type_name == "regular":
                yield f"no model server was named: this is an ordinary proxy, HTTPS_PROXY={here}"


def format_client_url(host: str | int, port: str | int) -> str:
    """Write the address at which clients of this machine reach a server of mitmproxy's."""
    return f"http://{'127.0.0.1' if host in ALL_INTERFACES else f'[{host}]' if ':' in str(host) else host}:{port}"


def format_base_url(here: str) -> str:
    """Say what clients of a reverse proxy are given."""
    return f"base URL for clients {here}/v1 (Anthropic's, Ollama's and Gemini's: {here})"


def list_base_urls() -> list[str]:
    """Say what clients are given, for each reverse proxy that listens."""
    server = ctx.master.addons.get("proxyserver")
    listening = server.servers if isinstance(server, Proxyserver) else ()
    reverse = [instance for instance in listening if isinstance(instance.mode, ReverseMode)]
    return [
        format_base_url(format_client_url(*instance.listen_addrs[0][:2]))
        for instance in reverse
        if instance.listen_addrs
    ]
