"""Figures of the addon by client, model and dialect: exchanges, calls, repairs by name, policies, bytes, time.

Reports are counted as stored plain data, so that a log of them (`vtc_log`) can be counted as well.
`Metrics` serves the figures to Prometheus.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from mitmproxy import ctx, exceptions

from vtc.profiles.document import format_count
from vtc.proxy import launch
from vtc.reporting.report import OTHERS, choose_model_name

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

type ReportData = Mapping[str, Any]

MAX_MODEL_NAMES = 100
"""Maximum number of models without a profile that are counted by requested name, because clients may send any name."""


@dataclass(slots=True)
class CallCounts:
    """Counts of calls: those made and those that stayed text."""

    calls: int = 0
    repaired: int = 0
    refused: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    """By name, without details."""

    def count_call(self, call: Mapping[str, Any]) -> None:
        times = call.get("count", 1)
        self.calls += times
        if call["repairs"]:
            self.repaired += times
        for repair in call["repairs"]:
            self.repairs[repair.partition(":")[0]] += times

    def as_dict(self) -> dict[str, Any]:
        read = self.calls + self.refused
        return {
            "calls": self.calls,
            "repaired": self.repaired,
            "refused": self.refused,
            "success_rate": round(self.calls / read, 4) if read else None,
            "repairs": dict(self.repairs.most_common()),
        }

    def summarize(self) -> str:
        return f"{format_count(self.calls, 'call')} ({self.repaired} repaired), {self.refused} left as text"


@dataclass(slots=True)
class Figures(CallCounts):
    """Counts of exchanges and their contents."""

    exchanges: int = 0
    unread: int = 0
    """Replies with a possible call that was not parsed."""
    failed: int = 0
    errors: int = 0
    """Server errors: statuses, errors in a stream, replies that broke off or were not JSON."""
    policies: Counter[str] = field(default_factory=Counter)
    """By policy and action: `denied_tools steer`."""
    bytes: Counter[str] = field(default_factory=Counter)
    """Sizes of requests and replies as received and as sent: `request_came`, …"""
    turns: int = 0
    """Requests that continued a conversation."""
    broken: int = 0
    """Turns that changed an earlier part of the prompt, so that the server's cache did not apply to the rest."""
    prompt: Counter[str] = field(default_factory=Counter)
    """Characters of the previous prompts in these turns: `kept` and `lost`."""
    seconds: float = 0.0
    """Time spent in VTC."""
    elapsed: float = 0.0
    """Time from each request to the end of its reply."""

    @property
    def traffic(self) -> int:
        """Bytes that clients sent and received."""
        return self.bytes["request_came"] + self.bytes["reply_went"]

    @property
    def prompt_kept(self) -> float | None:
        """The share of the previous prompts that later turns kept; None without turns."""
        total = self.prompt.total()
        return round(self.prompt["kept"] / total, 4) if total else None

    def add(self, report: ReportData) -> None:
        self.exchanges += 1
        for call in report.get("calls", ()):
            self.count_call(call)
        self.refused += sum(refusal.get("count", 1) for refusal in report.get("refusals", ()))
        self.unread += bool(report.get("unread"))
        self.failed += len(report.get("failures", ()))
        self.errors += len(report.get("errors", ()))
        for decision in report.get("policies", ()):
            self.policies[f"{decision['policy']} {decision['action']}"] += decision.get("count", 1)
        self.bytes.update(report.get("sizes", {}))
        if prefix := report.get("prefix"):
            self.turns += 1
            self.broken += bool(prefix.get("what"))
            self.prompt.update(kept=prefix["chars"], lost=max(0, prefix["chars_of"] - prefix["chars"]))
        self.seconds += report.get("seconds", 0.0)
        self.elapsed += report.get("elapsed", 0.0)

    @classmethod
    def sum_up(cls, rows: Iterable[Figures]) -> Self:
        total = cls()
        for figures in rows:
            total.calls += figures.calls
            total.repaired += figures.repaired
            total.refused += figures.refused
            total.exchanges += figures.exchanges
            total.unread += figures.unread
            total.failed += figures.failed
            total.errors += figures.errors
            total.turns += figures.turns
            total.broken += figures.broken
            total.seconds += figures.seconds
            total.elapsed += figures.elapsed
            for mine, theirs in (
                (total.repairs, figures.repairs),
                (total.policies, figures.policies),
                (total.bytes, figures.bytes),
                (total.prompt, figures.prompt),
            ):
                mine.update(theirs)
        return total

    def as_dict(self) -> dict[str, Any]:
        return {
            "exchanges": self.exchanges,
            **CallCounts.as_dict(self),
            "unread": self.unread,
            "failed": self.failed,
            "errors": self.errors,
            "policies": dict(self.policies.most_common()),
            "bytes": dict(sorted(self.bytes.items())),
            "turns": self.turns,
            "broken_prefixes": self.broken,
            "prompt_kept": self.prompt_kept,
            "seconds": round(self.seconds, 6),
            "elapsed": round(self.elapsed, 3),
        }

    def format_prefixes(self) -> str:
        """Format as `prompt cache usable: 81% (9 turns, broken in 2)`; empty if no conversation continued."""
        share = "" if self.prompt_kept is None else f": {self.prompt_kept:.0%}"
        broken = f", broken in {self.broken}" if self.broken else ""
        return f"prompt cache usable{share} ({format_count(self.turns, 'turn')}{broken})" if self.turns else ""

    def summarize(self) -> str:
        turns = f", {self.format_prefixes()}" if self.turns else ""
        return (
            f"{format_count(self.exchanges, 'exchange')}, {CallCounts.summarize(self)}, {self.unread} unread, "
            f"{format_count(self.failed, 'error')} in VTC, "
            f"{format_count(self.errors, 'server error')}, "
            f"{self.traffic:,} bytes, {self.seconds * 1e3:.0f} ms in VTC{turns}"
        )


class Stats:
    """Figures by client profile and model, and calls by dialect."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Figures] = {}
        """By client and model."""
        self._names: set[str] = set()
        """Names of models without a profile that are counted separately."""
        self.dialects: dict[str, CallCounts] = {}

    def add(self, report: ReportData) -> None:
        """Count the report of one exchange."""
        model = self._choose_name(report["model"], report.get("asked", ""))
        self.rows.setdefault((report["client"], model), Figures()).add(report)
        for call in report.get("calls", ()):
            self.dialects.setdefault(call["dialect"], CallCounts()).count_call(call)
        for refusal in report.get("refusals", ()):
            self.dialects.setdefault(refusal["dialect"], CallCounts()).refused += refusal.get("count", 1)

    def _choose_name(self, profile: str, asked: str) -> str:
        """Return the name under which a model is counted; the number of names that clients may add is limited."""
        name = choose_model_name(profile, asked)
        if name != profile and name not in self._names:
            if len(self._names) >= MAX_MODEL_NAMES:
                return OTHERS
            self._names.add(name)
        return name

    def has_model(self, model: str) -> bool:
        """True if an exchange with a model was counted."""
        return any(row[1] == model for row in self.rows)

    @property
    def total(self) -> Figures:
        return Figures.sum_up(self.rows.values())

    @property
    def clients(self) -> dict[str, Figures]:
        return self._group_by(0)

    @property
    def models(self) -> dict[str, Figures]:
        return self._group_by(1)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `total`, and by name `clients`, `models` and `dialects`."""
        return {
            "total": self.total.as_dict(),
            "clients": {name: figures.as_dict() for name, figures in self.clients.items()},
            "models": {name: figures.as_dict() for name, figures in self.models.items()},
            "dialects": {name: figures.as_dict() for name, figures in sorted(self.dialects.items())},
        }

    def summarize(self) -> Iterator[str]:
        """Yield a line for each client, model and dialect; none without exchanges."""
        for kind, figures in (("client", self.clients), ("model", self.models), ("dialect", self.dialects)):
            for name, figure in sorted(figures.items()):
                yield f"vtc: {kind} {name}: {figure.summarize()}"

    def _group_by(self, place: int) -> dict[str, Figures]:
        names = sorted({row[place] for row in self.rows})
        return {
            name: Figures.sum_up(figures for row, figures in self.rows.items() if row[place] == name) for name in names
        }


logger = logging.getLogger(__name__)


class Metrics:
    """Serves the figures as Prometheus metrics at the address of the option `vtc_metrics`, if it is set.

    The HTTP server of `prometheus-client` runs in a thread, on the loopback interface unless the option names another
    address.
    """

    name = "vtc-metrics"

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._stop: Callable[[], None] | None = None
        self.url = ""
        """The current address of the metrics; empty if they are not served."""

    def configure(self, updated: set[str]) -> None:
        if "vtc_metrics" in updated:
            self.done()
            if ctx.options.vtc_metrics:
                self._serve(*_parse_address(ctx.options.vtc_metrics))

    def done(self) -> None:
        if self._stop:
            self._stop()
        self._stop, self.url = None, ""

    def _serve(self, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            how = launch.format_install_command("prometheus-client")
            raise exceptions.OptionsError(f"vtc_metrics needs the package prometheus-client: {how}") from None
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
        """Yield the metrics; the library calls this for each scrape, in a thread."""
        from prometheus_client.metrics_core import CounterMetricFamily as Counter

        by = ("client", "model")
        exchanges = Counter("vtc_exchanges", "Exchanges seen.", labels=by)
        calls = Counter("vtc_calls", "Calls delivered.", labels=by)
        refused = Counter("vtc_refusals", "Texts that looked like a call and stayed text.", labels=by)
        unread = Counter("vtc_unread", "Replies with a possible call that was not parsed.", labels=by)
        failed = Counter("vtc_failures", "Errors in VTC, after which the rest was forwarded unchanged.", labels=by)
        errors = Counter("vtc_errors", "Errors of servers, and replies that broke off.", labels=by)
        repairs = Counter("vtc_repairs", "Repairs of malformed calls.", labels=(*by, "repair"))
        policies = Counter("vtc_policies", "Actions of policies.", labels=(*by, "policy", "action"))
        sizes = Counter("vtc_bytes", "Bytes of bodies.", labels=(*by, "body"))
        turns = Counter("vtc_turns", "Requests that continued a conversation.", labels=by)
        broken = Counter("vtc_broken_prefixes", "Turns that changed an earlier part of the prompt.", labels=by)
        prompts = Counter("vtc_prompt_characters", "Characters of the prompts before these.", labels=(*by, "fate"))
        seconds = Counter("vtc_work_seconds", "Time spent in VTC.", labels=by)
        for (client, model), figures in self._stats.rows.copy().items():
            for family, value in (
                (exchanges, figures.exchanges),
                (calls, figures.calls),
                (refused, figures.refused),
                (unread, figures.unread),
                (failed, figures.failed),
                (errors, figures.errors),
                (seconds, figures.seconds),
                (turns, figures.turns),
                (broken, figures.broken),
            ):
                family.add_metric((client, model), value)
            for repair, count in figures.repairs.copy().items():
                repairs.add_metric((client, model, repair), count)
            for did, count in figures.policies.copy().items():
                policies.add_metric((client, model, *did.split(" ", 1)), count)
            for fate, count in figures.prompt.copy().items():
                prompts.add_metric((client, model, fate), count)
            for body, size in figures.bytes.copy().items():
                sizes.add_metric((client, model, body), size)
        dialects = Counter("vtc_dialect_calls", "Calls by the dialect they were written in.", labels=("dialect", "end"))
        for dialect, written in self._stats.dialects.copy().items():
            dialects.add_metric((dialect, "delivered"), written.calls)
            dialects.add_metric((dialect, "left as text"), written.refused)
        yield from (exchanges, calls, refused, unread, failed, errors, repairs, policies, sizes, seconds, dialects)
        yield from (turns, broken, prompts)


def _parse_address(option: str) -> tuple[str, int]:
    host, _, port = option.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise exceptions.OptionsError(f"vtc_metrics must be a port or HOST:PORT, not {option!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
