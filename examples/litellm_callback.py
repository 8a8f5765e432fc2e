"""Tool calls for LiteLLM, its proxy and its SDK, from a server whose model writes them as text.

    litellm_settings: {callbacks: litellm_callback.vtc_callback}    # config.yaml of the proxy, next to this file

    litellm.callbacks = [vtc_callback]                              # the SDK
    reply = await litellm.acompletion(model="hosted_vllm/qwen3-coder", messages=messages, tools=tools)
    async for chunk in rewrite_stream(await litellm.acompletion(..., stream=True)): ...

The SDK has no hook for the pieces of a stream, so a stream is wrapped there. Needs `virtual-tool-calling`. Retries are
left out, because a callback cannot send requests. Options are those of `vtc.Session` (docs/library.md).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from litellm.integrations.custom_logger import CustomLogger
from litellm.types.utils import CallTypes, ModelResponse, ModelResponseStream

import vtc

FIELDS = ("messages", "tools", "tool_choice", "parallel_tool_calls", "stream")
"""The fields of a request that VTC reads or changes."""


class VtcCallback(CustomLogger):
    """Lets VTC rewrite requests to model servers, and their replies."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: CallTypes | None) -> Any:
        """Rewrite a request before it is sent to the server."""
        if call_type != CallTypes.acompletion:
            return None
        request = {name: kwargs[name] for name in FIELDS if kwargs.get(name) is not None}
        body = json.dumps({"model": kwargs["model"], **request}).encode()
        try:
            session = vtc.Session(body, **self._options)
        except vtc.RequestError:
            if {"policy", "profiles"} & self._options.keys():
                raise  # a policy would not see the reply
            return None
        kwargs["litellm_logging_obj"].vtc_session = session  # this object lives as long as the call
        changed = json.loads(session.request)
        kept = {name: value for name, value in kwargs.items() if name not in request}
        return {**kept, **{name: changed[name] for name in FIELDS if name in changed}}

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: CallTypes | None
    ) -> Any:
        """Rewrite a whole reply."""
        session = getattr(request_data.get("litellm_logging_obj"), "vtc_session", None)
        if session is None or not isinstance(response, ModelResponse):
            return None
        session.status(200, {"content-type": "application/json"})
        reply = session.feed(response.model_dump_json().encode()) + end(session)
        response.choices = ModelResponse(**json.loads(reply)).choices
        return response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncIterator[ModelResponseStream]:
        """Rewrite a stream of the proxy."""
        session = getattr(request_data.get("litellm_logging_obj"), "vtc_session", None)
        async for chunk in rewrite_stream(response, session):
            yield chunk


async def rewrite_stream(stream: Any, session: vtc.Session | None = None) -> AsyncIterator[ModelResponseStream]:
    """Rewrite a stream; its session is by default the one that the callback opened."""
    session = session or getattr(getattr(stream, "logging_obj", None), "vtc_session", None)
    if session is not None:
        session.status(200, {"content-type": "text/event-stream"})
    async for chunk in stream:
        if session is None:
            yield chunk
            continue
        for rewritten in read_chunks(session.feed(b"data: %b\n\n" % chunk.model_dump_json().encode())):
            yield rewritten
    if session is not None:
        for rewritten in read_chunks(session.feed(b"data: [DONE]\n\n") + end(session)):
            yield rewritten


def read_chunks(frames: bytes) -> Iterator[ModelResponseStream]:
    """Read the chunks in server-sent events."""
    for line in frames.splitlines():
        if line.startswith(b"data: {"):
            yield ModelResponseStream(**json.loads(line.removeprefix(b"data: ")))


def end(session: vtc.Session) -> bytes:
    """End a reply without the retries that VTC asks for."""
    rest = session.finish()
    while session.retry is not None:
        rest += session.finish()
    return rest


vtc_callback = VtcCallback()
