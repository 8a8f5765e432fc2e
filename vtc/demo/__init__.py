"""`vtc demo`: one agent turn through a real mitmproxy, shown side by side."""

from vtc.demo.server import DemoServer, run_server, write_reply

__all__ = ["DemoServer", "run_server", "write_reply"]
