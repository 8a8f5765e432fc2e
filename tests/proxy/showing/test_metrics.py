"""The statistics in Prometheus format."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import httpx
import pytest
from mitmproxy import exceptions
from mitmproxy.test import taddons
from prometheus_client.parser import text_string_to_metric_families

from tests.proxy.showing.test_log_file import REFUSED, TEXT, exchange
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.showing.stats import Metrics


@pytest.fixture
def loaded() -> Iterator[tuple[VirtualToolCalling, taddons.context, Metrics]]:
    addon = VirtualToolCalling()
    (metrics,) = (one for one in addon.addons if isinstance(one, Metrics))
    with taddons.context(addon) as context:
        context.configure(addon, vtc_metrics="0", vtc_tools="prompt")
        yield addon, context, metrics
        metrics.done()


type Loaded = tuple[VirtualToolCalling, taddons.context, Metrics]


def scrape_metrics(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Return the samples by name and labels."""
    text = httpx.get(metrics.url, trust_env=False).text
    families = text_string_to_metric_families(text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_scraped_metrics(loaded: Loaded) -> None:
    addon, _, metrics = loaded
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", metrics.url)
    exchange(addon, TEXT + REFUSED)
    exchange(addon, TEXT.removesuffix("</tool_call>"))
    found = scrape_metrics(metrics)
    by = ("other", "lab-model")
    assert found["vtc_exchanges_total", *by] == 2
    assert found["vtc_calls_total", *by] == 2
    assert found["vtc_refusals_total", *by] == 1
    assert found["vtc_unread_total", *by] == 0
    assert found["vtc_failures_total", *by] == 0
    assert found["vtc_errors_total", *by] == 0
    assert found["vtc_repairs_total", *by, "missing-closer"] == 1
    assert found["vtc_dialect_calls_total", "hermes", "delivered"] == 2
    assert found["vtc_dialect_calls_total", "hermes", "left as text"] == 1
    assert found["vtc_bytes_total", "request_came", *by] > 0
    assert found["vtc_work_seconds_total", *by] > 0


def test_it_can_be_moved_and_switched_off(loaded: Loaded) -> None:
    addon, context, metrics = loaded
    before = metrics.url
    context.configure(addon, vtc_metrics="127.0.0.1:0")
    with pytest.raises(httpx.ConnectError):
        httpx.get(before, trust_env=False)
    assert scrape_metrics(metrics) == {}
    context.configure(addon, vtc_metrics="")
    assert metrics.url == ""


@pytest.mark.parametrize("value", ["x", "127.0.0.1", "127.0.0.1:x", "70000", ":"])
def test_invalid_address_is_rejected(value: str) -> None:
    addon = VirtualToolCalling()
    with (
        taddons.context(addon) as context,
        pytest.raises(exceptions.OptionsError, match=r"vtc_metrics must be a port or HOST:PORT"),
    ):
        context.configure(addon, vtc_metrics=value)


def test_a_port_that_is_taken(loaded: Loaded) -> None:
    _, _, metrics = loaded
    other = VirtualToolCalling()
    with (
        taddons.context(other) as context,
        pytest.raises(exceptions.OptionsError, match=r"vtc_metrics: 127\.0\.0\.1:\d+: "),
    ):
        context.configure(other, vtc_metrics=metrics.url.removeprefix("http://").removesuffix("/metrics"))


def test_missing_library_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    addon = VirtualToolCalling()
    with (
        taddons.context(addon) as context,
        pytest.raises(exceptions.OptionsError, match=r"python\S* -m pip install prometheus-client$"),
    ):
        context.configure(addon, vtc_metrics="0")
