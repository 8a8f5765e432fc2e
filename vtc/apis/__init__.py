"""The HTTP shapes that VTC speaks. Another API is another module here and another row of `APIS`."""

from __future__ import annotations

from vtc.apis.anthropic_messages import AnthropicMessages
from vtc.apis.base import Api, BadRequest, Reply, Request
from vtc.apis.ollama_chat import OllamaChat
from vtc.apis.openai_chat import OpenAIChat
from vtc.apis.openai_responses import OpenAIResponses

APIS: tuple[Api, ...] = (OpenAIChat(), AnthropicMessages(), OpenAIResponses(), OllamaChat())


def find(method: str, path: str) -> Api | None:
    """The API that a request belongs to, or None."""
    return next((api for api in APIS if api.handles(method, path)), None)


__all__ = ["APIS", "Api", "BadRequest", "Reply", "Request", "find"]
