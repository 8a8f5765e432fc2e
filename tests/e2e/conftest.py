"""Fixtures that run a real mitmproxy with the addon between a scripted server and real clients, in one event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import IPAddress
from mitmproxy import http, options
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.certs import CertStore
from mitmproxy.tools.dump import DumpMaster

from tests.apis import chat
from tests.e2e import http2
from tests.e2e.upstream import Reply, Script, Seen, Upstream, serving
from vtc.profiles import loader
from vtc.proxy import boundary
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.serving import connections

PATH = "/v1/chat/completions"
PATIENCE = 20
"""Seconds after which a test fails if an expected event does not occur."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A received reply: the chunks of its body, still encoded."""

    status: int
    headers: httpx.Headers
    pieces: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def message(self) -> chat.Read:
        return chat.read(self.body)


class Flows:
    """A mitmproxy addon that queues ended flows. It runs after VTC's addon, which has therefore processed them."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[http.HTTPFlow] = asyncio.Queue()

    def response(self, flow: http.HTTPFlow) -> None:
        self.ended.put_nowait(flow)

    error = response


@dataclass(slots=True)
class Proxy:
    url: str
    master: DumpMaster
    addon: VirtualToolCalling
    flows: Flows = field(default_factory=Flows)


@dataclass(slots=True)
class Lab:
    """Client, proxy and model server; by default the client sends its requests through the proxy in reverse mode."""

    proxy: Proxy
    upstream: Upstream
    client: httpx.AsyncClient

    async def post(self, body: Any, *, path: str = PATH, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request whose body is bytes or an object for JSON; return when the reply has ended."""
        content = body if isinstance(body, bytes) else chat.encode_json(body)
        headers = {"content-type": "application/json", **(headers or {})}
        async with self.client.stream("POST", path, content=content, headers=headers) as response:
            return Answer(response.status_code, response.headers, [piece async for piece in response.aiter_raw()])

    async def flow(self) -> http.HTTPFlow:
        """Return the next flow that has ended."""
        async with asyncio.timeout(PATIENCE):
            return await self.proxy.flows.ended.get()

    async def next_client_flow(self) -> http.HTTPFlow:
        """Return the next ended flow of a client; skip the flows without a report, which are VTC's own requests."""
        while "vtc" not in (flow := await self.flow()).metadata:
            pass
        return flow

    async def report(self) -> dict[str, Any]:
        """Return the addon's report on the next flow that has ended."""
        return (await self.flow()).metadata["vtc"]  # type: ignore[no-any-return]

    def set(self, **changes: Any) -> None:
        """Change options while running, as mitmweb's editor does."""
        self.proxy.master.options.update(**changes)

    def sdk(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=f"{self.proxy.url}/v1",
            api_key="sk-none",
            max_retries=0,
            timeout=PATIENCE,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False, verify=False),
        )

    async def in_thread[T](self, use: Callable[[openai.OpenAI], T]) -> T:
        """Use the synchronous SDK in a thread, because all servers run in the event loop."""
        arguments: dict[str, Any] = {"base_url": f"{self.proxy.url}/v1", "api_key": "sk-none", "max_retries": 0}

        def run() -> T:
            transport = openai.DefaultHttpxClient(trust_env=False, verify=False)
            with openai.OpenAI(timeout=PATIENCE, http_client=transport, **arguments) as client:
                return use(client)

        return await asyncio.to_thread(run)


type Replies = Script | Reply | Iterable[bytes]
type Start = Callable[..., Coroutine[Any, Any, Lab]]


def make_script(replies: Replies) -> Script:
    """Return a script that answers each request with the same reply or frames."""
    if callable(replies):
        return replies
    reply = replies if isinstance(replies, Reply) else Reply(list(replies))
    return lambda _: reply


def by_turn(*replies: Replies) -> Script:
    """Return a script that answers each request with the next reply."""
    remaining = [make_script(one) for one in replies]

    def script(seen: Seen) -> Reply:
        return remaining.pop(0)(seen)

    return script


@pytest.fixture(scope="session", autouse=True)
def read_once() -> Iterator[None]:
    """Read once for all tests what each start of a proxy reads: profiles, signatures, mitmproxy's texts and its CA."""
    load, builtin = loader.load_profiles, loader.builtin_directory()
    profiles, signature = load([builtin]), loader.signature
    written = signature([builtin])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "load_profiles", lambda some: profiles if list(some) == [builtin] else load(some))
        patch.setattr(loader, "signature", lambda some: written if list(some) == [builtin] else signature(some))
        # mitmproxy formats the help of each option again whenever options are copied, which each change does.
        patch.setattr(textwrap, "dedent", cache(textwrap.dedent))
        patch.setattr(textwrap, "wrap", cache(textwrap.wrap))
        patch.setattr(boundary, "signature", cache(boundary.signature))
        patch.setattr(CertStore, "from_store", cache(CertStore.from_store))
        yield


@pytest.fixture(autouse=True)
def no_addons_of_tests_before() -> None:
    """Forget the addons of earlier tests, because one that was not ended would answer for a server that is down."""
    connections.HOLDERS.clear()


@pytest.fixture(scope="session")
def confdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for mitmproxy's certificates."""
    return tmp_path_factory.mktemp("mitmproxy")


@asynccontextmanager
async def running_proxy(confdir: Path, **settings: Any) -> AsyncIterator[Proxy]:
    """Start a real proxy with the addon on a free port; `settings` are options, as in `--set`."""
    opts = options.Options(listen_host="127.0.0.1", listen_port=0)
    addon, flows = VirtualToolCalling(), Flows()
    with pytest.MonkeyPatch.context() as patch:
        # For each of a hundred options that is added, mitmproxy configures all addons, which takes most of the start.
        patch.setattr(opts.changed, "send", lambda **_: None)
        master = DumpMaster(opts, with_termlog=False, with_dumper=False)
        master.addons.add(addon, flows)
    # Setting options configures the addons, as `mitmdump -s` does.
    opts.update(**{"confdir": str(confdir), "vtc_mode": "rewrite", **settings})
    server = master.addons.get("proxyserver")
    assert isinstance(server, Proxyserver)
    task = asyncio.create_task(master.run())
    try:
        async with asyncio.timeout(PATIENCE):
            while not server.listen_addrs():
                if task.done():
                    task.result()
                await asyncio.sleep(0)  # mitmproxy sends no event when it listens
        yield Proxy(f"http://127.0.0.1:{server.listen_addrs()[0][1]}", master, addon, flows)
    finally:
        # shutdown() does not close the port, the connections and their tasks.
        await server.servers.update([])
        for handler in list(server.connections.values()):
            for transport in handler.transports.values():
                if transport.handler:
                    transport.handler.cancel("the test is over")
        async with asyncio.timeout(PATIENCE):
            while server.connections:  # noqa: ASYNC110 - mitmproxy has no event for this
                await asyncio.sleep(0)
        master.shutdown()
        await task


@pytest.fixture(scope="session")
def server_tls(confdir: Path) -> ssl.SSLContext:
    """Return a TLS context for a server on the loopback interface, signed by mitmproxy's CA, with HTTP/2 on request."""
    address = IPAddress(ipaddress.ip_address("127.0.0.1"))
    entry = CertStore.from_store(confdir, "mitmproxy", 2048).get_cert("127.0.0.1", [address])
    pem = confdir / "upstream.pem"
    key = entry.privatekey.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    pem.write_bytes(entry.cert.to_pem() + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


@pytest.fixture(scope="session")
def client_tls(confdir: Path, server_tls: ssl.SSLContext) -> ssl.SSLContext:
    """Return a TLS context for a client that trusts mitmproxy's CA."""
    return ssl.create_default_context(cafile=confdir / "mitmproxy-ca-cert.pem")


class Http2TlsContext(ssl.SSLContext):
    """A TLS context that offers HTTP/2 only; httpx prefers HTTP/1.1, and mitmproxy follows the client's choice."""

    def set_alpn_protocols(self, protocols: Iterable[str]) -> None:
        super().set_alpn_protocols(["h2"])


@pytest.fixture(scope="session")
def newer_tls(confdir: Path, server_tls: ssl.SSLContext) -> ssl.SSLContext:
    """Return a context like `client_tls`, for HTTP/2."""
    context = Http2TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(confdir / "mitmproxy-ca-cert.pem")
    return context


@pytest.fixture
async def start(confdir: Path) -> AsyncIterator[Start]:
    """Return a function that starts a lab, `await start(replies, vtc_tools="prompt")`; everything ends with the
    test.
    """
    async with AsyncExitStack() as stack:

        async def start(replies: Replies, **settings: Any) -> Lab:
            upstream = await stack.enter_async_context(serving(make_script(replies)))
            settings.setdefault("mode", [f"reverse:{upstream.url}"])
            folder = settings.pop("confdir", confdir)
            proxy = await stack.enter_async_context(running_proxy(folder, **settings))
            client = httpx.AsyncClient(base_url=proxy.url, trust_env=False, timeout=PATIENCE, verify=False)
            return Lab(proxy, upstream, await stack.enter_async_context(client))

        yield start


@pytest.fixture
async def start_http2(confdir: Path, server_tls: ssl.SSLContext, newer_tls: ssl.SSLContext) -> AsyncIterator[Start]:
    """Return a function like `start`, with HTTP/2 and TLS from the client to mitmproxy and from there to the server."""
    async with AsyncExitStack() as stack:

        async def start(replies: Replies, **settings: Any) -> Lab:
            upstream = await stack.enter_async_context(http2.serving(make_script(replies), server_tls))
            mode = [f"reverse:{upstream.url}"]
            proxy = await stack.enter_async_context(running_proxy(confdir, mode=mode, ssl_insecure=True, **settings))
            base = proxy.url.replace("http:", "https:")
            client = httpx.AsyncClient(base_url=base, http2=True, verify=newer_tls, trust_env=False, timeout=PATIENCE)
            return Lab(proxy, upstream, await stack.enter_async_context(client))

        yield start
