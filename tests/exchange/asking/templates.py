"""Servers that render a chat template as the real ones do: a fault of the template is their error.

Contents are `as sent`, as with Transformers, or `fitted` to the template, as with vLLM: nothing is null, and texts are
joined unless the template iterates over parts. Either way the arguments of calls are parsed.

The templates here are VTC's, with the conditions and the messages of those that models come with.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes

type Json = dict[str, Any]
type Server = Callable[[Json], str]
"""A function from the body of a request to the message of its error, empty if the request is accepted."""
type Contents = Literal["as sent", "fitted"]


class Generation(jinja2.ext.Extension):
    """The tag of Transformers around the model's text, which changes nothing in a prompt."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def _raise(text: str) -> NoReturn:
    raise jinja2.TemplateError(text)


def _as_json(value: Any, indent: int | None = None, **_options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def environment() -> jinja2.Environment:
    """Return an environment like that of Transformers, which vLLM and others use."""
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _as_json
    made.globals.update(
        raise_exception=_raise,
        strftime_now=lambda form: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).strftime(form),
    )
    return made


def template(source: str, contents: Contents = "as sent") -> Server:
    """Return a server that renders this chat template, with contents of this form."""
    made = environment()
    prompt, listed = made.from_string(source), goes_through_parts(made.parse(source))

    def serve(body: Json) -> str:
        messages = [_parse_arguments(message) for message in body["messages"]]
        if contents == "fitted":
            messages = [_fit_content(message, listed=listed) for message in messages]
        tools = body.get("tools") or None
        try:
            prompt.render(messages=messages, tools=tools, add_generation_prompt=True, bos_token="", eos_token="")
        except (jinja2.TemplateError, TypeError, ValueError, AttributeError, KeyError) as error:
            return str(error) or type(error).__name__
        return ""

    return serve


def _parse_arguments(message: Json) -> Json:
    if not message.get("tool_calls"):
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"] or "{}")}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _fit_content(message: Json, *, listed: bool) -> Json:
    content = [] if message.get("content") is None else message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if listed and not (message["role"] == "tool" and len(texts) == len(parts)):
        return {**message, "content": parts}
    return {**message, "content": "\n".join(texts)}


def goes_through_parts(source: nodes.Template) -> bool:
    """Return True if the template iterates over a content, or over a variable that contains one."""

    def is_content(found: nodes.Node) -> bool:
        if isinstance(found, nodes.Filter | nodes.Test):
            return found.node is not None and is_content(found.node)
        if isinstance(found, nodes.Getitem):
            return isinstance(found.arg, nodes.Const) and found.arg.value == "content"
        return (isinstance(found, nodes.Getattr) and found.attr == "content") or (
            isinstance(found, nodes.Name) and found.name in named
        )

    named = set[str]()
    for one in source.find_all(nodes.Assign):
        if isinstance(one.target, nodes.Name) and is_content(one.node):
            named.add(one.target.name)
    return any(is_content(one.iter) for one in source.find_all(nodes.For))


SYSTEM_FIRST = """
{%- for message in messages %}
{%- if message.role == 'system' %}{%- if not loop.first %}
{{ raise_exception('System message must be at the beginning.') }}{%- endif %}{{ message.content + '\n' }}
{%- elif message.role in ('user', 'assistant', 'tool') %}{{ message.role }}: {{ message.content }}
{%- else %}{{ raise_exception('Unexpected message role.') }}{%- endif %}
{%- endfor %}"""

MISTRAL = """
{%- if messages[0].role == 'system' %}{%- set rest = messages[1:] %}{{ messages[0].content + '\n' }}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in rest %}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{%- if (message.role == 'user') != (ns.index % 2 == 0) %}
{{ raise_exception(
  'After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}{%- set ns.index = ns.index + 1 %}{%- endif %}
{%- endfor %}
{%- for message in rest %}
{%- if message.role in ('user', 'assistant') %}{{ message.content }}
{%- for call in message.tool_calls or [] %}
{%- if call.id | length != 9 %}
{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{%- endif %}
{%- endfor %}
{%- elif message.role == 'tool' %}{{ message.content }}
{%- else %}{{ raise_exception('Only user, assistant and tool roles are supported!') }}{%- endif %}
{%- endfor %}"""

MISTRAL_OF_NO_TOOLS = """
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{%- for message in rest %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception(
  'After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{%- if message.role not in ('user', 'assistant') %}
{{ raise_exception('Only user and assistant roles are supported!') }}{%- endif %}{{ ' ' + message.content }}
{%- endfor %}"""

GEMMA = """
{%- if messages[0].role == 'system' %}{%- set rest = messages[1:] %}{%- set first = messages[0].content + '\n\n' %}
{%- else %}{%- set rest = messages %}{%- set first = '' %}{%- endif %}
{%- for message in rest %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}
{{ (first if loop.first else '') + message.content }}
{%- endfor %}"""

GEMMA_OF_NO_SYSTEM = """
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}
{{ message.content | trim }}
{%- endfor %}"""

ALL_NEEDED = """
{%- for message in messages %}
{%- if message.role == 'assistant' and not message.content and not message.tool_calls %}
{{ raise_exception('Assistant message must have either content or tool_calls, but not none.') }}{%- endif %}
{{ '<|' + message.role + '|>' + (message.content or '') }}
{%- endfor %}"""

NO_TOOLS = """
{%- for message in messages %}
{%- if message.role not in ('user', 'assistant') and not (loop.first and message.role == 'system') %}
{{ raise_exception('Unexpected role: ' + message.role) }}{%- endif %}{{ message.content or '' }}
{%- endfor %}"""

ROLES_OF_NO_TOOLS = """
{%- for message in messages %}
{%- if message.role not in ('user', 'system', 'assistant') %}
{{ raise_exception('Only user, system and assistant roles are supported!') }}{%- endif %}{{ message.content or '' }}
{%- endfor %}"""

ONE_CALL = """
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}
{{ raise_exception('This model only supports single tool-calls at once!') }}{%- endif %}
{{ message.tool_calls[0].function.name }}
{%- else %}{{ message.content }}{%- endif %}
{%- endfor %}"""

NO_CALLS = """
{%- if tools or messages | selectattr('tool_calls') | list %}
{{ raise_exception('This model only supports single tool-calls at once!') }}{%- endif %}
{%- for message in messages %}{{ message.content }}{%- endfor %}"""

ADDED = """{%- for message in messages %}{{ message.role + ': ' + message.content }}{%- endfor %}"""

ADDED_FIRST = """{%- for message in messages %}{{ message.content + eos_token }}{%- endfor %}"""

GONE_THROUGH = """
{%- for message in messages %}
{%- if message.content is string %}{{ message.content }}
{%- else %}{%- for part in message.content %}{{ part.text }}{%- endfor %}{%- endif %}
{%- endfor %}"""

TYPED = """
{%- for message in messages %}
{%- if message.content is string %}{{ message.content }}
{%- elif message.content is iterable %}{%- for part in message.content %}{{ part.text }}{%- endfor %}
{%- else %}{{ raise_exception('Invalid content type') }}{%- endif %}
{%- endfor %}"""

STRIPPED = """{%- for message in messages %}{{ message.content.strip() }}{%- endfor %}"""

ARGUMENTS_OF_TEXT = """
{%- for message in messages %}{{ message.content }}
{%- for call in message.tool_calls or [] %}{{ call.function.name + '\n' + call.function.arguments }}{%- endfor %}
{%- endfor %}"""

ASKED = """
{%- if not messages | selectattr('role', 'equalto', 'user') | list %}
{{ raise_exception('No user query found in messages.') }}{%- endif %}
{%- for message in messages %}{{ message.content }}{%- endfor %}"""

TEMPLATES: Mapping[str, str] = {
    "system first": SYSTEM_FIRST,
    "mistral": MISTRAL,
    "mistral of no tools": MISTRAL_OF_NO_TOOLS,
    "gemma": GEMMA,
    "gemma of no system": GEMMA_OF_NO_SYSTEM,
    "no empty turn": ALL_NEEDED,
    "no tools": NO_TOOLS,
    "roles of no tools": ROLES_OF_NO_TOOLS,
    "one call": ONE_CALL,
    "no calls": NO_CALLS,
    "contents added": ADDED,
    "contents added first": ADDED_FIRST,
    "contents gone through": GONE_THROUGH,
    "contents of types": TYPED,
    "contents stripped": STRIPPED,
    "arguments of text": ARGUMENTS_OF_TEXT,
    "asked": ASKED,
}
