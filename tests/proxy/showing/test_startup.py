"""Messages at the start; `tests/e2e/test_start.py` tests mitmdump as a process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import exceptions
from mitmproxy.addons.termlog import TermLog
from mitmproxy.log import MitmFormatter
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import taddons

from tests.e2e.conftest import running_proxy
from vtc import __version__
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.showing import startup


@pytest.fixture
def context() -> Iterator[taddons.context]:
    with taddons.context() as context:
        yield context


@pytest.mark.parametrize(("no_color", "colours"), [("1", False), ("", True)])
def test_log_has_no_colours_if_the_user_disables_them(
    no_color: str, colours: bool, context: taddons.context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    terminal = TermLog()
    terminal.logger.formatter = MitmFormatter(colorize=True)
    context.master.addons.add(terminal)
    context.master.addons.add(VirtualToolCalling())
    formatter = terminal.logger.formatter
    terminal.uninstall()
    assert isinstance(formatter, MitmFormatter)
    assert formatter.colorize == colours


@pytest.mark.parametrize(("given", "level"), [("0", logging.WARNING), ("1", logging.NOTSET), (None, logging.NOTSET)])
def test_quiet_connections_are_also_quiet_in_mitmweb(given: str | None, level: int, context: taddons.context) -> None:
    """mitmweb has no option `flow_detail`, so a given value stays deferred."""
    context.options.set(*([f"flow_detail={given}"] if given else []), defer=True)
    context.master.addons.add(VirtualToolCalling())
    try:
        assert {connections.level for connections in startup.CONNECTION_LOGGERS} == {level}
    finally:
        for connections in startup.CONNECTION_LOGGERS:
            connections.setLevel(logging.NOTSET)


def record(error: Exception) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "x.py", 1, "error in script", (), (type(error), error, None))


def test_a_refused_option_has_no_trace_and_a_fault_of_ours_has() -> None:
    refused, broken = record(exceptions.OptionsError("vtc_mode must be …")), record(RuntimeError("ours"))
    assert startup.drop_trace(refused)
    assert (refused.getMessage(), refused.exc_info) == ("vtc: vtc_mode must be …", None)
    assert startup.drop_trace(broken)
    assert broken.exc_info


@pytest.mark.parametrize(
    ("mode", "address", "message"),
    [
        (
            "reverse:http://10.0.0.5:8000",
            ("127.0.0.1", 8088),
            "base URL for clients http://127.0.0.1:8088/v1 (Anthropic's, Ollama's and Gemini's: http://127.0.0.1:8088) "
            "-> http://10.0.0.5:8000",
        ),
        (
            "regular",
            ("::", 8088, 0, 0),
            "no model server was named, so this is an ordinary proxy: HTTPS_PROXY=http://127.0.0.1:8088",
        ),
        ("regular", ("::1", 8088, 0, 0), "HTTPS_PROXY=http://[::1]:8088"),
    ],
)
def test_address_for_clients_is_printed(
    mode: str, address: tuple[Any, ...], message: str, context: taddons.context
) -> None:
    context.master.addons.add(addon := VirtualToolCalling())
    context.configure(addon, vtc_mode="observe")
    assert addon.planner
    who, where = startup.format_greeting(addon.planner.profiles, [(ProxyMode.parse(mode), [address])])
    assert who.startswith(f"VTC {__version__}, mode observe: ")
    assert where.endswith(message)


def test_your_own_profiles_are_named(context: taddons.context, tmp_path: Any) -> None:
    context.master.addons.add(addon := VirtualToolCalling())
    context.configure(addon, vtc_profiles=[str(tmp_path)])
    assert addon.planner
    (who,) = startup.format_greeting(addon.planner.profiles, [])
    assert who.endswith(f"agents, yours from {tmp_path}")


@pytest.mark.parametrize("how", ["removed", "loaded anew", "ended"])
async def test_failure_is_reported_and_mitmproxy_continues(
    how: str, confdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """mitmproxy unloads a script whose file is missing for a moment, as while VTC is reinstalled."""
    async with running_proxy(confdir) as proxy:
        if how != "ended":
            proxy.master.addons.remove(proxy.addon)
        if how == "loaded anew":
            proxy.master.addons.add(VirtualToolCalling())
        await asyncio.sleep(0)
    assert ("VTC is off and all traffic" in caplog.text) == (how == "removed")
