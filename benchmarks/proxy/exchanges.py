"""mitmdump with VTC against mitmdump with an identity callable: CPU by chunk, time to the first text.

CPU is measured while both work at the same time on one and the same CPU, the model servers and the clients on another:
where one of them ran now and the other then, the ratio would be that of two speeds of the machine. Two processes that
run the same still differ by some per cent, for as long as they live, as where their memory lies is a matter of chance;
so there are several pairs of them, one after the other.

In place of the identity callable the other side may be VTC as it is in another folder (`against`): another commit.
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
from benchmarks.figures import Figure, interleaved, ratios
from benchmarks.proxy.processes import ADDON, IDENTITY, ROOT, Process, cpus, mitmdump, module, running
from benchmarks.samples import PROFILES

CALL = 64 << 10
"""Characters of a long call."""
SHORT = 512
"""Chunks (of a call characters) of a first reply that is no sample: it makes both sides ready."""
GROUP = "proxy: mitmdump with VTC / with an identity callable"
ADDED = "proxy: microseconds a frame that VTC adds to an identity callable"
AGAINST = "proxy: mitmdump with this VTC / with that of"


@dataclass(frozen=True, slots=True)
class Case:
    """What a client asks for: so many streams at once, so many exchanges on each, so many chunks in each."""

    name: str
    reply: str
    chunks: int
    target: float | None
    """The most that the ratio may be."""
    added: float | None = None
    """The most microseconds a frame that VTC may add."""
    streams: int = 1
    exchanges: int = 1
    tls: bool = False
    wait: float = 0.0
    gap: float = 0.0
    messages: int = 20
    tools: int = 10
    rounds: int = 2
    """On each pair of processes."""

    @property
    def frames(self) -> int:
        """Of all replies together."""
        each = self.chunks if self.reply in samples.SHAPES else self.chunks // samples.PIECE
        return each * self.streams * self.exchanges

    def command(self, port: int) -> dict[str, Any]:
        shape = samples.SHAPES.get(self.reply, samples.SHAPES["plain"])
        return {
            "port": port,
            "tls": self.tls,
            "streams": self.streams,
            "exchanges": self.exchanges,
            "path": f"{shape.path}?reply={self.reply}&chunks={self.chunks}&wait={self.wait}&gap={self.gap}",
            "body": samples.asked(shape, messages=self.messages, tools_=self.tools),
        }


CPU = (
    Case("plain text", "plain", 8000, 1.10, rounds=4),
    Case("plain text, TLS", "plain", 8000, 1.10, tls=True, rounds=3),
    Case("plain text, 64 streams", "plain", 1000, 1.10, streams=64, rounds=4),
    Case("plain text, 64 streams, TLS", "plain", 1000, 1.10, streams=64, tls=True),
    Case("plain text, paced at 5 ms", "plain", 200, 1.10, gap=0.005, rounds=3),
    Case("a 64 KB call (hermes)", "hermes", CALL, 0.9),
    Case("a 64 KB call (qwen3-coder)", "qwen3-coder", CALL, 0.9),
    Case("a 64 KB call (hermes), TLS", "hermes", CALL, 0.9, tls=True),
    Case("4 KB calls, 64 streams", "hermes", CALL // 16, 1.25, streams=64, rounds=1),
)
BY_SHAPE = tuple(
    Case(shape.what, name, 8000, None, added=shape.most, rounds=3)
    for name, shape in samples.SHAPES.items()
    if shape.most is not None
)
EXCHANGE = Case("an exchange of two chunks", "plain", 2, None, exchanges=40, rounds=3)
FIRST = (
    Case("from a model that takes 0.1 s", "plain", 2, 1.05, exchanges=6, wait=0.1),
    Case("from a model that takes 0.1 s, TLS", "plain", 2, 1.05, exchanges=6, wait=0.1, tls=True),
    Case(
        "from a model that takes 0.1 s, 300 KB asked", "plain", 2, 1.05, exchanges=6, wait=0.1, messages=200, tools=40
    ),
    Case("from one that takes no time", "plain", 2, None, exchanges=20),
    Case("from one that takes no time, 300 KB asked", "plain", 2, None, exchanges=20, messages=200, tools=40),
)


@dataclass(frozen=True, slots=True)
class Side:
    """A mitmdump, and its ports by whether they speak TLS."""

    proxies: dict[bool, Process]
    ports: dict[bool, int]
    client: Process

    def run(self, case: Case) -> dict[str, Any]:
        """What the client saw; `cpu_us` is mitmdump's time by frame."""
        proxy = self.proxies[case.tls]
        before = proxy.ask()["cpu_ns"]
        answer = self.client.ask(case.command(self.ports[case.tls]))
        answer["cpu_us"] = (proxy.ask()["cpu_ns"] - before) / case.frames / 1e3
        return answer


@contextmanager
def sides(against: Path | None = None) -> Iterator[tuple[Side, Side]]:
    """Start both sides before the same model servers: the identity callable's or that of `against`, and VTC's."""
    with ExitStack() as stack:
        confdir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        compared, rest = cpus()
        servers = {
            False: ("http", stack.enter_context(running(module("upstream"), rest))),
            True: ("https", stack.enter_context(running(module("upstream", str(certificate(confdir))), rest))),
        }
        upstreams = {tls: f"{scheme}://127.0.0.1:{server.read()['port']}" for tls, (scheme, server) in servers.items()}
        found = []
        other = (against / "addons" / "addon.py", against) if against else (IDENTITY, ROOT)
        for script, root in (other, (ADDON, ROOT)):
            proxies = {
                tls: stack.enter_context(running(_mitmdump(script, url, confdir), compared, root))
                for tls, url in upstreams.items()
            }
            client = stack.enter_context(running(module("client"), rest))
            found.append(Side(proxies, {tls: proxy.read()["port"] for tls, proxy in proxies.items()}, client))
        yield found[0], found[1]


def _mitmdump(script: Path, upstream: str, confdir: Path) -> list[str]:
    """Write the command of one side; its upstream's certificate is `certificate`'s."""
    settings = () if script == IDENTITY else (f"vtc_profiles={PROFILES}",)
    return mitmdump(script, upstream, confdir, "ssl_insecure=true", *settings)


def certificate(confdir: Path) -> Path:
    """TLS for a server on the loopback interface, by mitmproxy's own CA."""
    address = IPAddress(ip_address("127.0.0.1"))
    entry = CertStore.from_store(confdir, "mitmproxy", 2048).get_cert("127.0.0.1", [address])
    pem = confdir / "upstream.pem"
    key = entry.privatekey.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    pem.write_bytes(entry.cert.to_pem() + key)
    return pem


def figures(pairs: int, against: Path | None = None) -> list[Figure]:
    """Measure all cases on so many pairs of processes; targets are those against an identity callable."""
    by_chunk = (*CPU, *BY_SHAPE)
    cases = [*by_chunk, EXCHANGE, *((case, place) for case in FIRST for place in CONNECTIONS)]
    compared: dict[object, list[Compared]] = {case: [] for case in cases}
    for _ in range(pairs):
        with sides(against) as both:
            for case in (*by_chunk, EXCHANGE):
                compared[case].append(_cpu(case, both))
            for case in FIRST:
                for place, one in _first(case, both).items():
                    compared[case, place].append(one)
    added = () if against else BY_SHAPE
    found = [
        *(_figure(f"CPU by chunk: {case.name}", compared[case], case.target, 1, "us") for case in CPU),
        *(_figure(f"CPU by frame: {case.name}", compared[case], None, 1, "us") for case in BY_SHAPE if not added),
        _figure("CPU by exchange: two chunks", compared[EXCHANGE], None, EXCHANGE.chunks / 1e3, "ms"),
        *(
            _figure(f"first text, {place}: {case.name}", compared[case, place], case.target, 1e3, "ms")
            for case in FIRST
            for place in CONNECTIONS
        ),
        *(_added(case, compared[case]) for case in added),
    ]
    if not against:
        return found
    return [replace(figure, group=f"{AGAINST} {against.name}", target=None) for figure in found]


CONNECTIONS = ("a new connection", "a kept connection")


@dataclass(frozen=True, slots=True)
class Compared:
    """What a pair of processes took, round by round."""

    vtc: list[float]
    identity: list[float]


def _figure(what: str, compared: Sequence[Compared], target: float | None, scale: float, unit: str) -> Figure:
    vtc = [taken for one in compared for taken in one.vtc]
    identity = [taken for one in compared for taken in one.identity]
    ours, floor = statistics.median(vtc) * scale, statistics.median(identity) * scale
    return Figure(
        GROUP,
        what,
        "x",
        ratios(vtc, identity),
        target,
        f"{ours:.{1 + (unit == 'ms')}f} / {floor:.{1 + (unit == 'ms')}f} {unit}",
        details={f"vtc_{unit}": ours, f"identity_{unit}": floor},
    )


def _added(case: Case, compared: Sequence[Compared]) -> Figure:
    """Tell what VTC adds to a frame, with the ratio beside it."""
    ratio = _figure(case.name, compared, None, 1, "us")
    added = [ours - floor for one in compared for ours, floor in zip(one.vtc, one.identity, strict=True)]
    note = f"{ratio.median:.2f} x  {ratio.note}"
    return replace(ratio, group=ADDED, unit="us", samples=added, target=case.added, note=note)


def _cpu(case: Case, both: tuple[Side, Side]) -> Compared:
    """Microseconds by chunk, of both at the same time."""
    compared = Compared([], [])
    with ThreadPoolExecutor(len(both)) as at_once:
        list(at_once.map(Side.run, both, repeat(replace(case, chunks=min(case.chunks, SHORT)))))
        for _ in range(case.rounds):
            identity, vtc = at_once.map(Side.run, both, repeat(case))
            if case.reply in samples.SHAPES:
                assert identity["texts"] == vtc["texts"], "VTC changed a reply that holds no call"
            else:
                assert vtc["called"], "VTC found no call"
            compared.identity.append(identity["cpu_us"])
            compared.vtc.append(vtc["cpu_us"])
    return compared


def _first(case: Case, both: tuple[Side, Side]) -> dict[str, Compared]:
    """Seconds, for the first exchange of a connection and for those that follow on it."""
    for side in both:
        side.run(case)
    taken: dict[str, tuple[list[float], list[float]]] = {place: ([], []) for place in CONNECTIONS}

    def measure(side: Side) -> float:
        (seconds,) = side.run(case)["first_s"]
        for place, one in zip(CONNECTIONS, (seconds[0], statistics.median(seconds[1:])), strict=True):
            taken[place][both.index(side)].append(one)
        return 0.0

    interleaved(both, measure, case.rounds)
    return {place: Compared(vtc, identity) for place, (identity, vtc) in taken.items()}


def start(rounds: int) -> Iterator[Figure]:
    """What VTC adds to the time that mitmdump takes to start."""
    compared, _ = cpus()
    with tempfile.TemporaryDirectory() as directory:
        confdir = Path(directory)
        certificate(confdir)

        def seconds(script: Path) -> float:
            started = time.perf_counter()
            with running(_mitmdump(script, "http://127.0.0.1:9", confdir), compared) as proxy:
                proxy.read()
                return time.perf_counter() - started

        scripts = (IDENTITY, ADDON)
        for script in scripts:
            seconds(script)
        identity, vtc = interleaved(scripts, seconds, rounds)
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
