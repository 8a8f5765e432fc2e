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
_EACH = "{%- for call in message.tool_calls %}{%- set f = call.function %}"
_EACH_ARGUMENT = "{% for key, value in f.arguments | items %}"
_PLAIN_VALUE = "{{ value if value is string else value | tojson }}"


def make_template(calls: str) -> str:
    """Make a template from the part that writes the calls of a message."""
    return _CHAT.replace("{{ CALLS }}", calls)


HERMES = make_template("""\
{%- for call in message.tool_calls %}<tool_call>
{{ call.function | tojson }}
</tool_call>
{% endfor %}""")
LIST = make_template(
    '[CALLS][{% for call in message.tool_calls %}{"id": "{{ call.id }}", "tool": "{{ call.function.name }}", '
    '"input": {{ call.function.arguments | tojson }}}{{ ", " if not loop.last }}{% endfor %}][/CALLS]'
)
NUMBERED = make_template(
    f"<|calls|>{_EACH}<|call|>functions.{{{{ f.name }}}}:{{{{ loop.index0 }}}}<|args|>{{{{ f.arguments | tojson }}}}"
    "<|end|>{% endfor %}<|calls_end|>"
)
NUMBERED_CALL = '<|calls|><|call|>functions.read:0<|args|>{"filePath": "/a"}<|end|><|calls_end|>'
"""A call as `NUMBERED` writes it."""
NAMES_AS_KEYS = make_template(
    f"<|tools|>[{_EACH}"
    "{{ '{\"' + f.name + '\": ' }}{{ f.arguments | tojson }}}{{ \", \" if not loop.last }}{% endfor %}]<|tools_end|>"
)
TAGS = make_template(
    f'<calls>\n{_EACH}<invoke name="{{{{ f.name }}}}">\n{_EACH_ARGUMENT}'
    f'<param name="{{{{ key }}}}">{_PLAIN_VALUE}</param>\n{{% endfor %}}</invoke>\n{{% endfor %}}</calls>'
)
PYTHON_TAGS = make_template(
    f"{_EACH}<run={{{{ f.name }}}}>\n{_EACH_ARGUMENT}<{{{{ 'arg=' + key }}}}>\n{{{{ value }}}}\n</arg>\n{{% endfor %}}"
    "</run>{{ '\n' if not loop.last }}{% endfor %}"
)
TYPED_TAGS = make_template(
    f"{_EACH}<|call|>{{{{ f.name }}}}<|args|>{_EACH_ARGUMENT}<|arg|>{{{{ key }}}}<|is "
    f"string=\"{{{{ 'true' if value is string else 'false' }}}}\"|>{_PLAIN_VALUE}<|/arg|>"
    "{% endfor %}<|/call|>{% endfor %}"
)
NESTED_TAGS = """\
{%- macro write(value) %}
{%- if value is mapping %}{% for key, item in value | items %}|n|<{{ key }}>{{ write(item) }}|n|</{{ key }}>{% endfor %}
{%- elif value is string %}{{ value }}
{%- elif value is iterable %}{% for item in value %}|n|<item>{{ write(item) }}|n|</item>{% endfor %}
{%- else %}{{ value | tojson }}{% endif %}{% endmacro %}
""" + make_template(
    f'|n|<calls>{_EACH}|n|<invoke name="{{{{ f.name }}}}">{_EACH_ARGUMENT}|n|<{{{{ key }}}}>'
    "{{ write(value) }}|n|</{{ key }}>{% endfor %}|n|</invoke>{% endfor %}|n|</calls>"
)
KEYWORDS = make_template(
    f"<|start|>[{_EACH}{{{{ f.name }}}}({_EACH_ARGUMENT}{{{{ key }}}}={{{{ value | tojson }}}}"
    '{{ ", " if not loop.last }}{% endfor %}){{ ", " if not loop.last }}{% endfor %}]<|stop|>'
)
MARKED_STRINGS = """\
{%- macro write(value) %}
{%- if value is mapping %}{{ '{' }}{% for key, item in value | dictsort %}{{ key }}:{{ write(item) }}
{%- if not loop.last %},{% endif %}{% endfor %}{{ '}' }}
{%- elif value is string %}<|s|>{{ value }}<|s|>
{%- elif value is iterable %}[{% for item in value %}{{ write(item) }}{% if not loop.last %},{% endif %}{% endfor %}]
{%- else %}{{ value | tojson }}{% endif %}{% endmacro %}
""" + make_template(f"{_EACH}<|run>call:{{{{ f.name }}}}{{{{ write(f.arguments) }}}}<run|>{{% endfor %}}")
FORMS = {
    "hermes": HERMES,
    "list": LIST,
    "numbered": NUMBERED,
    "names as keys": NAMES_AS_KEYS,
    "tags": TAGS,
    "tags with Python's values": PYTHON_TAGS,
    "tags with types": TYPED_TAGS,
    "tags in tags": NESTED_TAGS,
    "keywords": KEYWORDS,
    "marked strings": MARKED_STRINGS,
}
"""Templates by the form of their calls."""

ONE_CALL = make_template(
    "{%- if message.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif %}"
    "<|call|>{{ message.tool_calls[0].function | tojson }}"
)
BARE = make_template("{{ (message.tool_calls | first).function | tojson }}")
PROMPTED = """\
{%- for message in messages %}<|{{ message.role }}|>
{%- if message.role != 'assistant' or message.content %}>>>all
{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}>>>{{ call.function.name }}
{{ call.function.arguments | tojson }}{% endfor %}
{%- endfor %}{% if add_generation_prompt %}<|assistant|>>>>{% endif %}"""
"""A template whose prompt ends with the beginning of a call."""
THINKING = """\
{%- for message in messages %}
{%- if message.role == 'tool' %}<|user|><output>{{ message.content }}</output>
{%- elif message.role == 'user' %}<|user|>{{ message.content }}
{%- else %}<|model|><think>{{ message.reasoning_content }}</think>{{ message.content }}
{%- for call in message.tool_calls or [] %}<call>{{ call.function.name }} {{ call.function.arguments }}</call>
{%- endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|model|><think>{% endif %}"""
"""A template with reasoning that its prompt opens, results in a turn of the user, and arguments as text."""
