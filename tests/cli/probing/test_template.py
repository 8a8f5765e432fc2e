"""Test the inspection of chat templates, which come from a server and are untrusted."""

from __future__ import annotations

import os
import sys
from threading import active_count

import pytest

from tests.cli.probing.test_command import TEMPLATE
from vtc.cli.probing.template import TemplateFacts, inspect_template
from vtc.cli.templates import rendering
from vtc.profiles import builtin_directory, load_profiles
from vtc.profiles.stack import UNKNOWN_MODEL
from vtc.profiles.tool_protocol import list_dialects
from vtc.scrub import drop_credentials

pytestmark = pytest.mark.rest

PROFILES = load_profiles([builtin_directory()])
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


GENERATION = """\
{{ raise_exception("no tools") if tools is none }}
{%- for tool in tools %}{{ tool | tojson(indent=None, sort_keys=True) }}{% endfor %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% generation %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}{% endgeneration %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A template with the tag of Transformers, which fails without tools."""
LIST_OF_CHANGES = "{% set seen = [] %}{% set _ = seen.append(1) %}" + GENERATION
MINICPM = """\
{{ tools | tojson if tools }}
{%- for message in messages %}{{ message.role }}: {{ message.content }}
{%- for call in message.tool_calls or [] %}<function name="{{ call.function.name }}">
{%- for key, one in call.function.arguments | items %}<param name="{{ key }}">{{ one }}</param>{% endfor %}</function>
{%- endfor %}
{% endfor %}
{%- if add_generation_prompt %}assistant: {% endif %}"""
"""A template in whose dialect models of unknown name do not write."""


DOUBLED = "{{% for _ in range(60) %}}{{% set ns.x = {} %}}{{% endfor %}}{{{{ ns.x | length }}}}"
"""A template that doubles a value sixty times, to 10^18 characters."""


def inspect(source: str) -> TemplateFacts:
    likely = list_dialects(PROFILES, UNKNOWN_MODEL)
    return inspect_template(source, [likely, tuple(PROFILES.dialects.values())], TAGS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            TEMPLATE,
            TemplateFacts(
                accepts_tools=True,
                opened_tag="<think>",
                dialect="hermes",
                rejects=("a system message inside the conversation",),
            ),
        ),
        (
            MISTRAL,
            TemplateFacts(
                accepts_tools=True,
                dialect="mistral",
                rejects=("the role developer", "two messages of the user in a row"),
            ),
        ),
        (QWEN_CODER, TemplateFacts(accepts_tools=True, dialect="qwen3-coder")),
        (PLAIN, TemplateFacts()),
        (GENERATION, TemplateFacts(accepts_tools=True, dialect="hermes", rejects=())),
        (LIST_OF_CHANGES, TemplateFacts(accepts_tools=True, dialect="hermes")),
        (MINICPM, TemplateFacts(accepts_tools=True, dialect="minicpm")),
    ],
)
def test_tools_thinking_dialect_and_refusals_are_found(source: str, expected: TemplateFacts) -> None:
    assert inspect(source) == expected


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
        "{{ '%999999999d' % 1 }}",
        f"{{% set ns = namespace(x=['a']) %}}{DOUBLED.format('ns.x + ns.x')}",
        f"{{% set ns = namespace(x='a') %}}{DOUBLED.format('ns.x ~ ns.x')}",
        "{{ 'x'.ljust(999999999) }}",
    ],
)
def test_an_invalid_or_endless_template_is_reported_and_does_no_harm(source: str) -> None:
    threads = active_count()
    assert inspect(source).problem
    assert active_count() == threads


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bound the memory of a process")
def test_rendering_stays_within_its_memory_limit() -> None:
    import resource

    doubled = DOUBLED.format("ns.x ~ ns.x")
    for source in ("{{ '%999999999d' % 1 }}", f"{{% set ns = namespace(x='a') %}}{doubled}"):
        assert inspect(source).problem
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10 < rendering.MAX_RENDER_BYTES


def test_an_endless_computation_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "RENDER_SECONDS", 1)
    loops = "".join(f"{{% for a{depth} in range(1000) %}}" for depth in range(4)) + "{% endfor %}" * 4
    assert "too long" in inspect(loops).problem


def test_a_template_finds_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are removed because a template may escape its sandbox."""
    monkeypatch.setenv("MY_API_KEY", "abcdefgh")
    monkeypatch.setenv("MY_SETTING", "plain")
    assert "MY_API_KEY" not in drop_credentials(os.environ)
    assert drop_credentials(os.environ)["MY_SETTING"] == "plain"
