"""Chat templates that refuse a conversation: what their errors teach makes them take it."""

from __future__ import annotations

import jinja2
import pytest

from tests.exchange.ready.conversations import CONVERSATIONS, taken
from tests.exchange.ready.templates import TEMPLATES, Contents, goes_through_parts, template


@pytest.mark.parametrize("contents", ["as sent", "fitted"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_each_conversation_is_taken_in_the_end(name: str, contents: Contents) -> None:
    server = template(TEMPLATES[name], contents)
    counts = {of: taken(messages, server) for of, messages in CONVERSATIONS.items()}
    assert contents == "fitted" or max(counts.values()) > 1, "this template refuses nothing"


@pytest.mark.parametrize(
    ("name", "conversation", "most"),
    [
        ("system first", "developer", 2),
        ("gemma", "developer", 2),
        ("gemma", "assistant first", 2),
        ("gemma", "two users", 2),
        ("gemma of no system", "plain", 2),
        ("no tools", "two calls at once", 2),
        ("one call", "two calls at once", 2),
        ("contents added", "call and result", 2),
        ("arguments of text", "call and result", 2),
    ],
)
def test_what_helps_is_learned_at_once(name: str, conversation: str, most: int) -> None:
    assert taken(CONVERSATIONS[conversation], template(TEMPLATES[name], "as sent")) == most


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("{% for part in message.content %}{% endfor %}", True),
        ("{% for part in message['content'] | list %}{% endfor %}", True),
        ("{% set said = message['content'] %}{% for part in said %}{% endfor %}", True),
        ("{% for one in messages %}{{ one.content }}{% endfor %}", False),
    ],
)
def test_a_template_that_goes_through_parts_is_known(source: str, found: bool) -> None:
    assert goes_through_parts(jinja2.Environment(autoescape=True).parse(source)) is found
