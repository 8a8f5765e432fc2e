"""`vtc demo`: one agent turn through a real mitmproxy, shown side by side."""

from vtc.demo.server import DemoServer, reply, running

__all__ = ["DemoServer", "reply", "running"]
