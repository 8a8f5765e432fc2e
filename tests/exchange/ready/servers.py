"""Servers that refuse what the real ones refuse, in their words: chat templates, a maker of grammars, APIs with rules.

The templates are written here, with the conditions and the messages of those that the models come with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jinja2.sandbox

from vtc.exchange import Exchange

type Json = dict[str, Any]
type Server = Callable[[Json], str]
"""Takes the body of a request; returns the message of its error, empty if it takes it."""


# Chat templates

SYSTEM_FIRST = """
{%- for message in messages %}
{%- if message.role == 'system' %}{%- if not loop.first %}{{ raise('System message must be at the beginning.') }}
{%- endif %}{{ message.content + '\n' }}
{%- elif message.role in ('user', 'assistant', 'tool') %}{{ message.role }}: {{ message.content }}
{%- else %}{{ raise('Unexpected message role.') }}{%- endif %}
{%- endfor %}"""

MISTRAL = """
{%- if messages[0].role == 'system' %}{%- set rest = messages[1:] %}{{ messages[0].content + '\n' }}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in rest %}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{%- if (message.role == 'user') != (ns.index % 2 == 0) %}
{{ raise('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}{%- set ns.index = ns.index + 1 %}{%- endif %}
{%- endfor %}
{%- for message in rest %}
{%- if message.role in ('user', 'assistant') %}{{ message.content }}
{%- for call in message.tool_calls or [] %}
{%- if call.id | length != 9 %}{{ raise('Tool call IDs should be alphanumeric strings with length 9!') }}{%- endif %}
{%- endfor %}
{%- elif message.role == 'tool' %}{{ message.content }}
{%- else %}{{ raise('Only user, assistant and tool roles are supported!') }}{%- endif %}
{%- endfor %}"""

GEMMA = """
{%- if messages[0].role == 'system' %}{%- set rest = messages[1:] %}{%- set first = messages[0].content + '\n\n' %}
{%- else %}{%- set rest = messages %}{%- set first = '' %}{%- endif %}
{%- for message in rest %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}
{{ (first if loop.first else '') + message.content }}
{%- endfor %}"""

ALL_NEEDED = """
{%- for message in messages %}
{%- if message.role == 'assistant' and not message.content and not message.tool_calls %}
{{ raise('Assistant message must have either content or tool_calls, but not none.') }}{%- endif %}
{{ '<|' + message.role + '|>' + (message.content or '') }}
{%- endfor %}"""

TEMPLATES: Mapping[str, str] = {
    "system first": SYSTEM_FIRST,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "no empty turn": ALL_NEEDED,
}


def _raise(text: str) -> NoReturn:
    raise jinja2.TemplateError(text)


def template(source: str) -> Server:
    """A server that renders a chat template, as vLLM does: a fault of it is the error."""
    environment = jinja2.sandbox.SandboxedEnvironment()
    made = environment.from_string(source, globals={"raise": _raise})

    def serve(body: Json) -> str:
        try:
            made.render(messages=body["messages"], tools=body.get("tools"))
        except (jinja2.TemplateError, TypeError) as error:
            return str(error)
        return ""

    return serve


# Grammars, as llama.cpp makes them of schemas

REPEATED = 2000
"""The most repetitions of a character in its grammars."""


def grammar(body: Json) -> str:
    """Refuse what is beyond llama.cpp's converter or the parser of its grammars."""
    for tool in body.get("tools") or ():
        schema = tool["function"]["parameters"]
        if told := _beyond(schema):
            return told
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


def deepseek(body: Json) -> str:
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
    if body.get("max_tokens", 1) > 8192:
        return "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"
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


def unordered(body: Json) -> str:
    """OpenAI's rule for results."""
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
    """Ollama's rule for contents."""
    if any(isinstance(message.get("content"), list) for message in body["messages"]):
        return "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"
    return ""


RULES: Mapping[str, Server] = {
    **{name: template(source) for name, source in TEMPLATES.items()},
    "grammar": grammar,
    "deepseek": deepseek,
    "mistral's API": mistral,
    "order": unordered,
    "strings": strings,
}


def until_taken(exchange: Exchange, server: Server, *, status: int = 400, most: int = 4) -> list[Json]:
    """Ask as the proxy does, until the server takes it; return all that it was sent. Fails if it takes none."""
    went, sent = exchange.request(), list[Json]()
    for _ in range(most):
        sent.append(json.loads(went))
        if not (words := server(sent[-1])):
            if len(sent) > 1:
                exchange.learned()
            return sent
        again = exchange.again(json.dumps({"error": {"code": status, "message": words}}).encode(), status)
        assert again is not None, words
        went = again
    raise AssertionError(words)
