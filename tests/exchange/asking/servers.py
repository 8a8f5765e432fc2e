"""Servers that reject requests as real ones do, in their words: a grammar compiler, APIs with rules, templates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from tests.exchange.asking.templates import TEMPLATES, Json, Server, template
from vtc.exchange import Session

# Grammars, as llama.cpp compiles them from schemas

REPEATED = 2000
"""Maximum number of repetitions of a character in llama.cpp's grammars."""


def grammar(body: Json) -> str:
    """Reject schemas beyond llama.cpp's converter or the parser of its grammars."""
    for tool in body.get("tools") or ():
        schema = tool["function"].get("parameters", {})
        if problem := _beyond(schema):
            return problem
    return ""


def _beyond(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "Unable to generate parser for this template. Automatic parser generation failed: Unrecognized schema"
    if "$ref" in schema:
        return "Unable to generate parser for this template. Automatic parser generation failed: Unsupported ref"
    pattern = schema.get("pattern")
    if pattern and not (pattern.startswith("^") and pattern.endswith("$")):
        return "JSON schema conversion failed:\nPattern must start with '^' and end with '$'"
    if (pattern and "(?" in pattern) or schema.get("maxLength", 0) >= REPEATED:
        return "Failed to initialize samplers: failed to parse grammar"
    if not schema.keys() & {"type", "enum", "const", "anyOf", "oneOf", "allOf"} and schema:
        return f"JSON schema conversion failed:\nUnrecognized schema: {json.dumps(schema)}"
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    inside += [schema["items"]] if "items" in schema else []
    return next(filter(None, map(_beyond, inside)), "")


# APIs with rules


def deepseek(body: Json, *, longest: int = 8192) -> str:
    for at, message in enumerate(body["messages"]):
        if message["role"] not in ("system", "user", "assistant", "tool"):
            role = message["role"]
            return (
                f"messages[{at}].role: unknown variant `{role}`, expected one of `system`, `user`, `assistant`, `tool`"
            )
        if isinstance(message.get("content"), list) and any("image_url" in part for part in message["content"]):
            return f"messages[{at}]: unknown variant `image_url`, expected `text`"
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if any(not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names):
        return "Invalid 'tools[0].function.name': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'."
    if body.get("max_tokens", 1) > longest:
        return f"Invalid max_tokens value, the valid range of max_tokens is [1, {longest}]"
    return ""


def mistral(body: Json) -> str:
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if (before, role) in (("tool", "user"), ("tool", "system"), ("assistant", "system")):
            return f"Unexpected role '{role}' after role '{before}'"
        before = role
        for call in message.get("tool_calls") or ():
            if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"]):
                return f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9."
    return ""


def minimax(body: Json) -> str:
    if [message["role"] for message in body["messages"]].count("system") > 1:
        return "invalid params, invalid chat setting (2013)"
    return "invalid params, tool result's tool id not found (2013)" if reject_disorder(body) else ""


def reject_disorder(body: Json) -> str:
    """Reject results that OpenAI's order of messages forbids."""
    waiting: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    return ""


def strings(body: Json) -> str:
    """Reject contents that Ollama does not accept."""
    if any(isinstance(message.get("content"), list) for message in body["messages"]):
        return "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"
    return ""


RULES: Mapping[str, Server] = {
    **{name: template(source) for name, source in TEMPLATES.items()},
    "grammar": grammar,
    "deepseek": deepseek,
    "deepseek v4": partial(deepseek, longest=393216),
    "mistral's API": mistral,
    "minimax": minimax,
    "order": reject_disorder,
    "strings": strings,
}


def send_until_accepted(exchange: Session, server: Server, *, status: int = 400, most: int = 4) -> list[Json]:
    """Send requests as the proxy does, until the server accepts one; return all of them. Fails if it accepts none."""
    body, sent = exchange.encode_request(), list[Json]()
    for _ in range(most):
        sent.append(json.loads(body))
        if not (words := server(sent[-1])):
            if len(sent) > 1:
                exchange.confirm_quirks()
            return sent
        again = exchange.encode_after_rejection(
            json.dumps({"error": {"code": status, "message": words}}).encode(), status
        )
        assert again is not None, words
        body = again
    raise AssertionError(words)
