"""VTC inside mitmproxy; the only package that imports it."""
