"""Compare mitmdump with VTC to mitmdump with an identity callable: CPU per chunk, time to the first text.

CPU time is measured while both run at the same time on the same CPU, and the model servers and clients on another: if
they ran one after the other, the ratio would depend on changes in the machine's speed. Two processes that run the same
code still differ by some per cent for their whole life, because their memory layout is random; therefore multiple pairs
run one after the other.

With `against`, the other side is the VTC of another folder, for example another commit, instead of the identity
callable.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from itertools import repeat
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import IPAddress
from mitmproxy.certs import CertStore

from benchmarks import samples
from benchmarks.figures import Figure, compute_ratios, measure_interleaved
from benchmarks.proxy.processes import (
    ADDON,
    IDENTITY,
    ROOT,
    Process,
    choose_cpus,
    make_mitmdump_command,
    make_module_command,
    run_process,
)
from benchmarks.samples import PROFILES

CALL_CHARS = 64 << 10
"""Number of characters of a long call."""
WARM_UP_CHUNKS = 512
"""Maximum chunks (for a call, characters) of the first reply, which warms up both sides and is no sample."""
RATIO_GROUP = "proxy: mitmdump with VTC / with an identity callable"
ADDED_GROUP = "proxy: microseconds a frame that VTC adds to an identity callable"
AGAINST_GROUP = "proxy: mitmdump with this VTC / with that of"


@dataclass(frozen=True, slots=True)
class ProxyCase:
    """Load of a client: `streams` at once, `exchanges` on each, `chunks` in the reply of each."""

    name: str
    reply: str
    chunks: int
    target: float | None
    """Maximum of the ratio."""
    max_added_us: float | None = None
    """Maximum microseconds per frame that VTC may add."""
    streams: int = 1
    exchanges: int = 1
    tls: bool = False
    wait: float = 0.0
    gap: float = 0.0
    messages: int = 20
    tools: int = 10
    rounds: int = 2
    """Rounds for each pair of processes."""

    @property
    def frames(self) -> int:
        """Number of frames of all replies together."""
        each = self.chunks if self.reply in samples.SHAPES else self.chunks // samples.PIECE_CHARS
        return each * self.streams * self.exchanges

    def make_command(self, port: int) -> dict[str, Any]:
        shape = samples.SHAPES.get(self.reply, samples.SHAPES["plain"])
        return {
            "port": port,
            "tls": self.tls,
            "streams": self.streams,
            "exchanges": self.exchanges,
            "path": f"{shape.path}?reply={self.reply}&chunks={self.chunks}&wait={self.wait}&gap={self.gap}",
            "body": samples.make_shape_request(shape, messages=self.messages, tool_count=self.tools),
        }


CPU_CASES = (
    ProxyCase("plain text", "plain", 8000, 1.10, rounds=4),
    ProxyCase("plain text, TLS", "plain", 8000, 1.10, tls=True, rounds=3),
    ProxyCase("plain text, 64 streams", "plain", 1000, 1.10, streams=64, rounds=4),
    ProxyCase("plain text, 64 streams, TLS", "plain", 1000, 1.10, streams=64, tls=True),
    ProxyCase("plain text, paced at 5 ms", "plain", 200, 1.10, gap=0.005, rounds=3),
    ProxyCase("a 64 KB call (hermes)", "hermes", CALL_CHARS, 0.9),
    ProxyCase("a 64 KB call (qwen3-coder)", "qwen3-coder", CALL_CHARS, 0.9),
    ProxyCase("a 64 KB call (hermes), TLS", "hermes", CALL_CHARS, 0.9, tls=True),
    ProxyCase("4 KB calls, 64 streams", "hermes", CALL_CHARS // 16, 1.25, streams=64, rounds=1),
)
SHAPE_CASES = tuple(
    ProxyCase(shape.label, name, 8000, None, max_added_us=shape.max_added_us, rounds=3)
    for name, shape in samples.SHAPES.items()
    if shape.max_added_us is not None
)
EXCHANGE_CASE = ProxyCase("an exchange of two chunks", "plain", 2, None, exchanges=40, rounds=3)
FIRST_TEXT_CASES = (
    ProxyCase("from a model that takes 0.1 s", "plain", 2, 1.05, exchanges=6, wait=0.1),
    ProxyCase("from a model that takes 0.1 s, TLS", "plain", 2, 1.05, exchanges=6, wait=0.1, tls=True),
    ProxyCase(
        "from a model that takes 0.1 s, request of 300 KB",
        "plain",
        2,
        1.05,
        exchanges=6,
        wait=0.1,
        messages=200,
        tools=40,
    ),
    ProxyCase("from one that takes no time", "plain", 2, None, exchanges=20),
    ProxyCase("from one that takes no time, request of 300 KB", "plain", 2, None, exchanges=20, messages=200, tools=40),
)


@dataclass(frozen=True, slots=True)
class Side:
    """Two mitmdumps, without and with TLS (the keys), and their client."""

    proxies: dict[bool, Process]
    ports: dict[bool, int]
    client: Process

    def run(self, case: ProxyCase) -> dict[str, Any]:
        """Return the client's measurements; `cpu_us` is mitmdump's CPU time per frame."""
        proxy = self.proxies[case.tls]
        before = proxy.ask()["cpu_ns"]
        answer = self.client.ask(case.make_command(self.ports[case.tls]))
        answer["cpu_us"] = (proxy.ask()["cpu_ns"] - before) / case.frames / 1e3
        return answer


@contextmanager
def start_sides(against: Path | None = None) -> Iterator[tuple[Side, Side]]:
    """Start both sides with the same model servers: first the identity callable or `against`, then VTC."""
    with ExitStack() as stack:
        confdir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxy_cpus, other_cpus = choose_cpus()
        servers = {
            False: ("http", stack.enter_context(run_process(make_module_command("upstream"), other_cpus))),
            True: (
                "https",
                stack.enter_context(
                    run_process(make_module_command("upstream", str(write_certificate(confdir))), other_cpus)
                ),
            ),
        }
        upstreams = {tls: f"{scheme}://127.0.0.1:{server.read()['port']}" for tls, (scheme, server) in servers.items()}
        sides = []
        other = (against / "addons" / "addon.py", against) if against else (IDENTITY, ROOT)
        for script, root in (other, (ADDON, ROOT)):
            proxies = {
                tls: stack.enter_context(run_process(_make_side_command(script, url, confdir), proxy_cpus, root))
                for tls, url in upstreams.items()
            }
            client = stack.enter_context(run_process(make_module_command("client"), other_cpus))
            sides.append(Side(proxies, {tls: proxy.read()["port"] for tls, proxy in proxies.items()}, client))
        yield sides[0], sides[1]


def _make_side_command(script: Path, upstream: str, confdir: Path) -> list[str]:
    """Return the command of one side; it does not verify the certificate of the model server."""
    settings = () if script == IDENTITY else (f"vtc_profiles={PROFILES}",)
    return make_mitmdump_command(script, upstream, confdir, "ssl_insecure=true", *settings)


def write_certificate(confdir: Path) -> Path:
    """Write a TLS key and certificate for a server on the loopback interface, signed by mitmproxy's CA."""
    address = IPAddress(ip_address("127.0.0.1"))
    entry = CertStore.from_store(confdir, "mitmproxy", 2048).get_cert("127.0.0.1", [address])
    pem = confdir / "upstream.pem"
    key = entry.privatekey.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    pem.write_bytes(entry.cert.to_pem() + key)
    return pem


def measure(pairs: int, against: Path | None = None) -> list[Figure]:
    """Measure all cases on `pairs` of processes; the targets apply to the comparison with an identity callable only."""
    by_chunk = (*CPU_CASES, *SHAPE_CASES)
    cases = [*by_chunk, EXCHANGE_CASE, *((case, place) for case in FIRST_TEXT_CASES for place in CONNECTIONS)]
    times: dict[object, list[PairTimes]] = {case: [] for case in cases}
    for _ in range(pairs):
        with start_sides(against) as both:
            for case in (*by_chunk, EXCHANGE_CASE):
                times[case].append(_measure_cpu(case, both))
            for case in FIRST_TEXT_CASES:
                for place, pair in _measure_first_text(case, both).items():
                    times[case, place].append(pair)
    added = () if against else SHAPE_CASES
    all_figures = [
        *(_make_figure(f"CPU by chunk: {case.name}", times[case], case.target, 1, "us") for case in CPU_CASES),
        *(_make_figure(f"CPU by frame: {case.name}", times[case], None, 1, "us") for case in SHAPE_CASES if not added),
        _make_figure("CPU by exchange: two chunks", times[EXCHANGE_CASE], None, EXCHANGE_CASE.chunks / 1e3, "ms"),
        *(
            _make_figure(f"first text, {place}: {case.name}", times[case, place], case.target, 1e3, "ms")
            for case in FIRST_TEXT_CASES
            for place in CONNECTIONS
        ),
        *(_make_added_figure(case, times[case]) for case in added),
    ]
    if not against:
        return all_figures
    return [replace(figure, group=f"{AGAINST_GROUP} {against.name}", target=None) for figure in all_figures]


CONNECTIONS = ("a new connection", "a reused connection")


@dataclass(frozen=True, slots=True)
class PairTimes:
    """Times of a pair of processes, round by round; with `against`, `identity` is the other version."""

    vtc: list[float]
    identity: list[float]


def _make_figure(label: str, pairs: Sequence[PairTimes], target: float | None, scale: float, unit: str) -> Figure:
    vtc = [seconds for pair in pairs for seconds in pair.vtc]
    identity = [seconds for pair in pairs for seconds in pair.identity]
    ours, floor = statistics.median(vtc) * scale, statistics.median(identity) * scale
    return Figure(
        RATIO_GROUP,
        label,
        "x",
        compute_ratios(vtc, identity),
        target,
        f"{ours:.{1 + (unit == 'ms')}f} / {floor:.{1 + (unit == 'ms')}f} {unit}",
        details={f"vtc_{unit}": ours, f"identity_{unit}": floor},
    )


def _make_added_figure(case: ProxyCase, pairs: Sequence[PairTimes]) -> Figure:
    """Make the figure of the time that VTC adds to a frame; the note contains the ratio."""
    ratio = _make_figure(case.name, pairs, None, 1, "us")
    added = [ours - floor for pair in pairs for ours, floor in zip(pair.vtc, pair.identity, strict=True)]
    note = f"{ratio.median:.2f} x  {ratio.note}"
    return replace(ratio, group=ADDED_GROUP, unit="us", samples=added, target=case.max_added_us, note=note)


def _measure_cpu(case: ProxyCase, both: tuple[Side, Side]) -> PairTimes:
    """Measure microseconds per frame of both sides at the same time."""
    times = PairTimes([], [])
    with ThreadPoolExecutor(len(both)) as at_once:
        list(at_once.map(Side.run, both, repeat(replace(case, chunks=min(case.chunks, WARM_UP_CHUNKS)))))
        for _ in range(case.rounds):
            identity, vtc = at_once.map(Side.run, both, repeat(case))
            if case.reply in samples.SHAPES:
                assert identity["texts"] == vtc["texts"], "VTC changed a reply that contains no call"
            else:
                assert vtc["called"], "VTC found no call"
            times.identity.append(identity["cpu_us"])
            times.vtc.append(vtc["cpu_us"])
    return times


def _measure_first_text(case: ProxyCase, both: tuple[Side, Side]) -> dict[str, PairTimes]:
    """Measure the seconds to the first text, for the first exchange of a connection and for later ones."""
    for side in both:
        side.run(case)
    times: dict[str, tuple[list[float], list[float]]] = {place: ([], []) for place in CONNECTIONS}

    def measure(side: Side) -> float:
        (seconds,) = side.run(case)["first_s"]
        for place, first_text in zip(CONNECTIONS, (seconds[0], statistics.median(seconds[1:])), strict=True):
            times[place][both.index(side)].append(first_text)
        return 0.0

    measure_interleaved(both, measure, case.rounds)
    return {place: PairTimes(vtc, identity) for place, (identity, vtc) in times.items()}


def measure_start(rounds: int) -> Iterator[Figure]:
    """Measure the time that VTC adds to the start of mitmdump."""
    proxy_cpus, _ = choose_cpus()
    with tempfile.TemporaryDirectory() as directory:
        confdir = Path(directory)
        write_certificate(confdir)

        def measure_seconds(script: Path) -> float:
            started = time.perf_counter()
            with run_process(_make_side_command(script, "http://127.0.0.1:9", confdir), proxy_cpus) as proxy:
                proxy.read()
                return time.perf_counter() - started

        scripts = (IDENTITY, ADDON)
        for script in scripts:
            measure_seconds(script)
        identity, vtc = measure_interleaved(scripts, measure_seconds, rounds)
    added = [ours - floor for ours, floor in zip(vtc, identity, strict=True)]
    floor, ours = statistics.median(identity), statistics.median(vtc)
    yield Figure(
        "start",
        "start-up added to mitmdump",
        "s",
        added,
        0.3,
        f"{ours:.2f} / {floor:.2f} s",
        details={"vtc_s": ours, "identity_s": floor},
    )
