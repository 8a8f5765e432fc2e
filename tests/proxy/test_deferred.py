"""Deferred options, set before the addon is loaded: which are accepted, and the messages about the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from mitmproxy import exceptions
from mitmproxy.test import taddons

from vtc.proxy.addon import VirtualToolCalling


@pytest.fixture
def context() -> Iterator[taddons.context]:
    with taddons.context() as context:
        yield context


def load_addon(context: taddons.context, caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Load the addon as mitmproxy loads a script, which suppresses option errors; return the log."""
    with suppress(exceptions.OptionsError):
        context.master.addons.add(VirtualToolCalling())
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (["vtc_tols=prompt"], "there is no option vtc_tols (did you mean 'vtc_tools'?)"),
        (["vtc_xyzzy=1"], "there is no option vtc_xyzzy"),
        (["vtc_max_call_bytes=abc"], "vtc_max_call_bytes must be a whole number, not 'abc'"),
        (["vtc_keep_alive"], "vtc_keep_alive has no value: --set vtc_keep_alive=…"),
        (["vtc_lenient"], "vtc_lenient has no value: --set vtc_lenient=…"),
        (["vtc_profiles"], "vtc_profiles has no value: --set vtc_profiles=…"),
    ],
)
def test_rejected_option_is_reported_as_an_error(
    specs: list[str], message: str, context: taddons.context, caplog: pytest.LogCaptureFixture
) -> None:
    """An error during the start ends mitmproxy."""
    context.options.set(*specs, defer=True)
    assert load_addon(context, caplog) == [(logging.ERROR, f"vtc: {message}")]


def test_a_file_of_certificates_that_is_none_is_refused(context: taddons.context) -> None:
    """mitmproxy would report it at each request, with a traceback."""
    context.master.addons.add(addon := VirtualToolCalling())
    with pytest.raises(exceptions.OptionsError, match=rf"_trusted_ca: {__file__} has no certificate in PEM format"):
        context.configure(addon, ssl_verify_upstream_trusted_ca=__file__)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vtc_tools": 5}, "vtc_tools must be a text, not 5"),
        ({"vtc_keep_alive": "5"}, "vtc_keep_alive must be a whole number, not '5'"),
        ({"vtc_models": "a=b"}, "vtc_models must be a list of texts, not 'a=b'"),
    ],
)
def test_wrong_type_in_mitmproxys_file_is_reported(
    given: dict[str, Any], message: str, context: taddons.context, caplog: pytest.LogCaptureFixture
) -> None:
    context.options.update_defer(**given)
    assert load_addon(context, caplog) == [(logging.ERROR, f"vtc: {message}")]


def test_value_rejected_by_another_addon_is_reported(
    context: taddons.context, caplog: pytest.LogCaptureFixture
) -> None:
    """mitmproxy would unload this addon because of it."""
    context.options.set("others_option=1", "others_option=2", defer=True)
    context.options.add_option("others_option", str, "", "")
    ((level, message),) = load_addon(context, caplog)
    assert level == logging.ERROR
    assert "others_option" in message


@pytest.mark.parametrize("spec", ["vtc_tools=prompt", "vtc_max_call_bytes=5", "others_option=1", "others_option"])
def test_other_options_are_set_or_ignored(
    spec: str, context: taddons.context, caplog: pytest.LogCaptureFixture
) -> None:
    context.options.set(spec, defer=True)
    assert load_addon(context, caplog) == []


def test_of_several_values_the_last_counts_and_lists_add_up(
    context: taddons.context, caplog: pytest.LogCaptureFixture
) -> None:
    specs = ["vtc_keep_alive=5", "vtc_models=a=b", "vtc_keep_alive=7", "vtc_models=c=d"]
    context.options.set(*specs, defer=True)
    message = "vtc: vtc_keep_alive is given 2 times: the last value, 7, wins"
    assert load_addon(context, caplog) == [(logging.WARNING, message)]
    assert context.options.vtc_keep_alive == 7
    assert context.options.vtc_models == ["a=b", "c=d"]
