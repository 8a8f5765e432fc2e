"""A script for mitmdump that says on standard output where it listens and, for each line that it reads, its cost.

    {"port": 41237}
    {"cpu_ns": 812345678, "max_rss_kb": 81234}

The process itself says it, so the figure is that of all its threads and of nothing else, on every system.
"""

import asyncio
import json
import resource
import sys
import time

from mitmproxy import ctx


class Meter:
    def running(self) -> None:
        (address, *_) = ctx.master.addons.get("proxyserver").listen_addrs()
        print(json.dumps({"port": address[1]}), flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin, self._tell)

    def _tell(self) -> None:
        if not sys.stdin.readline():
            ctx.master.shutdown()
            return
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"cpu_ns": time.process_time_ns(), "max_rss_kb": usage.ru_maxrss}), flush=True)


addons = [Meter()]
