"""What a chat template does, by rendering it; it comes from a server and may be anything."""

from __future__ import annotations

import pytest

from tests.cli.probing.test_command import TEMPLATE
from vtc.cli.probing.template import Seen, look
from vtc.profiles import loader
from vtc.profiles.tool_protocol import UNKNOWN_MODEL, read_dialects

PROFILES = loader.load([loader.builtin_directory()])
TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
MISTRAL = """\
{{- bos_token }}
{%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if not loop.first and messages[loop.index0 - 1].role == 'user' %}{{ raise_exception('must alternate') }}{% endif %}
{{- '[INST]' + message.content + '[/INST]' }}
{%- elif message.role == 'tool' %}[TOOL_RESULTS]{{ message.content }}[/TOOL_RESULTS]
{%- elif message.role == 'assistant' %}
{%- if message.tool_calls %}
{%- for call in message.tool_calls %}[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}
{%- endfor %}
{%- else %}{{ message.content }}{% endif %}{{ eos_token }}
{%- elif message.role == 'system' %}[SYSTEM_PROMPT]{{ message.content }}[/SYSTEM_PROMPT]
{%- else %}{{ raise_exception('Only user, assistant and tool roles') }}
{%- endif %}
{%- endfor %}"""
PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
QWEN_CODER = """\
{%- macro value(text) %}{{ text if text is string else text | tojson }}{% endmacro %}
{%- if tools %}<tools>{% for tool in tools %}{{ tool.function.name }}{% endfor %}</tools>{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
<function={{ call.function.name }}>
{% for key, one in call.function.arguments | items %}<parameter={{ key }}>
{{ value(one) }}
</parameter>
{% endfor %}</function>
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def seen(source: str) -> Seen:
    return look(source, read_dialects(PROFILES, UNKNOWN_MODEL), TAGS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            TEMPLATE,
            Seen(
                takes_tools=True,
                opens="<think>",
                dialect="hermes",
                refuses=("a system message amid the conversation",),
            ),
        ),
        (
            MISTRAL,
            Seen(
                takes_tools=True,
                dialect="mistral",
                refuses=("the role developer", "two messages of the user in a row"),
            ),
        ),
        (QWEN_CODER, Seen(takes_tools=True, dialect="qwen3-coder")),
        (PLAIN, Seen()),
    ],
)
def test_tools_thinking_dialect_and_refusals_are_found(source: str, expected: Seen) -> None:
    assert seen(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{% for",
        "{{ raise_exception('never') }}",
        "{{ messages + 5 }}",
        "{{ ''.__class__.__mro__ }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}xxxxxxxx{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000000 }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "x" * (1 << 19),
    ],
)
def test_a_template_that_is_none_or_never_ends_is_told_and_does_no_harm(source: str) -> None:
    assert seen(source).problem
