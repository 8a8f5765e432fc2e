"""A script for mitmdump that prints its port and, for each line of input, the resources that it has used.

    {"port": 41237}
    {"cpu_ns": 812345678, "max_rss_kb": 81234}

The process reports itself, so that on every system the figure contains all its threads and nothing else.
"""

import asyncio
import json
import resource
import sys
import time

from mitmproxy import ctx


class Meter:
    """An addon that reports the usage of its process."""

    def running(self) -> None:
        (address, *_) = ctx.master.addons.get("proxyserver").listen_addrs()
        print(json.dumps({"port": address[1]}), flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin, self._report_usage)

    def _report_usage(self) -> None:
        if not sys.stdin.readline():
            ctx.master.shutdown()
            return
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"cpu_ns": time.process_time_ns(), "max_rss_kb": usage.ru_maxrss}), flush=True)


addons = [Meter()]
