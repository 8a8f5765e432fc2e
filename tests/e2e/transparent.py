"""Run an exchange through a transparent proxy, in a separate network namespace.

Connections from 127.0.0.2 are redirected to the proxy; its own, from 127.0.0.1, are not. Prints the calls that the
client got, as JSON: `python -m tests.e2e.transparent DIRECTORY`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx

from tests.e2e.conftest import PATH, PATIENCE, Lab, running_proxy
from tests.e2e.policies import write_guards
from tests.e2e.test_ways_in import ASK, LEAKED
from tests.e2e.upstream import serving


async def main(directory: Path) -> None:
    denying = write_guards(directory, denied_tools=["bash"], on_denied="drop")
    async with (
        serving(lambda _: LEAKED) as model,
        running_proxy(directory, mode=["transparent"], vtc_profiles=denying) as proxy,
    ):
        ports = [url.rpartition(":")[2] for url in (model.url, proxy.url)]
        rule = f"-p tcp -s 127.0.0.2 --dport {ports[0]} -j REDIRECT --to-ports {ports[1]}"
        run = await asyncio.create_subprocess_exec("iptables", "-t", "nat", "-A", "OUTPUT", *rule.split())
        assert await run.wait() == 0
        transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
        async with httpx.AsyncClient(base_url=model.url, transport=transport, timeout=PATIENCE) as client:
            answer = await Lab(proxy, model, client).post(ASK, path=PATH)
        assert (await Lab(proxy, model, client).flow()).client_conn.peername[0] == "127.0.0.2"
        sys.stdout.write(f"{json.dumps(answer.message.calls)}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
