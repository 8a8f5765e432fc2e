"""Captured flows, each with one exchange."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mitmproxy import http
from mitmproxy.io import FlowWriter
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import chat
from tests.apis.shapes import SHAPES, make_request_body
from vtc.proxy.addon import VirtualToolCalling

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})


def capture_flow(
    text: str,
    *,
    seen: bool = True,
    status: int = 200,
    api: str = "openai-chat",
    path: str = "",
    stream: bool = False,
    body: Any = None,
    addon: VirtualToolCalling | None = None,
    **fields: Any,
) -> http.HTTPFlow:
    """Return a flow as it was captured; with `seen`, it has passed through the addon."""
    shape = SHAPES[api]
    options = {key: fields.pop(key) for key in list(fields) if key.startswith("vtc_")}
    headers = http.Headers(content_type="application/json", authorization="Bearer open-sesame")
    ask = make_request_body(api, stream=stream, **fields)
    path = path or shape.build_path(stream=stream, model=fields.get("model"))
    flow = tflow.tflow(req=tutils.treq(method=b"POST", path=path.encode(), headers=headers, content=ask))
    addon = addon or VirtualToolCalling()
    with taddons.context(addon) as context:
        context.configure(addon, **{"vtc_keep_bodies": "on", "vtc_mode": "rewrite" if seen else "off", **options})
        asyncio.run(addon.request(flow))
        reply = b"".join(shape.streamed(*text)) if stream else chat.encode_json(body or shape.whole(text))
        kind = shape.media_type if stream else "application/json"
        flow.response = http.Response.make(status, reply, {"content-type": kind})
        asyncio.run(addon.responseheaders(flow))
        if callable(flow.response.stream):
            for piece in (reply, b""):
                flow.response.stream(piece)
            flow.response.raw_content = None  # mitmproxy's state of a streamed body
        asyncio.run(addon.response(flow))
    return flow


def save_flows(directory: Path, *texts: str, **fields: Any) -> Path:
    """Write flows to a file as mitmproxy does."""
    path = directory / "flows"
    with path.open("ab") as file:
        for text in texts:
            FlowWriter(file).add(capture_flow(text, **fields))
    return path
