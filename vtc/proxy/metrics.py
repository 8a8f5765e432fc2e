"""The figures as Prometheus metrics, by the official client library (`prometheus-client`).

Served by the library's own HTTP server in a thread, on the loopback interface unless the option names another address.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mitmproxy import ctx, exceptions

from vtc.proxy.stats import Stats

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)


class Metrics:
    """Serves at the address of the option `vtc_metrics`, if it names one."""

    name = "vtc-metrics"

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._stop: Callable[[], None] | None = None
        self.url = ""
        """Where they are served now."""

    def configure(self, updated: set[str]) -> None:
        if "vtc_metrics" in updated:
            self.done()
            if ctx.options.vtc_metrics:
                self._serve(*_address(ctx.options.vtc_metrics))

    def done(self) -> None:
        if self._stop:
            self._stop()
        self._stop, self.url = None, ""

    def _serve(self, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            message = (
                f"vtc_metrics needs the package prometheus-client: {sys.executable} -m pip install prometheus-client"
            )
            raise exceptions.OptionsError(message) from None
        registry = CollectorRegistry()
        registry.register(self)
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise exceptions.OptionsError(f"vtc_metrics: {host}:{port}: {error.strerror or error}") from None

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop
        self.url = f"http://{host}:{server.server_port}/metrics"
        logger.info("vtc: metrics at %s", self.url)

    def collect(self) -> Iterator[Metric]:
        """What the library calls for each scrape, in its own thread."""
        from prometheus_client.metrics_core import CounterMetricFamily as Counter

        by = ("client", "model")
        exchanges = Counter("vtc_exchanges", "Exchanges seen.", labels=by)
        calls = Counter("vtc_calls", "Calls delivered.", labels=by)
        refused = Counter("vtc_refusals", "What looked like a call and stayed text.", labels=by)
        failed = Counter("vtc_failures", "Failures after which the rest passed as it came.", labels=by)
        errors = Counter("vtc_errors", "Errors of servers, and replies that broke off.", labels=by)
        repairs = Counter("vtc_repairs", "Repairs of malformed calls.", labels=(*by, "repair"))
        policies = Counter("vtc_policies", "What policies did.", labels=(*by, "policy", "action"))
        sizes = Counter("vtc_bytes", "Bytes of bodies.", labels=(*by, "body"))
        turns = Counter("vtc_turns", "Requests that went on with a conversation.", labels=by)
        broken = Counter("vtc_broken_prefixes", "Those that changed what the server had of it.", labels=by)
        prompts = Counter("vtc_prompt_characters", "Characters of the prompts before these.", labels=(*by, "fate"))
        seconds = Counter("vtc_work_seconds", "Time spent in VTC.", labels=by)
        for (client, model), one in self._stats.rows.copy().items():
            for family, value in (
                (exchanges, one.exchanges),
                (calls, one.calls),
                (refused, one.refused),
                (failed, one.failed),
                (errors, one.errors),
                (seconds, one.seconds),
                (turns, one.turns),
                (broken, one.broken),
            ):
                family.add_metric((client, model), value)
            for repair, count in one.repairs.copy().items():
                repairs.add_metric((client, model, repair), count)
            for did, count in one.policies.copy().items():
                policies.add_metric((client, model, *did.split(" ", 1)), count)
            for fate, count in one.prompt.copy().items():
                prompts.add_metric((client, model, fate), count)
            for body, size in one.bytes.copy().items():
                sizes.add_metric((client, model, body), size)
        dialects = Counter("vtc_dialect_calls", "Calls by the dialect they were written in.", labels=("dialect", "end"))
        for dialect, found in self._stats.dialects.copy().items():
            dialects.add_metric((dialect, "delivered"), found.calls)
            dialects.add_metric((dialect, "left as text"), found.refused)
        yield from (exchanges, calls, refused, failed, errors, repairs, policies, sizes, seconds, dialects)
        yield from (turns, broken, prompts)


def _address(option: str) -> tuple[str, int]:
    host, _, port = option.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise exceptions.OptionsError(f"vtc_metrics must be a port or HOST:PORT, not {option!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
