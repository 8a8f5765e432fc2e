"""`vtc demo`: one agent turn through a real mitmproxy, shown side by side."""
