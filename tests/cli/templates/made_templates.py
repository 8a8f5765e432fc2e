"""Chat templates made up for tests, with the forms that those of real models have."""

PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"

_CHAT = """\
{{ tools | tojson }}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- if message.tool_calls %}{{ CALLS }}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def make_template(calls: str) -> str:
    """Make a template from the part that writes the calls of a message."""
    return _CHAT.replace("{{ CALLS }}", calls)


HERMES = make_template("""\
{%- for call in message.tool_calls %}<tool_call>
{{ call.function | tojson }}
</tool_call>
{% endfor %}""")
